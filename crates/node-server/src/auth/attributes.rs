//! What right a request needs. Pure.
//!
//! Upstream: pkg/kubelet/server/auth.go.

use hyper::Method;

/// Is a path this one, or below it?
fn below(path: &str, root: &str) -> bool {
    let rest = path.strip_prefix(root.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What is done, in the API's words; empty for methods that it has no word for.
/// `create_for_streams` is for whoever holds that a command in a container is more than
/// reading, even if a WebSocket must begin with GET.
pub(crate) fn verb(method: &Method, path: &str, create_for_streams: bool) -> &'static str {
    const STREAMS: [&str; 4] = ["/exec", "/attach", "/run", "/portForward"];
    match *method {
        Method::POST => "create",
        Method::GET if create_for_streams && STREAMS.iter().any(|root| below(path, root)) => {
            "create"
        }
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The parts of a node of which one must be allowed, in the order they are asked for.
pub(crate) fn attributes(path: &str) -> &'static [&'static str] {
    const ROOTS: [(&str, &[&str]); 10] = [
        ("/pods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/statusz", &["statusz"]),
        ("/flagz", &["configz"]),
    ];
    let found = ROOTS.iter().find(|(root, _)| below(path, root));
    found.map_or(&["proxy"], |(_, parts)| *parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_needs_its_right() {
        for (request, wanted) in [
            ("GET /healthz", "get healthz proxy"),
            ("GET /healthz/syncloop", "get healthz proxy"),
            ("GET /healthzx", "get proxy"),
            ("GET /pods", "get pods proxy"),
            ("GET /pods/", "get pods proxy"),
            ("GET /runningpods/", "get pods proxy"),
            ("GET /configz", "get configz proxy"),
            ("GET /flagz", "get configz"),
            ("GET /statusz", "get statusz"),
            ("GET /stats/summary", "get stats"),
            ("POST /stats/summary", "create stats"),
            ("GET /metrics", "get metrics"),
            ("GET /metrics/cadvisor", "get metrics"),
            ("GET /metrics/slis", "get metrics"),
            ("GET /logs/", "get log"),
            ("GET /logs/a/b", "get log"),
            ("GET /containerLogs/n/p/c", "get proxy"),
            ("POST /checkpoint/n/p/c", "create checkpoint"),
            ("GET /exec/n/p/c", "get proxy"),
            ("POST /exec/n/p/c", "create proxy"),
            ("GET /attach/n/p/c", "get proxy"),
            ("GET /portForward/n/p", "get proxy"),
            ("POST /run/n/p/c", "create proxy"),
            ("GET /debug/pprof/heap", "get proxy"),
            ("PUT /debug/flags/v", "update proxy"),
            ("DELETE /pods", "delete pods proxy"),
            ("PATCH /pods", "patch pods proxy"),
            ("HEAD /pods", " pods proxy"),
            ("OPTIONS /metrics", " metrics"),
        ] {
            let (method, path) = request.split_once(' ').unwrap();
            let verb = verb(&method.parse().unwrap(), path, false);
            assert_eq!(format!("{verb} {}", attributes(path).join(" ")), wanted, "{request}");
        }
    }

    #[test]
    fn streams_can_be_made_to_need_more() {
        for path in ["/exec/n/p/c", "/attach/n/p/c", "/run/n/p/c", "/portForward/n/p"] {
            assert_eq!(verb(&Method::GET, path, true), "create");
            assert_eq!(verb(&Method::GET, path, false), "get");
        }
        assert_eq!(verb(&Method::GET, "/containerLogs/n/p/c", true), "get");
    }
}
