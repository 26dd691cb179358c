//! Threads that have to run for as long as the process does: a panic in one is caught, logged and counted, and the thread
//! goes on with the state that it had.
//!
//! Here live the loop around such a thread and what is known of it. Here must not live: what the thread does.

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

/// Pauses between a panic and the restart: the first and the longest. They double, so that a thread that panics again and
/// again does not take a processor.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// After running this long, the next pause is the first one again.
const SOUND: Duration = Duration::from_secs(60);

/// A supervised thread or task.
#[derive(Debug)]
pub struct Supervised {
    name: &'static str,
    /// It panicked and has not been restarted yet.
    down: AtomicBool,
    restarts: AtomicU64,
}

impl Supervised {
    /// One that runs.
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Supervised { name, down: AtomicBool::new(false), restarts: AtomicU64::new(0) })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it panicked and has not been restarted yet.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    /// How often it was restarted.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Calls `run` until it returns, again after each panic.
    pub fn keep(&self, mut run: impl FnMut()) {
        let mut pause = PAUSES[0];
        loop {
            let begun = Instant::now();
            match catch_unwind(AssertUnwindSafe(&mut run)) {
                Ok(()) => return,
                Err(panic) => self.panicked(&*panic),
            }
            pause = next_pause(pause, begun);
            // A thread of its own, which has nothing else to do.
            std::thread::park_timeout(pause);
            self.restarted();
        }
    }

    /// Awaits what `make` makes until it ends, made anew after each panic.
    pub async fn keep_task<F: Future>(&self, mut make: impl FnMut() -> F) -> F::Output {
        let mut pause = PAUSES[0];
        loop {
            let begun = Instant::now();
            match Caught(Box::pin(make())).await {
                Ok(output) => return output,
                Err(panic) => self.panicked(&*panic),
            }
            pause = next_pause(pause, begun);
            tokio::time::sleep(pause).await;
            self.restarted();
        }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) {
        self.down.store(true, Ordering::Release);
        let words = panic.downcast_ref::<&str>().copied();
        let words =
            words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words");
        tracing::error!(
            thread = self.name,
            panic = words,
            "a thread of the gateway panicked and is restarted"
        );
    }

    fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        self.down.store(false, Ordering::Release);
    }
}

fn next_pause(pause: Duration, begun: Instant) -> Duration {
    if begun.elapsed() > SOUND { PAUSES[0] } else { (pause * 2).min(PAUSES[1]) }
}

/// Starts a supervised thread, which ends when `run` returns.
///
/// # Errors
/// There can be no more threads.
pub fn spawn(
    name: &'static str,
    run: impl FnMut() + Send + 'static,
) -> io::Result<(Arc<Supervised>, JoinHandle<()>)> {
    let supervised = Supervised::new(name);
    let own = supervised.clone();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || own.keep(run))?;
    Ok((supervised, thread))
}

/// A future whose panic is an outcome.
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

    /// Adds one more and returns it.
    pub fn add_new(&self, name: &'static str) -> Arc<Supervised> {
        let supervised = Supervised::new(name);
        self.0.lock().push(supervised.clone());
        supervised
    }

    /// The name of a thread that is down, if any is.
    pub fn down(&self) -> Option<&'static str> {
        self.0.lock().iter().find(|thread| thread.is_down()).map(|thread| thread.name())
    }

    /// How often the threads of each name were restarted.
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
    fn a_thread_that_panics_goes_on_with_its_state() {
        let (seen, heard) = std::sync::mpsc::channel();
        let mut count = 0;
        let run = move || {
            count += 1;
            seen.send(count).unwrap();
            assert!(count > 2, "on purpose");
        };
        let (supervised, thread) = spawn("tested", run).unwrap();
        let supervisor = Supervisor::default();
        supervisor.add([supervised.clone()]);
        assert_eq!(heard.recv(), Ok(1));
        while supervisor.down().is_none() && supervised.restarts() == 0 {
            std::thread::yield_now();
        }
        thread.join().unwrap();
        assert_eq!(heard.iter().collect::<Vec<_>>(), [2, 3]);
        assert_eq!((supervised.restarts(), supervisor.down()), (2, None));
        assert_eq!(supervisor.restarts(), BTreeMap::from([("tested", 2)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_made_anew() {
        let supervised = Supervised::new("tested");
        let mut count = 0;
        let output = supervised
            .keep_task(|| {
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
