//! Which of the ConfigMaps and Secrets of all manifests count.
//!
//! Pure. The first of a name does; all together have a limit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_model::{ConfigObject, ObjectKey};

use super::notice::Notice;

/// Most bytes of values kept from one source: an object has a mebibyte, and a
/// node's pods use a few dozen.
const BYTES_MAX: usize = 256 << 20;

/// The objects that count, in the order given, and what to say about the others,
/// each with a key that tells it apart.
pub(super) fn pick<'o>(
    all: impl Iterator<Item = (&'o Path, &'o Arc<ConfigObject>)>,
) -> (Vec<Arc<ConfigObject>>, Vec<(String, Notice)>) {
    pick_within(all, BYTES_MAX)
}

fn pick_within<'o>(
    all: impl Iterator<Item = (&'o Path, &'o Arc<ConfigObject>)>,
    limit: usize,
) -> (Vec<Arc<ConfigObject>>, Vec<(String, Notice)>) {
    let mut owners: BTreeMap<&ObjectKey, &Path> = BTreeMap::new();
    let (mut picked, mut notices, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for (path, object) in all {
        let key = &object.key;
        if let Some(by) = owners.get(key) {
            let (path, by) = (path.to_owned(), PathBuf::from(by));
            let said = format!("{key} {}", path.display());
            notices.push((said, Notice::DuplicateObject { path, object: key.clone(), by }));
            continue;
        }
        bytes = bytes.saturating_add(object.size());
        if bytes > limit {
            let path = path.to_owned();
            let notice = Notice::TooManyObjects { path, object: key.clone(), limit };
            notices.push(("too many objects".to_owned(), notice));
            break;
        }
        owners.insert(key, path);
        picked.push(Arc::clone(object));
    }
    (picked, notices)
}

#[cfg(test)]
mod tests {
    use kubelet_model::ObjectKind;

    use super::*;

    fn object(name: &str, bytes: usize) -> Arc<ConfigObject> {
        Arc::new(ConfigObject {
            key: ObjectKey::new(ObjectKind::Secret, "ns", name),
            uid: String::new(),
            secret_type: String::new(),
            data: BTreeMap::from([("k".to_owned(), vec![0; bytes])]),
            binary: BTreeMap::new(),
        })
    }

    #[test]
    fn the_first_counts_and_all_have_a_limit() {
        let (one, two) = (Path::new("/m/1"), Path::new("/m/2"));
        let all = [(one, object("a", 4)), (two, object("a", 5)), (two, object("b", 4))];
        let of = |limit| pick_within(all.iter().map(|(path, object)| (*path, object)), limit);
        let (picked, notices) = of(8);
        assert_eq!(picked, [object("a", 4), object("b", 4)]);
        let (path, by) = (two.to_owned(), one.to_owned());
        let key = object("a", 0).key.clone();
        assert_eq!(notices.len(), 1);
        assert_eq!(notices[0].1, Notice::DuplicateObject { path, object: key, by });
        let (picked, notices) = of(7);
        assert_eq!(picked, [object("a", 4)]);
        assert!(
            matches!(&notices[1].1, Notice::TooManyObjects { object, .. } if object.name == "b")
        );
    }
}
