//! The plot: one group of bars per figure, each scaled to its largest.

use std::fmt::Write;

use super::results::{Measured, Results};
use super::{Plan, goals};

const BARS: [(&str, &str); 4] = [
    ("klet", "#b7410e"),
    ("klet, listing", "#e8a27c"),
    ("raw CRI", "#9a9a9a"),
    ("upstream kubelet", "#326ce5"),
];

/// Left of the bars: names. Right of them: values.
const LEFT: f64 = 210.0;
const WIDTH: f64 = 420.0;
const RIGHT: f64 = 110.0;
const BAR: f64 = 16.0;
const GAP: f64 = 22.0;

type Pick<'a> = Box<dyn Fn(&Measured) -> Option<f64> + 'a>;

/// The whole picture.
pub fn svg(plan: &Plan, results: &Results) -> String {
    let mut body = String::new();
    let mut y = 46.0;
    for (title, unit, pick) in groups(plan) {
        let values: Vec<_> = BARS
            .iter()
            .filter_map(|(who, colour)| Some((colour, results.get(who).and_then(&pick)?)))
            .collect();
        let largest = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        if largest <= 0.0 {
            continue;
        }
        let _ = writeln!(
            body,
            r#"<text x="{}" y="{}" text-anchor="end">{title}</text>"#,
            LEFT - 10.0,
            y + 12.0
        );
        for (colour, value) in values {
            // A sliver, however small the value: it was measured.
            let width = (value / largest * WIDTH).max(1.0);
            let _ = writeln!(
                body,
                r#"<rect x="{LEFT}" y="{y}" width="{width:.1}" height="{BAR}" fill="{colour}"/><text x="{:.1}" y="{}">{} {unit}</text>"#,
                LEFT + width + 6.0,
                y + 12.0,
                significant(value),
            );
            y += BAR + 2.0;
        }
        y += GAP;
    }
    let total = LEFT + WIDTH + RIGHT;
    let mut text = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{y}" viewBox="0 0 {total} {y}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
"##
    );
    let present = BARS.iter().filter(|(who, _)| results.get(who).is_some());
    for (n, (who, colour)) in present.enumerate() {
        let x = LEFT + 130.0 * n as f64;
        let _ = writeln!(
            text,
            r#"<rect x="{x}" y="16" width="12" height="12" fill="{colour}"/><text x="{}" y="26">{who}</text>"#,
            x + 18.0
        );
    }
    text + &body + "</svg>\n"
}

fn groups<'a>(plan: &'a Plan) -> Vec<(String, &'static str, Pick<'a>)> {
    let pods = plan.pods;
    let rss = move |pods| -> Pick<'a> {
        Box::new(move |who| who.idle_at(pods).map(|idle| goals::megabytes(idle.rss_kb * 1024)))
    };
    vec![
        ("binary".to_owned(), "MB", Box::new(|who| who.binary_bytes.map(goals::megabytes))),
        ("start to healthy".to_owned(), "ms", Box::new(Measured::healthy_ms)),
        ("resident, no pods".to_owned(), "MB", rss(0)),
        (format!("resident, {pods} pods"), "MB", rss(pods)),
        (
            format!("processor at rest, {pods} pods"),
            "%",
            Box::new(move |who| who.idle_at(pods).map(|idle| idle.cpu_percent)),
        ),
        (format!("{pods} pods up"), "s", Box::new(|who| who.round_s(|round| Some(round.up)))),
        ("… own processor time".to_owned(), "s", Box::new(|who| who.round_s(|round| round.up_cpu))),
        (
            format!("{pods} pods removed"),
            "s",
            Box::new(|who| who.round_s(|round| Some(round.removed))),
        ),
    ]
}

/// Three figures, whatever the size.
fn significant(value: f64) -> String {
    let digits = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_has_a_bar_and_a_name() {
        let mut results = Results::default();
        for (who, _) in BARS {
            results.of(who).binary_bytes = Some(1_000_000);
        }
        let text = svg(&Plan::of_tests(), &results);
        for (who, colour) in BARS {
            assert!(text.contains(&format!(">{who}</text>")), "{text}");
            // Once in the key, once in the only group with values.
            assert_eq!(text.matches(colour).count(), 2, "{text}");
        }
    }

    #[test]
    fn values_keep_three_figures() {
        let written = [123.4, 12.34, 1.234, 0.1234].map(significant);
        assert_eq!(written, ["123", "12.3", "1.23", "0.123"]);
    }
}
