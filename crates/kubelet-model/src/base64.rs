//! Standard base64, written padded and read as Go reads it: line breaks are skipped,
//! and bits behind the last byte say nothing.
//!
//! Pure. Upstream: encoding/base64.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const PADDED: GeneralPurpose = engine(DecodePaddingMode::RequireCanonical);
const BARE: GeneralPurpose = engine(DecodePaddingMode::RequireNone);

const fn engine(padding: DecodePaddingMode) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&STANDARD, config.with_decode_padding_mode(padding))
}

/// The bytes of text that is padded to its full length; `None` if it is no base64.
pub fn decode_padded(text: &str) -> Option<Vec<u8>> {
    PADDED.decode(without_breaks(text)).ok()
}

/// The bytes of text that is padded or not; `None` if it is no base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = without_breaks(text);
    PADDED.decode(&text).or_else(|_| BARE.decode(&text)).ok()
}

/// The bytes as padded text.
pub fn encode(bytes: &[u8]) -> String {
    PADDED.encode(bytes)
}

fn without_breaks(text: &str) -> String {
    text.replace(['\n', '\r'], "")
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
