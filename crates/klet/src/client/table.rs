//! Columns, ages and amounts, in kubectl's way. Pure.

use jiff::Timestamp;

/// Space between columns.
const GAP: &str = "   ";

/// Rows under each other; the last column is not padded.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    rows.iter().map(|row| line(row, &widths)).collect()
}

/// One row.
pub fn line(row: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (at, cell) in row.iter().enumerate() {
        text.push_str(cell);
        if at + 1 < row.len() {
            let width = widths.get(at).copied().unwrap_or(0);
            text.push_str(&" ".repeat(width.saturating_sub(cell.chars().count())));
            text.push_str(GAP);
        }
    }
    text.push('\n');
    text
}

/// A header.
pub fn header(titles: &[&str]) -> Vec<String> {
    titles.iter().map(|title| (*title).to_owned()).collect()
}

/// How long ago, as kubectl shows ages.
pub fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    let Some(at) = at else { return "<unknown>".to_owned() };
    let Ok(s) = u64::try_from(now.duration_since(at).as_secs()) else { return "0s".to_owned() };
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    let two = |big: u64, unit: char, small: u64, small_unit: char| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match s {
        0..120 => format!("{s}s"),
        120..600 => two(m, 'm', s % 60, 's'),
        600..10_800 => format!("{m}m"),
        10_800..28_800 => two(h, 'h', m % 60, 'm'),
        28_800..172_800 => format!("{h}h"),
        172_800..691_200 => two(d, 'd', h % 24, 'h'),
        691_200..63_072_000 => format!("{d}d"),
        63_072_000..252_288_000 => two(d / 365, 'y', d % 365, 'd'),
        _ => format!("{}y", d / 365),
    }
}

/// Bytes in mebibytes, as `kubectl top` shows them.
pub fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_kubectls() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let ages = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (86_400 * 800, "2y70d"),
        ];
        for (seconds, text) in ages {
            let at = Timestamp::from_second(1_000_000_000 - seconds).unwrap();
            assert_eq!(age(Some(at), now), text);
        }
        let ahead = Timestamp::from_second(1_000_000_009).unwrap();
        assert_eq!(age(Some(ahead), now), "0s");
        assert_eq!(age(None, now), "<unknown>");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(columns(&rows), "a     bb\nccc   d\n");
    }
}
