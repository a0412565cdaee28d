//! What an address says of a bucket: its name, the prefix of its keys, and parameters.
//!
//! | parameter | meaning | without it |
//! |---|---|---|
//! | `endpoint` | the store, `https://HOST[:PORT]`; `http` only where it is written | AWS, in the region |
//! | `region` | what requests are signed for | `AWS_REGION`, the profile's, else `us-east-1` |
//! | `profile` | credentials are those of this profile | [`super::credentials`] |
//! | `style` | `path` or `virtual`: the bucket is in the path or in the host | `path` with an endpoint |
//! | `concurrency` | the most requests at once, 1 to 256 | 32 |
//! | `timeout` | seconds until a request is given up, 1 to 600 | 60 |
//!
//! An address is shown to users and kept in labels of pools. So a secret in it is refused, and the refusal
//! does not repeat it: messages name parameters, never the values of unknown ones.

use std::time::Duration;

/// Why a bucket cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum S3Error {
    /// Its name.
    #[error("'{0}' is no name of a bucket: 3 to 63 letters, digits, '-', '_' and '.'")]
    Bucket(String),
    /// A kind of bucket with another protocol.
    #[error("'{0}' is a directory bucket of S3 Express, which Cenote does not know; take a general one")]
    Express(String),
    /// The prefix of keys.
    #[error("'{0}' is no prefix: words of letters, digits, '-', '_' and '.', with '/' between them")]
    Prefix(String),
    /// A parameter that there is not.
    #[error(
        "there is no parameter '{0}'; there are endpoint, region, profile, style, concurrency and timeout"
    )]
    Unknown(String),
    /// A parameter that comes twice.
    #[error("the parameter '{0}' is there twice")]
    Twice(String),
    /// A secret, which is not repeated.
    #[error(
        "'{0}' would put a secret into an address, which is shown and stored; give credentials by \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or by a profile in ~/.aws/credentials"
    )]
    Secret(String),
    /// A value.
    #[error("'{value}' is no value of '{name}': {expected}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// Credentials.
    #[error("no credentials for s3://{bucket}: {why}")]
    Credentials {
        /// For what.
        bucket: String,
        /// Where they were looked for, and what was found there.
        why: String,
    },
    /// TLS.
    #[error(
        "no connection over TLS can be trusted: {0}; install ca-certificates, or name some by SSL_CERT_FILE"
    )]
    Trust(String),
}

/// How a bucket is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Scheme and host of the store; none for AWS, where the region says it.
    endpoint: Option<(&'static str, String)>,
    /// Whether the bucket is in the path.
    is_in_path: bool,
    /// What keys begin with: empty, or with a `/` at the end.
    pub prefix: String,
    /// None where it is not named.
    pub region: Option<String>,
    pub profile: Option<String>,
    pub concurrency: usize,
    pub timeout: Duration,
    /// The address that messages have.
    pub address: String,
}

/// The most requests at once, where nothing else is said.
const CONCURRENCY: usize = 32;
/// When a request is given up, where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Words of parameters that carry secrets.
const SECRETS: [&str; 7] = ["key", "secret", "token", "password", "credential", "signature", "auth"];

fn is_word(word: &str, also: &str) -> bool {
    let is_one = |one: char| one.is_ascii_alphanumeric() || also.contains(one);
    !word.is_empty() && !word.starts_with('.') && word.chars().all(is_one)
}

/// A name as a message may show it.
fn shown(name: &str) -> String {
    name.chars().filter(|one| !one.is_control()).take(64).collect()
}

/// The scheme and the host of an endpoint.
fn endpoint(value: &str) -> Result<(&'static str, &str), S3Error> {
    let expected = "https://HOST[:PORT] or http://HOST[:PORT]";
    let (scheme, rest) = match value.split_once("://") {
        Some(("https", rest)) => ("https", rest),
        Some(("http", rest)) => ("http", rest),
        Some(_) => {
            return Err(S3Error::Value { name: "endpoint", value: shown(value), expected });
        }
        None => ("https", value),
    };
    if rest.contains('@') {
        return Err(S3Error::Secret("endpoint".into()));
    }
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_name = match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_word(name, "-._"),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    match is_name && is_port {
        true => Ok((scheme, host)),
        false => Err(S3Error::Value { name: "endpoint", value: shown(value), expected }),
    }
}

fn number(name: &'static str, value: &str, most: u64, expected: &'static str) -> Result<u64, S3Error> {
    let number = value.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| S3Error::Value { name, value: shown(value), expected })
}

impl Parameters {
    pub fn parse(bucket: &str, prefix: &str, given: &[(String, String)]) -> Result<Self, S3Error> {
        if !is_word(bucket, "-_.") || !(3..=63).contains(&bucket.len()) || bucket.contains("..") {
            return Err(S3Error::Bucket(shown(bucket)));
        }
        if bucket.ends_with("--x-s3") {
            return Err(S3Error::Express(bucket.to_owned()));
        }
        let prefix = prefix.trim_matches('/');
        if prefix.len() > 512 || !prefix.is_empty() && !prefix.split('/').all(|word| is_word(word, "-_.")) {
            return Err(S3Error::Prefix(shown(prefix)));
        }
        let (mut named, mut region, mut profile) = (None, None, None);
        let (mut style, mut concurrency, mut timeout) = (None, CONCURRENCY, TIMEOUT);
        for (at, (name, value)) in given.iter().enumerate() {
            if given[..at].iter().any(|(other, _)| other == name) {
                return Err(S3Error::Twice(shown(name)));
            }
            match name.as_str() {
                "endpoint" => named = Some(endpoint(value)?),
                "region" if is_word(value, "-_") => region = Some(value.clone()),
                "region" => {
                    let expected = "letters, digits and '-'";
                    return Err(S3Error::Value { name: "region", value: shown(value), expected });
                }
                "profile" if is_word(value, "-_.@+ ") => profile = Some(value.clone()),
                "profile" => {
                    let expected = "the name of a section of ~/.aws/credentials";
                    return Err(S3Error::Value { name: "profile", value: shown(value), expected });
                }
                "style" => {
                    style = match value.as_str() {
                        "path" => Some(true),
                        "virtual" => Some(false),
                        _ => {
                            let expected = "path or virtual";
                            return Err(S3Error::Value { name: "style", value: shown(value), expected });
                        }
                    }
                }
                "concurrency" => {
                    concurrency = number("concurrency", value, 256, "1 to 256")? as usize;
                }
                "timeout" => {
                    timeout = Duration::from_secs(number("timeout", value, 600, "1 to 600 seconds")?);
                }
                name if SECRETS.iter().any(|word| name.to_ascii_lowercase().contains(word)) => {
                    return Err(S3Error::Secret(shown(name)));
                }
                name => return Err(S3Error::Unknown(shown(name))),
            }
        }
        // A certificate for all buckets has no names with further dots.
        let is_in_path = style.unwrap_or(named.is_some() || bucket.contains('.'));
        let endpoint = named.map(|(scheme, host)| (scheme, host.to_owned()));
        let words: Vec<String> = given.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let slash = if prefix.is_empty() { "" } else { "/" };
        let question = if words.is_empty() { "" } else { "?" };
        let address = format!("s3://{bucket}{slash}{prefix}{question}{}", words.join("&"));
        let prefix = format!("{prefix}{slash}");
        Ok(Self { endpoint, is_in_path, prefix, region, profile, concurrency, timeout, address })
    }

    /// Where the bucket is: scheme, host, and its name in the host or in the path. No `/` at the end.
    pub fn base(&self, bucket: &str, region: &str) -> String {
        let aws = || ("https", format!("s3.{region}.amazonaws.com"));
        let (scheme, host) = self.endpoint.clone().unwrap_or_else(aws);
        match self.is_in_path {
            true => format!("{scheme}://{host}/{bucket}"),
            false => format!("{scheme}://{bucket}.{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bucket: &str, prefix: &str, given: &[(&str, &str)]) -> Result<Parameters, S3Error> {
        let given: Vec<_> = given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Parameters::parse(bucket, prefix, &given)
    }

    #[test]
    fn a_bucket_is_in_the_path_of_an_endpoint_and_in_the_name_of_a_host_of_aws() {
        let base = |bucket, given: &[_]| parse(bucket, "", given).unwrap().base(bucket, "eu-west-1");
        assert_eq!(base("tank", &[]), "https://tank.s3.eu-west-1.amazonaws.com");
        assert_eq!(base("a.tank", &[]), "https://s3.eu-west-1.amazonaws.com/a.tank");
        assert_eq!(base("tank", &[("endpoint", "s3.example:9000")]), "https://s3.example:9000/tank");
        assert_eq!(base("tank", &[("endpoint", "http://[::1]:9000/")]), "http://[::1]:9000/tank");
        let named = [("endpoint", "https://s3.example"), ("style", "virtual")];
        assert_eq!(base("tank", &named), "https://tank.s3.example");
        let all = parse("tank", "/a/b/", &[("timeout", "5"), ("concurrency", "2")]).unwrap();
        assert_eq!(all.address, "s3://tank/a/b?timeout=5&concurrency=2");
        assert_eq!((all.prefix.as_str(), all.timeout.as_secs(), all.concurrency), ("a/b/", 5, 2));
        assert_eq!(parse("tank", "", &[]).unwrap().address, "s3://tank");
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_secrets_are_not_repeated() {
        for bucket in ["", "a", "-/x", "a/b/c", "a b c", "..a", "a..b", &"a".repeat(64)] {
            assert!(matches!(parse(bucket, "", &[]), Err(S3Error::Bucket(_))), "{bucket}");
        }
        assert!(matches!(parse("x--use1-az4--x-s3", "", &[]), Err(S3Error::Express(_))));
        for prefix in ["a//b", "../x", "a/./b", "a b", "a?b", "a%2e", "a=b", "a+b"] {
            assert!(matches!(parse("tank", prefix, &[]), Err(S3Error::Prefix(_))), "{prefix}");
        }
        let secrets = [
            ("secret_access_key", "hunter2"),
            ("AccessKeyId", "hunter2"),
            ("X-Amz-Signature", "hunter2"),
            ("session_token", "hunter2"),
            ("endpoint", "https://me:hunter2@s3.example"),
        ];
        for secret in secrets {
            let refused = parse("tank", "", &[secret]).unwrap_err();
            assert!(matches!(refused, S3Error::Secret(_)), "{refused}");
            assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused}");
        }
        let wrong = [
            ("endpoint", "ftp://s3.example"),
            ("endpoint", "https://s3.example/path"),
            ("endpoint", "https://s3.example?x=1"),
            ("endpoint", "https://s3.example:0"),
            ("endpoint", ""),
            ("region", "eu west"),
            ("style", "dns"),
            ("timeout", "0"),
            ("timeout", "1e9"),
            ("concurrency", "257"),
            ("profile", "a]b"),
        ];
        for one in wrong {
            let refused = parse("tank", "", &[one]).unwrap_err();
            assert!(matches!(refused, S3Error::Value { .. }), "{one:?} {refused}");
        }
        let unknown = parse("tank", "", &[("colour", "blue")]).unwrap_err();
        assert!(unknown.to_string().starts_with("there is no parameter 'colour'"), "{unknown}");
        let twice = parse("tank", "", &[("timeout", "5"), ("timeout", "6")]).unwrap_err();
        assert_eq!(twice, S3Error::Twice("timeout".into()));
    }
}
