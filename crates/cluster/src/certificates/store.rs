//! The files of a certificate and its key, laid out as upstream does.
//!
//! Owns `PREFIX-<time>.pem`, each with certificates and key, mode 0600; the link
//! `PREFIX-current.pem` to the one in force; and `PREFIX-updated.pem`, which is there
//! only while that link is replaced. Whoever is killed in between leaves the old link or
//! the new one. Older files are left, as upstream leaves them. Upstream: client-go
//! util/certificate/certificate_store.go.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api_client::Identity;
use jiff::Timestamp;

use super::parse::Leaf;

/// Bytes of a file that are read.
const FILE_MAX: u64 = 1 << 20;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Something cannot be done with it.
    #[error("cannot {what} {}: {source}", .path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// With which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is no link, and so nobody's to replace.
    #[error("expected {} to be a symlink but it is a file; move it away", .0.display())]
    NoLink(PathBuf),
    /// It holds no certificate with its key.
    #[error("{} holds no certificate with its key: {why}", .path.display())]
    NoPair {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// A certificate with its key, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate and its key.
    pub identity: Arc<Identity>,
    /// What it says.
    pub leaf: Leaf,
}

impl Pair {
    /// A certificate and its key, in PEM.
    ///
    /// # Errors
    /// They cannot be read, or do not belong together.
    pub fn new(certificate: Vec<u8>, key: Vec<u8>) -> Result<Self, String> {
        let identity = Identity { certificate, key };
        identity.check()?;
        let leaf = Leaf::parse(&identity.certificate)?;
        Ok(Self { identity: Arc::new(identity), leaf })
    }
}

/// The files.
#[derive(Debug, Clone)]
pub struct Store {
    prefix: &'static str,
    dir: PathBuf,
    /// Configured files, which count while there is no file of the store's own.
    given: Option<(PathBuf, PathBuf)>,
}

impl Store {
    /// The files of a certificate in a directory; finishes what a former run began.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(
        prefix: &'static str,
        dir: &Path,
        given: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, StoreError> {
        // A link must not depend on where the agent was started.
        let dir = std::path::absolute(dir).map_err(failed("find", dir))?;
        let store = Self { prefix, dir, given };
        store.recover()?;
        Ok(store)
    }

    /// Where the pair in force is.
    pub fn current_path(&self) -> PathBuf {
        self.path("current")
    }

    fn path(&self, word: &str) -> PathBuf {
        self.dir.join(format!("{}-{word}.pem", self.prefix))
    }

    fn recover(&self) -> Result<(), StoreError> {
        let (current, updated) = (self.current_path(), self.path("updated"));
        if exists(&current)? || link(&updated)? == Lies::Nowhere {
            return Ok(());
        }
        if link(&updated)? == Lies::File {
            return Err(StoreError::NoLink(updated));
        }
        tracing::info!(path = %updated.display(), "an update of a certificate is finished");
        fs::rename(&updated, &current).map_err(failed("rename", &updated))
    }

    /// The pair in force: the store's own, else the configured files, else
    /// `PREFIX.crt` and `PREFIX.key`. `None` if there is none of them.
    ///
    /// # Errors
    /// There is one that cannot be used.
    pub fn current(&self) -> Result<Option<Pair>, StoreError> {
        let path = self.current_path();
        if exists(&path)? {
            return pair(&path, &path).map(Some);
        }
        let plain = |word| self.dir.join(format!("{}.{word}", self.prefix));
        for (certificate, key) in self.given.iter().chain([&(plain("crt"), plain("key"))]) {
            if exists(certificate)? && exists(key)? {
                return pair(certificate, key).map(Some);
            }
        }
        Ok(None)
    }

    /// Keeps a pair, which is in force from now on.
    ///
    /// # Errors
    /// It is no pair, or cannot be kept; the one before stays in force.
    pub fn update(
        &self,
        certificate: &[u8],
        key: &[u8],
        now: Timestamp,
    ) -> Result<Pair, StoreError> {
        let path = self.path(&now.strftime("%Y-%m-%d-%H-%M-%S").to_string());
        let kept = Pair::new(certificate.to_vec(), key.to_vec())
            .map_err(|why| StoreError::NoPair { path: path.clone(), why })?;
        let mut text = certificate.to_vec();
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend_from_slice(key);
        write_private(&path, &text)?;
        self.point_at(&path)?;
        Ok(kept)
    }

    fn point_at(&self, path: &Path) -> Result<(), StoreError> {
        let (current, updated) = (self.current_path(), self.path("updated"));
        for place in [&current, &updated] {
            if link(place)? == Lies::File {
                return Err(StoreError::NoLink(place.clone()));
            }
        }
        if link(&updated)? == Lies::Link {
            fs::remove_file(&updated).map_err(failed("remove", &updated))?;
        }
        symlink(path, &updated).map_err(failed("create", &updated))?;
        fs::rename(&updated, &current).map_err(failed("rename", &updated))?;
        sync_dir(&self.dir)
    }
}

/// Replaces a file that others must not read, in a directory that is made if need be; it
/// is on the disk when this returns.
///
/// # Errors
/// [`StoreError`].
pub fn write_private(path: &Path, text: &[u8]) -> Result<(), StoreError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let dir = path.parent().unwrap_or(Path::new("/"));
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(failed("create", dir))?;
    let write = || -> io::Result<()> {
        // What a former run left may have another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text)?;
        file.sync_all()
    };
    write().map_err(failed("write", &new))?;
    fs::rename(&new, path).map_err(failed("write", path))
}

fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { what, path, source }
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("look at", path)(error)),
    }
}

/// What lies at a place itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    Nowhere,
    Link,
    File,
}

fn link(path: &Path) -> Result<Lies, StoreError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Ok(Lies::Link),
        Ok(_) => Ok(Lies::File),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Lies::Nowhere),
        Err(error) => Err(failed("look at", path)(error)),
    }
}

fn pair(certificate: &Path, key: &Path) -> Result<Pair, StoreError> {
    let (text, secret) = (read(certificate)?, read(key)?);
    let no_pair = |why| StoreError::NoPair { path: certificate.to_owned(), why };
    Pair::new(text, secret).map_err(no_pair)
}

/// A file's content, of which a sane amount is read.
///
/// # Errors
/// [`StoreError`].
pub fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut text)?;
        match text.len() as u64 > FILE_MAX {
            true => Err(io::Error::other(format!("it has more than {FILE_MAX} bytes"))),
            false => Ok(text),
        }
    };
    read().map_err(failed("read", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::certificates::test_parts::{issued, minute};

    fn store(dir: &Path) -> Store {
        Store::open("kubelet-client", dir, None).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn pairs_are_kept_as_upstream_keeps_them() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("pki");
        let (old, new) = (issued("a", &[], 0, 9), issued("b", &[], 0, 9));
        assert_eq!(store(&place).current().unwrap(), None);
        store(&place).update(&old.certificate, &old.key, minute(1)).unwrap();
        let kept = store(&place).update(&new.certificate, &new.key, minute(2)).unwrap();
        let current = store(&place).current().unwrap().unwrap();
        assert_eq!((current.leaf.common_name.as_str(), &current.leaf), ("b", &kept.leaf));
        assert_eq!(
            names(&place),
            [
                "kubelet-client-2026-01-01-00-01-00.pem",
                "kubelet-client-2026-01-01-00-02-00.pem",
                "kubelet-client-current.pem"
            ]
        );
        let leads = fs::read_link(place.join("kubelet-client-current.pem")).unwrap();
        assert_eq!(leads, place.join("kubelet-client-2026-01-01-00-02-00.pem"));
        let mode = fs::metadata(&leads).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // What is no pair changes nothing.
        store(&place).update(&old.certificate, &new.key, minute(3)).unwrap_err();
        assert_eq!(store(&place).current().unwrap().unwrap().leaf.common_name, "b");
        // Twice in a second.
        store(&place).update(&old.certificate, &old.key, minute(2)).unwrap();
        assert_eq!(store(&place).current().unwrap().unwrap().leaf.common_name, "a");
    }

    /// What is there when the agent starts, and whose certificate is in force then:
    /// `current` and `updated` lead to the file of a user, nowhere, or are files.
    #[test]
    fn a_half_done_update_is_finished() {
        for (current, updated, expected) in [
            ("", "", Ok(None)),
            ("a", "", Ok(Some("a"))),
            ("", "b", Ok(Some("b"))),
            ("a", "b", Ok(Some("a"))),
            ("gone", "b", Ok(Some("b"))),
            ("gone", "", Ok(None)),
            ("", "file", Err("to be a symlink but it is a file")),
            ("a", "file", Ok(Some("a"))),
            ("torn", "b", Err("holds no certificate with its key")),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for user in ["a", "b"] {
                let made = issued(user, &[], 0, 9);
                let text = [made.certificate, made.key].concat();
                fs::write(dir.path().join(format!("{user}.pem")), text).unwrap();
            }
            fs::write(dir.path().join("torn.pem"), "-----BEGIN CERT").unwrap();
            for (word, leads) in [("current", current), ("updated", updated)] {
                let place = dir.path().join(format!("kubelet-client-{word}.pem"));
                match leads {
                    "" => {}
                    "file" => fs::write(place, "x").unwrap(),
                    user => symlink(dir.path().join(format!("{user}.pem")), place).unwrap(),
                }
            }
            let found = Store::open("kubelet-client", dir.path(), None)
                .and_then(|store| store.current())
                .map(|pair| pair.map(|pair| pair.leaf.common_name))
                .map_err(|error| error.to_string());
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), expected),
                (Err(error), Err(says)) => assert!(error.contains(says), "{error}"),
                (found, _) => panic!("{current:?} {updated:?}: {found:?} is not {expected:?}"),
            }
        }
    }

    #[test]
    fn files_of_others_count_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let put = |user: &str, name: &str| {
            let made = issued(user, &[], 0, 9);
            let paths = [".crt", ".key"].map(|end| dir.path().join(format!("{name}{end}")));
            fs::write(&paths[0], made.certificate).unwrap();
            fs::write(&paths[1], made.key).unwrap();
            let [certificate, key] = paths;
            (certificate, key)
        };
        put("plain", "kubelet-server");
        let given = put("given", "tls");
        let open = |given| Store::open("kubelet-server", dir.path(), given).unwrap();
        let user = |store: Store| store.current().unwrap().unwrap().leaf.common_name;
        assert_eq!(user(open(None)), "plain");
        assert_eq!(user(open(Some(given.clone()))), "given");
        let own = issued("own", &[], 0, 9);
        open(None).update(&own.certificate, &own.key, minute(1)).unwrap();
        assert_eq!(user(open(Some(given))), "own");
    }

    #[test]
    fn a_file_that_is_no_link_is_nobodys_to_replace() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("kubelet-client-current.pem"), "precious").unwrap();
        let own = issued("own", &[], 0, 9);
        let error = store(dir.path()).update(&own.certificate, &own.key, minute(1)).unwrap_err();
        assert!(matches!(error, StoreError::NoLink(_)), "{error}");
        let kept = fs::read(dir.path().join("kubelet-client-current.pem")).unwrap();
        assert_eq!(kept, b"precious");
    }
}
