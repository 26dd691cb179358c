//! Connection to the server: addresses, pipelining and time limits.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, TlsMode, Value,
};
use tokio::task::JoinSet;

use super::script;

/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a response. Scripts take microseconds, so a server that takes longer counts as unreachable.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of commands in one pipeline.
const BATCH: usize = 128;

/// Address of a server, a group of sentinels, or a cluster. Clones share the credentials, which may be renewed.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    urls: Arc<ArcSwap<Vec<ConnectionInfo>>>,
    sentinel: Option<String>,
}

/// Error: an address that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServerAddressError(String);

impl ServerAddress {
    /// Parses URLs. One URL is a single server, several are the nodes of a cluster. With `sentinel`, the URLs are those
    /// of sentinels, and `sentinel` is the name of the master that they monitor.
    ///
    /// # Errors
    /// Returns [`ServerAddressError`] if a URL is invalid or there is none.
    pub fn new<'u>(
        urls: impl IntoIterator<Item = &'u str>,
        sentinel: Option<&str>,
    ) -> Result<Self, ServerAddressError> {
        let urls = parse(urls)?;
        if urls.is_empty() {
            return Err(ServerAddressError("no URL is set".to_owned()));
        }
        let urls = Arc::new(ArcSwap::from_pointee(urls));
        Ok(ServerAddress { urls, sentinel: sentinel.map(str::to_owned) })
    }

    /// Replaces user and password of the URLs. Connections that are open keep theirs; later ones use the new ones.
    ///
    /// # Errors
    /// Returns [`ServerAddressError`] if a URL is invalid or names another server or database.
    pub fn renew_credentials<'u>(
        &self,
        urls: impl IntoIterator<Item = &'u str>,
    ) -> Result<(), ServerAddressError> {
        let (new, old) = (parse(urls)?, self.urls.load());
        let place = |info: &ConnectionInfo| (info.addr().clone(), info.redis_settings().db());
        if !new.iter().map(place).eq(old.iter().map(place)) {
            let message = "a URL names another server or database, which takes effect with the next start";
            return Err(ServerAddressError(message.to_owned()));
        }
        self.urls.store(Arc::new(new));
        Ok(())
    }
}

fn parse<'u>(urls: impl IntoIterator<Item = &'u str>) -> Result<Vec<ConnectionInfo>, ServerAddressError> {
    let read = |url: &str| {
        // Only the kind of the error: its text may contain the password of the URL.
        let info = url.into_connection_info();
        info.map_err(|error| ServerAddressError(format!("a URL is not valid: {:?}", error.kind())))
    };
    urls.into_iter().map(read).collect()
}

/// Failure of a connection or a command.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("{0}")]
    Server(String),
    #[error("it did not respond in time")]
    Timeout,
}

impl From<RedisError> for ConnectionError {
    fn from(error: RedisError) -> Self {
        ConnectionError::Server(error.to_string())
    }
}

/// Established connection.
#[derive(Clone)]
pub(crate) enum Connection {
    Single(MultiplexedConnection),
    Cluster(Box<ClusterConnection>),
}

impl Connection {
    /// Connects and loads the scripts.
    pub(crate) async fn connect(address: &ServerAddress) -> Result<Connection, ConnectionError> {
        let connection = tokio::time::timeout(CONNECT_TIMEOUT * 2, open(address))
            .await
            .map_err(|_| ConnectionError::Timeout)??;
        connection.load_scripts().await?;
        Ok(connection)
    }

    async fn load_scripts(&self) -> Result<(), ConnectionError> {
        let load = |script: &&script::Script| {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script.code);
            load
        };
        self.run(script::ALL.iter().map(load).collect()).await.map(drop)
    }

    /// Runs commands, each with its own keys, and returns the responses in the same order. If this fails, some of the
    /// commands may have been executed.
    pub(crate) async fn run_all(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, ConnectionError> {
        let mut answers = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter();
        loop {
            let batch: Vec<Cmd> = commands.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(answers);
            }
            answers.extend(self.batch(batch).await?);
        }
    }

    /// Runs one command.
    pub(crate) async fn run_one(&self, command: Cmd) -> Result<Value, ConnectionError> {
        let answers = self.batch(vec![command]).await?;
        answers.into_iter().next().ok_or_else(|| ConnectionError::Server("no response".to_owned()))
    }

    async fn batch(&self, batch: Vec<Cmd>) -> Result<Vec<Value>, ConnectionError> {
        match self.run(batch.clone()).await {
            // NOSCRIPT: a restarted server or a promoted replica does not have the scripts. Load them and try again.
            Err(ConnectionError::Server(error)) if error.contains("NOSCRIPT") => {
                self.load_scripts().await?;
                self.run(batch).await
            }
            done => done,
        }
    }

    async fn run(&self, batch: Vec<Cmd>) -> Result<Vec<Value>, ConnectionError> {
        let answers = async {
            match self {
                Connection::Single(connection) => {
                    let mut connection = connection.clone();
                    if let [command] = &batch[..] {
                        let answer = connection.req_packed_command(command).await?;
                        return Ok(vec![answer.extract_error()?]);
                    }
                    let mut pipe = redis::Pipeline::with_capacity(batch.len());
                    for command in batch {
                        pipe.add_command(command);
                    }
                    pipe.query_async::<Vec<Value>>(&mut connection).await
                }
                Connection::Cluster(connection) => run_each(connection, batch).await,
            }
        };
        Ok(tokio::time::timeout(RESPONSE_TIMEOUT, answers).await.map_err(|_| ConnectionError::Timeout)??)
    }
}

/// Runs commands in parallel, because in a cluster each may go to another node.
async fn run_each(connection: &ClusterConnection, batch: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
    let mut running = JoinSet::new();
    let mut answers = vec![Value::Nil; batch.len()];
    for (at, command) in batch.into_iter().enumerate() {
        let mut connection = connection.clone();
        running.spawn(async move { (at, connection.req_packed_command(&command).await) });
    }
    while let Some(Ok((at, answer))) = running.join_next().await {
        if let Some(slot) = answers.get_mut(at) {
            *slot = answer?.extract_error()?;
        }
    }
    Ok(answers)
}

async fn open(address: &ServerAddress) -> Result<Connection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    let urls = address.urls.load_full();
    let Some(first) = urls.first().cloned() else {
        return Err((redis::ErrorKind::InvalidClientConfig, "no URL is set").into());
    };
    if let Some(name) = &address.sentinel {
        let mut node =
            SentinelNodeConnectionInfo::default().set_redis_connection_info(first.redis_settings().clone());
        if matches!(first.addr(), ConnectionAddr::TcpTls { .. }) {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        let urls: Vec<ConnectionInfo> = urls.iter().map(sentinel).collect();
        let mut client = SentinelClient::build(urls, name, Some(node), SentinelServerType::Master)?;
        return Ok(Connection::Single(client.get_async_connection_with_config(&config).await?));
    }
    if urls.len() > 1 {
        let client = ClusterClientBuilder::new(urls.to_vec())
            .connection_timeout(CONNECT_TIMEOUT)
            .response_timeout(RESPONSE_TIMEOUT)
            .build()?;
        return Ok(Connection::Cluster(Box::new(client.get_async_connection().await?)));
    }
    let client = Client::open(first)?;
    Ok(Connection::Single(client.get_multiplexed_async_connection_with_config(&config).await?))
}

/// Removes user, password and database from a URL: they are those of the server, not of the sentinels.
fn sentinel(url: &ConnectionInfo) -> ConnectionInfo {
    url.clone().set_redis_settings(RedisConnectionInfo::default())
}

/// Returns a response as text; empty if it is not text.
pub(crate) fn text(value: &Value) -> &str {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
        Value::SimpleString(text) => text,
        _ => "",
    }
}

/// Returns a response as an integer; 0 if it is not a number.
pub(crate) fn number(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        other => text(other).parse().unwrap_or(0),
    }
}

/// Returns the elements of an array response; empty if it is not an array.
pub(crate) fn parts(value: &Value) -> &[Value] {
    match value {
        Value::Array(parts) | Value::Set(parts) => parts,
        _ => &[],
    }
}

/// Returns the fields and values of a hash response.
pub(crate) fn pairs(value: &Value) -> Vec<(&Value, &Value)> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        other => {
            parts(other).chunks_exact(2).filter_map(|pair| Some((pair.first()?, pair.get(1)?))).collect()
        }
    }
}
