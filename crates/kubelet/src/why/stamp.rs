//! Timestamps as RFC 3339 text, for serde.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Writes a timestamp.
pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(at)
}

/// Reads a timestamp.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
}

/// The same for a timestamp that may be missing.
pub mod option {
    use super::*;

    /// Writes a timestamp or null.
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => to.serialize_some(&at.to_string()),
            None => to.serialize_none(),
        }
    }

    /// Reads a timestamp or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
