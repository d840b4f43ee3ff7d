//! Followers hear of their own objects, and of nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::FutureExt;
use kubelet_model::{ConfigObject, ObjectKey, ObjectKind, Source};

use super::{ObjectWatch, new};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::ConfigMap, "ns", name)
}

fn object(name: &str, value: &str) -> Arc<ConfigObject> {
    Arc::new(ConfigObject {
        key: key(name),
        uid: String::new(),
        secret_type: String::new(),
        data: BTreeMap::from([("k".to_owned(), value.into())]),
        binary: BTreeMap::new(),
    })
}

fn has_news(watch: &mut ObjectWatch) -> bool {
    watch.changed().now_or_never().is_some()
}

#[test]
fn only_changes_of_ones_own_objects_are_news() {
    let (writer, objects) = new();
    let mut a = objects.follow(BTreeSet::from([key("a"), key("absent")]));
    let mut b = objects.follow(BTreeSet::from([key("b")]));
    assert_eq!(objects.get(&key("a")), None);
    writer.replace(Source::File, &[object("a", "1"), object("b", "1"), object("b", "2")]);
    assert!(has_news(&mut a) && has_news(&mut b));
    assert_eq!(objects.get(&key("b")), Some(object("b", "1")), "the first counts");
    writer.replace(Source::File, &[object("a", "1"), object("b", "2")]);
    assert!(!has_news(&mut a) && has_news(&mut b), "the same again is no news");
    let hidden = writer.replace(Source::Http, &[object("a", "http"), object("c", "http")]);
    assert!(!has_news(&mut a), "the file's counts");
    assert_eq!(hidden, BTreeSet::from([(Source::Http, key("a"))]));
    let more = [object("a", "1"), object("b", "2"), object("c", "1")];
    let hidden = writer.replace(Source::File, &more);
    assert_eq!(hidden, BTreeSet::from([(Source::Http, key("a")), (Source::Http, key("c"))]));
    assert_eq!(writer.replace(Source::File, &[object("b", "2")]), BTreeSet::new());
    assert!(has_news(&mut a) && !has_news(&mut b));
    assert_eq!(objects.get(&key("a")), Some(object("a", "http")));
    writer.replace(Source::Http, &[]);
    assert!(has_news(&mut a));
    assert_eq!(objects.get(&key("a")), None);
}

#[test]
fn what_is_added_removes_nothing() {
    let (writer, objects) = new();
    writer.replace(Source::File, &[object("a", "1"), object("b", "1")]);
    let mut a = objects.follow(BTreeSet::from([key("a")]));
    writer.add(Source::File, &[object("b", "2"), object("c", "1"), object("c", "2")]);
    assert!(!has_news(&mut a));
    let values = ["a", "b", "c"].map(|name| objects.get(&key(name)));
    assert_eq!(values, [("a", "1"), ("b", "2"), ("c", "1")].map(|(n, v)| Some(object(n, v))));
}
