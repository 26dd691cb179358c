//! Settlements that are sure to be kept: in the journal, or, while no file takes them, in memory.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Journal;

/// What no file took is kept in memory up to this size, until one does.
const UNWRITTEN: usize = 16 << 20;

/// A journal, and what it did not take.
#[derive(Debug)]
pub(in crate::store) struct Sure {
    pub(in crate::store) journal: Journal,
    /// Payloads that no file took, each behind its length.
    unwritten: Mutex<Vec<u8>>,
    /// Whether there are any.
    failing: AtomicBool,
}

impl Sure {
    /// Makes a journal in a folder, which is made if it is not there, with segments of a size.
    pub(in crate::store) fn create(folder: &Path, segment: u64) -> io::Result<Self> {
        let journal = Journal::create(folder, segment)?;
        Ok(Sure { journal, unwritten: Mutex::default(), failing: AtomicBool::new(false) })
    }

    /// Whether no file takes anything. Nothing should be held then, for it could not be charged for certain.
    pub(in crate::store) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// Appends a frame. An error says that it is in memory only.
    pub(in crate::store) fn append(&self, payload: impl Fn(&mut Vec<u8>)) -> io::Result<()> {
        let kept = self.journal.append(&payload);
        if kept.is_err() {
            self.hold_on_to(&payload);
        }
        kept
    }

    #[cold]
    fn hold_on_to(&self, payload: &dyn Fn(&mut Vec<u8>)) {
        self.failing.store(true, Ordering::Release);
        let mut unwritten = self.unwritten.lock();
        if unwritten.len() < UNWRITTEN {
            let start = unwritten.len();
            unwritten.extend_from_slice(&[0; 4]);
            payload(&mut unwritten);
            let length = u32::try_from(unwritten.len() - start - 4).unwrap_or(0).to_le_bytes();
            if let Some(slot) = unwritten.get_mut(start..start + 4) {
                slot.copy_from_slice(&length);
            }
        }
    }

    /// Tries to write what no file took before.
    pub(in crate::store) fn write_the_rest(&self) -> io::Result<()> {
        if !self.is_failing() {
            return Ok(());
        }
        let mut unwritten = self.unwritten.lock();
        while let Some((length, rest)) = unwritten.split_first_chunk::<4>() {
            let end = u32::from_le_bytes(*length) as usize;
            let record = rest.get(..end).unwrap_or_default();
            self.journal.append(|out| out.extend_from_slice(record))?;
            unwritten.drain(..4 + end);
        }
        self.failing.store(false, Ordering::Release);
        Ok(())
    }
}
