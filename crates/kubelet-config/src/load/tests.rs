//! The whole path from arguments and files to an outcome, on a disk held in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::*;

/// Files by absolute path.
#[derive(Default)]
struct Memory(BTreeMap<PathBuf, Vec<u8>>);

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn walk(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.0.keys().filter(|path| path.starts_with(directory)).cloned().collect())
    }
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(crate::layers::clean(&Path::new("/here").join(path)))
    }
}

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// What every file of a node without API server has to say.
const STANDALONE: &str =
    "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n";

fn run(args: &str, files: &[(&str, &str)]) -> Outcome {
    let files = files.iter().map(|(path, text)| {
        let text = match text.strip_prefix('!') {
            Some(whole) => whole.to_owned(),
            None if path.starts_with("/here") => format!("{HEAD}{STANDALONE}{text}"),
            None => format!("{HEAD}{text}"),
        };
        (PathBuf::from(path), text.into_bytes())
    });
    let host = Host { cgroup_v2: true, online_cpus: None };
    let args = args.split_whitespace().map(OsString::from);
    load(args, &Memory(files.collect()), &host).unwrap()
}

fn shown(outcome: &Outcome, path: &str) -> String {
    let path = FieldPath::dotted(path);
    let value = path.get(&outcome.effective).cloned().unwrap_or(Value::Null);
    format!("{value} from {}", outcome.provenance.origin(&path).unwrap_or(&Origin::Default))
}

fn problems(outcome: &Outcome) -> String {
    outcome.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn nothing_given_is_the_permissive_baseline() {
    let outcome = run("", &[]);
    assert_eq!(problems(&outcome), "");
    assert_eq!(shown(&outcome, "readOnlyPort"), "10255 from default without --config");
    let config = outcome.config.unwrap();
    assert_eq!(config.server.read_only, "0.0.0.0:10255".parse().ok());
    assert_eq!(config.server.healthz, "127.0.0.1:10248".parse().ok());
    assert_eq!(config.runtime.image_endpoint, config.runtime.endpoint);
    assert_eq!(outcome.unconsumed, []);
}

#[test]
fn each_layer_overrides_the_one_before() {
    let files = [
        ("/here/k.yaml", "maxPods: 1\nport: 1\neventBurst: 1\npodsPerCore: 1\n"),
        ("/d/10.conf", "port: 2\neventBurst: 2\npodsPerCore: 2\n"),
        ("/d/20.conf", "eventBurst: 3\npodsPerCore: 3\n"),
        ("/d/30.txt", "eventBurst: 9\n"),
    ];
    let outcome = run("--config=k.yaml --config-dir=/d --pods-per-core=4", &files);
    assert_eq!(problems(&outcome), "");
    assert_eq!(shown(&outcome, "maxPods"), "1 from /here/k.yaml");
    assert_eq!(shown(&outcome, "port"), "2 from drop-in /d/10.conf");
    assert_eq!(shown(&outcome, "eventBurst"), "3 from drop-in /d/20.conf");
    assert_eq!(shown(&outcome, "podsPerCore"), "4 from --pods-per-core");
    assert_eq!(shown(&outcome, "readOnlyPort"), "0 from default");
    assert!(outcome.warnings.contains(&Warning::SkippedFile("/d/30.txt".into())));
}

#[test]
fn drop_ins_alone_keep_the_permissive_baseline() {
    let outcome = run("--config-dir=/d", &[("/d/1.conf", "maxPods: 5\n")]);
    assert_eq!(
        shown(&outcome, "authorization.mode"),
        "\"AlwaysAllow\" from default without --config"
    );
    assert_eq!(outcome.effective.get("evictionHard"), None);
}

#[test]
fn a_flag_may_set_zero_where_a_file_cannot() {
    let outcome = run("--sync-frequency=0", &[]);
    assert_eq!(
        problems(&outcome),
        "syncFrequency is 0s (set by --sync-frequency): must be longer than zero"
    );
}

#[test]
fn files_that_cannot_be_used_are_problems_beside_others() {
    let files = [
        ("/here/bad.yaml", "!maxPods: 1\n"),
        ("/d/1.conf", "!"),
        ("/d/2.conf", "maxPods: a\n"),
        ("/d/3.conf", "maxPods: 1\nmaxPods: 2\n"),
        ("/d/4.conf", "!apiVersion: v1\nkind: KubeletConfiguration\n"),
    ];
    let outcome = run("--config=bad.yaml --config-dir=/d --port=x --max-pods=-1", &files);
    let all = problems(&outcome);
    for needle in [
        "--config /here/bad.yaml: apiVersion is missing",
        "drop-in /d/1.conf: the file is empty",
        "drop-in /d/2.conf: field maxPods",
        "drop-in /d/3.conf: a key is written twice",
        "drop-in /d/4.conf: apiVersion is \"v1\"",
        "--port: \"x\" is not a whole number",
        "maxPods is -1 (set by --max-pods): must be 0 or more",
    ] {
        assert!(all.contains(needle), "{needle:?} is missing from:\n{all}");
    }
    assert!(outcome.config.is_none());
    assert!(problems(&run("--config=none.yaml", &[])).contains("cannot be read"));
}

#[test]
fn without_its_file_defaults_are_not_complained_about() {
    let host = Host { cgroup_v2: false, online_cpus: None };
    let outcome = load(["--config=none".into()], &Memory::default(), &host).unwrap();
    assert_eq!(outcome.problems.len(), 1, "{:?}", outcome.problems);
}

#[test]
fn unknown_and_doubled_fields_only_warn() {
    let outcome = run("--config=k", &[("/here/k", "maxPods: 1\nmaxPods: 2\nmaxPodz: 3\n")]);
    assert_eq!(problems(&outcome), "");
    let warnings: Vec<String> = outcome.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings.iter().any(|w| w.contains("maxPodz in /here/k is not a field")),
        "{warnings:?}"
    );
    assert!(warnings.iter().any(|w| w.contains("writes a key twice")), "{warnings:?}");
}

#[test]
fn what_is_set_without_a_consumer_is_listed_with_its_origin() {
    let files = [(
        "/here/k",
        "hairpinMode: none\nstaticPodPath: /pods\nevictionHard:\n  pid.available: 5%\n",
    )];
    let outcome =
        run("--config=k --node-ip=1.2.3.4 --maximum-dead-containers=7 --root-dir=/r", &files);
    let listed: Vec<String> =
        outcome.unconsumed.iter().map(|u| format!("{} by {}", u.path, u.origin)).collect();
    assert_eq!(
        listed,
        [
            "hairpinMode by /here/k",
            "evictionHard by /here/k",
            "--maximum-dead-containers by --maximum-dead-containers"
        ]
    );
}

#[test]
fn a_gate_without_a_consumer_is_listed_when_it_was_changed() {
    let files = [(
        "/here/k",
        "featureGates: {MemoryQoS: true, ContainerRestartRules: true, EventedPLEG: false}\n",
    )];
    let listed = |line: &str| -> Vec<String> {
        let unconsumed = run(line, &files).unconsumed;
        unconsumed.iter().map(|u| format!("{} by {}", u.path, u.origin)).collect()
    };
    assert_eq!(listed("--config=k"), ["featureGates.MemoryQoS by /here/k"]);
    assert_eq!(
        listed("--config=k --feature-gates=EventedPLEG=true,ContainerRestartRules=false"),
        [
            "featureGates.ContainerRestartRules by --feature-gates",
            "featureGates.MemoryQoS by /here/k"
        ]
    );
    assert_eq!(listed("--feature-gates=KubeletCrashLoopBackOffMax=false"), Vec::<String>::new());
}

#[test]
fn secrets_are_masked_but_reach_the_agent() {
    let line = "--manifest-url=http://u:hunter2@x --manifest-url-header=Authorization:hunter2";
    let outcome = run(line, &[]);
    assert!(!outcome.effective.to_string().contains("hunter2"));
    assert!(outcome.effective.to_string().contains("http://***@x"));
    assert!(!format!("{:?}", outcome.provenance).contains("hunter2"));
    assert!(outcome.effective.to_string().contains("<masked>"));
    let config = outcome.config.unwrap();
    assert_eq!(config.pod_sources.static_pod_url_header["Authorization"], ["hunter2"]);
    assert_eq!(config.pod_sources.static_pod_url.as_deref(), Some("http://u:hunter2@x"));
    assert!(!format!("{:?}", config.pod_sources).contains("hunter2"));
}

#[test]
fn strong_types() {
    let files = [(
        "/here/k",
        "staticPodPath: pods\nenableServer: false\nreadOnlyPort: 10255\nhealthzPort: 0\nlogging: {format: json, verbosity: 3}\n\
         crashLoopBackOff: {maxContainerRestartPeriod: 30s}\nimageServiceEndpoint: unix:///i\noomScoreAdj: -5\n",
    )];
    let config = run("--config=k", &files).config.unwrap();
    assert_eq!(config.pod_sources.static_pod_path, Some("/here/pods".into()));
    assert_eq!(
        (config.server.api, config.server.read_only, config.server.healthz),
        (None, None, None)
    );
    assert_eq!(config.logging.format, crate::config::LogFormat::Json);
    assert_eq!(config.logging.verbosity, 3);
    assert_eq!(config.max_container_restart_period.as_secs(), 30);
    assert_eq!(config.runtime.image_endpoint, "unix:///i");
    assert_eq!(config.process.oom_score_adj, -5);
    assert_eq!(config.wire().max_pods, Some(110));
}

#[test]
fn version_wins_over_everything() {
    let outcome = run("--version --config=none", &[]);
    assert_eq!(outcome.version, Some(VersionRequest::Short));
    assert_eq!(outcome.problems, []);
}

proptest::proptest! {
    #[test]
    fn any_file_gives_an_outcome(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let mut file = HEAD.as_bytes().to_vec();
        file.extend(bytes);
        let files = Memory([(PathBuf::from("/d/x.conf"), file.clone()), (PathBuf::from("/here/k"), file)].into());
        let host = Host { cgroup_v2: true, online_cpus: None };
        let outcome = load(["--config=k", "--config-dir=/d"].map(OsString::from), &files, &host).unwrap();
        proptest::prop_assert_eq!(outcome.config.is_some(), outcome.problems.is_empty());
    }
}

/// What a node of a cluster has to say itself for `--profile=secure`.
const SECURED: (&str, &str) = (
    "/here/k",
    "!apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: /ca}}
tlsCertFile: /crt
tlsPrivateKeyFile: /key
",
);

#[test]
fn the_secure_profile_changes_defaults_and_says_so() {
    let outcome = run("--profile=secure --kubeconfig=/k --config=k", &[SECURED]);
    assert_eq!(problems(&outcome), "");
    for (path, value) in crate::profile::secure_defaults() {
        assert_eq!(shown(&outcome, path), format!("{value} from profile secure"));
    }
    assert!(outcome.flags.streams_need_create());
    // Settings that do not contradict stay.
    let own = "--event-qps=0 --pod-max-pids=100 --tls-min-version=VersionTLS13";
    let outcome = run(&format!("--profile=secure --kubeconfig=/k --config=k {own}"), &[SECURED]);
    assert_eq!(problems(&outcome), "");
    assert_eq!(shown(&outcome, "podPidsLimit"), "100 from --pod-max-pids");
    let outcome = run("--kubeconfig=/k --config=k", &[SECURED]);
    assert_eq!(shown(&outcome, "podPidsLimit"), "-1 from default");
    assert!(!outcome.flags.streams_need_create());
    assert!(run("--streams-need-create", &[]).flags.streams_need_create());
    // Without --config the permissive baseline gives way as well.
    let alone =
        "--profile=secure --kubeconfig=/k --client-ca-file=/ca --rotate-server-certificates";
    let outcome = run(alone, &[]);
    assert_eq!(problems(&outcome), "");
    assert_eq!(shown(&outcome, "readOnlyPort"), "0 from profile secure");
    assert_eq!(shown(&outcome, "authorization.mode"), "\"Webhook\" from profile secure");
}

#[test]
fn the_secure_profile_refuses_what_contradicts_it() {
    for (flags, item) in [
        ("--anonymous-auth", "4.2.1"),
        ("--authorization-mode=AlwaysAllow", "4.2.2"),
        ("--client-ca-file=", "4.2.3"),
        ("--read-only-port=10255", "4.2.4"),
        ("--streaming-connection-idle-timeout=0", "4.2.5"),
        ("--make-iptables-util-chains=false", "4.2.6"),
        ("--hostname-override=other", "4.2.7"),
        ("--event-qps=1", "4.2.8"),
        ("--tls-cert-file= --tls-private-key-file=", "4.2.9"),
        ("--rotate-certificates=false", "4.2.10"),
        ("--feature-gates=RotateKubeletServerCertificate=false", "4.2.11"),
        ("--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA", "4.2.12"),
        ("--tls-min-version=VersionTLS11", "4.2.12"),
        ("--pod-max-pids=-1", "4.2.13"),
    ] {
        let all = format!("--profile=secure --kubeconfig=/k --config=k {flags}");
        let outcome = run(&all, &[SECURED]);
        let said = problems(&outcome);
        assert_eq!(outcome.problems.len(), 1, "{flags}: {said}");
        assert!(said.contains(&format!("(CIS {item}); ")), "{flags}: {said}");
        // Without the profile each of them is allowed.
        assert_eq!(problems(&run(&format!("--kubeconfig=/k --config=k {flags}"), &[SECURED])), "");
    }
    let (path, text) = SECURED;
    let text = format!("{text}seccompDefault: false\n");
    let secure = "--profile=secure --kubeconfig=/k --config=k";
    let said = problems(&run(secure, &[(path, &text)]));
    let wrong = "contradicts --profile=secure (CIS 4.2.14); set it to true";
    assert_eq!(said, format!("seccompDefault is false (set by /here/k): {wrong}"));
    assert_eq!(problems(&run(&format!("{secure} --seccomp-default"), &[(path, &text)])), "");
    let said = problems(&run(&format!("{secure} --streams-need-create=false"), &[SECURED]));
    assert!(said.contains("need the right to create"), "{said}");
    let said = problems(&run("--profile=secure --config=k", &[SECURED]));
    assert_eq!(
        said,
        "--profile: secure needs an API server, which says who may do what; give --kubeconfig"
    );
    assert!(problems(&run("--profile=odd", &[])).contains("\"odd\" is not a profile"));
}

#[test]
fn every_flag_has_a_value_to_show() {
    let outcome = run("--v=3 --manifest-url-header=a:b", &[]);
    let values = flags::values(&outcome.flags);
    assert_eq!(values.len(), flags::FLAGS.len());
    assert_eq!((values["v"].as_str(), values["port"].as_str()), ("3", "10250"));
    assert_eq!(values["manifest-url-header"], "<masked>");
}
