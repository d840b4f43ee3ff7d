//! Files and variables from ConfigMaps, Secrets and the pod itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Image, Node, PodManifest, Registry, registry};

/// Time for a pod to start once nothing keeps it, on a busy machine.
const PROMPT: Duration = Duration::from_secs(5);

fn mounts(list: &[(&str, &str)]) -> Value {
    list.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect()
}

fn config_map(name: &str, data: Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
        .to_string()
}

fn secret(name: &str, data: Value) -> String {
    let kind = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let mut object = kind;
    object["stringData"] = data;
    object.to_string()
}

fn volume_dir(node: &Node, uid: &str, plugin: &str, name: &str) -> PathBuf {
    let pods = node.klet.root_dir().join("pods");
    pods.join(uid).join("volumes").join(format!("kubernetes.io~{plugin}")).join(name)
}

/// Waits until a container sees this.
fn wait_sees(node: &Node, pod: &str, script: &str, wanted: &str) -> Result<()> {
    node.eventually(&format!("{pod} to see {wanted:?}"), || {
        let seen = node.run_in(pod, "main", script)?;
        ensure!(seen.trim() == wanted, "it sees {seen:?}");
        Ok(())
    })
}

/// A pod that mounts one of each kind.
fn one_of_each() -> PodManifest {
    PodManifest::script("all", "exec sleep 1000")
        .uid("all-uid")
        .label("tier", "one")
        .with(
            "volumeMounts",
            json!([
                {"name": "conf", "mountPath": "/conf"},
                {"name": "conf", "mountPath": "/part", "subPath": "word"},
                {"name": "keys", "mountPath": "/keys"},
                {"name": "about", "mountPath": "/about"},
                {"name": "both", "mountPath": "/both"},
                {"name": "scratch", "mountPath": "/conf/scratch"},
            ]),
        )
        .with("resources", json!({"limits": {"memory": "64Mi"}}))
        .spec("securityContext", json!({"fsGroup": 4321}))
        .spec(
            "volumes",
            json!([
                {"name": "conf", "configMap": {"name": "conf"}},
                {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400,
                    "items": [{"key": "token", "path": "deep/token"}]}},
                {"name": "about", "downwardAPI": {"items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {"path": "memory", "resourceFieldRef":
                        {"containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}},
                ]}},
                {"name": "both", "projected": {"sources": [
                    {"configMap": {"name": "conf"}},
                    {"configMap": {"name": "conf", "items": [{"key": "word", "path": "plain"}]}},
                    {"secret": {"name": "keys", "items": [{"key": "token", "path": "word"}]}},
                    {"secret": {"name": "absent", "optional": true}},
                ]}},
                {"name": "scratch", "emptyDir": {}},
            ]),
        )
}

#[test]
fn files_are_there_and_follow_their_sources() -> Result<()> {
    let mut node = Node::start()?;
    node.manifests.put("conf.json", config_map("conf", json!({"word": "one"})))?;
    node.manifests.put("keys.json", secret("keys", json!({"token": "s3cret"})))?;
    node.manifests.put_pod(&one_of_each())?;
    let uid = node.wait_running("all")?.uid;
    for (script, wanted) in [
        ("cat /conf/word", "one"),
        ("cat /part", "one"),
        ("cat /keys/deep/token", "s3cret"),
        ("stat -L -c '%a %g' /keys/deep/token", "440 4321"),
        ("stat -L -c %a /conf/word", "644"),
        ("cat /about/memory", "64"),
        ("cat /about/labels", "tier=\"one\""),
        ("cat /both/word", "s3cret"),
        ("cat /both/plain", "one"),
        ("echo x >/conf/new || echo read-only", "read-only"),
        ("echo x >/conf/scratch/new && cat /conf/scratch/new", "x"),
    ] {
        let seen = node.run_in("all", "main", script)?;
        let last = seen.trim().lines().last().unwrap_or_default();
        assert_eq!(last, wanted, "{script}: {seen}");
    }
    let tmpfs = fs::read_to_string("/proc/self/mounts")?;
    for (plugin, name, in_memory) in [
        ("configmap", "conf", false),
        ("secret", "keys", true),
        ("downward-api", "about", true),
        ("projected", "both", true),
    ] {
        let dir = volume_dir(&node, &uid, plugin, name);
        assert!(dir.join("..data").is_symlink(), "{}", dir.display());
        let mounted = tmpfs.contains(&format!(" {} tmpfs ", dir.display()));
        assert_eq!(mounted, in_memory, "{}", dir.display());
    }

    // New content is seen at once, and a file that goes is gone; a part stays.
    node.manifests.put("conf.json", config_map("conf", json!({"word": "two", "more": "m"})))?;
    wait_sees(&node, "all", "cat /conf/word /conf/more", "twom")?;
    wait_sees(&node, "all", "cat /both/plain /both/more", "twom")?;
    node.manifests.put("conf.json", config_map("conf", json!({"word": "three"})))?;
    wait_sees(&node, "all", "cat /conf/word; ls /conf", "threescratch\nword")?;
    assert_eq!(node.run_in("all", "main", "cat /part")?.trim(), "one");
    node.manifests.put_pod(&one_of_each().label("tier", "two"))?;
    wait_sees(&node, "all", "cat /about/labels", "tier=\"two\"")?;

    // A broken or missing object changes nothing, and a new klet goes on.
    node.manifests.put("conf.json", config_map("conf", json!({"word": 5})))?;
    node.manifests.remove("keys.json")?;
    node.klet.kill9()?;
    node.klet.restart()?;
    node.wait_says(&["why", "all"], &["all"])?;
    wait_sees(&node, "all", "cat /conf/word /keys/deep/token", "threes3cret")?;
    node.manifests.put("conf.json", config_map("conf", json!({"word": "four"})))?;
    node.manifests.put("keys.json", secret("keys", json!({"token": "n3w"})))?;
    wait_sees(&node, "all", "cat /conf/word /keys/deep/token /both/word", "fourn3wn3w")?;
    let restarts = node.wait_running("all")?.container("main")?.restarts;
    assert_eq!(restarts, 0, "nothing was started again");

    // Gone while klet is away.
    node.klet.kill9()?;
    node.manifests.clear()?;
    node.klet.restart()?;
    node.wait_no_trace("all", &uid)
}

#[test]
fn variables_come_from_objects() -> Result<()> {
    let node = Node::start()?;
    let pod = PodManifest::script("env", "env; exec sleep 1000").with(
        "envFrom",
        json!([
            {"prefix": "C_", "configMapRef": {"name": "conf"}},
            {"secretRef": {"name": "absent", "optional": true}},
        ]),
    );
    let pod = pod.with(
        "env",
        json!([
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
            {"name": "GREETING", "value": "$(C_word), $(TOKEN)"},
        ]),
    );
    node.manifests.put_pod(&pod)?;
    let waits = |text: &'static str| {
        node.wait_pod("env", &format!("to say {text}"), move |pod| {
            pod.container("main").is_ok_and(|main| {
                main.reason == "CreateContainerConfigError" && main.message.contains(text)
            })
        })
    };
    waits("configmap \"conf\" not found")?;
    node.wait_says(&["why", "env"], &["ConfigMap", "conf", "manifest"])?;
    node.manifests.put("conf.json", config_map("conf", json!({"word": "hello"})))?;
    waits("secret \"keys\" not found")?;
    node.manifests.put("keys.json", secret("keys", json!({"other": "x"})))?;
    waits("couldn't find key token in Secret default/keys")?;
    node.manifests.put("keys.json", secret("keys", json!({"token": "s3cret"})))?;
    node.wait_word("env", "main", "GREETING=hello, s3cret")?;
    node.wait_word("env", "main", "C_word=hello")?;
    let said = fs::read_to_string(node.klet.log_path())?;
    assert!(!said.contains("s3cret"), "klet's log holds a secret");
    Ok(())
}

#[test]
fn a_pod_waits_for_its_object() -> Result<()> {
    let node = Node::start()?;
    let pod = PodManifest::script("waits", "cat /keys/token; echo; exec sleep 1000")
        .with("volumeMounts", mounts(&[("keys", "/keys")]))
        .spec("volumes", json!([{"name": "keys", "secret": {"secretName": "keys"}}]));
    node.manifests.put_pod(&pod)?;
    let problem = "MountVolume.SetUp failed for volume \"keys\" : secret \"keys\" not found";
    node.wait_pod("waits", "to tell what is missing", |pod| {
        let condition = pod.condition("PodReadyToStartContainers");
        condition.is_ok_and(|condition| condition.message.contains(problem))
    })?;
    assert_eq!(node.in_runtime("waits")?, (vec![], vec![]), "nothing is made before");
    node.wait_says(&["why", "waits"], &["secret \"keys\" not found", "Put a manifest"])?;
    node.wait_says(&["events", "waits"], &["Warning", "FailedMount", problem])?;
    // A key that would climb out of the volume is refused, and said so.
    node.manifests.put("keys.json", secret("keys", json!({"../token": "x"})))?;
    node.eventually("klet to refuse the key", || {
        let said = fs::read_to_string(node.klet.log_path())?;
        ensure!(said.contains("a valid config key must consist of"), "{}", node.klet.log_tail());
        Ok(())
    })?;
    node.manifests.put("keys.json", secret("keys", json!({"token": "here"})))?;
    // The object's arrival wakes the pod: neither a pause nor a rescan passes first.
    node.within(PROMPT, "the pod to start", || node.log("waits", "main", 0)?.time_of("here"))?;
    Ok(())
}

#[test]
fn a_pod_that_goes_with_its_object_misses_nothing() -> Result<()> {
    let node = Node::start()?;
    let pod = PodManifest::script(
        "together",
        "trap 'sleep 4; exit 0' TERM; while true; do sleep 0.1; done",
    )
    .uid("together-uid")
    .grace(20)
    .with("volumeMounts", mounts(&[("conf", "/conf")]))
    .spec("volumes", json!([{"name": "conf", "configMap": {"name": "conf"}}]));
    let items: Vec<Value> = [config_map("conf", json!({"word": "one"})), pod.to_json()]
        .iter()
        .map(|item| serde_json::from_str(item))
        .collect::<Result<_, _>>()?;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    node.manifests.put("together.json", list.to_string())?;
    let uid = node.wait_running("together")?.uid;
    let file = volume_dir(&node, &uid, "configmap", "conf").join("word");
    node.manifests.remove("together.json")?;
    node.wait_says(&["pods"], &["Terminating"])?;
    assert_eq!(fs::read_to_string(&file)?, "one", "its files stay while it ends");
    node.wait_no_trace("together", &uid)?;
    let events = node.klet_says(&["events"])?;
    assert!(events.contains("Killing"), "its end is told: {events}");
    assert!(!events.contains("FailedMount"), "{events}");
    let said = fs::read_to_string(node.klet.log_path())?;
    assert!(!said.contains("volume not ready"), "{}", node.klet.log_tail());
    Ok(())
}

/// CVE-2017-1002102: whoever can write into such a volume puts links there, for
/// the agent to follow when it writes or removes.
#[test]
fn links_in_a_volume_lead_nowhere() -> Result<()> {
    let node = Node::start()?;
    let precious = node.containerd.dir().join("precious");
    fs::create_dir_all(precious.join("dir"))?;
    fs::write(precious.join("word"), "precious")?;
    fs::write(precious.join("dir/word"), "precious")?;
    node.manifests.put("conf.json", config_map("conf", json!({"word": "one", "other": "x"})))?;
    let pod = PodManifest::script("victim", "exec sleep 1000")
        .with("volumeMounts", mounts(&[("conf", "/conf")]))
        .spec("volumes", json!([{"name": "conf", "configMap": {"name": "conf"}}]));
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("victim")?.uid;
    let dir = volume_dir(&node, &uid, "configmap", "conf");
    for name in ["..data", "word", "other"] {
        fs::remove_file(dir.join(name)).with_context(|| format!("no {name}"))?;
    }
    symlink(&precious, dir.join("..data"))?;
    symlink(&precious, dir.join("..data_tmp"))?;
    symlink(precious.join("word"), dir.join("word"))?;
    symlink(precious.join("dir"), dir.join("other"))?;
    symlink(&precious, dir.join("..2020_01_01_00_00_00.1"))?;
    let intact = || {
        let read = |name: &str| fs::read_to_string(precious.join(name)).unwrap_or_default();
        (read("word"), read("dir/word"), fs::read_dir(&precious).map_or(0, Iterator::count))
    };
    node.manifests.put("conf.json", config_map("conf", json!({"word": "two"})))?;
    wait_sees(&node, "victim", "cat /conf/word", "two")?;
    assert_eq!(intact(), ("precious".to_owned(), "precious".to_owned(), 2));
    fs::remove_file(dir.join("..data"))?;
    symlink(&precious, dir.join("..data"))?;
    node.manifests.remove_pod("victim")?;
    node.wait_no_trace("victim", &uid)?;
    assert_eq!(intact(), ("precious".to_owned(), "precious".to_owned(), 2));
    Ok(())
}

#[test]
fn a_pull_secret_opens_the_registry() -> Result<()> {
    let node = Node::start()?;
    let registry = Registry::start(node.containerd.dir(), true)?;
    let image = registry.push(&Image::pause(), "secret/app", "1")?;
    let logins = json!({"auths": {registry.host(): {"auth": registry::LOGIN_BASE64}}});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": logins.to_string()},
    });
    let pod = |name: &str| {
        PodManifest::pause(name)
            .with("image", json!(image))
            .with("imagePullPolicy", json!("Always"))
    };
    let owner = pod("owner").spec("imagePullSecrets", json!([{"name": "login"}]));
    node.manifests.put_pod(&owner)?;
    node.wait_says(&["events"], &["FailedToRetrieveImagePullSecret"])?;
    node.manifests.put("login.json", secret.to_string())?;
    node.wait_running("owner").with_context(|| registry.log_tail())?;
    let mut malformed = secret.clone();
    malformed["metadata"]["name"] = json!("malformed");
    malformed["stringData"][".dockerconfigjson"] = json!("hunter2");
    node.manifests.put("malformed.json", malformed.to_string())?;
    let names = json!([{"name": "login"}, {"name": "malformed"}]);
    node.manifests.put_pod(&pod("spoilt").spec("imagePullSecrets", names))?;
    let wanted = ["default/malformed: .dockerconfigjson: not a docker", "Correct the Secret"];
    let told = node.wait_says(&["why", "spoilt"], &wanted)?;
    ensure!(!told.contains("hunter2"), "the secret is told: {told}");
    node.wait_pod("spoilt", "to be refused", |pod| {
        pod.container("main").is_ok_and(|main| main.reason == "ErrImagePull")
    })?;
    node.manifests.put_pod(&pod("stranger"))?;
    node.wait_pod("stranger", "to be refused", |pod| {
        pod.container("main").is_ok_and(|main| main.reason.contains("ImagePull"))
    })?;
    Ok(())
}

/// What a pod is labelled with reaches its files, however they are projected.
#[test]
fn a_pod_that_changes_sees_it_in_projected_files() -> Result<()> {
    let mut node = Node::start()?;
    let about = json!({"downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "deep/note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
    ]}});
    let conf = json!({"configMap": {"name": "conf"}});
    let pod = |tier: &str, note: &str| {
        PodManifest::script("web", "exec sleep 1000")
            .uid("web-uid")
            .label("tier", tier)
            .annotation("note", note)
            .with("volumeMounts", mounts(&[("all", "/all")]))
            .spec("volumes", json!([{"name": "all", "projected": {"sources": [about, conf]}}]))
    };
    node.manifests.put("conf.json", config_map("conf", json!({"word": "one"})))?;
    node.manifests.put_pod(&pod("one", "first"))?;
    let uid = node.wait_running("web")?.uid;
    let before = node.instances()?;
    let sees =
        "cat /all/labels; echo; cat /all/deep/note; echo; cat /all/name; echo; cat /all/word";
    wait_sees(&node, "web", sees, "tier=\"one\"\nfirst\nweb-n1\none")?;
    node.manifests.put_pod(&pod("two", "second"))?;
    wait_sees(&node, "web", sees, "tier=\"two\"\nsecond\nweb-n1\none")?;
    node.survive_kill()?;
    wait_sees(&node, "web", sees, "tier=\"two\"\nsecond\nweb-n1\none")?;
    node.manifests.put_pod(&pod("three", "third"))?;
    wait_sees(&node, "web", sees, "tier=\"three\"\nthird\nweb-n1\none")?;

    // It changes while klet is away.
    node.klet.kill9()?;
    node.manifests.put_pod(&pod("four", "fourth"))?;
    node.klet.restart()?;
    wait_sees(&node, "web", sees, "tier=\"four\"\nfourth\nweb-n1\none")?;
    assert_eq!(node.instances()?, before, "nothing was started again");
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)
}

#[test]
fn the_examples_run() -> Result<()> {
    let mut node = Node::start()?;
    let names = ["config-map", "secret", "downward-api", "projected"];
    names.iter().try_for_each(|name| node.manifests.put_example(name, &[]))?;
    node.wait_word("config-map", "show", "color = blue")?;
    node.wait_word("secret", "show", "the token has 16 characters")?;
    node.wait_word("downward-api", "show", "app=\"downward-api\"")?;
    node.wait_word("projected", "show", "greeting name password")?;
    node.outlive_examples(&names, |node| {
        for (name, script, wanted) in [
            ("config-map", "cat /etc/app/app.conf", "color = blue\n"),
            ("secret", "cat /keys/token", "0123456789abcdef"),
            ("downward-api", "cat /about/memory", "32"),
            (
                "projected",
                "cat /all/greeting /all/name /all/password",
                "helloprojected-n1change me",
            ),
        ] {
            assert_eq!(node.run_in(name, "show", script)?, wanted, "{name}");
        }
        Ok(())
    })
}
