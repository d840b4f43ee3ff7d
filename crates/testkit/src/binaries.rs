//! Where the built klet is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

use crate::process;

/// The klet to test: `$KLET_BIN`, or the one cargo builds beside this program.
pub fn klet_binary() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = std::env::var_os("KLET_BIN").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    // Once per process: cargo takes a while even when nothing has changed.
    let built = BUILT.get_or_init(|| build().map_err(|err| format!("{err:#}")));
    built.clone().map_err(|err| anyhow!("cannot build klet: {err}"))
}

fn build() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let place = Place::of(&own)
        .with_context(|| format!("{} is not in a cargo target directory", own.display()))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // The whole workspace decides on features, as it does under `cargo test`:
    // naming klet alone would build its dependencies a second time.
    command
        .args(["build", "--quiet", "--workspace", "--bin", "klet", "--profile", &place.profile])
        .env("CARGO_TARGET_DIR", &place.target)
        .current_dir(workspace());
    process::run(&mut command)?;
    Ok(place.dir.join("klet"))
}

/// klet linked statically, as published, so that it can be an image's only file:
/// `$KLET_STATIC_BIN`, or one built now.
pub fn static_klet_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("KLET_STATIC_BIN").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let place = Place::of(&own)
        .with_context(|| format!("{} is not in a cargo target directory", own.display()))?;
    let mut command = Command::new("make");
    command
        .args(["--quiet", "static"])
        .env("CARGO_TARGET_DIR", &place.target)
        .current_dir(workspace());
    process::run(&mut command).context("cannot build a static klet")?;
    Ok(place.target.join("static").join(STATIC_TARGET).join("debug/klet"))
}

/// What `make static` builds for.
const STATIC_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Root of the source tree this was built from.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Which target directory and profile a program was built in.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    target: PathBuf,
    profile: String,
    dir: PathBuf,
}

impl Place {
    fn of(program: &Path) -> Option<Self> {
        let mut dir = program.parent()?;
        // Tests are one level down.
        if dir.ends_with("deps") {
            dir = dir.parent()?;
        }
        let profile = match dir.file_name()?.to_str()? {
            "debug" => "dev",
            other => other,
        };
        Some(Self {
            target: dir.parent()?.to_owned(),
            profile: profile.to_owned(),
            dir: dir.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_follows_from_the_program() {
        let place = |program: &str| Place::of(Path::new(program)).unwrap();
        let expected =
            Place { target: "/t".into(), profile: "dev".to_owned(), dir: "/t/debug".into() };
        assert_eq!(place("/t/debug/deps/pods-0123"), expected);
        assert_eq!(place("/t/debug/xtask"), expected);
        assert_eq!(place("/t/release/xtask").profile, "release");
    }
}
