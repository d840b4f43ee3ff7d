//! Compresses a rotated log in small steps, so that the agent's thread stays free.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::plan::{GZIPPED, UNFINISHED};
use crate::ports::{Fs, Links};

/// Bytes compressed before others get their turn: about a millisecond.
const STEP_BYTES: usize = 64 << 10;

/// Replaces `log` by `log.gz`. If cut short it leaves `log`, and at most an
/// unfinished file that the next rotation removes.
pub(super) async fn compress(fs: &dyn Fs, log: &Path) -> io::Result<()> {
    let unfinished = with_suffix(log, UNFINISHED);
    if let Err(error) = write_gzip(fs, log, &unfinished).await {
        // The first error is the one to report.
        let _ = fs.remove_file(&unfinished);
        return Err(error);
    }
    fs.rename(&unfinished, &with_suffix(log, GZIPPED))?;
    fs.remove_file(log)
}

async fn write_gzip(fs: &dyn Fs, log: &Path, to: &Path) -> io::Result<()> {
    let source = fs.open(log, Links::Refuse)?;
    let mut file = fs.create(to, source.mode()?)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut offset = 0;
    loop {
        let step = source.read_at(offset, STEP_BYTES)?;
        if step.is_empty() {
            break;
        }
        encoder.write_all(&step)?;
        file.append(&std::mem::take(encoder.get_mut()))?;
        offset += u64::try_from(step.len()).unwrap_or(u64::MAX);
        tokio::task::yield_now().await;
    }
    file.append(&encoder.finish()?)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
