//! Probes as manifests have them.

use serde_json::{Value, json};

use super::*;

fn read(probe: Value) -> Result<Question, String> {
    let container: Container = serde_json::from_value(json!({
        "name": "app",
        "ports": [{"name": "web", "containerPort": 8080}, {"containerPort": 9090}],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)"},
            {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    }))
    .unwrap();
    question(&serde_json::from_value(probe).unwrap(), &container, "pod_ns(uid)")
}

fn http_request(question: Result<Question, String>) -> HttpRequest {
    match question {
        Ok(Question::Http(request)) => request,
        other => panic!("not an HTTP probe: {other:?}"),
    }
}

#[test]
fn commands_see_only_literal_values() {
    let given = ["$(A)", "$(B)", "<$(FROM)>", "$(NONE)", "$$(A)", "$(A", "x$"];
    let read = read(json!({"exec": {"command": given}})).unwrap();
    let command = ["1", "$(A)", "<>", "$(NONE)", "$(A)", "$(A", "x$"].map(str::to_owned).to_vec();
    assert_eq!(read, Question::Exec { command });
}

#[test]
fn http_requests_carry_all_that_the_manifest_says() {
    let request = http_request(read(json!({"timeoutSeconds": 7, "httpGet": {
        "scheme": "HTTPS", "host": "h", "port": "web", "path": "/x?y",
        "httpHeaders": [{"name": "K", "value": "1"}, {"name": "K", "value": "2"}],
    }})));
    let header = |value: &str| ("K".to_owned(), value.to_owned());
    assert_eq!(
        request,
        HttpRequest {
            scheme: Scheme::Https,
            host: "h".to_owned(),
            port: 8080,
            path: "/x?y".to_owned(),
            headers: vec![header("1"), header("2")],
            user_agent: "kube-probe/1.36".to_owned(),
            timeout: Duration::from_secs(7),
        }
    );
    let plain = http_request(read(json!({"httpGet": {"port": 80}})));
    assert_eq!((plain.scheme, plain.host.as_str(), plain.port), (Scheme::Http, "", 80));
    assert_eq!(plain.timeout, Duration::from_secs(1));
}

#[test]
fn ports_by_number_name_or_quoted_number() {
    for (port, expected) in [
        (json!(9090), Ok(9090)),
        (json!("web"), Ok(8080)),
        (json!("81"), Ok(81)),
        (json!("none"), Err("port none not found")),
        (json!(0), Err("invalid port number: 0")),
        (json!("65536"), Err("invalid port number: 65536")),
    ] {
        let expected =
            expected.map(|port| Question::Tcp { host: String::new(), port }).map_err(str::to_owned);
        assert_eq!(read(json!({"tcpSocket": {"port": port}})), expected, "{port}");
    }
}

#[test]
fn grpc_asks_for_a_service_or_the_whole_server() {
    let question = |service: &str| Ok(Question::Grpc { port: 5, service: service.to_owned() });
    assert_eq!(read(json!({"grpc": {"port": 5, "service": "s"}})), question("s"));
    assert_eq!(read(json!({"grpc": {"port": 5}})), question(""));
}

#[test]
fn a_probe_that_asks_nothing_says_so() {
    assert_eq!(read(json!({})), Err("missing probe handler for pod_ns(uid):app".to_owned()));
}
