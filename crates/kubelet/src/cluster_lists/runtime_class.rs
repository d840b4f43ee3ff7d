//! What a pod needs of a RuntimeClass: the name of its handler.

use serde_json::Value;

pub(super) fn read(class: &Value) -> Option<String> {
    class["handler"].as_str().map(str::to_owned)
}
