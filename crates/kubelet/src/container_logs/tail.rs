//! The end of a log: where its last lines begin, and its last words.

use std::io;
use std::path::Path;

use super::parse::Splitter;
use crate::ports::{Fs, Links, OpenFile};

/// Bytes looked at in one go.
const BLOCK: usize = 64 << 10;

/// Where the last `lines` records of the first `size` bytes begin. Gives way
/// to others while it looks: that may be far back.
pub(super) async fn start_of_last(file: &dyn OpenFile, size: u64, lines: u64) -> io::Result<u64> {
    // A line that is not complete yet comes after the last ones.
    let mut ends_wanted = lines.saturating_add(1);
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(u64::try_from(BLOCK).unwrap_or(u64::MAX));
        let block = file.read_at(start, usize::try_from(end - start).unwrap_or(BLOCK))?;
        for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            ends_wanted -= 1;
            if ends_wanted == 0 {
                return Ok(start + u64::try_from(at).unwrap_or(u64::MAX) + 1);
            }
        }
        end = start;
        tokio::task::yield_now().await;
    }
    Ok(0)
}

/// The last words of a log: its last `lines` records, of them the last `bytes`.
/// Looks at one block only, for the whole agent waits meanwhile.
pub(crate) fn last_text(
    fs: &dyn Fs,
    log: &Path,
    lines: usize,
    bytes: usize,
) -> io::Result<Vec<u8>> {
    let file = fs.open(log, Links::Follow)?;
    let size = file.stamp()?.size;
    let start = size.saturating_sub(u64::try_from(BLOCK).unwrap_or(u64::MAX));
    let block = file.read_at(start, BLOCK)?;
    // The block may begin within a record.
    let first = match start {
        0 => 0,
        _ => block.iter().position(|byte| *byte == b'\n').map_or(block.len(), |at| at + 1),
    };
    let records = &block[first..];
    let ends = records.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let from = ends.map(|(at, _)| at + 1).nth(lines);
    let mut pieces = Vec::new();
    Splitter::default().feed(&records[from.unwrap_or(0)..], &mut pieces);
    let mut text: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.bytes).collect();
    if text.len() < bytes && from.is_none() {
        // A record longer than the block: its end is all there is.
        text.splice(..0, block[..first].iter().copied());
    }
    Ok(text.split_off(text.len().saturating_sub(bytes)))
}
