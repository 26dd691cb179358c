//! Socket that the conversation of a client keeps for itself: its provider remembers the latest response of a socket, so
//! that the next request has what is new only, also with `store: false`.

use std::sync::Arc;

use parking_lot::Mutex;
use pingora::http::RequestHeader;

use super::pool::{IdleSocket, SocketKey, is_keepable};
use super::session::ProviderSocket;
use super::steering::SteerInbox;
use codec::wire::responses::socket::provider::HeldConversation;

/// Socket to a provider that one conversation keeps between two requests. It is closed with the conversation.
#[derive(Default)]
pub struct KeptSocket(Mutex<Option<(SocketKey, IdleSocket)>>);

impl KeptSocket {
    /// Takes the socket if requests with this key may use it. `None` if there is none, or it was closed.
    pub async fn take(&self, key: SocketKey) -> Option<ProviderSocket> {
        let kept = self.0.lock().take();
        let (_, idle) = kept.filter(|(kept, _)| *kept == key)?;
        idle.take().await
    }

    /// Returns whether a socket is kept.
    pub fn is_some(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Keeps a socket for the next request, in place of the one before.
    pub fn put(&self, socket: ProviderSocket) {
        if is_keepable(&socket) {
            *self.0.lock() = Some((socket.key(), IdleSocket::new(socket)));
        }
    }
}

impl std::fmt::Debug for KeptSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptSocket({})", self.0.lock().is_some())
    }
}

/// Conversation that a request belongs to, as an extension of its head.
#[derive(Clone, Debug)]
pub struct SocketConversation {
    /// Its socket.
    pub socket: Arc<KeptSocket>,
    /// Items that the provider has if the socket holds the response that this request continues.
    pub held: Option<Arc<HeldConversation>>,
    /// Input for the response.
    pub inbox: Arc<SteerInbox>,
}

impl SocketConversation {
    /// Returns the conversation of the request with this head. `None` for a request over HTTP.
    pub fn of(head: &RequestHeader) -> Option<SocketConversation> {
        head.extensions.get::<SocketConversation>().cloned()
    }
}
