//! Syntax of names, labels, ports and numbers. Upstream: apimachinery/pkg/util/validation.

type Check = Result<(), &'static str>;

fn alnum_lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Starts and ends with a byte of `ends`, all others pass `inner`.
fn framed(text: &str, ends: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(|b| ends(*b));
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| inner(*b))
}

fn is_label(text: &str) -> bool {
    text.len() <= 63 && framed(text, alnum_lower, |b| alnum_lower(b) || b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| framed(part, alnum_lower, |b| alnum_lower(b) || b == b'-');
    text.len() <= 253 && text.split('.').all(part)
}

/// A DNS label: one part of a host name.
pub(in crate::manifest) fn dns_label(text: &str) -> Check {
    let message = "must be at most 63 lower-case letters, digits and '-', and start and end with \
                   a letter or digit";
    if is_label(text) { Ok(()) } else { Err(message) }
}

/// A DNS subdomain: labels joined by dots.
pub(in crate::manifest) fn dns_subdomain(text: &str) -> Check {
    let message = "must be at most 253 lower-case letters, digits, '-' and '.', and each part \
                   between dots must start and end with a letter or digit";
    if is_subdomain(text) { Ok(()) } else { Err(message) }
}

/// A search domain: may end in a dot and hold underscores; `.` alone is the root.
pub(super) fn search_domain(text: &str) -> Check {
    let inner = |b: u8| alnum_lower(b) || matches!(b, b'-' | b'_');
    let ends = |b: u8| alnum_lower(b) || b == b'_';
    let name = text.strip_suffix('.').unwrap_or(text);
    let good = name.len() <= 253 && name.split('.').all(|part| framed(part, ends, inner));
    if text == "." || good { Ok(()) } else { Err("must be a domain name in lower case") }
}

/// A key of a label or annotation: an optional DNS prefix, a slash and a name.
pub(super) fn qualified_name(text: &str) -> Check {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.len() > 63 || !framed(name, |b| b.is_ascii_alphanumeric(), inner) {
        return Err("must be at most 63 letters, digits, '-', '_' and '.', start and end with a \
                    letter or digit, and may follow a DNS prefix and '/'");
    }
    match prefix {
        Some(prefix) if !is_subdomain(prefix) => Err("the prefix before '/' must be a DNS name"),
        _ => Ok(()),
    }
}

/// A label's value.
pub(super) fn label_value(text: &str) -> Check {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || (text.len() <= 63 && framed(text, |b| b.is_ascii_alphanumeric(), inner)) {
        return Ok(());
    }
    Err("must be at most 63 letters, digits, '-', '_' and '.', and start and end with a letter or \
         digit")
}

/// A port's name (IANA service name).
pub(super) fn port_name(text: &str) -> Check {
    let good = text.len() <= 15
        && framed(text, alnum_lower, |b| alnum_lower(b) || b == b'-')
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.contains("--");
    let message = "must be at most 15 lower-case letters, digits and '-', with at least one \
                   letter, no '--', and no '-' at either end";
    if good { Ok(()) } else { Err(message) }
}

/// A port number.
pub(super) fn port_number(port: i32) -> Check {
    if (1..=65_535).contains(&port) { Ok(()) } else { Err("must be between 1 and 65535") }
}

/// Name of an environment variable: printable ASCII without `=`.
pub(super) fn env_name(text: &str) -> Check {
    let good = |b: u8| (b' '..=b'~').contains(&b) && b != b'=';
    if text.is_empty() {
        return Err("missing");
    }
    if text.bytes().all(good) { Ok(()) } else { Err("must be printable ASCII without '='") }
}

/// An HTTP header's name.
pub(super) fn header_name(text: &str) -> Check {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let message = "must be letters, digits and '-'";
    if !text.is_empty() && text.bytes().all(good) { Ok(()) } else { Err(message) }
}

/// A sysctl's name.
pub(super) fn sysctl_name(text: &str) -> Check {
    let inner = |b: u8| alnum_lower(b) || matches!(b, b'-' | b'_');
    let part = |part: &str| framed(part, alnum_lower, inner);
    let good = text.len() <= 253 && text.split(['.', '/']).all(part);
    if good { Ok(()) } else { Err("must be lower-case names joined by '.' or '/'") }
}

/// A user or group id.
pub(super) fn unix_id(id: i64) -> Check {
    let good = (0..=i64::from(i32::MAX)).contains(&id);
    if good { Ok(()) } else { Err("must be between 0 and 2147483647") }
}

/// A path that stays below where it starts.
pub(super) fn descending_path(path: &str) -> Check {
    if path.starts_with('/') {
        return Err("must be a relative path");
    }
    no_backsteps(path)
}

/// A path without `..`.
pub(super) fn no_backsteps(path: &str) -> Check {
    if path.split('/').any(|part| part == "..") { Err("must not contain '..'") } else { Ok(()) }
}

/// A pod's uid: it becomes part of directory, cgroup and log names.
pub(super) fn pod_uid(text: &str) -> Check {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let good = text.len() <= 63 && framed(text, |b| b.is_ascii_alphanumeric(), inner);
    let message = "must be at most 63 letters, digits and '-', and start and end with a letter or \
                   digit; leave it out to have one made";
    if good { Ok(()) } else { Err(message) }
}
