//! The way to the server: one, the one that sentinels name, or a cluster. A connection that broke is made anew by the next
//! who needs it; nothing waits longer than [`ANSWER`].

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, IntoConnectionInfo as _, Pipeline, RedisError};
use redis::{RedisFuture, RedisResult, Value};
use tokio::sync::Mutex;

/// How long an answer, or a connection, is waited for: a server in the same room answers in less than a thousandth of it.
pub(super) const ANSWER: Duration = Duration::from_millis(500);
/// How long after a failure nothing is tried, so that requests do not queue before a server that is away.
const PAUSE: Duration = Duration::from_millis(200);

/// What kind of servers the addresses are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One server.
    Single,
    /// Sentinels, which know under this name which server is in charge.
    Sentinel(String),
    /// Nodes of a cluster.
    Cluster,
}

/// A connection.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Connection::One(connection) => connection.req_packed_command(command),
            Connection::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Connection::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Connection::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Connection::One(connection) => connection.get_db(),
            Connection::Cluster(connection) => connection.get_db(),
        }
    }
}

/// The way to the server. Only its own thread uses it.
pub(super) struct Link {
    addresses: Vec<String>,
    mode: Mode,
    current: RefCell<Option<Connection>>,
    /// Held by whoever connects.
    connecting: Mutex<()>,
    failed: Cell<Option<Instant>>,
}

fn unreachable_now() -> RedisError {
    RedisError::from((ErrorKind::Io, "the server is away"))
}

impl Link {
    /// `addresses` are URLs, with commas between them.
    pub(super) fn new(addresses: &str, mode: Mode) -> RedisResult<Self> {
        let addresses: Vec<String> = addresses.split(',').map(|part| spelled(part.trim())).collect();
        for address in &addresses {
            // So that a fault is found at the start.
            address.as_str().into_connection_info()?;
        }
        let current = RefCell::new(None);
        Ok(Link { addresses, mode, current, connecting: Mutex::new(()), failed: Cell::new(None) })
    }

    pub(super) fn mode(&self) -> &Mode {
        &self.mode
    }

    /// Whether something failed just now.
    fn is_away(&self) -> bool {
        self.failed.get().is_some_and(|failed| failed.elapsed() < PAUSE)
    }

    async fn connection(&self) -> RedisResult<Connection> {
        if let Some(connection) = self.current.borrow().clone() {
            return Ok(connection);
        }
        let _connecting = self.connecting.lock().await;
        // Somebody else may have been faster, or may have failed.
        if let Some(connection) = self.current.borrow().clone() {
            return Ok(connection);
        }
        if self.is_away() {
            return Err(unreachable_now());
        }
        let connected = tokio::time::timeout(ANSWER * 2, self.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err(unreachable_now()));
        match connected {
            Ok(connection) => {
                self.failed.set(None);
                *self.current.borrow_mut() = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                self.failed.set(Some(Instant::now()));
                Err(error)
            }
        }
    }

    async fn connect(&self) -> RedisResult<Connection> {
        let times = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        match &self.mode {
            Mode::Single => {
                let client = Client::open(self.addresses.first().map_or("", String::as_str))?;
                client.get_multiplexed_async_connection_with_config(&times).await.map(Connection::One)
            }
            Mode::Sentinel(name) => {
                let mut sentinel = Sentinel::build(self.addresses.clone())?;
                // The servers are asked with the password that the sentinels are asked with.
                let info = self.addresses.first().map_or("", String::as_str).into_connection_info()?;
                let mut redis = info.redis_settings().clone();
                redis = redis.set_db(0);
                let node = SentinelNodeConnectionInfo::default().set_redis_connection_info(redis);
                let master = sentinel.async_master_for(name, Some(&node)).await?;
                master.get_multiplexed_async_connection_with_config(&times).await.map(Connection::One)
            }
            Mode::Cluster => {
                let client = ClusterClient::builder(self.addresses.clone())
                    .connection_timeout(ANSWER)
                    .response_timeout(ANSWER)
                    .retries(2)
                    .build()?;
                client.get_async_connection().await.map(Connection::Cluster)
            }
        }
    }

    /// Does something with the connection. After a failure of the way, or of a server that is no longer in charge, the next
    /// one connects anew.
    pub(super) async fn run<T>(
        &self,
        run: impl AsyncFnOnce(&mut Connection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let mut connection = self.connection().await?;
        let outcome = tokio::time::timeout(ANSWER * 2, run(&mut connection)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(unreachable_now()));
        match &outcome {
            Ok(_) => self.failed.set(None),
            Err(error) if is_of_the_way(error) => {
                self.failed.set(Some(Instant::now()));
                *self.current.borrow_mut() = None;
            }
            Err(_) => {}
        }
        outcome
    }
}

fn is_of_the_way(error: &RedisError) -> bool {
    // A replica that was the one in charge says READONLY; a server that reads its file says LOADING.
    let code = error.code().unwrap_or_default();
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || ["READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN"].contains(&code)
}

/// The crate's spelling of an address.
fn spelled(address: &str) -> String {
    for (from, to) in [("valkey://", "redis://"), ("valkeys://", "rediss://")] {
        if let Some(rest) = address.strip_prefix(from) {
            return format!("{to}{rest}");
        }
    }
    address.to_owned()
}
