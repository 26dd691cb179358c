//! Pages of single records: in both orders, with every filter, from any cursor.

use super::ledger::{record, settle};
use super::{TestBackend, on_both};
use crate::ledger::UsageRecord;
use crate::ledger::admin::{AdminError, LedgerAdmin};
use crate::ledger::report::{DAY, RecordQuery, StatusFilter, UsageFilter};

/// Returns the first day with records, which is still retained.
fn first_day() -> i64 {
    crate::store::now() / DAY - 10
}

/// Returns the ids of all records that a query chooses, page by page.
fn all(admin: &dyn LedgerAdmin, query: &RecordQuery, size: usize) -> Vec<String> {
    let (mut ids, mut cursor): (Vec<String>, Option<String>) = (Vec::new(), None);
    loop {
        let before = ids.len();
        cursor = admin
            .records_page(query, cursor.as_deref(), size, &mut |record| {
                ids.push(record.request.to_owned());
                Ok(())
            })
            .unwrap();
        assert!(ids.len() - before <= size);
        if cursor.is_none() {
            return ids;
        }
        assert_eq!(ids.len() - before, size, "a page is full, unless it is the last one");
    }
}

fn records_are_shown_in_both_orders_and_found(place: &dyn TestBackend) {
    let (admin, begin) = (place.admin(), first_day());
    let ledger = &*place.ledger();
    for n in 0..60i64 {
        let request = format!("req_{n:02}");
        let (account, provider) = if n % 2 == 0 { ("", "openai") } else { ("acme", "Local") };
        let (status, error) = if n % 5 == 0 { (429, "rate_limited") } else { (200, "") };
        let time = (begin + n / 20) * DAY + n;
        settle(
            ledger,
            None,
            &UsageRecord { request: &request, time, provider, status, error, ..record(account, 0) },
        );
        // Several blocks.
        if n % 7 == 0 {
            ledger.flush();
        }
    }
    ledger.flush();
    let whole = RecordQuery {
        filter: UsageFilter { from: begin, to: begin + 3, ..UsageFilter::default() },
        ..RecordQuery::default()
    };
    let back = |query: &RecordQuery| RecordQuery { newest_first: true, ..query.clone() };
    let oldest = all(&*admin, &whole, 1_000);
    assert_eq!(oldest.len(), 60);
    let name = |text: &str| Some(text.to_owned());
    let acme = UsageFilter { account: name("acme"), ..whole.filter.clone() };
    let middle = UsageFilter { from: begin + 1, to: begin + 2, ..UsageFilter::default() };
    for (query, count) in [
        (whole.clone(), 60),
        (RecordQuery::of(&acme), 30),
        (RecordQuery::of(&middle), 20),
        (RecordQuery { request: name("req_41"), ..whole.clone() }, 1),
        (RecordQuery { text: name("REQ_4"), ..whole.clone() }, 10),
        (RecordQuery { text: name("local"), ..whole.clone() }, 30),
        (RecordQuery { provider: name("openai"), ..whole.clone() }, 30),
        (RecordQuery { error: name(""), ..whole.clone() }, 48),
        (RecordQuery { status: Some(StatusFilter::Failed), ..whole.clone() }, 12),
        (RecordQuery { status: Some(StatusFilter::Class(5)), ..whole.clone() }, 0),
    ] {
        let forth = all(&*admin, &query, 1_000);
        assert_eq!(forth.len(), count, "{query:?}");
        for size in [1, 7, 1_000] {
            assert_eq!(all(&*admin, &query, size), forth, "{query:?}");
            let mut reversed = all(&*admin, &back(&query), size);
            reversed.reverse();
            assert_eq!(reversed, forth, "{query:?}");
        }
    }
    // A record that comes while one pages back is on none of the further pages.
    let mut first = Vec::new();
    let show = &mut |record: &UsageRecord<'_>| {
        first.push(record.request.to_owned());
        Ok(())
    };
    let cursor = admin.records_page(&back(&whole), None, 10, show).unwrap().unwrap();
    settle(ledger, None, &UsageRecord { request: "late", time: (begin + 2) * DAY + 99, ..record("acme", 0) });
    ledger.flush();
    let mut rest = 0;
    let show = &mut |record: &UsageRecord<'_>| {
        assert!(record.request != "late" && !first.contains(&record.request.to_owned()));
        rest += 1;
        Ok(())
    };
    assert_eq!(admin.records_page(&back(&whole), Some(&cursor), 1_000, show).unwrap(), None);
    assert_eq!(rest, 50);
    for (query, wrong) in [(&whole, cursor.as_str()), (&back(&whole), &cursor[1..]), (&whole, "x")] {
        let refused = admin.records_page(query, Some(wrong), 1, &mut |_| Ok(()));
        assert!(matches!(refused, Err(AdminError::Cursor)), "{wrong}");
    }
}

fn credits_are_shown_in_pages_and_found_by_reference(place: &dyn TestBackend) {
    let admin = place.admin();
    admin.create(&super::ledger::id("acme")).unwrap();
    for amount in 1..=5 {
        admin.credit("acme", amount, "", Some(&format!("r-{amount}"))).unwrap();
    }
    let page = |before, most| {
        let credits = admin.credits("acme", before, most).unwrap();
        credits.iter().map(|credit| (credit.number, credit.amount)).collect::<Vec<_>>()
    };
    let whole = page(None, 10);
    assert_eq!(whole.iter().map(|(_, amount)| *amount).collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
    assert_eq!(page(None, 2), whole[..2]);
    assert_eq!(page(Some(whole[1].0), 2), whole[2..4]);
    assert_eq!(page(Some(whole[3].0), 2), whole[4..]);
    assert_eq!((page(Some(whole[4].0), 2), page(None, 0)), (vec![], vec![]));
    assert_eq!(admin.credit_of("acme", "r-3").unwrap(), Some(3));
    assert_eq!(admin.credit_of("acme", "r-9").unwrap(), None);
    assert!(matches!(admin.credit_of("nobody", "r-3"), Err(AdminError::Unknown(_))));
}

on_both! {
    records_are_shown_in_both_orders_and_found,
    credits_are_shown_in_pages_and_found_by_reference,
}
