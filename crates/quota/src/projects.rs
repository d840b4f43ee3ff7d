//! The two project files: which directory is in which project, and the projects' names.
//! Pure.
//!
//! Lines are kept as they are, also those that nobody here understands. Format and
//! numbers are upstream's, so that a node can go from one kubelet to the other.
//! Upstream: pkg/volume/util/fsquota/project.go.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The first number that upstream gives.
const FIRST: u32 = 1_048_577;

/// The number of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProjectId(NonZeroU32);

impl ProjectId {
    /// `None` for 0, which is no project.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// As the kernel knows it.
    pub fn number(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What both files say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Projects {
    dirs: Vec<Line>,
    names: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    text: Vec<u8>,
    /// The project, and its directory or name; `None` for comments and the like.
    said: Option<(ProjectId, Vec<u8>)>,
}

impl Projects {
    /// Reads the texts of /etc/projects and /etc/projid.
    pub(crate) fn parse(dirs: &[u8], names: &[u8]) -> Self {
        Self { dirs: lines(dirs, dir_line), names: lines(names, name_line) }
    }

    /// The texts of both.
    pub(crate) fn texts(&self) -> (Vec<u8>, Vec<u8>) {
        let text = |lines: &[Line]| {
            lines.iter().flat_map(|line| [line.text.as_slice(), b"\n"].concat()).collect()
        };
        (text(&self.dirs), text(&self.names))
    }

    /// The project a directory is said to be in.
    pub(crate) fn id_of(&self, dir: &Path) -> Option<ProjectId> {
        let said = self.dirs.iter().filter_map(|line| line.said.as_ref());
        said.filter(|(_, of)| of == dir.as_os_str().as_bytes()).map(|(id, _)| *id).next()
    }

    /// Numbers that neither file mentions, least first.
    pub(crate) fn free(&self) -> impl Iterator<Item = ProjectId> + use<> {
        let lines = self.dirs.iter().chain(&self.names);
        let taken: BTreeSet<ProjectId> =
            lines.filter_map(|line| line.said.as_ref()).map(|(id, _)| *id).collect();
        (FIRST..=u32::MAX).filter_map(ProjectId::new).filter(move |id| !taken.contains(id))
    }

    /// Puts a directory into a project, which gets a name unless it has one.
    pub(crate) fn add(&mut self, dir: &Path, id: ProjectId) {
        if self.id_of(dir).is_some() {
            return;
        }
        let named = |line: &Line| line.said.as_ref().is_some_and(|(of, _)| *of == id);
        if !self.names.iter().any(named) {
            self.names.extend(lines(format!("volume{id}:{id}").as_bytes(), name_line));
        }
        let text = [format!("{id}:").as_bytes(), dir.as_os_str().as_bytes()].concat();
        self.dirs.push(dir_line(&text));
    }

    /// Takes a directory out of its project, whose name goes with its last directory.
    pub(crate) fn remove(&mut self, dir: &Path) {
        let of = |line: &Line| line.said.as_ref().map(|(id, _)| *id);
        let is_it = |line: &Line| {
            line.said.as_ref().is_some_and(|(_, path)| path == dir.as_os_str().as_bytes())
        };
        let left: BTreeSet<ProjectId> =
            self.dirs.iter().filter(|line| is_it(line)).filter_map(of).collect();
        self.dirs.retain(|line| !is_it(line));
        let used: BTreeSet<ProjectId> = self.dirs.iter().filter_map(of).collect();
        let unused = |id: ProjectId| left.contains(&id) && !used.contains(&id);
        self.names.retain(|line| !of(line).is_some_and(unused));
    }
}

fn lines(text: &[u8], parse: fn(&[u8]) -> Line) -> Vec<Line> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|byte| *byte == b'\n').map(parse).collect()
}

/// `NUMBER:DIRECTORY`.
fn dir_line(text: &[u8]) -> Line {
    let said = || {
        let colon = text.iter().position(|byte| *byte == b':')?;
        Some((number(&text[..colon])?, text[colon + 1..].to_vec()))
    };
    Line { text: text.to_vec(), said: said() }
}

/// `NAME:NUMBER`.
fn name_line(text: &[u8]) -> Line {
    let said = || {
        let colon = text.iter().position(|byte| *byte == b':')?;
        let comment = colon == 0 || text[0] == b'#';
        let id = number(&text[colon + 1..])?;
        (!comment).then(|| (id, text[..colon].to_vec()))
    };
    Line { text: text.to_vec(), said: said() }
}

fn number(text: &[u8]) -> Option<ProjectId> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().and_then(ProjectId::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> ProjectId {
        ProjectId::new(number).unwrap()
    }

    fn texts(projects: &Projects) -> (String, String) {
        let (dirs, names) = projects.texts();
        (String::from_utf8(dirs).unwrap(), String::from_utf8(names).unwrap())
    }

    #[test]
    fn lines_are_understood_as_upstream_does() {
        for (text, expected) in [
            ("1048577:/a/b", Some((1_048_577, "/a/b"))),
            ("5:", Some((5, ""))),
            ("5:/with:colon", Some((5, "/with:colon"))),
            ("# 5:/a", None),
            ("5", None),
            ("x5:/a", None),
            (":/a", None),
            ("+5:/a", None),
            ("0:/a", None),
            ("4294967296:/a", None),
            ("", None),
        ] {
            let expected = expected.map(|(number, dir)| (id(number), dir.as_bytes().to_vec()));
            assert_eq!(dir_line(text.as_bytes()).said, expected, "{text}");
        }
        for (text, expected) in [
            ("volume1048577:1048577", Some((1_048_577, "volume1048577"))),
            ("#volume:5", None),
            ("name:", None),
            (":5", None),
            ("a:b:5", None),
            ("name:5 ", None),
        ] {
            let expected = expected.map(|(number, name)| (id(number), name.as_bytes().to_vec()));
            assert_eq!(name_line(text.as_bytes()).said, expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_changed_stays_to_the_letter() {
        let (dirs, names) = ("# mine\n5:/srv\n\nodd line\n", "# mine\nweb:5\n");
        let mut projects = Projects::parse(dirs.as_bytes(), names.as_bytes());
        assert_eq!(texts(&projects), (dirs.to_owned(), names.to_owned()));
        projects.add(Path::new("/v"), id(1_048_577));
        let more = format!("{dirs}1048577:/v\n");
        assert_eq!(texts(&projects), (more, format!("{names}volume1048577:1048577\n")));
        projects.remove(Path::new("/v"));
        assert_eq!(texts(&projects), (dirs.to_owned(), names.to_owned()));
        assert_eq!(texts(&Projects::parse(b"", b"")), (String::new(), String::new()));
        assert_eq!(texts(&Projects::parse(b"5:/a", b"")), ("5:/a\n".to_owned(), String::new()));
    }

    #[test]
    fn a_name_goes_with_the_last_directory_of_its_project() {
        let mut projects = Projects::parse(b"9:/a\n9:/b\n8:/c\n", b"nine:9\neight:8\n");
        projects.add(Path::new("/a"), id(7));
        assert_eq!(projects.id_of(Path::new("/a")), Some(id(9)), "it stays in its project");
        projects.add(Path::new("/d"), id(8));
        projects.remove(Path::new("/a"));
        let expected = ("9:/b\n8:/c\n8:/d\n".to_owned(), "nine:9\neight:8\n".to_owned());
        assert_eq!(texts(&projects), expected);
        projects.remove(Path::new("/b"));
        projects.remove(Path::new("/nowhere"));
        let expected = ("8:/c\n8:/d\n".to_owned(), "eight:8\n".to_owned());
        assert_eq!(texts(&projects), expected);
        let mut twice = Projects::parse(b"9:/a\n8:/a\n8:/b\n", b"nine:9\neight:8\n");
        twice.remove(Path::new("/a"));
        assert_eq!(texts(&twice), ("8:/b\n".to_owned(), "eight:8\n".to_owned()));
    }

    #[test]
    fn free_numbers_begin_where_upstreams_do() {
        let free = |dirs: &str, names: &str| {
            let projects = Projects::parse(dirs.as_bytes(), names.as_bytes());
            projects.free().take(3).map(ProjectId::number).collect::<Vec<_>>()
        };
        assert_eq!(free("", ""), [1_048_577, 1_048_578, 1_048_579]);
        let (dirs, names) = ("1048577:/a\n5:/b\n", "x:1048579\n#y:1048578\n");
        assert_eq!(free(dirs, names), [1_048_578, 1_048_580, 1_048_581]);
    }
}
