//! Which pod and which container the user means. Pure.

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use kubelet::server::local::wire::PodsAnswer;

/// A pod's namespace and name as given: `NAMESPACE/NAME`, or `NAME` and `-n`.
pub fn split<'a>(
    pod: &'a str,
    namespace: Option<&'a str>,
) -> anyhow::Result<(Option<&'a str>, &'a str)> {
    let (inner, name) = match pod.split_once('/') {
        Some((inner, name)) => (Some(inner), name),
        None => (None, pod),
    };
    let legal = |text: &str| {
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
        !text.is_empty() && text.bytes().all(letter)
    };
    if !legal(name) || !inner.or(namespace).is_none_or(legal) {
        bail!("{pod:?} is not a pod's name; give NAME or NAMESPACE/NAME");
    }
    match (inner, namespace) {
        (Some(a), Some(b)) if a != b => bail!("{pod:?} says namespace {a:?}, but -n says {b:?}"),
        _ => Ok((inner.or(namespace), name)),
    }
}

/// The pod the user means.
pub fn find<'a>(
    pods: &'a PodsAnswer,
    pod: &str,
    namespace: Option<&str>,
) -> anyhow::Result<&'a Pod> {
    let (namespace, name) = split(pod, namespace)?;
    let suffixed = format!("{name}-{}", pods.node);
    let inside = |one: &&Pod| namespace.is_none() || one.metadata.namespace.as_deref() == namespace;
    let named = |wanted: &str| -> Vec<&'a Pod> {
        // One that ends may have a successor of its name, which is then meant.
        let (ending, other): (Vec<_>, Vec<_>) = pods.items.iter().partition(|item| item.ending);
        let all = other.into_iter().chain(ending).map(|item| &item.pod);
        let named = all.filter(inside).filter(|one| one.metadata.name.as_deref() == Some(wanted));
        let mut found: Vec<&Pod> = Vec::new();
        for one in named {
            if found.iter().all(|known| full_name(known) != full_name(one)) {
                found.push(one);
            }
        }
        found
    };
    let mut found = named(name);
    if found.is_empty() {
        found = named(&suffixed);
    }
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(absent(pods, pod)),
        several => {
            let names: Vec<_> = several.iter().map(|one| full_name(one)).collect();
            Err(anyhow!("{pod:?} can be {}; say which", names.join(" or ")))
        }
    }
}

fn absent(pods: &PodsAnswer, pod: &str) -> anyhow::Error {
    let names: Vec<String> = pods.items.iter().map(|item| full_name(&item.pod)).collect();
    match names.len() {
        0 => anyhow!(
            "there is no pod {pod:?}: this node has no pods at all; put a manifest into its manifest directory"
        ),
        1..=8 => anyhow!("there is no pod {pod:?} on this node; there are {}", names.join(", ")),
        many => anyhow!(
            "there is no pod {pod:?} among the {many} of this node; `klet pods -A` lists them"
        ),
    }
}

/// `namespace/name`.
pub fn full_name(pod: &Pod) -> String {
    format!("{}/{}", namespace(pod), name(pod))
}

/// A pod's name.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// A pod's namespace.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// The container the user means: the one named, or the only one.
pub fn container<'a>(pod: &'a Pod, wanted: Option<&str>) -> anyhow::Result<&'a str> {
    let Some(spec) = &pod.spec else { bail!("{} has no containers", full_name(pod)) };
    let main: Vec<&str> = spec.containers.iter().map(|one| one.name.as_str()).collect();
    let init = spec.init_containers.iter().flatten().map(|one| one.name.as_str());
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|one| one.name.as_str());
    let all: Vec<&str> = main.iter().copied().chain(init).chain(ephemeral).collect();
    match wanted {
        Some(wanted) => all.iter().find(|name| **name == wanted).copied().ok_or_else(|| {
            anyhow!("{} has no container {wanted:?}; it has {}", full_name(pod), all.join(", "))
        }),
        None => {
            let annotations = pod.metadata.annotations.as_ref();
            let default =
                annotations.and_then(|all| all.get("kubectl.kubernetes.io/default-container"));
            let default = default.and_then(|name| main.iter().find(|one| *one == name)).copied();
            match (default, main.as_slice()) {
                (Some(name), _) => Ok(name),
                (None, [name]) => Ok(*name),
                _ => bail!(
                    "{} has several containers; name one with -c: {}",
                    full_name(pod),
                    all.join(", ")
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubelet::server::local::wire::PodItem;

    fn pod(namespace: &str, name: &str, containers: &[&str]) -> Pod {
        let containers: Vec<_> =
            containers.iter().map(|n| serde_json::json!({"name": n})).collect();
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": namespace}, "spec": {"containers": containers},
        }))
        .unwrap()
    }

    fn pods() -> PodsAnswer {
        let names = [("default", "web-n1"), ("a", "db-n1"), ("b", "db-n1"), ("a", "web")];
        let items = names.map(|(ns, name)| PodItem {
            pod: pod(ns, name, &["c"]),
            doing: Vec::new(),
            in_flight: Vec::new(),
            pull: None,
            ending: false,
        });
        PodsAnswer { node: "n1".into(), now: jiff::Timestamp::UNIX_EPOCH, items: items.into() }
    }

    #[test]
    fn a_pod_has_several_names() {
        let pods = pods();
        let found = |given: &str, ns: Option<&str>| {
            find(&pods, given, ns).map(full_name).map_err(|e| e.to_string())
        };
        assert_eq!(found("web-n1", None).unwrap(), "default/web-n1");
        assert_eq!(found("web", None).unwrap(), "a/web", "an exact name goes first");
        assert_eq!(found("default/web", None).unwrap(), "default/web-n1");
        assert_eq!(found("db", Some("b")).unwrap(), "b/db-n1");
        assert!(found("db", None).unwrap_err().contains("a/db-n1 or b/db-n1"));
        assert!(found("nope", None).unwrap_err().contains("default/web-n1"));
        assert!(found("a/db", Some("b")).unwrap_err().contains("-n says"));
        assert!(
            found("../x", None).is_err() && found("a b", None).is_err() && found("", None).is_err()
        );
    }

    #[test]
    fn of_two_with_one_name_the_one_that_stays_is_meant() {
        let mut pods = pods();
        pods.items.truncate(1);
        let mut next = pods.items[0].clone();
        next.pod.metadata.uid = Some("next".to_owned());
        pods.items[0].ending = true;
        assert!(find(&pods, "web", None).unwrap().metadata.uid.is_none(), "there is no other");
        pods.items.push(next);
        let found = find(&pods, "web", None).unwrap();
        assert_eq!(found.metadata.uid.as_deref(), Some("next"));
    }

    #[test]
    fn the_container_is_needed_only_in_doubt() {
        let (one, two) = (pod("a", "p", &["c"]), pod("a", "p", &["c", "d"]));
        assert_eq!(container(&one, None).unwrap(), "c");
        assert!(container(&two, None).unwrap_err().to_string().contains("c, d"));
        assert_eq!(container(&two, Some("d")).unwrap(), "d");
        assert!(container(&two, Some("e")).unwrap_err().to_string().contains("no container \"e\""));
    }
}
