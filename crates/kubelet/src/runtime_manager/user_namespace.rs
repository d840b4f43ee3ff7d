//! Users of a pod that are nobody on the host.
//!
//! Owns the file `userns` in each pod's directory, in upstream's format. The
//! files are the record of who has which block of ids: a block is free again
//! when the pod's directory is gone. Upstream: pkg/kubelet/userns.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cri::v1;
use kubelet_model::PodUid;
use serde::{Deserialize, Serialize};

use super::pod_files;
use crate::ports::Fs;
use crate::settings::UserIds;

const FILE: &str = "userns";
/// One mapping each for users and groups takes less than two hundred.
const FILE_BYTES_MAX: usize = 4_096;

/// Blocks are chosen by looking at the files of all pods; two pods must not look
/// at the same time. One process looks after one root directory.
static CHOOSING: Mutex<()> = Mutex::new(());

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The host's own users.
pub(super) fn of_host() -> v1::UserNamespace {
    v1::UserNamespace { mode: v1::NamespaceMode::Node.into(), ..Default::default() }
}

/// The pod's block, chosen now if it has none yet.
pub(super) fn of_pod(
    fs: &dyn Fs,
    root_dir: &Path,
    uid: &PodUid,
    ids: &UserIds,
) -> Result<v1::UserNamespace, String> {
    // Nothing is kept under the lock, so a panic leaves nothing half done.
    let _alone = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
    let mapping = match read(fs, &pod_files::pod_dir(root_dir, uid), ids)? {
        Some(mapping) => mapping,
        None => choose(fs, root_dir, uid, ids)?,
    };
    let mapping = v1::IdMapping {
        host_id: mapping.host_id,
        container_id: mapping.container_id,
        length: mapping.length,
    };
    Ok(v1::UserNamespace {
        mode: v1::NamespaceMode::Pod.into(),
        uids: vec![mapping],
        gids: vec![mapping],
    })
}

fn choose(fs: &dyn Fs, root_dir: &Path, uid: &PodUid, ids: &UserIds) -> Result<Mapping, String> {
    let pods = pod_files::pods_dir(root_dir);
    let entries = fs.list(&pods).map_err(|error| {
        format!("create user namespace: cannot list {}: {error}", pods.display())
    })?;
    let mut taken = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.is_dir) {
        let mapping = read(fs, &pods.join(&entry.name), ids)?;
        taken.extend(mapping.map(|mapping| mapping.host_id));
    }
    let blocks = 0..ids.count / ids.per_pod.max(1);
    let host_id = blocks
        .filter_map(|block| ids.first.checked_add(block.checked_mul(ids.per_pod)?))
        .find(|host_id| !taken.contains(host_id))
        .ok_or(
            "create user namespace: could not find an empty slot to allocate a user namespace",
        )?;
    let mapping = Mapping { host_id, container_id: 0, length: ids.per_pod };
    let mappings = Mappings { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
    let path = pod_files::pod_dir(root_dir, uid).join(FILE);
    let fail =
        |error: String| format!("create user namespace: cannot write {}: {error}", path.display());
    let json = serde_json::to_vec(&mappings).map_err(|error| fail(error.to_string()))?;
    fs.write(&path, &json).map_err(|error| fail(error.to_string()))?;
    Ok(mapping)
}

/// The block that a pod's directory records; `None` if it records none.
fn read(fs: &dyn Fs, pod_dir: &Path, ids: &UserIds) -> Result<Option<Mapping>, String> {
    let path = pod_dir.join(FILE);
    let wrong = |why: String| {
        format!(
            "user namespace: {}: {why}; remove the pod's directory once its containers are gone",
            path.display()
        )
    };
    let content = match fs.read(&path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
        Ok(content) if content.is_empty() => return Ok(None),
        Ok(content) => content,
    };
    let mappings: Mappings = serde_json::from_slice(&content)
        .map_err(|error| wrong(format!("invalid user namespace mappings file: {error}")))?;
    let ([uids], [gids]) = (&mappings.uid_mappings[..], &mappings.gid_mappings[..]) else {
        return Err(wrong("exactly one mapping of users and one of groups is allowed".to_owned()));
    };
    if uids != gids || uids.container_id != 0 {
        return Err(wrong("users and groups must be mapped alike, from 0".to_owned()));
    }
    if uids.length != ids.per_pod || uids.host_id % ids.per_pod.max(1) != 0 {
        return Err(wrong(format!(
            "its block of {} ids from {} is none of {} ids",
            uids.length, uids.host_id, ids.per_pod
        )));
    }
    Ok(Some(*uids))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;

    const IDS: UserIds = UserIds { first: 65_536, count: 3 * 65_536, per_pod: 65_536 };

    fn node(pods: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for pod in pods {
            let dir = pod_files::pod_dir(root.path(), &PodUid::new(*pod));
            std::fs::create_dir_all(dir).expect("a pod's directory");
        }
        root
    }

    fn block(root: &Path, pod: &str) -> Result<u32, String> {
        let namespace = of_pod(&RealFs, root, &PodUid::new(pod), &IDS)?;
        assert_eq!(namespace.mode(), v1::NamespaceMode::Pod);
        assert_eq!(namespace.uids, namespace.gids);
        assert_eq!((namespace.uids[0].container_id, namespace.uids[0].length), (0, 65_536));
        Ok(namespace.uids[0].host_id / 65_536)
    }

    #[test]
    fn blocks_never_overlap_and_are_kept() {
        let root = node(&["a", "b", "c", "d"]);
        let at = root.path();
        assert_eq!(block(at, "a"), Ok(1));
        assert_eq!(block(at, "b"), Ok(2));
        assert_eq!(block(at, "a"), Ok(1));
        assert_eq!(block(at, "c"), Ok(3));
        assert!(block(at, "d").is_err_and(|error| error.contains("empty slot")));
        std::fs::remove_dir_all(pod_files::pod_dir(at, &PodUid::new("b"))).expect("removed");
        assert_eq!(block(at, "d"), Ok(2));
        let file = pod_files::pod_dir(at, &PodUid::new("a")).join("userns");
        let text = std::fs::read_to_string(file).expect("the record");
        assert_eq!(
            text,
            r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}"#
        );
    }

    #[test]
    fn a_record_that_makes_no_sense_is_an_error() {
        for text in [
            "{",
            "{}",
            r#"{"uidMappings":[],"gidMappings":[]}"#,
            r#"{"uidMappings":[{"hostId":65536,"containerId":1,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":1,"length":65536}]}"#,
            r#"{"uidMappings":[{"hostId":1,"containerId":0,"length":65536}],"gidMappings":[{"hostId":1,"containerId":0,"length":65536}]}"#,
            r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":1}],"gidMappings":[{"hostId":65536,"containerId":0,"length":1}]}"#,
        ] {
            let root = node(&["a", "b"]);
            let file = pod_files::pod_dir(root.path(), &PodUid::new("a")).join("userns");
            std::fs::write(file, text).expect("written");
            assert!(block(root.path(), "a").is_err(), "{text}");
            assert!(block(root.path(), "b").is_err(), "nobody knows what a has: {text}");
        }
    }
}
