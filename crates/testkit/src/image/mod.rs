//! Images made on the spot: no registry, no network, no image tools.
//!
//! Owns the description of an image; `archive` turns it into an OCI archive
//! that any runtime can import.

mod archive;
mod pause;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// The sandbox image, and the smallest container there is.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10";
/// A shell and the usual small tools.
pub const BUSYBOX: &str = "docker.io/library/busybox:latest";

/// One file or link of an image.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Directory { path: String, mode: u32 },
    File { path: String, mode: u32, content: Vec<u8> },
    Link { path: String, target: String },
}

/// A single-layer image.
#[derive(Debug, Clone)]
pub struct Image {
    pub(crate) name: String,
    pub(crate) entries: Vec<Entry>,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) command: Vec<String>,
    pub(crate) user: Option<String>,
}

impl Image {
    /// An empty image of the given full name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            entries: Vec::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            user: None,
        }
    }

    /// The sandbox image: one static program of a few hundred bytes.
    pub fn pause() -> Self {
        let mut image = Self::new(PAUSE).file("pause", 0o755, pause::program());
        image.entrypoint = vec!["/pause".to_owned()];
        image.user = Some("65535:65535".to_owned());
        image
    }

    /// Debian's static busybox with a link for each of its tools.
    pub fn busybox() -> Result<Self> {
        let path = Path::new("/bin/busybox");
        let package = "run `make setup`, or `apt-get install busybox-static`";
        let Ok(program) = fs::read(path) else {
            bail!("{} is not installed; {package}", path.display());
        };
        if has_interpreter(&program) {
            bail!("{} is not linked statically; {package}", path.display());
        }
        let tools = process::run(Command::new(path).arg("--list"))?;
        let mut image = Self::new(BUSYBOX)
            .directory("tmp", 0o1777)
            .directory("root", 0o700)
            .file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n".to_vec())
            .file("etc/group", 0o644, b"root:x:0:\n".to_vec())
            .file("bin/busybox", 0o755, program);
        for tool in tools.split_whitespace().filter(|tool| *tool != "busybox") {
            image = image.link(&format!("bin/{tool}"), "busybox");
        }
        image.command = vec!["sh".to_owned()];
        Ok(image)
    }

    /// An image that holds and runs one static program, such as klet.
    pub fn of_program(name: &str, program: &Path) -> Result<Self> {
        let content = fs::read(program)
            .with_context(|| format!("cannot read the program {}", program.display()))?;
        if has_interpreter(&content) {
            bail!("{} is not linked statically; build it with `make dist`", program.display());
        }
        let file = program.file_name().context("a program has a file name")?.to_string_lossy();
        let mut image = Self::new(name).file(&file, 0o755, content);
        image.entrypoint = vec![format!("/{file}")];
        Ok(image)
    }

    /// Adds a file.
    pub fn file(mut self, path: &str, mode: u32, content: Vec<u8>) -> Self {
        self.entries.push(Entry::File { path: path.to_owned(), mode, content });
        self
    }

    /// Adds a directory.
    pub fn directory(mut self, path: &str, mode: u32) -> Self {
        self.entries.push(Entry::Directory { path: path.to_owned(), mode });
        self
    }

    /// Adds a symbolic link.
    pub fn link(mut self, path: &str, target: &str) -> Self {
        self.entries.push(Entry::Link { path: path.to_owned(), target: target.to_owned() });
        self
    }

    /// Its full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it as an OCI archive.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file =
            fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        archive::write(self, std::io::BufWriter::new(file))
            .with_context(|| format!("cannot write the image {} to {}", self.name, path.display()))
    }
}

/// Whether an ELF program asks for a dynamic loader (program header PT_INTERP).
fn has_interpreter(elf: &[u8]) -> bool {
    let half =
        |at: usize| elf.get(at..at + 2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let (Some(size), Some(count)) = (half(54), half(56)) else {
        return false;
    };
    (0..count).any(|n| elf.get(64 + n * size) == Some(&3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_refused_with_advice() {
        let own = std::env::current_exe().unwrap();
        let err = Image::of_program("example.com/x:1", &own).unwrap_err().to_string();
        assert!(err.contains("make dist"), "{err}");
    }

    #[test]
    fn a_static_program_becomes_its_images_entry_point() {
        let image = Image::of_program("example.com/x:1", Path::new("/bin/busybox")).unwrap();
        assert_eq!(image.entrypoint, ["/busybox"]);
    }

    #[test]
    fn the_pause_program_is_static() {
        assert!(!has_interpreter(&pause::program()));
    }
}
