//! Checkpoints, byte for byte as upstream writes them.

use kubelet_model::{PodResources, PodUid};

use super::pod;
use crate::allocation::format::{FormatError, Pods, decode, encode};
use crate::allocation::resize_message;

/// From upstream's own test of its format.
const UPSTREAM: &str = r#"{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}"#;

fn pods(all: &[(&str, &str, &str)]) -> Pods {
    let one = |(uid, resources, more): &(&str, &str, &str)| {
        (PodUid::new(*uid), PodResources::of(pod(uid, resources, more).spec()))
    };
    all.iter().map(one).collect()
}

#[test]
fn upstreams_text_is_read() {
    let read = decode(UPSTREAM.as_bytes()).expect("upstream's checksum");
    let own = &read[&PodUid::new("pod1")];
    assert!(own.whole.is_none());
    let requests = own.containers["container1"].requests.as_ref().expect("requests");
    assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("1Ki", "1Ki"));
}

#[test]
fn what_is_written_is_read_back() {
    let all = pods(&[
        ("u2", r#"{"limits":{"cpu":"0.5","memory":"1024Mi"},"requests":{"cpu":"100m"}}"#, ""),
        ("u1", "{}", r#","resources":{"limits":{"cpu":"2"}},"initContainers":[{"name":"i"}]"#),
    ]);
    let text = encode(&all);
    let expected = concat!(
        r#"{"data":"{\"entries\":{"#,
        r#"\"u1\":{\"ContainerResources\":{\"app\":{},\"i\":{}},"#,
        r#"\"PodLevelResources\":{\"limits\":{\"cpu\":\"2\"},\"requests\":{\"cpu\":\"2\"}}},"#,
        r#"\"u2\":{\"ContainerResources\":{\"app\":{"#,
        r#"\"limits\":{\"cpu\":\"500m\",\"memory\":\"1Gi\"},"#,
        r#"\"requests\":{\"cpu\":\"100m\",\"memory\":\"1Gi\"}}},\"PodLevelResources\":null}"#,
        r#"}}","checksum":4235252358}"#
    );
    assert_eq!(text, expected, "what upstream's own code wrote for the same");
    assert_eq!(decode(text.as_bytes()), Ok(all));
    assert!(encode(&Pods::new()).starts_with(r#"{"data":"{}","checksum":"#));
    assert_eq!(decode(encode(&Pods::new()).as_bytes()), Ok(Pods::new()));
}

#[test]
fn torn_and_edited_files_are_noticed() {
    let text = encode(&pods(&[("u1", "{}", "")]));
    for end in [0, 1, text.len() / 2, text.len() - 1] {
        let torn = decode(&text.as_bytes()[..end]);
        assert!(matches!(torn, Err(FormatError::Json(_))), "{end}: {torn:?}");
    }
    let edited = UPSTREAM.replace("1Ki", "2Ki");
    assert!(matches!(decode(edited.as_bytes()), Err(FormatError::Checksum { .. })));
    assert!(matches!(decode(b"[]"), Err(FormatError::Json(_))));
    let nonsense = r#"{"data":"x","checksum":0}"#;
    assert!(decode(nonsense.as_bytes()).is_err());
}

#[test]
fn events_carry_upstreams_summary() {
    let pod = pod(
        "u",
        r#"{"limits":{"cpu":"1","memory":"64Mi"}}"#,
        r#","initContainers":[{"name":"i","image":"i"}]"#,
    );
    let sizes = concat!(
        r#"{"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"app","#,
        r#""resources":{"limits":{"cpu":"1","memory":"64Mi"},"#,
        r#""requests":{"cpu":"1","memory":"64Mi"}}}],"generation":0"#
    );
    assert_eq!(
        resize_message("Pod resize started", pod.pod(), ""),
        format!("Pod resize started: {sizes}}}")
    );
    assert_eq!(
        resize_message("Pod resize error", pod.pod(), "a < b"),
        format!(r#"Pod resize error: {sizes},"error":"a \u003c b"}}"#)
    );
}
