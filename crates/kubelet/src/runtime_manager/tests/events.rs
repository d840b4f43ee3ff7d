//! Events of what happens to sandboxes and containers: reasons, kinds and words.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_model::{Action, ContainerId, ContainerName, EventType, Grace, StopReason};

use crate::ports::{HttpAnswer, HttpRequest, ProbeNet, Scheme};
use crate::runtime_manager::ActionError;
use crate::runtime_manager::testing::{Bench, pod, pod_with};

fn name() -> ContainerName {
    ContainerName::new("app")
}

async fn start(bench: &Bench, container: &str) -> Result<(), ActionError> {
    let container = format!(r#","imagePullPolicy":"IfNotPresent"{container}"#);
    let pod = pod_with("", &container, "");
    let mut executor = bench.executor(Some(&pod));
    executor.ensure_images(&name(), &|| {}).await?;
    executor.perform(&Action::StartContainer { name: name(), restart_count: Some(0) }).await
}

fn kinds(bench: &Bench) -> Vec<(EventType, &'static str)> {
    bench.recorder.all().iter().map(|event| (event.kind, event.reason)).collect()
}

#[tokio::test]
async fn a_sandbox_that_is_made_anew() {
    let bench = Bench::new(|_, _| {});
    let mut executor = bench.executor(Some(&pod("")));
    executor.perform(&Action::CreateSandbox { attempt: 0 }).await.unwrap();
    assert_eq!(bench.told(), [""; 0]);
    executor.perform(&Action::CreateSandbox { attempt: 1 }).await.unwrap();
    let text = "SandboxChanged: Pod sandbox changed, it will be killed and re-created.";
    assert_eq!(bench.told(), [text]);
    assert_eq!(kinds(&bench), [(EventType::Normal, "SandboxChanged")]);
}

#[tokio::test]
async fn a_sandbox_that_the_runtime_does_not_tell_of() {
    let bench = Bench::new(|_, _| {});
    bench.runtime.lock().fails.insert("PodSandboxStatus", "no socket".to_owned());
    start(&bench, "").await.unwrap_err();
    let text = "FailedPodSandBoxStatus: Unable to get pod sandbox status: \
                cannot reach the runtime: no socket";
    assert_eq!(bench.told()[1..], [text]);
    assert_eq!(kinds(&bench)[1..], [(EventType::Warning, "FailedPodSandBoxStatus")]);
}

#[tokio::test]
async fn name_resolution_that_is_not_what_was_asked_for() {
    let bench = Bench::new(|settings, _| settings.cluster_dns.clear());
    let mut executor = bench.executor(Some(&pod("")));
    executor.perform(&Action::CreateSandbox { attempt: 0 }).await.unwrap();
    let words = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                 \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
    let of_pod = format!("MissingClusterDNS: pod: \"web-node_ns(u1)\". {words}");
    assert_eq!(bench.told(), [format!("MissingClusterDNS: {words}"), of_pod]);
    assert_eq!(bench.recorder.node_lines(), [format!("Warning MissingClusterDNS: {words}")]);

    let bench = Bench::new(|_, _| {});
    let servers = r#""dnsConfig":{"nameservers":["10.0.0.1","10.0.0.2","10.0.0.3"]}"#;
    let mut executor = bench.executor(Some(&pod(servers)));
    executor.perform(&Action::CreateSandbox { attempt: 0 }).await.unwrap();
    let text = "DNSConfigForming: Nameserver limits were exceeded, some nameservers have been \
                omitted, the applied nameserver line is: 10.96.0.10 10.0.0.1 10.0.0.2";
    assert_eq!(bench.told(), [text]);
    assert_eq!(kinds(&bench), [(EventType::Warning, "DNSConfigForming")]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_after_the_start() {
    let bench = Bench::new(|_, _| {});
    bench.runtime.lock().exit_code = 3;
    let hook = r#","lifecycle":{"postStart":{"exec":{"command":["after","it"]}}}"#;
    let error = start(&bench, hook).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "container app did not start: PostStartHookError: command 'after it' exited with 3: "
    );
    let told = [
        "Created: Container created",
        "Started: Container started",
        "FailedPostStartHook: PostStartHook failed",
        "Killing: FailedPostStartHook",
    ];
    assert_eq!(bench.told()[1..], told);
    assert_eq!(kinds(&bench)[3], (EventType::Warning, "FailedPostStartHook"));
    let calls = bench.calls();
    assert_eq!(
        calls,
        ["CreateContainer", "StartContainer c1", "ExecSync after it", "StopContainer c1 30s"]
    );
}

#[tokio::test]
async fn a_hook_that_fails_before_the_stop() {
    let bench = Bench::new(|_, _| {});
    bench.runtime.lock().exit_code = 1;
    let hook = r#","lifecycle":{"preStop":{"exec":{"command":["before"]}}}"#;
    stop(&bench, hook, StopReason::PodTerminating).await;
    let told = ["Killing: Stopping container app", "FailedPreStopHook: PreStopHook failed"];
    assert_eq!(bench.told(), told);
    assert_eq!(
        kinds(&bench),
        [(EventType::Normal, "Killing"), (EventType::Warning, "FailedPreStopHook")]
    );
}

async fn stop(bench: &Bench, container: &str, why: StopReason) {
    let pod = pod_with("", container, "");
    let action = Action::StopContainer {
        id: ContainerId::new("c1"),
        name: name(),
        grace: Grace::from_secs(30),
        why,
        after: Vec::new(),
    };
    bench.executor(Some(&pod)).perform(&action).await.unwrap();
}

#[tokio::test]
async fn each_stop_is_told_in_upstreams_words() {
    for (why, text) in [
        (StopReason::PodTerminating, "Stopping container app"),
        (StopReason::SandboxChanged, "Stopping container app"),
        (StopReason::StateUnknown, "Stopping container app"),
        (StopReason::Superseded, "Stopping container app"),
        (StopReason::DefinitionChanged, "Container app definition changed, will be restarted"),
        (StopReason::LivenessFailed, "Container app failed liveness probe, will be restarted"),
        (StopReason::StartupFailed, "Container app failed startup probe, will be restarted"),
        (StopReason::Resized, "Container app resize requires restart"),
        (StopReason::PostStartFailed, "FailedPostStartHook"),
    ] {
        let bench = Bench::new(|_, _| {});
        stop(&bench, "", why).await;
        assert_eq!(bench.told(), [format!("Killing: {text}")]);
        assert_eq!(kinds(&bench), [(EventType::Normal, "Killing")]);
    }
}

/// A server that speaks plain HTTP only.
struct PlainServer;

#[async_trait]
impl ProbeNet for PlainServer {
    async fn http(&self, request: &HttpRequest) -> Result<HttpAnswer, String> {
        let secret = |(key, _): &(String, String)| key.eq_ignore_ascii_case("authorization");
        match request.scheme {
            Scheme::Https => Err("http: server gave HTTP response to HTTPS client".to_owned()),
            Scheme::Http if request.headers.iter().any(secret) => Err("a secret".to_owned()),
            Scheme::Http => {
                Ok(HttpAnswer { status: 500, body: vec![], body_error: None, location: None })
            }
        }
    }
    async fn tcp(&self, _: &str, _: u16, _: Duration) -> Result<(), String> {
        Err("unused".to_owned())
    }
    async fn grpc(&self, _: &str, _: u16, _: &str, _: Duration) -> Result<(), String> {
        Err("unused".to_owned())
    }
}

#[tokio::test]
async fn a_hook_that_falls_back_to_plain_http() {
    let bench = Bench::new(|_, ports| ports.probe_net = Arc::new(PlainServer));
    let hook = r#","ports":[{"name":"web","containerPort":8443}],"lifecycle":{"postStart":{"httpGet":
        {"scheme":"HTTPS","port":"web","httpHeaders":[{"name":"Authorization","value":"x"}]}}}"#;
    start(&bench, hook).await.unwrap();
    let text = "LifecycleHTTPFallback: request to HTTPS lifecycle hook 10.0.0.5:8443 got HTTP response, \
                retry with HTTP succeeded";
    assert_eq!(bench.told().last().unwrap(), text);
    assert_eq!(kinds(&bench).last(), Some(&(EventType::Warning, "LifecycleHTTPFallback")));
    assert_eq!(bench.means.hooks.http_fallbacks.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_given_up_is_counted() {
    let bench = Bench::new(|_, _| {});
    let hook = r#","lifecycle":{"postStart":{"sleep":{"seconds":5}}}"#;
    let cut_short = || bench.means.hooks.pauses_cut_short.get();
    start(&bench, hook).await.unwrap();
    assert_eq!(cut_short(), 0);
    tokio::time::timeout(Duration::from_secs(3), start(&bench, hook)).await.unwrap_err();
    assert_eq!(cut_short(), 1);
}
