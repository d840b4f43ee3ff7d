//! Variables from files that the pod's own containers wrote.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Node, PodManifest};

fn from_file(name: &str, path: &str, key: &str, optional: bool) -> Value {
    let file = json!({"volumeName": "shared", "path": path, "key": key, "optional": optional});
    json!({"name": name, "valueFrom": {"fileKeyRef": file}})
}

fn shared(medium: &str) -> Value {
    json!([{"name": "shared", "emptyDir": {"medium": medium}}])
}

fn mount() -> Value {
    json!([{"name": "shared", "mountPath": "/shared"}])
}

/// The waiting message of a pod's main container.
fn complaint(node: &Node, pod: &str) -> Result<String> {
    let pod = node.pod(pod)?;
    let main = pod.container("main")?;
    ensure!(main.reason == "CreateContainerConfigError", "it is {main:?}");
    Ok(main.message.clone())
}

fn wait_complaint(node: &Node, pod: &str, wanted: &str) -> Result<String> {
    node.eventually(&format!("{pod} to say {wanted:?}"), || {
        let message = complaint(node, pod)?;
        ensure!(message.contains(wanted), "it says {message:?}");
        Ok(message)
    })
}

#[test]
fn an_init_container_writes_variables() -> Result<()> {
    let node = Node::start()?;
    let write = "printf '%s\\n' '# made here' \"A='one # two'\" \"B='x\" \"y'\" >/shared/app.env; \
                 ln -s /app.env /shared/link.env";
    for medium in ["", "Memory"] {
        let name = format!("pod{}", medium.to_lowercase());
        let pod = PodManifest::new(&name)
            .spec("volumes", shared(medium))
            .init("init", write)
            .with("volumeMounts", mount())
            .container("main", "echo \"$GREETING\"; env; echo end; exec sleep 1000")
            .with(
                "env",
                json!([
                    from_file("FIRST", "app.env", "A", false),
                    from_file("SECOND", "/link.env", "B", false),
                    from_file("ABSENT", "app.env", "C", true),
                    {"name": "GREETING", "value": "<$(FIRST)>$(ABSENT)"},
                ]),
            );
        node.manifests.put_pod(&pod)?;
        let log = node.wait_word(&name, "main", "end")?;
        for line in ["<one # two>$(ABSENT)", "FIRST=one # two", "SECOND=x", "y"] {
            log.time_of(line)?;
        }
        assert!(!log.lines()?.iter().any(|line| line.text.starts_with("ABSENT=")));
    }
    Ok(())
}

/// A pod whose main container takes a variable from `app.env`, and another that
/// can write there.
fn writer_and_reader(name: &str) -> PodManifest {
    PodManifest::new(name)
        .spec("volumes", shared(""))
        .grace(0)
        .container("writer", "exec sleep 1000")
        .with("volumeMounts", mount())
        .container("main", "echo \"word $WORD\"; exec sleep 1000")
        .with("env", json!([from_file("WORD", "app.env", "WORD", false)]))
}

#[test]
fn a_container_waits_for_its_file() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&writer_and_reader("late"))?;
    wait_complaint(&node, "late", "couldn't parse env file: cannot open ")?;
    node.wait_says(&["why", "late"], &["couldn't parse env file", "init container"])?;
    let write = |text: &str| {
        let script =
            format!("cat >/shared/new <<'END'\n{text}\nEND\nmv /shared/new /shared/app.env");
        node.run_in("late", "writer", &script)
    };
    write("OTHER='x'\nWORD=plain")?;
    wait_complaint(&node, "late", "at line 2: value must be enclosed in single quotes")?;
    write("OTHER='x'")?;
    wait_complaint(&node, "late", "environment variable key \"WORD\" not found in file \"/")?;
    write("WORD='here'")?;
    node.wait_word("late", "main", "word here")?;
    Ok(())
}

#[test]
fn the_example_runs() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_example("env-file", &[])?;
    node.wait_word("env-file", "show", "this is Linux")?;
    Ok(())
}

/// Whoever writes the file puts something else in its place, for the agent to
/// read or to hang on.
#[test]
fn nothing_but_a_file_of_the_volume_is_read() -> Result<()> {
    let node = Node::start()?;
    let precious = node.containerd.dir().join("precious.env");
    fs::write(&precious, "WORD='precious'\n")?;
    let (path, up) = (precious.display(), "../".repeat(12));
    let cases = [
        ("pipe", "mkfifo app.env".to_owned(), "is not a regular file"),
        ("device", "mknod app.env c 1 5".to_owned(), "is not a regular file"),
        ("dir", "mkdir app.env".to_owned(), "is not a regular file"),
        ("absolute", format!("ln -s {path} app.env"), "No such file or directory"),
        ("relative", format!("ln -s {up}{path} app.env"), "No such file or directory"),
        ("proc", format!("ln -s /proc/1/root{path} app.env"), "No such file or directory"),
        ("loop", "ln -s app.env app.env".to_owned(), "symbolic link"),
        ("long", "yes '' | head -c 2000000 >app.env".to_owned(), "longer than 1048576 bytes"),
    ];
    for (name, script, _) in &cases {
        let pod = PodManifest::new(name)
            .spec("volumes", shared(""))
            .grace(0)
            .init("evil", &format!("cd /shared && {script}"))
            .with("volumeMounts", mount())
            .container("main", "echo \"word $WORD\"; exec sleep 1000")
            .with("env", json!([from_file("WORD", "app.env", "WORD", true)]));
        node.manifests.put_pod(&pod)?;
    }
    for (name, _, wanted) in &cases {
        let message = wait_complaint(&node, name, wanted)?;
        assert!(!message.contains("precious'"), "{message}");
    }
    assert!(!fs::read_to_string(node.klet.log_path())?.contains("precious'"));
    Ok(())
}
