//! The outer form of protobuf: numbered pieces.
//!
//! Pure. Every length is checked against what is there.

use super::WireError;

/// One piece of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A number.
    Number(u64),
    /// Eight bytes.
    Eight([u8; 8]),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> Piece<'a> {
    pub(super) fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// The pieces of a message with their numbers; ends after the first that is broken.
pub(super) fn pieces(bytes: &[u8]) -> impl Iterator<Item = Result<(u32, Piece<'_>), WireError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let piece = next(&mut rest).ok_or(WireError::Broken);
        if piece.is_err() {
            rest = &[];
        }
        Some(piece)
    })
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<(u32, Piece<'a>)> {
    let tag = varint(rest)?;
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
    let piece = match tag & 7 {
        0 => Piece::Number(varint(rest)?),
        1 => {
            let (eight, after) = rest.split_first_chunk()?;
            *rest = after;
            Piece::Eight(*eight)
        }
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            Piece::Bytes(bytes)
        }
        // Groups and four-byte numbers occur in no message of the API.
        _ => return None,
    };
    Some((number, piece))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..70).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        // The tenth byte has room for one bit.
        if shift == 63 && *byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
