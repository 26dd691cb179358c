use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::*;
use storage::ledger::{
    AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent, UsageRecord,
};
use storage::store::Pending;

type Answer = tokio::sync::oneshot::Sender<Result<Vec<Spent>, StoreError>>;

/// Ledger that does not answer a query before the test does.
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
    match billing.query_spend(generation, &Calendar::at(1_700_000_000)) {
        Ok(None) => Ok(()),
        Ok(Some(told)) => outcome(told).await,
        Err(error) => Err(error),
    }
}

/// A hundred requests wait as long as one, and those that follow directly fail at once.
#[tokio::test(start_paused = true)]
async fn spend_query_to_a_hanging_ledger_is_made_once_for_all_requests() {
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
        assert_eq!(request.await.unwrap(), Err(StoreError::Timeout));
    }
    assert_eq!(begun.elapsed().as_secs(), QUERY_TIMEOUT.as_secs());
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 1);
    assert_eq!(ask(billing, 1).await, Err(StoreError::Timeout));
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn spend_query_result_is_shared_by_waiting_and_later_requests() {
    let (ledger, billing) = billing();
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(ask(billing.clone(), 1))).collect();
    tokio::task::yield_now().await;
    let answer = ledger.answers.lock().pop().unwrap();
    answer.send(Ok(Vec::new())).unwrap();
    for request in waiting {
        assert_eq!(request.await.unwrap(), Ok(()));
    }
    // A request that began before a reload does not query again for a later generation.
    for generation in [1, 0] {
        assert_eq!(ask(billing.clone(), generation).await, Ok(()));
    }
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 1);
    let next = tokio::spawn(ask(billing.clone(), 2));
    tokio::task::yield_now().await;
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 2);
    // The task that was to answer is gone.
    ledger.answers.lock().clear();
    assert!(matches!(next.await.unwrap(), Err(StoreError::Failed(_))));
}
