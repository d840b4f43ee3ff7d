//! Blocks of PEM, read as Go reads them: what is no block, and what a block says of
//! itself, is passed over, and so is a block that is damaged.
//!
//! Pure. Upstream: encoding/pem, as pkg/kubelet/clustertrustbundle and
//! pkg/kubelet/podcertificate use it.

use kubelet_model::base64;

/// Characters of a line.
const LINE: usize = 64;
/// What a certificate's block says it is.
pub(crate) const CERTIFICATE: &str = "CERTIFICATE";

/// What the blocks of a text hold, whatever they say they are.
pub(crate) fn blocks(text: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines().map(str::trim_end) {
        let kind = |start: &str| line.strip_prefix(start)?.strip_suffix("-----");
        if let Some(kind) = kind("-----BEGIN ") {
            open = Some((kind, String::new()));
        } else if let Some(kind) = kind("-----END ") {
            let ended = open.take().filter(|(begun, _)| *begun == kind);
            found.extend(ended.and_then(|(_, body)| base64::decode_padded(&body)));
        } else if let Some((_, body)) = &mut open {
            let is_header = body.is_empty() && line.contains(':');
            if !is_header {
                body.extend(line.chars().filter(|c| !c.is_ascii_whitespace()));
            }
        }
    }
    found
}

/// Bytes as a block of this kind.
pub(crate) fn block(kind: &str, bytes: &[u8]) -> String {
    let body = base64::encode(bytes);
    let mut text = format!("-----BEGIN {kind}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII: every index is one of a character.
        let (line, more) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str(&format!("-----END {kind}-----\n"));
    text
}

/// The certificates of a text, and nothing else of it.
pub(crate) fn clean(text: &str) -> String {
    blocks(text).iter().map(|bytes| block(CERTIFICATE, bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for length in [0, 1, 47, 48, 49, 96, 1000] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let text = block("PRIVATE KEY", &bytes);
            assert!(text.lines().all(|line| line.len() <= LINE), "{text}");
            assert_eq!(blocks(&text), [bytes]);
        }
        let text = "-----BEGIN X-----\nYWJj\n-----END X-----\n";
        assert_eq!(block("X", b"abc"), text);
    }

    #[test]
    fn what_is_no_block_is_passed_over() {
        let text = "before\r\n-----BEGIN CERTIFICATE-----\r\nProc-Type: 4\r\n\r\nYW Jj\r\n\
                    -----END CERTIFICATE-----\r\nbetween\n\
                    -----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n\
                    -----BEGIN A-----\nYWJj\n-----END B-----\n\
                    -----BEGIN CERTIFICATE-----\nYWJj\n\
                    -----BEGIN OTHER-----\nZGVm\n-----END OTHER-----\nafter\n\
                    -----BEGIN CERTIFICATE-----\nYWJj\n";
        assert_eq!(blocks(text), [b"abc".to_vec(), b"def".to_vec()]);
        let expected = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n\
                        -----BEGIN CERTIFICATE-----\nZGVm\n-----END CERTIFICATE-----\n";
        assert_eq!(clean(text), expected);
        assert_eq!(clean("none"), "");
    }
}
