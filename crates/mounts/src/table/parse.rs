//! The text of a mount table. No I/O.
//!
//! Upstream: k8s.io/mount-utils, mount_helper_unix.go.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::error::MountsError;

/// How the kernel marks a mount point whose name is gone.
const DELETED: &[u8] = b"//deleted";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// The mount it lies on.
    pub parent: u64,
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// The directory of the file system that is its root.
    pub root: PathBuf,
    /// Where it is.
    pub point: PathBuf,
    /// Options of the mount, separated by commas.
    pub options: String,
    /// The peer group it shares its mounts with.
    pub shared: Option<u64>,
    /// Kind of file system.
    pub fs_type: String,
    /// What is mounted, as the file system names it.
    pub source: OsString,
    /// Options of the file system, separated by commas.
    pub super_options: String,
}

impl Mount {
    /// The value of an option of the file system. One that holds commas is in quotes.
    pub fn super_option(&self, name: &str) -> Option<&str> {
        let mut quoted = false;
        let mut options = self.super_options.split(|c: char| {
            quoted ^= c == '"';
            c == ',' && !quoted
        });
        let value = options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))?;
        let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        Some(bare.unwrap_or(value))
    }
}

/// Reads the text of a mount table.
pub fn parse(text: &[u8]) -> Result<Vec<Mount>, MountsError> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Result<Mount, MountsError> {
    let missing = |missing| MountsError::Table {
        line: String::from_utf8_lossy(line).chars().take(500).collect(),
        missing,
    };
    // A source may be empty, so each single space counts.
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = |what| fields.next().ok_or_else(|| missing(what));
    let id = number(next("number")?).ok_or_else(|| missing("number"))?;
    let parent = number(next("parent")?).ok_or_else(|| missing("parent"))?;
    let device = device(next("device")?).ok_or_else(|| missing("device"))?;
    let root = path(next("root")?);
    let point = next("mount point")?;
    let point = path(point.strip_suffix(DELETED).unwrap_or(point));
    let options = text_of(next("options")?);
    let mut shared = None;
    loop {
        match next("separator")? {
            b"-" => break,
            field => shared = field.strip_prefix(b"shared:").and_then(number).or(shared),
        }
    }
    Ok(Mount {
        id,
        parent,
        device,
        root,
        point,
        options,
        shared,
        fs_type: text_of(next("file system")?),
        source: OsString::from_vec(unescape(next("source")?)),
        super_options: text_of(next("file system options")?),
    })
}

fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn device(field: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

fn text_of(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// The kernel writes blanks, line ends, backslashes and hashes as `\ooo`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                plain.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = tail;
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEXT: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
30 22 0:25 / /run/a\\040b\\134c rw,nosuid master:7 shared:9 - tmpfs tmpfs rw,size=4k\n\
31 30 0:25 /in /run/a\\040b\\134c/d ro - tmpfs  rw\n\
32 22 0:26 / /gone//deleted rw propagate_from:2 - proc proc rw\n";

    #[test]
    fn lines_are_read_field_by_field() {
        let mounts = parse(TEXT).unwrap();
        let short: Vec<_> = mounts
            .iter()
            .map(|m| {
                let source = m.source.to_str().unwrap();
                (m.id, m.parent, m.point.to_str().unwrap(), m.shared, m.fs_type.as_str(), source)
            })
            .collect();
        assert_eq!(
            short,
            [
                (22, 1, "/", Some(1), "ext4", "/dev/vda"),
                (30, 22, "/run/a b\\c", Some(9), "tmpfs", "tmpfs"),
                (31, 30, "/run/a b\\c/d", None, "tmpfs", ""),
                (32, 22, "/gone", None, "proc", "proc"),
            ]
        );
        assert_eq!(mounts[0].device, (254, 0));
        assert_eq!(mounts[1].super_options, "rw,size=4k");
        assert_eq!(
            (mounts[2].root.as_path(), mounts[2].options.as_str()),
            (Path::new("/in"), "ro")
        );
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        for (line, missing) in [
            ("x", "number"),
            ("1", "parent"),
            ("1 2 3", "device"),
            ("1 2 3:x", "device"),
            ("1 2 3:4", "root"),
            ("1 2 3:4 / /a", "options"),
            ("1 2 3:4 / /a rw", "separator"),
            ("1 2 3:4 / /a rw - ext4 src", "file system options"),
        ] {
            let error = parse(line.as_bytes()).unwrap_err();
            let wanted = MountsError::Table { line: line.to_owned(), missing };
            assert_eq!(error, wanted);
        }
        assert_eq!(parse(b"\n\n").unwrap(), []);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(b"a\\0b\\999\\"), b"a\\0b\\999\\");
        assert_eq!(unescape(b"\\012\\377"), b"\n\xff");
    }

    #[test]
    fn options_may_hold_commas() {
        let line = |options: &str| {
            let text = format!("1 1 8:1 / /a rw - ext4 s {options}\n");
            parse(text.as_bytes()).unwrap().remove(0)
        };
        let label = "u:r:t:s0:c1,c2";
        for (options, expected) in [
            ("rw,context=\"u:r:t:s0:c1,c2\",noatime", Some(label)),
            ("context=\"u:r:t:s0:c1,c2\"", Some(label)),
            ("rw,context=u:r:t:s0", Some("u:r:t:s0")),
            ("rw,seclabel,fscontext=x", None),
            ("rw,x=\"a,context=b\"", None),
            ("", None),
        ] {
            assert_eq!(line(options).super_option("context"), expected, "{options}");
        }
    }
}
