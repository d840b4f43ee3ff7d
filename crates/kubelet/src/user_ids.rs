//! Which of the host's user ids pods may be given.
//!
//! Reads the account file and asks `getsubids`, once at start. Without a user
//! named kubelet, or without that tool, all ids above the first block are used.
//! Upstream: getKubeletMappings in pkg/kubelet/kubelet_pods.go.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ports::Fs;
use crate::settings::UserIds;

const USER: &str = "kubelet";
const TOOL: &str = "getsubids";
const ACCOUNTS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The ids reserved for pods on this machine.
///
/// # Errors
/// The user exists, and what is reserved for it cannot be used.
pub fn read(fs: &dyn Fs, per_pod: u32) -> Result<UserIds, String> {
    let accounts = fs.read(Path::new("/etc/passwd"), ACCOUNTS_BYTES_MAX).unwrap_or_default();
    let is_user = |line: &[u8]| line.starts_with(format!("{USER}:").as_bytes());
    let tool = find_tool(fs).filter(|_| accounts.split(|byte| *byte == b'\n').any(is_user));
    let Some(tool) = tool else { return Ok(UserIds::above_the_host(per_pod)) };
    let users = ask(&tool, &[USER])?;
    if users != ask(&tool, &["-g", USER])? {
        return Err(format!("mismatched subuids and subgids for user {USER:?}"));
    }
    parse(&users, per_pod)
}

fn find_tool(fs: &dyn Fs) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(TOOL));
    places.find(|place| fs.stat(place).is_ok_and(|entry| entry.is_file))
}

fn ask(tool: &Path, args: &[&str]) -> Result<String, String> {
    let failed = |why: String| format!("{} {}: {why}", tool.display(), args.join(" "));
    let output = Command::new(tool).args(args).output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|e| failed(e.to_string()))
}

/// Reads one line of the form `0: kubelet 65536 7208960`.
fn parse(text: &str, per_pod: u32) -> Result<UserIds, String> {
    let wrong = |why: &str| format!("{TOOL} said {text:?} of user {USER:?}: {why}");
    let mut lines = text.trim_matches('\n').lines();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(wrong("exactly one range is allowed"));
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, first, count] = words[..] else { return Err(wrong("four words are expected")) };
    let number = |word: &str| word.parse::<u32>().map_err(|error| wrong(&error.to_string()));
    let ids = UserIds { first: number(first)?, count: number(count)?, per_pod };
    if !ids.first.is_multiple_of(per_pod) || !ids.count.is_multiple_of(per_pod) {
        return Err(wrong(&format!("start and length must be multiples of {per_pod}")));
    }
    if ids.first < per_pod || ids.count == 0 {
        return Err(wrong(&format!("it must start at {per_pod} or above, and not be empty")));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_tool() {
        let good = UserIds { first: 65_536, count: 7_208_960, per_pod: 65_536 };
        assert_eq!(parse("0: kubelet 65536 7208960\n", 65_536), Ok(good));
        for bad in [
            "",
            "0: kubelet 65536",
            "0: kubelet 65536 7208960\n1: kubelet 131072 65536\n",
            "0: kubelet x 65536",
            "0: kubelet 65537 65536",
            "0: kubelet 65536 65537",
            "0: kubelet 0 65536",
            "0: kubelet 65536 0",
        ] {
            assert!(parse(bad, 65_536).is_err(), "{bad:?}");
        }
    }
}
