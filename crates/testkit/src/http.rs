//! The smallest HTTP client that serves: one GET, one answer, connection closed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

/// GETs a path from a server on this host's loopback.
pub fn get(port: u16, path: &str) -> Result<Response> {
    get_from(SocketAddr::from(([127, 0, 0, 1], port)), path)
}

/// GETs a path from a server anywhere.
pub fn get_from(server: SocketAddr, path: &str) -> Result<Response> {
    let limit = Duration::from_secs(5);
    let what = || format!("GET http://{server}{path}");
    let mut stream = TcpStream::connect_timeout(&server, limit).with_context(what)?;
    stream.set_read_timeout(Some(limit)).with_context(what)?;
    stream.set_write_timeout(Some(limit)).with_context(what)?;
    // HTTP/1.0: no chunks, and the end of the stream ends the body.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).with_context(what)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(what)?;
    parse(&String::from_utf8_lossy(&answer)).with_context(what)
}

pub(crate) fn parse(answer: &str) -> Result<Response> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of headers")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    ensure!(head.starts_with("HTTP/1."), "not HTTP: {head:?}");
    Ok(Response { status: status.context("no status code")?, body: body.to_owned() })
}

/// GETs a path and insists on 200.
pub fn get_ok(port: u16, path: &str) -> Result<String> {
    let response = get(port, path)?;
    ensure!(
        response.status == 200,
        "GET {path} on port {port} answered {}: {}",
        response.status,
        response.body.trim()
    );
    Ok(response.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_split() {
        let answer = "HTTP/1.0 503 Service Unavailable\r\nA: b\r\n\r\nno\r\n\r\nmore";
        let expected = Response { status: 503, body: "no\r\n\r\nmore".to_owned() };
        assert_eq!(parse(answer).unwrap(), expected);
        assert!(parse("nonsense").is_err());
    }
}
