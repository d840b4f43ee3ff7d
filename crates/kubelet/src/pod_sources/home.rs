//! Which manifest a static pod came from.
//!
//! Reads the manifests anew: a static pod's uid follows from the file that
//! defines it, so nothing has to be remembered. Never changes anything.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::manifest::{self, MAX_BYTES, Origin};

use super::scan::FILES_MAX;
use crate::ports::Fs;

/// Unusable manifests, or unheeded fields of one, that are told of.
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
        /// How many ConfigMaps and Secrets.
        objects: usize,
        /// What it says and nobody acts on, a few at the most.
        unheeded: Vec<String>,
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
                let own = |pod: &Pod| pod.metadata.uid.as_deref() == Some(uid);
                if prepared.pods.iter().any(own) {
                    let (pods, objects) = (prepared.pods.len(), prepared.objects.len());
                    let unheeded = prepared.warnings.iter().take(BROKEN_MAX);
                    let unheeded = unheeded.map(ToString::to_string).collect();
                    return ManifestHome::File { path: file, pods, objects, unheeded };
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

/// A manifest that names a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesake {
    /// Its file or URL.
    pub origin: Origin,
    /// Why it cannot be used, if it cannot.
    pub problem: Option<String>,
}

/// A pod that is asked for, with or without the node's name at its end.
pub(super) struct Wanted<'a> {
    suffix: String,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> Wanted<'a> {
    /// Of a namespace, if one is given.
    pub(super) fn new(node_name: &str, namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { suffix: format!("-{node_name}"), namespace, name }
    }

    fn bare<'n>(&self, name: &'n str) -> &'n str {
        name.strip_suffix(&self.suffix).unwrap_or(name)
    }

    /// Is it a pod that a manifest gives this name and namespace?
    pub(super) fn is(&self, name: &str, namespace: Option<&str>) -> bool {
        let within = namespace.filter(|given| !given.is_empty()).unwrap_or("default");
        let same = name == self.name || self.bare(name) == self.bare(self.name);
        same && self.namespace.is_none_or(|wanted| within == wanted)
    }
}

/// The manifests that define a pod of this name, with or without the node's name at
/// its end, or that would if they could be used. Of a namespace, if one is given.
pub async fn namesakes(
    fs: &dyn Fs,
    path: &Path,
    node_name: &str,
    namespace: Option<&str>,
    name: &str,
) -> Vec<Namesake> {
    let wanted = Wanted::new(node_name, namespace, name);
    let mut found = Vec::new();
    for file in manifests(fs, path) {
        let Ok(bytes) = fs.read(&file, MAX_BYTES) else { continue };
        let prepared = manifest::prepare(&bytes, node_name, &Origin::File(file.clone()));
        let (meant, problem) = match prepared {
            Ok(prepared) => (any_is(&prepared.pods, &wanted), None),
            Err(problems) => (would_be(&file, &bytes, &wanted), Some(first_of(&problems))),
        };
        if meant && found.len() < BROKEN_MAX {
            found.push(Namesake { origin: Origin::File(file), problem });
        }
        // Thousands of manifests must not hold up the rest of the agent.
        tokio::task::yield_now().await;
    }
    found
}

fn any_is(pods: &[Pod], wanted: &Wanted<'_>) -> bool {
    pods.iter().any(|pod| {
        let meta = &pod.metadata;
        wanted.is(meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref())
    })
}

/// Would a file that cannot be used define the pod? If no name can be made out in it,
/// that of the file stands for it.
fn would_be(file: &Path, bytes: &[u8], wanted: &Wanted<'_>) -> bool {
    if let Ok(decoded) = manifest::decode(bytes) {
        return any_is(&decoded.pods, wanted);
    }
    let claims = manifest::claims(bytes);
    if claims.is_empty() {
        let stem = file.file_stem().and_then(|stem| stem.to_str());
        return stem.is_some_and(|stem| wanted.bare(stem) == wanted.bare(wanted.name));
    }
    claims.iter().any(|claim| wanted.is(&claim.name, claim.namespace.as_deref()))
}

/// Manifests that cannot be used, and why, a few at the most.
pub async fn broken_manifests(fs: &dyn Fs, path: &Path, node_name: &str) -> Vec<String> {
    match find_manifest(fs, path, node_name, "").await {
        ManifestHome::Nowhere { broken } => broken,
        ManifestHome::File { .. } => Vec::new(),
    }
}

fn describe(file: &Path, problems: &[manifest::Problem]) -> Option<String> {
    (!problems.is_empty()).then(|| format!("{}: {}", file.display(), first_of(problems)))
}

/// The first problem, and how many more there are.
pub(super) fn first_of(problems: &[manifest::Problem]) -> String {
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    match problems.len() {
        0 | 1 => first,
        several => format!("{first} (and {} more)", several - 1),
    }
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
        let misspelt = POD.replace("image: i", "image: i, comand: [x]");
        std::fs::write(&two, misspelt.replace("NAME", "two")).unwrap();
        std::fs::write(dir.path().join(".hidden"), POD.replace("NAME", "three")).unwrap();
        let slashed = format!("{}/", dir.path().display());
        for path in [dir.path(), Path::new(&slashed)] {
            let found = find_manifest(&RealFs, path, "n1", &uid_of(&two, "n1")).await;
            let ManifestHome::File { path, pods: 1, objects: 0, unheeded } = found else {
                panic!("{found:?}")
            };
            assert_eq!(path, two);
            let [field] = &unheeded[..] else { panic!("{unheeded:?}") };
            assert!(field.contains("spec.containers[0].comand: unknown field"), "{field}");
        }
        let found = find_manifest(&RealFs, &one, "n1", &uid_of(&one, "n1")).await;
        let (path, unheeded) = (one.clone(), Vec::new());
        assert_eq!(found, ManifestHome::File { path, pods: 1, objects: 0, unheeded });
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

    #[tokio::test]
    async fn manifests_are_found_by_the_name_of_their_pod() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, text: String| std::fs::write(dir.path().join(file), text).unwrap();
        let web = POD.replace("NAME", "web");
        put("a.yaml", web.clone());
        put("b.yaml", web.replace("image: i", "image: i, restartPolicy: Sometimes"));
        put("c.yaml", web.replace("image: i", "image: 5"));
        put("d.yaml", web.replace("name: web", "name: web, namespace: other"));
        put("e.yaml", POD.replace("NAME", "db"));
        put("web.yaml", "no: [manifest".to_owned());
        // Not theirs, whatever else they mention: a container, a label, half a pod.
        let db = POD.replace("NAME", "db").replace("image: i", "image: 5");
        put("f.yaml", db.replace("name: c", "name: web"));
        put("g.yaml", db.replace("name: db", "labels: {name: web}, name: db"));
        put("web-n1.yaml", format!("{db}broken: [\n"));
        put("h.yaml", format!("{web}broken: [\n"));
        for name in ["web", "web-n1"] {
            let all = namesakes(&RealFs, dir.path(), "n1", Some("default"), name).await;
            let name = |path: String| path.rsplit('/').next().unwrap().to_owned();
            let files: Vec<_> = all.iter().map(|one| name(one.origin.to_string())).collect();
            assert_eq!(files, ["a.yaml", "b.yaml", "c.yaml", "h.yaml", "web.yaml"], "{all:?}");
            let broken: Vec<_> = all.iter().map(|one| one.problem.is_some()).collect();
            assert_eq!(broken, [false, true, true, true, true]);
        }
        let anywhere = namesakes(&RealFs, dir.path(), "n1", None, "web").await;
        assert_eq!(anywhere.len(), BROKEN_MAX, "of six");
        assert_eq!(namesakes(&RealFs, dir.path(), "n1", None, "nobody").await, []);
    }
}
