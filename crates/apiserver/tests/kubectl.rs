//! Real kubectl against the server; `KUBECTL` names its binary, and without it
//! this says that it was skipped.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use apiserver::{ApiServer, Settings};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};

/// kubectl with a kubeconfig in a directory of its own.
struct Kubectl {
    binary: PathBuf,
    dir: tempfile::TempDir,
}

impl Kubectl {
    /// Runs a command line and returns what it printed, errors included.
    fn run(&self, line: &str) -> String {
        self.with_input(line, "")
    }

    fn with_input(&self, line: &str, input: &str) -> String {
        let mut child = Command::new(&self.binary)
            .args(line.split_whitespace())
            .env("KUBECONFIG", self.dir.path().join("config"))
            .env("HOME", self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap().trim().to_owned()
    }

    /// Runs a command line whose output must contain some words.
    fn expect(&self, line: &str, words: &str) {
        let output = self.run(line);
        assert!(output.contains(words), "kubectl {line} printed\n{output}\nand not {words:?}");
    }
}

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"nodeName": "n1", "containers": [{"name": "app", "image": "x:1"}]}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn kubectl_finds_what_it_looks_for() {
    let Some(binary) = std::env::var_os("KUBECTL").filter(|path| !path.is_empty()) else {
        eprintln!("SKIPPED kubectl_finds_what_it_looks_for: set KUBECTL to the path of a kubectl");
        return;
    };
    let server = ApiServer::start(Settings::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config"), server.admin_kubeconfig().unwrap()).unwrap();
    let kubectl = Kubectl { binary: binary.into(), dir };
    tokio::task::spawn_blocking(move || {
        reads_and_writes(&kubectl);
        patches(&kubectl);
        asks(&kubectl);
        certificates(&kubectl);
        ends(&kubectl);
    })
    .await
    .unwrap();
    server.stop().await;
}

fn reads_and_writes(kubectl: &Kubectl) {
    kubectl.expect("version", "Server Version: v1.36");
    kubectl.expect("get namespaces", "kube-node-lease");
    kubectl.expect("api-resources", "certificatesigningrequests");
    assert_eq!(kubectl.with_input("create -f -", POD), "pod/web created");
    kubectl.expect("get pods -o wide", "web    0/1     Pending");
    kubectl.expect("get pods -l app=web,!x --field-selector spec.nodeName=n1", "web");
    kubectl.expect("describe pod web", "QoS Class:");
    let misspelt = POD.replace("image", "imagee").replace("web", "bad");
    let refused = kubectl.with_input("create -f -", &misspelt);
    assert!(refused.contains(r#"unknown field "spec.containers[0].imagee""#), "{refused}");
    kubectl.expect("create configmap settings --from-literal=a=b", "configmap/settings created");
    kubectl.expect("create namespace x", "namespace/x created");
    kubectl.expect("get serviceaccounts,configmaps -n x", "kube-root-ca.crt");
    kubectl.expect("delete namespace x", r#"namespace "x" deleted"#);
}

fn patches(kubectl: &Kubectl) {
    let applied = POD.replace(r#""app": "web""#, r#""app": "web", "y": "z""#);
    let output = kubectl.with_input("apply -f -", &applied);
    assert!(output.contains("pod/web configured"), "{output}");
    kubectl.expect("get pod web --show-labels", "app=web,y=z");
    kubectl.expect("label pod web a=b", "pod/web labeled");
    let strategic = r#"patch pod web -p {"spec":{"containers":[{"name":"app","image":"x:2"}]}}"#;
    kubectl.expect(strategic, "pod/web patched");
    kubectl
        .expect(r#"patch pod web --type=merge -p {"metadata":{"labels":{"a":null}}}"#, "patched");
    let json = r#"patch pod web --type=json -p [{"op":"remove","path":"/metadata/labels/y"}]"#;
    kubectl.expect(json, "patched");
    kubectl.expect("get pod web -o jsonpath={.metadata.labels}{.spec.containers[*].image}", "x:2");
    kubectl.expect(r#"patch pod web -p {"spec":{"hostname":"h"}}"#, "pod updates may not change");
    let status =
        r#"patch pod web --subresource=status --type=merge -p {"status":{"phase":"Running"}}"#;
    kubectl.expect(status, "patched");
    kubectl.expect("wait pod/web --for=jsonpath={.status.phase}=Running --timeout=5s", "met");
}

fn asks(kubectl: &Kubectl) {
    assert_eq!(kubectl.run("auth can-i delete pods"), "yes");
    assert_eq!(kubectl.run("auth can-i delete pods --as ann"), "no");
    kubectl.expect("create clusterrole reader --verb=list --resource=pods", "created");
    kubectl.expect("create clusterrolebinding r --clusterrole=reader --user=ann", "created");
    assert_eq!(kubectl.run("auth can-i list pods --as ann"), "yes");
    kubectl.expect("delete pod web --as ann", r#"User "ann" cannot delete resource "pods""#);
    let token = kubectl.run("create token default");
    assert_eq!(token.split('.').count(), 3, "{token}");
    kubectl.expect("create token nobody", r#"serviceaccounts "nobody" not found"#);
}

fn certificates(kubectl: &Kubectl) {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, "ann");
    let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
    let request = STANDARD.encode(request.pem().unwrap());
    let object = format!(
        r#"{{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {{"name": "ann"}}, "spec": {{"request": "{request}",
        "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}}}}"#
    );
    let output = kubectl.with_input("create -f -", &object);
    assert!(output.contains("created"), "{output}");
    kubectl.expect("get csr ann", "Pending");
    kubectl.expect("certificate approve ann", "approved");
    kubectl.expect("wait csr/ann --for=jsonpath={.status.certificate} --timeout=10s", "met");
    kubectl.expect("get csr ann", "Approved,Issued");
}

fn ends(kubectl: &Kubectl) {
    kubectl.expect("delete pod web --wait=false", r#"pod "web" deleted"#);
    kubectl.expect("get pods", "Terminating");
    kubectl.expect("delete pod web --grace-period=0 --force", r#"pod "web" force deleted"#);
    kubectl.expect("get pods", "No resources found");
}
