//! What CSINode and Node are to say of the drivers on a node. Pure.
//!
//! Objects stay JSON, so that fields of others survive. Upstream:
//! pkg/volume/csi/nodeinfomanager.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// How drivers know the node, on its Node object.
pub(super) const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// Kinds of volumes that CSI drivers serve in place of code in the kubelet: none, because
/// nothing here translates them, so nothing may say that this node mounts them. Another
/// agent may have said so.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// What a driver says of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// How it knows the node.
    pub node_id: String,
    /// How many volumes it can attach here; zero or less if it does not say.
    pub volumes_max: i64,
    /// Where the node is, as it sees it.
    pub topology: BTreeMap<String, String>,
}

/// Why objects cannot say it; in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsayable {
    /// It does not say how it knows the node.
    #[error("error adding CSI driver node info: driverNodeID must not be empty")]
    NoNodeId,
    /// The Node's annotation is no map.
    #[error("failed to parse node's {NODE_ID:?} annotation value ({0:?})")]
    Annotation(String),
    /// Somebody else says that the node is elsewhere.
    #[error(
        "detected topology value collision: driver reported {key:?}:{reported:?} but existing \
         label is {key:?}:{existing:?}"
    )]
    Collision { key: String, reported: String, existing: String },
}

/// The CSINode of a node without drivers.
pub(super) fn fresh(node: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": node,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
        },
        "spec": {"drivers": []},
    })
}

/// Is it the node's own?
///
/// # Errors
/// The uid of the Node whose it is.
pub(super) fn check_owner(csi_node: &Value, node: &str, uid: &str) -> Result<(), String> {
    let owners = csi_node.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let mut other = String::new();
    for owner in owners.into_iter().flatten().filter(|owner| owner["kind"] == "Node") {
        other = owner["uid"].as_str().unwrap_or_default().to_owned();
        if owner["name"] == node && other == uid {
            return Ok(());
        }
    }
    Err(other)
}

/// The CSINode without kinds that nobody here has drivers serve; `None` if it names none.
pub(super) fn without_migrated(csi_node: &Value) -> Option<Value> {
    csi_node.pointer("/metadata/annotations")?.get(MIGRATED)?;
    let mut new = csi_node.clone();
    let annotations = new.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    annotations?.remove(MIGRATED);
    Some(new)
}

/// The CSINode with a driver, as the last; `None` if it says the same already.
pub(super) fn with_driver(csi_node: &Value, driver: &Driver) -> Option<Value> {
    let annotated = without_migrated(csi_node);
    let (mut all, old) = split(csi_node, &driver.name);
    let same = old.is_some_and(|old| says(&old, driver));
    if same && annotated.is_none() {
        return None;
    }
    let keys: Vec<&String> = driver.topology.keys().collect();
    let mut entry = json!({"name": driver.name, "nodeID": driver.node_id, "topologyKeys": keys});
    if let Some(count) = count(driver) {
        entry["allocatable"] = json!({"count": count});
    }
    all.push(entry);
    Some(with_list(&annotated.unwrap_or_else(|| csi_node.clone()), all))
}

/// The CSINode without a driver; `None` if it has none of that name.
pub(super) fn without_driver(csi_node: &Value, name: &str) -> Option<Value> {
    let (rest, old) = split(csi_node, name);
    old.map(|_| with_list(csi_node, rest))
}

/// What is to change of a Node that has a driver; `None` if it says so already.
pub(super) fn node_with(node: &Value, driver: &Driver) -> Result<Option<Value>, Unsayable> {
    if driver.node_id.is_empty() {
        return Err(Unsayable::NoNodeId);
    }
    let mut ids = node_ids(node)?;
    let mut metadata = Map::new();
    if ids.get(&driver.name) != Some(&driver.node_id) {
        ids.insert(driver.name.clone(), driver.node_id.clone());
        metadata.insert("annotations".to_owned(), json!({NODE_ID: json!(ids).to_string()}));
    }
    let labels = node.pointer("/metadata/labels");
    let mut news = Map::new();
    for (key, reported) in &driver.topology {
        match labels.and_then(|labels| labels.get(key)).and_then(Value::as_str) {
            Some(existing) if existing != reported => {
                let (key, reported) = (key.clone(), reported.clone());
                let existing = existing.to_owned();
                return Err(Unsayable::Collision { key, reported, existing });
            }
            Some(_) => {}
            None => drop(news.insert(key.clone(), reported.as_str().into())),
        }
    }
    if !news.is_empty() {
        metadata.insert("labels".to_owned(), news.into());
    }
    Ok((!metadata.is_empty()).then(|| json!({"metadata": metadata})))
}

/// What is to change of a Node that a driver has left; `None` if it says nothing of it.
/// Where the node is does not change with that.
pub(super) fn node_without(node: &Value, name: &str) -> Result<Option<Value>, Unsayable> {
    let mut ids = node_ids(node)?;
    if ids.remove(name).is_none() {
        return Ok(None);
    }
    let value = if ids.is_empty() { Value::Null } else { json!(ids).to_string().into() };
    Ok(Some(json!({"metadata": {"annotations": {NODE_ID: value}}})))
}

fn node_ids(node: &Value) -> Result<BTreeMap<String, String>, Unsayable> {
    let all = node.pointer("/metadata/annotations").and_then(|all| all.get(NODE_ID));
    match all.and_then(Value::as_str).unwrap_or_default() {
        "" => Ok(BTreeMap::new()),
        text => {
            let ids = serde_json::from_str::<Option<BTreeMap<String, String>>>(text);
            let ids = ids.map_err(|_| Unsayable::Annotation(text.to_owned()))?;
            Ok(ids.unwrap_or_default())
        }
    }
}

/// Does an entry say this of a driver?
fn says(entry: &Value, driver: &Driver) -> bool {
    let keys = entry["topologyKeys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let keys: BTreeSet<&str> = keys.collect();
    let wanted: BTreeSet<&str> = driver.topology.keys().map(String::as_str).collect();
    let said = entry.pointer("/allocatable/count").and_then(Value::as_i64);
    entry["nodeID"] == driver.node_id.as_str()
        && keys == wanted
        && said == count(driver).map(i64::from)
}

/// As large as the field can tell.
fn count(driver: &Driver) -> Option<i32> {
    let max = driver.volumes_max;
    (max > 0).then(|| i32::try_from(max).unwrap_or(i32::MAX))
}

/// The other drivers, and the entry of this one.
fn split(csi_node: &Value, name: &str) -> (Vec<Value>, Option<Value>) {
    let all = csi_node.pointer("/spec/drivers").and_then(Value::as_array).cloned();
    let (mut own, rest): (Vec<Value>, Vec<Value>) =
        all.unwrap_or_default().into_iter().partition(|driver| driver["name"] == name);
    (rest, own.pop())
}

fn with_list(csi_node: &Value, drivers: Vec<Value>) -> Value {
    let mut new = csi_node.clone();
    if !new["spec"].is_object() {
        new["spec"] = json!({});
    }
    new["spec"]["drivers"] = drivers.into();
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(name: &str, max: i64, topology: &[(&str, &str)]) -> Driver {
        let pairs = topology.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let (name, node_id) = (name.to_owned(), format!("id-{name}"));
        Driver { name, node_id, volumes_max: max, topology: pairs.collect() }
    }

    #[test]
    fn drivers_come_and_go() {
        let none = fresh("n", "u");
        assert_eq!(check_owner(&none, "n", "u"), Ok(()));
        assert_eq!(check_owner(&none, "n", "v"), Err("u".to_owned()));
        assert_eq!(check_owner(&none, "m", "u"), Err("u".to_owned()));
        assert_eq!(check_owner(&json!({}), "n", "u"), Err(String::new()));
        let first = driver("a", 7, &[("zone", "z"), ("rack", "r")]);
        let one = with_driver(&none, &first).unwrap();
        assert_eq!(
            one["spec"]["drivers"],
            json!([{"name": "a", "nodeID": "id-a", "topologyKeys": ["rack", "zone"],
                "allocatable": {"count": 7}}])
        );
        assert_eq!(with_driver(&one, &first), None, "it says so already");
        let two = with_driver(&one, &driver("b", i64::MAX, &[])).unwrap();
        assert_eq!(two["spec"]["drivers"][1]["allocatable"]["count"], i32::MAX);
        let changed = with_driver(&two, &driver("a", 0, &[])).unwrap();
        let names: Vec<&Value> =
            changed["spec"]["drivers"].as_array().unwrap().iter().map(|d| &d["name"]).collect();
        assert_eq!(names, ["b", "a"]);
        assert!(changed["spec"]["drivers"][1].get("allocatable").is_none());
        let gone = without_driver(&changed, "b").unwrap();
        assert_eq!(gone["spec"]["drivers"].as_array().unwrap().len(), 1);
        assert_eq!(without_driver(&gone, "b"), None);
    }

    #[test]
    fn no_kinds_are_said_to_be_served_by_drivers() {
        assert_eq!(without_migrated(&fresh("n", "u")), None);
        assert_eq!(without_migrated(&json!({"metadata": {"name": "n"}})), None);
        let said =
            json!({"metadata": {"annotations": {MIGRATED: "kubernetes.io/cinder", "x": "y"}}});
        let new = without_migrated(&said).unwrap();
        assert_eq!(new, json!({"metadata": {"annotations": {"x": "y"}}}));
        assert_eq!(without_migrated(&new), None);
        let both = with_driver(&said, &driver("a", 0, &[])).unwrap();
        assert_eq!(both["metadata"], new["metadata"]);
        let odd = json!({"metadata": {"annotations": "x"}, "spec": []});
        assert!(with_driver(&odd, &driver("a", 0, &[])).is_some());
    }

    #[test]
    fn the_node_tells_ids_and_places() {
        let first = driver("a", 0, &[("zone", "z")]);
        let node = json!({"metadata": {"labels": {"x": "y"}}});
        let patch = node_with(&node, &first).unwrap().unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"annotations": {NODE_ID: r#"{"a":"id-a"}"#},
                "labels": {"zone": "z"}}})
        );
        assert_eq!(node_with(&patch, &first), Ok(None));
        let both = node_with(&patch, &driver("b", 0, &[])).unwrap().unwrap();
        assert_eq!(both["metadata"]["annotations"][NODE_ID], r#"{"a":"id-a","b":"id-b"}"#);
        let error = node_with(&patch, &driver("a", 0, &[("zone", "w")])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "detected topology value collision: driver reported \"zone\":\"w\" but existing label \
             is \"zone\":\"z\""
        );
        let silent = Driver { node_id: String::new(), ..first };
        assert_eq!(node_with(&node, &silent), Err(Unsayable::NoNodeId));
        let gone = node_without(&both, "a").unwrap().unwrap();
        assert_eq!(gone["metadata"]["annotations"][NODE_ID], r#"{"b":"id-b"}"#);
        let last = node_without(&gone, "b").unwrap().unwrap();
        assert_eq!(last["metadata"]["annotations"][NODE_ID], Value::Null);
        assert_eq!(node_without(&json!({}), "a"), Ok(None));
        let odd = json!({"metadata": {"annotations": {NODE_ID: "["}}});
        assert!(matches!(node_without(&odd, "a"), Err(Unsayable::Annotation(_))));
    }
}
