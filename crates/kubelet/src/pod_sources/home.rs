//! Which manifest a static pod came from.
//!
//! Reads the manifests anew: a static pod's uid follows from the file that
//! defines it, so nothing has to be remembered. Never changes anything.

use std::path::{Path, PathBuf};

use kubelet_model::manifest::{self, MAX_BYTES, Origin};

use super::scan::FILES_MAX;
use crate::ports::Fs;

/// Unusable manifests that are told of.
const BROKEN_MAX: usize = 5;

/// Where a static pod is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestHome {
    /// In this file.
    File {
        /// The file.
        path: PathBuf,
        /// How many pods it defines.
        pods: usize,
    },
    /// In no file as it is now.
    Nowhere {
        /// Files that cannot be used, and why; the pod may have come from one.
        broken: Vec<String>,
    },
}

/// Looks for the manifest that defines the pod of that uid.
pub async fn find_manifest(fs: &dyn Fs, path: &Path, node_name: &str, uid: &str) -> ManifestHome {
    let mut broken = Vec::new();
    for file in manifests(fs, path) {
        let Ok(bytes) = fs.read(&file, MAX_BYTES) else { continue };
        match manifest::prepare(&bytes, node_name, &Origin::File(file.clone())) {
            Ok(prepared) => {
                let own = |pod: &k8s_openapi::api::core::v1::Pod| {
                    pod.metadata.uid.as_deref() == Some(uid)
                };
                if prepared.pods.iter().any(own) {
                    return ManifestHome::File { path: file, pods: prepared.pods.len() };
                }
            }
            Err(problems) => {
                broken.extend(describe(&file, &problems).filter(|_| broken.len() < BROKEN_MAX))
            }
        }
        // Thousands of manifests must not hold up the rest of the agent.
        tokio::task::yield_now().await;
    }
    ManifestHome::Nowhere { broken }
}

/// Manifests that cannot be used, and why, a few at the most.
pub async fn broken_manifests(fs: &dyn Fs, path: &Path, node_name: &str) -> Vec<String> {
    match find_manifest(fs, path, node_name, "").await {
        ManifestHome::Nowhere { broken } => broken,
        ManifestHome::File { .. } => Vec::new(),
    }
}

fn describe(file: &Path, problems: &[manifest::Problem]) -> Option<String> {
    let first = problems.first()?;
    let more = match problems.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("{}: {first}{more}", file.display()))
}

/// The files that the source reads.
fn manifests(fs: &dyn Fs, path: &Path) -> Vec<PathBuf> {
    // As the source does: collecting the components again drops a trailing slash.
    let path: PathBuf = path.components().collect();
    match fs.stat(&path) {
        Ok(entry) if entry.is_dir => {
            let entries = fs.list(&path).unwrap_or_default();
            let visible = entries
                .into_iter()
                .filter(|entry| entry.is_file && !entry.name.as_encoded_bytes().starts_with(b"."));
            visible.take(FILES_MAX).map(|entry| path.join(entry.name)).collect()
        }
        Ok(entry) if entry.is_file => vec![path],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;

    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec: {containers: [{name: c, image: i}]}\n";

    fn uid_of(file: &Path, node: &str) -> String {
        let bytes = std::fs::read(file).unwrap();
        let origin = Origin::File(file.to_owned());
        let pods = manifest::prepare(&bytes, node, &origin).unwrap().pods;
        pods[0].metadata.uid.clone().unwrap()
    }

    #[tokio::test]
    async fn a_pod_is_traced_to_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one.yaml"), dir.path().join("two.yaml"));
        std::fs::write(&one, POD.replace("NAME", "one")).unwrap();
        std::fs::write(&two, POD.replace("NAME", "two")).unwrap();
        std::fs::write(dir.path().join(".hidden"), POD.replace("NAME", "three")).unwrap();
        let slashed = format!("{}/", dir.path().display());
        for path in [dir.path(), Path::new(&slashed)] {
            let found = find_manifest(&RealFs, path, "n1", &uid_of(&two, "n1")).await;
            assert_eq!(found, ManifestHome::File { path: two.clone(), pods: 1 });
        }
        let found = find_manifest(&RealFs, &one, "n1", &uid_of(&one, "n1")).await;
        assert_eq!(found, ManifestHome::File { path: one.clone(), pods: 1 });
    }

    #[tokio::test]
    async fn unusable_manifests_are_told_of() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("bad.yaml"), POD.replace("image: i", "image: 5")).unwrap();
        let broken = broken_manifests(&RealFs, dir.path(), "n1").await;
        assert_eq!(broken.len(), 1);
        assert!(broken[0].contains("bad.yaml: line ") && broken[0].contains("image"), "{broken:?}");
        let none = find_manifest(&RealFs, &dir.path().join("absent"), "n1", "u").await;
        assert_eq!(none, ManifestHome::Nowhere { broken: Vec::new() });
    }
}
