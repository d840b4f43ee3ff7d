//! Page sizes of the machine, and how limits name them.

use std::path::Path;

use crate::error::CgroupError;

/// Sizes in bytes that `/sys/kernel/mm/hugepages` (or the directory given) lists,
/// smallest first; none if the kernel has no huge pages.
pub fn huge_page_sizes(dir: &Path) -> Result<Vec<u64>, CgroupError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CgroupError::read(dir, error)),
    };
    let mut sizes: Vec<u64> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name();
            let kib = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            kib.parse::<u64>().ok()?.checked_mul(1024)
        })
        .collect();
    sizes.sort_unstable();
    Ok(sizes)
}

/// `2MB`, `64KB`, `1GB`: as the kernel's files and CRI name a page size.
pub fn page_size_text(bytes: u64) -> String {
    let mut size = bytes;
    let mut unit = 0;
    let units = ["B", "KB", "MB", "GB", "TB", "PB"];
    while size != 0 && size.is_multiple_of(1024) && unit + 1 < units.len() {
        size /= 1024;
        unit += 1;
    }
    format!("{size}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_their_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["hugepages-1048576kB", "hugepages-2048kB", "hugepages-64kB", "hugepages-xkB"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let sizes = huge_page_sizes(dir.path()).unwrap();
        let texts: Vec<String> = sizes.iter().map(|size| page_size_text(*size)).collect();
        assert_eq!(texts, ["64KB", "2MB", "1GB"]);
        assert_eq!(huge_page_sizes(&dir.path().join("none")).unwrap(), []);
        assert_eq!(page_size_text(0), "0B");
    }
}
