//! Disk image after a power loss: everything that was synced, and any part of what was not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rand::RngExt as _;

/// Unit of a disk write, in bytes: a sector is written completely or not at all.
const SECTOR: usize = 512;

/// Recorded file operation.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: u8,
    /// Monotonic time, in nanoseconds.
    pub(crate) time: u64,
    pub(crate) offset: usize,
    pub(crate) path: PathBuf,
    pub(crate) data: Vec<u8>,
}

/// Parses the log of the shim.
pub(crate) fn entries(mut log: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    // Each entry is written in one piece, so that a killed process leaves no partial entry.
    while log.len() >= 25 {
        let number = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
        let length = |at: usize| u32::from_le_bytes(log[at..at + 4].try_into().unwrap()) as usize;
        let (named, size) = (length(17), length(21));
        let path = std::str::from_utf8(&log[25..25 + named]).unwrap().into();
        let data = log[25 + named..25 + named + size].to_vec();
        entries.push(Entry { kind: log[0], time: number(1), offset: number(9) as usize, path, data });
        log = &log[25 + named + size..];
    }
    assert!(log.is_empty(), "the log ends in the middle of an entry");
    entries
}

/// Part of the unsynced operations that reached the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Luck {
    None,
    Some,
    All,
}

#[derive(Default)]
struct File {
    synced: Vec<u8>,
    /// Writes and truncations since the last sync.
    since: Vec<Entry>,
    /// Whether the file's name is on the disk (`named`), and whether the process has the file (`there`).
    named: bool,
    there: bool,
}

fn apply(bytes: &mut Vec<u8>, entry: &Entry, length: usize) {
    if entry.kind == b'T' {
        bytes.resize(entry.offset, 0);
    } else {
        let end = entry.offset + length;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[entry.offset..end].copy_from_slice(&entry.data[..length]);
    }
}

/// Builds the disk image after these operations in another folder.
pub(crate) fn build(entries: &[Entry], from: &Path, to: &Path, luck: Luck) {
    let mut random = rand::rng();
    let mut files: BTreeMap<&Path, File> = BTreeMap::new();
    for entry in entries {
        match entry.kind {
            b'C' => {
                // A new file with the name of a removed one starts empty.
                *files.entry(&entry.path).or_default() = File { there: true, ..File::default() };
            }
            b'W' | b'T' => files.entry(&entry.path).or_default().since.push(entry.clone()),
            b'U' => files.entry(&entry.path).or_default().there = false,
            b'S' if entry.path.is_dir() => {
                for (path, file) in &mut files {
                    if path.parent() == Some(&entry.path) {
                        file.named = file.there;
                    }
                }
            }
            b'S' => {
                let file = files.entry(&entry.path).or_default();
                for entry in std::mem::take(&mut file.since) {
                    apply(&mut file.synced, &entry, entry.data.len());
                }
            }
            _ => {}
        }
    }
    for (path, mut file) in files {
        let name = path.strip_prefix(from).unwrap();
        // Shared memory is not on a disk, and `marks` belongs to the test.
        if name.to_str().unwrap().ends_with("-shm") || name == Path::new("marks") {
            continue;
        }
        let mut reaches = || match luck {
            Luck::None => false,
            Luck::Some => random.random_range(0..2) == 0,
            Luck::All => true,
        };
        let there = if reaches() { file.there } else { file.named };
        for entry in std::mem::take(&mut file.since) {
            if reaches() {
                apply(&mut file.synced, &entry, entry.data.len());
            } else if matches!(luck, Luck::Some) && entry.data.len() > SECTOR {
                // Only some sectors of the write reached the disk.
                let sectors = entry.data.len() / SECTOR;
                apply(&mut file.synced, &entry, rand::rng().random_range(0..=sectors) * SECTOR);
            }
        }
        if there {
            let path = to.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file.synced).unwrap();
        }
    }
}
