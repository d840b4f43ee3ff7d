//! Standard base64, written padded and read as Go reads it: line breaks are skipped.
//!
//! Pure. Upstream: encoding/base64.

const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes of text that is padded to its full length; `None` if it is no base64.
pub fn decode_padded(text: &str) -> Option<Vec<u8>> {
    let symbols = text.bytes().filter(|symbol| !is_break(*symbol)).count();
    symbols.is_multiple_of(4).then(|| decode(text)).flatten()
}

/// The bytes of text that is padded or not; `None` if it is no base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text.bytes().filter(|symbol| !is_break(*symbol)).collect();
    let padding = symbols.iter().rev().take_while(|b| **b == b'=').count();
    let digits = &symbols[..symbols.len() - padding];
    let padded = padding > 0;
    if padding > 2 || (padded && !symbols.len().is_multiple_of(4)) || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut word = 0_u32;
        for symbol in chunk {
            word = word << 6 | u32::from(value(*symbol)?);
        }
        word <<= 6 * (4 - chunk.len());
        bytes.extend_from_slice(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

/// The bytes as padded text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = (word >> (18 - 6 * place) & 63) as usize;
            let past_the_end = place > chunk.len();
            text.push(if past_the_end { '=' } else { char::from(SYMBOLS[digit]) });
        }
    }
    text
}

fn is_break(symbol: u8) -> bool {
    matches!(symbol, b'\n' | b'\r')
}

fn value(symbol: u8) -> Option<u8> {
    match symbol {
        b'A'..=b'Z' => Some(symbol - b'A'),
        b'a'..=b'z' => Some(symbol - b'a' + 26),
        b'0'..=b'9' => Some(symbol - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (bytes, text) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")] {
            assert_eq!(encode(bytes.as_bytes()), text);
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode_padded(&encode(&all)), Some(all));
    }

    #[test]
    fn base64_as_go_reads_it() {
        for (text, want) in [
            ("", ""),
            ("YQ==", "a"),
            ("YQ", "a"),
            ("YWI=", "ab"),
            ("YWJj", "abc"),
            ("YW\nJj", "abc"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(want.as_bytes()), "{text:?}");
        }
        for text in ["Y", "YQ=", "Y===", "Y!==", "=", "YQ==YQ=="] {
            assert_eq!(decode(text), None, "{text:?}");
        }
        assert_eq!(decode_padded("YQ"), None);
        assert_eq!(decode_padded("Y\r\nQ=\n=").as_deref(), Some(b"a".as_slice()));
    }
}
