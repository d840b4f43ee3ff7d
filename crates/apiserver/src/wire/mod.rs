//! Objects that clients send as protobuf, read as if they had been sent as JSON.
//!
//! Pure. Clients made with Go prefer this form for the kinds they know; answers
//! are JSON, which all of them take. `facts.txt` says what messages look like.
//! Upstream: apimachinery pkg/runtime/serializer/protobuf.

mod facts;
mod scalar;
mod varint;

use serde_json::{Map, Value};

use facts::{Field, Kind, Message, Shape};
use varint::{Piece, pieces};

/// Content type of this form.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body in this form starts with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages inside messages; the deepest kinds have about fifteen.
const DEPTH: usize = 40;

/// A body that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It does not start as bodies of this form do.
    #[error("the body does not start as Kubernetes protobuf does")]
    Magic,
    /// It breaks off, or has numbers that cannot be.
    #[error("the body is not protobuf")]
    Broken,
    /// It is an object of another kind than those known here.
    #[error("objects of kind {kind:?} in {api_version:?} are not read as protobuf here: send JSON")]
    Unknown {
        /// Its apiVersion.
        api_version: String,
        /// Its kind.
        kind: String,
    },
    /// A field has another type than its kind says.
    #[error("field {field:?} of {message} has a wrong type")]
    Type {
        /// The message.
        message: String,
        /// The field.
        field: String,
    },
}

/// Reads a body: an envelope that names the kind, and the object in it.
///
/// # Errors
/// [`WireError`].
pub fn decode(body: &[u8]) -> Result<Value, WireError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(WireError::Magic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for piece in pieces(envelope) {
        match piece? {
            (1, Piece::Bytes(meta)) => {
                for piece in pieces(meta) {
                    match piece? {
                        (1, Piece::Bytes(text)) => api_version = scalar::text(text)?,
                        (2, Piece::Bytes(text)) => kind = scalar::text(text)?,
                        _ => {}
                    }
                }
            }
            (2, Piece::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let unknown = || WireError::Unknown { api_version: api_version.clone(), kind: kind.clone() };
    let message = facts::of_kind(&api_version, &kind).ok_or_else(unknown)?;
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    read(message, raw, DEPTH, &mut object)?;
    Ok(Value::Object(object))
}

/// Reads a message's fields into an object.
fn read(
    message: &Message,
    bytes: &[u8],
    depth: usize,
    into: &mut Map<String, Value>,
) -> Result<(), WireError> {
    let depth = depth.checked_sub(1).ok_or(WireError::Broken)?;
    for piece in pieces(bytes) {
        let (number, piece) = piece?;
        // A field of a later version; JSON's reader would leave it out too.
        let Some(field) = message.field(number) else { continue };
        let wrong =
            || WireError::Type { message: message.name.to_owned(), field: field.name.to_owned() };
        if field.is_inline() {
            let inner = field.message().ok_or_else(wrong)?;
            read(inner, piece.bytes().ok_or_else(wrong)?, depth, into)?;
            continue;
        }
        match field.shape {
            Shape::One => {
                let value = value(field, &piece, depth)?.ok_or_else(wrong)?;
                if !value.is_null() && (field.keeps_zero || !is_zero(&value)) {
                    into.insert(field.name.to_owned(), value);
                }
            }
            Shape::Many => {
                let value = value(field, &piece, depth)?.ok_or_else(wrong)?;
                let list = into.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut().ok_or_else(wrong)?.push(value);
            }
            Shape::Map => {
                let entry = piece.bytes().ok_or_else(wrong)?;
                let (key, value) = entry_of(field, entry, depth)?.ok_or_else(wrong)?;
                let map = into.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                map.as_object_mut().ok_or_else(wrong)?.insert(key, value);
            }
        }
    }
    Ok(())
}

fn entry_of(
    field: &Field,
    entry: &[u8],
    depth: usize,
) -> Result<Option<(String, Value)>, WireError> {
    let (mut key, mut found) = (String::new(), scalar::zero(&field.kind));
    for piece in pieces(entry) {
        match piece? {
            (1, Piece::Bytes(text)) => key = scalar::text(text)?,
            (2, piece) => match value(field, &piece, depth)? {
                Some(value) => found = value,
                None => return Ok(None),
            },
            _ => {}
        }
    }
    Ok(Some((key, found)))
}

/// One value; none if the piece is not of the field's type.
fn value(field: &Field, piece: &Piece<'_>, depth: usize) -> Result<Option<Value>, WireError> {
    if let Kind::Message(_) = field.kind {
        let (Some(inner), Some(bytes)) = (field.message(), piece.bytes()) else { return Ok(None) };
        let mut object = Map::new();
        read(inner, bytes, depth, &mut object)?;
        return Ok(Some(Value::Object(object)));
    }
    scalar::value(&field.kind, piece)
}

/// What Go leaves out of JSON when it is not a pointer.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
