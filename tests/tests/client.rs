//! The local commands, run as a user would run them against a real node.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{Node, PodManifest, binaries};

fn socket(node: &Node) -> PathBuf {
    node.klet.root_dir().join("klet.sock")
}

fn command(node: &Node, args: &[&str]) -> Result<Command> {
    let mut command = Command::new(binaries::klet_binary()?);
    command.args(args).env("KLET_SOCKET", socket(node)).stdin(Stdio::null());
    Ok(command)
}

/// Exit code, output and errors of a command.
fn klet(node: &Node, args: &[&str]) -> Result<(i32, String, String)> {
    let Output { status, stdout, stderr } = command(node, args)?.output()?;
    let text = |bytes| String::from_utf8(bytes).context("not text");
    Ok((status.code().context("ended by a signal")?, text(stdout)?, text(stderr)?))
}

fn klet_ok(node: &Node, args: &[&str]) -> Result<String> {
    let (code, stdout, stderr) = klet(node, args)?;
    ensure!(code == 0, "klet {args:?} ended with {code}: {stdout}{stderr}");
    Ok(stdout)
}

/// Waits until the command's output holds all of these, however its lines are broken.
fn wait_says(node: &Node, args: &[&str], needles: &[&str]) -> Result<String> {
    node.eventually(&format!("klet {args:?} to say {needles:?}"), || {
        let output = klet_ok(node, args)?;
        let flat = output.split_whitespace().collect::<Vec<_>>().join(" ");
        let missing: Vec<_> = needles.iter().filter(|needle| !flat.contains(**needle)).collect();
        ensure!(missing.is_empty(), "{missing:?} is missing from:\n{output}");
        Ok(output)
    })
}

#[test]
fn pods_logs_exec_top_and_rm() -> Result<()> {
    let node = Node::start()?;
    let script = "trap 'exit 0' TERM; echo first; echo second; while true; do sleep 1; done";
    node.manifests.put_pod(&PodManifest::script("web", script))?;
    node.wait_running("web")?;

    let table = wait_says(&node, &["pods"], &["NAME READY STATUS", "web-n1 1/1 Running 0"])?;
    ensure!(!table.contains("NAMESPACE"), "{table}");
    wait_says(&node, &["pods", "-A", "-o", "wide"], &["NAMESPACE", "default web-n1", "DOING"])?;
    let list: serde_json::Value = serde_json::from_str(&klet_ok(&node, &["pods", "-o", "json"])?)?;
    assert_eq!(list["kind"], "PodList");
    assert_eq!(list["items"][0]["status"]["phase"], "Running");
    let (_, _, hint) = klet(&node, &["pods", "-n", "other"])?;
    ensure!(hint.contains("klet pods -A"), "{hint}");

    wait_says(&node, &["logs", "web"], &["first second"])?;
    assert_eq!(klet_ok(&node, &["logs", "--tail=1", "default/web-n1"])?, "second\n");
    let stamped = klet_ok(&node, &["logs", "--timestamps", "--since=1h", "web", "-c", "main"])?;
    ensure!(stamped.lines().all(|line| line.starts_with("20")), "{stamped}");
    let (code, _, error) = klet(&node, &["logs", "--previous", "web"])?;
    ensure!(code == 1 && error.contains("has not been restarted"), "{error}");

    let (code, stdout, stderr) =
        klet(&node, &["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"])?;
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(klet_ok(&node, &["exec", "-t", "web", "--", "tty"])?, "/dev/pts/0\r\n");
    assert_eq!(klet_ok(&node, &["exec", "web", "--", "echo", "--a_b"])?, "--a_b\n");
    let (code, _, error) = klet(&node, &["exec", "web", "--", "no-such-program"])?;
    ensure!(code != 0 && error.contains("no-such-program"), "{code}: {error}");

    wait_says(
        &node,
        &["events", "web"],
        &["Normal Started default/web-n1 [main] Container started"],
    )?;
    wait_says(&node, &["top"], &["CPU(cores)", "default web-n1", "Mi"])?;
    wait_says(&node, &["why", "web"], &["runs and is ready", "web.json"])?;
    wait_says(&node, &["why", "node"], &["klet runs 1 pods"])?;

    let (code, _, error) = klet(&node, &["why", "nobody"])?;
    ensure!(code == 1 && error.contains("there are default/web-n1"), "{error}");

    let would = klet_ok(&node, &["rm", "--dry-run", "web"])?;
    ensure!(would.contains("would remove") && node.manifests.path().join("web.json").exists());
    let gone = klet_ok(&node, &["rm", "web"])?;
    ensure!(gone.contains("web.json") && gone.contains("default/web-n1 is gone"), "{gone}");
    ensure!(!node.manifests.path().join("web.json").exists());
    node.wait_gone("web")
}

/// Exit code and output of a command that is given `input`.
fn fed(node: &Node, args: &[&str], input: &[u8]) -> Result<(i32, Vec<u8>)> {
    let mut child = command(node, args)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    let mut stdout = child.stdout.take().context("no output")?;
    let mut output = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It fails once the command has gone.
            let _ = stdin.write_all(input);
        });
        stdout.read_to_end(&mut output)
    })?;
    Ok((child.wait()?.code().context("ended by a signal")?, output))
}

#[test]
fn input_is_passed_on_to_its_end() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&PodManifest::script("web", "sleep 3600"))?;
    node.wait_running("web")?;
    let exec = |script: &str, input: &[u8]| {
        fed(&node, &["exec", "-i", "web", "--", "sh", "-c", script], input)
    };
    assert_eq!(exec("cat", b"hello\n")?, (0, b"hello\n".to_vec()));
    assert_eq!(exec("cat", b"")?, (0, Vec::new()));
    assert_eq!(exec("cat > /dev/null; exit 9", b"hello\n")?, (9, Vec::new()));
    // Every byte there is, in an order without period, more than all buffers on the way hold.
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let noise: Vec<u8> = noise.take(5 << 20).collect();
    let (code, output) = exec("cat", &noise)?;
    ensure!(code == 0 && output == noise, "{code}, {} of {} bytes", output.len(), noise.len());
    let (code, output) = exec("wc -c", &noise)?;
    assert_eq!((code, String::from_utf8(output)?.trim()), (0, "5242880"));
    // Input that is not read, or not to its end. More than a pipe holds would keep
    // containerd 1.6 from telling that the command has ended.
    assert_eq!(exec("head -c 3; exit 4", b"yes, and more\n")?, (4, b"yes".to_vec()));
    assert_eq!(exec("exit 5", b"yes\n")?.0, 5);
    Ok(())
}

#[test]
fn a_log_is_followed_to_the_containers_end() -> Result<()> {
    let node = Node::start()?;
    let script = "for n in 1 2 3 4; do echo line $n; sleep 1; done";
    node.manifests.put_pod(&PodManifest::script("short", script).restart("Never"))?;
    node.wait_running("short")?;
    let mut child = command(&node, &["logs", "-f", "short"])?.stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().context("no output")?);
    let lines: Vec<String> = output.lines().collect::<Result<_, _>>()?;
    assert_eq!(lines, ["line 1", "line 2", "line 3", "line 4"]);
    ensure!(child.wait()?.success());
    Ok(())
}

#[test]
fn a_terminal_is_handed_on_and_given_back() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&PodManifest::script("web", "sleep 3600"))?;
    node.wait_running("web")?;
    // script(1) gives klet a terminal; its size and mode are looked at from outside.
    let klet = binaries::klet_binary()?;
    let session = format!(
        "stty rows 31 cols 97; {} exec -it web -- sh; code=$?; stty -a | grep -q ' icanon' && echo given back; exit $code",
        klet.display()
    );
    let mut child = in_terminal(&node, &session)?;
    let mut input = child.stdin.take().context("no input")?;
    input.write_all(b"sleep 1; stty size; test -t 0 && echo is a terminal; exit 5\n")?;
    let mut output = String::new();
    child.stdout.take().context("no output")?.read_to_string(&mut output)?;
    let code = child.wait()?.code();
    drop(input);
    ensure!(output.contains("31 97") && output.contains("is a terminal\r\n"), "{output:?}");
    ensure!(output.contains("given back"), "the terminal stayed raw: {output:?}");
    assert_eq!(code, Some(5), "{output:?}");
    Ok(())
}

/// Runs a shell's command in a terminal. It ends when its input does.
fn in_terminal(node: &Node, session: &str) -> Result<Child> {
    Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", session, "/dev/null"])
        .env("KLET_SOCKET", socket(node))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run script(1), which Debian has in bsdutils")
}

#[test]
fn a_window_changes_its_size() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&PodManifest::script("web", "sleep 3600"))?;
    node.wait_running("web")?;
    // It gives up after a minute, so that a failure shows.
    let inside = r#"n=0; until [ "$(stty size)" = "44 123" ] || [ $n -gt 300 ]
        do echo size $(stty size); n=$((n+1)); sleep 0.2; done; echo then $(stty size)"#;
    let session = format!(
        "stty rows 31 cols 97; echo at $(tty); {} exec -it web -- sh -c '{inside}'",
        binaries::klet_binary()?.display()
    );
    let mut child = in_terminal(&node, &session)?;
    let output = BufReader::new(child.stdout.take().context("no output")?);
    let (mut terminal, mut first, mut told) = (None, None, Vec::new());
    for line in output.lines() {
        let line = line?;
        let line = line.trim_end();
        told.push(line.to_owned());
        terminal = terminal.or_else(|| line.strip_prefix("at ").map(str::to_owned));
        if first.is_none()
            && let (Some(size), Some(terminal)) = (line.strip_prefix("size "), &terminal)
        {
            first = Some(size.to_owned());
            // As a user drags the window's corner.
            let mut stty = Command::new("stty");
            let status = stty.args(["-F", terminal, "rows", "44", "cols", "123"]).status()?;
            ensure!(status.success(), "stty ended with {status}");
        }
    }
    ensure!(child.wait()?.success(), "{told:?}");
    assert_eq!(first.as_deref(), Some("31 97"), "{told:?}");
    assert_eq!(told.last().map(String::as_str), Some("then 44 123"), "{told:?}");
    Ok(())
}

#[test]
fn top_tells_who_is_busy() -> Result<()> {
    let node = Node::start()?;
    let limits = json!({"limits": {"cpu": "200m", "memory": "100Mi"}});
    let pod = PodManifest::script("two", "trap 'exit 0' TERM; while true; do sleep 0.1; done")
        .container("busy", "while true; do :; done")
        .with("resources", limits.clone())
        .container("large", "dd if=/dev/zero of=/dev/shm/x bs=1M count=30; sleep 3600")
        .with("resources", limits);
    node.manifests.put_pod(&pod)?;
    node.wait_running("two")?;
    let row = |text: &str, name: &str| -> Result<(u64, u64)> {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = lines.find(|row| row.get(2) == Some(&name)).context("no such container")?;
        let number = |text: &str, unit: &str| text.strip_suffix(unit)?.parse::<u64>().ok();
        let (cpu, memory) = (number(row[3], "m"), number(row[4], "Mi"));
        cpu.zip(memory).with_context(|| format!("{row:?}"))
    };
    let (busy, large) = node.eventually("klet top to tell", || {
        let text = klet_ok(&node, &["top", "--containers"])?;
        let found = (row(&text, "busy")?, row(&text, "large")?);
        // All of it may not have been written at first.
        ensure!(found.1.1 >= 30, "{text}");
        Ok(found)
    })?;
    // Its quota is a fifth of a core, which a crowded machine may not have to give;
    // samples and quota do not begin together.
    assert!((10..=300).contains(&busy.0), "busy uses {}m of 200m", busy.0);
    assert!(large.0 < busy.0, "large uses {}m, busy {}m", large.0, busy.0);
    let most = "cat /sys/fs/cgroup/memory/memory.max_usage_in_bytes 2>/dev/null || \
                cat /sys/fs/cgroup/memory.peak 2>/dev/null || echo 104857600";
    let most: u64 = node.run_in("two", "large", most)?.trim().parse()?;
    assert!(large.1 <= most.div_ceil(1 << 20), "{} Mi of at most {most} bytes", large.1);
    assert!(busy.1 < large.1, "{busy:?} {large:?}");
    Ok(())
}

#[test]
fn a_shared_manifest_is_not_removed() -> Result<()> {
    let node = Node::start()?;
    let pod = |name: &str| -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&PodManifest::pause(name).to_json())?)
    };
    let list = serde_json::json!({
        "apiVersion": "v1", "kind": "PodList", "items": [pod("one")?, pod("two")?],
    });
    node.manifests.put("both.json", list.to_string())?;
    node.wait_running("one")?;
    let (code, _, error) = klet(&node, &["rm", "one"])?;
    ensure!(code == 1 && error.contains("both.json defines 2 pods"), "{error}");
    ensure!(node.manifests.path().join("both.json").exists());
    Ok(())
}

#[test]
fn without_a_klet_the_commands_say_how_to_start_one() -> Result<()> {
    let mut node = Node::start()?;
    let socket = socket(&node);
    ensure!(socket.exists());
    ensure!(node.klet.stop()?.success());
    ensure!(!socket.exists(), "the socket goes with the agent");
    let (code, _, error) = klet(&node, &["pods"])?;
    ensure!(code == 1 && error.contains("no klet runs here"), "{error}");
    ensure!(error.contains("--pod-manifest-path"), "{error}");
    // A killed one leaves its socket behind; the next takes its place.
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    node.klet.kill9()?;
    ensure!(socket.exists());
    let (code, _, error) = klet(&node, &["pods"])?;
    ensure!(code == 1 && error.contains("no klet runs here"), "{error}");
    node.klet.restart()?;
    klet_ok(&node, &["pods"])?;
    Ok(())
}

#[test]
fn why_explains_the_broken_examples() -> Result<()> {
    let node = Node::start()?;
    let examples = binaries::workspace().join("examples/broken");
    let expected: [(&str, &[&str]); 14] = [
        ("bad-image-host", &["name registry.invalid cannot be resolved", "Check the image's name"]),
        ("never-pull", &["imagePullPolicy: Never forbids", "IfNotPresent", "images import"]),
        ("bad-command", &["\"/bin/no-such-program\"", "is not in the image", "Correct command"]),
        ("crash-loop", &["exit code 3", "| cannot read /config/app.conf", "start app again"]),
        ("ends-at-once", &["exit code 0", "restartPolicy: OnFailure"]),
        ("bad-image-name", &["upper-case letters are allowed in the tag only", "Correct"]),
        (
            "failing-probe",
            &["readiness probe fails", "/healthy", "404", "correct the probe's path"],
        ),
        ("failing-hook", &["cannot register", "Make lifecycle.postStart succeed"]),
        ("misspelt", &["runs without something", "spec.containers[0].comand: unknown field"]),
        ("non-root", &["runAsNonRoot is set, but it would run as root", "runAsUser"]),
        ("missing-config", &["configmap \"nobody-made-this\" not found", "kind: ConfigMap"]),
        ("missing-directory", &["/srv/no-such-directory", "DirectoryOrCreate"]),
        ("too-little-memory", &["more memory than its limit", "resources.limits.memory", "12Mi"]),
        ("refused", &["its manifest was refused", "line 10", "restartPolicy", "Mend the manifest"]),
    ];
    let mut names: Vec<_> = expected.iter().map(|(name, _)| format!("{name}.yaml")).collect();
    names.sort();
    let mut there = Vec::new();
    for entry in std::fs::read_dir(&examples)? {
        there.push(entry?.file_name().to_string_lossy().into_owned());
    }
    there.sort();
    assert_eq!(names, there, "every broken example is explained");
    for (name, _) in expected {
        let file = format!("{name}.yaml");
        node.manifests.put(&file, std::fs::read_to_string(examples.join(&file))?)?;
    }
    for (name, needles) in expected {
        let text = wait_says(&node, &["why", name], needles)?;
        ensure!(text.contains(&format!("{name}.yaml")), "it names the manifest: {text}");
        ensure!(text.contains("What you can do:"), "it gives advice: {text}");
        ensure!(text.lines().count() <= 30, "one screen: {text}");
    }
    Ok(())
}

#[test]
fn why_tells_of_manifests_calls_and_times() -> Result<()> {
    let node = Node::start()?;
    let web = PodManifest::script("web", "exec sleep 1000");
    node.manifests.put_pod(&web)?;
    node.manifests.put("web2.json", web.to_json())?;
    let slow = json!({"postStart": {"exec": {"command": ["/bin/sleep", "600"]}}});
    node.manifests
        .put_pod(&PodManifest::script("slow", "exec sleep 1000").with("lifecycle", slow))?;
    let absent = PodManifest::script("absent", "").with("imagePullPolicy", json!("Never"));
    node.manifests.put_pod(&absent.with("image", json!("registry.invalid/no:1")))?;

    wait_says(&node, &["why", "web"], &["web2.json defines a pod of the same name"])?;
    wait_says(
        &node,
        &["events", "web"],
        &["Warning FailedValidation", "from file due to duplicate pod name \"web-n1\", ignoring"],
    )?;
    wait_says(&node, &["why", "slow"], &["In flight: postStart hook of main, for"])?;
    wait_says(&node, &["why", "absent"], &["forbids pulling it", "(since"])?;
    Ok(())
}
