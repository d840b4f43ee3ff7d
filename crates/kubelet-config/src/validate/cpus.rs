//! Lists of CPUs: `0-3,8`.
//!
//! Pure. Upstream: k8s.io/utils/cpuset.

use std::collections::BTreeSet;

/// No machine has more; keeps a typing error from filling memory.
const CPU_MAX: u32 = 65_535;

/// The CPUs a list names. An empty text is an empty list.
pub fn parse_cpu_list(text: &str) -> Result<BTreeSet<u32>, String> {
    let mut cpus = BTreeSet::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u32>().ok().filter(|cpu| plain && *cpu <= CPU_MAX)
        };
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
            _ => {
                return Err(format!("{part:?} is not a CPU or a range of CPUs such as 0-3"));
            }
        }
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::parse_cpu_list;

    #[test]
    fn lists() {
        let read = |text| parse_cpu_list(text).map(|cpus| cpus.into_iter().collect::<Vec<_>>());
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("0"), Ok(vec![0]));
        assert_eq!(read("8,0-2"), Ok(vec![0, 1, 2, 8]));
        for bad in [",", "1,", "3-1", "a", "-1", "1-", "0-99999999", " 1", "+1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
