//! Record blocks: the records of one transaction, compressed into one row or list element. Single rows would cost
//! more than everything else about a record; common reports read the daily sums instead.

use std::borrow::Cow;
use std::io;

use crate::ledger::UsageRecord;

/// Minimum size in bytes for compression.
const MIN_COMPRESSED: usize = 1 << 10;
/// Compression level of zstd: the fastest regular one. Records resemble each other, so that higher levels gain little.
const LEVEL: i32 = 1;
/// Largest uncompressed block, in bytes. A larger size field means that the block is damaged.
const LARGEST: usize = 64 << 20;
/// Values of the column `packed`: how `data` is encoded.
const PLAIN: i64 = 0;
const PACKED: i64 = 1;

/// Writer of a block.
#[derive(Default)]
pub(crate) struct RecordBlockWriter {
    /// Earliest and latest time of the records, in Unix milliseconds.
    span: Option<(i64, i64)>,
    records: i64,
    bytes: Vec<u8>,
}

impl RecordBlockWriter {
    /// Adds a record; `payload` is its encoding.
    pub(crate) fn add(&mut self, record: &UsageRecord<'_>, payload: &[u8]) {
        let (first, last) = self.span.unwrap_or((record.time, record.time));
        self.span = Some((first.min(record.time), last.max(record.time)));
        self.records = self.records.saturating_add(1);
        self.bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.bytes.extend_from_slice(payload);
    }

    /// Returns the earliest and latest time of the records, in Unix milliseconds. `None` if there are none.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        self.span
    }

    /// Returns the number of records.
    pub(crate) fn len(&self) -> i64 {
        self.records
    }

    /// Returns the encoding of the block (`packed`) and its bytes.
    pub(crate) fn finish(self) -> io::Result<(i64, Vec<u8>)> {
        pack(self.bytes)
    }
}

fn pack(bytes: Vec<u8>) -> io::Result<(i64, Vec<u8>)> {
    if bytes.len() < MIN_COMPRESSED {
        return Ok((PLAIN, bytes));
    }
    Ok((PACKED, zstd::bulk::compress(&bytes, LEVEL)?))
}

/// Returns the records of a block as uncompressed bytes.
pub(crate) fn unpack(packed: i64, data: &[u8]) -> io::Result<Cow<'_, [u8]>> {
    match packed {
        PLAIN => Ok(Cow::Borrowed(data)),
        PACKED => {
            let size = zstd::zstd_safe::get_frame_content_size(data).ok().flatten();
            let size = size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= LARGEST);
            let size = size.ok_or_else(|| io::Error::other("a block of records is damaged"))?;
            zstd::bulk::decompress(data, size).map(Cow::Owned)
        }
        _ => Err(io::Error::other("a block of records is from a later version")),
    }
}

/// Returns an iterator over the records of an uncompressed block. An invalid record yields an error and ends the
/// iteration.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<UsageRecord<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let record = bytes.split_first_chunk::<4>().and_then(|(length, rest)| {
            let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            bytes = rest;
            UsageRecord::decode(record)
        });
        if record.is_none() {
            bytes = &[];
        }
        Some(record.ok_or_else(|| io::Error::other("a block of records is damaged, or from a later version")))
    })
}

/// Calls `each` with the records of an uncompressed block and their indexes: from index `from` on, or, if `is_back`, from
/// there back to the first. Ends when `each` returns false, and returns false then.
pub(crate) fn visit(
    bytes: &[u8],
    is_back: bool,
    from: usize,
    each: &mut dyn FnMut(usize, &UsageRecord<'_>) -> io::Result<bool>,
) -> io::Result<bool> {
    let all = records(bytes).enumerate();
    if !is_back {
        for (index, record) in all.skip(from) {
            if !each(index, &record?)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    // Records have no length at their end, so that they are read from the front.
    let up_to = all.take_while(|(index, _)| *index <= from);
    let read: Vec<(usize, UsageRecord<'_>)> =
        up_to.map(|(index, record)| Ok((index, record?))).collect::<io::Result<_>>()?;
    for (index, record) in read.iter().rev() {
        if !each(*index, record)? {
            return Ok(false);
        }
    }
    Ok(true)
}
