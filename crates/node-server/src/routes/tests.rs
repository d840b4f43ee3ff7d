//! Which request is for what: paths, verbs and subresources.

use proptest::prelude::*;

use super::*;

fn told(request: &str, handlers: &Handlers) -> String {
    let (method, path) = request.split_once(' ').unwrap();
    format!("{:?}", route(&method.parse().unwrap(), path, handlers))
}

#[test]
fn requests_find_their_handlers() {
    let names = |uid: &str, container: &str| {
        format!(r#"(Names {{ namespace: "n", pod: "p", uid: {uid}, container: "{container}" }})"#)
    };
    let plain = names("None", "c");
    let with_uid = names(r#"Some("u")"#, "c");
    for (request, wanted) in [
        ("GET /healthz", "Health"),
        ("POST /healthz", "Health"),
        ("GET /healthz/ping", r#"HealthOf("ping")"#),
        ("GET /healthz/", "Unknown"),
        ("GET /pods", "Page(Pods)"),
        ("GET /pods/", "Page(Pods)"),
        ("POST /pods", r#"NoMethod("GET")"#),
        ("GET /pods/x", "Nothing"),
        ("GET /runningpods/", "Page(RunningPods)"),
        ("GET /runningpods", "Slash"),
        ("GET /stats", "Slash"),
        ("GET /logs", "Slash"),
        ("GET /stats/summary", "Page(Summary { only_cpu_and_memory: false })"),
        ("DELETE /stats/summary", r#"NoMethod("GET, POST")"#),
        ("GET /stats/container", "Nothing"),
        ("GET /metrics", "Page(Metrics(Node))"),
        ("GET /metrics/cadvisor", "Page(Metrics(Cadvisor))"),
        ("GET /metrics/", "Unknown"),
        ("GET /configz", "Page(Configz)"),
        ("GET /statusz", "Page(Statusz)"),
        ("GET /flagz", "Page(Flagz)"),
        ("GET /spec/", "Unknown"),
        ("GET /", "Unknown"),
        ("GET /exec/n/p/c", &format!("Exec{plain}")),
        ("POST /exec/n/p/u/c", &format!("Exec{with_uid}")),
        ("PUT /exec/n/p/c", r#"NoMethod("GET, POST")"#),
        ("POST /exec/n/p", "Nothing"),
        ("POST /exec", "Nothing"),
        ("GET /attach/n/p/c", &format!("Attach{plain}")),
        ("POST /run/n/p/u/c", &format!("Run{with_uid}")),
        ("GET /run/n/p/c", r#"NoMethod("POST")"#),
        ("POST /portForward/n/p", &format!("PortForward{}", names("None", ""))),
        ("GET /portForward/n/p/u", &format!("PortForward{}", names(r#"Some("u")"#, ""))),
        ("GET /portForward/n/p/u/c", "Nothing"),
        ("GET /containerLogs/n/p/c", &format!("ContainerLogs{plain}")),
        ("GET /containerLogs/n/p/u/c", "Nothing"),
        ("POST /checkpoint/n/p/c", &format!("Checkpoint{plain}")),
        ("GET /logs/", r#"NodeLogs("")"#),
        ("GET /logs/a/b", r#"NodeLogs("a/b")"#),
        ("POST /logs/a", r#"NoMethod("GET")"#),
        ("GET /debug/pprof/heap", r#"Profile("heap")"#),
        ("GET /debug/pprof", "Slash"),
        ("GET /debug/other", "Unknown"),
        ("PUT /debug/flags/v", "Verbosity"),
    ] {
        assert_eq!(told(request, &Handlers::default()), wanted, "{request}");
    }
}

#[test]
fn handlers_can_be_switched_off() {
    let all = Handlers::default();
    let without_debugging = Handlers { debugging: false, ..all };
    for path in ["/run/n/p/c", "/exec/x", "/logs/", "/debug/pprof/", "/runningpods/"] {
        let told = told(&format!("GET {path}"), &without_debugging);
        assert_eq!(told, r#"Disabled("Debug endpoints are disabled.")"#, "{path}");
    }
    for path in ["/configz", "/statusz", "/flagz", "/checkpoint/n/p/c", "/debug/flags/v", "/other"]
    {
        assert_eq!(told(&format!("GET {path}"), &without_debugging), "Unknown", "{path}");
    }
    assert_eq!(told("GET /run", &without_debugging), "Slash");
    assert_eq!(told("GET /checkpoint", &without_debugging), "Unknown");
    assert_eq!(told("GET /pods", &without_debugging), "Page(Pods)");
    for (request, handlers, wanted) in [
        (
            "GET /logs/x",
            Handlers { system_log: false, ..all },
            "Disabled(\"logs endpoint is disabled.\")",
        ),
        (
            "GET /debug/pprof/x",
            Handlers { profiling: false, ..all },
            "Disabled(\"profiling endpoint is disabled.\")",
        ),
        (
            "GET /debug/flags/v",
            Handlers { debug_flags: false, ..all },
            "Disabled(\"flags endpoint is disabled.\")",
        ),
        ("POST /checkpoint/n/p/c", Handlers { checkpoint: false, ..all }, "Unknown"),
        ("GET /statusz", Handlers { statusz: false, ..all }, "Unknown"),
    ] {
        assert_eq!(told(request, &handlers), wanted, "{request}");
    }
}

/// Paths that are made of what handlers look for, and of what nobody looks for.
fn paths() -> impl Strategy<Value = String> {
    let known = "healthz|pods|metrics|cadvisor|slis|exec|attach|run|portForward|logs|stats|summary|\
                 configz|flagz|statusz|debug|pprof|flags|v|checkpoint|runningpods|containerLogs|n|p";
    let odd = r"\.|\.\.|%2e%2e|%2F|%252e||%00|%zz|%|[a-zA-Z]{1,3}| |é|\\|;|\*";
    let part = prop_oneof![4 => known, 1 => odd, 1 => "[ -~]{0,6}"];
    proptest::collection::vec(part, 0..7).prop_map(|parts| format!("/{}", parts.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    /// Rights are asked for the path that is routed: nobody gets at one handler with the
    /// right to another.
    #[test]
    fn every_handler_is_behind_its_own_right(raw in paths(), method in "GET|POST|PUT|DELETE") {
        let clean = match read(&raw) {
            Path::Clean(path) => path,
            Path::Moved(to) => {
                // It leads to a clean path, and never to another host.
                prop_assert!(to.starts_with('/') && !to.starts_with("//"), "{to}");
                prop_assert!(matches!(read(&to), Path::Clean(_)), "{to}");
                return Ok(());
            }
            Path::Bad => return Ok(()),
        };
        let rights = crate::auth::attributes(&clean);
        let wanted: &[&str] = match route(&method.parse().unwrap(), &clean, &Handlers::default()) {
            Route::Health | Route::HealthOf(_) => &["healthz", "proxy"],
            Route::Slis | Route::Page(Page::Metrics(_)) => &["metrics"],
            Route::Page(Page::Pods | Page::RunningPods) => &["pods", "proxy"],
            Route::Page(Page::Configz) => &["configz", "proxy"],
            Route::Page(Page::Statusz) => &["statusz"],
            Route::Page(Page::Flagz) => &["configz"],
            Route::Page(Page::Summary { .. }) => &["stats"],
            Route::NodeLogs(path) => {
                prop_assert!(path.split('/').all(|part| part != ".."), "{path}");
                &["log"]
            }
            Route::Checkpoint(_) => &["checkpoint"],
            Route::Exec(_)
            | Route::Attach(_)
            | Route::Run(_)
            | Route::PortForward(_)
            | Route::ContainerLogs(_)
            | Route::Profile(_)
            | Route::Verbosity => &["proxy"],
            Route::Disabled(_) | Route::Nothing | Route::NoMethod(_) => return Ok(()),
            Route::Slash | Route::Unknown => return Ok(()),
        };
        prop_assert_eq!(rights, wanted, "{}", clean);
    }

    #[test]
    fn no_query_makes_anything_panic(raw in r"([a-zA-Z]{0,8}(=[ -~é]{0,12})?[&;]?){0,6}") {
        let query = Query::read(&raw);
        let _ = (query.get("tail"), query.has("x"), query.all("command").count());
        let _ = crate::log_options::read(&query, true);
        let _ = query.with_form(&raw);
    }
}
