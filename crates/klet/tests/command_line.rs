//! The built binary: arguments, exit codes, and what it prints.

use std::path::Path;
use std::process::{Command, Output};

const KLET: &str = env!("CARGO_BIN_EXE_klet");
/// A configuration that is good on any host without an API server.
const GOOD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n\
                    authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n";

/// What keeps a check independent of the host it runs on.
const HOST_FREE: [&str; 3] = ["--fail-cgroupv1=false", "--healthz-port=0", "--read-only-port=0"];

fn run(program: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::new(program).args(args).env_remove("RUST_LOG").output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn klet(args: &[&str]) -> (i32, String, String) {
    run(Path::new(KLET), args)
}

/// A directory with files of that content.
fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

fn assert_has(text: &str, needles: &[&str]) {
    for needle in needles {
        assert!(text.contains(needle), "{needle:?} is missing from:\n{text}");
    }
}

#[test]
fn an_unknown_flag_is_refused_with_a_suggestion() {
    let (code, _, stderr) = klet(&["kubelet", "--max-pod=3"]);
    assert_eq!(code, 1);
    assert_has(&stderr, &["--max-pod", "--max-pods"]);
}

#[test]
fn a_positional_argument_is_refused() {
    let (code, _, stderr) = klet(&["kubelet", "start"]);
    assert_eq!(code, 1);
    assert_has(&stderr, &["unexpected argument 'start'"]);
}

#[test]
fn under_the_name_kubelet_it_is_the_kubelet() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("kubelet");
    std::os::unix::fs::symlink(KLET, &link).unwrap();
    let (code, stdout, _) = run(&link, &["--version"]);
    assert_eq!((code, stdout.as_str()), (0, "Kubernetes v1.36.4\n"));
    let (code, stdout, _) = run(&link, &["--help"]);
    assert_eq!(code, 0);
    assert_has(
        &stdout,
        &["Usage: kubelet [OPTIONS]", "--pod-manifest-path", "Eviction and clean-up:"],
    );
    assert_eq!(run(&link, &["check"]).0, 1, "subcommands are klet's");
}

#[test]
fn versions() {
    assert_eq!(klet(&["kubelet", "--version"]).1, "Kubernetes v1.36.4\n");
    assert_has(
        &klet(&["kubelet", "--version=raw"]).1,
        &["version.Info{Major:\"1\", Minor:\"36\", GitVersion:\"v1.36.4\""],
    );
    assert_has(
        &klet(&["version"]).1,
        &[concat!("klet ", env!("CARGO_PKG_VERSION")), "v1.36.4", "v1beta1"],
    );
}

#[test]
fn help_teaches() {
    let (code, stdout, _) = klet(&["--help"]);
    assert_eq!(code, 0);
    assert_has(&stdout, &["Examples:", "klet check", "completion"]);
    assert_has(
        &klet(&["kubelet", "--help"]).1,
        &["Precedence", "Container runtime and images:", "[default: 110]"],
    );
}

#[test]
fn completion_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, stdout, _) = klet(&["completion", shell]);
        assert_eq!(code, 0);
        assert_has(&stdout, &["pod-manifest-path", "completion"]);
    }
    assert_eq!(klet(&["completion", "tcsh"]).0, 1);
}

#[test]
fn check_lists_every_problem() {
    let directory = files(&[(
        "k.yaml",
        &format!("{GOOD}port: 70000\nmaxPods: -1\nfeatureGates: {{Nope: true}}\n"),
    )]);
    let config = format!("--config={}", directory.path().join("k.yaml").display());
    let (code, stdout, _) = klet(&[
        "check",
        &config,
        "--bootstrap-kubeconfig=/k",
        "--sync-frequency=soon",
        "--healthz-port=0",
        "--image-service-endpoint=tcp://localhost:1",
    ]);
    assert_eq!(code, 1);
    assert_has(
        &stdout,
        &[
            "Problems (",
            "port is 70000",
            "maxPods is -1",
            "\"Nope\"",
            "needs --kubeconfig to name the file",
            "--sync-frequency",
            "imageServiceEndpoint is \"tcp://localhost:1\"",
            "A start would fail.",
        ],
    );
}

#[test]
fn check_and_start_agree_on_problems() {
    let args = ["--fail-cgroupv1=false", "--port=0", "--address=nowhere"];
    let (code, _, stderr) = klet(&[&["kubelet"][..], &args].concat());
    assert_eq!(code, 1);
    let (_, stdout, _) = klet(&[&["check", "-o", "json"][..], &args].concat());
    let problems = stderr.lines().filter_map(|line| line.strip_prefix("error: "));
    let mut count = 0;
    for problem in problems {
        let as_json = serde_json::Value::from(problem).to_string();
        assert_has(&stdout, &[&as_json]);
        count += 1;
    }
    assert_eq!(count, 2, "{stderr}");
}

#[test]
fn check_shows_the_origin_of_each_value() {
    let directory = files(&[
        ("k.yaml", &format!("{GOOD}maxPods: 1\neventBurst: 1\nregistryBurst: 1\n")),
        (
            "d/10.conf",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\neventBurst: 2\nregistryBurst: 2\n",
        ),
        (
            "d/20.conf",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nregistryBurst: 3\n",
        ),
    ]);
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (config, drop_ins) =
        (format!("--config={}", at("k.yaml")), format!("--config-dir={}", at("d")));
    let (_, stdout, _) = klet(&["check", "-o", "json", &config, &drop_ins, "--registry_burst=4"]);
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let origin = |field: &str| {
        let rows = report["configuration"].as_array().unwrap();
        let row =
            rows.iter().find(|row| row["field"] == field).unwrap_or_else(|| panic!("{field}"));
        format!("{} from {}", row["value"], row["origin"].as_str().unwrap())
    };
    assert_eq!(origin("maxPods"), format!("1 from {}", at("k.yaml")));
    assert_eq!(origin("eventBurst"), format!("2 from drop-in {}", at("d/10.conf")));
    assert_eq!(origin("registryBurst"), "4 from --registry-burst");
    assert!(!stdout.contains("nodeLeaseDurationSeconds"), "defaults are shown with --all only");
    let (_, stdout, _) = klet(&["check", "--all", "-o", "json", &config]);
    assert_has(&stdout, &["nodeLeaseDurationSeconds"]);
}

#[test]
fn check_lists_what_is_not_acted_on() {
    let (_, stdout, _) = klet(&[
        "check",
        "--image-gc-high-threshold=83",
        "--sync-frequency=2m",
        "--node-ip=10.0.0.1",
        "--maximum-dead-containers=7",
        "--feature-gates=MemoryQoS=true,EventedPLEG=true",
        "--boot-id-file=/x",
    ]);
    let section =
        stdout.split("Set, but not acted on").nth(1).unwrap().split("\n\n").next().unwrap();
    assert_has(
        section,
        &[
            "imageGCHighThresholdPercent (set by --image-gc-high-threshold)",
            "--maximum-dead-containers",
            "featureGates.MemoryQoS (set by --feature-gates)",
        ],
    );
    assert!(!section.contains("--node-ip") && !section.contains("EventedPLEG"), "{section}");
    assert!(!section.contains("syncFrequency"), "{section}");
    assert_has(&stdout, &["--boot-id-file has no effect"]);
}

#[test]
fn check_asks_the_runtime() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!(
        "--container-runtime-endpoint=unix://{}",
        directory.path().join("none.sock").display()
    );
    let images =
        format!("--image-service-endpoint={}", directory.path().join("images.sock").display());
    let args = [&HOST_FREE[..], &[&endpoint, &images]].concat();
    let root = format!("--root-dir={}", directory.path().join("root").display());
    let (code, stdout, _) = klet(&[&["check", &root][..], &args].concat());
    assert_eq!(code, 1, "a start would wait");
    assert_has(
        &stdout,
        &[
            "the runtime does not answer: unix://",
            "none.sock",
            "a start waits for it",
            "Image service: it does not answer:",
            "images.sock",
        ],
    );
    // Others may not write to the log directories, which stops a start.
    if rustix::process::getuid().is_root() {
        assert_has(&stdout, &["A start would wait for the runtime."]);
    }
}

#[test]
fn check_looks_at_the_host() {
    let directory = files(&[("file", "")]);
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let healthz = format!("--healthz-port={port}");
    let root = format!("--root-dir={}", directory.path().join("file/root").display());
    let output = Command::new(KLET)
        .args(["check", "--fail-cgroupv1=false", &healthz, &root])
        .env("RUST_LOG", "klet=loud=quiet")
        .env("WATCHDOG_USEC", "1000")
        .env_remove("WATCHDOG_PID")
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_has(
        &stdout,
        &[
            &format!(
                "healthzPort is {port} (set by --healthz-port): cannot listen on 127.0.0.1:{port}"
            ),
            "the port is busy",
            "--root-dir: ",
            "file is not a directory",
            "RUST_LOG: ",
            "systemd watchdog: ",
            "A start would fail.",
        ],
    );
    assert!(!directory.path().join("file/root").exists());
}

#[test]
fn a_watchdog_too_short_stops_a_start() {
    let output = Command::new(KLET)
        .args(["kubelet", "--fail-cgroupv1=false"])
        .env("WATCHDOG_USEC", "1000000")
        .env_remove("WATCHDOG_PID")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_has(&String::from_utf8(output.stderr).unwrap(), &["WatchdogSec", "more than 1s"]);
}

#[test]
fn secrets_are_not_printed() {
    let args = ["--manifest-url-header=Authorization:hunter2", "--fail-cgroupv1=false"];
    for output in ["table", "json"] {
        let (_, stdout, stderr) = klet(&[&["check", "--all", "-o", output][..], &args].concat());
        assert_has(&stdout, &["<masked>"]);
        assert!(!stdout.contains("hunter2") && !stderr.contains("hunter2"), "{stdout}");
    }
}

#[test]
fn output_into_a_closed_pipe_is_no_crash() {
    use std::io::Read;
    let mut child = Command::new(KLET)
        .args(["completion", "zsh"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    child.wait().unwrap();
    assert_eq!(stderr, "");
}
