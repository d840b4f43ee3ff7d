//! Strategic merge patch.
//!
//! Pure. Maps are merged key by key, lists as `facts` says. Directives: `$patch`
//! with `delete`, `replace` and `merge`, `$retainKeys`, `$setElementOrder/…`,
//! `$deleteFromPrimitiveList/…`.
//! Upstream: apimachinery pkg/util/strategicpatch/patch.go.

use serde_json::{Map, Value};

use super::PatchError;
use super::facts::{self, List};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const REMOVE: &str = "$deleteFromPrimitiveList/";

/// Merges a patch into an object of a kind.
pub(super) fn merge(kind: &str, object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (Some(object), Some(patch)) = (object.as_object(), patch.as_object()) else {
        return Err(unreadable("it is not an object"));
    };
    Merge { kind }.maps("", object.clone(), patch).map(Value::Object)
}

fn unreadable(why: &str) -> PatchError {
    PatchError::Unreadable(why.to_owned())
}

struct Merge<'a> {
    kind: &'a str,
}

impl Merge<'_> {
    fn maps(
        &self,
        path: &str,
        mut object: Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<Map<String, Value>, PatchError> {
        match directive(patch)? {
            Some(Directive::Replace) => return Ok(without_directives(patch)),
            Some(Directive::Delete) => return Ok(Map::new()),
            Some(Directive::Merge) | None => {}
        }
        if let Some(retained) = patch.get(RETAIN) {
            let retained =
                retained.as_array().ok_or_else(|| unreadable("$retainKeys is no list"))?;
            object.retain(|key, _| retained.iter().any(|kept| kept == key));
        }
        for (key, value) in patch.iter().filter(|(key, _)| !is_directive(key)) {
            let below = join(path, key);
            let merged = match (object.remove(key), value) {
                (_, Value::Null) => continue,
                (Some(Value::Object(old)), Value::Object(new)) => {
                    Value::Object(self.maps(&below, old, new)?)
                }
                (Some(Value::Array(old)), Value::Array(new)) => {
                    Value::Array(self.lists(&below, old, new)?)
                }
                (_, Value::Object(new)) => Value::Object(self.maps(&below, Map::new(), new)?),
                (_, Value::Array(new)) => Value::Array(self.lists(&below, Vec::new(), new)?),
                (_, other) => other.clone(),
            };
            object.insert(key.clone(), merged);
        }
        self.remove_values(&mut object, patch)?;
        self.reorder(path, &mut object, patch)?;
        Ok(object)
    }

    fn lists(&self, path: &str, old: Vec<Value>, new: &[Value]) -> Result<Vec<Value>, PatchError> {
        match facts::list(self.kind, path) {
            List::Replaced => Ok(new.to_vec()),
            List::Values => {
                let mut merged = old;
                for value in new {
                    if !merged.contains(value) {
                        merged.push(value.clone());
                    }
                }
                Ok(merged)
            }
            List::Keyed(key) => self.keyed(path, key, old, new),
        }
    }

    fn keyed(
        &self,
        path: &str,
        key: &str,
        old: Vec<Value>,
        new: &[Value],
    ) -> Result<Vec<Value>, PatchError> {
        let is_replace = |item: &Value| item.get(PATCH).is_some_and(|word| word == "replace");
        if new.iter().any(is_replace) {
            return replaced(path, key, new);
        }
        let mut merged = old;
        for item in new {
            let Some(fields) = item.as_object() else {
                return Err(unreadable(&format!("an item of {path} is no object")));
            };
            let word = directive(fields)?;
            let fields = &without_directive(fields);
            let Some(id) = fields.get(key) else {
                return Err(unreadable(&format!("an item of {path} has no {key}")));
            };
            let position = merged.iter().position(|item| item.get(key) == Some(id));
            match (word, position) {
                (Some(Directive::Delete), _) => merged.retain(|item| item.get(key) != Some(id)),
                (_, Some(at)) => {
                    let before = merged[at].as_object().cloned().unwrap_or_default();
                    merged[at] = Value::Object(self.maps(path, before, fields)?);
                }
                (_, None) => merged.push(Value::Object(self.maps(path, Map::new(), fields)?)),
            }
        }
        Ok(merged)
    }

    fn remove_values(
        &self,
        object: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), PatchError> {
        for (key, value) in patch {
            let Some(field) = key.strip_prefix(REMOVE) else { continue };
            let gone = value.as_array().ok_or_else(|| unreadable(&format!("{key} is no list")))?;
            if let Some(Value::Array(items)) = object.get_mut(field) {
                items.retain(|item| !gone.contains(item));
            }
        }
        Ok(())
    }

    /// Items named by an order come in that order; others keep their place after the
    /// item they followed.
    fn reorder(
        &self,
        path: &str,
        object: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), PatchError> {
        for (key, value) in patch {
            let Some(field) = key.strip_prefix(ORDER) else { continue };
            let order = value.as_array().ok_or_else(|| unreadable(&format!("{key} is no list")))?;
            let Some(Value::Array(items)) = object.get_mut(field) else { continue };
            let by = match facts::list(self.kind, &join(path, field)) {
                List::Keyed(by) => Some(by),
                List::Values => None,
                List::Replaced => continue,
            };
            let id = |item: &Value| by.map_or_else(|| item.clone(), |by| item[by].clone());
            let order: Vec<Value> = order.iter().map(id).collect();
            *items = ordered(std::mem::take(items), &order, id);
        }
        Ok(())
    }
}

/// Other items of such a list are taken as they are; those with directives of their own
/// are not part of it.
fn replaced(path: &str, key: &str, new: &[Value]) -> Result<Vec<Value>, PatchError> {
    let mut items = Vec::new();
    for item in new {
        let Some(fields) = item.as_object() else {
            return Err(unreadable(&format!("an item of {path} is no object")));
        };
        match directive(fields)? {
            None => items.push(item.clone()),
            Some(Directive::Replace) => {}
            Some(Directive::Delete) if fields.contains_key(key) => {}
            Some(Directive::Delete) => {
                return Err(unreadable(&format!("an item of {path} has no {key}")));
            }
            Some(Directive::Merge) => {
                return Err(unreadable(&format!("an item of {path} wants to be merged")));
            }
        }
    }
    Ok(items)
}

fn ordered(items: Vec<Value>, order: &[Value], id: impl Fn(&Value) -> Value) -> Vec<Value> {
    let rank = |item: &Value| order.iter().position(|known| *known == id(item));
    let mut places: Vec<(usize, usize, Value)> = Vec::new();
    let mut last = 0;
    for (index, item) in items.into_iter().enumerate() {
        // An item the order does not know stays with the one before it.
        last = rank(&item).map_or(last, |rank| rank + 1);
        places.push((last, index, item));
    }
    places.sort_by_key(|(rank, index, _)| (*rank, *index));
    places.into_iter().map(|(_, _, item)| item).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Delete,
    Replace,
    Merge,
}

fn directive(patch: &Map<String, Value>) -> Result<Option<Directive>, PatchError> {
    match patch.get(PATCH).map(Value::as_str) {
        None => Ok(None),
        Some(Some("delete")) => Ok(Some(Directive::Delete)),
        Some(Some("replace")) => Ok(Some(Directive::Replace)),
        Some(Some("merge")) => Ok(Some(Directive::Merge)),
        Some(_) => Err(unreadable("$patch is none of delete, replace and merge")),
    }
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN || key.starts_with(ORDER) || key.starts_with(REMOVE)
}

fn without_directive(patch: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = patch.clone();
    fields.remove(PATCH);
    fields
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = patch.clone();
    fields.retain(|key, value| !is_directive(key) && !value.is_null());
    fields
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
