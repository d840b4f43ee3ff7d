//! Addresses, URLs and headers of a request. Pure.
//!
//! A manifest's path may be anything; what can be sent of it is sent, as
//! upstream does. Upstream: pkg/probe/http/request.go.

use std::fmt::Write as _;

use hyper::Uri;
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};

use crate::ports::probe::{HttpRequest, Scheme};

/// What upstream's client writes by itself, or not at all.
const RESERVED: [&str; 5] =
    ["host", "user-agent", "content-length", "transfer-encoding", "trailer"];

/// `host:port`, with brackets where an address needs them.
pub(super) fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The URL asked for.
pub(super) fn url(request: &HttpRequest) -> Result<Uri, String> {
    let scheme = match request.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let authority = join(&request.host, request.port);
    let text = format!("{scheme}://{authority}{}", path_and_query(&request.path));
    text.parse().map_err(|error| format!("Get {text:?}: {error}"))
}

/// What to send, and the host to name if it is not the URL's.
pub(super) fn headers(request: &HttpRequest) -> Result<(HeaderMap, Option<HeaderValue>), String> {
    let mut map = HeaderMap::new();
    let mut host = None;
    let mut agent = None;
    for (name, value) in &request.headers {
        let key = HeaderName::try_from(name)
            .map_err(|_| format!("net/http: invalid header field name {name:?}"))?;
        // The value may be a secret, so it stays out of the message.
        let value = HeaderValue::try_from(value)
            .map_err(|_| format!("net/http: invalid header field value for {name:?}"))?;
        match key {
            HOST => host = host.or(Some(value)),
            USER_AGENT => agent = agent.or(Some(value)),
            key if RESERVED.contains(&key.as_str()) => {}
            key => drop(map.append(key, value)),
        }
    }
    let agent = match agent {
        Some(given) => given,
        None => HeaderValue::try_from(&request.user_agent)
            .map_err(|_| "net/http: invalid user agent".to_owned())?,
    };
    if !agent.is_empty() {
        map.insert(USER_AGENT, agent);
    }
    match map.get(ACCEPT) {
        None => drop(map.insert(ACCEPT, HeaderValue::from_static("*/*"))),
        Some(accept) if accept.is_empty() => drop(map.remove(ACCEPT)),
        Some(_) => {}
    }
    Ok((map, host.filter(|host| !host.is_empty())))
}

/// A manifest's path as a request can carry it: no fragment, no host of its
/// own, a slash in front, and nothing that would break the request line.
fn path_and_query(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let path = match path.find("//") {
        Some(0) => without_authority(&path[2..]),
        Some(at) if path[..at].ends_with(':') && !path[..at].contains('/') => {
            without_authority(&path[at + 2..])
        }
        _ => path,
    };
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let mut out = if path.starts_with('/') { String::new() } else { "/".to_owned() };
    if has_bad_escape(path) {
        // Upstream then takes the whole text for a path.
        let whole = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        escape(&mut out, &whole, b"");
        return out;
    }
    escape(&mut out, path, b"%");
    if let Some(query) = query {
        out.push('?');
        escape(&mut out, query, b"%?");
    }
    out
}

fn without_authority(rest: &str) -> &str {
    rest.find(['/', '?']).map_or("", |at| &rest[at..])
}

/// A per cent sign without two hexadecimal digits behind it.
fn has_bad_escape(path: &str) -> bool {
    let mut parts = path.split('%');
    parts.next();
    parts.any(|part| {
        let digits = part.as_bytes().get(..2);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

fn escape(out: &mut String, text: &str, extra: &[u8]) {
    const PLAIN: &[u8] = b"-_.~/!$&'()*+,;=:@";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) || extra.contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_sendable() {
        for (path, expected) in [
            ("", "/"),
            ("/healthz", "/healthz"),
            ("healthz?a=b&c=%20", "/healthz?a=b&c=%20"),
            ("/a#part", "/a"),
            ("/a b/ü", "/a%20b/%C3%BC"),
            ("/a%20b", "/a%20b"),
            ("/100%?x", "/100%25%3Fx"),
            ("//evil.example/x?y", "/x?y"),
            ("http://evil.example", "/"),
            ("/x?next=http://a/b?c", "/x?next=http://a/b?c"),
            ("/a\r\nHost: x", "/a%0D%0AHost:%20x"),
        ] {
            assert_eq!(path_and_query(path), expected, "{path}");
        }
    }

    #[test]
    fn addresses_get_brackets_when_they_need_them() {
        assert_eq!(join("10.0.0.1", 80), "10.0.0.1:80");
        assert_eq!(join("fd00::1", 80), "[fd00::1]:80");
    }
}
