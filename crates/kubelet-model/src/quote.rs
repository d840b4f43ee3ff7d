//! Text in quotes, as Go writes it.
//!
//! Pure. Upstream: strconv.Quote.

/// The text in double quotes; what cannot be printed is escaped.
pub fn go(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            c if c < ' ' || c == '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Rust and Go agree on letters, marks, numbers, punctuation, symbols and the
/// plain space. A mark alone is escaped by Rust, behind a letter it is not.
fn is_printable(c: char) -> bool {
    c == '\'' || format!("x{c}").escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::go;

    #[test]
    fn text_is_quoted_as_go_does() {
        for (text, expected) in [
            ("", r#""""#),
            ("plain text", r#""plain text""#),
            ("a\"b\\c'd", r#""a\"b\\c'd""#),
            ("\n\t\r\u{7}\u{8}\u{b}\u{c}", r#""\n\t\r\a\b\v\f""#),
            ("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("é日e\u{301}", "\"é日e\u{301}\""),
            ("\u{200b}\u{a0}\u{85}", r#""\u200b\u00a0\u0085""#),
            ("\u{e0001}😀", r#""\U000e0001😀""#),
        ] {
            assert_eq!(go(text), expected, "{text:?}");
        }
    }
}
