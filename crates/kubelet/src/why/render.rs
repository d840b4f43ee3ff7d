//! An explanation as one screen of text. Pure.

use jiff::Timestamp;

use super::Explanation;

/// Columns of text; a terminal has at least 80.
const WIDTH: usize = 78;
/// Lines of a container's log that are shown.
const LOG_LINES_MAX: usize = 8;
/// Other findings that are shown.
const ALSO_MAX: usize = 4;
/// Characters of an error that are shown.
const ERROR_CHARS_MAX: usize = 600;

/// The explanation, to be read from top to bottom.
pub fn render(explanation: &Explanation, now: Timestamp) -> String {
    let mut out = String::new();
    section(&mut out, &explanation.pod, &explanation.headline);
    if !explanation.waiting_for.is_empty() {
        let since = explanation.since.map(|at| format!(" (since {})", ago(at, now)));
        let text = format!("{}{}", explanation.waiting_for, since.unwrap_or_default());
        section(&mut out, "Waits for", &text);
    }
    for call in &explanation.in_flight {
        section(&mut out, "In flight", &format!("{}, for {}", call.what, length(call.seconds)));
    }
    if let Some(error) = &explanation.last_error {
        section(&mut out, "Last error", &cut(error, ERROR_CHARS_MAX));
    }
    if !explanation.log.is_empty() {
        out.push_str("Last words:\n");
        let skipped = explanation.log.len().saturating_sub(LOG_LINES_MAX);
        for line in explanation.log.iter().skip(skipped) {
            out.push_str(&format!("  | {}\n", cut(line, WIDTH - 4)));
        }
    }
    if let Some(next) = &explanation.next {
        section(&mut out, "Next", next);
    }
    if !explanation.advice.is_empty() {
        out.push_str("What you can do:\n");
        for (at, advice) in explanation.advice.iter().enumerate() {
            wrap(&mut out, &format!("  {}. ", at + 1), advice);
        }
    }
    for also in explanation.also.iter().take(ALSO_MAX) {
        section(&mut out, "Also", also);
    }
    let more = explanation.also.len().saturating_sub(ALSO_MAX);
    if more > 0 {
        section(&mut out, "Also", &format!("{more} more; `klet pods -o wide` shows them"));
    }
    if !explanation.manifest.is_empty() {
        section(&mut out, "Manifest", &explanation.manifest);
    }
    out
}

fn section(out: &mut String, title: &str, text: &str) {
    wrap(out, &format!("{title}: "), text);
}

/// Writes text behind a head, continued below two spaces.
fn wrap(out: &mut String, head: &str, text: &str) {
    let indent = if head.starts_with("  ") { head.len() } else { 2 };
    out.push_str(head);
    let mut column = head.chars().count();
    let mut first = true;
    for word in clean(text).split_whitespace() {
        let size = word.chars().count();
        if !first && column + 1 + size > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if !first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += size;
        first = false;
    }
    out.push('\n');
}

/// Text from a container or a registry must not steer the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn cut(text: &str, chars: usize) -> String {
    let text = clean(text);
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// `5m ago`, in the units kubectl uses.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs();
    match u64::try_from(seconds) {
        Ok(0) | Err(_) => "just now".to_owned(),
        Ok(seconds) => format!("{} ago", length(seconds)),
    }
}

/// `in 5m`, or `now`.
pub(super) fn until(at: Timestamp, now: Timestamp) -> String {
    soon(u64::try_from(at.duration_since(now).as_secs()).unwrap_or(0))
}

/// `in 5m`, or `now`, from the seconds until then.
pub(super) fn soon(seconds: u64) -> String {
    match seconds {
        0 => "any moment now".to_owned(),
        seconds => format!("in {}", length(seconds)),
    }
}

/// A length of time in at most two units.
pub fn length(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if !seconds.is_multiple_of(60) => format!("{minutes}m{}s", seconds % 60),
        120..7_200 => format!("{minutes}m"),
        7_200..172_800 if !minutes.is_multiple_of(60) => format!("{hours}h{}m", minutes % 60),
        7_200..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}
