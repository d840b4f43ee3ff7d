//! The mount table of this process, and whether a path is a mount point.
//!
//! Reads /proc/self/mountinfo, up to a limit. Changes nothing.
//! Upstream: k8s.io/mount-utils, mount_helper_unix.go and mount_linux.go.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::StatxAttributes;
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::place::{Entry, NAME, facts_at, mount_id, through_proc};

/// A hundred thousand mounts of ordinary length; more is no table to walk.
const TABLE_BYTES_MAX: u64 = 32 * 1024 * 1024;
const TABLE: &str = "/proc/self/mountinfo";
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

/// All mounts, in the kernel's order.
pub fn read() -> Result<Vec<Mount>, MountsError> {
    let path = Path::new(TABLE);
    let mut text = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(TABLE_BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .context("read", path)?;
    if text.len() as u64 > TABLE_BYTES_MAX {
        return Err(MountsError::TooLong { path: path.to_owned(), limit: TABLE_BYTES_MAX });
    }
    parse(&text)
}

/// Mount points below a directory, deepest first, which is the order to unmount
/// them in; the directory itself is not among them. None if it does not exist.
pub fn below(dir: &Path) -> Result<Vec<PathBuf>, MountsError> {
    let entry = match Entry::of(dir) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        entry => entry?,
    };
    match entry.open(NAME) {
        Err(Errno::NOENT) => Ok(Vec::new()),
        // A mount whose server is gone cannot be opened, yet has its line.
        Err(errno) if is_broken(errno) => Ok(points_below(&read()?, &real_path(&entry)?)),
        opened => {
            let real = real_path_of(&opened.context(OPEN, dir)?, dir)?;
            Ok(points_below(&read()?, &real))
        }
    }
}

/// Whether something is mounted on exactly this name. A link is none, nor is a
/// path that does not exist.
pub fn is_mount_point(path: &Path) -> Result<bool, MountsError> {
    match Entry::of(path) {
        Err(error) if error.is_not_found() => Ok(false),
        entry => is_mounted(&entry?),
    }
}

pub(crate) fn is_mounted(entry: &Entry) -> Result<bool, MountsError> {
    let facts = match facts_at(&entry.parent, &entry.name) {
        Ok(facts) => facts,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        Err(errno) if is_broken(errno) => {
            let real = real_path(entry)?;
            return Ok(read()?.iter().any(|mount| mount.point == real));
        }
        Err(errno) => return Err(MountsError::call("look at", &entry.path, errno)),
    };
    if facts.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Linux 5.6 and 5.7 do not say so.
    let opened = entry.open(NAME).context(OPEN, &entry.path)?;
    Ok(mount_id(&opened, &entry.path)? != mount_id(&entry.parent, &entry.path)?)
}

/// Errors of a mount whose device, server or daemon has gone away.
pub(crate) fn is_broken(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOTCONN
            | Errno::STALE
            | Errno::IO
            | Errno::ACCESS
            | Errno::HOSTDOWN
            | Errno::TIMEDOUT
    )
}

/// The path of an entry as the table has it.
fn real_path(entry: &Entry) -> Result<PathBuf, MountsError> {
    let parent = real_path_of(&entry.parent, &entry.path)?;
    Ok(parent.join(OsStr::from_bytes(entry.name.to_bytes())))
}

fn real_path_of(fd: impl AsFd, path: &Path) -> Result<PathBuf, MountsError> {
    let real = rustix::fs::readlink(through_proc(fd.as_fd()), Vec::new())
        .context("read the real path of", path)?;
    Ok(PathBuf::from(OsString::from_vec(real.into_bytes())))
}

fn points_below(mounts: &[Mount], dir: &Path) -> Vec<PathBuf> {
    // Later mounts lie on top of earlier ones.
    let mut points: Vec<PathBuf> = mounts
        .iter()
        .rev()
        .map(|mount| mount.point.clone())
        .filter(|point| point.starts_with(dir) && point != dir)
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
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
    fn points_below_come_deepest_first_and_by_whole_names() {
        let line = |point: &str| format!("1 1 0:1 / {point} rw - t s rw\n");
        let text: String = ["/a", "/a/b", "/ab", "/a/b/c", "/a/d"].map(line).concat();
        let points = points_below(&parse(text.as_bytes()).unwrap(), Path::new("/a"));
        assert_eq!(points, ["/a/b/c", "/a/d", "/a/b"].map(PathBuf::from));
    }

    #[test]
    fn this_machine_has_a_table_and_a_root() {
        assert!(read().unwrap().iter().any(|mount| mount.point == Path::new("/proc")));
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/self")).unwrap());
        assert!(!is_mount_point(Path::new("/nowhere/at/all")).unwrap());
    }
}
