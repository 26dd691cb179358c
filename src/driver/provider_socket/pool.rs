//! Idle sockets to providers, and the providers that refuse sockets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tungstenite::handshake::client::Request;

use super::session::ProviderSocket;

/// Lifetime of a socket. OpenAI closes one after 60 minutes, also with a response in progress; most responses take less
/// than five minutes.
const LIFETIME: Duration = Duration::from_secs(55 * 60);
/// Longest time for which a socket is kept idle. Agents pause for minutes while their tools run.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// Time for which a provider that has refused a socket gets requests over HTTP.
const REFUSED: Duration = Duration::from_secs(5 * 60);
/// Providers whose refusal is remembered. Configurations have tens of providers.
const MAX_REFUSED: usize = 1024;

/// Key of the sockets that requests share: a hash of peer, path and headers.
pub type SocketKey = [u8; 32];

/// Idle sockets to providers. Clones share one state.
#[derive(Clone)]
pub struct SocketPool(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    limit: usize,
}

#[derive(Default)]
struct State {
    idle: HashMap<SocketKey, Vec<IdleSocket>>,
    count: usize,
    /// Providers that have refused a socket, with the end of that state.
    refused: HashMap<Box<str>, Instant>,
}

/// Idle socket: the claim on it. Its task holds the socket, answers pings, and closes it when the claim is dropped.
pub struct IdleSocket(oneshot::Sender<oneshot::Sender<ProviderSocket>>);

impl IdleSocket {
    /// Starts the task of an idle socket.
    pub fn new(socket: ProviderSocket) -> Self {
        let (claim, claimed) = oneshot::channel();
        tokio::spawn(keep_open(socket, claimed));
        IdleSocket(claim)
    }

    /// Takes the socket. `None` if it was closed meanwhile.
    pub async fn take(self) -> Option<ProviderSocket> {
        let (give, taken) = oneshot::channel();
        self.0.send(give).ok()?;
        taken.await.ok()
    }

    /// Returns whether the socket is still open.
    pub fn is_open(&self) -> bool {
        !self.0.is_closed()
    }
}

async fn keep_open(
    mut socket: ProviderSocket,
    mut claimed: oneshot::Receiver<oneshot::Sender<ProviderSocket>>,
) {
    let until = (Instant::now() + IDLE).min(socket.opened() + LIFETIME);
    loop {
        tokio::select! {
            biased;
            claimed = &mut claimed => {
                match claimed {
                    Ok(give) => _ = give.send(socket),
                    Err(_) => socket.close().await,
                }
                return;
            }
            is_open = socket.serve_idle() => if !is_open { return },
            () = sleep_until(until) => return socket.close().await,
        }
    }
}

impl SocketPool {
    /// Creates a pool of at most `limit` idle sockets.
    pub fn new(limit: usize) -> Self {
        SocketPool(Arc::new(Inner { state: Mutex::default(), limit }))
    }

    /// Takes an idle socket. `None` if there is none.
    pub async fn take(&self, key: SocketKey) -> Option<ProviderSocket> {
        loop {
            let idle = {
                let mut state = self.0.state.lock();
                let idle = state.idle.get_mut(&key)?.pop();
                match idle {
                    Some(_) => state.count -= 1,
                    None => _ = state.idle.remove(&key),
                }
                idle?
            };
            if let Some(socket) = idle.take().await {
                return Some(socket);
            }
        }
    }

    /// Returns a socket to the pool. Closes it if it cannot take another request, or the pool is full.
    pub fn put(&self, socket: ProviderSocket) {
        if !is_keepable(&socket) {
            return;
        }
        let key = socket.key();
        let mut state = self.0.state.lock();
        if state.count >= self.0.limit {
            // Sockets that their providers have closed leave their claims behind.
            state.idle.values_mut().for_each(|idle| idle.retain(IdleSocket::is_open));
            state.idle.retain(|_, idle| !idle.is_empty());
            state.count = state.idle.values().map(Vec::len).sum();
        }
        if state.count < self.0.limit {
            state.count += 1;
            state.idle.entry(key).or_default().push(IdleSocket::new(socket));
        }
    }

    /// Remembers that a provider has refused a socket.
    pub fn set_refused(&self, provider: &str) {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        state.refused.retain(|_, until| *until > now);
        if state.refused.len() < MAX_REFUSED {
            state.refused.insert(provider.into(), now + REFUSED);
        }
    }

    /// Returns whether a provider has refused a socket a short time ago.
    pub fn is_refused(&self, provider: &str) -> bool {
        self.0.state.lock().refused.get(provider).is_some_and(|until| *until > Instant::now())
    }
}

/// Returns whether a socket can be kept for another request.
pub fn is_keepable(socket: &ProviderSocket) -> bool {
    socket.is_reusable() && socket.opened().elapsed() < LIFETIME
}

/// Returns the key of the sockets for requests to one peer with these headers, credentials included: only requests with
/// the same ones share a socket.
pub fn socket_key(peer: u64, handshake: &Request) -> SocketKey {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    add(&peer.to_be_bytes());
    add(handshake.uri().path_and_query().map_or("", |path| path.as_str()).as_bytes());
    for (name, value) in handshake.headers() {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    hash.finalize().into()
}
