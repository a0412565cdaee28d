//! [`Secret`]: bytes of a key in a request.
//!
//! In JSON they are a list of numbers, as other bytes are. They are wiped when they are dropped, never shown,
//! and never part of the error that a request of a wrong form gets. [`Wiped`] is a request as it travels,
//! with or without a key in it.

use std::borrow::Cow;
use std::{fmt, io};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// More bytes than any key has.
const MAX_BYTES: usize = 64 << 10;

/// Room for most requests.
const LEAST_ROOM: usize = 4096;

/// Bytes that are wiped when dropped, and not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Bytes of a request that may have a key in it: they are wiped when they are dropped, and leave no copies
/// behind while they grow.
#[derive(Default, PartialEq, Eq)]
pub struct Wiped(Vec<u8>);

impl Wiped {
    /// An action as it travels.
    ///
    /// # Errors
    /// It has no form as JSON.
    pub fn json(action: &impl Serialize) -> serde_json::Result<Self> {
        let mut bytes = Self::default();
        serde_json::to_writer(&mut bytes, action)?;
        Ok(bytes)
    }

    /// Adds bytes.
    pub fn extend(&mut self, more: &[u8]) {
        if self.0.capacity() - self.0.len() < more.len() {
            let room = (self.0.len() + more.len()).next_power_of_two().max(LEAST_ROOM);
            let mut larger = Vec::with_capacity(room);
            larger.extend_from_slice(&self.0);
            wipe(&mut self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(more);
    }
}

impl io::Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Wiped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wiped(…)")
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Overwrites bytes with zeroes.
pub(crate) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // Makes the stores observable, so that they are not removed as dead.
    std::hint::black_box(bytes);
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As it comes: what is no list would otherwise be shown in the error.
        deserializer.deserialize_any(Bytes)
    }
}

struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of bytes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Secret, A::Error> {
        // As large as it may become at once: a vector that grows leaves copies behind.
        let mut secret = Secret(Vec::with_capacity(1024));
        loop {
            // What is wrong with an element would be shown with it.
            match list.next_element::<u8>() {
                Ok(Some(byte)) if secret.0.len() < MAX_BYTES => secret.0.push(byte),
                Ok(None) => return Ok(secret),
                Ok(Some(_)) | Err(_) => return Err(A::Error::custom("not a list of bytes")),
            }
        }
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Secret, E> {
        Err(E::custom("a key is a list of bytes, not a text"))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Secret, E> {
        Err(E::custom("a key is a list of bytes, not a number"))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Secret, E> {
        Err(E::custom("a key is a list of bytes, not a number"))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Secret, E> {
        Err(E::custom("a key is a list of bytes, not a number"))
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<u8>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ChangeKey, CreateDataset, CreatePool, LoadKey};

    #[test]
    fn keys_travel_as_bytes_and_are_shown_nowhere() {
        let secret = Secret::from(b"correct horse".to_vec());
        let json = serde_json::to_vec(&secret).unwrap();
        assert_eq!(json, serde_json::to_vec(&b"correct horse".to_vec()).unwrap());
        assert_eq!(serde_json::from_slice::<Secret>(&json).unwrap(), secret);
        let key = Some(secret);
        for shown in [
            format!("{key:?}"),
            format!("{:?}", LoadKey { key: key.clone(), ..LoadKey::default() }),
            format!("{:?}", ChangeKey { key: key.clone(), ..ChangeKey::default() }),
            format!("{:?}", CreateDataset { key: key.clone(), ..CreateDataset::default() }),
            format!("{:?}", CreatePool { key: key.clone(), ..CreatePool::default() }),
        ] {
            assert!(shown.contains("Secret(…)") && !shown.contains("111"), "{shown}");
        }
    }

    #[test]
    fn a_request_grows_to_what_serde_makes_of_it() {
        let load =
            LoadKey { dataset: "d".repeat(9000), key: Some(b"word".to_vec().into()), ..LoadKey::default() };
        let json = Wiped::json(&load).unwrap();
        assert_eq!(json.as_ref(), serde_json::to_vec(&load).unwrap());
        assert_eq!(format!("{json:?}"), "Wiped(…)");
    }

    #[test]
    fn a_key_of_a_wrong_form_is_not_repeated() {
        for wrong in
            [r#""sesame77""#, "77777777", "-77", "7.77", "[777]", r#"["sesame77"]"#, r#"{"sesame77": 1}"#]
        {
            let error = serde_json::from_str::<Secret>(wrong).unwrap_err().to_string();
            assert!(!error.contains("77"), "{error}");
        }
    }
}
