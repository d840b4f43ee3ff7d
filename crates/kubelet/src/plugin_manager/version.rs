//! Versions of CSI that drivers speak. Pure.
//!
//! Any 1.x will do. Upstream: apimachinery/pkg/util/version.

use std::fmt;

/// A version: numbers, most significant first. Those left out are zero.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version([u64; 3]);

impl Version {
    /// Reads `1.2`, `v1.2.3` and the like; what follows the numbers does not count.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let parts: Vec<&str> = text[..end].trim_end_matches('.').split('.').collect();
        let mut numbers = [0; 3];
        for (number, part) in numbers.iter_mut().zip(&parts) {
            // As in semantic versions, no number starts with a zero that it does not need.
            if part.len() > 1 && part.starts_with('0') {
                return None;
            }
            *number = part.parse().ok()?;
        }
        (parts.len() >= 2).then_some(Self(numbers))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// The highest of a driver's versions that can be spoken here; `None` if none can.
pub(super) fn highest_supported(versions: &[String]) -> Option<Version> {
    let read = versions.iter().filter_map(|text| Version::parse(text));
    read.filter(|version| version.0[0] == 1).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_of_major_one_counts() {
        for (versions, expected) in [
            (vec!["1.0.0"], Some("1.0.0")),
            (vec!["0.3.0", "1.2", "v1.10.1-rc", "2.0.0"], Some("1.10.1")),
            (vec!["0.3.0"], None),
            (vec!["2.0.0", "one", "1", "", "1.x", "01.2"], None),
            (vec![], None),
        ] {
            let versions: Vec<String> = versions.into_iter().map(str::to_owned).collect();
            let found = highest_supported(&versions).map(|version| version.to_string());
            assert_eq!(found.as_deref(), expected, "{versions:?}");
        }
    }
}
