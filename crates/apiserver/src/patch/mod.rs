//! Patches: an object, what a client wants changed, and the object after it.
//!
//! Pure. Owns the three formats; never checks what the result means.
//! Upstream: apimachinery pkg/util/strategicpatch, apiserver endpoints/handlers/patch.go.

mod facts;
mod operations;
mod strategic;

use serde_json::Value;

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Merge patch that knows the keys of lists.
    Strategic,
}

impl Format {
    /// The format of a content type.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }
}

/// A patch that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is not a patch.
    #[error("the patch is not valid: {0}")]
    Unreadable(String),
    /// It does not fit the object: a test failed, or a path is absent.
    #[error("{0}")]
    Refused(String),
}

/// Applies a patch to an object of a kind.
///
/// # Errors
/// [`PatchError`].
pub fn apply(
    format: Format,
    kind: &str,
    object: &Value,
    patch: &Value,
) -> Result<Value, PatchError> {
    let mut result = object.clone();
    match format {
        Format::Json => operations::apply(&mut result, patch)?,
        Format::Merge | Format::Strategic if !patch.is_object() => {
            return Err(PatchError::Unreadable("it is not an object".to_owned()));
        }
        Format::Merge => json_patch::merge(&mut result, patch),
        Format::Strategic => result = strategic::merge(kind, object, patch)?,
    }
    Ok(result)
}

#[cfg(test)]
mod tests;
