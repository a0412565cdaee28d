//! Credentials for a store, and where they come from. The first of these that is there is used:
//!
//! 1. the profile that the address names, in the shared file (`AWS_SHARED_CREDENTIALS_FILE`, else
//!    `~/.aws/credentials`);
//! 2. `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, with `AWS_SESSION_TOKEN`;
//! 3. a role of a web identity (`AWS_WEB_IDENTITY_TOKEN_FILE`, `AWS_ROLE_ARN`);
//! 4. the profile `AWS_PROFILE`, else `default`, in the shared file;
//! 5. a container's role (`AWS_CONTAINER_CREDENTIALS_…`);
//! 6. the role of an instance of AWS, unless `AWS_EC2_METADATA_DISABLED` is `true`.
//!
//! `object_store` asks for those of 3, 5 and 6, keeps them, and asks again before they end. The shared file
//! is read again when it has changed, so that keys can be replaced while a pool is open. Nothing here shows a
//! secret: what is shown is the place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use ::device::IgnorePoison;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::{CredentialProvider, RetryConfig, StaticCredentialProvider};

use super::http::{Connector, Sender};
use super::parameters::{Parameters, S3Error};
use crate::bucket::BucketError;

/// How a variable of the environment is looked up.
pub type Look<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The most bytes of a shared file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The most characters of a credential.
const MAX_CHARACTERS: usize = 16 << 10;
/// The profile where none is named.
const DEFAULT_PROFILE: &str = "default";
/// The region where none is named.
const DEFAULT_REGION: &str = "us-east-1";
/// What profiles have that only the tools of AWS understand.
const FOREIGN: [&str; 6] =
    ["credential_process", "sso_session", "sso_start_url", "role_arn", "login_session", "credential_source"];

type Provider = Arc<dyn CredentialProvider<Credential = AwsCredential>>;

/// Credentials of a bucket.
pub(super) struct Credentials {
    provider: Provider,
    /// Where they come from, in words.
    place: String,
    /// Whether they were there once: then a failure to get them may pass.
    were_there: AtomicBool,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("place", &self.place).finish_non_exhaustive()
    }
}

/// One without empty values: those are as good as none.
fn set(look: Look<'_>, name: &str) -> Option<String> {
    look(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// A file of AWS: the one that this variable names, or this one of the user's own.
fn file(look: Look<'_>, variable: &str, own: &str) -> Option<PathBuf> {
    let named = set(look, variable).map(PathBuf::from);
    named.or_else(|| set(look, "HOME").map(|home| Path::new(&home).join(".aws").join(own)))
}

/// The name of the profile where the address names none.
fn profile_of(look: Look<'_>) -> String {
    set(look, "AWS_PROFILE").unwrap_or_else(|| DEFAULT_PROFILE.to_owned())
}

/// The region that requests are signed for.
pub(super) fn region(parameters: &Parameters, look: Look<'_>) -> String {
    let set_region = || set(look, "AWS_REGION").or_else(|| set(look, "AWS_DEFAULT_REGION"));
    let of_profile = || {
        let profile = parameters.profile.clone().unwrap_or_else(|| profile_of(look));
        let text = read(&file(look, "AWS_CONFIG_FILE", "config")?).ok()?;
        sections(&text).get(&profile)?.get("region").map(|region| (*region).to_owned())
    };
    let is_region = |region: &String| {
        !region.is_empty()
            && region.chars().all(|one| one.is_ascii_alphanumeric() || one == '-' || one == '_')
    };
    let found = parameters.region.clone().or_else(set_region).or_else(of_profile);
    found.filter(is_region).unwrap_or_else(|| DEFAULT_REGION.to_owned())
}

impl Credentials {
    pub fn find(
        bucket: &str,
        parameters: &Parameters,
        region: &str,
        sender: &Arc<Sender>,
        look: Look<'_>,
    ) -> Result<Self, S3Error> {
        let refused = |why| S3Error::Credentials { bucket: bucket.to_owned(), why };
        let (provider, place) = Self::provider(parameters, region, sender, look).map_err(refused)?;
        Ok(Self { provider, place, were_there: AtomicBool::new(false) })
    }

    fn provider(
        parameters: &Parameters,
        region: &str,
        sender: &Arc<Sender>,
        look: Look<'_>,
    ) -> Result<(Provider, String), String> {
        let shared = file(look, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
        if let Some(profile) = &parameters.profile {
            let nowhere = "the address names a profile, and neither AWS_SHARED_CREDENTIALS_FILE nor HOME \
                           says where the file is";
            let shared = shared.ok_or(nowhere)?;
            return of_file(shared, profile);
        }
        match (set(look, "AWS_ACCESS_KEY_ID"), set(look, "AWS_SECRET_ACCESS_KEY")) {
            (Some(key_id), Some(secret_key)) => {
                let token = set(look, "AWS_SESSION_TOKEN");
                let credential = AwsCredential { key_id, secret_key, token };
                is_sendable(&credential).map_err(|what| {
                    format!("{what} in the environment has characters that cannot be sent")
                })?;
                let place = "AWS_ACCESS_KEY_ID in the environment".to_owned();
                return Ok((Arc::new(StaticCredentialProvider::new(credential)), place));
            }
            (Some(_), None) => return Err("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY".into()),
            (None, Some(_)) => return Err("AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID".into()),
            (None, None) => {}
        }
        if set(look, "AWS_WEB_IDENTITY_TOKEN_FILE").is_some() && set(look, "AWS_ROLE_ARN").is_some() {
            let wanted = [
                (AmazonS3ConfigKey::WebIdentityTokenFile, "AWS_WEB_IDENTITY_TOKEN_FILE"),
                (AmazonS3ConfigKey::RoleArn, "AWS_ROLE_ARN"),
                (AmazonS3ConfigKey::RoleSessionName, "AWS_ROLE_SESSION_NAME"),
                (AmazonS3ConfigKey::StsEndpoint, "AWS_ENDPOINT_URL_STS"),
            ];
            return of_service(region, sender, look, &wanted, "a web identity (AWS_WEB_IDENTITY_TOKEN_FILE)");
        }
        let profile = profile_of(look);
        if let Some(shared) = shared.filter(|shared| shared.exists()) {
            let is_there = sections(&read(&shared)?).contains_key(&profile);
            if is_there || set(look, "AWS_PROFILE").is_some() {
                return of_file(shared, &profile);
            }
        }
        let is_whole = set(look, "AWS_CONTAINER_CREDENTIALS_FULL_URI").is_some()
            && set(look, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").is_some();
        if is_whole || set(look, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").is_some() {
            let wanted = [
                (
                    AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
                    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                ),
                (AmazonS3ConfigKey::ContainerCredentialsFullUri, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
                (
                    AmazonS3ConfigKey::ContainerAuthorizationTokenFile,
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                ),
            ];
            return of_service(
                region,
                sender,
                look,
                &wanted,
                "the container's role (AWS_CONTAINER_CREDENTIALS_…)",
            );
        }
        if set(look, "AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Err(format!(
                "looked for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for the profile '{profile}' in \
                 ~/.aws/credentials, and for a container's role; AWS_EC2_METADATA_DISABLED forbids to ask \
                 for an instance's"
            ));
        }
        let wanted = [(AmazonS3ConfigKey::MetadataEndpoint, "AWS_EC2_METADATA_SERVICE_ENDPOINT")];
        let place = "the instance's role, since there is no AWS_ACCESS_KEY_ID and no profile in \
                     ~/.aws/credentials";
        of_service(region, sender, look, &wanted, place)
    }

    /// Where they come from, in words.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Them, as of now.
    pub async fn get(&self) -> Result<Arc<AwsCredential>, BucketError> {
        match self.provider.get_credential().await {
            Ok(credential) => match is_sendable(&credential) {
                Ok(()) => {
                    self.were_there.store(true, Ordering::Relaxed);
                    Ok(credential)
                }
                Err(what) => {
                    let place = &self.place;
                    let words = format!("the credentials from {place} are of no use: {what} cannot be sent");
                    Err(BucketError::Refused(words))
                }
            },
            Err(error) => {
                let words = format!("no credentials from {}: {error}", self.place);
                match self.were_there.load(Ordering::Relaxed) {
                    true => Err(BucketError::Unsure(words)),
                    false => Err(BucketError::Refused(words)),
                }
            }
        }
    }
}

/// Whether headers can carry them; else which of them they cannot carry.
fn is_sendable(credential: &AwsCredential) -> Result<(), &'static str> {
    let is_word = |word: &str| {
        (1..=MAX_CHARACTERS).contains(&word.len()) && word.bytes().all(|one| one.is_ascii_graphic())
    };
    match () {
        () if !is_word(&credential.key_id) => Err("the access key's id"),
        () if !is_word(&credential.secret_key) => Err("the secret access key"),
        () if !credential.token.as_deref().is_none_or(is_word) => Err("the session token"),
        () => Ok(()),
    }
}

/// Those that a service gives.
fn of_service(
    region: &str,
    sender: &Arc<Sender>,
    look: Look<'_>,
    wanted: &[(AmazonS3ConfigKey, &str)],
    place: &str,
) -> Result<(Provider, String), String> {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let builder = AmazonS3Builder::new()
        .with_bucket_name("none")
        .with_region(region)
        .with_retry(retry)
        .with_http_connector(Connector(Arc::clone(sender)));
    let builder = wanted.iter().fold(builder, |builder, (key, variable)| match set(look, variable) {
        Some(value) => builder.with_config(*key, value),
        None => builder,
    });
    let built = builder.build().map_err(|error| error.to_string())?;
    Ok((Arc::clone(built.credentials()), place.to_owned()))
}

/// Those of a profile.
fn of_file(path: PathBuf, profile: &str) -> Result<(Provider, String), String> {
    let place = format!("the profile '{profile}' in {}", path.display());
    let shared = SharedFile { path, profile: profile.to_owned(), read: Mutex::default() };
    shared.credential()?;
    Ok((Arc::new(shared), place))
}

/// A profile in a shared file.
struct SharedFile {
    path: PathBuf,
    profile: String,
    /// When the file was changed that this was read from. Locked alone.
    read: Mutex<Option<(SystemTime, Arc<AwsCredential>)>>,
}

impl fmt::Debug for SharedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFile")
            .field("path", &self.path)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {}", path.display(), ::device::in_words(&error));
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_FILE_BYTES {
        return Err(format!("{} is too long for a file with credentials", path.display()));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// The sections of such a file, by their names; `[profile x]` is `x`.
fn sections(text: &str) -> BTreeMap<String, BTreeMap<&str, &str>> {
    let mut sections: BTreeMap<String, BTreeMap<&str, &str>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let name = name.trim().strip_prefix("profile ").unwrap_or(name).trim().to_owned();
            sections.entry(name.clone()).or_default();
            current = Some(name);
            continue;
        }
        let section = current.as_ref().and_then(|name| sections.get_mut(name));
        if let (Some(section), Some((name, value))) = (section, trimmed.split_once('=')) {
            section.insert(name.trim(), value.trim());
        }
    }
    sections
}

impl SharedFile {
    fn credential(&self) -> Result<Arc<AwsCredential>, String> {
        let changed = std::fs::metadata(&self.path).and_then(|metadata| metadata.modified());
        let changed =
            changed.map_err(|error| format!("{}: {}", self.path.display(), ::device::in_words(&error)))?;
        if let Some((of, credential)) = &*self.read.lock().ignore_poison()
            && *of == changed
        {
            return Ok(Arc::clone(credential));
        }
        let text = read(&self.path)?;
        let sections = sections(&text);
        let (path, profile) = (self.path.display(), &self.profile);
        let section = sections.get(profile).ok_or_else(|| format!("{path} has no profile '{profile}'"))?;
        let value =
            |name| section.get(name).filter(|value| !value.is_empty()).map(|value| (*value).to_owned());
        let (Some(key_id), Some(secret_key)) = (value("aws_access_key_id"), value("aws_secret_access_key"))
        else {
            let foreign = FOREIGN.iter().find(|name| section.contains_key(**name));
            let why = match foreign {
                Some(name) => format!("has '{name}', which Cenote does not understand"),
                None => "lacks aws_access_key_id or aws_secret_access_key".to_owned(),
            };
            return Err(format!("the profile '{profile}' in {path} {why}"));
        };
        let credential = AwsCredential { key_id, secret_key, token: value("aws_session_token") };
        let sendable = is_sendable(&credential);
        sendable.map_err(|what| format!("{what} of the profile '{profile}' in {path} cannot be sent"))?;
        let credential = Arc::new(credential);
        *self.read.lock().ignore_poison() = Some((changed, Arc::clone(&credential)));
        Ok(credential)
    }
}

impl CredentialProvider for SharedFile {
    type Credential = AwsCredential;

    // The trait is made by `async_trait`; this is what its functions are.
    fn get_credential<'a, 'b>(
        &'a self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let failed = |why: String| object_store::Error::Generic { store: "S3", source: why.into() };
        Box::pin(async move { self.credential().map_err(failed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI-hunter2";

    fn find(profile: Option<&str>, environment: &[(&str, &str)]) -> Result<Credentials, S3Error> {
        let given = profile.map(|profile| ("profile".to_owned(), profile.to_owned()));
        let parameters = Parameters::parse("tank", "", given.as_slice()).unwrap();
        let look = |name: &str| {
            let found = environment.iter().find(|(of, _)| *of == name);
            // No test asks the network for credentials.
            let off = (name == "AWS_EC2_METADATA_DISABLED").then(|| "true".to_owned());
            found.map(|(_, value)| (*value).to_owned()).or(off)
        };
        let sender = Arc::new(Sender::new(1, false).unwrap());
        Credentials::find("tank", &parameters, "us-east-1", &sender, &look)
    }

    fn got(credentials: &Credentials) -> Result<(String, Option<String>), BucketError> {
        let got = ::device::block_on(credentials.get())?;
        Ok((got.key_id.clone(), got.token.clone()))
    }

    #[test]
    fn the_first_place_that_has_credentials_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        let text = format!(
            "# keys\n[default]\naws_access_key_id = OWN\naws_secret_access_key={SECRET}\n\n[profile other]\n\
             aws_access_key_id=OTHER\naws_secret_access_key={SECRET}\naws_session_token = T=1\n[sso]\n\
             sso_session = x\n[bad]\naws_access_key_id = A B\naws_secret_access_key = {SECRET}\n"
        );
        std::fs::write(&path, &text).unwrap();
        let shared = ("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap());
        let keys = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", SECRET), shared];
        let of = |profile, environment: &[_]| got(&find(profile, environment).unwrap()).unwrap();
        assert_eq!(of(None, &keys), ("ENV".into(), None));
        assert_eq!(of(Some("other"), &keys), ("OTHER".into(), Some("T=1".into())));
        assert_eq!(of(None, &[shared]), ("OWN".into(), None));
        assert_eq!(of(None, &[shared, ("AWS_PROFILE", "other")]).0, "OTHER");

        let kept = find(None, &[shared]).unwrap();
        assert_eq!(got(&kept).unwrap().0, "OWN");
        std::fs::write(&path, text.replace("OWN", "NEW")).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_eq!(got(&kept).unwrap().0, "NEW", "it is read again");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(got(&kept), Err(BucketError::Unsure(_))), "it was there once");

        std::fs::write(&path, &text).unwrap();
        let refused = [
            (find(Some("none"), &[shared]), "has no profile 'none'"),
            (find(Some("sso"), &[shared]), "has 'sso_session', which Cenote does not understand"),
            (find(Some("bad"), &[shared]), "the access key's id of the profile 'bad'"),
            (find(None, &[]), "AWS_EC2_METADATA_DISABLED forbids"),
            (find(None, &keys[..1]), "AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY"),
            (find(None, &[keys[0], ("AWS_SECRET_ACCESS_KEY", "hunter2\nx")]), "cannot be sent"),
        ];
        for (refused, why) in refused {
            let words = format!("{} {:?}", refused.as_ref().unwrap_err(), refused);
            assert!(words.contains(why), "{words}");
            assert!(!words.contains("hunter2"), "{words}");
        }
        assert!(!format!("{:?}", find(None, &keys).unwrap()).contains("hunter2"));
    }

    #[test]
    fn the_region_is_the_addresses_the_environments_or_the_profiles() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, "[default]\nregion = eu-south-2\n[profile x]\nregion=bad region\n").unwrap();
        let of = |given: &[(&str, &str)], environment: &[(&str, &str)]| {
            let given: Vec<_> =
                given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let parameters = Parameters::parse("tank", "", &given).unwrap();
            let found = |name: &str| {
                environment.iter().find(|(of, _)| *of == name).map(|(_, value)| value.to_string())
            };
            region(&parameters, &found)
        };
        let config = ("AWS_CONFIG_FILE", path.to_str().unwrap());
        assert_eq!(of(&[], &[]), "us-east-1");
        assert_eq!(of(&[], &[config]), "eu-south-2");
        assert_eq!(of(&[("profile", "x")], &[config]), "us-east-1");
        assert_eq!(of(&[], &[config, ("AWS_REGION", "eu-west-1")]), "eu-west-1");
        assert_eq!(of(&[("region", "x-1")], &[config, ("AWS_REGION", "eu-west-1")]), "x-1");
    }
}
