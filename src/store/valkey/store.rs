//! Responses and seals that a fleet keeps together.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use super::connection::{Connection, ConnectionError, ServerAddress, number, parts};
use super::keys::ValkeyKey;
use super::script;
use crate::store::{Found, Pending, SealKey, Store, StoreError, StoreLimits, StoredResponse, millis};
use crate::supervise::Supervised;

/// Jobs that may be under way.
const JOBS: usize = 1024;
/// Bytes that may be on their way: what a burst of large conversations may hold in memory.
const BYTES: usize = 64 << 20;
/// How often what has expired is removed.
const SWEEP: Duration = Duration::from_secs(60);
/// What is removed in one step.
const SWEPT: i64 = 200;
/// How long after a failure nothing is tried.
const PAUSE: Duration = Duration::from_millis(500);
/// What a seal counts for beside its value: its names.
const OVERHEAD: usize = 128;

const RESPONSES: ValkeyKey = ValkeyKey("responses");
const SEALS: ValkeyKey = ValkeyKey("seals");

/// The store.
pub struct ValkeyStore {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
    limits: StoreLimits,
    supervised: Arc<Supervised>,
}

pub(super) struct Shared {
    address: ServerAddress,
    line: Mutex<Line>,
    size: AtomicU64,
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

/// The connection, or when it failed.
#[derive(Default)]
struct Line {
    link: Option<Connection>,
    failed: Option<Instant>,
}

impl ValkeyStore {
    /// Starts the thread, which connects to the server when there is something to do.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn open(address: ServerAddress, limits: StoreLimits) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("store")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            address,
            line: Mutex::default(),
            size: AtomicU64::new(0),
            jobs: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        });
        let supervised = Supervised::new("store");
        let (sweeping, own) = (Arc::downgrade(&shared), supervised.clone());
        runtime.spawn(async move { own.keep_task(|| sweep(sweeping.clone())).await });
        Ok(ValkeyStore { runtime: Some(runtime), shared, limits, supervised })
    }

    /// Runs a command; `read` makes the outcome of its answer.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        size: usize,
        command: Cmd,
        read: impl FnOnce(&Shared, &Value) -> T + Send + 'static,
    ) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        let load = Load::new(&self.shared, size);
        let (Some(load), Some(runtime)) = (load, &self.runtime) else {
            return Pending::known(Err(StoreError::Busy));
        };
        runtime.spawn(async move {
            let done = load.0.run(command).await.map(|answer| read(&load.0, &answer));
            // Whoever asked may have stopped waiting.
            let _ = outcome.send(done.map_err(|error| match error {
                ConnectionError::Late => StoreError::Late,
                ConnectionError::Server(error) => StoreError::Failed(error),
            }));
        });
        pending
    }

    /// The command that keeps things: a name, a size and two parts of each.
    pub(super) fn keep_all(
        &self,
        kept: ValkeyKey,
        lifetime: Duration,
        total: u64,
        things: Vec<(Vec<u8>, usize, Bytes, Bytes)>,
    ) -> Cmd {
        let mut names: Vec<Vec<u8>> =
            [kept.order(), kept.size(), kept.count()].map(String::into_bytes).into();
        names.extend(things.iter().map(|thing| thing.0.clone()));
        let mut call = script::KEEP.call(&names);
        call.arg(millis(lifetime)).arg(total);
        for (_, size, one, other) in &things {
            call.arg(*size).arg(&one[..]).arg(&other[..]);
        }
        call
    }
}

impl Drop for ValkeyStore {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The place that a job takes, until it is done.
struct Load(Arc<Shared>, usize);

impl Load {
    /// Takes a place, if there is one. A large one may always pass alone.
    fn new(shared: &Arc<Shared>, size: usize) -> Option<Self> {
        let jobs = shared.jobs.fetch_add(1, Ordering::Relaxed);
        let bytes = shared.bytes.fetch_add(size, Ordering::Relaxed);
        let load = Load(shared.clone(), size);
        (jobs < JOBS && (size == 0 || bytes == 0 || bytes + size <= BYTES)).then_some(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::Relaxed);
        self.0.bytes.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Shared {
    async fn link(&self) -> Result<Connection, ConnectionError> {
        let mut line = self.line.lock().await;
        if let Some(link) = &line.link {
            return Ok(link.clone());
        }
        if line.failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(ConnectionError::Server("the server is away".to_owned()));
        }
        let link = Connection::connect(&self.address).await;
        line.failed = link.is_err().then(Instant::now);
        line.link = link.as_ref().ok().cloned();
        link
    }

    async fn run(&self, command: Cmd) -> Result<Value, ConnectionError> {
        let answer = self.link().await?.one(command).await;
        if answer.is_err() {
            self.line.lock().await.link = None;
        }
        answer
    }

    fn set_size(&self, size: &Value) {
        self.size.store(u64::try_from(number(size)).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Removes what has expired, for as long as the store is there.
async fn sweep(shared: std::sync::Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let mut more = false;
        for kept in [RESPONSES, SEALS, super::owners::OWNERS] {
            let mut call = script::SWEEP.call(&[kept.order(), kept.size()]);
            call.arg(SWEPT);
            match shared.run(call).await {
                Ok(answer) => {
                    let [removed, size] = parts(&answer) else { continue };
                    more |= number(removed) == SWEPT;
                    if kept.0 == RESPONSES.0 {
                        shared.set_size(size);
                    }
                }
                Err(error) => tracing::warn!(%error, "the store cannot remove what has expired"),
            }
        }
        drop(shared);
        tokio::time::sleep(if more { Duration::from_millis(10) } else { SWEEP }).await;
    }
}

/// What a response counts for.
fn size_of(response: &StoredResponse) -> usize {
    response.items.len() + response.document.len() + response.id.len() + response.account.len()
}

pub(super) fn bytes(value: &Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(Bytes::copy_from_slice(bytes)),
        _ => None,
    }
}

fn response(answer: &Value) -> Option<Found> {
    let [items, document] = parts(parts(answer).first()?) else { return None };
    Some(Found { items: bytes(items)?, document: bytes(document)? })
}

impl Store for ValkeyStore {
    fn threads(&self) -> Vec<Arc<Supervised>> {
        vec![self.supervised.clone()]
    }

    fn keep(&self, response: StoredResponse) -> Pending<()> {
        let size = size_of(&response);
        let limit = self.limits.response.min(usize::try_from(self.limits.total).unwrap_or(usize::MAX));
        if size > limit {
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        let StoredResponse { account, id, items, document } = response;
        let thing = (RESPONSES.item(&account, id.as_bytes()), size, items, document);
        let call = self.keep_all(RESPONSES, self.limits.lifetime, self.limits.total, vec![thing]);
        self.submit(size, call, Shared::set_size)
    }

    fn keeps_responses(&self) -> bool {
        !self.limits.lifetime.is_zero()
    }

    fn find(&self, account: &str, id: &str) -> Pending<Option<Found>> {
        let call = script::FIND.call(&[RESPONSES.item(account, id.as_bytes())]);
        self.submit(0, call, |_, answer| response(answer))
    }

    fn remove(&self, account: &str, id: &str) -> Pending<bool> {
        let names = [RESPONSES.order().into_bytes(), RESPONSES.size().into_bytes()];
        let [order, size] = names;
        let call = script::REMOVE.call(&[order, size, RESPONSES.item(account, id.as_bytes())]);
        self.submit(0, call, |shared, answer| {
            let [there, size] = parts(answer) else { return false };
            shared.set_size(size);
            number(there) == 1
        })
    }

    fn remember(&self, account: &str, entries: Vec<(SealKey, Bytes)>) -> Pending<()> {
        let size_of = |value: &Bytes| account.len() + value.len() + OVERHEAD;
        let size: usize = entries.iter().map(|(_, value)| size_of(value)).sum();
        let limit = usize::try_from(self.limits.seal_total).unwrap_or(usize::MAX);
        if size > limit {
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        if entries.is_empty() {
            return Pending::known(Ok(()));
        }
        let thing = |(key, value): (SealKey, Bytes)| {
            (SEALS.item(account, &key), size_of(&value), value, Bytes::new())
        };
        let things = entries.into_iter().map(thing).collect();
        let call = self.keep_all(SEALS, self.limits.seal_lifetime, self.limits.seal_total, things);
        self.submit(size, call, |_, _| ())
    }

    fn recall(&self, account: &str, keys: Vec<SealKey>) -> Pending<Vec<Option<Bytes>>> {
        if keys.is_empty() {
            return Pending::known(Ok(Vec::new()));
        }
        let names: Vec<Vec<u8>> = keys.iter().map(|key| SEALS.item(account, key)).collect();
        self.submit(0, script::FIND.call(&names), |_, answer| {
            parts(answer).iter().map(|found| bytes(parts(found).first()?)).collect()
        })
    }

    fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Relaxed)
    }
}
