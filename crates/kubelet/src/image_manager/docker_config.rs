//! The node's own registry logins: docker's `config.json` and `.dockercfg`.
//!
//! Owns a copy of them, five minutes old at the most. Reads the files in the
//! places upstream looks in; writes nothing. Upstream:
//! pkg/credentialprovider/{config,provider}.go.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubelet_model::Mono;
use serde::Deserialize;

use super::keyring::{Login, Logins};
use crate::ports::Fs;

/// How long what was read is taken for current.
const CACHE_FOR: Duration = Duration::from_secs(300);
/// Largest file read, as upstream.
const FILE_BYTES_MAX: usize = 10 << 20;
/// Characters of a registry's name that an error tells.
const PLACE_CHARS_MAX: usize = 253;

/// Directories that may hold docker configurations, first come first served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DockerConfigDirs {
    /// Of `config.json`.
    pub json: Vec<PathBuf>,
    /// Of `.dockercfg`, if there is no `config.json` anywhere.
    pub legacy: Vec<PathBuf>,
}

impl DockerConfigDirs {
    /// Upstream's places.
    pub fn usual(root_dir: &Path, working_dir: &Path, home: Option<&Path>) -> Self {
        let home_json = home.map(|home| home.join(".docker"));
        let dirs = |home: Option<PathBuf>, root: &str| {
            let own = [root_dir.to_owned(), working_dir.to_owned()];
            own.into_iter().chain(home).chain([PathBuf::from(root)]).collect()
        };
        Self { json: dirs(home_json, "/.docker"), legacy: dirs(home.map(Path::to_owned), "/") }
    }
}

/// Why a docker configuration cannot be used. Never holds its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DockerConfigError {
    /// Not the JSON it should be.
    #[error("not a docker configuration: line {line}, column {column}")]
    Json {
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// A login that cannot be read.
    #[error("the auth of {0} is not base64 of user:password")]
    Auth(String),
}

/// As in upstream's decoder, `null` stands for nothing anywhere.
type Entries = Option<BTreeMap<String, Option<Entry>>>;

#[derive(Default, Deserialize)]
struct ConfigJson {
    auths: Entries,
}

#[derive(Default, Deserialize)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
}

/// Reads a `config.json`.
pub fn parse_json(content: &[u8]) -> Result<Logins, DockerConfigError> {
    let config: Option<ConfigJson> = serde_json::from_slice(content).map_err(json_error)?;
    logins(config.unwrap_or_default().auths)
}

/// Reads a `.dockercfg`.
pub fn parse_legacy(content: &[u8]) -> Result<Logins, DockerConfigError> {
    logins(serde_json::from_slice(content).map_err(json_error)?)
}

/// Only the place: the rest of serde's message may quote a secret.
fn json_error(error: serde_json::Error) -> DockerConfigError {
    DockerConfigError::Json { line: error.line(), column: error.column() }
}

fn logins(entries: Entries) -> Result<Logins, DockerConfigError> {
    let login = |(place, entry): (String, Option<Entry>)| {
        let Entry { username, password, auth } = entry.unwrap_or_default();
        let Some(auth) = auth.filter(|auth| !auth.is_empty()) else {
            let (username, password) = (username.unwrap_or_default(), password.unwrap_or_default());
            return Ok((place, Login { username, password }));
        };
        match decode_auth(&auth) {
            Some(login) => Ok((place, login)),
            None => Err(DockerConfigError::Auth(place.chars().take(PLACE_CHARS_MAX).collect())),
        }
    };
    entries.unwrap_or_default().into_iter().map(login).collect()
}

fn decode_auth(auth: &str) -> Option<Login> {
    let text = String::from_utf8(kubelet_model::base64::decode(auth)?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Login { username: username.to_owned(), password: password.to_owned() })
}

/// The node's logins, read again when they are old.
pub struct NodeLogins {
    fs: Arc<dyn Fs>,
    dirs: DockerConfigDirs,
    cache: Mutex<Option<(Mono, Arc<Logins>)>>,
}

impl NodeLogins {
    /// Reads nothing yet.
    pub fn new(fs: Arc<dyn Fs>, dirs: DockerConfigDirs) -> Self {
        Self { fs, dirs, cache: Mutex::default() }
    }

    /// The logins of the first usable file, at most five minutes old.
    pub fn get(&self, now: Mono) -> Arc<Logins> {
        let mut cache = self.cache.lock().expect("login lock: no code panics while holding it");
        if let Some((read_at, logins)) = &*cache
            && now.since(*read_at) < CACHE_FOR
        {
            return Arc::clone(logins);
        }
        let json = self.first(&self.dirs.json, "config.json", parse_json);
        let found = json.or_else(|| self.first(&self.dirs.legacy, ".dockercfg", parse_legacy));
        let logins = Arc::new(found.unwrap_or_default());
        *cache = Some((now, Arc::clone(&logins)));
        logins
    }

    fn first(
        &self,
        dirs: &[PathBuf],
        file: &str,
        parse: fn(&[u8]) -> Result<Logins, DockerConfigError>,
    ) -> Option<Logins> {
        dirs.iter().find_map(|dir| {
            let path = dir.join(file);
            let content = match self.fs.read(&path, FILE_BYTES_MAX) {
                Ok(content) => content,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "docker configuration not read");
                    return None;
                }
            };
            parse(&content)
                .inspect_err(|error| {
                    tracing::warn!(path = %path.display(), %error, "docker configuration not used");
                })
                .ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;

    fn login(username: &str, password: &str) -> Login {
        Login { username: username.to_owned(), password: password.to_owned() }
    }

    #[test]
    fn both_formats_and_both_ways_to_write_a_login() {
        let json = br#"{"auths":{"r.io":{"auth":"am9lOnM6ZQ=="},
            "q.io":{"username":"ann","password":"pw","email":"x"}},"credsStore":"x"}"#;
        let logins = parse_json(json).unwrap();
        assert_eq!(logins["r.io"], login("joe", "s:e"));
        assert_eq!(logins["q.io"], login("ann", "pw"));
        assert_eq!(
            parse_legacy(br#"{"r.io":{"auth":"am9lOnBhc3M"}}"#).unwrap()["r.io"],
            login("joe", "pass")
        );
        for nothing in ["{}", "null", r#"{"auths":null}"#] {
            assert_eq!(parse_json(nothing.as_bytes()).unwrap(), Logins::new(), "{nothing}");
        }
        let nulls = br#"{"r.io":null,"q.io":{"username":"ann","password":null,"auth":null}}"#;
        let logins = parse_legacy(nulls).unwrap();
        assert_eq!((&logins["r.io"], &logins["q.io"]), (&login("", ""), &login("ann", "")));
    }

    #[test]
    fn errors_hold_no_secret() {
        for text in
            [r#"{"auths":{"r.io":"s3cret"}}"#, r#"{"auths":{"r.io":{"auth":"s3cret"}}}"#, "s3cret"]
        {
            let error = parse_json(text.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
        let long = format!(r#"{{"{}":{{"auth":"x"}}}}"#, "r".repeat(100_000));
        assert!(parse_legacy(long.as_bytes()).unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn the_first_file_counts_and_is_kept_for_a_while() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let put = |dir: &Path, name: &str, user: &str| {
            let text = format!(r#"{{"auths":{{"r.io":{{"username":"{user}"}}}}}}"#);
            std::fs::write(dir.join(name), text).unwrap();
        };
        put(two.path(), "config.json", "two");
        let json = vec![one.path().to_owned(), two.path().to_owned()];
        let dirs = DockerConfigDirs { legacy: json.clone(), json };
        let logins = NodeLogins::new(Arc::new(RealFs), dirs);
        let user = |seconds| {
            let now = Mono(Duration::from_secs(seconds));
            logins.get(now).get("r.io").map(|login| login.username.clone())
        };
        assert_eq!(user(0).as_deref(), Some("two"));
        put(one.path(), "config.json", "one");
        assert_eq!(user(299).as_deref(), Some("two"));
        assert_eq!(user(300).as_deref(), Some("one"));
        std::fs::write(one.path().join("config.json"), "broken").unwrap();
        assert_eq!(user(600).as_deref(), Some("two"));
        std::fs::remove_file(two.path().join("config.json")).unwrap();
        std::fs::write(one.path().join(".dockercfg"), r#"{"r.io":{"username":"old"}}"#).unwrap();
        assert_eq!(user(900).as_deref(), Some("old"));
    }
}
