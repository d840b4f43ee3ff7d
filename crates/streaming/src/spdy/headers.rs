//! Header blocks: names and values, compressed with a state that lasts as long
//! as the connection.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::SpdyError;
use super::dictionary::dictionary;

/// Names and values. Names are in lower case.
pub type Headers = Vec<(String, String)>;

/// Largest block once it is unpacked: room for far more than streams' headers have.
const BLOCK_MAX: usize = 64 << 10;

/// Packs header blocks.
pub(super) struct Packer(Compress);

impl Packer {
    pub(super) fn new() -> Self {
        let mut state = Compress::new(Compression::default(), true);
        // It fails only in the midst of a stream.
        let _ = state.set_dictionary(&dictionary());
        Self(state)
    }

    pub(super) fn pack(&mut self, headers: &[(String, String)]) -> Vec<u8> {
        let mut block = Vec::new();
        put_length(&mut block, headers.len());
        for (name, value) in headers {
            for text in [&name.to_ascii_lowercase(), value] {
                put_length(&mut block, text.len());
                block.extend(text.as_bytes());
            }
        }
        let (mut packed, begin) = (Vec::new(), self.0.total_in());
        loop {
            packed.reserve(block.len() + 64);
            let done = usize::try_from(self.0.total_in() - begin).unwrap_or(usize::MAX);
            let rest = block.get(done..).unwrap_or_default();
            // It fails only when it was told to finish before.
            let _ = self.0.compress_vec(rest, &mut packed, FlushCompress::Sync);
            if packed.len() < packed.capacity() {
                return packed;
            }
        }
    }
}

fn put_length(block: &mut Vec<u8>, length: usize) {
    block.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

/// Unpacks header blocks.
pub(super) struct Unpacker(Decompress);

impl Unpacker {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    pub(super) fn unpack(&mut self, packed: &[u8]) -> Result<Headers, SpdyError> {
        let (mut block, begin) = (Vec::new(), self.0.total_in());
        loop {
            if block.len() >= BLOCK_MAX {
                return Err(SpdyError::Headers("is too large"));
            }
            block.reserve(4 << 10);
            let done = usize::try_from(self.0.total_in() - begin).unwrap_or(usize::MAX);
            let rest = packed.get(done..).unwrap_or_default();
            let before = (self.0.total_in(), self.0.total_out());
            match self.0.decompress_vec(rest, &mut block, FlushDecompress::Sync) {
                Ok(Status::StreamEnd) => return Err(SpdyError::Headers("ends all others")),
                Ok(_) if block.len() == block.capacity() => {}
                Ok(_) if before == (self.0.total_in(), self.0.total_out()) => break,
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    let known = self.0.set_dictionary(&dictionary());
                    known.map_err(|_| SpdyError::Headers("wants an unknown dictionary"))?;
                }
                Err(_) => return Err(SpdyError::Headers("is not compressed as it must be")),
            }
        }
        parse(&block)
    }
}

fn parse(block: &[u8]) -> Result<Headers, SpdyError> {
    let mut rest = block;
    let count = take_length(&mut rest)?;
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = take_text(&mut rest)?;
        if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(SpdyError::Headers("has a name that is empty or not in lower case"));
        }
        headers.push((name, take_text(&mut rest)?));
    }
    if !rest.is_empty() {
        return Err(SpdyError::Headers("goes on after its end"));
    }
    Ok(headers)
}

fn take_length(rest: &mut &[u8]) -> Result<usize, SpdyError> {
    let (length, after) = rest.split_first_chunk().ok_or(SpdyError::Headers("is cut short"))?;
    *rest = after;
    Ok(u32::from_be_bytes(*length) as usize)
}

fn take_text(rest: &mut &[u8]) -> Result<String, SpdyError> {
    let length = take_length(rest)?;
    let (text, after) = rest.split_at_checked(length).ok_or(SpdyError::Headers("is cut short"))?;
    *rest = after;
    String::from_utf8(text.to_vec()).map_err(|_| SpdyError::Headers("is not text"))
}
