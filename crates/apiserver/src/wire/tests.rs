//! Tests of reading protobuf.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A piece of text, bytes or a message.
fn put(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let mut piece = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        piece.push(length as u8 | 0x80);
        length >>= 7;
    }
    piece.push(length as u8);
    piece.extend_from_slice(bytes);
    piece
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn body(api_version: &str, kind: &str, object: Vec<u8>) -> Vec<u8> {
    let meta = [put(1, api_version), put(2, kind)].concat();
    [MAGIC.to_vec(), put(1, meta), put(2, object)].concat()
}

#[test]
fn a_pod() {
    let labels = put(11, [put(1, "app"), put(2, "web")].concat());
    let metadata = [put(1, "web"), put(2, ""), number(7, 0), put(8, ""), labels].concat();
    let request = put(2, [put(1, "cpu"), put(2, put(1, "100m"))].concat());
    let get = [put(1, "/"), put(2, [number(1, 1), put(3, "http")].concat())].concat();
    let probe = [put(1, put(2, get)), number(3, 5)].concat();
    let container = [put(1, "app"), put(2, "x:1"), put(8, request), put(10, probe)].concat();
    let volume = [put(1, "v"), put(2, put(2, ""))].concat();
    let spec = [put(1, volume), put(2, container), number(4, 0)].concat();
    let sent = body("v1", "Pod", [put(1, metadata), put(2, spec)].concat());
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{
                "name": "app", "image": "x:1", "resources": {"requests": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "timeoutSeconds": 5},
            }],
            "terminationGracePeriodSeconds": 0,
        },
    });
    assert_eq!(decode(&sent).unwrap(), expected);
}

#[test]
fn times_bytes_and_lists_of_text() {
    let renewed = [number(1, 10), number(2, 64)].concat();
    let lease = body("coordination.k8s.io/v1", "Lease", put(2, put(4, renewed)));
    assert_eq!(decode(&lease).unwrap()["spec"]["renewTime"], "1970-01-01T00:00:10.000000Z");
    let secret = body("v1", "Secret", put(2, [put(1, "k"), put(2, "v")].concat()));
    assert_eq!(decode(&secret).unwrap()["data"], json!({"k": "dg=="}));
    let extra = put(5, [put(1, "k"), put(2, put(1, "v"))].concat());
    let review = body("authorization.k8s.io/v1", "SubjectAccessReview", put(2, extra));
    assert_eq!(decode(&review).unwrap()["spec"]["extra"], json!({"k": ["v"]}));
}

#[test]
fn nonsense_is_refused() {
    assert_eq!(decode(b"{}"), Err(WireError::Magic));
    assert_eq!(decode(b"k8s\0\x0a\x7f"), Err(WireError::Broken));
    let unknown = decode(&body("apps/v1", "Deployment", Vec::new()));
    assert!(matches!(unknown, Err(WireError::Unknown { .. })));
    let wrong = decode(&body("v1", "Pod", number(1, 3)));
    assert!(matches!(wrong, Err(WireError::Type { .. })));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&body("v1", "Pod", bytes.clone()));
        let _ = decode(&[MAGIC, &bytes].concat());
    }
}
