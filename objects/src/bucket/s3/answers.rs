//! What a store says, and what that means.
//!
//! | answer | for | meaning |
//! |---|---|---|
//! | 304, 412 | a `PUT` that makes an object | [`BucketError::Exists`] |
//! | 304, 412 | other requests | [`BucketError::Unsure`] |
//! | 404 `NoSuchKey` | a `GET`, a `DELETE` | [`BucketError::Missing`] |
//! | 404 `NoSuchBucket` | all | [`BucketError::Refused`] |
//! | 404 without such a code | all | [`BucketError::Unsure`]: a proxy, or no store at all |
//! | 401, 403 | all | [`BucketError::Refused`], with where the credentials came from |
//! | 403 that passes: `ExpiredToken`, `SlowDown`, a quota | all | [`BucketError::Unsure`] |
//! | 400 of bytes that changed or came late | all | [`BucketError::Unsure`] |
//! | 301, 308, other 400, 405, 411, 501 | all | [`BucketError::Refused`] |
//! | 409, 408, 416, 425, 429, 5xx, all else | all | [`BucketError::Unsure`] |
//!
//! A 409 is another request for the same key at the same time: whichever of them made the object, asking
//! again says so. A 404 is believed only with its code, since an object that is missing means something.

use hyper::StatusCode;

use crate::bucket::{BucketError, Listed};

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Create,
    Put,
    Range,
    All,
    Delete,
    List,
}

/// What the store said.
#[derive(Debug)]
pub(super) struct Said {
    status: StatusCode,
    code: String,
    message: String,
}

/// Text of a store as a message may show it.
pub(super) fn shown(text: &str, most: usize) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).take(most).collect()
}

/// What is between the first pair of these tags.
fn between<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(inner, _)| inner)
}

impl Said {
    pub fn new(status: StatusCode, body: &[u8]) -> Self {
        let body = String::from_utf8_lossy(body);
        let code = between(&body, "Code").filter(|code| code.bytes().all(|one| one.is_ascii_alphanumeric()));
        let message = between(&body, "Message").unwrap_or_default();
        Self { status, code: shown(code.unwrap_or_default(), 60), message: shown(message, 200) }
    }

    /// All of it.
    fn words(&self) -> String {
        let mut words = self.status.as_u16().to_string();
        for (lead, word) in [(" ", &self.code), (": ", &self.message)] {
            if !word.is_empty() {
                words.push_str(lead);
                words.push_str(word);
            }
        }
        words
    }

    pub fn meaning(self, asked: Asked, bucket: &str, place: &str) -> BucketError {
        let words = self.words();
        let refused = |why: &str| BucketError::Refused(format!("{words}; {why}"));
        match (self.status.as_u16(), self.code.as_str()) {
            (304 | 412, _) if asked == Asked::Create => BucketError::Exists,
            (404, "NoSuchBucket") => refused(&format!(
                "there is no bucket '{bucket}': make it with the store's own tools, or name another"
            )),
            (404, "NoSuchKey") if matches!(asked, Asked::Range | Asked::All | Asked::Delete) => {
                BucketError::Missing
            }
            (404, "") => BucketError::Unsure(format!("{words}, not as S3 says it: is the endpoint a store?")),
            (401 | 403, "RequestTimeTooSkewed") => refused("the clock of this machine is wrong"),
            (403, "ExpiredToken" | "SlowDown" | "QuotaExceeded" | "RequestTimeout") => {
                BucketError::Unsure(words)
            }
            (401 | 403, _) => refused(&format!("the credentials come from {place}")),
            (
                400,
                ""
                | "RequestTimeout"
                | "BadDigest"
                | "InvalidDigest"
                | "IncompleteBody"
                | "ExpiredToken"
                | "XAmzContentSHA256Mismatch"
                | "XAmzContentChecksumMismatch",
            ) => BucketError::Unsure(words),
            (400, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") | (301 | 308, _) => {
                refused(
                    "the bucket is in another region or at another endpoint: name them by region=, endpoint=",
                )
            }
            (400, _) => refused("the store does not take such a request"),
            (405 | 411 | 501, _) => refused("the store lacks what Cenote relies on"),
            _ => BucketError::Unsure(words),
        }
    }
}

/// A page of a listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// With whole keys.
    pub listed: Vec<Listed>,
    /// Whether there is more.
    pub is_cut: bool,
}

impl Page {
    pub fn parse(body: &[u8]) -> Result<Self, BucketError> {
        let wrong = || BucketError::Unsure("the listing makes no sense".into());
        let text = std::str::from_utf8(body).map_err(|_| wrong())?;
        if !text.contains("<ListBucketResult") {
            return Err(wrong());
        }
        let mut parts = text.split("<Contents>");
        let head = parts.next().unwrap_or_default();
        let tail = text.rsplit("</Contents>").next().unwrap_or_default();
        let is_cut = [head, tail].into_iter().any(|part| between(part, "IsTruncated") == Some("true"));
        let listed = parts.map(|part| {
            let key = between(part, "Key").ok_or_else(wrong)?;
            let size_bytes = between(part, "Size").and_then(|size| size.parse().ok()).ok_or_else(wrong)?;
            Ok(Listed { key: unescaped(key), size_bytes })
        });
        Ok(Self { listed: listed.collect::<Result<_, BucketError>>()?, is_cut })
    }
}

/// A text of XML, with the five entities that there are without a definition. Keys of Cenote have none.
fn unescaped(text: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    entities.iter().fold(text.to_owned(), |text, (entity, one)| text.replace(entity, one))
}

/// A value of a query.
pub(super) fn escaped(value: &str) -> String {
    let is_plain = |one: u8| one.is_ascii_alphanumeric() || b"-_.~".contains(&one);
    let escape = |one: u8| if is_plain(one) { char::from(one).to_string() } else { format!("%{one:02X}") };
    value.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(status: u16, code: &str, asked: Asked) -> BucketError {
        let body = format!("<Error><Code>{code}</Code><Message>so it is\n</Message></Error>");
        let body = if code.is_empty() { "<html>no</html>" } else { &body };
        let said = Said::new(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        said.meaning(asked, "tank", "a place")
    }

    #[test]
    fn answers_mean_what_the_table_says() {
        use Asked::{All, Create, Delete, List, Put, Range};
        let exists =
            |status, asked| assert_eq!(means(status, "PreconditionFailed", asked), BucketError::Exists);
        exists(412, Create);
        exists(304, Create);
        for asked in [Range, All, Delete] {
            assert_eq!(means(404, "NoSuchKey", asked), BucketError::Missing);
        }
        let unsure = [
            (412, "PreconditionFailed", Put),
            (404, "NoSuchKey", Create),
            (404, "", All),
            (404, "", Delete),
            (409, "ConditionalRequestConflict", Create),
            (409, "OperationAborted", Put),
            (400, "RequestTimeout", Put),
            (400, "BadDigest", Create),
            (400, "", All),
            (403, "ExpiredToken", All),
            (416, "InvalidRange", Range),
            (307, "TemporaryRedirect", Put),
            (408, "", All),
            (429, "TooManyRequests", List),
            (500, "InternalError", Create),
            (502, "", All),
            (503, "SlowDown", Put),
        ];
        for (status, code, asked) in unsure {
            let meant = means(status, code, asked);
            assert!(matches!(meant, BucketError::Unsure(_)), "{status} {code} {asked:?}: {meant:?}");
            assert!(meant.to_string().starts_with(&status.to_string()), "{meant}");
        }
        let refused = [
            (403, "AccessDenied", "403 AccessDenied: so it is ; the credentials come from a place"),
            (401, "", "401; the credentials come from a place"),
            (403, "SignatureDoesNotMatch", "the credentials come from a place"),
            (403, "RequestTimeTooSkewed", "the clock of this machine is wrong"),
            (404, "NoSuchBucket", "there is no bucket 'tank'"),
            (301, "PermanentRedirect", "in another region"),
            (400, "AuthorizationHeaderMalformed", "in another region"),
            (400, "InvalidArgument", "does not take such a request"),
            (501, "NotImplemented", "lacks what Cenote relies on"),
        ];
        for (status, code, words) in refused {
            for asked in [Create, Put, Range, All, Delete, List] {
                let meant = means(status, code, asked);
                assert!(matches!(meant, BucketError::Refused(_)), "{status} {code} {asked:?}: {meant:?}");
                assert!(meant.to_string().contains(words), "{meant}");
            }
        }
    }

    #[test]
    fn a_listing_is_taken_apart_or_makes_no_sense() {
        let one = "<Contents><Key>a/1</Key><Size>7</Size></Contents>";
        let two = "<Contents><Size>0</Size><Key>a&amp;lt;&lt;</Key></Contents>";
        let of =
            |inner: &str| Page::parse(format!("<ListBucketResult>{inner}</ListBucketResult>").as_bytes());
        let listed = |key: &str, size_bytes| Listed { key: key.into(), size_bytes };
        let both = vec![listed("a/1", 7), listed("a&lt;<", 0)];
        let cut = "<IsTruncated>true</IsTruncated>";
        assert_eq!(of(&format!("{cut}{one}{two}")), Ok(Page { listed: both.clone(), is_cut: true }));
        assert_eq!(of(&format!("{one}{two}{cut}")), Ok(Page { listed: both.clone(), is_cut: true }));
        assert_eq!(of(&format!("{one}{two}")), Ok(Page { listed: both, is_cut: false }));
        assert_eq!(of(""), Ok(Page { listed: vec![], is_cut: false }));
        for wrong in ["<Contents><Key>a</Key></Contents>", "<Contents><Size>1</Size></Contents>"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(Page::parse(b"<html></html>").is_err());
        assert_eq!(escaped("a/b=1 ~"), "a%2Fb%3D1%20~");
    }
}
