//! The archive that a kernel unpacks for its first process: cpio's "newc" form.
//!
//! Pure: makes bytes of entries.

/// What is in the archive.
#[derive(Debug)]
pub enum Entry {
    /// A directory; those above it come before it.
    Dir(String),
    /// A file that may be run.
    File(String, Vec<u8>),
}

const DIR_MODE: u32 = 0o040_755;
const FILE_MODE: u32 = 0o100_755;
/// Everything begins at a multiple of this.
const ALIGNED: usize = 4;

/// The archive of these entries, in this order.
pub fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        match entry {
            Entry::Dir(name) => put(&mut out, number + 1, name, DIR_MODE, &[]),
            Entry::File(name, data) => put(&mut out, number + 1, name, FILE_MODE, data),
        }
    }
    put(&mut out, 0, "TRAILER!!!", 0, &[]);
    out
}

fn put(out: &mut Vec<u8>, number: usize, name: &str, mode: u32, data: &[u8]) {
    let links = 1;
    // Number, mode, owner, group, links, time, size, four numbers of devices, the name's
    // length with its end, and a sum that nobody makes.
    let mode = mode as usize;
    let fields = [number, mode, 0, 0, links, 0, data.len(), 0, 0, 0, 0, name.len() + 1, 0];
    out.extend(b"070701");
    for field in fields {
        out.extend(format!("{field:08x}").bytes());
    }
    out.extend(name.bytes());
    out.push(0);
    align(out);
    out.extend(data);
    align(out);
}

fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNED), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_laid_out_as_the_kernel_reads_them() {
        let bytes = archive(&[
            Entry::Dir("bin".to_owned()),
            Entry::File("bin/x".to_owned(), b"hello".into()),
        ]);
        assert_eq!(bytes.len() % ALIGNED, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(
            text,
            "07070100000001000041ed00000000000000000000000100000000000000000000000000000000\
             00000000000000000000000400000000bin\0\0\0\
             07070100000002000081ed00000000000000000000000100000000000000050000000000000000\
             00000000000000000000000600000000bin/x\0hello\0\0\0\
             07070100000000000000000000000000000000000000010000000000000000000000000000000\
             000000000000000000000000b00000000TRAILER!!!\0\0\0\0"
        );
    }
}
