//! Usage cells: sums of the requests that share a time, account, key, model, provider and kind of error, packed by column.
//!
//! A block has the cells of one day or hour. Names are in a dictionary, and each column has the fewest bytes per cell that
//! its largest value needs, so that a report reads only what it groups by and adds up, without decoding single records.

use std::collections::HashMap;
use std::io;

use foldhash::fast::RandomState;

use super::UsageRecord;
use super::record::KINDS;
use super::report::UsageSums;

/// Figures of a cell, in the order of [`UsageSums::measures`].
pub(crate) const MEASURES: usize = 5 + KINDS.len();
/// Names of a cell: account, key, model, provider, kind of error.
pub(crate) const NAMES: usize = 5;
/// Columns before the figures: the hour of the period, and the names.
const KEYS: usize = 1 + NAMES;
/// Version of the encoding, the first byte.
const VERSION: u8 = 1;
/// Largest number of cells and of names in a block; a larger one means that it is damaged.
const LARGEST: u64 = 1 << 26;

/// Figures of a cell.
pub(crate) type Measures = [i64; MEASURES];

impl UsageSums {
    /// Returns all figures in the order in which cells store them.
    pub(crate) fn measures(&self) -> Measures {
        let mut all = [0; MEASURES];
        let own = [self.requests, self.failed, self.cost, self.cache_saved, self.cache_surcharge];
        for (to, from) in all.iter_mut().zip(own.into_iter().chain(self.usage)) {
            *to = from;
        }
        all
    }

    /// Returns the sums with these figures.
    pub(crate) fn from_measures(all: &Measures) -> Self {
        let [requests, failed, cost, cache_saved, cache_surcharge, usage @ ..] = *all;
        UsageSums { requests, failed, cost, usage, cache_saved, cache_surcharge }
    }

    /// Returns the sums of one request.
    pub(crate) fn of(record: &UsageRecord<'_>) -> Self {
        let mut usage = [0; KINDS.len()];
        for (sum, kind) in usage.iter_mut().zip(&KINDS) {
            *sum = (kind.get)(&record.usage).and_then(|value| i64::try_from(value).ok()).unwrap_or(0);
        }
        let nanos = |effect: u64| i64::try_from(effect).unwrap_or(i64::MAX);
        UsageSums {
            requests: 1,
            failed: record.failed().into(),
            cost: record.charge(),
            usage,
            cache_saved: nanos(record.cache_saved),
            cache_surcharge: nanos(record.cache_surcharge),
        }
    }
}

/// Returns the names of a record's cell. A request that failed without an error of the gateway has the kind
/// `http_STATUS`, which `buffer` holds.
pub(crate) fn names<'r>(record: &UsageRecord<'r>, buffer: &'r mut String) -> [&'r str; NAMES] {
    let error = if record.error.is_empty() && record.failed() {
        *buffer = format!("http_{}", record.status);
        buffer.as_str()
    } else {
        record.error
    };
    [record.account, record.key, record.model, record.provider, error]
}

/// Cells of one period while they are added up.
#[derive(Default)]
pub(crate) struct CellBuilder {
    numbers: HashMap<String, u32, RandomState>,
    names: Vec<String>,
    cells: HashMap<[u32; KEYS], Measures, RandomState>,
}

impl CellBuilder {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    /// Adds figures to the cell of an hour of the period and of these names.
    pub(crate) fn add(&mut self, hour: u32, names: [&str; NAMES], sums: &UsageSums) {
        let [a, b, c, d, e] = names.map(|name| self.number(name));
        self.add_measures([hour, a, b, c, d, e], &sums.measures());
    }

    fn add_measures(&mut self, key: [u32; KEYS], more: &Measures) {
        let cell = self.cells.entry(key).or_insert([0; MEASURES]);
        for (sum, more) in cell.iter_mut().zip(more) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Adds the cells of a block.
    pub(crate) fn load(&mut self, block: &CellBlock<'_>) {
        let numbers: Vec<u32> = block.names.iter().map(|name| self.number(name)).collect();
        let columns: Vec<Vec<u64>> = block.columns.iter().map(|column| column.values(block.len)).collect();
        for at in 0..block.len {
            let value =
                |column: usize| columns.get(column).and_then(|column| column.get(at)).copied().unwrap_or(0);
            let mut key = [0; KEYS];
            for (column, slot) in key.iter_mut().enumerate() {
                let number = value(column);
                *slot = match column {
                    0 => u32::try_from(number).unwrap_or(0),
                    _ => usize::try_from(number).ok().and_then(|at| numbers.get(at)).copied().unwrap_or(0),
                };
            }
            let mut measures = [0; MEASURES];
            for (at, slot) in measures.iter_mut().enumerate() {
                *slot = i64::try_from(value(KEYS.saturating_add(at))).unwrap_or(i64::MAX);
            }
            self.add_measures(key, &measures);
        }
    }

    /// Returns the number of cells.
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns the block, ordered by its keys.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut cells: Vec<(&[u32; KEYS], &Measures)> = self.cells.iter().collect();
        cells.sort_unstable_by_key(|(key, _)| **key);
        let mut out = vec![VERSION];
        put(&mut out, cells.len());
        put(&mut out, self.names.len());
        for name in &self.names {
            put(&mut out, name.len());
            out.extend_from_slice(name.as_bytes());
        }
        for column in 0..KEYS {
            let values = || cells.iter().map(|(key, _)| key.get(column).map_or(0, |value| u64::from(*value)));
            put_column(&mut out, values);
        }
        for column in 0..MEASURES {
            let of =
                |cell: &Measures| cell.get(column).and_then(|value| u64::try_from(*value).ok()).unwrap_or(0);
            put_column(&mut out, || cells.iter().map(|(_, cell)| of(cell)));
        }
        out
    }
}

fn put(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

/// Writes a column: the bytes per value (0 if all are the same one, which follows), then the values.
fn put_column<I: Iterator<Item = u64>>(out: &mut Vec<u8>, values: impl Fn() -> I) {
    let (least, most) =
        values().fold((u64::MAX, 0), |(least, most), value| (least.min(value), most.max(value)));
    if least >= most {
        out.push(0);
        out.extend_from_slice(&most.to_le_bytes());
        return;
    }
    let width = match most {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8u8,
    };
    out.push(width);
    for value in values() {
        out.extend(value.to_le_bytes().iter().take(usize::from(width)));
    }
}

/// Column of a block.
#[derive(Clone, Copy)]
enum Column<'b> {
    /// All values are this one.
    Same(u64),
    /// Little-endian values of so many bytes.
    Bytes(usize, &'b [u8]),
}

impl Column<'_> {
    /// Calls `each` with each value.
    fn each(&self, len: usize, mut each: impl FnMut(usize, u64)) {
        match *self {
            Column::Same(value) => (0..len).for_each(|at| each(at, value)),
            Column::Bytes(1, bytes) => {
                bytes.iter().enumerate().for_each(|(at, byte)| each(at, u64::from(*byte)))
            }
            Column::Bytes(2, bytes) => {
                let (values, _) = bytes.as_chunks();
                values
                    .iter()
                    .enumerate()
                    .for_each(|(at, value)| each(at, u64::from(u16::from_le_bytes(*value))));
            }
            Column::Bytes(4, bytes) => {
                let (values, _) = bytes.as_chunks();
                values
                    .iter()
                    .enumerate()
                    .for_each(|(at, value)| each(at, u64::from(u32::from_le_bytes(*value))));
            }
            Column::Bytes(_, bytes) => {
                let (values, _) = bytes.as_chunks();
                values.iter().enumerate().for_each(|(at, value)| each(at, u64::from_le_bytes(*value)));
            }
        }
    }

    fn values(&self, len: usize) -> Vec<u64> {
        let mut values = Vec::with_capacity(len);
        self.each(len, |_, value| values.push(value));
        values
    }
}

/// Block of cells as it is stored.
pub(crate) struct CellBlock<'b> {
    len: usize,
    /// Names that the columns number.
    pub(crate) names: Vec<&'b str>,
    columns: Vec<Column<'b>>,
}

impl<'b> CellBlock<'b> {
    /// Reads a block.
    ///
    /// # Errors
    /// Returns an error if the block is damaged or from a later version.
    pub(crate) fn read(bytes: &'b [u8]) -> io::Result<Self> {
        parse(bytes)
            .ok_or_else(|| io::Error::other("a block of usage sums is damaged, or from a later version"))
    }

    /// Returns the number of cells.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Calls `each` with the index of each cell and its hour of the period.
    pub(crate) fn hours(&self, each: impl FnMut(usize, u64)) {
        self.column(0, each);
    }

    /// Calls `each` with the index of each cell and the number of one of its names.
    pub(crate) fn name_numbers(&self, name: usize, each: impl FnMut(usize, u64)) {
        self.column(name.saturating_add(1), each);
    }

    /// Calls `each` with the index of each cell and one of its figures, unless all are zero.
    pub(crate) fn figures(&self, measure: usize, each: impl FnMut(usize, u64)) {
        let column = measure.saturating_add(KEYS);
        if !matches!(self.columns.get(column), Some(Column::Same(0))) {
            self.column(column, each);
        }
    }

    fn column(&self, column: usize, each: impl FnMut(usize, u64)) {
        if let Some(column) = self.columns.get(column) {
            column.each(self.len, each);
        }
    }
}

fn parse(bytes: &[u8]) -> Option<CellBlock<'_>> {
    let (&version, mut rest) = bytes.split_first()?;
    if version != VERSION {
        return None;
    }
    let len = take(&mut rest)?;
    let count = take(&mut rest)?;
    let mut names = Vec::new();
    for _ in 0..count {
        let size = take(&mut rest)?;
        let (name, after) = rest.split_at_checked(size)?;
        names.push(std::str::from_utf8(name).ok()?);
        rest = after;
    }
    let mut columns = Vec::with_capacity(KEYS.saturating_add(MEASURES));
    for _ in 0..KEYS.saturating_add(MEASURES) {
        let (&width, after) = rest.split_first()?;
        rest = after;
        columns.push(match width {
            0 => {
                let (value, after) = rest.split_first_chunk()?;
                rest = after;
                Column::Same(u64::from_le_bytes(*value))
            }
            1 | 2 | 4 | 8 => {
                let (values, after) = rest.split_at_checked(len.checked_mul(usize::from(width))?)?;
                rest = after;
                Column::Bytes(width.into(), values)
            }
            _ => return None,
        });
    }
    rest.is_empty().then_some(CellBlock { len, names, columns })
}

fn take(rest: &mut &[u8]) -> Option<usize> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    let number = u32::from_le_bytes(*number);
    (u64::from(number) <= LARGEST).then_some(number as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cells_that_are_cut_or_foreign_are_refused() {
        let mut builder = CellBuilder::default();
        builder.add(
            3,
            ["a", "k", "m", "p", ""],
            &UsageSums { requests: 1, cost: 70_000, ..UsageSums::default() },
        );
        builder.add(4, ["a", "k", "m", "q", "x"], &UsageSums { requests: 300, ..UsageSums::default() });
        let bytes = builder.finish();
        assert_eq!(CellBlock::read(&bytes).unwrap().len(), 2);
        for end in 0..bytes.len() {
            assert!(CellBlock::read(&bytes[..end]).is_err());
        }
        assert!(CellBlock::read(&[&bytes[..], &[0]].concat()).is_err());
        assert!(CellBlock::read(&[2]).is_err());
    }

    proptest! {
        #[test]
        fn cells_are_read_as_they_were_written(
            cells in prop::collection::vec((0u32..24, 0usize..5, 0usize..5, 0i64..=i64::MAX, 0i64..300), 0..60),
        ) {
            let name = |number: usize| ["", "a", "b", "ü", "long name"][number];
            let mut once = CellBuilder::default();
            let (mut first, mut second) = (CellBuilder::default(), CellBuilder::default());
            for (at, (hour, a, b, cost, requests)) in cells.iter().enumerate() {
                let sums = UsageSums { cost: *cost, requests: *requests, ..UsageSums::default() };
                let names = [name(*a), name(*b), "m", "p", name(*a)];
                once.add(*hour, names, &sums);
                if at % 2 == 0 { &mut first } else { &mut second }.add(*hour, names, &sums);
            }
            let mut merged = CellBuilder::default();
            for part in [first.finish(), second.finish()] {
                merged.load(&CellBlock::read(&part).unwrap());
            }
            let read = |builder: &CellBuilder| {
                let names = |number: u32| builder.names[number as usize].clone();
                let mut all: Vec<_> = builder
                    .cells
                    .iter()
                    .map(|([hour, a, b, ..], measures)| (*hour, names(*a), names(*b), *measures))
                    .collect();
                all.sort();
                all
            };
            let mut again = CellBuilder::default();
            again.load(&CellBlock::read(&once.finish()).unwrap());
            prop_assert_eq!(read(&again), read(&once));
            prop_assert_eq!(read(&merged), read(&once));
        }
    }
}
