//! Variables from files that containers of the pod wrote.
//!
//! Reads the files a container names, each once, and holds the values of the
//! names it wants. Writes nothing. Whoever wrote the files is not trusted: they
//! are read within limits and never from outside their volume. Upstream:
//! makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go.

mod parse;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, FileKeySelector};
use kubelet_model::quote;
use mounts::Beginning;

use super::executor::Executor;

/// Bytes of a file that are read: as many as a ConfigMap may have.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Bytes of all values together: the kernel takes fewer.
const VALUES_BYTES_MAX: usize = 4 << 20;

/// What the files that a container names say, in its eyes.
#[derive(Debug, Default)]
pub(super) struct EnvFiles(BTreeMap<(String, String), EnvFile>);

/// One file.
struct EnvFile {
    path: PathBuf,
    values: BTreeMap<String, Vec<u8>>,
    /// Why there are no more values.
    error: Option<String>,
}

/// Names, but no values: they may be secrets.
impl fmt::Debug for EnvFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.values.keys().collect();
        let mut shown = f.debug_struct("EnvFile");
        shown.field("path", &self.path).field("names", &names).field("error", &self.error).finish()
    }
}

impl EnvFiles {
    /// A variable's value; `None` leaves it out. Files that nobody read, because
    /// the node was told so, give nothing.
    ///
    /// # Errors
    /// In upstream's words, with what is wrong with the file.
    pub(super) fn value(&self, of: &FileKeySelector) -> Result<Option<String>, String> {
        let Some(file) = self.0.get(&(of.volume_name.clone(), of.path.clone())) else {
            return Ok(Some(String::new()));
        };
        let place = || (quote::go(&of.key), quote::go(&file.path.to_string_lossy()));
        match (file.values.get(&of.key), &file.error) {
            // As upstream: a name with an empty value is one that is not there.
            (Some(value), _) if !value.is_empty() => {
                let text = std::str::from_utf8(value).ok().filter(|text| !text.contains('\0'));
                text.map(|text| Some(text.to_owned())).ok_or_else(|| {
                    let (key, file) = place();
                    format!("environment variable key {key} in file {file} is no text")
                })
            }
            (None, Some(error)) => Err(error.clone()),
            _ if of.optional == Some(true) => Ok(None),
            _ => {
                let (key, file) = place();
                Err(format!("environment variable key {key} not found in file {file}"))
            }
        }
    }

    /// Takes what was read of a file, while there is room for it.
    fn add(&mut self, file: (&str, &str), path: PathBuf, found: Result<parse::Found, String>) {
        let told = |why: String| format!("couldn't parse env file: {why}");
        let (mut values, mut error) = match found {
            Ok(found) => (found.values, found.error.map(|error| told(error.to_string()))),
            Err(error) => (BTreeMap::new(), Some(error)),
        };
        let size = |values: &BTreeMap<_, Vec<u8>>| values.values().map(Vec::len).sum::<usize>();
        let before: usize = self.0.values().map(|file| size(&file.values)).sum();
        if before + size(&values) > VALUES_BYTES_MAX {
            values.clear();
            error = Some(told(format!(
                "variables from files have more than {VALUES_BYTES_MAX} bytes; use fewer"
            )));
        }
        let (volume, name) = file;
        self.0.insert((volume.to_owned(), name.to_owned()), EnvFile { path, values, error });
    }
}

/// The names that are wanted of each file, by volume and path.
fn wanted(container: &Container) -> BTreeMap<(&str, &str), BTreeSet<&str>> {
    let mut files: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let sources = container.env.iter().flatten().filter_map(|var| var.value_from.as_ref());
    for of in sources.filter_map(|source| source.file_key_ref.as_ref()) {
        files
            .entry((of.volume_name.as_str(), of.path.as_str()))
            .or_default()
            .insert(of.key.as_str());
    }
    files
}

impl Executor {
    /// Reads the files that a container's variables come from.
    pub(super) async fn env_files(&self, container: &Container) -> EnvFiles {
        let mut files = EnvFiles::default();
        if !self.settings.env_files {
            return files;
        }
        for ((volume, path), names) in wanted(container) {
            let (place, found) = match self.volumes.get(volume) {
                None => {
                    let volume = quote::go(volume);
                    let why = format!("cannot find the volume {volume} referenced by FileKeyRef");
                    (PathBuf::new(), Err(why))
                }
                Some(mountable) => {
                    let root = &mountable.host_path;
                    let found = self.read_env_file(root, path).await;
                    let found =
                        found.map(|Beginning { data, whole }| parse::find(&data, whole, &names));
                    (root.join(path.trim_start_matches('/')), found)
                }
            };
            files.add((volume, path), place, found);
        }
        files
    }

    async fn read_env_file(&self, volume: &Path, path: &str) -> Result<Beginning, String> {
        let _call = self.calls.begin(format!("read variables from {path}"));
        let read = self.ports.volumes.read_inside(volume, Path::new(path), FILE_BYTES_MAX).await;
        read.map_err(|error| format!("couldn't parse env file: {error}"))
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// What a container would see of a file `path` in volume `volume`.
    pub(in crate::runtime_manager) fn files(
        container: &Container,
        (volume, path): (&str, &str),
        text: &str,
    ) -> EnvFiles {
        let mut files = EnvFiles::default();
        let all = wanted(container);
        let none = BTreeSet::new();
        let names = all.get(&(volume, path)).unwrap_or(&none);
        let found = parse::find(text.as_bytes(), true, names);
        files.add((volume, path), Path::new("/pods/v").join(path), Ok(found));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(key: &str, optional: bool) -> FileKeySelector {
        FileKeySelector {
            volume_name: "v".into(),
            path: "f".into(),
            key: key.into(),
            optional: Some(optional),
        }
    }

    #[test]
    fn a_value_is_there_or_its_absence_is_told() {
        let mut files = EnvFiles::default();
        let names = BTreeSet::from(["A", "EMPTY", "NONE", "BYTES", "NUL"]);
        let text = b"A='1'\nEMPTY=''\nBYTES='\xff'\nNUL='\0'\n";
        let found = |text: &[u8]| Ok(parse::find(text, true, &names));
        files.add(("v", "f"), "/pods/v/f".into(), found(text));
        let value = |key: &str, optional| files.value(&selector(key, optional));
        assert_eq!(value("A", false), Ok(Some("1".to_owned())));
        for key in ["EMPTY", "NONE"] {
            let missing =
                format!("environment variable key {key:?} not found in file \"/pods/v/f\"");
            assert_eq!(value(key, false), Err(missing));
            assert_eq!(value(key, true), Ok(None));
        }
        for key in ["BYTES", "NUL"] {
            let no_text =
                format!("environment variable key {key:?} in file \"/pods/v/f\" is no text");
            assert_eq!(value(key, true), Err(no_text));
        }
        let unread = EnvFiles::default();
        assert_eq!(unread.value(&selector("A", false)), Ok(Some(String::new())), "switched off");

        files.add(("v", "f"), "/pods/v/f".into(), found(b"A='1'\nNONE\n"));
        let value = |key: &str, optional| files.value(&selector(key, optional));
        assert_eq!(value("A", false), Ok(Some("1".to_owned())), "it stands before the error");
        let wrong =
            "couldn't parse env file: invalid environment variable format at line 2: missing '='";
        assert_eq!(value("NONE", true), Err(wrong.to_owned()), "optional or not");
    }

    #[test]
    fn values_are_never_printed() {
        let found = parse::find(b"TOKEN='hunter2'\nNONE\n", true, &BTreeSet::from(["TOKEN", "X"]));
        let mut shown = format!("{found:?}");
        let mut files = EnvFiles::default();
        files.add(("v", "f"), "/pods/v/f".into(), Ok(found));
        shown += &format!(" {files:?}");
        assert_eq!(shown.matches("TOKEN").count(), 2, "{shown}");
        assert!(shown.contains("missing '='") && shown.contains("/pods/v/f"), "{shown}");
        // 104 and 117 are its first bytes.
        assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
    }

    #[test]
    fn values_have_a_limit_together() {
        let names = BTreeSet::from(["A"]);
        // Many lines, as each has a limit of its own.
        let long = format!("A='{}'", "x\n".repeat(FILE_BYTES_MAX / 2 - 4));
        let mut files = EnvFiles::default();
        for at in 0..5 {
            let path = format!("f{at}");
            let found = parse::find(long.as_bytes(), true, &names);
            files.add(("v", &path), PathBuf::from(&path), Ok(found));
        }
        let value =
            |at| files.value(&FileKeySelector { path: format!("f{at}"), ..selector("A", false) });
        assert!(value(3).is_ok_and(|value| value.is_some_and(|value| value.len() > 1_000_000)));
        let error = value(4).unwrap_err();
        assert!(error.contains("more than 4194304 bytes"), "{error}");
    }
}
