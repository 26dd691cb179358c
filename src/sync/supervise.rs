//! Supervision of threads that must run as long as the process: a panic is caught, logged and counted, and the thread
//! restarts with the state that it had.
//!
//! The restart loop and its counters live here. Here must not live: the work of the threads.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// First and longest pause between a panic and the restart. Pauses double, so that a thread that panics repeatedly does
/// not occupy a processor.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// Running time after which a panic starts again with the first pause.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Supervised thread or task.
#[derive(Debug)]
pub struct Supervised {
    name: &'static str,
    /// True from a panic until the restart.
    down: AtomicBool,
    restarts: AtomicU64,
}

impl Supervised {
    /// Creates the state of a thread that runs.
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Supervised { name, down: AtomicBool::new(false), restarts: AtomicU64::new(0) })
    }

    /// Returns the name of the thread.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns true between a panic and the restart.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    /// Returns the number of restarts.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Calls `run` until it returns, and again after each panic.
    pub fn run_supervised(&self, mut run: impl FnMut()) {
        let mut last = None;
        loop {
            let started_at = Instant::now();
            // After a panic the state may be half-changed: `run` must restore its invariants when it starts.
            match catch_unwind(AssertUnwindSafe(&mut run)) {
                Ok(()) => return,
                Err(panic) => self.panicked(&*panic),
            }
            let pause = next_pause(last, started_at);
            last = Some(pause);
            // Blocking is correct here: this is a thread of its own, not a runtime worker.
            std::thread::park_timeout(pause);
            self.restarted();
        }
    }

    /// Awaits the future that `make` returns until it completes. After each panic, makes and awaits a new one.
    pub async fn run_task_supervised<F: Future>(&self, mut make: impl FnMut() -> F) -> F::Output {
        let mut last = None;
        loop {
            let started_at = Instant::now();
            match Caught(Box::pin(make())).await {
                Ok(output) => return output,
                Err(panic) => self.panicked(&*panic),
            }
            let pause = next_pause(last, started_at);
            last = Some(pause);
            tokio::time::sleep(pause).await;
            self.restarted();
        }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) {
        self.down.store(true, Ordering::Release);
        let message = message_of(panic);
        tracing::error!(
            thread = self.name,
            panic = message,
            "a thread of the gateway panicked and is restarted"
        );
    }

    fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        self.down.store(false, Ordering::Release);
    }
}

/// Returns the message of a panic.
pub fn message_of(panic: &(dyn Any + Send)) -> &str {
    let message = panic.downcast_ref::<&str>().copied();
    message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Returns the pause after a panic. `last` is the pause before this run, `None` for the first run; `started_at` is the
/// start of this run.
fn next_pause(last: Option<Duration>, started_at: Instant) -> Duration {
    match last {
        Some(last) if started_at.elapsed() <= STABLE_AFTER => last.saturating_mul(2).min(PAUSES[1]),
        _ => PAUSES[0],
    }
}

/// Starts a supervised thread. It ends when `run` returns.
///
/// # Errors
/// Returns the error of the operating system if it cannot start a thread.
pub fn spawn(
    name: &'static str,
    run: impl FnMut() + Send + 'static,
) -> io::Result<(Arc<Supervised>, JoinHandle<()>)> {
    let supervised = Supervised::new(name);
    let own = supervised.clone();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || own.run_supervised(run))?;
    Ok((supervised, thread))
}

/// Awaits a future, and catches its panic.
///
/// # Errors
/// Returns what the future panicked with.
pub async fn catch_panic<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    Caught(Box::pin(future)).await
}

/// Future that yields a panic of the inner future as `Err`.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

/// All supervised threads of the process.
#[derive(Debug, Default)]
pub struct Supervisor(Mutex<Vec<Arc<Supervised>>>);

impl Supervisor {
    /// Adds threads.
    pub fn add(&self, threads: impl IntoIterator<Item = Arc<Supervised>>) {
        self.0.lock().extend(threads);
    }

    /// Adds one more thread and returns its state.
    pub fn add_new(&self, name: &'static str) -> Arc<Supervised> {
        let supervised = Supervised::new(name);
        self.0.lock().push(supervised.clone());
        supervised
    }

    /// Returns the name of a thread that is down. `None` if all of them run.
    pub fn down(&self) -> Option<&'static str> {
        self.0.lock().iter().find(|thread| thread.is_down()).map(|thread| thread.name())
    }

    /// Returns the number of restarts by thread name.
    pub fn restarts(&self) -> BTreeMap<&'static str, u64> {
        let mut restarts = BTreeMap::new();
        for thread in self.0.lock().iter() {
            *restarts.entry(thread.name()).or_default() += thread.restarts();
        }
        restarts
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn thread_that_panics_restarts_with_its_state() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut count = 0;
        let run = move || {
            count += 1;
            sender.send(count).unwrap();
            assert!(count > 2, "on purpose");
        };
        let (supervised, thread) = spawn("tested", run).unwrap();
        let supervisor = Supervisor::default();
        supervisor.add([supervised.clone()]);
        assert_eq!(receiver.recv(), Ok(1));
        while supervisor.down().is_none() && supervised.restarts() == 0 {
            std::thread::yield_now();
        }
        thread.join().unwrap();
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [2, 3]);
        assert_eq!((supervised.restarts(), supervisor.down()), (2, None));
        assert_eq!(supervisor.restarts(), BTreeMap::from([("tested", 2)]));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_start_with_the_first_one_and_double() {
        let (start, mut starts) = (tokio::time::Instant::now(), Vec::new());
        Supervised::new("tested")
            .run_task_supervised(|| {
                starts.push(start.elapsed().as_millis());
                let ends = starts.len() > 5;
                async move { assert!(ends, "on purpose") }
            })
            .await;
        assert_eq!(starts, [0, 100, 300, 700, 1_500, 2_500]);
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_panics_is_created_anew() {
        let supervised = Supervised::new("tested");
        let mut count = 0;
        let output = supervised
            .run_task_supervised(|| {
                count += 1;
                let count = count;
                async move {
                    tokio::task::yield_now().await;
                    assert!(count > 2, "on purpose");
                    count
                }
            })
            .await;
        assert_eq!((output, supervised.restarts(), supervised.is_down()), (3, 2, false));
    }
}
