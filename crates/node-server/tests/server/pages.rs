//! What is served that is no stream.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use node_server::Handlers;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::world::{Setup, World, beside, request};

#[tokio::test]
async fn pages_come_from_the_view() {
    let world = World::start(Setup::default()).await;
    for (path, asked) in [
        ("/pods", "Pods "),
        ("/pods/", "Pods "),
        ("/runningpods/", "RunningPods "),
        ("/configz", "Configz "),
        ("/statusz", "Statusz "),
        ("/stats/summary", "Summary { only_cpu_and_memory: false } "),
        ("/stats/summary?only_cpu_and_memory=true", "Summary { only_cpu_and_memory: true } "),
        (
            "/stats/summary?only_cpu_and_memory=true&only_cpu_and_memory=true",
            "Summary { only_cpu_and_memory: false } ",
        ),
    ] {
        let told = world.get(path).await;
        told.is(200, "{}");
        assert_eq!(told.headers["content-type"], "application/json", "{path}");
        assert_eq!(world.view.asked(), [asked], "{path}");
    }
    for (path, kind) in
        [("", "Node"), ("/cadvisor", "Cadvisor"), ("/probes", "Probes"), ("/resource", "Resource")]
    {
        let accept = [("accept", "application/openmetrics-text")];
        let told = world.ask(request("GET", &format!("/metrics{path}"), &accept), None).await;
        told.is(200, "up 1\n");
        let asked = format!("Metrics({kind}) application/openmetrics-text");
        assert_eq!(world.view.asked(), [asked]);
    }
    let mut form =
        request("POST", "/stats/summary", &[("content-type", "application/x-www-form-urlencoded")]);
    *form.body_mut() = Full::new(Bytes::from("only_cpu_and_memory=true"));
    world.ask(form, None).await.is(200, "{}");
    assert_eq!(world.view.asked(), ["Summary { only_cpu_and_memory: true } "]);
    world.get("/flagz").await.is(501, "flagz is not available on this node");
    world.get("/debug/pprof/heap").await.is(501, "profiling is not available on this node");
}

#[tokio::test]
async fn health_is_told_as_upstream_tells_it() {
    let world = World::start(Setup::default()).await;
    world.get("/healthz").await.is(200, "ok");
    world.get("/healthz/syncloop").await.is(200, "ok");
    world.get("/healthz/ping").await.is(200, "ok");
    world.get("/healthz/unknown").await.is(404, "404 page not found\n");
    let verbose = "[+]ping ok\n[+]log excluded: ok\n[+]syncloop ok\n\
                   warn: some health checks cannot be excluded: no matches for \"x\"\n\
                   healthz check passed\n";
    world.get("/healthz?verbose&exclude=log&exclude=x").await.is(200, verbose);
    *world.view.sick.lock().unwrap() = Some("syncloop");
    let failed = "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\n\
                  healthz check failed\n";
    world.get("/healthz").await.is(500, failed);
    world.get("/healthz?exclude=syncloop").await.is(200, "ok");
    world.get("/healthz/syncloop").await.is(500, "internal server error: it has a cold\n");
    // What was asked for as a whole was counted, unless it was left out.
    let told = world.get("/metrics/slis").await;
    assert_eq!(told.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        r#"kubernetes_healthcheck{name="syncloop",type="healthz"} 0"#,
        r#"kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 1"#,
        r#"kubernetes_healthchecks_total{name="syncloop",status="success",type="healthz"} 2"#,
        r#"kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 4"#,
        r#"kubernetes_healthchecks_total{name="log",status="success",type="healthz"} 3"#,
    ] {
        assert!(told.body.contains(&format!("{line}\n")), "{line} is not in\n{}", told.body);
    }
    let reset = world.ask(request("DELETE", "/metrics/slis", &[]), None).await;
    reset.is(200, "metrics reset\n");
    world.get("/metrics/slis").await.is(200, "");
}

#[tokio::test]
async fn requests_are_told_of_until_they_are_over() {
    let world = World::start(Setup::default()).await;
    world.get("/pods").await.is(200, "{}");
    assert_eq!(world.get("/made/up").await.status, 404);
    let kinds = |all: &std::sync::Mutex<Vec<node_server::RequestKind>>| {
        let all = all.lock().unwrap();
        all.iter().map(|kind| format!("{} {}", kind.method, kind.path)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&world.heard.begun), ["GET pods", "GET other"]);
    // An answer that is still being given.
    let mut stream = world.connect(Ipv4Addr::LOCALHOST.into(), None).await.unwrap();
    let follow = b"GET /containerLogs/default/web/app?follow=true HTTP/1.1\r\nhost: n\r\n\r\n";
    stream.write_all(follow).await.unwrap();
    let mut heard = vec![0; 12];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(kinds(&world.heard.begun).len(), 3);
    assert!(!kinds(&world.heard.over).contains(&"GET containerLogs".to_owned()));
    drop(stream);
    let over = async {
        while kinds(&world.heard.over).len() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), over).await.unwrap();
}

#[tokio::test]
async fn what_is_not_there_is_told_as_upstream_tells_it() {
    let world = World::start(Setup::default()).await;
    for path in ["/", "/spec/", "/metrics/", "/healthz/a/b", "/debug/other"] {
        world.get(path).await.is(404, "404 page not found\n");
    }
    for path in ["/pods/x", "/exec/a", "/stats/container"] {
        world.get(path).await.is(404, "404: Page Not Found");
    }
    let told = world.ask(request("POST", "/pods", &[]), None).await;
    told.is(405, "405: Method Not Allowed");
    assert_eq!(told.headers["allow"], "GET");
    let told = world.ask(request("GET", "/pods", &[("accept", "text/plain")]), None).await;
    assert_eq!(told.status, 406);
    for (path, location) in [
        ("/logs", "/logs/"),
        ("/runningpods?x=y", "/runningpods/?x=y"),
        ("//pods", "/pods"),
        ("/logs/../pods?a", "/pods?a"),
        ("/logs/%2e%2e/%2e%2e/etc/passwd", "/etc/passwd"),
    ] {
        let told = world.get(path).await;
        assert_eq!(
            (told.status.as_u16(), &told.headers["location"]),
            (301, &location.parse().unwrap())
        );
    }
    for path in ["/logs/%00", "/containerLogs/a/%ff/c", "/pods%zz"] {
        assert_eq!(world.get(path).await.status, 400, "{path}");
    }
    assert!(world.view.asked().is_empty());
}

#[tokio::test]
async fn handlers_that_are_off_say_so() {
    let off =
        Handlers { system_log: false, profiling: false, debug_flags: false, ..Handlers::default() };
    let world = World::start(Setup { handlers: off, ..Setup::default() }).await;
    world.get("/logs/").await.is(405, "logs endpoint is disabled.\n");
    world.get("/debug/pprof/").await.is(405, "profiling endpoint is disabled.\n");
    world.get("/debug/flags/v").await.is(405, "flags endpoint is disabled.\n");
    let off = Handlers { debugging: false, ..Handlers::default() };
    let world = World::start(Setup { handlers: off, ..Setup::default() }).await;
    world.get("/containerLogs/a/b/c").await.is(405, "Debug endpoints are disabled.\n");
    world.get("/configz").await.is(404, "404 page not found\n");
    world.get("/pods").await.is(200, "{}");
}

#[tokio::test]
async fn logs_of_containers() {
    let world = World::start(Setup::default()).await;
    let logs = "/containerLogs/default/web/app";
    world.get(&format!("{logs}?tailLines=5&timestamps=true")).await.is(200, "one\ntwo\n");
    let asked = world.view.asked().remove(0);
    assert!(asked.contains("timestamps: true") && asked.contains("tail_lines: Some(5)"), "{asked}");
    for (path, status, body) in [
        ("/containerLogs/default/none/app", 404, r#"pod "none" does not exist"#),
        ("/containerLogs/default/web/none", 404, r#"container "none" not found in pod "web""#),
        ("/containerLogs/default/web/..%2F..%2Fetc", 301, "Moved Permanently\n"),
        (&format!("{logs}?tailLines=x"), 400, r#"{"message": "Unable to decode query."}"#),
        (&format!("{logs}?limitBytes=0"), 422, r#"{"message": "Invalid request."}"#),
        (
            &format!("{logs}?previous=true"),
            400,
            r#"previous terminated container "app" in pod "web" not found"#,
        ),
    ] {
        world.get(path).await.is(status, body);
    }
}

#[tokio::test]
async fn a_log_that_is_followed_comes_as_it_grows() {
    let world = World::start(Setup::default()).await;
    let stream = world.connect(Ipv4Addr::LOCALHOST.into(), None).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let follow = "/containerLogs/default/web/app?follow=true";
    let work = async {
        let response = sender.send_request(request("GET", follow, &[])).await.unwrap();
        assert_eq!(response.headers()["transfer-encoding"], "chunked");
        let mut body = response.into_body();
        let mut said = Vec::new();
        while said.len() < 8 {
            said.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(said, b"one\ntwo\n");
        assert!(timeout(Duration::from_millis(100), body.frame()).await.is_err());
    };
    beside(work, connection).await;
}

#[tokio::test]
async fn commands_checkpoints_and_verbosity() {
    let world = World::start(Setup::default()).await;
    let post = async |path: &str| world.ask(request("POST", path, &[]), None).await;
    post("/run/default/web/app?cmd=ls%20-l%20%20a").await.is(200, "out");
    assert_eq!(world.view.asked(), [r#"run app ["ls", "-l", "", "a"]"#]);
    post("/run/default/none/app?cmd=ls").await.is(404, "pod does not exist");
    let saved = r#"{"items":["/var/lib/kubelet/checkpoints/x.tar"]}"#;
    post("/checkpoint/default/web/app").await.is(200, saved);
    post("/checkpoint/default/web/app?timeout=x&timeout=3").await.is(200, saved);
    assert_eq!(world.view.asked(), ["checkpoint app None", "checkpoint app Some(3)"]);
    let failed = "checkpointing of default/web/app failed (no CRIU)";
    post("/checkpoint/default/web/app?timeout=7").await.is(500, failed);
    post("/checkpoint/default/web/app?timeout=x")
        .await
        .is(404, "cannot parse value of timeout parameter");
    post("/checkpoint/default/web/none").await.is(404, "container none does not exist");
    post("/checkpoint/default/none/app").await.is(404, "pod does not exist");
    let mut put = request("PUT", "/debug/flags/v", &[]);
    *put.body_mut() = Full::new(Bytes::from("4"));
    world.ask(put, None).await.is(200, "successfully set klog.logging.verbosity to 4\n");
    world.get("/debug/flags/v").await.is(406, "unsupported http method\n");
    let mut huge: Request<_> = request("PUT", "/debug/flags/v", &[]);
    *huge.body_mut() = Full::new(Bytes::from(vec![b'4'; 100 << 10]));
    assert_eq!(world.ask(huge, None).await.status, 413);
}

#[tokio::test]
async fn logs_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("log");
    fs::create_dir_all(logs.join("pods")).unwrap();
    fs::write(logs.join("a <b>.log"), "0123456789").unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", logs.join("out.log")).unwrap();
    let world = World::start(Setup { log_dir: logs.clone(), ..Setup::default() }).await;
    let told = world.get("/logs/").await;
    let page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
                <a href=\"a%20%3Cb%3E.log\">a &lt;b&gt;.log</a>\n<a href=\"out.log\">out.log</a>\n\
                <a href=\"pods/\">pods/</a>\n</pre>\n";
    told.is(200, page);
    let told = world.get("/logs/a%20%3Cb%3E.log").await;
    told.is(200, "0123456789");
    assert_eq!(told.headers["content-length"], "10");
    let part = [("range", "bytes=-3")];
    let told = world.ask(request("GET", "/logs/a%20%3Cb%3E.log", &part), None).await;
    told.is(206, "789");
    assert_eq!(told.headers["content-range"], "bytes 7-9/10");
    assert_eq!(world.get("/logs/pods").await.headers["location"], "pods/");
    world.get("/logs/none").await.is(404, "404 page not found\n");
    world.get("/logs/out.log").await.is(403, "403 Forbidden\n");
    // Without the switch a query is no query.
    assert_eq!(world.get("/logs/?query=kubelet").await.status, 200);

    let handlers = Handlers { system_log_query: true, ..Handlers::default() };
    let world = World::start(Setup { log_dir: logs, handlers, ..Setup::default() }).await;
    world.get("/logs/?query=/a%20%3Cb%3E.log").await.is(200, "0123456789");
    world
        .get("/logs/?query=nobody-has-this")
        .await
        .is(200, "\nlog not found for nobody-has-this\n");
    world.get("/logs/x?query=a").await.is(406, "path not allowed in query mode\n");
    for query in ["../secret", "/../secret", "/out.log", "..%5Csecret"] {
        let told = world.get(&format!("/logs/?query={query}")).await;
        assert_eq!(told.status, 406, "{query}: {}", told.body);
    }
    assert_eq!(world.get("/logs/?query=").await.status, 400);
    world.get("/logs/a%20%3Cb%3E.log").await.is(200, "0123456789");
}
