//! From the text of a flag to a JSON value, by the flag's kind.
//!
//! Pure. Follows upstream's flag types to the letter: what repeats, what
//! replaces, how maps are separated. Upstream: component-base/cli/flag,
//! pkg/util/flag, pflag.

use serde_json::{Map, Value, json};

use crate::go_duration::GoDuration;
use crate::quantity::Quantity;
use crate::validate::labels;

/// What a flag's text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Yes or no; alone it means yes.
    Bool,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// Non-negative log level.
    Level,
    /// Go duration.
    Duration,
    /// IP address.
    Ip,
    /// Amount such as 512 or 4Ki.
    Quantity,
    /// Comma-separated list; may be repeated.
    List,
    /// `key=value,…`; may be repeated.
    Map,
    /// One `key=value` each time.
    MapOne,
    /// `key=true,…`; may be repeated.
    BoolMap,
    /// `signal<value,…`; may be repeated.
    Thresholds,
    /// `name:value,…`; a name may come more than once.
    Headers,
    /// `key=value,…`, where the value may be missing.
    Labels,
    /// `key=value:effect,…`.
    Taints,
    /// `numa:type=amount,…;…`; may be repeated.
    ReservedMemory,
    /// `pattern=level,…`; may be repeated.
    VModule,
}

impl Kind {
    /// The value's name in help.
    pub fn value_name(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Bool => "BOOL",
            Self::Int32 | Self::Int64 => "NUMBER",
            Self::Level => "LEVEL",
            Self::Duration => "DURATION",
            Self::Ip => "IP",
            Self::Quantity => "AMOUNT",
            Self::List => "A,B,…",
            Self::Map | Self::MapOne | Self::Labels => "KEY=VALUE,…",
            Self::BoolMap => "NAME=BOOL,…",
            Self::Thresholds => "SIGNAL<VALUE,…",
            Self::Headers => "NAME:VALUE,…",
            Self::Taints => "KEY=VALUE:EFFECT,…",
            Self::ReservedMemory => "NUMA:TYPE=AMOUNT,…",
            Self::VModule => "PATTERN=LEVEL,…",
        }
    }

    /// The value of all occurrences together; `None` when the flag changes nothing.
    pub fn parse(self, given: &[String]) -> Result<Option<Value>, String> {
        let Some(last) = given.last() else {
            return Ok(None);
        };
        let value = match self {
            Self::Text => json!(last),
            Self::Bool => json!(parse_bool(last)?),
            Self::Int32 => json!(parse_int(last, i32::MIN.into(), i32::MAX.into())?),
            Self::Int64 => json!(parse_int(last, i64::MIN, i64::MAX)?),
            Self::Level => json!(parse_level(last)?),
            Self::Duration => json!(last.parse::<GoDuration>().map_err(|e| e.to_string())?),
            Self::Quantity => json!(last.parse::<Quantity>().map_err(|e| e.to_string())?),
            Self::Ip if last.is_empty() => return Ok(None),
            Self::Ip => match last.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
                Ok(_) => json!(last),
                Err(_) => return Err(format!("{last:?} is not an IP address")),
            },
            Self::List => json!(
                given.iter().map(|one| split_csv(one)).collect::<Result<Vec<_>, _>>()?.concat()
            ),
            Self::Map => pairs(given, '=')?
                .into_iter()
                .map(|(k, v)| (k, json!(v)))
                .collect::<Map<_, _>>()
                .into(),
            Self::MapOne => one_pair_each(given)?,
            Self::Thresholds => pairs(given, '<')?
                .into_iter()
                .map(|(k, v)| (k, json!(v)))
                .collect::<Map<_, _>>()
                .into(),
            Self::BoolMap => bool_map(given)?,
            Self::Headers => headers(given)?,
            Self::Labels => node_labels(given),
            Self::Taints => taints(last)?,
            Self::ReservedMemory => reserved_memory(given)?,
            Self::VModule => vmodule(given)?,
        };
        Ok(Some(value))
    }
}

/// A boolean as Go spells it.
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?} is not a boolean; write true or false")),
    }
}

/// An integer in Go's notation: decimal, or with a 0x, 0o, 0b or 0 prefix.
fn parse_int(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let bad = || format!("{text:?} is not a whole number from {min} to {max}");
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || digits.starts_with(['+', '-']) {
        return Err(bad());
    }
    let magnitude = i128::from_str_radix(digits, radix).map_err(|_| bad())?;
    let value = if negative { -magnitude } else { magnitude };
    i64::try_from(value).ok().filter(|value| (min..=max).contains(value)).ok_or_else(bad)
}

fn parse_level(text: &str) -> Result<u32, String> {
    let level = text.parse::<u32>().ok().filter(|level| i32::try_from(*level).is_ok());
    level.ok_or_else(|| {
        format!("{text:?} is not a level; write a whole number from 0 to {}", i32::MAX)
    })
}

/// Comma-separated values, where double quotes protect commas.
fn split_csv(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let (mut items, mut item, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                item.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => items.push(std::mem::take(&mut item)),
            c => item.push(c),
        }
    }
    if quoted {
        return Err(format!("{text:?} has a quote that does not end"));
    }
    items.push(item);
    Ok(items)
}

fn pairs(given: &[String], separator: char) -> Result<Vec<(String, String)>, String> {
    let parts = given.iter().flat_map(|one| one.split(',')).filter(|part| !part.is_empty());
    parts.map(|part| pair(part, separator)).collect()
}

fn pair(part: &str, separator: char) -> Result<(String, String), String> {
    match part.split_once(separator) {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(format!("{part:?} is not of the form key{separator}value")),
    }
}

fn one_pair_each(given: &[String]) -> Result<Value, String> {
    let all: Result<Map<_, _>, String> =
        given.iter().map(|one| pair(one, '=').map(|(k, v)| (k, json!(v)))).collect();
    all.map(Value::Object)
}

fn bool_map(given: &[String]) -> Result<Value, String> {
    let mut map = Map::new();
    for (key, value) in pairs(given, '=')? {
        let value = parse_bool(&value).map_err(|error| format!("{key}: {error}"))?;
        map.insert(key, json!(value));
    }
    Ok(Value::Object(map))
}

fn headers(given: &[String]) -> Result<Value, String> {
    let mut map: std::collections::BTreeMap<String, Vec<String>> =
        std::collections::BTreeMap::new();
    for part in given.iter().flat_map(|one| one.split(',')).filter(|part| !part.is_empty()) {
        // The text is a secret, so the message must not repeat it.
        let (name, value) = part.split_once(':').ok_or("a header is not of the form name:value")?;
        map.entry(name.trim().to_owned()).or_default().push(value.trim().to_owned());
    }
    Ok(json!(map))
}

fn node_labels(given: &[String]) -> Value {
    let parts = given.iter().flat_map(|one| one.split(',')).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (key.trim().to_owned(), json!(value.trim()))
    };
    Value::Object(parts.map(pair).collect())
}

fn taints(text: &str) -> Result<Value, String> {
    let mut taints: Vec<Value> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for spec in text.split(',').filter(|_| !text.is_empty()) {
        // A trailing dash means removal elsewhere; at registration there is nothing to remove.
        if spec.ends_with('-') {
            continue;
        }
        let (rest, effect) =
            spec.split_once(':').ok_or_else(|| format!("taint {spec:?} has no effect"))?;
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        let problems = labels::taint_problems(key, value, effect);
        if !problems.is_empty() {
            return Err(format!("taint {spec:?}: {}", problems.join("; ")));
        }
        if !seen.insert((key.to_owned(), effect.to_owned())) {
            return Err(format!("taint {spec:?} repeats a key and effect"));
        }
        let mut taint = json!({"key": key, "effect": effect});
        if !value.is_empty() {
            taint["value"] = json!(value);
        }
        taints.push(taint);
    }
    Ok(Value::Array(taints))
}

fn reserved_memory(given: &[String]) -> Result<Value, String> {
    let mut all = Vec::new();
    for spec in given.iter().flat_map(|one| one.split(';')).filter(|spec| !spec.is_empty()) {
        let (numa, amounts) = spec
            .split_once(':')
            .ok_or_else(|| format!("{spec:?} is not of the form numa:type=amount"))?;
        let numa = parse_int(numa, 0, i32::MAX.into())?;
        let mut limits = Map::new();
        for (kind, amount) in pairs(&[amounts.to_owned()], '=')? {
            if kind != "memory" && !kind.starts_with("hugepages-") {
                return Err(format!(
                    "{kind:?} is not a kind of memory; use memory or hugepages-<size>"
                ));
            }
            limits.insert(kind, json!(amount.parse::<Quantity>().map_err(|e| e.to_string())?));
        }
        all.push(json!({"numaNode": numa, "limits": limits}));
    }
    Ok(Value::Array(all))
}

fn vmodule(given: &[String]) -> Result<Value, String> {
    let mut items = Vec::new();
    for (pattern, level) in pairs(given, '=')? {
        if pattern.is_empty() {
            return Err("a vmodule pattern is empty; write pattern=level".to_owned());
        }
        items.push(json!({"filePattern": pattern, "verbosity": parse_level(&level)?}));
    }
    Ok(Value::Array(items))
}

#[cfg(test)]
mod tests;
