//! The connection: how a server is reached, what is asked of it at a time, and for how long it is waited for.

use std::time::Duration;

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

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long an answer may take. Scripts take microseconds: what takes longer is not there.
const ANSWER: Duration = Duration::from_secs(1);
/// Commands that are sent before their answers are awaited.
const BATCH: usize = 128;

/// Where a server is.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    urls: Vec<ConnectionInfo>,
    sentinel: Option<String>,
}

/// An address cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServerAddressError(String);

impl ServerAddress {
    /// One URL is a server, several are a cluster; with a name, all of them are sentinels that know where the server of
    /// that name is.
    ///
    /// # Errors
    /// A URL cannot be used.
    pub fn new<'u>(
        urls: impl IntoIterator<Item = &'u str>,
        sentinel: Option<&str>,
    ) -> Result<Self, ServerAddressError> {
        let read = |url: &str| {
            // Why a URL is wrong may show its password.
            let info = url.into_connection_info();
            info.map_err(|error| ServerAddressError(format!("a URL cannot be used: {:?}", error.kind())))
        };
        let urls = urls.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if urls.is_empty() {
            return Err(ServerAddressError("there is no URL".to_owned()));
        }
        Ok(ServerAddress { urls, sentinel: sentinel.map(str::to_owned) })
    }
}

/// Why something was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("{0}")]
    Server(String),
    #[error("it did not answer in time")]
    Late,
}

impl From<RedisError> for ConnectionError {
    fn from(error: RedisError) -> Self {
        ConnectionError::Server(error.to_string())
    }
}

/// A connection that stands.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Cluster(Box<ClusterConnection>),
}

impl Connection {
    /// Connects, and makes the scripts known.
    pub(super) async fn connect(address: &ServerAddress) -> Result<Connection, ConnectionError> {
        let link =
            tokio::time::timeout(CONNECT * 2, open(address)).await.map_err(|_| ConnectionError::Late)??;
        link.teach().await?;
        Ok(link)
    }

    async fn teach(&self) -> Result<(), ConnectionError> {
        let load = |script: &&script::Script| {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script.code);
            load
        };
        self.run(script::ALL.iter().map(load).collect()).await.map(drop)
    }

    /// Runs commands, each of which has its own keys; the answers come in the same order. When this fails, some of them
    /// may have been run.
    pub(super) async fn all(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, ConnectionError> {
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
    pub(super) async fn one(&self, command: Cmd) -> Result<Value, ConnectionError> {
        let answers = self.batch(vec![command]).await?;
        answers.into_iter().next().ok_or_else(|| ConnectionError::Server("no answer".to_owned()))
    }

    async fn batch(&self, batch: Vec<Cmd>) -> Result<Vec<Value>, ConnectionError> {
        match self.run(batch.clone()).await {
            // A server that was started anew, or has taken over from another one.
            Err(ConnectionError::Server(error)) if error.contains("NOSCRIPT") => {
                self.teach().await?;
                self.run(batch).await
            }
            done => done,
        }
    }

    async fn run(&self, batch: Vec<Cmd>) -> Result<Vec<Value>, ConnectionError> {
        let answers = async {
            match self {
                Connection::One(connection) => {
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
        Ok(tokio::time::timeout(ANSWER, answers).await.map_err(|_| ConnectionError::Late)??)
    }
}

/// In a cluster each command may go to another server.
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
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(ANSWER));
    let Some(first) = address.urls.first().cloned() else {
        return Err((redis::ErrorKind::InvalidClientConfig, "there is no URL").into());
    };
    if let Some(name) = &address.sentinel {
        let mut node =
            SentinelNodeConnectionInfo::default().set_redis_connection_info(first.redis_settings().clone());
        if matches!(first.addr(), ConnectionAddr::TcpTls { .. }) {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        let urls: Vec<ConnectionInfo> = address.urls.iter().map(sentinel).collect();
        let mut client = SentinelClient::build(urls, name, Some(node), SentinelServerType::Master)?;
        return Ok(Connection::One(client.get_async_connection_with_config(&config).await?));
    }
    if address.urls.len() > 1 {
        let client = ClusterClientBuilder::new(address.urls.clone())
            .connection_timeout(CONNECT)
            .response_timeout(ANSWER)
            .build()?;
        return Ok(Connection::Cluster(Box::new(client.get_async_connection().await?)));
    }
    let client = Client::open(first)?;
    Ok(Connection::One(client.get_multiplexed_async_connection_with_config(&config).await?))
}

/// User, password and database are those of the server: sentinels are asked without.
fn sentinel(url: &ConnectionInfo) -> ConnectionInfo {
    url.clone().set_redis_settings(RedisConnectionInfo::default())
}

/// A text in an answer; empty, if it is none.
pub(super) fn text(value: &Value) -> &str {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
        Value::SimpleString(text) => text,
        _ => "",
    }
}

/// A whole number in an answer; 0, if it is none.
pub(super) fn number(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        other => text(other).parse().unwrap_or(0),
    }
}

/// The parts of an answer.
pub(super) fn parts(value: &Value) -> &[Value] {
    match value {
        Value::Array(parts) | Value::Set(parts) => parts,
        _ => &[],
    }
}

/// The names and values of a hash.
pub(super) fn pairs(value: &Value) -> Vec<(&Value, &Value)> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        other => {
            parts(other).chunks_exact(2).filter_map(|pair| Some((pair.first()?, pair.get(1)?))).collect()
        }
    }
}
