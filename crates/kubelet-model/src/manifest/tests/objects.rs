//! Objects beside pods.

use expect_test::expect;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use super::super::{Origin, prepare};
use super::{check, file, prepare_text};
use crate::object::{ConfigObject, ObjectKind};

fn objects(text: &str) -> Vec<ConfigObject> {
    let prepared = prepare_text(text).expect("a good manifest");
    prepared.objects.iter().map(|object| ConfigObject::clone(object)).collect()
}

#[test]
fn values_are_text_or_bytes() {
    let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: conf, namespace: web}
  data: {app.conf: \"a=1\\n\", empty: null}
  binaryData: {logo: AAEC}
- apiVersion: v1
  kind: Secret
  metadata: {name: login}
  type: kubernetes.io/basic-auth
  data: {username: am9l, password: b2xk}
  stringData: {password: new}
";
    let found = objects(text);
    let [conf, login] = found.as_slice() else { panic!("two objects: {found:?}") };
    assert_eq!(conf.key.to_string(), "ConfigMap web/conf");
    assert_eq!(conf.value("app.conf"), Some(b"a=1\n".as_slice()));
    assert_eq!(conf.value("empty"), Some(b"".as_slice()));
    assert_eq!(
        (conf.value("logo"), conf.data.contains_key("logo")),
        (Some([0, 1, 2].as_slice()), false)
    );
    assert_eq!((login.key.kind, login.key.namespace.as_str()), (ObjectKind::Secret, "default"));
    assert_eq!(login.value("username"), Some(b"joe".as_slice()));
    assert_eq!(login.value("password"), Some(b"new".as_slice()), "stringData wins");
    assert_eq!(login.secret_type, "kubernetes.io/basic-auth");
}

#[test]
fn problems_name_the_key_and_never_the_value() {
    let text = "\
apiVersion: v1
kind: Secret
metadata: {name: A_b}
type: kubernetes.io/tls
data:
  tls.crt: not base64!
  ..up: YQ==
  number: 12345
  sub/path: YQ==
immutable: true
odd: s3cret
";
    check(
        text,
        expect![[r#"
            line 3, column 18: metadata.name: must be at most 253 lower-case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit
            line 6, column 12: data[tls.crt]: not valid base64; write plain text into stringData of a Secret, or data of a ConfigMap
            line 6, column 3: data[tls.key]: missing; a Secret of type "kubernetes.io/tls" has it
            line 7, column 9: data[..up]: must not start with '..'
            line 8, column 11: data.number: must be a string; put it in quotes
            line 9, column 13: data[sub/path]: a valid config key must consist of alphanumeric characters, '-', '_' or '.'"#]],
    );
}

#[test]
fn a_key_that_cannot_be_read_is_not_missing_too() {
    for (secret_type, data) in [
        ("kubernetes.io/dockerconfigjson", ".dockerconfigjson: not base64!"),
        ("kubernetes.io/ssh-auth", "ssh-privatekey: 12345"),
        ("kubernetes.io/basic-auth", "password: not base64!"),
    ] {
        let text = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\ntype: {secret_type}\ndata: {{{data}}}\n"
        );
        let problems = prepare_text(&text).expect_err("a key that cannot be read");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(!problems[0].message.contains("missing"), "{problems:?}");
    }
}

#[test]
fn faulty_text_is_not_quoted() {
    // What people write when they forget quotes, and what parsers like to quote.
    let values = [
        "!s3cret",
        "!s3cret x",
        "!!int s3cret",
        "!!float s3cret",
        "!!bool s3cret",
        "!!seq s3cret",
        "!!binary s3cret",
        "!!timestamp s3cret",
        "!include s3cret",
        "!<s3cret",
        "!s3cret!x y",
        "*s3cret",
        "&s3cret *s3cret",
        "@s3cret",
        "%s3cret",
        "`s3cret",
        "|s3cret",
        ">s3cret",
        "{s3cret",
        "[s3cret",
        "[s3cret}",
        "{s3cret: {a: b}, <<: s3cret}",
        "\"s3cret\\q\"",
        "\"s3cret",
        "'s3cret' x",
        "s3cret: x",
        "? s3cret",
        "- s3cret",
        "${s3cret}",
        "{? [s3cret] : x}",
        "{[s3cret]: x}",
        "{{s3cret: 1}: x}",
        "\"\\us3cret\"",
        "s3cret\n\t- x",
        "s3cret\n x: y",
    ];
    for value in values {
        for before in ["stringData:\n  password: ", "data:\n  ", "<<: ", "type: ", ""] {
            let text =
                format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{before}{value}\n");
            quotes_nothing(&text, "s3cret");
            let json =
                format!("{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"data\":{{\"k\":{value}");
            quotes_nothing(&json, "s3cret");
        }
    }
    // Passwords that look like numbers to YAML.
    for value in ["77e77777", "-77e77777", "7777777777777777777777777777777777777777777"] {
        for tag in ["", "!!float ", "!!int ", "!!bool ", "&a [*a, ", "[&a "] {
            let fields = format!("stringData: {{a: &b {tag}{value}, c: *b}}\n");
            let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{fields}");
            quotes_nothing(&text, "7777");
            let json =
                format!("{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"data\":{{\"k\":{value}}}}}");
            quotes_nothing(&json, "7777");
        }
    }
}

fn quotes_nothing(text: &str, value: &str) {
    let problems = match prepare_text(text) {
        Ok(prepared) => prepared.warnings,
        Err(problems) => problems,
    };
    for problem in problems {
        assert!(!problem.message.contains(value), "{problem}\n{text}");
    }
}

#[test]
fn what_is_ignored_is_told() {
    let text = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
immutable: true
stringData: {a: b}
";
    check(
        text,
        expect![[r#"
            warning: line 4, column 12: immutable: ignored: the object is what its manifest says
            warning: line 5, column 13: stringData: unknown field, ignored"#]],
    );
}

#[test]
fn an_object_has_a_mebibyte() {
    let with = |size: usize| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"c\"}},\"data\":{{\"k\":\"{}\"}}}}",
            "x".repeat(size)
        )
    };
    assert_eq!(objects(&with(1 << 20)).len(), 1);
    let problems = prepare_text(&with((1 << 20) + 1)).expect_err("too large");
    assert!(problems[0].message.contains("at most 1048576"), "{problems:?}");
}

#[test]
fn a_claim_names_its_volume_and_a_volume_its_driver() {
    let text = |volume: &str, claim: &str| {
        format!(
            "apiVersion: v1\nkind: List\nitems:\n\
             - {{apiVersion: v1, kind: PersistentVolume, metadata: {{name: pv}}, spec: {volume}}}\n\
             - {{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: c}}, spec: {claim}}}\n"
        )
    };
    let csi = "csi: {driver: d, volumeHandle: h}";
    let good = format!("{{accessModes: [ReadWriteOnce], {csi}}}");
    let claim = "{accessModes: [ReadWriteOnce], volumeName: pv}";
    let found = objects(&text(&good, claim));
    let keys: Vec<String> = found.iter().map(|object| object.key.to_string()).collect();
    assert_eq!(keys, ["PersistentVolume pv", "PersistentVolumeClaim default/c"]);
    let spec: PersistentVolumeSpec = found[0].spec().expect("a spec");
    assert_eq!(spec.csi.expect("a driver").volume_handle, "h");
    let once = "accessModes: [ReadWriteOnce]";
    for (volume, claim, wanted) in [
        (format!("{{{once}, rbd: {{image: i, monitors: [m]}}}}"), claim, "no other persistent"),
        (
            format!("{{{once}, volumeMode: Block, nfs: {{server: s, path: /p}}}}"),
            claim,
            "nfs has no devices",
        ),
        (format!("{{{once}, local: {{path: disk}}}}"), claim, "local.path: must be an absolute"),
        (format!("{{{once}, hostPath: {{path: /a/../b}}}}"), claim, "must not contain '..'"),
        (format!("{{{once}, local: {{path: /d}}, {csi}}}"), claim, "more than 1 volume type"),
        (format!("{{accessModes: [], {csi}}}"), claim, "at least 1 access mode"),
        (format!("{{accessModes: [Any], {csi}}}"), claim, "must be one of"),
        (format!("{{{once}, volumeMode: Tape, {csi}}}"), claim, "must be Filesystem or Block"),
        (format!("{{{once}, csi: {{driver: d, volumeHandle: ''}}}}"), claim, "csi.volumeHandle"),
        (format!("{{{once}, csi: {{driver: 7, volumeHandle: h}}}}"), claim, "invalid type"),
        (good, "{accessModes: [ReadWriteOnce]}", "nobody binds claims"),
    ] {
        let problems = prepare_text(&text(&volume, claim)).expect_err("refused");
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|problem| problem.contains(wanted)), "{volume} {claim}: {all:?}");
    }
}

#[test]
fn lists_hold_what_their_name_says() {
    let list = |kind: &str, item: &str| {
        format!("apiVersion: v1\nkind: {kind}\nitems:\n- metadata: {{name: c}}\n{item}")
    };
    assert_eq!(objects(&list("ConfigMapList", "")).len(), 1);
    assert_eq!(objects(&list("SecretList", "  stringData: {a: b}\n")).len(), 1);
    check(
        &list("SecretList", "  kind: Pod\n"),
        expect![[r#"line 5, column 9: items[0].kind: "Pod" has no place in a list of Secrets"#]],
    );
    check(
        &list("List", "  apiVersion: v1\n  kind: Service\n"),
        expect![[
            r#"line 6, column 9: items[0].kind: "Service" is not run here; only Pod, ConfigMap, Secret, PersistentVolume, PersistentVolumeClaim are"#
        ]],
    );
}

#[test]
fn an_object_keeps_its_uid_while_its_values_change() {
    let uid = |name: &str, value: &str, more: &str, origin: &Origin| {
        let text = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}{more}}}\nstringData: {{k: {value}}}"
        );
        let prepared = prepare(text.as_bytes(), "n1", origin).expect("a good manifest");
        prepared.objects[0].uid.clone()
    };
    let here = file("/manifests/a");
    let first = uid("s", "old", "", &here);
    assert_eq!((first.len(), &first), (32, &uid("s", "new", "", &here)));
    let others = [
        uid("t", "old", "", &here),
        uid("s", "old", ", namespace: other", &here),
        uid("s", "old", "", &file("/manifests/b")),
        uid("s", "old", "", &Origin::Url("http://x".into())),
    ];
    assert!(others.iter().all(|other| *other != first), "{first} {others:?}");
    assert_eq!(uid("s", "old", ", uid: mine", &here), "mine");
}
