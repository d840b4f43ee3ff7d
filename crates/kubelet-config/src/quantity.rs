//! Resource quantities: `500m`, `100Mi`, `1e3`.
//!
//! Owns syntax, sign and magnitude, which is what checking a configuration
//! needs; keeps the text as written. Upstream: apimachinery/pkg/api/resource.

use std::fmt;
use std::str::FromStr;

use kubelet_model::quantity::Quantity as Amount;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest accepted text: the largest meaningful quantity has some 40 characters.
const MAX_LEN: usize = 128;

/// A decimal number with a unit suffix. Parts below a billionth are rounded up, as upstream does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    amount: Amount,
}

/// Text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a quantity; write a number with an optional suffix such as 500m, 2, 100Mi or 10G"
)]
pub struct QuantityError(String);

impl Quantity {
    /// Below zero.
    pub fn is_negative(&self) -> bool {
        self.amount.is_negative()
    }
    /// Exactly zero.
    pub fn is_zero(&self) -> bool {
        self.amount.is_zero()
    }
    /// Whole units, rounded up, capped at the range of `i64`.
    pub fn value(&self) -> i64 {
        self.amount.units()
    }
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || QuantityError(text.to_owned());
        if text.len() > MAX_LEN {
            return Err(bad());
        }
        let amount = Amount::parse(text).ok_or_else(bad)?;
        Ok(Self { text: text.to_owned(), amount })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Quantities are strings on the wire; plain numbers are accepted too.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"100Mi\" or a number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_values() {
        for (text, value) in [
            ("0", 0),
            ("1", 1),
            ("500m", 1),
            ("1500m", 2),
            ("-1500m", -2),
            ("100Mi", 104_857_600),
            ("1.5Gi", 1_610_612_736),
            ("10k", 10_000),
            ("2e3", 2_000),
            ("2E3", 2_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e-1", 1),
            (".5", 1),
            ("1.", 1),
            ("+3", 3),
            ("8Ei", i64::MAX),
            ("99999999999999999999", i64::MAX),
            ("1e999999", i64::MAX),
            ("0e999999", 0),
            ("1n", 1),
        ] {
            let quantity: Quantity = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(quantity.value(), value, "{text}");
        }
    }

    #[test]
    fn refuses_nonsense() {
        for text in
            ["", "-", ".", "1.2.3", "1mi", "1KiB", " 1", "1 ", "x", "1e", "1e+", "5%", "--1"]
        {
            assert!(text.parse::<Quantity>().is_err(), "{text:?} was accepted");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC*") {
            let _ = text.parse::<Quantity>();
        }
        #[test]
        fn numbers_with_any_suffix_do_not_panic(
            text in "[+-]?[0-9]{0,60}\\.?[0-9]{0,60}([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,10})?"
        ) {
            let _ = text.parse::<Quantity>();
        }
    }
}
