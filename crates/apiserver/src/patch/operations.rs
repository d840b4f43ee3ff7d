//! JSON patch (RFC 6902), within limits.
//!
//! Pure. Copies of copies grow without end, in bytes and in depth, so both are
//! bounded before an operation is performed.
//! Upstream: apiserver pkg/endpoints/handlers/patch.go (maxJSONPatchOperations),
//! JSONPatchMaxCopyBytes.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::PatchError;

/// Operations of one patch; upstream's limit.
const OPERATIONS: usize = 10_000;
/// Bytes that one patch may copy; upstream's limit.
const COPIED: usize = 3 * 1024 * 1024;
/// Levels of a path, and of what is copied or moved; objects have about twenty.
const DEPTH: usize = 64;

/// Performs the operations of a patch in turn.
pub(super) fn apply(object: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let patch: Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::Unreadable(error.to_string()))?;
    if patch.len() > OPERATIONS {
        return Err(PatchError::Unreadable(format!("more than {OPERATIONS} operations")));
    }
    let mut copied = 0;
    for operation in patch.iter() {
        if operation.path().count() > DEPTH {
            return Err(refused("a path is too deep"));
        }
        let from = match operation {
            PatchOperation::Copy(copy) => object.pointer(copy.from.as_str()),
            PatchOperation::Move(moved) => object.pointer(moved.from.as_str()),
            _ => None,
        };
        if let Some(value) = from {
            if is_deeper(value, DEPTH) {
                return Err(refused("what is copied or moved is too deep"));
            }
            if matches!(operation, PatchOperation::Copy(_)) {
                copied += value.to_string().len();
            }
        }
        if copied > COPIED {
            return Err(refused("more is copied than is allowed"));
        }
        json_patch::patch(object, std::slice::from_ref(operation))
            .map_err(|error| refused(&error.to_string()))?;
    }
    Ok(())
}

fn refused(why: &str) -> PatchError {
    PatchError::Refused(why.to_owned())
}

fn is_deeper(value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, depth)),
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, depth)),
        _ => false,
    }
}
