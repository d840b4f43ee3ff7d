//! D-Bus messages, as far as systemd and logind need them.
//!
//! Pure. Writes little-endian, reads either. Every length that comes from outside is
//! checked against what is there. Format: the D-Bus specification, "Message Protocol".

/// Longest message that is read; systemd's answers are some hundred bytes.
pub const MESSAGE_MAX: usize = 1 << 20;
/// Bytes in front of every message: up to and with the length of the header's fields.
pub const PREFIX: usize = 16;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a D-Bus message: {0}")]
pub struct WireError(&'static str);

/// A value of a unit's property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `s`
    Text(String),
    /// `as`
    Texts(Vec<String>),
    /// `b`
    Bool(bool),
    /// `t`
    Number(u64),
}

/// Name and value.
pub type Property = (&'static str, Value);

/// A body of a message under construction. Alignment counts from its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// The types of what it holds.
    pub signature: String,
    /// What it holds.
    pub bytes: Vec<u8>,
}

impl Body {
    /// Adds a text.
    pub fn text(mut self, text: &str) -> Self {
        self.signature.push('s');
        put_text(&mut self.bytes, text);
        self
    }

    /// Adds a number that may be negative.
    pub fn int(mut self, value: i32) -> Self {
        self.signature.push('i');
        align(&mut self.bytes, 4);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a truth.
    pub fn bool(mut self, value: bool) -> Self {
        self.signature.push('b');
        put_u32(&mut self.bytes, u32::from(value));
        self
    }

    /// Adds properties of a unit.
    pub fn properties(mut self, properties: &[Property]) -> Self {
        self.signature.push_str("a(sv)");
        put_array(&mut self.bytes, 8, |bytes| {
            for (name, value) in properties {
                align(bytes, 8);
                put_text(bytes, name);
                put_value(bytes, value);
            }
        });
        self
    }

    /// No units besides the one that the message is about.
    pub fn no_other_units(mut self) -> Self {
        self.signature.push_str("a(sa(sv))");
        put_array(&mut self.bytes, 8, |_| {});
        self
    }
}

/// Where a call goes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Who.
    pub service: &'static str,
    /// Which of its objects.
    pub path: &'static str,
    /// Which of the object's faces.
    pub interface: &'static str,
}

/// The bytes of a call. `named` is false where there is no bus between the two.
pub fn call(serial: u32, to: Target, member: &str, body: &Body, named: bool) -> Vec<u8> {
    let mut bytes = vec![b'l', 1, 0, 1];
    put_u32(&mut bytes, u32::try_from(body.bytes.len()).unwrap_or(u32::MAX));
    put_u32(&mut bytes, serial);
    put_array(&mut bytes, 8, |bytes| {
        put_field(bytes, 1, 'o', to.path);
        put_field(bytes, 2, 's', to.interface);
        put_field(bytes, 3, 's', member);
        if named {
            put_field(bytes, 6, 's', to.service);
        }
        if !body.signature.is_empty() {
            put_field(bytes, 8, 'g', &body.signature);
        }
    });
    align(&mut bytes, 8);
    bytes.extend_from_slice(&body.bytes);
    bytes
}

/// Adds a field of a header.
pub fn put_field(bytes: &mut Vec<u8>, code: u8, kind: char, text: &str) {
    align(bytes, 8);
    bytes.push(code);
    put_signature(bytes, kind.encode_utf8(&mut [0; 4]));
    if kind == 'g' { put_signature(bytes, text) } else { put_text(bytes, text) }
}

fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => {
            put_signature(bytes, "s");
            put_text(bytes, text);
        }
        Value::Texts(texts) => {
            put_signature(bytes, "as");
            put_array(bytes, 4, |bytes| texts.iter().for_each(|text| put_text(bytes, text)));
        }
        Value::Bool(value) => {
            put_signature(bytes, "b");
            put_u32(bytes, u32::from(*value));
        }
        Value::Number(value) => {
            put_signature(bytes, "t");
            align(bytes, 8);
            bytes.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// The padding between an array's length and its first element does not count.
pub fn put_array(bytes: &mut Vec<u8>, alignment: usize, items: impl FnOnce(&mut Vec<u8>)) {
    put_u32(bytes, 0);
    let length_at = bytes.len() - 4;
    align(bytes, alignment);
    let begin = bytes.len();
    items(bytes);
    let length = u32::try_from(bytes.len() - begin).unwrap_or(u32::MAX);
    bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Adds a number.
pub fn put_u32(bytes: &mut Vec<u8>, value: u32) {
    align(bytes, 4);
    bytes.extend_from_slice(&value.to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_u32(bytes, u32::try_from(text.len()).unwrap_or(u32::MAX));
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
}

/// Adds a signature.
pub fn put_signature(bytes: &mut Vec<u8>, signature: &str) {
    bytes.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(signature.as_bytes());
    bytes.push(0);
}

/// Pads with zeros.
pub fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A question.
    Call,
    /// An answer.
    Answer,
    /// A refusal.
    Error,
    /// Said unasked.
    Signal,
}

/// A message that came in.
#[derive(Debug, Clone)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Its number.
    pub serial: u32,
    /// The call that it answers.
    pub answers: Option<u32>,
    /// What is called or told.
    pub member: String,
    /// The name of an error.
    pub error: String,
    /// Who says it, as the bus vouches; empty without a bus.
    pub sender: String,
    /// How many descriptors come with it.
    pub descriptors: u32,
    /// The types of what it holds.
    pub signature: String,
    body: Vec<u8>,
    little: bool,
}

/// How many bytes follow a message's prefix.
pub fn rest_of(prefix: &[u8; PREFIX]) -> Result<usize, WireError> {
    let mut reader = Reader { bytes: prefix, at: 4, little: prefix[0] == b'l' };
    if !matches!(prefix[0], b'l' | b'B') || prefix[3] != 1 {
        return Err(WireError("unknown byte order or version"));
    }
    let body = reader.u32()? as usize;
    reader.u32()?;
    let fields = reader.u32()? as usize;
    let whole = PREFIX.saturating_add(fields).next_multiple_of(8).saturating_add(body);
    if fields > MESSAGE_MAX || body > MESSAGE_MAX {
        return Err(WireError("it is too long"));
    }
    Ok(whole - PREFIX)
}

impl Message {
    /// Reads a whole message.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let prefix = bytes.first_chunk::<PREFIX>().ok_or(WireError("it is cut off"))?;
        rest_of(prefix)?;
        let little = prefix[0] == b'l';
        let mut reader = Reader { bytes, at: 4, little };
        let length = reader.u32()? as usize;
        let serial = reader.u32()?;
        let fields = reader.u32()? as usize;
        let end = PREFIX + fields;
        let mut message = Self {
            kind: match prefix[1] {
                1 => Kind::Call,
                2 => Kind::Answer,
                3 => Kind::Error,
                4 => Kind::Signal,
                _ => return Err(WireError("unknown kind")),
            },
            serial,
            answers: None,
            member: String::new(),
            error: String::new(),
            sender: String::new(),
            descriptors: 0,
            signature: String::new(),
            body: Vec::new(),
            little,
        };
        while reader.at < end {
            message.read_field(&mut reader)?;
        }
        reader.align(8)?;
        message.body = reader.take(length)?.to_vec();
        Ok(message)
    }

    fn read_field(&mut self, reader: &mut Reader<'_>) -> Result<(), WireError> {
        reader.align(8)?;
        let code = reader.take(1)?[0];
        let kind = reader.signature()?;
        match (code, kind.as_str()) {
            (3, "s") => self.member = reader.text()?,
            (4, "s") => self.error = reader.text()?,
            (5, "u") => self.answers = Some(reader.u32()?),
            (7, "s") => self.sender = reader.text()?,
            (8, "g") => self.signature = reader.signature()?,
            (9, "u") => self.descriptors = reader.u32()?,
            (_, "s" | "o") => drop(reader.text()?),
            (_, "g") => drop(reader.signature()?),
            (_, "u") => drop(reader.u32()?),
            _ => return Err(WireError("a field of the header is of an unknown type")),
        }
        Ok(())
    }

    /// Reads what the body holds.
    pub fn body(&self) -> Reader<'_> {
        Reader { bytes: &self.body, at: 0, little: self.little }
    }
}

/// Reads values one after the other.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    little: bool,
}

impl<'a> Reader<'a> {
    /// The next number.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.align(4)?;
        let raw = self.take(4)?.first_chunk::<4>().ok_or(WireError("it is cut off"))?;
        Ok(if self.little { u32::from_le_bytes(*raw) } else { u32::from_be_bytes(*raw) })
    }

    /// The next number of eight bytes.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.align(8)?;
        let raw = self.take(8)?.first_chunk::<8>().ok_or(WireError("it is cut off"))?;
        Ok(if self.little { u64::from_le_bytes(*raw) } else { u64::from_be_bytes(*raw) })
    }

    /// The next text.
    pub fn text(&mut self) -> Result<String, WireError> {
        let length = self.u32()? as usize;
        self.terminated(length)
    }

    /// The next signature.
    pub fn signature(&mut self) -> Result<String, WireError> {
        let length = usize::from(self.take(1)?[0]);
        self.terminated(length)
    }

    fn terminated(&mut self, length: usize) -> Result<String, WireError> {
        let text = self.take(length)?;
        self.take(1)?;
        String::from_utf8(text.to_vec()).map_err(|_| WireError("a text is not UTF-8"))
    }

    /// Reads the next so many bytes apart. Alignment counts anew, so they must be aligned.
    pub fn of(&mut self, count: usize) -> Result<Self, WireError> {
        Ok(Self { bytes: self.take(count)?, at: 0, little: self.little })
    }

    /// Skips padding.
    pub fn align(&mut self, to: usize) -> Result<(), WireError> {
        let next = self.at.next_multiple_of(to);
        self.take(next - self.at).map(drop)
    }

    /// The next bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(WireError("it is cut off"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Target = Target { service: "a.b", path: "/p", interface: "i.f" };

    /// As the specification lays a message out, byte by byte.
    #[test]
    fn a_call_to_the_letter() {
        let body = Body::default().text("x.slice").properties(&[("N", Value::Number(7))]);
        let bytes = call(3, TO, "Set", &body, true);
        let expected: &[&[u8]] = &[
            b"l\x01\x00\x01\x28\x00\x00\x00\x03\x00\x00\x00\x4c\x00\x00\x00",
            b"\x01\x01o\x00\x02\x00\x00\x00/p\x00\x00\x00\x00\x00\x00",
            b"\x02\x01s\x00\x03\x00\x00\x00i.f\x00\x00\x00\x00\x00",
            b"\x03\x01s\x00\x03\x00\x00\x00Set\x00\x00\x00\x00\x00",
            b"\x06\x01s\x00\x03\x00\x00\x00a.b\x00\x00\x00\x00\x00",
            b"\x08\x01g\x00\x06sa(sv)\x00\x00\x00\x00\x00",
            b"\x07\x00\x00\x00x.slice\x00\x18\x00\x00\x00",
            b"\x01\x00\x00\x00N\x00\x01t\x00\x00\x00\x00\x00\x00\x00\x00",
            b"\x07\x00\x00\x00\x00\x00\x00\x00",
        ];
        assert_eq!(bytes.escape_ascii().to_string(), expected.concat().escape_ascii().to_string());
    }

    #[test]
    fn what_is_written_can_be_read() {
        let body = Body::default().text("unit").bool(true).no_other_units();
        let bytes = call(9, TO, "M", &body, false);
        let prefix = bytes.first_chunk::<PREFIX>().unwrap();
        assert_eq!(rest_of(prefix), Ok(bytes.len() - PREFIX));
        let message = Message::parse(&bytes).unwrap();
        assert_eq!((message.kind, message.serial, message.member.as_str()), (Kind::Call, 9, "M"));
        assert_eq!(message.signature, "sba(sa(sv))");
        let mut read = message.body();
        assert_eq!((read.text(), read.u32()), (Ok("unit".to_owned()), Ok(1)));
    }

    #[test]
    fn hostile_bytes_are_refused_and_never_panic() {
        let good = call(1, TO, "M", &Body::default().text("text"), true);
        for cut in 0..good.len() {
            assert!(Message::parse(&good[..cut]).is_err(), "{cut}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Ok(message) = Message::parse(&bad) {
                    let _ = message.body().text();
                }
            }
        }
        let long = b"l\x02\x00\x01\xff\xff\xff\xff\x01\x00\x00\x00\xff\xff\xff\xff";
        assert!(rest_of(long).is_err());
    }
}
