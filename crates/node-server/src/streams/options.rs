//! What the query of a stream says. Pure.
//!
//! Upstream: cri-streaming remotecommand (httpstream.go), portforward (websocket.go).

use crate::routes::Query;
use crate::view::{Stdio, ViewError};

/// The streams of a command. A terminal has one for output and complaints.
pub(super) fn stdio(query: &Query) -> Result<Stdio, ViewError> {
    let is = |name: &str| query.get(name) == "1";
    let tty = is("tty");
    let stdio =
        Stdio { stdin: is("input"), stdout: is("output"), stderr: is("error") && !tty, tty };
    if stdio.stdin || stdio.stdout || stdio.stderr {
        return Ok(stdio);
    }
    Err(ViewError::new(400, "you must specify at least 1 of stdin, stdout, stderr"))
}

/// Ports, which a WebSocket must name before it begins.
pub(super) fn ports(query: &Query) -> Result<Vec<u16>, ViewError> {
    let bad = |why: String| Err(ViewError::new(400, why));
    if !query.has("port") {
        return bad(r#"query parameter "port" is required"#.to_owned());
    }
    let mut ports = Vec::new();
    for value in query.all("port") {
        if value.is_empty() {
            return bad(r#"query parameter "port" cannot be empty"#.to_owned());
        }
        for text in value.split(',') {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            match text.parse::<u16>() {
                Ok(0) => return bad(format!("port {value:?} must be > 0")),
                Ok(port) if digits => ports.push(port),
                _ => {
                    let why = if digits { "value out of range" } else { "invalid syntax" };
                    return bad(format!(
                        "unable to parse {value:?} as a port: strconv.ParseUint: parsing {text:?}: {why}"
                    ));
                }
            }
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_asked_for_with_a_one() {
        let told = |query: &str| stdio(&Query::read(query)).map_err(|error| error.status);
        let none = Stdio::default();
        assert_eq!(told("input=1&output=1"), Ok(Stdio { stdin: true, stdout: true, ..none }));
        assert_eq!(told("error=1"), Ok(Stdio { stderr: true, ..none }));
        let terminal = Stdio { stdout: true, tty: true, ..none };
        assert_eq!(told("output=1&error=1&tty=1"), Ok(terminal));
        for query in ["", "tty=1", "output=true", "error=1&tty=1", "stdin=1"] {
            assert_eq!(told(query), Err(400), "{query}");
        }
    }

    #[test]
    fn ports_are_numbers_above_zero() {
        let told = |query: &str| ports(&Query::read(query)).map_err(|error| error.message);
        assert_eq!(told("port=80,443&port=1"), Ok(vec![80, 443, 1]));
        for (query, why) in [
            ("", "is required"),
            ("port=", "cannot be empty"),
            ("port=0", "must be > 0"),
            ("port=65536", "value out of range"),
            ("port=-1", "invalid syntax"),
            ("port=%2B80", "invalid syntax"),
            ("port=80,", "invalid syntax"),
        ] {
            let error = told(query).unwrap_err();
            assert!(error.contains(why), "{query}: {error}");
        }
    }
}
