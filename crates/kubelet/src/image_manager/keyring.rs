//! Which credentials fit an image.
//!
//! Owns the matching of registries; holds secrets and never prints them.
//! Reads and writes nothing. Upstream: pkg/credentialprovider/keyring.go.

use std::collections::BTreeMap;
use std::fmt;

/// A user of a registry, and the password.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Login {
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Logins by registry, as a docker configuration lists them.
pub type Logins = BTreeMap<String, Login>;

/// Docker Hub's entry in docker configurations.
const DOCKER_HUB: &str = "index.docker.io";

/// Logins under their registry and path.
#[derive(Debug, Default)]
pub struct Keyring(BTreeMap<String, Vec<Login>>);

impl Keyring {
    /// Adds logins; several for the same place are all kept, in order.
    pub fn add(&mut self, logins: &Logins) {
        for (place, login) in logins {
            self.0.entry(key_of(place)).or_default().push(login.clone());
        }
    }

    /// Every login for a repository, the most specific place first.
    pub fn find(&self, repository: &str) -> Vec<Login> {
        // Backwards, a longer path comes before the path it begins with.
        let fitting = self.0.iter().rev().filter(|(key, _)| matches(key, repository));
        let found: Vec<Login> = fitting.flat_map(|(_, logins)| logins).cloned().collect();
        if !found.is_empty() || !is_on_docker_hub(repository) {
            return found;
        }
        self.0.get(DOCKER_HUB).cloned().unwrap_or_default()
    }
}

/// `https://r.io/v2/team` is the same place as `r.io/team`.
fn key_of(place: &str) -> String {
    let bare = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://"));
    let bare = bare.unwrap_or(place);
    let bare = bare.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = split_path(bare);
    let path = match path.get(..4) {
        Some("/v1/" | "/v2/") => &path[3..],
        _ => path,
    };
    if path == "/" { host.to_owned() } else { format!("{host}{path}") }
}

/// Does `glob`, whose host may have wildcards, cover `target`?
pub fn matches(glob: &str, target: &str) -> bool {
    let ((glob_host, glob_path), (host, path)) = (split_path(glob), split_path(target));
    let ((glob_host, glob_port), (host, port)) = (split_port(glob_host), split_port(host));
    let (globs, parts): (Vec<_>, Vec<_>) =
        (glob_host.split('.').collect(), host.split('.').collect());
    glob_port == port
        && globs.len() == parts.len()
        && path.starts_with(glob_path)
        && globs.iter().zip(parts).all(|(glob, part)| glob_fits(glob, part))
}

fn split_path(url: &str) -> (&str, &str) {
    url.split_at(url.find('/').unwrap_or(url.len()))
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port),
        _ => (host, ""),
    }
}

/// The shell wildcard `*`, within one part of a host name. A `?` begins a URL's
/// query, and a host name holds no character for which more would be needed.
fn glob_fits(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                retry = Some((g, t));
                g += 1;
            }
            Some(&c) if c == text[t] => (g, t) = (g + 1, t + 1),
            _ => match retry {
                // The last star swallows one more.
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    (g, t) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

fn is_on_docker_hub(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("docker.io" | DOCKER_HUB, _)) => true,
        Some((first, _)) => !first.is_empty() && !first.contains(['.', ':']),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(places: &[&str]) -> Keyring {
        let login = |place: &str| Login { username: place.to_owned(), password: "p".to_owned() };
        let logins = places.iter().map(|place| ((*place).to_owned(), login(place))).collect();
        let mut ring = Keyring::default();
        ring.add(&logins);
        ring
    }

    #[track_caller]
    fn check(places: &[&str], repository: &str, found: &[&str]) {
        let logins = ring(places).find(repository);
        let names: Vec<&str> = logins.iter().map(|l| l.username.as_str()).collect();
        assert_eq!(names, found, "{repository}");
    }

    #[test]
    fn hosts_globs_ports_and_paths() {
        check(&["r.io"], "r.io/a/b", &["r.io"]);
        check(&["r.io/a", "r.io", "r.io/ab"], "r.io/a/b", &["r.io/a", "r.io"]);
        check(&["*.r.io"], "x.r.io/a", &["*.r.io"]);
        check(&["*.r.io"], "r.io/a", &[]);
        check(&["*.r.io"], "a.b.r.io/a", &[]);
        check(&["x*y*.io"], "xaayb.io/a", &["x*y*.io"]);
        check(&["x*y.io"], "xaayb.io/a", &[]);
        check(&["r.io:5000"], "r.io:5000/a", &["r.io:5000"]);
        check(&["r.io"], "r.io:5000/a", &[]);
        check(&["https://r.io/v2/"], "r.io/a", &["https://r.io/v2/"]);
        check(&["http://r.io/v1/team"], "r.io/team/x", &["http://r.io/v1/team"]);
        check(&["http://r.io/v1/team"], "r.io/other/x", &[]);
    }

    #[test]
    fn docker_hub_has_names_of_its_own() {
        let hub = "https://index.docker.io/v1/";
        check(&[hub], "docker.io/library/busybox", &[hub]);
        check(&[hub, "docker.io"], "docker.io/library/busybox", &["docker.io"]);
        check(&[hub], "r.io/busybox", &[]);
    }

    #[test]
    fn secrets_are_not_printed() {
        let login = Login { username: "joe".into(), password: "s3cret".into() };
        assert!(!format!("{login:?}").contains("s3cret"));
    }
}
