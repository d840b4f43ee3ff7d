//! Queries about the node's logs. Pure.
//!
//! Upstream: pkg/kubelet/kubelet_server_journal.go (newNodeLogQuery, validate).

use jiff::Timestamp;

use crate::routes::Query;

const SERVICES_MAX: usize = 4;
const NAME_BYTES_MAX: usize = 256;
const TAIL_LINES_MAX: i64 = 100_000;

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub services: Vec<String>,
    pub files: Vec<String>,
    pub options: Options,
}

/// How much of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub tail_lines: Option<i64>,
    pub boot: Option<i64>,
    pub pattern: String,
}

/// Several errors, as upstream joins them.
fn joined(errors: Vec<String>) -> Result<(), String> {
    match errors.as_slice() {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("[{}]", errors.join(", "))),
    }
}

/// Reads a query; none if nothing is asked.
pub(super) fn read(query: &Query) -> Result<Option<Asked>, String> {
    let mut asked = Asked::default();
    let mut errors = Vec::new();
    for value in query.all("query") {
        if value.contains(['/', '\\']) {
            asked.files.push(value.to_owned());
        } else if !value.trim().is_empty() {
            asked.services.push(value.to_owned());
        }
    }
    if query.has("query") && asked.files.is_empty() && asked.services.is_empty() {
        let values: Vec<&str> = query.all("query").collect();
        errors.push(format!("query: Invalid value: {values:?}: may not be empty"));
    }
    let mut time = |name: &str| match query.get(name) {
        "" => None,
        value => {
            let time = value.parse::<Timestamp>().ok();
            if time.is_none() {
                errors.push(format!("{name}: Invalid value: {value:?}: invalid time format"));
            }
            time
        }
    };
    asked.options.since = time("sinceTime");
    asked.options.until = time("untilTime");
    let mut number = |name: &str| match query.get(name) {
        "" => None,
        value => {
            let number = value.parse::<i64>().ok();
            if number.is_none() {
                errors.push(format!(
                    "{name}: Invalid value: {value:?}: strconv.Atoi: parsing {value:?}: invalid syntax"
                ));
            }
            number
        }
    };
    asked.options.boot = number("boot");
    asked.options.tail_lines = number("tailLines");
    asked.options.pattern = query.get("pattern").to_owned();
    joined(errors)?;
    Ok((asked != Asked::default()).then_some(asked))
}

/// Checks what makes no sense together. Whether a file is there is for others to say.
pub(super) fn check(asked: &Asked) -> Result<(), String> {
    let Asked { services, files, options } = asked;
    let mut errors = Vec::new();
    for name in services {
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
        if name.len() > NAME_BYTES_MAX {
            errors.push(format!(
                "query: Invalid value: {name:?}: length must be less than {NAME_BYTES_MAX}"
            ));
        } else if !name.bytes().all(safe) {
            errors.push(format!(
                "query: Invalid value: {name:?}: input contains unsupported characters"
            ));
        }
    }
    if services.len() > SERVICES_MAX {
        errors.push(format!(
            "query: Too many: {}: must have at most {SERVICES_MAX} items",
            services.len()
        ));
    }
    match (files.len(), services.len()) {
        (0, 0) => errors.push("query: Required value: cannot be empty with options".to_owned()),
        (1.., 1..) => errors.push(format!(
            "query: Invalid value: \"[{}], [{}]\": cannot specify a file and service",
            files.join(" "),
            services.join(" ")
        )),
        (2.., 0) => errors
            .push(format!("query: Invalid value: {files:?}: cannot specify more than one file")),
        (1, 0) if *options != Options::default() => errors
            .push(format!("query: Invalid value: {files:?}: cannot specify file with options")),
        _ => {}
    }
    if let (Some(since), Some(until)) = (options.since, options.until)
        && since > until
    {
        errors.push(format!("untilTime: Invalid value: {until}: must be after `sinceTime`"));
    }
    if let Some(boot) = options.boot.filter(|boot| *boot > 0) {
        errors.push(format!("boot: Invalid value: {boot}: must be less than 1"));
    }
    if let Some(lines) = options.tail_lines.filter(|lines| !(0..=TAIL_LINES_MAX).contains(lines)) {
        errors.push(format!(
            "tailLines: Invalid value: {lines}: must be between 0 and {TAIL_LINES_MAX}, inclusive"
        ));
    }
    joined(errors)
}

/// The arguments with which journalctl shows services' logs.
pub(super) fn arguments(services: &[String], options: &Options) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--utc", "--no-pager", "--output=short-precise"].map(str::to_owned).into();
    let time = |time: Timestamp| time.strftime("%Y-%-m-%-d %-H:%-M:%-S").to_string();
    if let Some(since) = options.since {
        arguments.push(format!("--since={}", time(since)));
    }
    if let Some(until) = options.until {
        arguments.push(format!("--until={}", time(until)));
    }
    if let Some(lines) = options.tail_lines {
        arguments.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
    }
    for service in services {
        arguments.push(format!("--unit={service}"));
    }
    if !options.pattern.is_empty() {
        arguments.push(format!("--grep={}", options.pattern));
    }
    if let Some(boot) = options.boot {
        arguments.extend(["--boot".to_owned(), boot.to_string()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<Asked, String> {
        let asked = read(&Query::read(text))?.unwrap_or_default();
        check(&asked)?;
        Ok(asked)
    }

    #[test]
    fn queries_name_services_or_one_file() {
        // Go drops what has a semicolon, and then nothing is asked.
        for nothing in ["", "other=1", "query=a;b"] {
            assert_eq!(read(&Query::read(nothing)), Ok(None));
        }
        let asked = told("query=kubelet&query=containerd&tailLines=5&boot=-1&pattern=a.b").unwrap();
        assert_eq!(asked.services, ["kubelet", "containerd"]);
        assert_eq!(told("query=/a/b.log").unwrap().files, ["/a/b.log"]);
        for (query, why) in [
            ("query=", "may not be empty"),
            ("query=+&query=", "may not be empty"),
            ("query=x&sinceTime=now", "sinceTime: Invalid value: \"now\": invalid time format"),
            ("query=x&boot=a&tailLines=b", "[boot: "),
            ("tailLines=1", "cannot be empty with options"),
            ("query=a%3Bb", "unsupported characters"),
            ("query=a%0A--file", "unsupported characters"),
            ("query=--file%3Dx", "unsupported characters"),
            ("query=/a&query=b", "cannot specify a file and service"),
            ("query=/a&query=/b", "more than one file"),
            ("query=/a&boot=0", "cannot specify file with options"),
            ("query=a&query=b&query=c&query=d&query=e", "must have at most 4 items"),
            ("query=a&boot=1", "must be less than 1"),
            ("query=a&tailLines=100001", "must be between 0 and 100000"),
            ("query=a&tailLines=-1", "must be between 0 and 100000"),
            (
                "query=a&sinceTime=2024-01-02T00:00:00Z&untilTime=2024-01-01T00:00:00Z",
                "must be after",
            ),
        ] {
            let error = told(query).unwrap_err();
            assert!(error.contains(why), "{query}: {error}");
        }
        let long = "x".repeat(257);
        assert!(told(&format!("query={long}")).unwrap_err().contains("length must be less than"));
    }

    #[test]
    fn journalctl_is_told_in_its_words() {
        let asked =
            told("query=kubelet&sinceTime=2024-01-02T03:04:05Z&tailLines=7&boot=-1&pattern=x y");
        let asked = asked.unwrap();
        assert_eq!(
            arguments(&asked.services, &asked.options).join(" "),
            "--utc --no-pager --output=short-precise --since=2024-1-2 3:4:5 --pager-end \
             --lines=7 --unit=kubelet --grep=x y --boot -1"
        );
    }
}
