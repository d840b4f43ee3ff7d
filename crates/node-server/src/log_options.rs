//! The options of `/containerLogs`. Pure.
//!
//! Values are converted as upstream converts queries (queryparams, PodLogOptions), and
//! checked as it checks them. Upstream: pkg/apis/core/v1/validation.

use jiff::Timestamp;

use crate::routes::Query;
use crate::view::{LogOptions, LogStreams, ViewError};

const UNDECODABLE: &str = r#"{"message": "Unable to decode query."}"#;
const INVALID: &str = r#"{"message": "Invalid request."}"#;

/// Reads and checks the options; streams apart only `if split`.
pub(crate) fn read(query: &Query, split: bool) -> Result<LogOptions, ViewError> {
    let undecodable = || ViewError::new(400, UNDECODABLE);
    let number = |name: &str| match query.all(name).next() {
        None => Ok(None),
        Some(text) => text.parse::<i64>().map(Some).map_err(|_| undecodable()),
    };
    let mut options = LogOptions {
        follow: truth(query, "follow"),
        previous: truth(query, "previous"),
        timestamps: truth(query, "timestamps"),
        since_seconds: number("sinceSeconds")?,
        limit_bytes: number("limitBytes")?,
        ..LogOptions::default()
    };
    // The name of long ago.
    options.tail_lines = match query.get("tail") {
        "" => number("tailLines")?,
        "all" => None,
        _ => number("tail")?,
    };
    options.since_time = match query.get("sinceTime") {
        "" | "null" => None,
        text => Some(text.parse::<Timestamp>().map_err(|_| undecodable())?),
    };
    let stream = query.get("stream");
    options.streams = match stream {
        "" | "All" => LogStreams::All,
        "Stdout" => LogStreams::Stdout,
        "Stderr" => LogStreams::Stderr,
        _ => return Err(ViewError::new(422, INVALID)),
    };
    let invalid = options.tail_lines.is_some_and(|lines| lines < 0)
        || options.limit_bytes.is_some_and(|bytes| bytes < 1)
        || options.since_seconds.is_some_and(|seconds| seconds < 1)
        || (options.since_seconds.is_some() && options.since_time.is_some())
        || (options.streams != LogStreams::All && options.tail_lines.is_some());
    if invalid {
        return Err(ViewError::new(422, INVALID));
    }
    if options.streams != LogStreams::All && !split {
        return Err(ViewError::new(
            400,
            format!(
                "unable to return the given log stream: {stream:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
            ),
        ));
    }
    Ok(options)
}

/// Given and not plainly false.
fn truth(query: &Query, name: &str) -> bool {
    query.has(name) && !matches!(query.get(name).to_ascii_lowercase().as_str(), "false" | "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(query: &str) -> Result<LogOptions, u16> {
        read(&Query::read(query), true).map_err(|error| error.status)
    }

    #[test]
    fn values_are_read_as_upstream_reads_them() {
        let none = LogOptions::default();
        let since: Timestamp = "2024-05-01T10:00:00Z".parse().unwrap();
        for (query, wanted) in [
            ("", none.clone()),
            (
                "follow=true&timestamps=1",
                LogOptions { follow: true, timestamps: true, ..none.clone() },
            ),
            ("follow=", LogOptions { follow: true, ..none.clone() }),
            ("follow=False&previous=0", none.clone()),
            ("tailLines=0", LogOptions { tail_lines: Some(0), ..none.clone() }),
            ("tail=7&tailLines=3", LogOptions { tail_lines: Some(7), ..none.clone() }),
            ("tail=all&tailLines=3", none.clone()),
            (
                "sinceSeconds=5&limitBytes=1",
                LogOptions { since_seconds: Some(5), limit_bytes: Some(1), ..none.clone() },
            ),
            (
                "sinceTime=2024-05-01T12:00:00%2B02:00",
                LogOptions { since_time: Some(since), ..none.clone() },
            ),
            ("stream=Stderr", LogOptions { streams: LogStreams::Stderr, ..none.clone() }),
            ("stream=All&tailLines=1", LogOptions { tail_lines: Some(1), ..none }),
        ] {
            assert_eq!(told(query), Ok(wanted), "{query}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (query, status) in [
            ("tailLines=x", 400),
            ("tailLines=", 400),
            ("tailLines=99999999999999999999", 400),
            ("tail=some", 400),
            ("sinceTime=yesterday", 400),
            ("limitBytes=1.5", 400),
            ("tailLines=-1", 422),
            ("limitBytes=0", 422),
            ("sinceSeconds=0", 422),
            ("sinceSeconds=1&sinceTime=2024-05-01T10:00:00Z", 422),
            ("stream=stdout", 422),
            ("stream=Stdout&tailLines=1", 422),
        ] {
            assert_eq!(told(query), Err(status), "{query}");
        }
        let split = read(&Query::read("stream=Stdout"), false).unwrap_err();
        assert!(split.status == 400 && split.message.contains(r#""Stdout". Please enable"#));
    }
}
