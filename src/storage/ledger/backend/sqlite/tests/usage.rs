//! Usage by several dimensions: the same sums as those of single records, at every stage of the rollup, and in time.

use std::collections::BTreeMap;
use std::time::Instant;

use super::*;
use crate::ledger::breakdown::{
    BreakdownRow, DimensionValue, UsageDimension, UsageOrder, UsageQuery, arrange, total,
};
use crate::ledger::record_block::RecordBlockWriter;
use crate::ledger::report::{RecordQuery, UsageSums};
use crate::ledger::usage_cells::names;

/// First day of the records.
const FIRST: i64 = 20_000;
const ERRORS: [(&str, u16); 6] =
    [("", 200), ("", 200), ("upstream_error", 502), ("rate_limited", 429), ("timeout", 504), ("", 404)];

/// Texts that records refer to.
struct Texts {
    accounts: Vec<String>,
    keys: Vec<String>,
    models: Vec<String>,
    providers: Vec<String>,
}

impl Texts {
    fn new(keys: usize, models: usize) -> Texts {
        let list = |name: &str, count: usize| (0..count).map(|number| format!("{name}-{number}")).collect();
        Texts {
            accounts: list("account", (keys / 5).max(1)),
            keys: list("key", keys),
            models: list("model", models),
            providers: list("provider", 6),
        }
    }

    /// Returns a record; the same one for the same number. Most requests are of few keys and models, and a key uses up to
    /// four models.
    fn record(&self, number: u64, days: i64, count: u64) -> UsageRecord<'_> {
        let random = |salt: u64| {
            let mut x = number.wrapping_add(salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        let pick = |salt, most: usize| {
            let part = (random(salt) >> 11) as f64 / (1u64 << 53) as f64;
            ((part * part * most as f64) as usize).min(most - 1)
        };
        let key = pick(1, self.keys.len());
        let model = (key * 7 + pick(2, 4)) % self.models.len();
        let failed = random(3).is_multiple_of(50);
        let (error, status) = if failed { ERRORS[pick(4, ERRORS.len())] } else { ("", 200) };
        let day_millis = u64::try_from(days * DAY).unwrap();
        let time = FIRST * DAY
            + i64::try_from(u128::from(number) * u128::from(day_millis) / u128::from(count)).unwrap();
        UsageRecord {
            time,
            request: "req_0123456789abcdef",
            account: &self.accounts[key % self.accounts.len()],
            key: &self.keys[key],
            model: &self.models[model],
            provider: if status == 404 { "" } else { &self.providers[(model + pick(5, 2)) % 6] },
            target: &self.models[model],
            endpoint: "chat",
            client_format: "chat",
            provider_format: "messages",
            error,
            status,
            attempts: 1,
            total: 1_000,
            usage: Usage {
                input: Some(random(6) % 10_000),
                cached: Some(random(7) % 4_000),
                output: Some(random(8) % 2_000),
                ..Usage::default()
            },
            cost: i64::try_from(random(9) % 10_000_000).unwrap(),
            cache_saved: random(10) % 1_000_000,
            ..UsageRecord::default()
        }
    }

    /// Stores records as the journal does, in one block.
    fn store(&self, connection: &rusqlite::Connection, numbers: std::ops::Range<u64>, days: i64, count: u64) {
        let mut block = RecordBlockWriter::default();
        let mut payload = Vec::new();
        for number in numbers {
            let record = self.record(number, days, count);
            payload.clear();
            record.encode(&mut payload);
            block.add(&record, &payload);
        }
        let ((first, last), records) = (block.span().unwrap(), block.len());
        let (packed, data) = block.finish().unwrap();
        connection
            .prepare_cached(
                "INSERT INTO block (first, last, records, packed, data) VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .unwrap()
            .execute(rusqlite::params![first, last, records, packed, data])
            .unwrap();
    }
}

fn query(dimensions: &[UsageDimension], from: i64, to: i64) -> UsageQuery {
    let filter = UsageFilter { from: FIRST + from, to: FIRST + to, ..UsageFilter::default() };
    UsageQuery { filter, dimensions: dimensions.to_vec(), ..UsageQuery::default() }
}

/// Adds single records up, without cells.
fn expected(
    texts: &Texts,
    query: &UsageQuery,
    days: i64,
    count: u64,
) -> BTreeMap<Vec<DimensionValue>, UsageSums> {
    let mut sums: BTreeMap<Vec<DimensionValue>, UsageSums> = BTreeMap::new();
    for number in 0..count {
        let record = texts.record(number, days, count);
        let mut buffer = String::new();
        let names = names(&record, &mut buffer);
        let required =
            [&query.filter.account, &query.filter.key, &query.filter.model, &query.provider, &query.error];
        let fits = required
            .iter()
            .zip(names)
            .all(|(required, name)| required.as_deref().is_none_or(|it| it == name));
        if !fits || !(query.filter.from * DAY..query.filter.to * DAY).contains(&record.time) {
            continue;
        }
        let value = |dimension: &UsageDimension| match dimension {
            UsageDimension::Hour => DimensionValue::Time(record.time.div_euclid(3_600_000)),
            UsageDimension::Day => DimensionValue::Time(record.time.div_euclid(DAY)),
            UsageDimension::Month => {
                let date = codec::canonical::time::date_of_day(record.time.div_euclid(DAY));
                DimensionValue::Time(i64::from(date.year()) * 12 + i64::from(date.month()) - 1)
            }
            name => DimensionValue::Name(names[name.name_index().unwrap()].into()),
        };
        sums.entry(query.dimensions.iter().map(value).collect()).or_default().add(&UsageSums::of(&record));
    }
    sums
}

fn by_values(rows: Vec<BreakdownRow>) -> BTreeMap<Vec<DimensionValue>, UsageSums> {
    rows.into_iter().map(|row| (row.values, row.sums)).collect()
}

#[test]
fn usage_by_dimensions_is_the_sum_of_the_records_at_every_stage_of_the_rollup() {
    use UsageDimension::{Account, Day, Error, Hour, Key, Model, Month, Provider};
    const COUNT: u64 = 3_000;
    const DAYS: i64 = 40;
    let folder = tempfile::tempdir().unwrap();
    let connection = open_connection(folder.path());
    let texts = Texts::new(20, 6);
    let mut queries = vec![
        query(&[Day], 0, DAYS),
        query(&[Month, Provider, Error], 0, DAYS),
        query(&[Key, Model], 3, 30),
        query(&[Account], 5, 6),
        query(&[Hour, Model], 2, 20),
        query(&[Hour, Key, Error], 10, 17),
        query(&[Day, Account, Provider], 0, DAYS),
    ];
    let with = |change: fn(&mut UsageQuery)| {
        let mut query = query(&[Day, Model], 1, 39);
        change(&mut query);
        query
    };
    queries.push(with(|query| query.filter.key = Some("key-1".to_owned())));
    queries.push(with(|query| query.provider = Some("provider-2".to_owned())));
    queries.push(with(|query| query.error = Some("http_404".to_owned())));
    queries.push(with(|query| query.error = Some(String::new())));
    queries.push(with(|query| query.filter.model = Some("no such model".to_owned())));
    for stage in 0..4 {
        if stage < 3 {
            let numbers = stage * COUNT / 3..(stage + 1) * COUNT / 3;
            for part in [numbers.start..numbers.start + 10, numbers.start + 10..numbers.end] {
                texts.store(&connection, part, DAYS, COUNT);
            }
        }
        // At the last but one stage, a third of the records is not in the cells.
        if stage == 1 || stage == 3 {
            while rollup::advance(&connection).unwrap() {}
        }
        if stage < 2 {
            continue;
        }
        for query in &queries {
            query.check().unwrap();
            let rows = rollup::breakdown(&connection, query).unwrap();
            assert_eq!(by_values(rows), expected(&texts, query, DAYS, COUNT), "{query:?}, stage {stage}");
        }
    }
    // Cells of hours by key expire with the records.
    let before = rollup::breakdown(&connection, &queries[5]).unwrap();
    rollup::remove_expired(&connection, (FIRST + 11) * DAY).unwrap();
    let after = rollup::breakdown(&connection, &queries[5]).unwrap();
    assert!(total(&after).requests < total(&before).requests && !after.is_empty());
}

#[test]
fn usage_of_days_from_before_the_cells_comes_from_the_daily_sums() {
    let folder = tempfile::tempdir().unwrap();
    let connection = open_connection(folder.path());
    let zeros = ", 0".repeat(9);
    let daily = format!("INSERT INTO daily VALUES ({FIRST}, 'a', 'k', 'm', 5, 1, 70, 40{zeros}, 3, 0)");
    connection.execute(&daily, ()).unwrap();
    let texts = Texts::new(5, 2);
    // Records of the next day; of the day before they have expired.
    let numbers = 100..200;
    texts.store(&connection, numbers, 2, 200);
    let days = |query: &UsageQuery| {
        let rows = arrange(rollup::breakdown(&connection, query).unwrap(), UsageOrder::Cost);
        rows.iter().map(|row| row.sums.requests).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(days(&query(&[UsageDimension::Day, UsageDimension::Provider], 0, 1)), [5]);
        while rollup::advance(&connection).unwrap() {}
    }
    // A file whose records are all there is summed up from its first day on.
    let folder = tempfile::tempdir().unwrap();
    let connection = open_connection(folder.path());
    connection.execute(&daily, ()).unwrap();
    texts.store(&connection, 0..200, 2, 200);
    assert!(!rollup::advance(&connection).unwrap());
    let rows = rollup::breakdown(&connection, &query(&[UsageDimension::Day], 0, 2)).unwrap();
    assert_eq!(total(&rows).requests, 200);
}

/// Ten million records of 90 days, 1,000 keys of 200 accounts, 24 models and 6 providers: each query within 100 ms on one
/// core, with optimisation. `MGW_USAGE_RECORDS` gives another number, and `MGW_USAGE_FOLDER` a folder in which the database
/// stays, for benches/e2e/admin.py.
#[test]
#[ignore = "takes minutes; prints figures"]
fn usage_of_ten_million_records_is_summed_within_100_ms() {
    use UsageDimension::{Account, Day, Error, Hour, Key, Model, Month, Provider};
    const DAYS: i64 = 90;
    const BLOCK: u64 = 2_000;
    let count =
        std::env::var("MGW_USAGE_RECORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000_000);
    let temporary = tempfile::tempdir().unwrap();
    let folder = std::env::var_os("MGW_USAGE_FOLDER")
        .map_or_else(|| temporary.path().to_owned(), std::path::PathBuf::from);
    let connection = open_connection(&folder);
    let texts = Texts::new(1_000, 24);
    let start = Instant::now();
    connection.execute_batch("BEGIN").unwrap();
    for block in 0..count / BLOCK {
        texts.store(&connection, block * BLOCK..(block + 1) * BLOCK, DAYS, count);
    }
    connection.execute_batch("COMMIT").unwrap();
    let stored = start.elapsed();
    let start = Instant::now();
    while rollup::advance(&connection).unwrap() {}
    let rolled = start.elapsed();
    let size: i64 =
        connection.query_row("SELECT SUM(LENGTH(data)) FROM usage_cells", (), |row| row.get(0)).unwrap();
    println!(
        "{count} records stored in {stored:.1?}, rolled up in {rolled:.1?}, {} MB of cells",
        size / 1_000_000
    );
    // Records that are not in the cells yet: those of ten seconds at 1,000 requests per second.
    texts.store(&connection, 0..10_000, DAYS, count);
    let of_key = |query: UsageQuery| {
        let filter = UsageFilter { key: Some("key-3".to_owned()), ..query.filter };
        UsageQuery { filter, ..query }
    };
    let of_provider = |query: UsageQuery| UsageQuery { provider: Some("provider-1".to_owned()), ..query };
    let mut slowest = Duration::ZERO;
    for (name, query) in [
        ("day", query(&[Day], 0, DAYS)),
        ("month", query(&[Month], 0, DAYS)),
        ("model of a day", query(&[Model], DAYS - 1, DAYS)),
        ("key of a day", query(&[Key], DAYS - 1, DAYS)),
        ("key of a month", query(&[Key], DAYS - 31, DAYS)),
        ("model", query(&[Model], 0, DAYS)),
        ("key", query(&[Key], 0, DAYS)),
        ("account, key", query(&[Account, Key], 0, DAYS)),
        ("key, model", query(&[Key, Model], 0, DAYS)),
        ("key, model, provider", query(&[Key, Model, Provider], 0, DAYS)),
        ("day, model", query(&[Day, Model], 0, DAYS)),
        ("day, model, provider", query(&[Day, Model, Provider], 0, DAYS)),
        ("day, error", query(&[Day, Error], 0, DAYS)),
        ("day, account", query(&[Day, Account], 0, DAYS)),
        ("day, key", query(&[Day, Key], 0, DAYS)),
        ("day, model of a key", of_key(query(&[Day, Model], 0, DAYS))),
        ("day, key of a provider", of_provider(query(&[Day, Key], 0, DAYS))),
        ("hour, model of 31 days", query(&[Hour, Model], 59, DAYS)),
        ("hour, error of 7 days", query(&[Hour, Error], 83, DAYS)),
        ("hour, account of 7 days", query(&[Hour, Account], 83, DAYS)),
        ("hour, key of 7 days", query(&[Hour, Key], 83, DAYS)),
    ] {
        query.check().unwrap();
        let query = UsageQuery { top: Some(10), ..query };
        let mut best = Duration::MAX;
        let mut rows = 0;
        for _ in 0..3 {
            let start = Instant::now();
            let found = rollup::breakdown(&connection, &query).unwrap();
            let arranged = arrange(found, UsageOrder::Cost);
            best = best.min(start.elapsed());
            rows = arranged.len();
        }
        println!("{name:28} {:7.1} ms, {rows} rows", best.as_secs_f64() * 1e3);
        slowest = slowest.max(best);
    }
    time_pages(&connection, &query(&[Day], 0, DAYS).filter);
    if !cfg!(debug_assertions) {
        assert!(slowest < Duration::from_millis(100), "{slowest:?}");
    }
}

/// Prints the time of pages of records in both orders.
fn time_pages(connection: &rusqlite::Connection, filter: &UsageFilter) {
    let page = report::PageSize { records: 100, blocks: 1_000, bytes: usize::MAX };
    let oldest = RecordQuery::of(filter);
    let newest = RecordQuery { newest_first: true, ..oldest.clone() };
    for (name, query) in [("page of 100 records", oldest), ("page of the latest 100", newest)] {
        for start in [None, Some(RecordPosition { block: 2_000, index: 7 })] {
            let begun = Instant::now();
            report::page(connection, &query, start, page, &mut |_| Ok(())).unwrap();
            println!("{name:28} {:7.1} ms", begun.elapsed().as_secs_f64() * 1e3);
        }
    }
}

#[test]
fn page_ends_after_many_bytes_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let connection = open_connection(folder.path());
    let texts = Texts::new(10, 4);
    for block in 0..5 {
        texts.store(&connection, block * 100..(block + 1) * 100, 1, 500);
    }
    let filter = query(&[UsageDimension::Day], 0, 1).filter;
    let none = RecordQuery { text: Some("nothing-has-this".to_owned()), ..RecordQuery::of(&filter) };
    for (query, all) in [(RecordQuery::of(&filter), 500), (none, 0)] {
        for newest_first in [false, true] {
            let query = RecordQuery { newest_first, ..query.clone() };
            // A block is read whole.
            let most = report::PageSize { records: 1_000, blocks: 1_000, bytes: 1 };
            let (mut shown, mut pages, mut start) = (0, 0, None);
            loop {
                let show = &mut |_: &UsageRecord<'_>| {
                    shown += 1;
                    Ok(())
                };
                start = report::page(&connection, &query, start, most, show).unwrap();
                pages += 1;
                if start.is_none() {
                    break;
                }
            }
            assert_eq!((shown, pages), (all, 5), "{newest_first}");
        }
    }
}
