//! Policies, limits and the resolver file, as tables.

use super::*;
use crate::runtime_manager::testing::pod;

const HOST: &str = "nameserver 192.0.2.1\nsearch example.com\noptions attempts:2\n";

fn settings() -> Settings {
    Settings {
        cluster_dns: vec!["10.96.0.10".to_owned()],
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: Some("/etc/resolv.conf".into()),
        node_ips: vec!["192.0.2.7".to_owned(), "fd00::7".to_owned()],
        ..Settings::for_node("n")
    }
}

fn show(config: &v1::DnsConfig) -> String {
    let join = |list: &[String]| list.join(" ");
    format!("{} | {} | {}", join(&config.servers), join(&config.searches), join(&config.options))
}

fn check(spec: &str, settings: &Settings, expected: &str) -> Vec<Notice> {
    let host = parse(HOST).expect("a good file");
    let (config, notices) = of_pod(&pod(spec), settings, host);
    assert_eq!(show(&config), expected, "{spec}");
    notices
}

#[test]
fn policies() {
    let settings = settings();
    let cluster =
        "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.com | ndots:5";
    let host = "192.0.2.1 | example.com | attempts:2";
    for (spec, expected) in [
        ("", cluster),
        (r#""dnsPolicy":"ClusterFirst","hostNetwork":true"#, host),
        (r#""dnsPolicy":"ClusterFirstWithHostNet","hostNetwork":true"#, cluster),
        (r#""dnsPolicy":"Default""#, host),
        (r#""dnsPolicy":"None","dnsConfig":{"nameservers":["1.1.1.1"]}"#, "1.1.1.1 |  | "),
        (
            r#""dnsPolicy":"Default","dnsConfig":{"nameservers":["192.0.2.1","1.1.1.1"],"searches":["example.com","a.b"],"options":[{"name":"attempts","value":"5"},{"name":"edns0"}]}"#,
            "192.0.2.1 1.1.1.1 | example.com a.b | attempts:5 edns0",
        ),
    ] {
        assert_eq!(check(spec, &settings, expected), [], "{spec}");
    }
}

#[test]
fn without_a_cluster_the_node_answers() {
    let none = Settings { cluster_dns: Vec::new(), ..settings() };
    let host = "192.0.2.1 | example.com | attempts:2";
    assert_eq!(check("", &none, host), [Notice::MissingClusterDns]);
    assert_eq!(check(r#""dnsPolicy":"Default""#, &none, host), []);
    let domainless = Settings { cluster_domain: String::new(), ..settings() };
    check("", &domainless, "10.96.0.10 | example.com | ndots:5");
}

#[test]
fn without_a_resolver_file_lookups_end_at_home() {
    let settings = Settings { resolv_conf: None, ..settings() };
    let (config, _) = of_pod(&pod(r#""dnsPolicy":"Default""#), &settings, v1::DnsConfig::default());
    assert_eq!(show(&config), "127.0.0.1 ::1 | . | ");
    let settings = Settings { node_ips: Vec::new(), ..settings };
    let (config, _) = of_pod(&pod(r#""dnsPolicy":"Default""#), &settings, v1::DnsConfig::default());
    assert_eq!(show(&config), "127.0.0.1 | . | ");
}

#[test]
fn what_does_not_fit_is_cut_and_told() {
    let host = |searches: Vec<String>| v1::DnsConfig {
        servers: (1..=4).map(|n| format!("192.0.2.{n}")).collect(),
        searches,
        options: Vec::new(),
    };
    let default = pod(r#""dnsPolicy":"Default""#);
    let (config, notices) =
        of_pod(&default, &settings(), host((0..40).map(|n| format!("d{n}")).collect()));
    assert_eq!((config.servers.len(), config.searches.len()), (3, 32));
    assert_eq!(notices.len(), 2);
    let (config, notices) =
        of_pod(&default, &settings(), host(vec!["x".repeat(254), "ok".to_owned()]));
    assert_eq!(config.searches, ["ok"]);
    let text = format!("{notices:?}");
    assert!(text.contains("the applied search line is: ok"), "{text}");
    assert!(text.contains("line is: 192.0.2.1 192.0.2.2 192.0.2.3"), "{text}");
    // 10 × 205 − 1 separators = 2,049 characters: one too many.
    let mut searches = vec!["y".repeat(204); 10];
    let (config, _) = of_pod(&default, &settings(), host(searches.clone()));
    assert_eq!(config.searches.len(), 9);
    searches[9].pop();
    let (config, _) = of_pod(&default, &settings(), host(searches));
    assert_eq!(config.searches.len(), 10);
}

#[test]
fn resolver_files() {
    for (text, expected) in [
        ("", " |  | "),
        ("# nameserver 1.1.1.1\n  \n\tnameserver 1.1.1.1 rest\n", "1.1.1.1 |  | "),
        ("nameserver a\nnameserver b\n", "a b |  | "),
        ("search a.b. .\nsearch c. d\n", " | c d | "),
        ("options ndots:1 edns0\noptions ndots:3\n", " |  | ndots:3 edns0"),
        ("sortlist x\nsearch\n", " |  | "),
    ] {
        assert_eq!(show(&parse(text).expect("a good file")), expected, "{text:?}");
    }
    assert!(parse("nameserver\n").is_err());
}
