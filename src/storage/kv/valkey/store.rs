//! Store of responses and provider signatures for a fleet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use crate::kv::{Found, Holder, Store, StoreKey, StoreLimits, StoredResponse};
use crate::store::valkey::connection::{Connection, ConnectionError, number, parts};
use crate::store::valkey::keys::ValkeyKey;
use crate::store::valkey::{ServerAddress, script};
use crate::store::{Pending, StoreError, millis};
use sync::supervise::Supervised;

/// Maximum number of concurrent jobs.
const JOBS: usize = 1024;
/// Maximum bytes in flight: what a burst of large conversations may hold in memory.
const BYTES: usize = 64 << 20;
/// Interval between two removals of expired entries.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of entries that one step removes.
const SWEPT: i64 = 200;
/// Time after a failed connection in which jobs fail at once.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// Accounted size of a provider signature beside its value and account, in bytes: its keys.
const OVERHEAD: usize = 128;

const RESPONSES: ValkeyKey = ValkeyKey("responses");
const SIGNATURES: ValkeyKey = ValkeyKey("seals");

/// Store of responses and provider signatures on a server.
pub struct ValkeyStore {
    runtime: Option<Runtime>,
    shared: Arc<StoreShared>,
    limits: StoreLimits,
    supervised: Arc<Supervised>,
}

pub(super) struct StoreShared {
    address: ServerAddress,
    connection: Mutex<ConnectionState>,
    size: AtomicU64,
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

/// Connection, or the time when it failed.
#[derive(Default)]
struct ConnectionState {
    connection: Option<Connection>,
    failed: Option<Instant>,
}

impl ValkeyStore {
    /// Starts the thread. It connects to the server when the first job arrives.
    ///
    /// # Errors
    /// Returns the error of the operating system if it cannot start a thread.
    pub fn open(address: ServerAddress, limits: StoreLimits) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("store")
            .enable_all()
            .build()?;
        let shared = Arc::new(StoreShared {
            address,
            connection: Mutex::default(),
            size: AtomicU64::new(0),
            jobs: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        });
        let supervised = Supervised::new("store");
        let (sweeping, own) = (Arc::downgrade(&shared), supervised.clone());
        runtime.spawn(async move { own.run_task_supervised(|| sweep(sweeping.clone())).await });
        Ok(ValkeyStore { runtime: Some(runtime), shared, limits, supervised })
    }

    /// Runs a command; `read` turns the response into the outcome. `size` counts against [`BYTES`].
    pub(super) fn submit<T: Send + 'static>(
        &self,
        size: usize,
        command: Cmd,
        read: impl FnOnce(&StoreShared, &Value) -> T + Send + 'static,
    ) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        let load = JobSlot::new(&self.shared, size);
        let (Some(load), Some(runtime)) = (load, &self.runtime) else {
            return Pending::known(Err(StoreError::Busy));
        };
        runtime.spawn(async move {
            let done = load.0.run(command).await.map(|answer| read(&load.0, &answer));
            // The send fails if the receiver is gone; that is fine.
            let _ = outcome.send(done.map_err(|error| match error {
                ConnectionError::Timeout => StoreError::Timeout,
                ConnectionError::Server(error) => StoreError::Failed(error),
            }));
        });
        pending
    }
}

/// Behavior of a write for a key that has an unexpired entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnExisting {
    Replace,
    Leave,
}

/// Returns the command that stores entries: for each its key, accounted size and two values.
pub(super) fn store_command(
    kept: ValkeyKey,
    lifetime: Duration,
    total: u64,
    on_existing: OnExisting,
    things: Vec<(Vec<u8>, usize, Bytes, Bytes)>,
) -> Cmd {
    let mut names: Vec<Vec<u8>> = [kept.order(), kept.size(), kept.count()].map(String::into_bytes).into();
    names.extend(things.iter().map(|thing| thing.0.clone()));
    let mut call = script::KEEP.call(&names);
    call.arg(millis(lifetime)).arg(total).arg(u8::from(on_existing == OnExisting::Leave));
    for (_, size, one, other) in &things {
        call.arg(*size).arg(&one[..]).arg(&other[..]);
    }
    call
}

impl Drop for ValkeyStore {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Slot of a job in the limits of jobs and bytes, released when dropped.
struct JobSlot(Arc<StoreShared>, usize);

impl JobSlot {
    /// Takes a slot; `None` if there is none. A job larger than [`BYTES`] is admitted when nothing else is in flight.
    fn new(shared: &Arc<StoreShared>, size: usize) -> Option<Self> {
        let jobs = shared.jobs.fetch_add(1, Ordering::Relaxed);
        let bytes = shared.bytes.fetch_add(size, Ordering::Relaxed);
        // Made even if the job is rejected: dropping it undoes both counts.
        let load = JobSlot(shared.clone(), size);
        (jobs < JOBS && (size == 0 || bytes == 0 || bytes + size <= BYTES)).then_some(load)
    }
}

impl Drop for JobSlot {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::Relaxed);
        self.0.bytes.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl StoreShared {
    async fn connect(&self) -> Result<Connection, ConnectionError> {
        // Held while connecting, so that concurrent jobs share one attempt.
        let mut line = self.connection.lock().await;
        if let Some(link) = &line.connection {
            return Ok(link.clone());
        }
        // Fail fast for a while: otherwise each job would wait for its own connection time limit.
        if line.failed.is_some_and(|at| at.elapsed() < RECONNECT_DELAY) {
            return Err(ConnectionError::Server("the server is away".to_owned()));
        }
        let link = Connection::connect(&self.address).await;
        line.failed = link.is_err().then(Instant::now);
        line.connection = link.as_ref().ok().cloned();
        link
    }

    async fn run(&self, command: Cmd) -> Result<Value, ConnectionError> {
        let answer = self.connect().await?.run_one(command).await;
        // Reconnect with the next job: the server may have failed over.
        if answer.is_err() {
            self.connection.lock().await.connection = None;
        }
        answer
    }

    fn set_size(&self, size: &Value) {
        self.size.store(u64::try_from(number(size)).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Removes expired entries until the store is dropped.
async fn sweep(shared: std::sync::Weak<StoreShared>) {
    while let Some(shared) = shared.upgrade() {
        let mut more = false;
        for kept in [RESPONSES, SIGNATURES, super::owners::OWNERS] {
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
                Err(error) => tracing::warn!(%error, "expired entries cannot be removed from the store"),
            }
        }
        drop(shared);
        tokio::time::sleep(if more { Duration::from_millis(10) } else { SWEEP_INTERVAL }).await;
    }
}

/// Returns the accounted size of a response, in bytes.
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

    fn store_response(&self, response: StoredResponse) -> Pending<()> {
        let size = size_of(&response);
        let limit = self.limits.response.min(usize::try_from(self.limits.total).unwrap_or(usize::MAX));
        if size > limit {
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        let StoredResponse { account, id, items, document } = response;
        let name = RESPONSES.item(&account, id.as_bytes());
        // Before the response in the order of eviction, and of no size: it never outlives the response.
        let holder = (RESPONSES.holder(id.as_bytes()), 0, Bytes::from(account), Bytes::new());
        let call = store_command(
            RESPONSES,
            self.limits.lifetime,
            self.limits.total,
            OnExisting::Replace,
            vec![holder, (name, size, items, document)],
        );
        self.submit(size, call, StoreShared::set_size)
    }

    fn stores_responses(&self) -> bool {
        !self.limits.lifetime.is_zero()
    }

    fn find(&self, account: &str, id: &str) -> Pending<Option<Found>> {
        let call = script::FIND.call(&[RESPONSES.item(account, id.as_bytes())]);
        self.submit(0, call, |_, answer| response(answer))
    }

    fn holder(&self, account: &str, id: &str) -> Pending<Holder> {
        let mut call =
            script::HOLDER.call(&[RESPONSES.item(account, id.as_bytes()), RESPONSES.holder(id.as_bytes())]);
        call.arg(account);
        self.submit(0, call, |_, answer| match number(answer) {
            1 => Holder::Asker,
            2 => Holder::OtherAccount,
            _ => Holder::NoAccount,
        })
    }

    fn find_documents(&self, account: &str, ids: Vec<String>) -> Pending<Vec<Option<Bytes>>> {
        if ids.is_empty() {
            return Pending::known(Ok(Vec::new()));
        }
        let names: Vec<Vec<u8>> = ids.iter().map(|id| RESPONSES.item(account, id.as_bytes())).collect();
        let mut call = script::FIND.call(&names);
        call.arg("b");
        self.submit(0, call, |_, answer| {
            parts(answer).iter().map(|found| bytes(parts(found).first()?)).collect()
        })
    }

    fn remove(&self, account: &str, id: &str) -> Pending<bool> {
        let names = [RESPONSES.order().into_bytes(), RESPONSES.size().into_bytes()];
        let [order, size] = names;
        let call = script::REMOVE.call(&[
            order,
            size,
            RESPONSES.item(account, id.as_bytes()),
            RESPONSES.holder(id.as_bytes()),
        ]);
        self.submit(0, call, |shared, answer| {
            let [there, size] = parts(answer) else { return false };
            shared.set_size(size);
            number(there) == 1
        })
    }

    fn store_signatures(&self, account: &str, entries: Vec<(StoreKey, Bytes)>) -> Pending<()> {
        let size_of = |value: &Bytes| account.len() + value.len() + OVERHEAD;
        let size: usize = entries.iter().map(|(_, value)| size_of(value)).sum();
        let limit = usize::try_from(self.limits.signature_total).unwrap_or(usize::MAX);
        if size > limit {
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        if entries.is_empty() {
            return Pending::known(Ok(()));
        }
        let thing = |(key, value): (StoreKey, Bytes)| {
            (SIGNATURES.item(account, &key), size_of(&value), value, Bytes::new())
        };
        let things = entries.into_iter().map(thing).collect();
        let call = store_command(
            SIGNATURES,
            self.limits.signature_lifetime,
            self.limits.signature_total,
            OnExisting::Replace,
            things,
        );
        self.submit(size, call, |_, _| ())
    }

    fn load_signatures(&self, account: &str, keys: Vec<StoreKey>) -> Pending<Vec<Option<Bytes>>> {
        if keys.is_empty() {
            return Pending::known(Ok(Vec::new()));
        }
        let names: Vec<Vec<u8>> = keys.iter().map(|key| SIGNATURES.item(account, key)).collect();
        self.submit(0, script::FIND.call(&names), |_, answer| {
            parts(answer).iter().map(|found| bytes(parts(found).first()?)).collect()
        })
    }

    fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Relaxed)
    }
}
