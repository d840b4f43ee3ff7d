//! Where a value sits in the configuration: `logging.format`, `evictionHard[memory.available]`.
//!
//! Pure. A leaf is anything that is not a non-empty object; lists are leaves,
//! because layers replace them whole.

use std::fmt;

use serde_json::Value;

/// Keys from the root to a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// From a dotted path whose keys contain no dots.
    pub fn dotted(path: &str) -> Self {
        Self(path.split('.').map(str::to_owned).collect())
    }
    /// This path extended by a key.
    pub fn child(&self, key: &str) -> Self {
        let mut keys = self.0.clone();
        keys.push(key.to_owned());
        Self(keys)
    }
    /// Whether `self` is `other` or above it.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
    /// The value there, if any.
    pub fn get<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(root, |value, key| value.get(key))
    }
    /// Puts a value there, making objects on the way.
    pub fn set(&self, root: &mut Value, value: Value) {
        let mut place = root;
        for key in &self.0 {
            if !place.is_object() {
                *place = Value::Object(serde_json::Map::new());
            }
            let Value::Object(map) = place else { return };
            place = map.entry(key.as_str()).or_insert(Value::Null);
        }
        *place = value;
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in self.0.iter().enumerate() {
            if key.contains(['.', '/', '[']) {
                write!(f, "[{key}]")?;
            } else if index == 0 {
                f.write_str(key)?;
            } else {
                write!(f, ".{key}")?;
            }
        }
        Ok(())
    }
}

/// Every leaf of a tree, in order.
pub fn leaves(root: &Value) -> Vec<(FieldPath, &Value)> {
    fn walk<'a>(path: &FieldPath, value: &'a Value, out: &mut Vec<(FieldPath, &'a Value)>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, child) in map {
                    walk(&path.child(key), child, out);
                }
            }
            leaf => out.push((path.clone(), leaf)),
        }
    }
    let mut out = Vec::new();
    // The root itself is never a leaf: an empty tree has none.
    for (key, child) in root.as_object().into_iter().flatten() {
        walk(&FieldPath::default().child(key), child, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shows_keys_with_dots_in_brackets() {
        let tree = json!({"a": {"b": 1, "memory.available": "5%"}, "l": [1, 2], "e": {}});
        let shown: Vec<String> =
            leaves(&tree).iter().map(|(path, value)| format!("{path}={value}")).collect();
        assert_eq!(shown, ["a.b=1", "a[memory.available]=\"5%\"", "e={}", "l=[1,2]"]);
    }

    #[test]
    fn sets_and_gets() {
        let mut tree = json!({"a": 1});
        let path = FieldPath::dotted("a.b.c");
        path.set(&mut tree, json!(2));
        assert_eq!(path.get(&tree), Some(&json!(2)));
        assert!(FieldPath::dotted("a.b").contains(&path));
        assert!(!path.contains(&FieldPath::dotted("a.b")));
    }
}
