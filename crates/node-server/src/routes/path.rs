//! Paths and queries as Go reads them. Pure.
//!
//! Rights are asked for the very path that is routed: decoded once, and clean. A path
//! that is not clean leads nowhere but to its clean form, as in Go's `ServeMux`.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What is written as it is in a path of Go's.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// What is to be done about a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// It is clean.
    Clean(String),
    /// It must be asked for under this name.
    Moved(String),
    /// It cannot be read.
    Bad,
}

/// Reads the path of a request.
pub(crate) fn read(raw: &str) -> Path {
    let Some(decoded) = decode(raw) else { return Path::Bad };
    if !decoded.starts_with('/') {
        return Path::Bad;
    }
    let clean = clean(&decoded);
    if clean == decoded { Path::Clean(decoded) } else { Path::Moved(encode(&clean)) }
}

/// A path, as it is written in a header.
pub(crate) fn encode(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Undoes percent-encoding; none if it is broken, or no text.
fn decode(raw: &str) -> Option<String> {
    let bytes = raw.as_bytes();
    for (index, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        if !bytes.get(index + 1..index + 3)?.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
    }
    let decoded = percent_decode_str(raw).decode_utf8().ok()?;
    (!decoded.contains('\0')).then(|| decoded.into_owned())
}

/// Without empty parts, `.` and `..`; a slash at the end stays.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = String::new();
    for part in &parts {
        clean.push('/');
        clean.push_str(part);
    }
    if clean.is_empty() || path.ends_with('/') {
        clean.push('/');
    }
    clean
}

/// A query: names and values in the order they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query; what cannot be read is passed over, as Go does.
    pub(crate) fn read(raw: &str) -> Self {
        let mut query = Self::default();
        query.add(raw);
        query
    }

    fn add(&mut self, raw: &str) {
        for pair in raw.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |raw: &str| decode(&raw.replace('+', " "));
            if let (Some(name), Some(value)) = (text(name), text(value)) {
                self.0.push((name, value));
            }
        }
    }

    /// With the values of a form before its own, as Go has them.
    pub(crate) fn with_form(self, form: &str) -> Self {
        let mut all = Self::read(form);
        all.0.extend(self.0);
        all
    }

    /// The first value; empty if there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// All values.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Was it given at all?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_paths_lead_anywhere() {
        let clean = |path: &str| Path::Clean(path.to_owned());
        let moved = |path: &str| Path::Moved(path.to_owned());
        for (raw, wanted) in [
            ("/pods", clean("/pods")),
            ("/pods/", clean("/pods/")),
            ("/", clean("/")),
            ("/logs/a%20b", clean("/logs/a b")),
            ("/logs/../pods", moved("/pods")),
            ("/logs/%2e%2e/pods", moved("/pods")),
            ("/logs/..%2fpods", moved("/pods")),
            ("/logs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", moved("/etc/passwd")),
            ("//pods", moved("/pods")),
            ("/a/./b/", moved("/a/b/")),
            ("/x/%0d%0aLocation:/../y", moved("/x/y")),
            ("/x//%0a", moved("/x/%0A")),
            ("/a%2", Path::Bad),
            ("/a%zz", Path::Bad),
            ("/a%00", Path::Bad),
            ("/a%ff", Path::Bad),
            ("pods", Path::Bad),
            ("*", Path::Bad),
            // Decoded once, not twice.
            ("/logs/%252e%252e/x", clean("/logs/%2e%2e/x")),
        ] {
            assert_eq!(read(raw), wanted, "{raw}");
        }
    }

    #[test]
    fn queries_keep_their_order() {
        let query = Query::read("command=ls&command=-l+a%26b&tty=1&=x&bad=%zz&a;b=1&empty");
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["ls", "-l a&b"]);
        assert_eq!((query.get("tty"), query.get("bad"), query.get("none")), ("1", "", ""));
        assert!(query.has("empty") && query.has("") && !query.has("bad") && !query.has("a;b"));
        assert_eq!(query.with_form("tty=2").get("tty"), "2");
    }
}
