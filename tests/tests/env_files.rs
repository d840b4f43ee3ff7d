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

fn wait_complaint(node: &Node, pod: &str, wanted: &str) -> Result<()> {
    node.eventually(&format!("{pod} to say {wanted:?}"), || {
        let message = complaint(node, pod)?;
        ensure!(message.contains(wanted), "it says {message:?}");
        Ok(())
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

/// Whoever writes the file puts something else in its place, for the agent to
/// read or to hang on.
#[test]
fn nothing_but_a_file_of_the_volume_is_read() -> Result<()> {
    let node = Node::start()?;
    let precious = node.containerd.dir().join("precious.env");
    fs::write(&precious, "WORD='precious'\n")?;
    node.manifests.put_pod(&writer_and_reader("evil"))?;
    wait_complaint(&node, "evil", "No such file or directory")?;
    let put = |script: &str| {
        node.run_in("evil", "writer", &format!("cd /shared && rm -rf app.env && {script}"))
    };
    let up = "../".repeat(12);
    let path = precious.display();
    for (script, wanted) in [
        ("mkfifo app.env".to_owned(), "is not a regular file"),
        (format!("ln -s {path} app.env"), "No such file or directory"),
        ("mkdir app.env".to_owned(), "is not a regular file"),
        (format!("ln -s {up}{path} app.env"), "No such file or directory"),
        ("mknod app.env c 1 5".to_owned(), "is not a regular file"),
        (format!("ln -s /proc/1/root{path} app.env"), "No such file or directory"),
        ("ln -s app.env app.env".to_owned(), "symbolic link"),
        ("head -c 2000000 /dev/zero | tr '\\0' '\\n' >app.env".to_owned(), "longer than 1048576"),
    ] {
        put(&script)?;
        wait_complaint(&node, "evil", wanted)?;
    }
    put("echo \"WORD='mine'\" >app.env")?;
    node.wait_word("evil", "main", "word mine")?;
    assert!(!fs::read_to_string(node.klet.log_path())?.contains("precious'"));
    Ok(())
}
