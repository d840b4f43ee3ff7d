//! Signing requests, from a node's first to the certificate that lets it in.

use std::time::Duration;

use apiserver::certificates::Issued;
use apiserver::{Settings, StaticToken, User};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::client::{Client, server};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(name: &str, key: &KeyPair) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:n1");
    let pem = params.serialize_request(key).unwrap().pem().unwrap();
    json!({"metadata": {"name": name}, "spec": {
        "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"], "expirationSeconds": 3600}})
}

/// Waits for the request to have a certificate or a condition of this type.
async fn settled(client: &mut Client, name: &str) -> Value {
    for _ in 0..500 {
        let (_, object) = client.get(&format!("{REQUESTS}/{name}")).await;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let failed = conditions.iter().any(|condition| condition["type"] == "Failed");
        if failed || object["status"]["certificate"].is_string() {
            return object;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody signed {name}");
}

fn issued(object: &Value, key: &KeyPair) -> Issued {
    let certificate = STANDARD.decode(object["status"]["certificate"].as_str().unwrap()).unwrap();
    let certificate = String::from_utf8(certificate).unwrap();
    Issued { certificate, key: key.serialize_pem() }
}

#[tokio::test]
async fn an_approved_request_becomes_a_certificate_that_lets_in() {
    let (server, mut admin) = server(Settings::default()).await;
    let key = KeyPair::generate().unwrap();
    let (code, mut made) = admin.post(REQUESTS, request("csr-1", &key)).await;
    assert_eq!((code, made["spec"]["username"].as_str()), (201, Some("admin")));
    made["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "ByHand"}]);
    // The status itself has no say in it.
    admin.put(&format!("{REQUESTS}/csr-1/status"), made.clone()).await;
    let (_, waiting) = admin.get(&format!("{REQUESTS}/csr-1")).await;
    assert!(waiting["status"]["conditions"].is_null(), "{waiting}");
    json_version(&mut made, &waiting);
    let (code, approved) = admin.put(&format!("{REQUESTS}/csr-1/approval"), made).await;
    assert_eq!(code, 200, "{approved}");
    let signed = settled(&mut admin, "csr-1").await;
    let own = issued(&signed, &key);
    let mut node = Client::connect(&server, Some(&own), true).await;
    let (_, me) = node.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await;
    assert_eq!(me["status"]["userInfo"]["username"], "system:node:n1");
    assert_eq!(me["status"]["userInfo"]["groups"], json!(["system:nodes", "system:authenticated"]));
}

fn json_version(object: &mut Value, from: &Value) {
    object["metadata"]["resourceVersion"] = from["metadata"]["resourceVersion"].clone();
}

#[tokio::test]
async fn a_node_bootstraps_itself_where_policy_lets_it() {
    let user = User::new("system:bootstrap:abc", ["system:bootstrappers"]);
    let tokens = vec![StaticToken { token: "boot".into(), user }];
    let settings = Settings { tokens, approves_nodes: true, ..Settings::default() };
    let (server, mut admin) = server(settings).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let approved = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    for role in ["system:node-bootstrapper", approved] {
        let binding = json!({"metadata": {"name": role},
            "subjects": [{"kind": "Group", "name": "system:bootstrappers"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
        assert_eq!(admin.post(&format!("{rbac}/clusterrolebindings"), binding).await.0, 201);
    }
    let key = KeyPair::generate().unwrap();
    let mut boot = Client::connect(&server, None, true).await.with_token("boot");
    assert_eq!(boot.post(REQUESTS, request("csr-1", &key)).await.0, 201);
    let signed = settled(&mut boot, "csr-1").await;
    assert_eq!(signed["status"]["conditions"][0]["reason"], "AutoApproved");
    let node = Client::connect(&server, Some(&issued(&signed, &key)), false).await;
    drop(node);
    let mut other = request("csr-2", &key);
    other["spec"]["usages"] = json!(["server auth"]);
    let (_, mut other) = admin.post(REQUESTS, other).await;
    other["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
    assert_eq!(admin.put(&format!("{REQUESTS}/csr-2/approval"), other).await.0, 200);
    let failed = settled(&mut admin, "csr-2").await;
    assert!(failed["status"]["certificate"].is_null());
}

#[tokio::test]
async fn a_verdict_needs_the_permission_of_the_signer() {
    let tokens = vec![StaticToken { token: "ann".into(), user: User::new("ann", []) }];
    let (server, mut admin) = server(Settings { tokens, ..Settings::default() }).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rule = |resource: &str, verb: &str| json!({"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": [verb]});
    let mut role = json!({"metadata": {"name": "judge"},
        "rules": [rule("certificatesigningrequests/approval", "update")]});
    assert_eq!(admin.post(&format!("{rbac}/clusterroles"), role.clone()).await.0, 201);
    let binding = json!({"metadata": {"name": "judge"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "judge"}});
    assert_eq!(admin.post(&format!("{rbac}/clusterrolebindings"), binding).await.0, 201);
    let key = KeyPair::generate().unwrap();
    let (_, mut made) = admin.post(REQUESTS, request("csr-1", &key)).await;
    made["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
    let approval = format!("{REQUESTS}/csr-1/approval");
    let mut ann = Client::connect(&server, None, true).await.with_token("ann");
    let (code, refused) = ann.put(&approval, made.clone()).await;
    assert_eq!(code, 403, "{refused}");
    let signer = rule("signers", "approve");
    role["rules"] = json!([role["rules"][0], signer]);
    assert_eq!(admin.put(&format!("{rbac}/clusterroles/judge"), role).await.0, 200);
    assert_eq!(ann.put(&approval, made).await.0, 200);
}
