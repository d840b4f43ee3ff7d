//! Reading documents: what is accepted, what is refused, and that nothing panics.

use proptest::prelude::*;

use super::*;

fn head(body: &str) -> String {
    format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{body}")
}

fn refusal(text: &str) -> String {
    decode(text.as_bytes(), true).unwrap_err().to_string()
}

#[test]
fn yaml_and_json() {
    let yaml =
        decode(head("maxPods: 7\nevictionHard:\n  memory.available: 5%\n").as_bytes(), false)
            .unwrap();
    let json = format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","maxPods":7,"evictionHard":{{"memory.available":"5%"}}}}"#
    );
    assert_eq!(decode(json.as_bytes(), false).unwrap().config, yaml.config);
    assert_eq!(yaml.config.max_pods, Some(7));
    assert_eq!(yaml.raw.get("kind"), None);
}

#[test]
fn leading_marker_comments_and_null_fields() {
    let text =
        format!("# hello\n---\n{}", head("clusterDNS: null\nauthentication:\n  anonymous: null\n"));
    let document = decode(text.as_bytes(), false).unwrap();
    assert_eq!(document.config.cluster_dns, None);
    assert!(document.unknown.is_empty());
}

#[test]
fn unknown_fields_are_listed_with_their_path() {
    let text = head("maxPodz: 1\nauthentication:\n  x509:\n    caFile: /x\n");
    let mut unknown = decode(text.as_bytes(), true).unwrap().unknown;
    unknown.sort();
    assert_eq!(unknown, ["authentication.x509.caFile", "maxPodz"]);
}

#[test]
fn a_doubled_key_is_tolerated_only_when_lenient() {
    let text = head("maxPods: 1\nmaxPods: 2\n");
    let document = decode(text.as_bytes(), true).unwrap();
    assert_eq!(document.config.max_pods, Some(2));
    assert!(document.duplicate.is_some());
    assert!(matches!(decode(text.as_bytes(), false), Err(DecodeError::Duplicate(_))));
}

#[test]
fn refusals_say_why() {
    assert!(refusal("").contains("empty"));
    assert!(refusal("# only a comment\n").contains("empty"));
    assert!(refusal("- a\n").contains("not a list"));
    assert!(refusal("maxPods: 1\n").contains("apiVersion is missing"));
    assert!(refusal("apiVersion: v1\nkind: Pod\n").contains("apiVersion is \"v1\""));
    assert!(refusal(&format!("apiVersion: {API_VERSION}\n")).contains("kind is missing"));
    assert!(refusal("{ this is not\n").contains("neither YAML nor JSON"));
    let wrong = refusal(&head("maxPods: many\n"));
    assert!(wrong.contains("field maxPods") && wrong.contains("many"), "{wrong}");
    assert!(refusal(&head("syncFrequency: 10\n")).contains("field syncFrequency"));
    assert!(refusal(&head("syncFrequency: 10x\n")).contains("unknown unit"));
}

#[test]
fn numbers_are_not_strings() {
    assert!(refusal(&head("cgroupRoot: 5\n")).contains("field cgroupRoot"));
    assert!(refusal(&head("maxPods: 1.5\n")).contains("field maxPods"));
    assert!(refusal(&head("maxPods: 3000000000\n")).contains("field maxPods"));
}

#[test]
fn whole_floats_and_old_octals_are_integers() {
    for (text, pods) in [("1.0", 1), ("1e1", 10), ("0x10", 16), ("010", 8)] {
        let document = decode(head(&format!("maxPods: {text}\n")).as_bytes(), true).unwrap();
        assert_eq!(document.config.max_pods, Some(pods), "{text}");
    }
    let document = decode(head("memoryThrottlingFactor: 1.0\n").as_bytes(), true).unwrap();
    assert_eq!(document.config.memory_throttling_factor, Some(1.0));
}

#[test]
fn secrets_do_not_reach_messages() {
    let wrong = refusal(&head("staticPodURLHeader:\n  Authorization: hunter2\n"));
    assert!(wrong.contains("staticPodURLHeader") && !wrong.contains("hunter2"), "{wrong}");
}

#[test]
fn booleans_of_yaml_1_1() {
    let document = decode(head("failSwapOn: no\nprotectKernelDefaults: on\n").as_bytes(), true);
    let config = document.unwrap().config;
    assert_eq!((config.fail_swap_on, config.protect_kernel_defaults), (Some(false), Some(true)));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes, true);
    }

    #[test]
    fn any_text_after_the_head_is_read_or_refused(body in "[ -~\n]{0,300}") {
        let _ = decode(head(&body).as_bytes(), true);
    }

    #[test]
    fn any_value_of_any_field_is_read_or_refused(
        field in prop::sample::select(KubeletConfiguration::all_settings()),
        value in "[-+0-9a-zA-Z%:{}\\[\\], ]{0,20}",
    ) {
        let mut text = String::new();
        for (depth, key) in field.split('.').enumerate() {
            text.push_str(&format!("\n{}{key}:", "  ".repeat(depth)));
        }
        let _ = decode(head(&format!("{} {value}\n", text.trim_start())).as_bytes(), true);
    }
}
