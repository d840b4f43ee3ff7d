//! What probes send over HTTP and what they make of the answers, as a server sees it.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::https::HttpsServer;
use testkit::{Node, PodManifest};

const STAYS: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";

/// A request: when it came, and its head.
type Asked = (SystemTime, String);

/// A server on this host. Answers by path; takes down what it was asked.
#[derive(Clone)]
struct Server {
    port: u16,
    asked: Arc<Mutex<BTreeMap<String, Vec<Asked>>>>,
}

impl Server {
    /// `answer` is told the path and how often it was asked for before.
    fn start(answer: impl Fn(u16, &str, usize) -> String + Send + 'static) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
        let server = Self { port: listener.local_addr()?.port(), asked: Arc::default() };
        let own = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away early is none of the test's concern.
                let _ = own.serve(stream, &answer);
            }
        });
        Ok(server)
    }

    fn serve(
        &self,
        mut stream: TcpStream,
        answer: &impl Fn(u16, &str, usize) -> String,
    ) -> Result<()> {
        let (mut head, came) = (String::new(), SystemTime::now());
        let mut reader = BufReader::new(stream.try_clone()?);
        while !head.ends_with("\r\n\r\n") {
            ensure!(reader.read_line(&mut head)? > 0, "the request ends early");
        }
        let path = head.split(' ').nth(1).context("no path")?.to_owned();
        let mut asked = self.asked.lock().expect("nobody panics while holding it");
        let before = asked.entry(path.clone()).or_default();
        let text = answer(self.port, &path, before.len());
        before.push((came, head));
        drop(asked);
        Ok(stream.write_all(text.as_bytes())?)
    }

    fn asked(&self, path: &str) -> Vec<Asked> {
        let asked = self.asked.lock().expect("nobody panics while holding it");
        asked.get(path).cloned().unwrap_or_default()
    }

    /// A pod whose readiness is what this server says. `more` are further fields of the probe.
    fn pod(&self, name: &str, more: Value) -> PodManifest {
        let path = format!("/{name}");
        let mut probe = json!({
            "httpGet": {"host": "127.0.0.1", "port": self.port, "path": path},
            "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            match key.as_str() {
                "httpHeaders" => probe["httpGet"][key] = value.clone(),
                _ => probe[key] = value.clone(),
            }
        }
        PodManifest::script(name, STAYS).with("readinessProbe", probe)
    }
}

fn plain(status: &str, headers: &str, body: &str) -> String {
    let size = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {size}\r\n\r\n{body}")
}

fn wait_ready(node: &Node, name: &str) -> Result<()> {
    node.wait_pod(name, "to be ready", |pod| pod.is("Ready")).map(drop)
}

/// Headers of a request, with names in small letters.
fn headers(head: &str) -> BTreeMap<String, String> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect()
}

#[test]
fn headers_are_sent() -> Result<()> {
    let node = Node::start()?;
    let server = Server::start(|_, _, _| plain("200 OK", "", "fine"))?;
    let header = |name: &str, value: &str| json!({"name": name, "value": value});
    let named = json!({"httpHeaders": [
        header("Host", "shop.example.test"), header("X-Probe", "yes"),
        header("user-agent", "mine/1"), header("Accept", "text/plain"),
    ]});
    node.manifests.put_pod(&server.pod("bare", json!({})))?;
    node.manifests.put_pod(&server.pod("named", named))?;
    for name in ["bare", "named"] {
        wait_ready(&node, name)?;
    }
    let sent = |path: &str| -> Result<BTreeMap<String, String>> {
        let asked = server.asked(path);
        let (_, head) = asked.first().context("it was never asked")?;
        assert!(head.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{head}");
        Ok(headers(head))
    };
    let expected = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let host = format!("127.0.0.1:{}", server.port);
    let usual = [
        ("accept", "*/*"),
        ("connection", "close"),
        ("host", &host),
        ("user-agent", "kube-probe/1.36"),
    ];
    assert_eq!(sent("/bare")?, expected(&usual));
    let own = [
        ("accept", "text/plain"),
        ("connection", "close"),
        ("host", "shop.example.test"),
        ("user-agent", "mine/1"),
        ("x-probe", "yes"),
    ];
    assert_eq!(sent("/named")?, expected(&own));
    Ok(())
}

#[test]
fn redirects() -> Result<()> {
    let node = Node::start()?;
    let server = Server::start(|port, path, _| {
        let to =
            |place: &str, body: &str| plain("302 Found", &format!("Location: {place}\r\n"), body);
        match path {
            "/near" => to("/near-end", ""),
            "/named" => to(&format!("http://127.0.0.1:{port}/named-end"), ""),
            "/dead" => to("/dead-end", ""),
            "/circle" => to("/circle", ""),
            // The same server by another name is another host.
            "/far" => to(&format!("http://localhost:{port}/far-end"), "over there"),
            "/dead-end" => plain("404 Not Found", "", ""),
            _ => plain("200 OK", "", ""),
        }
    })?;
    let names = ["near", "named", "dead", "circle", "far"];
    for name in names {
        node.manifests.put_pod(&server.pod(name, json!({})))?;
    }
    for name in ["near", "named", "far"] {
        wait_ready(&node, name)?;
    }
    assert!(!server.asked("/near-end").is_empty() && !server.asked("/named-end").is_empty());
    // It is not followed, which is good enough and worth a word.
    assert_eq!(server.asked("/far-end"), []);
    let words = "Warning ProbeWarning default/far-n1 [main] Readiness probe warning: Probe terminated redirects, Response body: over there";
    node.wait_says(&["events", "far"], &[words])?;
    for (name, why) in [
        ("dead", "HTTP probe failed with statuscode: 404"),
        ("circle", "stopped after 10 redirects"),
    ] {
        node.wait_says(&["events", name], &["Unhealthy", "Readiness probe failed: ", why])?;
        assert!(!node.pod(name)?.is("Ready"), "{name}");
    }
    Ok(())
}

#[test]
fn thresholds_and_delays() -> Result<()> {
    let node = Node::start()?;
    let server = Server::start(|_, path, before| match (path, before) {
        ("/thrice", 2) => plain("500 Oh no", "", ""),
        // Not more than two failures in a row, and then nothing else.
        ("/patient", 1 | 3 | 4 | 6..) => plain("500 Oh no", "", ""),
        _ => plain("200 OK", "", ""),
    })?;
    node.manifests.put_pod(&server.pod("thrice", json!({"successThreshold": 3})))?;
    node.manifests.put_pod(&server.pod("later", json!({"initialDelaySeconds": 4})))?;
    node.manifests.put_pod(&server.pod("patient", json!({"failureThreshold": 3})))?;
    wait_ready(&node, "patient")?;
    // Two successes, one failure, three successes.
    wait_ready(&node, "thrice")?;
    let asked = server.asked("/thrice").len();
    assert!(asked >= 6, "three in a row cannot have come by question {asked}");

    wait_ready(&node, "later")?;
    let (first, _) = server.asked("/later").first().cloned().context("it was asked")?;
    let started = node.container_status("later", "main")?.started_at;
    let first = first.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    let waited = first.saturating_sub(u128::try_from(started)?) / 1_000_000;
    // Starts are told in whole seconds.
    assert!(waited >= 3_000, "it was asked {waited} ms after its start");

    // Questions 7, 8 and 9 are the first three failures in a row.
    node.wait_pod("patient", "to be found unwell", |pod| {
        !pod.is("Ready") && pod.phase == "Running"
    })?;
    let asked = server.asked("/patient").len();
    assert!(asked >= 9, "three in a row cannot have failed by question {asked}");
    assert_eq!(node.pod("patient")?.container("main")?.restarts, 0);
    Ok(())
}

/// A server that answers whatever it hears, and in plain HTTP.
fn unencrypted() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(plain("400 Bad Request", "", "").as_bytes());
        }
    });
    Ok(port)
}

#[test]
fn encrypted_requests_to_a_server_that_nobody_vouches_for() -> Result<()> {
    let node = Node::start()?;
    let (well, ill) = (HttpsServer::start("200 OK")?, HttpsServer::start("503 Not now")?);
    let put = |name: &str, port: u16| {
        let get = json!({"scheme": "HTTPS", "host": "127.0.0.1", "port": port, "path": "/up?a=b"});
        let probe = json!({
            "httpGet": get, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1,
        });
        node.manifests.put_pod(&PodManifest::script(name, STAYS).with("readinessProbe", probe))
    };
    put("well", well.port())?;
    put("ill", ill.port())?;
    put("plain", unencrypted()?)?;
    wait_ready(&node, "well")?;
    let head = well.asked().first().cloned().context("it was asked")?;
    assert!(head.starts_with("GET /up?a=b HTTP/1.1\r\n"), "{head}");
    assert!(headers(&head)["user-agent"].starts_with("kube-probe/"), "{head}");
    for (name, why) in [
        ("ill", "HTTP probe failed with statuscode: 503"),
        // Unlike a hook, a probe never falls back.
        ("plain", "http: server gave HTTP response to HTTPS client"),
    ] {
        node.wait_says(&["events", name], &["Unhealthy", "Readiness probe failed: ", why])?;
        assert!(!node.pod(name)?.is("Ready"), "{name}");
    }
    Ok(())
}

/// A server that accepts and never says a word.
fn silent() -> Result<u16> {
    // On every address: a probe over gRPC cannot name one.
    let listener = TcpListener::bind(("0.0.0.0", 0)).context("cannot listen")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    Ok(port)
}

/// A port whose queue of connections is full: whoever knocks hears nothing. It stays
/// so as long as what is returned is held.
fn full() -> Result<(u16, TcpListener, Vec<TcpStream>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
    rustix::net::listen(&listener, 0).context("cannot shorten the queue")?;
    let address = listener.local_addr()?;
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        held.push(stream);
        ensure!(held.len() < 10, "the queue does not fill");
    }
    Ok((address.port(), listener, held))
}

#[test]
fn servers_that_do_not_answer_in_time() -> Result<()> {
    let node = Node::start()?;
    let port = silent()?;
    let (full_port, _listener, _held) = full()?;
    let get = |scheme: &str| {
        json!({"httpGet":
        {"scheme": scheme, "host": "127.0.0.1", "port": port, "path": "/slow"}})
    };
    let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    let cases = [
        ("http", get("HTTP"), format!("Get \"http://127.0.0.1:{port}/slow\": {late}")),
        ("https", get("HTTPS"), format!("Get \"https://127.0.0.1:{port}/slow\": {late}")),
        (
            "tcp",
            json!({"tcpSocket": {"host": "127.0.0.1", "port": full_port}}),
            format!("dial tcp 127.0.0.1:{full_port}: i/o timeout"),
        ),
        (
            "grpc",
            json!({"grpc": {"port": port}}),
            format!(":{port}\" within 1s: context deadline exceeded"),
        ),
    ];
    for (name, handler, _) in &cases {
        let mut probe = handler.clone();
        probe["periodSeconds"] = json!(2);
        probe["timeoutSeconds"] = json!(1);
        probe["failureThreshold"] = json!(2);
        let mut pod = PodManifest::script(name, STAYS).with("livenessProbe", probe);
        if *name == "grpc" {
            // It has no host to name: on the host's network the server is the pod's own.
            pod = pod.spec("hostNetwork", json!(true));
        }
        node.manifests.put_pod(&pod)?;
    }
    for (name, _, why) in &cases {
        let told =
            format!("Liveness probe failed: {}", if *name == "grpc" { "timeout: " } else { why });
        node.wait_says(&["events", name], &["Unhealthy", &told, why])?;
        node.wait_pod(name, "to be started again", |pod| {
            pod.container("main").is_ok_and(|main| main.restarts >= 1)
        })?;
    }
    Ok(())
}
