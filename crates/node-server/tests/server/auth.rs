//! Who asks, and whether they may, with a real API server.

use std::sync::Arc;
use std::time::Duration;

use apiserver::{StaticToken, User};
use node_server::{AuthenticationOptions, AuthorizationOptions};
use serde_json::{Value, json};
use testkit::{ApiOptions, TestApi};

use super::world::{Counting, Setup, World, now, request, tell};

fn role(api: &TestApi, user: &str, resource: &str, verbs: &[&str]) {
    let name = format!("{user}-{}", resource.replace('/', "-"));
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    for object in [role, binding] {
        api.add("", object).unwrap();
    }
}

struct Cluster {
    _dir: tempfile::TempDir,
    api: TestApi,
    calls: Arc<Counting>,
}

fn cluster() -> Cluster {
    let dir = tempfile::tempdir().unwrap();
    let token = StaticToken { token: "s3cret".into(), user: User::new("reader", []) };
    let options = ApiOptions { tokens: vec![token], ..ApiOptions::default() };
    let api = TestApi::start(dir.path(), options).unwrap();
    role(&api, "reader", "nodes/pods", &["get"]);
    role(&api, "proxier", "nodes/proxy", &["get"]);
    let calls = Counting::new(&api.admin_kubeconfig().unwrap());
    Cluster { _dir: dir, api, calls }
}

fn delegating(cluster: &Cluster, anonymous: bool) -> Setup {
    let api: Arc<Counting> = Arc::clone(&cluster.calls);
    Setup {
        authentication: AuthenticationOptions {
            anonymous,
            webhook: Some(api.clone()),
            cache_ttl: Duration::from_secs(120),
        },
        authorization: AuthorizationOptions::Webhook {
            api,
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
        },
        ..Setup::default()
    }
}

#[tokio::test]
async fn certificates_name_users() {
    let cluster = cluster();
    let world = World::start(delegating(&cluster, false)).await;
    world.get("/pods").await.is(401, "Unauthorized");
    let reader = world.client("reader", "devs");
    world.ask(request("GET", "/pods", &[]), Some(&reader)).await.is(200, "{}");
    // The right to a part does not give the whole, and the whole gives the part.
    let told = world.ask(request("GET", "/configz", &[]), Some(&reader)).await;
    told.is(
        403,
        "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[configz proxy])\n",
    );
    let proxier = world.client("proxier", "devs");
    world.ask(request("GET", "/configz", &[]), Some(&proxier)).await.is(200, "{}");
    let told = world.ask(request("GET", "/metrics", &[]), Some(&proxier)).await;
    told.is(403, "Forbidden (user=proxier, verb=get, resource=nodes, subresource(s)=[metrics])\n");
    let told = world.ask(request("POST", "/run/default/web/app", &[]), Some(&proxier)).await;
    told.is(403, "Forbidden (user=proxier, verb=create, resource=nodes, subresource(s)=[proxy])\n");
    let master = world.client("root", "system:masters");
    world.ask(request("GET", "/metrics", &[]), Some(&master)).await.is(200, "up 1\n");
}

#[tokio::test]
async fn answers_of_the_api_server_are_remembered() {
    let cluster = cluster();
    let world = World::start(delegating(&cluster, false)).await;
    let token = [("authorization", "Bearer s3cret")];
    cluster.calls.take();
    for _ in 0..3 {
        world.ask(request("GET", "/pods", &token), None).await.is(200, "{}");
    }
    assert_eq!(cluster.calls.take(), 2, "one review of the token, one of the right");
    for _ in 0..3 {
        let told = world.ask(request("GET", "/configz", &token), None).await;
        assert_eq!(told.status, 403);
    }
    assert_eq!(cluster.calls.take(), 2, "two parts were asked for, once");
    // A token that is nobody's is a wrong one, not none.
    let wrong = [("authorization", "Bearer wrong")];
    world.ask(request("GET", "/pods", &wrong), None).await.is(401, "Unauthorized");
}

#[tokio::test]
async fn whoever_shows_nothing_is_nobody_and_whoever_lies_is_refused() {
    let cluster = cluster();
    role(&cluster.api, "system:anonymous", "nodes/healthz", &["get"]);
    let world = World::start(delegating(&cluster, true)).await;
    world.get("/healthz").await.is(200, "ok");
    let told = world.get("/pods").await;
    let why = "Forbidden (user=system:anonymous, verb=get, resource=nodes, \
               subresource(s)=[pods proxy])\n";
    told.is(403, why);
    let wrong = [("authorization", "Bearer wrong")];
    world.ask(request("GET", "/healthz", &wrong), None).await.is(401, "Unauthorized");
    // A certificate of somebody else's authority.
    let other = apiserver::certificates::Authority::generate("other", now()).unwrap();
    let stranger = other.client("root", Some("system:masters"), now()).unwrap();
    world.ask(request("GET", "/healthz", &[]), Some(&stranger)).await.is(401, "Unauthorized");
    // Beside a good token it does no harm.
    let token = [("authorization", "Bearer s3cret")];
    world.ask(request("GET", "/pods", &token), Some(&stranger)).await.is(200, "{}");
}

#[tokio::test]
async fn nobody_gets_in_because_the_api_server_is_silent() {
    let mut cluster = cluster();
    let world = World::start(delegating(&cluster, false)).await;
    let token = [("authorization", "Bearer s3cret")];
    world.ask(request("GET", "/pods", &token), None).await.is(200, "{}");
    cluster.api.pause().unwrap();
    // What it said before still counts.
    world.ask(request("GET", "/pods", &token), None).await.is(200, "{}");
    let reader = world.client("reader", "devs");
    let told = world.ask(request("GET", "/stats/summary", &[]), Some(&reader)).await;
    let why = "Authorization error (user=reader, verb=get, resource=nodes, subresource=stats)";
    told.is(500, why);
    let unknown = [("authorization", "Bearer unknown")];
    world.ask(request("GET", "/pods", &unknown), None).await.is(401, "Unauthorized");
}

#[tokio::test]
async fn another_bundle_counts_for_connections_that_are_open() {
    let world = World::start(Setup {
        authentication: AuthenticationOptions {
            anonymous: false,
            webhook: None,
            cache_ttl: Duration::ZERO,
        },
        ..Setup::default()
    })
    .await;
    let jane = world.client("jane", "devs");
    world.ask(request("GET", "/pods", &[]), Some(&jane)).await.is(200, "{}");
    let open = world.connect([127, 0, 0, 1].into(), Some(&jane)).await.unwrap();
    let other = apiserver::certificates::Authority::generate("other", now()).unwrap();
    world.tls.set_client_authority(Some(other.pem().as_bytes())).unwrap();
    assert!(world.tls.set_client_authority(Some(b"nothing")).is_err());
    // One of no use leaves the others; alone it is refused.
    let odd = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    assert!(world.tls.set_client_authority(Some(odd.as_bytes())).is_err());
    let both = format!("{odd}{}", other.pem());
    world.tls.set_client_authority(Some(both.as_bytes())).unwrap();
    tell(open, request("GET", "/pods", &[])).await.is(401, "Unauthorized");
    let joe = other.client("joe", None, now()).unwrap();
    world.ask(request("GET", "/pods", &[]), Some(&joe)).await.is(200, "{}");
    world.tls.set_client_authority(None).unwrap();
    world.ask(request("GET", "/pods", &[]), Some(&joe)).await.is(401, "Unauthorized");
}

#[tokio::test]
async fn streams_can_need_the_right_to_create() {
    let cluster = cluster();
    for (create_for_streams, status) in [(false, 400), (true, 403)] {
        let setup = Setup { create_for_streams, ..delegating(&cluster, false) };
        let world = World::start(setup).await;
        let proxier = world.client("proxier", "devs");
        let told = world.ask(request("GET", "/exec/default/web/app", &[]), Some(&proxier)).await;
        assert_eq!(told.status, status, "{}", told.body);
    }
}

#[tokio::test]
async fn reviews_say_all_there_is_to_say() {
    /// Remembers what it was asked and allows it.
    struct Asked(std::sync::Mutex<Vec<Value>>);
    #[async_trait::async_trait]
    impl api_client::Api for Asked {
        async fn call(&self, call: api_client::Call) -> Result<Value, api_client::ApiError> {
            self.0.lock().unwrap().push(call.body.unwrap().1);
            Ok(json!({"status": {"allowed": true}}))
        }
        async fn watch(
            &self,
            _: &str,
        ) -> Result<Box<dyn api_client::Watching>, api_client::ApiError> {
            Err(api_client::ApiError::Unusable("nothing to watch".into()))
        }
    }
    let api = Arc::new(Asked(std::sync::Mutex::default()));
    let authorization = AuthorizationOptions::Webhook {
        api: api.clone(),
        authorized_ttl: Duration::ZERO,
        unauthorized_ttl: Duration::ZERO,
    };
    let world = World::start(Setup { authorization, ..Setup::default() }).await;
    let jane = world.client("jane", "devs");
    world.ask(request("GET", "/stats/summary", &[]), Some(&jane)).await.is(200, "{}");
    let mut asked = api.0.lock().unwrap().remove(0);
    let id = asked["spec"]["extra"]["authentication.kubernetes.io/credential-id"][0].take();
    assert!(id.as_str().unwrap().starts_with("X509SHA256="));
    asked["spec"]["extra"].take();
    assert_eq!(
        asked["spec"],
        json!({"user": "jane", "groups": ["devs", "system:authenticated"], "extra": null,
            "resourceAttributes": {"verb": "get", "version": "v1", "resource": "nodes",
                "subresource": "stats", "name": "node"}})
    );
}

#[tokio::test]
async fn strangers_cannot_make_the_node_ask_for_ever() {
    let cluster = cluster();
    let world = World::start(delegating(&cluster, false)).await;
    let pods = |token: &str| {
        request("GET", "/pods", &[("authorization", format!("Bearer {token}").as_str())])
    };
    world.ask(pods("s3cret"), None).await.is(200, "{}");
    cluster.calls.take();
    let mut limited = 0;
    for n in 0..100 {
        let told = world.ask(pods(&format!("guess-{n}")), None).await;
        match told.status.as_u16() {
            401 => assert_eq!(limited, 0, "after the first refusal for want of patience"),
            429 => {
                assert_eq!(told.headers["retry-after"], "1");
                limited += 1;
            }
            other => panic!("{other}: {}", told.body),
        }
    }
    let asked = cluster.calls.take();
    // The allowance, and what grew back meanwhile.
    assert!((20..60).contains(&asked) && limited > 40, "{asked} questions, {limited} refused");
    // The same token again is a question less.
    world.ask(pods("guess-0"), None).await.is(401, "Unauthorized");
    // Who was known before stays known, and others come from elsewhere.
    world.ask(pods("s3cret"), None).await.is(200, "{}");
    let reader = world.client("reader", "devs");
    world.ask(request("GET", "/pods", &[]), Some(&reader)).await.is(200, "{}");
    let from = std::net::Ipv4Addr::new(127, 0, 7, 7).into();
    let elsewhere = world.connect(from, None).await.unwrap();
    tell(elsewhere, pods("s3cret")).await.is(200, "{}");
    let elsewhere = world.connect(from, None).await.unwrap();
    tell(elsewhere, pods("guess-new")).await.is(401, "Unauthorized");
}
