//! Termination messages: what a container said about its end.
//!
//! Reads the file a container was given for it, else the end of its log. What
//! is in them is the container's doing: reads are bounded, and neither links
//! nor anything but regular files are read.
//! Upstream: pkg/kubelet/kuberuntime getTerminationMessage.

use std::io::{self, ErrorKind};
use std::path::Path;

use cri::v1;

use super::parse::labels;
use crate::container_logs;
use crate::ports::{Fs, Links};

/// Bytes of the file that are kept: the last ones.
const FILE_MAX: usize = 4_096;
/// Records of the log that are kept, and bytes of those.
const LOG_LINES_MAX: usize = 80;
const LOG_MAX: usize = 2_048;
/// Policy: an empty file of a failed container is made up for by its log.
const FALL_BACK: &str = "FallbackToLogsOnError";

/// The message of a container that has exited: the runtime's, then the container's.
pub(super) fn message(fs: &dyn Fs, status: &v1::ContainerStatus) -> String {
    let own = own_words(fs, status);
    match (status.message.as_str(), own.as_str()) {
        ("", _) => own,
        (runtime, "") => runtime.to_owned(),
        (runtime, own) => format!("{runtime}: {own}"),
    }
}

fn own_words(fs: &dyn Fs, status: &v1::ContainerStatus) -> String {
    match from_file(fs, status) {
        Err((path, error)) => return format!("Error on reading termination log {path}: {error}"),
        Ok(words) if !words.is_empty() => return text(words),
        Ok(_) => {}
    }
    // A container that could not even be started has no log.
    if !needs_log(status, status.exit_code) || status.reason == "ContainerCannotRun" {
        return String::new();
    }
    match container_logs::last_text(fs, Path::new(&status.log_path), LOG_LINES_MAX, LOG_MAX) {
        Ok(words) => text(words),
        Err(error) => format!("Error on reading termination message from logs: {error}"),
    }
}

/// May the log have to stand in for the file? It is whole only once the runtime has
/// recorded the end.
pub(super) fn needs_log(status: &v1::ContainerStatus, exit_code: i32) -> bool {
    let policy = status.annotations.get(labels::TERMINATION_MESSAGE_POLICY);
    exit_code != 0 && policy.is_some_and(|policy| policy == FALL_BACK)
}

/// Empty if the container has no such file or left it empty.
fn from_file(fs: &dyn Fs, status: &v1::ContainerStatus) -> Result<Vec<u8>, (String, io::Error)> {
    let path = status.annotations.get(labels::TERMINATION_MESSAGE_PATH);
    let Some(path) = path.filter(|path| !path.is_empty()) else { return Ok(Vec::new()) };
    let path = format!("/{}", path.strip_prefix('/').unwrap_or(path));
    let Some(mount) = status.mounts.iter().find(|mount| mount.container_path == path) else {
        return Ok(Vec::new());
    };
    match last_bytes(fs, Path::new(&mount.host_path), FILE_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        answer => answer.map_err(|error| (mount.host_path.clone(), error)),
    }
}

fn last_bytes(fs: &dyn Fs, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = fs.open(path, Links::Refuse)?;
    let size = file.stamp()?.size;
    file.read_at(size.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX)), limit)
}

fn text(words: Vec<u8>) -> String {
    match String::from_utf8(words) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::ports::RealFs;

    struct Case {
        dir: tempfile::TempDir,
        status: v1::ContainerStatus,
    }

    impl Case {
        fn new(policy: &str) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let host = |name: &str| dir.path().join(name).display().to_string();
            let status = v1::ContainerStatus {
                exit_code: 1,
                annotations: BTreeMap::from([
                    (labels::TERMINATION_MESSAGE_PATH.to_owned(), "/dev/words".to_owned()),
                    (labels::TERMINATION_MESSAGE_POLICY.to_owned(), policy.to_owned()),
                ]),
                mounts: vec![v1::Mount {
                    container_path: "/dev/words".to_owned(),
                    host_path: host("words"),
                    ..Default::default()
                }],
                log_path: host("0.log"),
                ..Default::default()
            };
            Self { dir, status }
        }

        fn put(&self, name: &str, content: impl AsRef<[u8]>) {
            fs::write(self.dir.path().join(name), content).expect("written");
        }

        fn message(&self) -> String {
            message(&RealFs, &self.status)
        }
    }

    fn log(lines: usize) -> String {
        (0..lines).map(|n| format!("2026-01-01T00:00:00Z stderr F line {n}\n")).collect()
    }

    #[test]
    fn the_file_comes_after_the_runtimes_message() {
        let mut case = Case::new("File");
        assert_eq!(case.message(), "");
        case.put("words", "out of cheese");
        assert_eq!(case.message(), "out of cheese");
        case.status.message = "killed".to_owned();
        assert_eq!(case.message(), "killed: out of cheese");
        case.status.annotations.remove(labels::TERMINATION_MESSAGE_PATH);
        assert_eq!(case.message(), "killed");
    }

    #[test]
    fn a_path_without_its_slash_is_the_same_path() {
        let mut case = Case::new("File");
        case.put("words", "x");
        let path = ("dev/words".to_owned(), labels::TERMINATION_MESSAGE_PATH.to_owned());
        case.status.annotations.insert(path.1, path.0);
        assert_eq!(case.message(), "x");
    }

    #[test]
    fn only_the_end_of_a_file_is_read_and_any_bytes_will_do() {
        let case = Case::new("File");
        case.put("words", [&[b'a'; 5_000][..], b"\xffend"].concat());
        let message = case.message();
        assert!(message.ends_with("a\u{fffd}end"), "{message}");
        assert_eq!(message.chars().count(), FILE_MAX);
    }

    #[test]
    fn links_and_devices_are_not_read() {
        let case = Case::new("File");
        case.put("secret", "secret");
        let words = case.dir.path().join("words");
        symlink(case.dir.path().join("secret"), &words).expect("a link");
        let message = case.message();
        assert!(message.starts_with("Error on reading termination log /"), "{message}");
        assert!(!message.ends_with("secret"), "{message}");
        fs::remove_file(&words).expect("removed");
        fs::create_dir(&words).expect("a directory");
        assert!(case.message().ends_with("not a regular file"), "{}", case.message());
    }

    #[test]
    fn the_log_makes_up_for_an_empty_file_of_a_failed_container() {
        let mut case = Case::new("FallbackToLogsOnError");
        case.put("words", "");
        case.put("0.log", log(100));
        let expected: String = (20..100).map(|n| format!("line {n}\n")).collect();
        assert_eq!(case.message(), expected);
        case.put("words", "own words");
        assert_eq!(case.message(), "own words");
        case.put("words", "");
        case.status.exit_code = 0;
        assert_eq!(case.message(), "");
        case.status.exit_code = 128;
        case.status.reason = "ContainerCannotRun".to_owned();
        assert_eq!(case.message(), "");
        let mut plain = Case::new("File");
        plain.put("0.log", log(3));
        plain.status.mounts.clear();
        assert_eq!(plain.message(), "");
    }

    #[test]
    fn long_logs_are_cut_to_their_last_words() {
        let case = Case::new("FallbackToLogsOnError");
        case.put("0.log", format!("2026-01-01T00:00:00Z stdout F {}\n", "y".repeat(3_000)));
        assert_eq!(case.message(), format!("{}\n", "y".repeat(LOG_MAX - 1)));
        // Longer than any block that is looked at.
        case.put("0.log", format!("2026-01-01T00:00:00Z stdout F {}", "z".repeat(200_000)));
        assert_eq!(case.message(), "z".repeat(LOG_MAX));
        fs::remove_file(case.dir.path().join("0.log")).expect("removed");
        let message = case.message();
        assert!(message.starts_with("Error on reading termination message from logs: "));
    }
}
