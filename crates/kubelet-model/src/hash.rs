//! The container hash: it tells whether a running container was made from the
//! definition its pod has now.
//!
//! Upstream hashes a Go-style dump of the JSON bytes of image and name; any
//! difference would restart every container when a node changes hands.
//! Upstream: pkg/kubelet/container/helpers.go.

use std::fmt::Write;

/// The hash of a container's identity-defining fields.
pub fn container_hash(name: &str, image: &str) -> u32 {
    let json = format!("{{\"image\":{},\"name\":{}}}", go_json(image), go_json(name));
    let mut dump = String::with_capacity(16 + json.len() * 4);
    dump.push_str("([]uint8)[");
    for (index, byte) in json.bytes().enumerate() {
        let gap = if index == 0 { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(dump, "{gap}{byte}");
    }
    dump.push(']');
    fnv1a32(dump.as_bytes())
}

/// A JSON string as Go writes it.
fn go_json(text: &str) -> String {
    escape_as_go(&serde_json::Value::from(text).to_string())
}

/// JSON with what Go escapes beside: `<`, `>`, `&` and the two line separators.
/// None of them occurs in JSON but inside strings.
pub fn escape_as_go(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// The checksum of checkpoints whose data is a text.
/// Upstream: pkg/kubelet/checkpointmanager/checksum.
pub fn text_checksum(text: &str) -> u32 {
    fnv1a32(format!("(string){text}").as_bytes())
}

fn fnv1a32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_upstream() {
        assert_eq!(container_hash("test_container", "foo/image:v1"), 0x8e45_cbd0);
    }

    #[test]
    fn depends_on_both_fields() {
        let base = container_hash("a", "b");
        assert_ne!(base, container_hash("a", "c"));
        assert_ne!(base, container_hash("c", "b"));
        assert_eq!(go_json("<&>"), "\"\\u003c\\u0026\\u003e\"");
    }
}
