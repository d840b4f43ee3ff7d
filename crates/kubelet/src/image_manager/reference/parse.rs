//! Takes an image reference apart: `[host[:port]/]path[:tag][@digest]`.
//!
//! Pure and bounded: a reference of any length costs no more than one pass.

use super::Reference;

/// Longest repository name, registry included.
const REPOSITORY_MAX: usize = 255;
/// Longest tag.
const TAG_MAX: usize = 128;
/// Longer texts are refused unread.
const REFERENCE_MAX: usize = 1_024;
const DEFAULT_REGISTRY: &str = "docker.io";

/// Why a text is no image reference, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// It breaks the grammar.
    #[error("invalid reference format")]
    Format,
    /// Upper case in the path.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// Too long.
    #[error("repository name must not be more than {REPOSITORY_MAX} characters")]
    TooLong,
    /// It could be mistaken for an image id.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    LooksLikeId(String),
    /// The digest is of an unknown kind.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    /// The digest is too short or too long.
    #[error("invalid checksum digest length")]
    DigestLength,
}

/// Parses a reference.
pub fn parse(text: &str) -> Result<Reference, ReferenceError> {
    if text.len() > REFERENCE_MAX {
        return Err(ReferenceError::TooLong);
    }
    if text.len() == 64 && text.bytes().all(is_lower_hex) {
        return Err(ReferenceError::LooksLikeId(text.to_owned()));
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    let path_at = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[path_at..].find(':') {
        Some(colon) => (&rest[..path_at + colon], Some(&rest[path_at + colon + 1..])),
        None => (rest, None),
    };
    let (domain, path) = split_domain(name);
    if path.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(ReferenceError::Uppercase(path));
    }
    let sound = is_domain(domain)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(has_digest_form);
    if !sound {
        return Err(ReferenceError::Format);
    }
    digest.map_or(Ok(()), check_digest)?;
    let repository = format!("{domain}/{path}");
    if repository.len() > REPOSITORY_MAX {
        return Err(ReferenceError::TooLong);
    }
    let tagged = tag.is_some() || digest.is_some();
    Ok(Reference {
        pullable: if tagged { text.to_owned() } else { format!("{text}:latest") },
        name: name.to_owned(),
        repository,
    })
}

/// The registry and the path in it. A first part without dot or colon that is
/// not `localhost` is a user of Docker Hub, not a host.
fn split_domain(name: &str) -> (&str, String) {
    let (domain, path) = match name.split_once('/') {
        Some((first, path)) if is_host(first) => (first, path),
        _ => (DEFAULT_REGISTRY, name),
    };
    let domain = if domain == "index.docker.io" { DEFAULT_REGISTRY } else { domain };
    if domain == DEFAULT_REGISTRY && !path.contains('/') {
        return (domain, format!("library/{path}"));
    }
    (domain, path.to_owned())
}

fn is_host(first: &str) -> bool {
    first.contains(['.', ':'])
        || first == "localhost"
        || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let port_is_good =
        port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    port_is_good
        && match address {
            Some(ip) => !ip.is_empty() && ip.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'),
            None => host.split('.').all(is_domain_component),
        }
}

fn is_domain_component(part: &str) -> bool {
    let edges = [part.bytes().next(), part.bytes().next_back()];
    edges.iter().all(|edge| edge.is_some_and(|b| b.is_ascii_alphanumeric()))
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Runs of `[a-z0-9]` joined by one of `.`, `_`, `__` or any number of dashes.
fn is_path_component(part: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_edge = |b: Option<u8>| b.is_some_and(alphanumeric);
    if !is_edge(part.bytes().next()) || !is_edge(part.bytes().next_back()) {
        return false;
    }
    part.split(|c: char| c.is_ascii() && alphanumeric(c as u8)).all(|separator| {
        matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-')
    })
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= TAG_MAX
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn has_digest_form(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let part_is_good = |part: &str| {
        part.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(part_is_good)
        && hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

fn check_digest(digest: &str) -> Result<(), ReferenceError> {
    let (algorithm, hex) = digest.split_once(':').ok_or(ReferenceError::Format)?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(ReferenceError::DigestAlgorithm),
    };
    if hex.len() != length {
        return Err(ReferenceError::DigestLength);
    }
    if hex.bytes().all(is_lower_hex) { Ok(()) } else { Err(ReferenceError::Format) }
}

fn is_lower_hex(b: u8) -> bool {
    b.is_ascii_digit() || (b'a'..=b'f').contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[track_caller]
    fn check(text: &str, pullable: &str, name: &str, repository: &str) {
        let want = Reference {
            pullable: pullable.to_owned(),
            name: name.to_owned(),
            repository: repository.to_owned(),
        };
        assert_eq!(parse(text), Ok(want), "{text}");
    }

    #[test]
    fn latest_is_added_textually() {
        check("busybox", "busybox:latest", "busybox", "docker.io/library/busybox");
        check("busybox:1", "busybox:1", "busybox", "docker.io/library/busybox");
        check("me/app", "me/app:latest", "me/app", "docker.io/me/app");
        check("localhost/app", "localhost/app:latest", "localhost/app", "localhost/app");
        check("r.io:5000/a/b", "r.io:5000/a/b:latest", "r.io:5000/a/b", "r.io:5000/a/b");
        check(
            "index.docker.io/x",
            "index.docker.io/x:latest",
            "index.docker.io/x",
            "docker.io/library/x",
        );
        check("[::1]:5000/x:v", "[::1]:5000/x:v", "[::1]:5000/x", "[::1]:5000/x");
        let digested = format!("r.io/x@sha256:{HEX}");
        check(&digested, &digested, "r.io/x", "r.io/x");
        let both = format!("r.io/x:v1@sha256:{HEX}");
        check(&both, &both, "r.io/x", "r.io/x");
        check(
            "r.io/a__b/c--d/e.f",
            "r.io/a__b/c--d/e.f:latest",
            "r.io/a__b/c--d/e.f",
            "r.io/a__b/c--d/e.f",
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let format = [
            "",
            ":",
            "/",
            "a//b",
            "a:",
            "a@",
            "a b",
            "r.io/",
            "a:tag/b:",
            "-a",
            "a_",
            "a..b",
            "a___b",
            "r..io/x",
            "http://r.io/x",
            "a@sha256:xyz",
            "a:-tag",
            "ü",
        ];
        for text in format {
            assert_eq!(parse(text), Err(ReferenceError::Format), "{text:?}");
        }
        let upper = ReferenceError::Uppercase("library/Busybox".to_owned());
        assert_eq!(parse("Busybox"), Err(upper));
        assert_eq!(parse(HEX), Err(ReferenceError::LooksLikeId(HEX.to_owned())));
        assert_eq!(parse(&"a/".repeat(600)), Err(ReferenceError::TooLong));
        assert_eq!(parse(&"a".repeat(300)), Err(ReferenceError::TooLong));
        assert_eq!(parse(&format!("a@md9:{HEX}")), Err(ReferenceError::DigestAlgorithm));
        assert_eq!(parse(&format!("a@sha512:{HEX}")), Err(ReferenceError::DigestLength));
        assert_eq!(parse(&format!("a:{}", "t".repeat(129))), Err(ReferenceError::Format));
    }
}
