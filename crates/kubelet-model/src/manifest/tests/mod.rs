//! Manifests as tables: text in, pods or problems out.

mod defaults;
mod fuzz;
mod identity;
mod messages;
mod objects;
mod rules;
mod support;

use super::{Origin, Prepared, Problem, prepare};

/// A manifest that everything accepts.
const GOOD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: app
    image: registry.k8s.io/pause:3.10
";

fn file(path: &str) -> Origin {
    Origin::File(path.into())
}

fn prepare_text(text: &str) -> Result<Prepared, Vec<Problem>> {
    prepare(text.as_bytes(), "node-1", &file("/etc/kubernetes/manifests/web.yaml"))
}

/// Pods' full names, or problems, then warnings; one per line.
fn summary(bytes: &[u8]) -> String {
    let lines: Vec<String> = match prepare(bytes, "node-1", &file("/m/web.yaml")) {
        Ok(prepared) => {
            let name = |pod: &k8s_openapi::api::core::v1::Pod| {
                let meta = &pod.metadata;
                format!(
                    "pod {}/{}",
                    meta.namespace.as_deref().unwrap(),
                    meta.name.as_deref().unwrap()
                )
            };
            let warnings = prepared.warnings.iter().map(|warning| format!("warning: {warning}"));
            prepared.pods.iter().map(name).chain(warnings).collect()
        }
        Err(problems) => problems.iter().map(Problem::to_string).collect(),
    };
    lines.join("\n")
}

fn check(text: &str, expected: expect_test::Expect) {
    expected.assert_eq(&summary(text.as_bytes()));
}

/// `GOOD` with more fields below `spec`.
fn with_spec(extra: &str) -> String {
    let indented: String = extra.lines().map(|line| format!("  {line}\n")).collect();
    format!("{GOOD}{indented}")
}

/// `GOOD` with more fields in its container.
fn with_container(extra: &str) -> String {
    let indented: String = extra.lines().map(|line| format!("    {line}\n")).collect();
    format!("{GOOD}{indented}")
}
