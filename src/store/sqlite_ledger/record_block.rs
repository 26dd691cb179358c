//! Blocks: the records of one transaction, packed. Single rows would cost more than all else that a record costs; what
//! is asked of records every day is answered by the sums of days.

use std::borrow::Cow;
use std::io;

use rusqlite::{Connection, params};

use crate::store::record::UsageRecord;

/// Below this, packing gains nothing.
const WORTH_PACKING: usize = 1 << 10;
/// zstd's fastest ordinary level: records repeat each other, so that a higher one gains little.
const LEVEL: i32 = 1;
/// Largest block, unpacked: what a length says beyond it is no length.
const LARGEST: usize = 64 << 20;
/// How `data` stands in the table.
const PLAIN: i64 = 0;
const PACKED: i64 = 1;

/// A block that is being filled.
#[derive(Default)]
pub(in crate::store) struct RecordBlockWriter {
    /// Earliest and latest time.
    span: Option<(i64, i64)>,
    records: i64,
    bytes: Vec<u8>,
}

impl RecordBlockWriter {
    /// Adds a record, which is written already.
    pub(in crate::store) fn add(&mut self, record: &UsageRecord<'_>, payload: &[u8]) {
        let (first, last) = self.span.unwrap_or((record.time, record.time));
        self.span = Some((first.min(record.time), last.max(record.time)));
        self.records += 1;
        self.bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.bytes.extend_from_slice(payload);
    }

    /// Puts the block into the table.
    pub(super) fn insert(self, connection: &Connection) -> Result<(), super::rows::ApplyError> {
        let Some((first, last)) = self.span else { return Ok(()) };
        let (packed, data) = pack(self.bytes)?;
        connection
            .prepare_cached(
                "INSERT INTO block (first, last, records, packed, data) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![first, last, self.records, packed, data])?;
        Ok(())
    }

    /// The block: how it is packed, and its bytes.
    pub(in crate::store) fn finish(self) -> io::Result<(i64, Vec<u8>)> {
        pack(self.bytes)
    }
}

fn pack(bytes: Vec<u8>) -> io::Result<(i64, Vec<u8>)> {
    if bytes.len() < WORTH_PACKING {
        return Ok((PLAIN, bytes));
    }
    Ok((PACKED, zstd::bulk::compress(&bytes, LEVEL)?))
}

/// The records of a block, as bytes.
pub(in crate::store) fn unpack(packed: i64, data: &[u8]) -> io::Result<Cow<'_, [u8]>> {
    match packed {
        PLAIN => Ok(Cow::Borrowed(data)),
        PACKED => {
            let size = zstd::zstd_safe::get_frame_content_size(data).ok().flatten();
            let size = size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= LARGEST);
            let size = size.ok_or_else(|| io::Error::other("a block of records is damaged"))?;
            zstd::bulk::decompress(data, size).map(Cow::Owned)
        }
        _ => Err(io::Error::other("a block of records is of a later version")),
    }
}

/// Reads the records of an unpacked block; what is none is an error, and the last.
pub(in crate::store) fn records(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<UsageRecord<'_>>> {
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
        Some(record.ok_or_else(|| io::Error::other("a block of records is damaged, or of a later version")))
    })
}
