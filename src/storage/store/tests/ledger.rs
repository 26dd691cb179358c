//! Balances, usage and administration.

use std::sync::Arc;
use std::time::Instant;

use super::server::pause;
use super::{Flushing, PATIENCE, TestBackend, on_both, runtime, wait};
use crate::ledger::admin::{AdminError, LedgerAdmin};
use crate::ledger::report::{DAY, UsageFilter, UsageGrouping};
use crate::ledger::{AccountId, Reservation, ReserveError, Settled, UsageRecord};
use codec::canonical::Usage;
use routing::account::amount::LARGEST;

on_both!(
    reservation_blocks_its_amount_until_settled_or_dropped,
    account_unknown_or_disabled_is_refused,
    reservation_without_a_waiter_is_refunded,
    credit_with_a_reference_counts_once_and_balance_is_limited,
    balance_beyond_double_precision_is_exact,
    usage_sums_beyond_the_largest_number_saturate,
    usage_records_are_stored_once_with_their_sums,
    usage_without_an_account_is_recorded_and_not_charged,
    account_created_later_owes_earlier_charges,
    balance_follows_credits_and_charges_of_other_processes,
    reservation_sum_never_exceeds_the_balance,
    settle_from_many_threads_is_exact_to_the_unit,
    settle_before_the_end_is_charged_after_it,
    settle_with_a_known_charge_id_is_ignored,
);

pub(crate) fn id(account: &str) -> AccountId {
    AccountId::new(account).unwrap()
}

pub(crate) fn open_account(admin: &dyn LedgerAdmin, account: &str, amount: i64) {
    admin.create(&id(account)).unwrap();
    admin.credit(account, amount, "first", None).unwrap();
}

/// Returns a day whose records are still retained.
fn first_day() -> i64 {
    crate::store::now() / DAY - 10
}

pub(crate) fn record<'a>(account: &'a str, cost: i64) -> UsageRecord<'a> {
    UsageRecord {
        time: first_day() * DAY + 5,
        request: "req_1",
        account,
        key: "alice",
        model: "gpt-4o",
        status: 200,
        attempts: 1,
        usage: Usage { input: Some(10), output: Some(5), ..Usage::default() },
        cost,
        ..UsageRecord::default()
    }
}

pub(crate) fn reserve(
    ledger: &(impl Flushing + ?Sized),
    account: &str,
    amount: i64,
) -> Result<Reservation, ReserveError> {
    let held = ledger.reserve(&id(account), amount);
    runtime().block_on(held.within(PATIENCE))
}

/// Reserves an amount, retrying until it succeeds.
fn reserve_eventually(ledger: &dyn Flushing, account: &str, amount: i64) -> Reservation {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match reserve(ledger, account, amount) {
            Ok(held) => return held,
            Err(refused) => assert!(Instant::now() < deadline, "{refused}"),
        }
        pause(20);
    }
}

pub(crate) fn settle(
    ledger: &(impl Flushing + ?Sized),
    reservation: Option<Reservation>,
    record: &UsageRecord<'_>,
) {
    let settled: Settled = ledger.settle(reservation, record);
    runtime().block_on(settled.within(PATIENCE)).unwrap();
}

/// Returns balance, charges and number of requests of an account.
pub(crate) fn stored(admin: &dyn LedgerAdmin, account: &str) -> (i64, i64, i64) {
    let filter = UsageFilter {
        account: Some(account.to_owned()),
        from: 0,
        to: i64::MAX / DAY,
        ..UsageFilter::default()
    };
    let lines = admin.usage(&filter, UsageGrouping::Account).unwrap();
    let sums = lines.first().map(|line| line.sums).unwrap_or_default();
    (admin.account(account).unwrap().balance(), sums.cost, sums.requests)
}

fn reservation_blocks_its_amount_until_settled_or_dropped(place: &dyn TestBackend) {
    let admin = place.admin();
    open_account(&*admin, "acme", 100);
    let ledger = &*place.ledger();
    let held = reserve(ledger, "acme", 70).unwrap();
    assert_eq!(held.amount(), 70);
    assert_eq!(reserve(ledger, "acme", 31).unwrap_err(), ReserveError::Empty { available: 30 });
    settle(ledger, Some(held), &record("acme", 25));
    assert_eq!(ledger.available(&id("acme")), Some(75));
    drop(reserve(ledger, "acme", 75).unwrap());
    assert_eq!(ledger.available(&id("acme")), Some(75));
    // Cost above the reservation is charged too; after that nothing can be reserved.
    let held = reserve(ledger, "acme", 75).unwrap();
    settle(ledger, Some(held), &record("acme", 80));
    assert_eq!(ledger.available(&id("acme")), Some(-5));
    assert_eq!(reserve(ledger, "acme", 1).unwrap_err(), ReserveError::Empty { available: -5 });
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (-5, 105, 2));
    assert_eq!(ledger.available(&id("acme")), Some(-5));
    assert_eq!(reserve(ledger, "acme", 1).unwrap_err(), ReserveError::Empty { available: -5 });
    // An account with a debt may make requests that cost nothing.
    assert_eq!(reserve(ledger, "acme", 0).unwrap().amount(), 0);
    assert_eq!(reserve(ledger, "acme", -7).unwrap().amount(), 0);
    // A settlement without a reservation is charged, too.
    settle(ledger, None, &record("acme", 10));
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (-15, 115, 3));
    assert_eq!(ledger.available(&id("acme")), Some(-15));
    assert!(admin.audit().unwrap().is_empty());
}

fn account_unknown_or_disabled_is_refused(place: &dyn TestBackend) {
    let admin = place.admin();
    let ledger = &*place.ledger();
    assert_eq!(reserve(ledger, "acme", 0).unwrap_err(), ReserveError::UnknownAccount);
    assert_eq!(ledger.available(&id("acme")), None);
    assert!(matches!(admin.account("acme"), Err(AdminError::Unknown(_))));
    assert!(matches!(admin.credit("acme", 1, "", None), Err(AdminError::Unknown(_))));
    assert!(matches!(admin.set_enabled("acme", true), Err(AdminError::Unknown(_))));
    assert!(matches!(admin.credits("acme", None, 1), Err(AdminError::Unknown(_))));
    open_account(&*admin, "acme", 100);
    assert!(matches!(admin.create(&id("acme")), Err(AdminError::Exists(_))));
    ledger.flush();
    let held = reserve(ledger, "acme", 10).unwrap();
    assert!(admin.set_enabled("acme", false).unwrap());
    assert!(!admin.set_enabled("acme", false).unwrap());
    ledger.flush();
    assert_eq!(reserve(ledger, "acme", 0).unwrap_err(), ReserveError::Disabled);
    // Requests in flight are charged even if the account is disabled meanwhile.
    settle(ledger, Some(held), &record("acme", 7));
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (93, 7, 1));
    assert!(admin.set_enabled("acme", true).unwrap());
    ledger.flush();
    drop(reserve(ledger, "acme", 93).unwrap());
    assert_eq!(reserve(ledger, "acme", 94).unwrap_err(), ReserveError::Empty { available: 93 });
}

fn reservation_without_a_waiter_is_refunded(place: &dyn TestBackend) {
    let admin = place.admin();
    open_account(&*admin, "acme", 100);
    let ledger = &*place.ledger();
    for _ in 0..10 {
        drop(ledger.reserve(&id("acme"), 60));
    }
    ledger.flush();
    drop(reserve(ledger, "acme", 100).unwrap());
}

fn credit_with_a_reference_counts_once_and_balance_is_limited(place: &dyn TestBackend) {
    let admin = place.admin();
    admin.create(&id("acme")).unwrap();
    for repeated in [false, true] {
        let credited = admin.credit("acme", 50, "invoice", Some("inv-1")).unwrap();
        assert_eq!((credited.balance, credited.repeated), (50, repeated));
    }
    let error = admin.credit("acme", 51, "invoice", Some("inv-1")).unwrap_err();
    assert!(matches!(error, AdminError::Reference { amount: 50, .. }), "{error}");
    assert_eq!(admin.credit("acme", -20, "back", None).unwrap().balance, 30);
    for amount in [LARGEST, i64::MAX] {
        assert!(matches!(admin.credit("acme", amount, "", None), Err(AdminError::TooLarge)));
    }
    assert_eq!(admin.credit("acme", LARGEST - 30, "", None).unwrap().balance, LARGEST);
    assert!(matches!(admin.credit("acme", 1, "", None), Err(AdminError::TooLarge)));
    let credits = admin.credits("acme", None, 2).unwrap();
    assert_eq!(credits.iter().map(|credit| credit.amount).collect::<Vec<_>>(), [LARGEST - 30, -20]);
    assert_eq!((&*credits[1].note, &credits[1].reference), ("back", &None));
    let all = admin.credits("acme", None, 10).unwrap();
    assert_eq!(all[2].reference.as_deref(), Some("inv-1"));
    let names: Vec<String> = admin.accounts().unwrap().into_iter().map(|account| account.name).collect();
    assert_eq!(names, ["acme"]);
    assert!(admin.audit().unwrap().is_empty());
}

fn balance_beyond_double_precision_is_exact(place: &dyn TestBackend) {
    let admin = place.admin();
    const COST: i64 = 1_000_000_000_000_001;
    // Odd numbers beyond 2^53, which a double would round.
    let large = (1 << 53) + 1;
    open_account(&*admin, "acme", large);
    open_account(&*admin, "most", LARGEST);
    let ledger = &*place.ledger();
    assert_eq!(reserve(ledger, "acme", large + 1).unwrap_err(), ReserveError::Empty { available: large });
    let held = reserve(ledger, "acme", large).unwrap();
    assert_eq!(reserve(ledger, "acme", 1).unwrap_err(), ReserveError::Empty { available: 0 });
    settle(ledger, Some(held), &record("acme", COST - 2));
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (large - COST + 2, COST - 2, 1));
    assert_eq!(ledger.available(&id("acme")), Some(large - COST + 2));
    drop(reserve(ledger, "most", LARGEST).unwrap());
    ledger.flush();
    assert_eq!(reserve(ledger, "most", LARGEST + 1).unwrap_err(), ReserveError::Empty { available: LARGEST });
    let held = reserve(ledger, "most", LARGEST - 1).unwrap();
    settle(ledger, Some(held), &record("most", COST - 3));
    ledger.flush();
    let left = LARGEST - COST + 3;
    assert_eq!(stored(&*admin, "most").0, left);
    assert_eq!(reserve(ledger, "most", left + 1).unwrap_err(), ReserveError::Empty { available: left });
    drop(reserve(ledger, "most", left).unwrap());
}

fn usage_sums_beyond_the_largest_number_saturate(place: &dyn TestBackend) {
    let admin = place.admin();
    open_account(&*admin, "acme", 10);
    let ledger = &*place.ledger();
    for _ in 0..3 {
        settle(ledger, None, &record("acme", LARGEST));
        ledger.flush();
    }
    settle(ledger, None, &UsageRecord { model: "o3", ..record("acme", 7) });
    ledger.flush();
    let all = UsageFilter { from: 0, to: i64::MAX / DAY, ..UsageFilter::default() };
    for by in [UsageGrouping::Account, UsageGrouping::Key, UsageGrouping::Day] {
        let lines = admin.usage(&all, by).unwrap();
        assert_eq!(lines.len(), 1);
        assert_eq!((lines[0].sums.cost, lines[0].sums.requests), (i64::MAX, 4));
        assert!(lines[0].sums.is_beyond());
    }
    let lines = admin.usage(&all, UsageGrouping::Model).unwrap();
    let costs: Vec<(&str, bool)> = lines.iter().map(|line| (&*line.name, line.sums.is_beyond())).collect();
    assert_eq!(costs, [("gpt-4o", true), ("o3", false)]);
    assert!(admin.audit().unwrap().is_empty());
    assert!(matches!(reserve(ledger, "acme", 1), Err(ReserveError::Empty { .. })));
    let spent = wait(ledger.spent_since(0)).unwrap();
    assert_eq!(spent.iter().map(|spent| spent.cost).collect::<Vec<_>>(), [i64::MAX]);
}

fn usage_records_are_stored_once_with_their_sums(place: &dyn TestBackend) {
    let admin = place.admin();
    open_account(&*admin, "acme", 1_000_000);
    let first = first_day();
    {
        let ledger = &*place.ledger();
        for n in 0..300 {
            let held = reserve(ledger, "acme", 10).unwrap();
            let request = format!("req_{n}");
            let (key, model) = if n % 3 == 0 { ("bob", "o3") } else { ("alice", "gpt-4o") };
            let time = (first + n / 100) * DAY + n;
            let failed = n % 10 == 0;
            let (cost, status) = if failed { (0, 500) } else { (n, 200) };
            settle(
                ledger,
                Some(held),
                &UsageRecord { request: &request, key, model, time, cost, status, ..record("acme", 0) },
            );
        }
        ledger.flush();
        let spent = wait(ledger.spent_since(first + 1)).unwrap();
        let mut spent: Vec<_> =
            spent.iter().map(|row| (row.day, &*row.account, &*row.key, row.cost)).collect();
        spent.sort();
        let sum = |days: std::ops::Range<i64>, bob: bool| {
            days.filter(|n| n % 10 != 0 && (n % 3 == 0) == bob).sum::<i64>()
        };
        assert_eq!(
            spent,
            [
                (first + 1, "acme", "alice", sum(100..200, false)),
                (first + 1, "acme", "bob", sum(100..200, true)),
                (first + 2, "acme", "alice", sum(200..300, false)),
                (first + 2, "acme", "bob", sum(200..300, true)),
            ]
        );
    }
    let all = UsageFilter { from: first, to: first + 3, ..UsageFilter::default() };
    let total: i64 = (0..300).filter(|n| n % 10 != 0).sum();
    assert_eq!(stored(&*admin, "acme"), (1_000_000 - total, total, 300));
    let days = admin.usage(&all, UsageGrouping::Day).unwrap();
    let days: Vec<_> = days.iter().map(|line| (&*line.name, line.sums.requests, line.sums.failed)).collect();
    let [one, two, three] = [0, 1, 2].map(|day| (first + day).to_string());
    assert_eq!(days, [(&*one, 100, 10), (&*two, 100, 10), (&*three, 100, 10)]);
    let models = admin.usage(&all, UsageGrouping::Model).unwrap();
    let models: Vec<_> =
        models.iter().map(|line| (&*line.name, line.sums.requests, line.sums.usage[0])).collect();
    assert_eq!(models, [("gpt-4o", 200, 2000), ("o3", 100, 1000)]);
    let bob =
        UsageFilter { key: Some("bob".to_owned()), from: first + 1, to: first + 2, ..UsageFilter::default() };
    let bob = admin.usage(&bob, UsageGrouping::Key).unwrap();
    assert_eq!((bob.len(), &*bob[0].name, bob[0].sums.requests), (1, "bob", 33));
    let mut requests = Vec::new();
    let show = &mut |record: &UsageRecord<'_>| {
        assert_eq!((record.account, record.attempts), ("acme", 1));
        requests.push(record.request.to_owned());
        Ok(())
    };
    let part = UsageFilter { from: first + 1, to: first + 3, ..UsageFilter::default() };
    admin.records(&part, show).unwrap();
    assert_eq!(requests, (100..300).map(|n| format!("req_{n}")).collect::<Vec<_>>());
}

fn usage_without_an_account_is_recorded_and_not_charged(place: &dyn TestBackend) {
    let admin = place.admin();
    let ledger = &*place.ledger();
    settle(ledger, None, &record("", 5));
    settle(ledger, None, &record("", 6));
    ledger.flush();
    let all = UsageFilter { from: 0, to: 30_000, ..UsageFilter::default() };
    let lines = admin.usage(&all, UsageGrouping::Account).unwrap();
    assert_eq!((lines.len(), &*lines[0].name, lines[0].sums.cost, lines[0].sums.requests), (1, "", 11, 2));
    assert!(admin.accounts().unwrap().is_empty());
    let one = UsageFilter { account: Some(String::new()), ..all };
    assert_eq!(admin.usage(&one, UsageGrouping::Key).unwrap()[0].sums.requests, 2);
}

fn account_created_later_owes_earlier_charges(place: &dyn TestBackend) {
    let admin = place.admin();
    let ledger = &*place.ledger();
    settle(ledger, None, &record("acme", 7));
    ledger.flush();
    open_account(&*admin, "acme", 100);
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (93, 7, 1));
    assert_eq!(reserve(ledger, "acme", 94).unwrap_err(), ReserveError::Empty { available: 93 });
    drop(reserve(ledger, "acme", 93).unwrap());
    assert!(admin.audit().unwrap().is_empty());
}

fn balance_follows_credits_and_charges_of_other_processes(place: &dyn TestBackend) {
    let admin = place.admin();
    open_account(&*admin, "acme", 100);
    let (one, other) = (place.ledger(), place.ledger());
    settle(&*one, Some(reserve(&*one, "acme", 60).unwrap()), &record("acme", 60));
    one.flush();
    other.flush();
    // Gateways of a fleet lease a sixteenth of the free balance ahead, and return it when no request needs it.
    let refused = reserve(&*other, "acme", 41).unwrap_err();
    assert!(matches!(refused, ReserveError::Empty { available: 37..=40 }), "{refused:?}");
    admin.credit("acme", 1, "", None).unwrap();
    let held = reserve_eventually(&*other, "acme", 41);
    settle(&*other, Some(held), &record("acme", 1));
    other.flush();
    drop(reserve_eventually(&*one, "acme", 40));
    drop((one, other));
    assert_eq!(stored(&*admin, "acme"), (40, 61, 2));
}

fn reservation_sum_never_exceeds_the_balance(place: &dyn TestBackend) {
    let admin = place.admin();
    open_account(&*admin, "acme", 1_000);
    let one = place.ledger();
    let held: Vec<_> = (0..200).map_while(|_| reserve(&*one, "acme", 7).ok()).collect();
    assert_eq!(held.len(), 142);
    let refused = reserve(&*one, "acme", 7).unwrap_err();
    assert_eq!(refused, ReserveError::Empty { available: 6 });
    drop(held);
    one.flush();
    assert_eq!(one.available(&id("acme")), Some(1_000));
    drop(reserve(&*one, "acme", 1_000).unwrap());
}

fn settle_from_many_threads_is_exact_to_the_unit(place: &dyn TestBackend) {
    let admin = place.admin();
    let accounts = ["acme", "bits}", "a:{b}"];
    for account in accounts {
        open_account(&*admin, account, 50_000);
    }
    let ledger = place.ledger();
    let charged: Vec<i64> = std::thread::scope(|scope| {
        let work = |seed: i64| {
            let ledger: Arc<dyn Flushing> = ledger.clone();
            move || {
                let runtime = runtime();
                let (mut charged, mut state) = (0, seed);
                for n in 0..600 {
                    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
                    let account = accounts[usize::try_from(state / 65_536 % 3).unwrap()];
                    let amount = state / 1_024 % 40;
                    let held = ledger.reserve(&id(account), amount);
                    match runtime.block_on(held.within(PATIENCE)) {
                        Ok(held) if n % 5 == 4 => drop(held),
                        Ok(held) => {
                            let cost = amount - amount / 3;
                            charged += cost;
                            settle(&*ledger, Some(held), &record(account, cost));
                        }
                        Err(refused) => assert!(matches!(refused, ReserveError::Empty { .. }), "{refused}"),
                    }
                }
                charged
            }
        };
        let workers: Vec<_> = (1..=4).map(|seed| scope.spawn(work(seed))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    ledger.flush();
    let sums = accounts.map(|account| stored(&*admin, account));
    assert_eq!(sums.iter().map(|sum| sum.1).sum::<i64>(), charged.iter().sum::<i64>());
    for (balance, cost, _) in sums {
        assert_eq!(balance + cost, 50_000);
    }
    for account in accounts {
        assert_eq!(ledger.available(&id(account)), Some(stored(&*admin, account).0));
    }
    assert!(admin.audit().unwrap().is_empty());
}

fn settle_before_the_end_is_charged_after_it(place: &dyn TestBackend) {
    let admin = place.admin();
    open_account(&*admin, "acme", 100);
    {
        let ledger = place.ledger();
        settle(&*ledger, Some(reserve(&*ledger, "acme", 30).unwrap()), &record("acme", 20));
        // This reservation never ends, as if its gateway were killed.
        std::mem::forget(reserve(&*ledger, "acme", 5).unwrap());
    }
    let deadline = Instant::now() + PATIENCE;
    while stored(&*admin, "acme") != (80, 20, 1) && Instant::now() < deadline {
        pause(5);
    }
    assert_eq!(stored(&*admin, "acme"), (80, 20, 1));
    let ledger = place.ledger();
    drop(reserve(&*ledger, "acme", 75).unwrap());
}

/// A charge with an idempotency key may be settled again, because it is unknown whether a process charged it
/// before it ended.
fn settle_with_a_known_charge_id_is_ignored(place: &dyn TestBackend) {
    let admin = place.admin();
    open_account(&*admin, "acme", 100);
    let once = UsageRecord { charge_id: "task_1", ..record("acme", 30) };
    let ledger = place.ledger();
    let held = reserve(&*ledger, "acme", 40).unwrap();
    settle(&*ledger, Some(held), &once);
    // In the same batch, with others around it.
    settle(&*ledger, None, &record("acme", 5));
    settle(&*ledger, None, &once);
    settle(&*ledger, None, &record("acme", 5));
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (60, 40, 3));
    assert_eq!(ledger.available(&id("acme")), Some(60));
    // In a later one.
    settle(&*ledger, None, &once);
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (60, 40, 3));
    assert_eq!(ledger.available(&id("acme")), Some(60));
    // By another process.
    drop(ledger);
    let ledger = place.ledger();
    settle(&*ledger, None, &once);
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (60, 40, 3));
    drop(reserve_eventually(&*ledger, "acme", 60));
    // Another key, and the same one of another account, are charged.
    open_account(&*admin, "other", 100);
    settle(&*ledger, None, &UsageRecord { charge_id: "task_2", ..once });
    settle(&*ledger, None, &UsageRecord { account: "other", ..once });
    ledger.flush();
    assert_eq!(stored(&*admin, "acme"), (30, 70, 4));
    assert_eq!(stored(&*admin, "other"), (70, 30, 1));
    assert!(admin.audit().unwrap().is_empty());
}
