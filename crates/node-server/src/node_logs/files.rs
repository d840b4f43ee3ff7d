//! Files and directories below the node's logs.
//!
//! A name is resolved first, then opened without following anything: a link that leads
//! outside, or is changed in between, opens nothing.
//! Upstream serves them with Go's `http.FileServer`.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, HeaderName, HeaderValue, LAST_MODIFIED,
};
use hyper::{Response, StatusCode};
use jiff::Timestamp;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use tokio::task::spawn_blocking;

use crate::answer::{self, Reply};
use crate::routes::encode;
use crate::view::{Answer, Chunks, Content};

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Entries of a directory that are shown.
const ENTRIES_MAX: usize = 1 << 16;

/// Something below the directory.
pub(super) enum Found {
    File(File, fs::Metadata),
    Directory(File),
}

/// Opens what is at a path below a directory.
pub(super) async fn find(root: &Path, path: &str) -> io::Result<Found> {
    let (root, path) = (root.to_owned(), path.to_owned());
    spawn_blocking(move || open(&root, &path)).await.unwrap_or_else(|error| Err(error.into()))
}

fn open(root: &Path, path: &str) -> io::Result<Found> {
    let root = root.canonicalize()?;
    let looped = Some(rustix::io::Errno::LOOP.raw_os_error());
    let real = root.join(path).canonicalize().map_err(|error| match error.raw_os_error() {
        code if code == looped => io::Error::new(io::ErrorKind::PermissionDenied, error),
        _ => error,
    })?;
    let outside = || io::Error::new(io::ErrorKind::PermissionDenied, "it is not below the logs");
    let inside = real.strip_prefix(&root).map_err(|_| outside())?;
    let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = openat(CWD, &root, flags | OFlags::DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // What is no file, such as a pipe, must not keep anybody waiting.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(openat2(directory, inside, flags, Mode::empty(), resolve)?);
    let about = file.metadata()?;
    match about.file_type() {
        kind if kind.is_dir() => Ok(Found::Directory(file)),
        kind if kind.is_file() => Ok(Found::File(file, about)),
        _ => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is neither file nor directory"))
        }
    }
}

/// Shows what is at a path.
pub(super) async fn serve(root: &Path, path: &str, range: Option<&str>) -> Reply {
    let found = match find(root, path.trim_end_matches('/')).await {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match found {
        Found::Directory(_) if !path.is_empty() && !path.ends_with('/') => {
            answer::moved(&encode(&format!("{last}/")))
        }
        Found::File(..) if path.ends_with('/') => answer::moved(&encode(&format!("../{last}"))),
        Found::Directory(directory) => listing(directory).await,
        Found::File(file, about) => show(file, &about, last, range).await,
    }
}

fn refused(error: &io::Error) -> Reply {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => answer::unknown_path(),
        io::ErrorKind::PermissionDenied => answer::error(StatusCode::FORBIDDEN, "403 Forbidden"),
        _ => {
            tracing::warn!(%error, "a log of the node cannot be read");
            answer::error(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
        }
    }
}

async fn listing(directory: File) -> Reply {
    let read = spawn_blocking(move || names(&directory)).await;
    let names = match read.unwrap_or_else(|error| Err(error.into())) {
        Ok(names) => names,
        Err(error) => return refused(&error),
    };
    let mut page =
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n"
            .to_owned();
    for name in names {
        // A colon would make a scheme of what stands before it.
        let link = encode(&name);
        let link = if link.contains(':') { format!("./{link}") } else { link };
        page.push_str(&format!("<a href=\"{}\">{}</a>\n", escape(&link), escape(&name)));
    }
    page.push_str("</pre>\n");
    answer::content(Answer::text("text/html; charset=utf-8", page))
}

fn names(directory: &File) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let mut name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        if entry.file_type() == rustix::fs::FileType::Directory {
            name.push('/');
        }
        names.push(name);
        if names.len() == ENTRIES_MAX {
            break;
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// What part of a file is asked for: from where, and how much.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    From(u64, u64),
    Nothing,
}

/// Reads a `Range` header; several parts at once are answered with the whole.
fn part(range: Option<&str>, size: u64) -> Part {
    let Some(range) = range else { return Part::Whole };
    let Some(range) = range.strip_prefix("bytes=") else { return Part::Nothing };
    if range.contains(',') {
        return Part::Whole;
    }
    let Some((from, to)) = range.trim().split_once('-') else { return Part::Nothing };
    let (from, to) = (from.trim(), to.trim());
    match (from.parse::<u64>(), to.parse::<u64>()) {
        (Err(_), Ok(last)) if from.is_empty() && last > 0 && size > 0 => {
            let length = last.min(size);
            Part::From(size - length, length)
        }
        (Ok(from), Ok(to)) if from < size && to >= from => {
            Part::From(from, to.min(size - 1) - from + 1)
        }
        (Ok(from), Err(_)) if to.is_empty() && from < size => Part::From(from, size - from),
        _ => Part::Nothing,
    }
}

async fn show(mut file: File, about: &fs::Metadata, name: &str, range: Option<&str>) -> Reply {
    let size = about.len();
    let (from, length, status) = match part(range, size) {
        Part::Whole => (0, size, StatusCode::OK),
        Part::From(from, length) => (from, length, StatusCode::PARTIAL_CONTENT),
        Part::Nothing => {
            let why = "invalid range: failed to overlap";
            let mut reply = answer::error(StatusCode::RANGE_NOT_SATISFIABLE, why);
            put(&mut reply, CONTENT_RANGE, &format!("bytes */{size}"));
            return reply;
        }
    };
    let name = PathBuf::from(name);
    let opened = spawn_blocking(move || {
        let mut begin = Vec::new();
        (&file).take(512).read_to_end(&mut begin)?;
        file.seek(SeekFrom::Start(from))?;
        Ok::<_, io::Error>((kind(&name, &begin), file))
    });
    let (content_type, file) = match opened.await.unwrap_or_else(|error| Err(error.into())) {
        Ok(opened) => opened,
        Err(error) => return refused(&error),
    };
    let content = Content::Chunks(chunks(file, length));
    let mut reply: Response<_> = answer::content(Answer { content_type, content, warning: None });
    *reply.status_mut() = status;
    put(&mut reply, CONTENT_LENGTH, &length.to_string());
    put(&mut reply, ACCEPT_RANGES, "bytes");
    if let Part::From(from, length) = part(range, size) {
        put(&mut reply, CONTENT_RANGE, &format!("bytes {from}-{}/{size}", from + length - 1));
    }
    if let Some(changed) = about.modified().ok().and_then(|time| Timestamp::try_from(time).ok()) {
        let changed = changed.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        put(&mut reply, LAST_MODIFIED, &changed);
    }
    reply
}

fn put(reply: &mut Reply, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}

/// What a file is, by its name and how it begins.
fn kind(name: &Path, begin: &[u8]) -> &'static str {
    if name.extension().is_some_and(|extension| extension == "gz") {
        return "application/gzip";
    }
    let odd = |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    if begin.iter().any(odd) { "application/octet-stream" } else { "text/plain; charset=utf-8" }
}

/// So much of a file, from where it is; less if it ends before.
pub(super) fn chunks(file: File, length: u64) -> Chunks {
    stream::unfold(Some((file, length)), |state| async {
        let (file, left) = state.filter(|(_, left)| *left > 0)?;
        let read = spawn_blocking(move || {
            let mut chunk = Vec::new();
            let wanted = left.min(CHUNK_BYTES as u64);
            (&file).take(wanted).read_to_end(&mut chunk).map(|_| (chunk, file))
        });
        match read.await.unwrap_or_else(|error| Err(error.into())) {
            Ok((chunk, _)) if chunk.is_empty() => None,
            Ok((chunk, file)) => {
                let left = left - chunk.len() as u64;
                Some((Ok(Bytes::from(chunk)), Some((file, left))))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("logs");
        fs::create_dir_all(logs.join("pods/a")).unwrap();
        fs::create_dir(logs.join("containers")).unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        fs::write(logs.join("pods/a/0.log"), "text").unwrap();
        symlink(logs.join("pods/a/0.log"), logs.join("containers/a.log")).unwrap();
        symlink("../secret", logs.join("out")).unwrap();
        symlink("/", logs.join("all")).unwrap();
        symlink("loop", logs.join("loop")).unwrap();
        rustix::fs::mkfifoat(CWD, logs.join("pipe"), Mode::RUSR).unwrap();
        let kind = |path: &str| match open(&logs, path) {
            Ok(Found::File(..)) => "file".to_owned(),
            Ok(Found::Directory(_)) => "directory".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        for (path, wanted) in [
            ("", "directory"),
            ("pods", "directory"),
            ("pods/a/0.log", "file"),
            // Links that stay inside are what /var/log/containers is made of.
            ("containers/a.log", "file"),
            ("out", "PermissionDenied"),
            ("all/etc/passwd", "PermissionDenied"),
            ("../secret", "PermissionDenied"),
            ("pods/../../secret", "PermissionDenied"),
            ("/etc/passwd", "PermissionDenied"),
            ("loop", "PermissionDenied"),
            ("pipe", "PermissionDenied"),
            ("none", "NotFound"),
            ("pods/a/0.log/x", "NotADirectory"),
        ] {
            assert_eq!(kind(path), wanted, "{path}");
        }
    }

    #[test]
    fn parts_of_files() {
        for (range, wanted) in [
            (None, Part::Whole),
            (Some("bytes=0-3"), Part::From(0, 4)),
            (Some("bytes=5-"), Part::From(5, 5)),
            (Some("bytes=-3"), Part::From(7, 3)),
            (Some("bytes=-30"), Part::From(0, 10)),
            (Some("bytes=8-99"), Part::From(8, 2)),
            (Some("bytes=0-1,3-4"), Part::Whole),
            (Some("bytes=10-"), Part::Nothing),
            (Some("bytes=4-3"), Part::Nothing),
            (Some("bytes=-0"), Part::Nothing),
            (Some("bytes=--1"), Part::Nothing),
            (Some("lines=1-2"), Part::Nothing),
        ] {
            assert_eq!(part(range, 10), wanted, "{range:?}");
        }
        assert_eq!(part(Some("bytes=0-"), 0), Part::Nothing);
    }

    #[test]
    fn names_are_no_markup() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&#34;");
    }
}
