//! How a wire struct is declared, and how its fields can be listed.
//!
//! The list of every field path is derived from the declarations themselves, so
//! that tables keyed by field can be tested for completeness.

use std::collections::BTreeMap;

use crate::go_duration::GoDuration;
use crate::quantity::Quantity;

/// A type that can appear in the configuration.
pub trait WireType {
    /// Adds the dotted path of every setting below `prefix`. Maps and lists are one setting.
    fn settings(prefix: &str, out: &mut Vec<String>) {
        out.push(prefix.to_owned());
    }
}

impl WireType for String {}
impl WireType for bool {}
impl WireType for i32 {}
impl WireType for i64 {}
impl WireType for u32 {}
impl WireType for f64 {}
impl WireType for GoDuration {}
impl WireType for Quantity {}
impl<T> WireType for Vec<T> {}
impl<K, V> WireType for BTreeMap<K, V> {}

/// Declares a struct whose fields are all optional, with their names on the wire.
macro_rules! wire_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $( $(#[$field_meta:meta])* $field:ident / $json:literal : $type:ty, )* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(rename = $json, default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
        }

        impl $crate::wire::WireType for $name {
            fn settings(prefix: &str, out: &mut Vec<String>) {
                $(
                    let path = if prefix.is_empty() { $json.to_owned() } else { format!("{prefix}.{}", $json) };
                    <$type as $crate::wire::WireType>::settings(&path, out);
                )*
            }
        }
    };
}
pub(crate) use wire_struct;

impl super::KubeletConfiguration {
    /// The dotted path of every setting there is.
    pub fn all_settings() -> Vec<String> {
        let mut out = Vec::new();
        Self::settings("", &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::KubeletConfiguration;

    #[test]
    fn lists_nested_settings_once() {
        let all = KubeletConfiguration::all_settings();
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(all.len(), unique.len());
        for path in [
            "staticPodPath",
            "authentication.webhook.cacheTTL",
            "logging.options.json.infoBufferSize",
        ] {
            assert!(unique.contains(&path.to_owned()), "{path} is missing");
        }
    }
}
