//! How frames are read: bit by bit, from whatever a peer sends.

use super::SpdyError;
use super::frame::{
    CONTROL, FIN, Frame, GOAWAY, HEADERS, PING, RESERVED, RST_STREAM, SYN_REPLY, SYN_STREAM,
    StreamId, VERSION,
};
use super::headers::Unpacker;

/// Largest frame that is not data.
const CONTROL_MAX: usize = 16 << 10;
const HEAD: usize = 8;

/// Reads frames. One per connection: header blocks build on earlier ones.
///
/// Holds what was pushed and not yet taken, which is at most the last push and
/// one frame that is not data. After an error it is of no use.
pub struct Decoder {
    bytes: Vec<u8>,
    /// How much of `bytes` was taken.
    taken: usize,
    within: Within,
    headers: Unpacker,
}

enum Within {
    /// Between frames.
    Nothing,
    /// Data of a stream, of which so many bytes are to come.
    Data { stream: StreamId, fin: bool, left: usize },
    /// A frame that changes nothing, likewise.
    Skipped { left: usize },
}

impl Default for Decoder {
    fn default() -> Self {
        let headers = Unpacker::new();
        Self { bytes: Vec::new(), taken: 0, within: Within::Nothing, headers }
    }
}

impl Decoder {
    /// Takes what came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend(bytes);
    }

    /// The next frame, or the next part of one that is data; none until more is pushed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, SpdyError> {
        loop {
            match self.within {
                Within::Data { stream, fin, left } => {
                    let bytes = self.take(left).to_vec();
                    if bytes.is_empty() && left > 0 {
                        return Ok(None);
                    }
                    let left = left - bytes.len();
                    let over = left == 0;
                    self.within =
                        if over { Within::Nothing } else { Within::Data { stream, fin, left } };
                    return Ok(Some(Frame::Data { stream, fin: fin && over, bytes }));
                }
                Within::Skipped { left: 0 } => self.within = Within::Nothing,
                Within::Skipped { left } => {
                    let skipped = self.take(left).len();
                    if skipped == 0 {
                        return Ok(None);
                    }
                    self.within = Within::Skipped { left: left - skipped };
                }
                Within::Nothing => {
                    let Some(head) = self.rest().first_chunk::<HEAD>().copied() else {
                        return Ok(None);
                    };
                    let (first, second, flags, length) = parse_head(head);
                    if first & CONTROL == 0 {
                        self.taken += HEAD;
                        let stream = u32::from(first) << 16 | u32::from(second);
                        let stream = stream_id("DATA", stream)?;
                        self.within = Within::Data { stream, fin: flags & FIN != 0, left: length };
                        continue;
                    }
                    if first & !CONTROL != VERSION {
                        return Err(SpdyError::Version(first & !CONTROL));
                    }
                    let Some(kind) = name(second) else {
                        self.taken += HEAD;
                        self.within = Within::Skipped { left: length };
                        continue;
                    };
                    if length > CONTROL_MAX {
                        return Err(SpdyError::Length { kind, length });
                    }
                    if self.rest().len() < HEAD + length {
                        return Ok(None);
                    }
                    self.taken += HEAD;
                    let body = self.take(length).to_vec();
                    return self.control(second, kind, flags & FIN != 0, &body).map(Some);
                }
            }
        }
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// So many bytes, or as many as there are.
    fn take(&mut self, count: usize) -> &[u8] {
        let begin = self.taken;
        self.taken = self.bytes.len().min(begin.saturating_add(count));
        &self.bytes[begin..self.taken]
    }

    fn control(
        &mut self,
        number: u16,
        kind: &'static str,
        fin: bool,
        body: &[u8],
    ) -> Result<Frame, SpdyError> {
        let wrong = || SpdyError::Length { kind, length: body.len() };
        let word = |index: usize| {
            let bytes = body.get(index * 4..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(wrong)
        };
        let exactly = |length: usize| (body.len() == length).then_some(()).ok_or_else(wrong);
        let after = |length: usize| body.get(length..).ok_or_else(wrong);
        let first = word(0)?;
        match number {
            PING => {
                exactly(4)?;
                return Ok(Frame::Ping(first));
            }
            GOAWAY => {
                exactly(8)?;
                return Ok(Frame::GoAway { last: first & !RESERVED, status: word(1)? });
            }
            _ => {}
        }
        let stream = stream_id(kind, first)?;
        match number {
            RST_STREAM => {
                exactly(8)?;
                Ok(Frame::RstStream { stream, status: word(1)? })
            }
            SYN_STREAM => {
                // After the number of another stream come priority and slot.
                let headers = self.headers.unpack(after(10)?)?;
                Ok(Frame::SynStream { stream, fin, headers })
            }
            SYN_REPLY => {
                Ok(Frame::SynReply { stream, fin, headers: self.headers.unpack(after(4)?)? })
            }
            _ => Ok(Frame::Headers { stream, fin, headers: self.headers.unpack(after(4)?)? }),
        }
    }
}

/// Two halves of the first word, flags, length.
fn parse_head(head: [u8; HEAD]) -> (u16, u16, u8, usize) {
    let [a, b, c, d, flags, x, y, z] = head;
    let length = u32::from_be_bytes([0, x, y, z]) as usize;
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]), flags, length)
}

fn stream_id(kind: &'static str, number: u32) -> Result<StreamId, SpdyError> {
    match number & !RESERVED {
        0 => Err(SpdyError::NoStream(kind)),
        number => Ok(StreamId(number)),
    }
}

/// The kinds that matter. SETTINGS and WINDOW_UPDATE are about windows, which
/// nobody here grants or heeds; others are to be passed over.
fn name(kind: u16) -> Option<&'static str> {
    Some(match kind {
        SYN_STREAM => "SYN_STREAM",
        SYN_REPLY => "SYN_REPLY",
        RST_STREAM => "RST_STREAM",
        PING => "PING",
        GOAWAY => "GOAWAY",
        HEADERS => "HEADERS",
        _ => return None,
    })
}
