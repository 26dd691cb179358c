//! Writing a request to a provider, while its client waits.

use std::pin::pin;
use std::time::Duration;

use http::header;
use pingora::http::RequestHeader;
use tokio::time::Instant;

use super::downstream::{ClientEnd, client_end};
use super::exchange::ExchangeState;
use super::fault::Fault;
use super::hooks::{ExchangeHooks, Written};
use super::interim::read_response_head;
use super::outcome::{AttemptError, shutdown_error, timeout_error};
use super::provider_session::{ProviderSession, RequestPieces};
use super::provider_socket::conversation::SocketConversation;

/// Largest body that is written as one piece, in bytes, even if edits have split it.
const SINGLE_WRITE_LIMIT: u64 = 16 * 1024;
/// Write time-out of one slice of a request body.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to wait for a response head after writing the request has failed.
const EARLY_ERROR_TIMEOUT: Duration = Duration::from_secs(1);

/// Part of the request that was written before the response head arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenPart {
    Whole,
    /// The upstream answered before reading the whole body: do not return the connection to the pool.
    Partial,
}

impl<P: ExchangeHooks> ExchangeState<'_, P> {
    /// Sends the request and waits for the response head.
    ///
    /// # Errors
    /// Returns [`AttemptError`] if the connection fails, or if the exchange must end before a response head has
    /// arrived.
    pub(super) async fn send_request(
        &mut self,
        upstream: &mut ProviderSession,
    ) -> Result<WrittenPart, AttemptError> {
        let mut head = Box::new(RequestHeader::build_no_case("POST", b"/", None)?);
        self.proxy.upstream_request_filter(self.session, &mut head, self.ctx).await?;
        let pieces = self.body_pieces(&head).await?;
        let conversation = match upstream {
            ProviderSession::Socket(_) => SocketConversation::of(self.session.req_header()),
            _ => None,
        };
        let mut delivered = None;
        let outcome = {
            let mut sending = pin!(async {
                if let Err(error) = upstream.write_request(head, pieces, conversation).await {
                    // A provider may reject a request before it has read the whole body. The write then fails although
                    // the error response has arrived: read it, because it explains the failure.
                    let answered =
                        tokio::time::timeout(EARLY_ERROR_TIMEOUT, read_response_head(upstream)).await;
                    return if matches!(answered, Ok(Ok(()))) {
                        Ok(WrittenPart::Partial)
                    } else {
                        Err(error)
                    };
                }
                // The resend policy measures from here: a close just after the last byte means a stale connection.
                delivered = Some(Instant::now());
                read_response_head(upstream).await.map(|()| WrittenPart::Whole)
            });
            self.clock.set_deadline(self.clock.timeouts.first_byte);
            loop {
                tokio::select! {
                    biased;
                    // First: a head that has arrived is not lost to a time-out of the same moment.
                    sent = &mut sending => break sent.map_err(|error| AttemptError::Connection(error.into_up(), None)),
                    end = client_end(&mut self.session.downstream_session) => match end {
                        ClientEnd::Gone(gone) => break Err(AttemptError::Abort(gone)),
                        ClientEnd::HalfClosed => self.on_half_closed().await,
                    },
                    () = self.ended.as_mut() => break Err(AttemptError::Abort(shutdown_error())),
                    () = self.clock.elapsed() => {
                        if !self.clock.is_due() {
                            break Err(AttemptError::Abort(timeout_error()));
                        }
                        if let Err(error) = self.send_early_keepalive().await {
                            break Err(AttemptError::Abort(Fault::take(error).error));
                        }
                    }
                }
            }
        };
        if delivered.is_some() {
            self.proxy.on_written(self.ctx, Written::Request);
        }
        outcome.map_err(|error| match error {
            AttemptError::Connection(error, _) => AttemptError::Connection(error, delivered),
            abort @ AttemptError::Abort(_) => abort,
        })
    }

    /// Returns the body of the request, from `request_body_filter`. A small one is one piece, which leaves in one write
    /// with the head.
    async fn body_pieces(&mut self, head: &RequestHeader) -> pingora::Result<RequestPieces> {
        let length = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let small = length.and_then(|length| length.parse::<u64>().ok()).unwrap_or(0) <= SINGLE_WRITE_LIMIT;
        let mut pieces = RequestPieces::new();
        loop {
            let mut piece = None;
            self.proxy.request_body_filter(self.session, &mut piece, small, self.ctx).await?;
            match piece {
                Some(piece) => pieces.push(piece),
                None => return Ok(pieces),
            }
            if small {
                return Ok(pieces);
            }
        }
    }
}
