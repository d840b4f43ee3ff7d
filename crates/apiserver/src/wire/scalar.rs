//! Values that JSON writes as text or numbers.
//!
//! Pure. Upstream: the Marshal functions of resource.Quantity, intstr.IntOrString,
//! metav1.Time and MicroTime.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::WireError;
use super::facts::Kind;
use super::varint::{Piece, pieces};

pub(super) fn text(bytes: &[u8]) -> Result<String, WireError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| WireError::Broken)
}

/// What an entry of a map is that leaves its value out.
pub(super) fn zero(kind: &Kind) -> Value {
    match kind {
        Kind::Text | Kind::Bytes | Kind::Quantity => Value::String(String::new()),
        Kind::Boolean => Value::Bool(false),
        Kind::Integer | Kind::Double => 0.into(),
        Kind::Texts => Value::Array(Vec::new()),
        Kind::Message(_) => Value::Object(Map::new()),
        Kind::IntOrString | Kind::Time | Kind::MicroTime | Kind::Raw => Value::Null,
    }
}

/// A value; none if the piece is not of this type.
pub(super) fn value(kind: &Kind, piece: &Piece<'_>) -> Result<Option<Value>, WireError> {
    let (bytes, number) = (piece.bytes(), piece.number());
    Ok(match kind {
        Kind::Text => bytes.map(text).transpose()?.map(Value::String),
        Kind::Bytes => bytes.map(|bytes| STANDARD.encode(bytes).into()),
        Kind::Boolean => number.map(|number| Value::Bool(number != 0)),
        // Negative numbers are sign-extended to 64 bits.
        Kind::Integer => number.map(|number| number.cast_signed().into()),
        Kind::Double => match piece {
            Piece::Eight(eight) => Some(f64::from_le_bytes(*eight).into()),
            _ => None,
        },
        Kind::Quantity => bytes.map(quantity).transpose()?,
        Kind::IntOrString => bytes.map(int_or_string).transpose()?,
        Kind::Time => bytes.map(|bytes| time(bytes, "%Y-%m-%dT%H:%M:%SZ")).transpose()?,
        Kind::MicroTime => bytes.map(|bytes| time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")).transpose()?,
        Kind::Raw => bytes.map(raw).transpose()?,
        Kind::Texts => bytes.map(texts).transpose()?,
        Kind::Message(_) => None,
    })
}

fn quantity(bytes: &[u8]) -> Result<Value, WireError> {
    let mut found = "0".to_owned();
    for piece in pieces(bytes) {
        if let (1, Piece::Bytes(bytes)) = piece? {
            found = text(bytes)?;
        }
    }
    Ok(found.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, WireError> {
    let (mut is_text, mut number, mut words) = (false, 0, String::new());
    for piece in pieces(bytes) {
        match piece? {
            (1, Piece::Number(kind)) => is_text = kind == 1,
            (2, Piece::Number(value)) => number = value.cast_signed(),
            (3, Piece::Bytes(bytes)) => words = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { words.into() } else { number.into() })
}

/// Nothing at all is no time.
fn time(bytes: &[u8], format: &str) -> Result<Value, WireError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for piece in pieces(bytes) {
        match piece? {
            (1, Piece::Number(value)) => seconds = value.cast_signed(),
            (2, Piece::Number(value)) => {
                nanos = i32::try_from(value).map_err(|_| WireError::Broken)?;
            }
            _ => {}
        }
    }
    let time = Timestamp::new(seconds, nanos).map_err(|_| WireError::Broken)?;
    Ok(time.strftime(format).to_string().into())
}

fn raw(bytes: &[u8]) -> Result<Value, WireError> {
    for piece in pieces(bytes) {
        if let (1, Piece::Bytes(json)) = piece? {
            return serde_json::from_slice(json).map_err(|_| WireError::Broken);
        }
    }
    Ok(Value::Null)
}

fn texts(bytes: &[u8]) -> Result<Value, WireError> {
    let mut found = Vec::new();
    for piece in pieces(bytes) {
        if let (1, Piece::Bytes(bytes)) = piece? {
            found.push(Value::String(text(bytes)?));
        }
    }
    Ok(found.into())
}
