//! The format of CRI logs: `<RFC 3339 time> <stdout|stderr> <F|P> <text>`. Pure.
//!
//! Content is handed on as it comes, so that a line of any length needs no
//! more memory than what was read at once. Lines that do not keep to the
//! format are left out.

use jiff::Timestamp;

/// Longest beginning of a line in which time, stream and tags must end.
const HEADER_MAX: usize = 256;

/// Which of a container's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A record, or a part of a long one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub stream: LogStream,
    /// When the record was written.
    pub time: Timestamp,
    /// That time as the log has it, if a line of the container begins here.
    pub begins: Option<String>,
    pub bytes: Vec<u8>,
}

/// Cuts a log into pieces, whatever portions it is read in.
#[derive(Debug)]
pub(super) struct Splitter {
    state: State,
    /// The next record continues a line that was cut in two.
    continues: bool,
}

#[derive(Debug)]
enum State {
    Header(Vec<u8>),
    Content {
        header: Header,
        fresh: bool,
    },
    /// To the end of a line that is not in the format.
    Skip,
}

#[derive(Debug, Clone)]
struct Header {
    time: Timestamp,
    text: String,
    stream: LogStream,
    partial: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        Self { state: State::Header(Vec::new()), continues: false }
    }
}

impl Splitter {
    /// Takes the next portion and appends the pieces that it completes.
    pub(super) fn feed(&mut self, mut portion: &[u8], pieces: &mut Vec<Piece>) {
        while !portion.is_empty() {
            let line_end = portion.iter().position(|byte| *byte == b'\n');
            let taken = match &mut self.state {
                State::Header(header) => {
                    let (taken, next) = take_header(header, portion);
                    if let Some(next) = next {
                        self.state = next;
                    }
                    taken
                }
                State::Skip => line_end.map_or(portion.len(), |end| end + 1),
                State::Content { header, fresh } => {
                    let content = match line_end {
                        Some(end) if header.partial => &portion[..end],
                        Some(end) => &portion[..=end],
                        None => portion,
                    };
                    let begins = (*fresh && !self.continues).then(|| header.text.clone());
                    if !content.is_empty() {
                        *fresh = false;
                        let (stream, time) = (header.stream, header.time);
                        pieces.push(Piece { stream, time, begins, bytes: content.to_vec() });
                    }
                    if line_end.is_some() {
                        self.continues = header.partial;
                    }
                    line_end.map_or(portion.len(), |end| end + 1)
                }
            };
            if line_end.is_some_and(|end| taken == end + 1) {
                self.state = State::Header(Vec::new());
            }
            portion = &portion[taken..];
        }
    }

    /// What follows is another file; a record that was cut off stays so.
    pub(super) fn next_file(&mut self) {
        self.state = State::Header(Vec::new());
    }
}

/// Moves bytes into the header until it is complete or cannot be one.
fn take_header(header: &mut Vec<u8>, portion: &[u8]) -> (usize, Option<State>) {
    for (at, byte) in portion.iter().enumerate() {
        header.push(*byte);
        let spaces = || header.iter().filter(|byte| **byte == b' ').count();
        if *byte == b' ' && spaces() == 3 {
            let state = parse_header(header)
                .map_or(State::Skip, |header| State::Content { header, fresh: true });
            return (at + 1, Some(state));
        }
        if *byte == b'\n' || header.len() == HEADER_MAX {
            return (at + 1, Some(State::Skip));
        }
    }
    (portion.len(), None)
}

fn parse_header(header: &[u8]) -> Option<Header> {
    let mut words = std::str::from_utf8(header).ok()?.split(' ');
    let text = words.next()?;
    let stream = match words.next()? {
        "stdout" => LogStream::Stdout,
        "stderr" => LogStream::Stderr,
        _ => return None,
    };
    // More tags may come one day; the first says whether the line is cut.
    let partial = words.next()?.split(':').next() == Some("P");
    Some(Header { time: text.parse().ok()?, text: nine_digits(text), stream, partial })
}

/// The time with nine digits of a second, as upstream prints it.
fn nine_digits(time: &str) -> String {
    let start = time.find('.').map_or(19, |dot| dot + 1).min(time.len());
    let digits = time[start..].find(|c: char| !c.is_ascii_digit());
    let end = digits.map_or(time.len(), |at| start + at);
    let (seconds, fraction, zone) = match time.contains('.') {
        true => (&time[..start - 1], &time[start..end], &time[end..]),
        false => (&time[..start], "", &time[start..]),
    };
    format!("{seconds}.{fraction:0<9}{zone}")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn pieces(log: &[u8], portion: usize) -> Vec<Piece> {
        let (mut splitter, mut pieces) = (Splitter::default(), Vec::new());
        for portion in log.chunks(portion) {
            splitter.feed(portion, &mut pieces);
        }
        pieces
    }

    fn text(log: &[u8], portion: usize) -> String {
        let show = |piece: &Piece| {
            let begins = piece.begins.as_ref().map(|time| format!("[{time}]")).unwrap_or_default();
            begins + &String::from_utf8_lossy(&piece.bytes)
        };
        pieces(log, portion).iter().map(show).collect()
    }

    fn check(log: &str, expected: Expect) {
        expected.assert_eq(&text(log.as_bytes(), usize::MAX >> 1));
        for portion in [1, 7, 64] {
            assert_eq!(text(log.as_bytes(), portion), text(log.as_bytes(), log.len()));
        }
    }

    #[test]
    fn records_become_lines() {
        check(
            "2016-10-06T00:17:09.66Z stdout F one\n2016-10-06T00:17:09Z stderr F \n",
            expect![[r#"
                [2016-10-06T00:17:09.660000000Z]one
                [2016-10-06T00:17:09.000000000Z]
            "#]],
        );
    }

    #[test]
    fn cut_lines_are_joined() {
        check(
            "2016-10-06T00:17:09.1+01:00 stdout P on\n\
             2016-10-06T00:17:09.2+01:00 stdout P:X e \n\
             2016-10-06T00:17:09.3+01:00 stdout F line\n",
            expect![[r#"
                [2016-10-06T00:17:09.100000000+01:00]one line
            "#]],
        );
    }

    #[test]
    fn what_is_not_in_the_format_is_left_out() {
        check(
            "\nnonsense\n2016-10-06T00:17:09Z stdin F no\nyesterday stdout F no\n\
             2016-10-06T00:17:09Z stdout F\n2016-10-06T00:17:09Z stdout F yes\ncut off",
            expect![[r#"
                [2016-10-06T00:17:09.000000000Z]yes
            "#]],
        );
        let endless = [b'x'; 4 * HEADER_MAX];
        assert_eq!(pieces(&endless, 100), []);
    }

    #[test]
    fn an_endless_line_is_handed_on_as_it_comes() {
        let mut log = b"2016-10-06T00:17:09Z stderr F ".to_vec();
        log.resize(1 << 20, 0xff);
        let pieces = pieces(&log, 4096);
        assert!(pieces.iter().all(|piece| piece.bytes.len() <= 4096));
        assert_eq!(pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>(), (1 << 20) - 30);
        assert_eq!(pieces.iter().filter(|piece| piece.begins.is_some()).count(), 1);
    }

    proptest! {
        #[test]
        fn any_content_comes_back(
            lines in proptest::collection::vec(
                proptest::collection::vec(any::<u8>().prop_filter("not an end", |b| *b != b'\n'), 0..40),
                0..10,
            ),
            portion in 1_usize..50,
        ) {
            let (mut log, mut expected) = (Vec::new(), Vec::new());
            for line in &lines {
                log.extend_from_slice(b"2016-10-06T00:17:09.1Z stdout F ");
                log.extend_from_slice(line);
                log.push(b'\n');
                expected.extend_from_slice(line);
                expected.push(b'\n');
            }
            let got: Vec<u8> = pieces(&log, portion).into_iter().flat_map(|p| p.bytes).collect();
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn garbage_never_panics(log: Vec<u8>, portion in 1_usize..50) {
            pieces(&log, portion);
        }
    }
}
