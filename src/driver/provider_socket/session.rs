//! One WebSocket to a provider: a response is read as an HTTP response with server-sent events.

mod steers;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderName, HeaderValue, header};
use pingora::http::ResponseHeader;
use pingora::protocols::Stream;
use pingora::{Error, ErrorType, Result, RetryType};
use smallvec::SmallVec;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tungstenite::error::ProtocolError;
use tungstenite::{Message, Utf8Bytes};

use super::conversation::SocketConversation;
use super::pool::SocketKey;
use super::steering::SteerInbox;
use codec::wire::responses::socket::provider::{
    ProviderEvent, Refusal, create_event, put_server_sent, read_event,
};
use codec::wire::responses::socket::{PendingSteers, Steer};

/// Bytes of events that are gathered into one piece, if they have arrived.
const GATHER: usize = 64 * 1024;
/// Bytes of a message for which the write time-out holds; a larger message gets it for each such part.
const WRITE_SLICE: usize = 128 * 1024;
/// Largest message that a socket may have carried to be kept idle, in bytes: it keeps a buffer of that size.
const MAX_KEPT: usize = 1 << 20;

/// Open socket, with the state of the response that it carries.
pub struct ProviderSocket(Box<State>);

struct State {
    ws: WebSocketStream<Stream>,
    /// Key of the pool.
    key: SocketKey,
    /// When it was opened.
    opened: Instant,
    write_timeout: Duration,
    /// Request that is sent if the provider does not know the response that the shortened one continues.
    whole: Option<SmallVec<[Bytes; 2]>>,
    /// Input of the client for the response in progress; `None` for a client over HTTP.
    inbox: Option<Arc<SteerInbox>>,
    /// Inputs that are in no response yet.
    steers: PendingSteers<Steer>,
    /// Whether the response has ended, but inputs for it are pending.
    has_ended: bool,
    /// Message with an input that waits for room in the socket.
    outgoing: Option<Message>,
    /// Whether a message was not flushed.
    is_unflushed: bool,
    head: Option<ResponseHeader>,
    /// Server-sent events that were not taken yet.
    out: BytesMut,
    phase: Phase,
    /// Id of the last response, if the provider holds its conversation.
    held: Option<Box<str>>,
    /// Largest message so far, in bytes.
    largest: usize,
}

/// State of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No request was sent, or its response has ended: the socket can take another one.
    Ready,
    /// A response is awaited or in progress.
    Busy,
    /// The socket has failed.
    Broken,
}

impl ProviderSocket {
    /// Takes over an open connection.
    pub(super) fn new(ws: WebSocketStream<Stream>, key: SocketKey) -> Self {
        ProviderSocket(Box::new(State {
            ws,
            key,
            opened: Instant::now(),
            write_timeout: Duration::MAX,
            whole: None,
            inbox: None,
            steers: PendingSteers::default(),
            has_ended: false,
            outgoing: None,
            is_unflushed: false,
            head: None,
            out: BytesMut::new(),
            phase: Phase::Ready,
            held: None,
            largest: 0,
        }))
    }

    /// Returns the key of its pool: requests with the same key may share a socket.
    pub(super) fn key(&self) -> SocketKey {
        self.0.key
    }

    /// Returns when it was opened.
    pub(super) fn opened(&self) -> Instant {
        self.0.opened
    }

    /// Returns whether another request may be sent: the last response has ended and was taken to its end.
    pub(super) fn is_reusable(&self) -> bool {
        self.0.phase == Phase::Ready && self.0.out.is_empty() && self.0.largest <= MAX_KEPT
    }

    /// Sends a request: the body of the POST as an event. A body that continues the response that the socket holds is
    /// sent without the items that the provider has. `conversation` is that of the request.
    ///
    /// # Errors
    /// Returns an error if the body is no JSON object, or the connection fails.
    pub async fn send_create(
        &mut self,
        body: &[Bytes],
        conversation: Option<SocketConversation>,
    ) -> Result<()> {
        let state = &mut *self.0;
        let (held, inbox) = conversation.map(|one| (one.held, one.inbox)).unzip();
        let held = held.flatten();
        state.inbox = inbox;
        state.steers = PendingSteers::default();
        state.has_ended = false;
        let no_object = || Error::explain(ErrorType::InternalError, "the body is no JSON object");
        let held = held.as_deref().filter(|held| state.held.as_deref() == Some(&*held.id));
        let event = match held.and_then(|held| held.shorten(body)) {
            None => create_event(body),
            Some(shortened) => {
                state.whole = Some(SmallVec::from(body));
                create_event(&shortened)
            }
        };
        state.head = None;
        state.held = None;
        state.send(event.ok_or_else(no_object)?).await
    }

    /// Waits for what an idle socket receives. Returns whether it is still open. Pings are answered by the next read.
    pub(super) async fn serve_idle(&mut self) -> bool {
        match self.0.ws.next().await {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => true,
            Some(Ok(Message::Text(text))) => {
                self.0.held = self.0.held.take().filter(|_| is_account_event(&text));
                is_account_event(&text)
            }
            _ => false,
        }
    }

    /// Closes an idle socket.
    pub(super) async fn close(mut self) {
        let _ = self.0.ws.close(None).await;
    }
}

fn is_account_event(text: &str) -> bool {
    matches!(read_event(text), Some((_, ProviderEvent::Account)))
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(inbox) = &self.inbox {
            inbox.close();
        }
    }
}

impl State {
    async fn send(&mut self, event: Bytes) -> Result<()> {
        let length = event.len();
        self.largest = self.largest.max(length);
        self.phase = Phase::Broken;
        let text = Utf8Bytes::try_from(event)
            .map_err(|error| Error::because(ErrorType::InternalError, "the body is not UTF-8", error))?;
        let slices = u32::try_from(length / WRITE_SLICE + 1).unwrap_or(u32::MAX);
        let within = self.write_timeout.saturating_mul(slices);
        match tokio::time::timeout(within, self.ws.send(Message::Text(text))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return Err(Error::because(ErrorType::WriteError, "while writing to a WebSocket", error));
            }
            Err(_) => return Err(Error::explain(ErrorType::WriteTimedout, "while writing to a WebSocket")),
        }
        self.phase = Phase::Busy;
        Ok(())
    }

    /// Returns the next text message. Cancel-safe.
    async fn event(&mut self) -> Result<Utf8Bytes> {
        loop {
            match std::future::poll_fn(|cx| self.poll_message(cx)).await {
                Some(message) => {
                    if let Some(text) = self.text(message)? {
                        return Ok(text);
                    }
                }
                None => return Err(self.closed()),
            }
        }
    }

    /// Returns the next message, and sends input for the response meanwhile.
    fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Message, tungstenite::Error>>> {
        if let Poll::Ready(error) = self.poll_steers(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        self.ws.poll_next_unpin(cx)
    }

    /// Returns the text of a message; `None` for a ping or a pong.
    fn text(
        &mut self,
        message: std::result::Result<Message, tungstenite::Error>,
    ) -> Result<Option<Utf8Bytes>> {
        match message {
            Ok(Message::Text(text)) => {
                self.largest = self.largest.max(text.len());
                Ok(Some(text))
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => Ok(None),
            Ok(Message::Close(_) | Message::Frame(_) | Message::Binary(_)) => Err(self.closed()),
            Err(
                tungstenite::Error::Io(_)
                | tungstenite::Error::ConnectionClosed
                | tungstenite::Error::AlreadyClosed
                | tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake),
            ) => Err(self.closed()),
            Err(error) => {
                self.phase = Phase::Broken;
                Err(Error::because(ErrorType::ReadError, "while reading from a WebSocket", error))
            }
        }
    }

    /// Error of a connection that the provider has closed. A request on a connection from the pool may be sent again,
    /// as over HTTP.
    fn closed(&mut self) -> Box<Error> {
        self.phase = Phase::Broken;
        let mut error = Error::explain(ErrorType::ConnectionClosed, "the provider closed the WebSocket");
        error.retry = RetryType::ReusedOnly;
        error
    }

    /// Adds an event to the stream.
    fn push(&mut self, text: &str) -> Result<()> {
        let Some((kind, event)) = read_event(text) else {
            self.phase = Phase::Broken;
            return Err(Error::explain(ErrorType::ReadError, "a message of a WebSocket is no event"));
        };
        match event {
            ProviderEvent::Account => return Ok(()),
            ProviderEvent::Part => {}
            ProviderEvent::Created(id) => {
                if std::mem::take(&mut self.has_ended) {
                    self.steers.succeed();
                }
                if let Some(inbox) = self.inbox.as_ref().filter(|_| !id.contains('\\')) {
                    inbox.begin(id);
                }
            }
            ProviderEvent::Steer(event) => {
                put_server_sent(kind, text, &mut self.out);
                self.steers.answer(event);
                if self.has_ended && !self.steers.is_awaited() {
                    self.set_ready();
                }
                return Ok(());
            }
            ProviderEvent::End { id, is_steered } => {
                self.held = (!id.is_empty() && !id.contains('\\')).then(|| id.into());
                self.end(is_steered);
            }
            // What the client said is answered before the end, after which it does not listen.
            ProviderEvent::Failed | ProviderEvent::Refused(_) => self.set_ready(),
        }
        put_server_sent(kind, text, &mut self.out);
        Ok(())
    }

    /// Handles the first event of a response. Returns false if it is none of its stream and another one is awaited.
    async fn begin(&mut self, text: &str) -> Result<bool> {
        match read_event(text) {
            Some((_, ProviderEvent::Account)) => return Ok(false),
            Some((_, ProviderEvent::Refused(refusal))) => match refusal.code {
                // The whole conversation is at hand.
                "previous_response_not_found" if self.whole.is_some() => {
                    if let Some(whole) = self.whole.take().and_then(|whole| create_event(&whole)) {
                        self.send(whole).await?;
                    }
                    return Ok(false);
                }
                "websocket_connection_limit_reached" => return Err(self.closed()),
                _ => {
                    self.phase = Phase::Ready;
                    self.out.extend_from_slice(&refusal.body());
                    self.head = Some(refusal_head(&refusal)?);
                }
            },
            _ => {
                let mut head = ResponseHeader::build(200, Some(1))?;
                head.insert_header(header::CONTENT_TYPE, "text/event-stream")?;
                self.head = Some(head);
                self.push(text)?;
            }
        }
        self.whole = None;
        Ok(true)
    }
}

/// Returns the head of an error response, with the headers that the event has.
fn refusal_head(refusal: &Refusal<'_>) -> Result<ResponseHeader> {
    let mut head = ResponseHeader::build(refusal.status, None)?;
    for (name, value) in refusal.headers() {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(&*name), HeaderValue::try_from(&*value)) else {
            continue;
        };
        // The body is made here.
        if !matches!(
            name.as_str(),
            "content-length" | "content-encoding" | "transfer-encoding" | "connection"
        ) {
            head.insert_header(name, value)?;
        }
    }
    head.insert_header(header::CONTENT_TYPE, "application/json")?;
    Ok(head)
}

impl ProviderSocket {
    /// Sets the time-out of a write of up to [`WRITE_SLICE`] bytes. The exchange timer bounds reads.
    pub(crate) fn set_write_timeout(&mut self, timeout: Duration) {
        self.0.write_timeout = timeout;
    }

    /// Waits for the first event of the response.
    ///
    /// # Errors
    /// Returns an error if the socket fails or is closed before.
    pub(crate) async fn read_response_header(&mut self) -> Result<()> {
        loop {
            let text = self.0.event().await?;
            if self.0.begin(&text).await? {
                return Ok(());
            }
        }
    }

    /// Returns the head of the response; `None` before its first event.
    pub(crate) fn response_header(&self) -> Option<&ResponseHeader> {
        self.0.head.as_ref()
    }

    /// Returns the next events. `None` at the end of the response. Cancel-safe.
    ///
    /// # Errors
    /// Returns an error if the socket fails or is closed before the end.
    pub(crate) async fn read_response_body(&mut self) -> Result<Option<Bytes>> {
        let state = &mut *self.0;
        if state.out.is_empty() {
            match state.phase {
                Phase::Ready => return Ok(None),
                Phase::Broken => return Err(state.closed()),
                Phase::Busy => {
                    let text = state.event().await?;
                    state.push(&text)?;
                }
            }
        }
        // Events that have arrived leave in one write.
        std::future::poll_fn(|cx| {
            while state.phase == Phase::Busy && state.out.len() < GATHER {
                let Poll::Ready(message) = state.poll_message(cx) else { break };
                let Some(message) = message else {
                    state.phase = Phase::Broken;
                    break;
                };
                // The next read returns the error.
                match state.text(message).and_then(|text| text.map_or(Ok(()), |text| state.push(&text))) {
                    Ok(()) => {}
                    Err(error) if state.out.is_empty() => return Poll::Ready(Err(error)),
                    Err(_) => break,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        Ok(Some(state.out.split().freeze()))
    }

    /// Whether the response has ended and was taken to its end.
    pub(crate) fn response_finished(&self) -> bool {
        self.0.phase == Phase::Ready && self.0.out.is_empty()
    }
}
