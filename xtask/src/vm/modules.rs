//! Which modules the kernel needs before it sees the machine's files.
//!
//! Pure: reads what `depmod` has written.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// The root: a directory of the machine, and memory over it.
const NEEDED: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Paths of those modules and of what they depend on, in the order of loading.
pub fn for_the_root(modules_dep: &str) -> Result<Vec<String>> {
    let lines = modules_dep.lines().filter_map(|line| line.split_once(':'));
    let known: BTreeMap<String, (&str, &str)> =
        lines.map(|(path, needs)| (name(path), (path, needs))).collect();
    let mut order: Vec<String> = Vec::new();
    for wanted in NEEDED {
        let found = known.get(wanted);
        let (path, needs) = found.with_context(|| format!("the kernel has no module {wanted}"))?;
        // depmod names what a module needs, the deepest last.
        for one in needs.split_whitespace().rev().chain([*path]) {
            if !order.iter().any(|before| before == one) {
                order.push(one.to_owned());
            }
        }
    }
    Ok(order)
}

/// As the kernel calls it, which knows no dashes.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_comes_before_it_and_once() {
        let dep = "kernel/v/virtio-pci.ko: kernel/v/virtio_ring.ko kernel/v/virtio.ko\n\
                   kernel/v/virtio.ko:\n\
                   kernel/n/9pnet_virtio.ko: kernel/n/9pnet.ko kernel/v/virtio_ring.ko kernel/v/virtio.ko\n\
                   kernel/f/9p.ko: kernel/n/9pnet.ko\n\
                   kernel/f/overlay.ko:\n";
        let expected = [
            "kernel/v/virtio.ko",
            "kernel/v/virtio_ring.ko",
            "kernel/v/virtio-pci.ko",
            "kernel/n/9pnet.ko",
            "kernel/n/9pnet_virtio.ko",
            "kernel/f/9p.ko",
            "kernel/f/overlay.ko",
        ];
        assert_eq!(for_the_root(dep).unwrap(), expected);
        let without = for_the_root("kernel/f/9p.ko:\n").unwrap_err().to_string();
        assert_eq!(without, "the kernel has no module virtio_pci");
    }
}
