use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::store::{
    AccountId, Ledger, Pending, Reservation, ReserveError, ReserveOutcome, Settled, Spent, UsageRecord,
};

type Answer = tokio::sync::oneshot::Sender<Result<Vec<Spent>, StoreError>>;

/// A ledger that is asked and does not answer, until it is told to.
#[derive(Default)]
struct Hanging {
    asked: AtomicUsize,
    answers: Mutex<Vec<Answer>>,
}

impl Ledger for Hanging {
    fn reserve(&self, _: &AccountId, _: i64) -> ReserveOutcome {
        ReserveOutcome::Known(Err(ReserveError::Unavailable))
    }

    fn settle(&self, _: Option<Reservation>, _: &UsageRecord<'_>) -> Settled {
        Settled::Known(Ok(()))
    }

    fn available(&self, _: &AccountId) -> Option<i64> {
        None
    }

    fn spent_since(&self, _: i64) -> Pending<Vec<Spent>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (answer, pending) = Pending::new();
        self.answers.lock().push(answer);
        pending
    }

    fn close(&self) -> Pending<()> {
        Pending::known(Ok(()))
    }
}

fn billing() -> (Arc<Hanging>, Arc<Billing>) {
    let ledger = Arc::new(Hanging::default());
    (ledger.clone(), Arc::new(Billing::new(Some(ledger))))
}

async fn ask(billing: Arc<Billing>, generation: u64) -> Result<(), StoreError> {
    match billing.ask_spent(generation, &Calendar::at(1_700_000_000)) {
        Ok(None) => Ok(()),
        Ok(Some(told)) => outcome(told).await,
        Err(error) => Err(error),
    }
}

/// A hundred requests wait as long as one, and those that come directly after them do not wait at all.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_hangs_is_asked_once_and_holds_nobody_for_longer_than_one() {
    let (ledger, billing) = billing();
    let begun = tokio::time::Instant::now();
    let waiting: Vec<_> = (0..100)
        .map(|n| {
            let billing = billing.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(n)).await;
                ask(billing, 1).await
            })
        })
        .collect();
    for request in waiting {
        assert_eq!(request.await.unwrap(), Err(StoreError::Late));
    }
    assert_eq!(begun.elapsed().as_secs(), SPENT.as_secs());
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 1);
    assert_eq!(ask(billing, 1).await, Err(StoreError::Late));
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_answer_is_for_all_who_wait_and_for_those_after_them() {
    let (ledger, billing) = billing();
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(ask(billing.clone(), 1))).collect();
    tokio::task::yield_now().await;
    let answer = ledger.answers.lock().pop().unwrap();
    answer.send(Ok(Vec::new())).unwrap();
    for request in waiting {
        assert_eq!(request.await.unwrap(), Ok(()));
    }
    // A request that began before a reload does not ask for what is known since.
    for generation in [1, 0] {
        assert_eq!(ask(billing.clone(), generation).await, Ok(()));
    }
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 1);
    let next = tokio::spawn(ask(billing.clone(), 2));
    tokio::task::yield_now().await;
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 2);
    // Whoever was to answer is gone.
    ledger.answers.lock().clear();
    assert!(matches!(next.await.unwrap(), Err(StoreError::Failed(_))));
}
