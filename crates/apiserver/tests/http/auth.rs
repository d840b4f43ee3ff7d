//! Who may do what, and tokens.

use apiserver::{Settings, StaticToken, User};
use serde_json::{Value, json};

use crate::client::{Client, PODS, pod, server};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[tokio::test]
async fn rbac_decides() {
    let user = User::new("ann", ["dev"]);
    let tokens = vec![StaticToken { token: "secret".into(), user }];
    let (server, mut admin) = server(Settings { tokens, ..Settings::default() }).await;
    let mut nobody = Client::connect(&server, None, true).await;
    let (code, refused) = nobody.get(PODS).await;
    assert_eq!((code, refused["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(
        refused["message"],
        r#"pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" in the namespace "default""#
    );
    assert_eq!(nobody.get("/version").await.0, 200);
    let mut stranger = Client::connect(&server, None, true).await.with_token("guess");
    assert_eq!(stranger.get("/version").await.0, 401);
    let mut ann = Client::connect(&server, None, true).await.with_token("secret");
    assert_eq!(ann.get(PODS).await.0, 403);
    let role = json!({"metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
    assert_eq!(admin.post(&format!("{RBAC}/namespaces/default/roles"), role).await.0, 201);
    let binding = json!({"metadata": {"name": "dev"}, "subjects": [{"kind": "Group", "name": "dev"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    let (code, made) =
        admin.post(&format!("{RBAC}/namespaces/default/rolebindings"), binding).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(ann.get(PODS).await.0, 200);
    assert_eq!(ann.get("/api/v1/pods").await.0, 403);
    let review = |verb: &str| {
        json!({"spec": {"user": "x", "groups": ["dev"],
        "resourceAttributes": {"namespace": "default", "verb": verb, "resource": "pods"}}})
    };
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (code, allowed) = admin.post(reviews, review("list")).await;
    assert_eq!((code, &allowed["status"]["allowed"]), (201, &json!(true)));
    let reason = allowed["status"]["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        r#"RBAC: allowed by RoleBinding "dev/default" of Role "reader" to Group "dev""#
    );
    let (_, denied) = admin.post(reviews, review("delete")).await;
    assert_eq!(denied["status"], json!({"allowed": false}));
    let itself = json!({"spec": {"resourceAttributes":
        {"namespace": "default", "verb": "list", "resource": "pods"}}});
    let (_, own) = ann.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", itself).await;
    assert_eq!(own["status"]["allowed"], true);
}

#[tokio::test]
async fn a_token_lives_as_long_as_its_pod() {
    let (server, mut admin) = server(Settings::default()).await;
    let (_, web) = admin.post(PODS, pod("web", "n1")).await;
    let request = json!({"spec": {"audiences": ["vault"], "expirationSeconds": 600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web",
            "uid": web["metadata"]["uid"]}}});
    let tokens = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let (code, issued) = admin.post(tokens, request).await;
    assert_eq!(code, 201, "{issued}");
    let token = issued["status"]["token"].as_str().unwrap().to_owned();
    let review = |audience: &str| json!({"spec": {"token": token, "audiences": [audience]}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, good) = admin.post(reviews, review("vault")).await;
    assert_eq!((code, &good["status"]["authenticated"]), (201, &json!(true)));
    assert_eq!(good["status"]["audiences"], json!(["vault"]));
    let user = &good["status"]["user"];
    assert_eq!(user["username"], "system:serviceaccount:default:default");
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["web"]));
    let (_, other) = admin.post(reviews, review("bank")).await;
    assert_ne!(other["status"]["authenticated"], true);
    let mut holder = Client::connect(&server, None, true).await.with_token(&token);
    assert_eq!(holder.get("/version").await.0, 401, "it is for another audience");
    let (_, plain) = admin.post(tokens, Value::Null).await;
    let plain = plain["status"]["token"].as_str().unwrap();
    let mut holder = Client::connect(&server, None, true).await.with_token(plain);
    assert_eq!(holder.get("/api").await.0, 200);
    admin.delete(&format!("{PODS}/web"), json!({"gracePeriodSeconds": 0})).await;
    let (_, gone) = admin.post(reviews, review("vault")).await;
    assert_eq!(gone["status"]["error"], "the pod that the token is bound to is gone");
    let short = json!({"spec": {"expirationSeconds": 5}});
    assert_eq!(admin.post(tokens, short).await.0, 422);
}

#[tokio::test]
async fn no_token_lasts_longer_than_the_server_lets_it() {
    let longest = jiff::SignedDuration::from_secs(30);
    let settings = Settings { token_lifetime_max: Some(longest), ..Settings::default() };
    let (_server, mut admin) = server(settings).await;
    let tokens = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let asked = json!({"spec": {"expirationSeconds": 600}});
    let before = jiff::Timestamp::now();
    let (code, issued) = admin.post(tokens, asked).await;
    assert_eq!((code, &issued["spec"]["expirationSeconds"]), (201, &json!(30)), "{issued}");
    let ends: jiff::Timestamp =
        issued["status"]["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    assert!(ends.duration_since(before) <= longest, "{issued}");
}

#[tokio::test]
async fn pods_are_given_a_token_where_the_server_is_told_so() {
    let settings = Settings { mounts_tokens: true, ..Settings::default() };
    let (_server, mut admin) = server(settings).await;
    let (code, made) = admin.post(PODS, pod("web", "n1")).await;
    assert_eq!(code, 201, "{made}");
    let (volume, mount) =
        (&made["spec"]["volumes"][0], &made["spec"]["containers"][0]["volumeMounts"][0]);
    assert_eq!(volume["name"], mount["name"]);
    assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["path"], "token");
    let mut stranger = pod("other", "n1");
    stranger["spec"]["serviceAccountName"] = "nobody".into();
    let (code, refused) = admin.post(PODS, stranger).await;
    assert_eq!((code, refused["reason"].as_str()), (403, Some("Forbidden")));
}
