//! What a person reads when a manifest is not one.

use expect_test::expect;

use super::super::{MAX_BYTES, decode};
use super::{GOOD, check, summary, with_container};

#[test]
fn accepts_yaml_json_and_lists() {
    check(GOOD, expect!["pod default/web-node-1"]);
    check(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j"},
            "spec":{"containers":[{"name":"a","image":"i"}]}}"#,
        expect!["pod default/j-node-1"],
    );
    check(
        r#"{"apiVersion":"v1","kind":"PodList","items":[
            {"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"i"}]}},
            {"metadata":{"name":"b","namespace":"x"},"spec":{"containers":[{"name":"a","image":"i"}]}}]}"#,
        expect![[r#"
            pod default/a-node-1
            pod x/b-node-1"#]],
    );
    check(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n  spec:\n    containers: [{name: a, image: i}]\n",
        expect!["pod default/a-node-1"],
    );
    check("apiVersion: v1\nkind: PodList\nitems: []\n", expect![[""]]);
    check(&format!("\u{feff}# comment\n---\n{GOOD}..."), expect!["pod default/web-node-1"]);
    // As `kubectl run --dry-run=client -o yaml` writes it.
    check(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  creationTimestamp: null\n  labels:\n    run: web\n  name: web\nspec:\n  containers:\n  - image: nginx\n    name: web\n    resources: {}\n  dnsPolicy: ClusterFirst\n  restartPolicy: Always\nstatus: {}\n",
        expect!["pod default/web-node-1"],
    );
}

#[test]
fn refuses_what_is_not_a_pod() {
    check("", expect!["the manifest is empty; write a v1 Pod, or remove the file"]);
    check("# nothing\n---\n", expect!["the manifest is empty; write a v1 Pod, or remove the file"]);
    check(
        "hello",
        expect!["line 1, column 1: not an object; a v1 Pod starts with apiVersion and kind"],
    );
    check(
        "- a\n- b\n",
        expect!["line 1, column 1: not an object; a v1 Pod starts with apiVersion and kind"],
    );
    check(
        "kind: Pod\n",
        expect!["line 1, column 1: apiVersion: missing; a Pod has apiVersion: v1 and kind: Pod"],
    );
    check(
        "apiVersion: v2\nkind: Pod\n",
        expect![[r#"line 1, column 13: apiVersion: "v2" is not run here; only v1 is"#]],
    );
    check("apiVersion: 1\nkind: Pod\n", expect!["line 1, column 13: apiVersion: must be a string"]);
    check(
        "apiVersion: v1\nkind: Service\n",
        expect![[
            r#"line 2, column 7: kind: "Service" is not run here; only Pod, ConfigMap, Secret, PersistentVolume, PersistentVolumeClaim and lists of them are"#
        ]],
    );
    check(
        "apiVersion: v1\nkind: PodList\nitems: 5\n",
        expect!["line 3, column 8: items: must be a list of Pods"],
    );
    check(
        "apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n",
        expect![
            "line 4, column 3: items[0].apiVersion: missing; a Pod has apiVersion: v1 and kind: Pod"
        ],
    );
    check(&format!("{GOOD}---\n"), expect!["pod default/web-node-1"]);
    check(
        &format!("{GOOD}---\n{GOOD}"),
        expect![
            "line 9, column 1: more than one document; a manifest file holds one, so write one file for each"
        ],
    );
    expect!["line 3: not text but binary data; write a v1 Pod as YAML or JSON in UTF-8"]
        .assert_eq(&summary(b"apiVersion: v1\nkind: Pod\n\x00\x01\x02"));
    expect!["line 1: not text but binary data; write a v1 Pod as YAML or JSON in UTF-8"]
        .assert_eq(&summary(b"\x7fELF\x02\x01\x01\x00"));
    expect!["line 2: not text but binary data; write a v1 Pod as YAML or JSON in UTF-8"]
        .assert_eq(&summary(b"a: b\nc: \xff\xfe"));
    expect!["the manifest has 10485761 bytes; at most 10485760 are read"]
        .assert_eq(&summary(&vec![b' '; MAX_BYTES + 1]));
}

#[test]
fn names_line_and_field_of_a_mistake() {
    check(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: [web\n",
        expect!["line 4, column 9: not valid YAML: unclosed bracket '['"],
    );
    check(
        "apiVersion: v1\nkind: Pod\n\tmetadata: x\n",
        expect!["line 2, column 7: not valid YAML: while scanning a plain scalar, found a tab"],
    );
    check(
        "{\"apiVersion\": \"v1\",\n \"kind\": }",
        expect!["line 2, column 10: not valid JSON: expected value"],
    );
    check(
        &GOOD.replace("image: registry.k8s.io/pause:3.10", "image: 5"),
        expect![
            "line 8, column 12: spec.containers[0].image: invalid type: integer `5`, expected a string; put it in quotes"
        ],
    );
    check(
        &GOOD.replace("name: web", "name: true"),
        expect![
            "line 4, column 9: metadata.name: invalid type: boolean `true`, expected a string; put it in quotes"
        ],
    );
    check(
        &with_container("ports:\n- containerPort: eighty"),
        expect![[
            r#"line 10, column 22: spec.containers[0].ports[0].containerPort: invalid type: string "eighty", expected i32"#
        ]],
    );
    check(
        &with_container("ports:\n- containerPort: 80\n- containerPort: 99999999999"),
        expect![
            "line 11, column 22: spec.containers[0].ports[1].containerPort: invalid value: integer `99999999999`, expected i32"
        ],
    );
    check(
        &GOOD.replace("spec:\n", "spec:\n  restartPolicy: {a: b}\n"),
        expect!["line 6, column 18: spec.restartPolicy: invalid type: map, expected a string"],
    );
    check(
        "{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n \"metadata\": {\"name\": \"w\"},\n \"spec\": {\"containers\": [\n  {\"name\": \"a\", \"image\": 7}]}}",
        expect![
            "line 4, column 26: spec.containers[0].image: invalid type: integer `7`, expected a string; put it in quotes"
        ],
    );
    check(
        "apiVersion: v1\nkind: PodList\nitems:\n- metadata:\n    name: a\n  spec:\n    containers:\n    - {name: A, image: i}\n",
        expect![
            "line 8, column 14: items[0].spec.containers[0].name: must be at most 63 lower-case letters, digits and '-', and start and end with a letter or digit"
        ],
    );
}

#[test]
fn warns_of_unknown_and_repeated_fields() {
    check(
        &with_container("imagePulPolicy: Always"),
        expect![[r#"
        pod default/web-node-1
        warning: line 9, column 21: spec.containers[0].imagePulPolicy: unknown field, ignored"#]],
    );
    check(
        &format!("{GOOD}    name: other\nstatus:\n  fancy: {{a: 1}}\n"),
        expect![[r#"
        pod default/web-node-1
        warning: line 9, column 11: spec.containers[0].name: set more than once; the last one counts
        warning: line 11, column 10: status.fancy: unknown field, ignored"#]],
    );
}

#[test]
fn takes_numbers_for_quantities() {
    let text =
        with_container("resources:\n  limits: {cpu: 2, memory: 64000000}\n  requests: {cpu: 0.5}");
    check(&text, expect!["pod default/web-node-1"]);
    let decoded = decode(text.as_bytes()).unwrap();
    let resources = decoded.pods[0].spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
    assert_eq!(resources.limits.unwrap()["cpu"].0, "2");
    assert_eq!(resources.requests.unwrap()["cpu"].0, "0.5");
}

#[test]
fn reads_yaml_1_1_scalars_as_upstream() {
    let text = with_container(
        "tty: yes\nstdin: n\nports: [{containerPort: 0120}]\nargs: [\"y\", \"yes\", 1.0.0]",
    );
    let decoded = decode(text.as_bytes()).unwrap();
    let container = &decoded.pods[0].spec.as_ref().unwrap().containers[0];
    assert_eq!((container.tty, container.stdin), (Some(true), Some(false)));
    assert_eq!(container.ports.as_ref().unwrap()[0].container_port, 0o120);
    assert_eq!(container.args.as_deref().unwrap(), ["y", "yes", "1.0.0"]);
}

#[test]
fn survives_bombs() {
    // Half of what the smallest thread of the agent has.
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(bombs).unwrap();
    thread.join().unwrap();
}

fn bombs() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let item = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![item; 10].join(", "));
    }
    expect!["line 5, column 45: not valid YAML: budget breached: RecordedAnchorEvents { recorded_anchor_events: 100001 } at line 1, column 37 (defined at line 4, column 9) (used)"].assert_eq(&summary(bomb.as_bytes()));
    expect!["line 1, column 25: not valid YAML: recursion limit exceeded"]
        .assert_eq(&summary("[".repeat(100_000).as_bytes()));
    expect!["line 1, column 636: not valid JSON: recursion limit exceeded"]
        .assert_eq(&summary("{\"a\":".repeat(100_000).as_bytes()));
    let deep: String = (0..300).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    expect!["line 25, column 25: nested more than 24 levels deep"]
        .assert_eq(&summary(deep.as_bytes()));
    expect!["line 1, column 49: nested more than 24 levels deep"]
        .assert_eq(&summary("- ".repeat(100_000).as_bytes()));
    expect!["line 1, column 8: an alias contains itself"]
        .assert_eq(&summary("a: &a [*a]\n".as_bytes()));
    // As deep as JSON may be, where it is unknown and where it is free-form.
    let deep = format!("{}1{}", "{\"a\":".repeat(120), "}".repeat(120));
    for field in ["\"x\"", "\"metadata\":{\"managedFields\":[{\"fieldsV1\""] {
        let close = if field.contains('{') { "}]}" } else { "" };
        let text = format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",{field}:{deep}{close}}}");
        assert!(summary(text.as_bytes()).contains("metadata.name: missing"));
    }
    let long = with_container(&format!(
        "command: [{:?}]\nargs: {{a: {:?}}}",
        "x".repeat(1 << 20),
        "y".repeat(1 << 20)
    ));
    assert!(summary(long.as_bytes()).len() < 500);
}
