//! Socket for an attempt: one that is open, or a new one.

use std::time::Duration;

use pingora::http::RequestHeader;
use pingora::upstreams::peer::Peer as _;
use tokio::time::Instant;

use super::conversation::SocketConversation;
use super::open::{HandshakeError, handshake_head, open};
use super::pool::socket_key;
use super::session::ProviderSocket;
use crate::exchange::ExchangeState;
use crate::hooks::ExchangeHooks;
use crate::outcome::{ExchangeOutcome, failed};
use crate::peer::Upstream;

impl<P: ExchangeHooks> ExchangeState<'_, P> {
    /// Returns an open socket for the request, and whether it has carried another one. `None` if the provider accepts no
    /// socket: the request goes over HTTP then.
    ///
    /// # Errors
    /// Returns the outcome if no connection can be opened, or the exchange must end meanwhile.
    pub(crate) async fn take_or_open_socket(
        &mut self,
        provider: &str,
        peer: &Upstream,
        within: Duration,
        may_reuse: bool,
    ) -> Result<Option<(ProviderSocket, bool)>, ExchangeOutcome> {
        let connections = self.proxy.connections();
        let sockets = connections.sockets();
        if sockets.is_refused(provider) {
            return Ok(None);
        }
        // An error is that of the request over HTTP too.
        let Ok(mut head) = RequestHeader::build_no_case("POST", b"/", None) else { return Ok(None) };
        if self.proxy.upstream_request_filter(self.session, &mut head, self.ctx).await.is_err() {
            return Ok(None);
        }
        let Some(handshake) = handshake_head(&head, peer.tls()) else { return Ok(None) };
        let key = socket_key(peer.reuse_hash(), &handshake);
        if may_reuse {
            let conversation = SocketConversation::of(self.session.req_header());
            let kept = match &conversation {
                Some(conversation) => conversation.socket.take(key).await,
                None => None,
            };
            let idle = match kept {
                Some(socket) => Some(socket),
                None => sockets.take(key).await,
            };
            if let Some(socket) = idle {
                return Ok(Some((socket, true)));
            }
        }
        let begun = Instant::now();
        let stream =
            match self.run_cancellable(Box::pin(connections.connect_for_upgrade(peer, within))).await? {
                Ok(stream) => stream,
                Err(error) => {
                    let error = self.proxy.fail_to_connect(self.session, peer.http(), self.ctx, error);
                    return Err(failed(error));
                }
            };
        let largest = self.proxy.settings().frame;
        let within = within.saturating_sub(begun.elapsed());
        match self.run_cancellable(open(stream, handshake, key, largest, within)).await? {
            Ok(socket) => Ok(Some((socket, false))),
            Err(error @ HandshakeError::Unsupported(_)) => {
                tracing::warn!(provider, %error, "requests go over HTTP for some minutes");
                sockets.set_refused(provider);
                Ok(None)
            }
            Err(error @ HandshakeError::Refused(_)) => {
                tracing::debug!(provider, %error, "the request goes over HTTP");
                Ok(None)
            }
        }
    }

    /// Keeps a socket whose response has ended: for its conversation, if the request belongs to one, or for any request.
    pub(crate) fn release_socket(&self, socket: ProviderSocket) {
        match SocketConversation::of(self.session.req_header()) {
            Some(conversation) => conversation.socket.put(socket),
            None => self.proxy.connections().sockets().put(socket),
        }
    }
}
