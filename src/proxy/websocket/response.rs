//! One response of a socket: its request runs through the phases of any request, and its stream becomes messages.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, header};
use pingora::http::ResponseHeader;
use tokio::sync::mpsc;

use super::accepted::Accepted;
use super::outbox::{FrameBatch, FrameWriter};
use super::turn_text::TurnText;
use crate::Gateway;
use crate::gateway::stored::new_id;
use codec::error::{ApiError, ErrorKind};
use codec::wire::error::ProviderError;
use codec::wire::responses::socket::{
    self, ContinuedFrom, ErrorEvent, Origin, PendingSteers, Watched, empty_response, error_event,
    lane_member, rate_limits_event, response_completed,
};
use driver::body_memory::MemoryPermit;
use driver::in_process::{self, InProcessRequest, ResponsePart};
use driver::names;
use driver::provider_socket::conversation::SocketConversation;
use driver::provider_socket::steering::{SteerInbox, SteerItems};
use framing::frame_buffer::FrameTooLarge;
use framing::sse::{SseEvent, SseSplitter};
use framing::{FrameBuffer, Splitter};
use json::from_utf8;
use sync::supervise::{catch_panic, message_of};

/// Largest error body that is read for its event, in bytes.
const MAX_ERROR: usize = 1 << 20;

/// Request of a lane whose turn it is.
#[derive(Debug)]
pub(super) struct LaneRequest {
    pub(super) lane: Option<Box<str>>,
    /// Whether output is generated.
    pub(super) generate: bool,
    pub(super) model: Box<str>,
    pub(super) previous: Option<Box<str>>,
    /// Where the conversation is held after the response.
    pub(super) origin: Origin,
    pub(super) before: ContinuedFrom,
    /// Input items, for the memory of the socket.
    pub(super) items: Bytes,
    pub(super) body: Vec<Bytes>,
    /// Socket to a provider that the conversation keeps.
    pub(super) conversation: SocketConversation,
    /// State of the turn that the request belongs to.
    pub(super) turn_state: Option<HeaderValue>,
    /// Memory of the received message; `None` for a small one.
    pub(super) permit: Option<MemoryPermit>,
}

/// Turn that the memory of the socket takes over.
#[derive(Debug)]
pub(super) struct FinishedTurn {
    pub(super) lane: Option<Box<str>>,
    pub(super) id: Box<str>,
    pub(super) origin: Origin,
    pub(super) before: ContinuedFrom,
    pub(super) texts: [Bytes; 2],
    /// State of the turn that the response belongs to, if its provider gave one.
    pub(super) turn_state: Option<HeaderValue>,
}

/// Message of a response to its socket.
#[derive(Debug)]
pub(super) enum FromResponse {
    /// Whole messages to write, and the turn that the client may continue once it has them.
    Messages(FrameBatch, Option<Box<FinishedTurn>>),
    /// The response has ended; `is_unauthenticated` if its key was refused.
    End { lane: Option<Box<str>>, is_unauthenticated: bool },
}

/// Starts a response on a task of its own. It stops when the socket has dropped its receiver.
pub(super) fn spawn(
    gateway: Gateway,
    accepted: Arc<Accepted>,
    request: LaneRequest,
    socket: mpsc::Sender<FromResponse>,
) {
    let lane = request.lane.clone();
    let running = run(gateway, accepted, request, socket.clone());
    tokio::spawn(supervise(Box::pin(running), lane, socket));
}

/// Awaits a response. If it panics, the client gets an error and its lane is freed: the next request of the lane, and
/// the close of the socket, would otherwise wait for it.
async fn supervise(
    running: Pin<Box<dyn Future<Output = ()> + Send>>,
    lane: Option<Box<str>>,
    socket: mpsc::Sender<FromResponse>,
) {
    let Err(panic) = catch_panic(running).await else { return };
    tracing::error!(panic = message_of(&*panic), "a response over a WebSocket panicked");
    let mut writer = FrameWriter::default();
    writer.event(&broken_off(lane.as_deref()));
    let _ = socket.send(FromResponse::Messages(writer.take(), None)).await;
    let _ = socket.send(FromResponse::End { lane, is_unauthenticated: false }).await;
}

/// Returns the event of a response that ended without an end.
fn broken_off(lane: Option<&str>) -> Bytes {
    let error = ApiError::new(ErrorKind::UpstreamBroken, "The response ended before it was complete.");
    error_event(error.status, ErrorEvent::Own(&error), std::iter::empty(), lane)
}

/// Runs a response to its end.
async fn run(
    gateway: Gateway,
    accepted: Arc<Accepted>,
    request: LaneRequest,
    socket: mpsc::Sender<FromResponse>,
) {
    let LaneRequest { lane, generate, model, previous, origin, before, items, body, .. } = request;
    let LaneRequest { conversation, turn_state, permit, .. } = request;
    let inbox = conversation.inbox.clone();
    let head = accepted.request_head(!generate, conversation, turn_state.clone());
    let http = InProcessRequest { head, body, digest: accepted.digest.clone() };
    let limits = (gateway.limits.frame, gateway.limits.body);
    let (running, parts) = in_process::run(gateway, http);
    let marks = lane.as_deref().map(lane_member).unwrap_or_default();
    let forwarder = Forwarder {
        socket: &socket,
        writer: FrameWriter::new(marks),
        memory: TurnText {
            before: Some(before),
            items,
            done: BytesMut::new(),
            limit: limits.1,
            origin,
            ended: None,
        },
        inbox,
        steers: PendingSteers::default(),
        lane: lane.clone(),
        is_codex: accepted.is_codex,
        turn_state,
        is_unauthenticated: false,
        has_ended: false,
    };
    let prepared = (!generate).then_some((model, previous));
    let events = &socket;
    let forwarding = async move {
        let forwarded = tokio::select! {
            forwarded = forwarder.forward(parts, prepared, limits.0) => forwarded,
            // The receiver of the parts is dropped, which ends the request as a disconnect does.
            () = events.closed() => Err(SocketGone),
        };
        drop(permit);
        forwarded
    };
    let ((), forwarded) = tokio::join!(running, forwarding);
    if let Ok(is_unauthenticated) = forwarded {
        let _ = socket.send(FromResponse::End { lane, is_unauthenticated }).await;
    }
}

/// The socket is gone: no message is of use any more.
struct SocketGone;

/// Makes messages of one response.
struct Forwarder<'s> {
    socket: &'s mpsc::Sender<FromResponse>,
    writer: FrameWriter,
    memory: TurnText,
    /// Inputs that the client has sent during the response.
    inbox: Arc<SteerInbox>,
    /// Those that are in no response yet.
    steers: PendingSteers<SteerItems>,
    lane: Option<Box<str>>,
    /// The client is Codex, which reads its limits from an event.
    is_codex: bool,
    turn_state: Option<HeaderValue>,
    is_unauthenticated: bool,
    /// The client has the event that ends the response.
    has_ended: bool,
}

impl Forwarder<'_> {
    /// Passes the response on. Returns whether its key was refused.
    async fn forward(
        mut self,
        mut parts: mpsc::Receiver<ResponsePart>,
        prepared: Option<(Box<str>, Option<Box<str>>)>,
        largest_frame: usize,
    ) -> Result<bool, SocketGone> {
        let head = loop {
            match parts.recv().await {
                Some(ResponsePart::Head(head)) => break head,
                Some(_) => {}
                None => {
                    self.fail().await?;
                    return Ok(false);
                }
            }
        };
        self.read_head(&head);
        let kind = head.headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
        if head.status == 200 && kind.starts_with(b"text/event-stream") {
            self.stream(parts, largest_frame).await?;
        } else {
            self.document(parts, &head, prepared).await?;
        }
        Ok(self.is_unauthenticated)
    }

    /// Takes over what the client reads from the head of a response over HTTP.
    fn read_head(&mut self, head: &ResponseHeader) {
        if head.status != 200 {
            // The event of an error has the headers.
            return;
        }
        self.turn_state =
            self.turn_state.take().or_else(|| head.headers.get(names::X_CODEX_TURN_STATE).cloned());
        let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(limits) = rate_limits_event(text).filter(|_| self.is_codex) {
            self.writer.event(&limits);
        }
    }

    async fn stream(
        &mut self,
        mut parts: mpsc::Receiver<ResponsePart>,
        largest_frame: usize,
    ) -> Result<(), SocketGone> {
        let mut frames = FrameBuffer::new(Splitter::Sse(SseSplitter::default()), largest_frame);
        let mut scratch = Vec::new();
        while let Some(part) = parts.recv().await {
            let ResponsePart::Body(piece) = part else { continue };
            let mut turn = None;
            let fed = frames.feed(&piece, |bytes, range| {
                let frame = bytes.get(range).unwrap_or_default();
                let event = SseEvent::parse_json(frame, &mut scratch);
                let Some(data) = event.data else { return Ok::<(), FrameTooLarge>(()) };
                // The data of nearly every event is a slice of what was received.
                let offset = (data.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
                let is_slice = bytes.as_ptr_range().contains(&data.as_ptr());
                let data = match is_slice && offset + data.len() <= bytes.len() {
                    true => bytes.slice(offset..offset + data.len()),
                    false => Bytes::copy_from_slice(data),
                };
                if let Some(finished) = self.event(event.name, data) {
                    turn = Some(finished);
                }
                Ok(())
            });
            self.send(turn).await?;
            if fed.is_err() {
                break;
            }
        }
        if self.has_ended { Ok(()) } else { self.fail().await }
    }

    /// Writes one event. Returns the turn that it completes, if it does.
    fn event(&mut self, name: Option<&[u8]>, data: Bytes) -> Option<Box<FinishedTurn>> {
        // Not an event: some servers end their streams with `[DONE]`.
        if data.first() != Some(&b'{') {
            return None;
        }
        let replaced;
        let (text, data) = match from_utf8(&data) {
            Ok(text) => (text, &data),
            // A text message must be UTF-8.
            Err(_) => {
                replaced = Bytes::from(String::from_utf8_lossy(&data).into_owned());
                (from_utf8(&replaced).unwrap_or_default(), &replaced)
            }
        };
        // The items of most streams have passed before its end, which repeats them.
        let watched = socket::watch(name, text, self.memory.done.is_empty()).ok();
        if watched == Some(Watched::ErrorWithoutStatus) {
            self.streamed_error(data);
            return None;
        }
        self.writer.event(data);
        match watched? {
            Watched::Other | Watched::ErrorWithoutStatus => None,
            Watched::Item(item) => {
                self.memory.push(item.text());
                None
            }
            Watched::Failed => {
                self.has_ended = true;
                None
            }
            Watched::End { id, output, is_steered } => {
                self.take_given();
                self.memory.end(id, output);
                self.has_ended = !self.steers.end(is_steered);
                if self.has_ended { self.finish() } else { None }
            }
            Watched::Created => {
                let inputs = self.steers.succeed();
                self.memory.succeed(inputs.iter().map(|input| &input.items));
                None
            }
            Watched::Steer(event) => {
                self.take_given();
                let inputs = self.steers.answer(event);
                self.memory.append(inputs.iter().map(|input| &input.items));
                self.has_ended = self.memory.ended.is_some() && !self.steers.is_awaited();
                if self.has_ended { self.finish() } else { None }
            }
        }
    }

    /// Takes over the inputs that were put in since.
    fn take_given(&mut self) {
        while let Some(input) = self.inbox.take_given() {
            self.steers.push(input);
        }
    }

    /// Returns the turn of a response that has ended; `None` if it cannot be continued.
    fn finish(&mut self) -> Option<Box<FinishedTurn>> {
        let turn = self.memory.finish()?;
        Some(Box::new(FinishedTurn { lane: self.lane.clone(), turn_state: self.turn_state.take(), ..turn }))
    }

    /// Writes the error that a stream ends with as an error of the connection, which has a status.
    fn streamed_error(&mut self, data: &[u8]) {
        self.has_ended = true;
        let error = ProviderError::decode(data);
        let none = std::iter::empty();
        // The writer marks the event with the lane.
        let event = error_event(error.status(), ErrorEvent::Streamed(&error), none, None);
        self.writer.event(&event);
    }

    /// Reads a response that is no stream: an error, or the whole response in one document.
    async fn document(
        &mut self,
        mut parts: mpsc::Receiver<ResponsePart>,
        head: &ResponseHeader,
        prepared: Option<(Box<str>, Option<Box<str>>)>,
    ) -> Result<(), SocketGone> {
        let status = head.status.as_u16();
        let limit = if status == 200 { self.memory.limit } else { MAX_ERROR };
        let mut body = BytesMut::new();
        let mut is_complete = false;
        while let Some(part) = parts.recv().await {
            match part {
                ResponsePart::Body(piece) if body.len() + piece.len() <= limit => {
                    body.extend_from_slice(&piece)
                }
                ResponsePart::Body(_) => break,
                ResponsePart::End => is_complete = true,
                ResponsePart::Head(_) => {}
            }
        }
        self.has_ended = true;
        if status != 200 {
            self.is_unauthenticated = status == 401;
            let event =
                error_event(status, ErrorEvent::Body(&body), client_headers(head), self.lane.as_deref());
            self.writer_without_lane().event(&event);
            return self.send(None).await;
        }
        if !is_complete {
            return self.fail().await;
        }
        let Some((model, previous)) = prepared else {
            let turn = self.event(Some(b"response.completed"), response_completed(&body));
            return self.send(turn).await;
        };
        let id = new_id();
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for event in empty_response(&id, &model, previous.as_deref(), created) {
            self.writer.event(&event);
        }
        self.memory.end(&id, "");
        let turn = self.memory.finish();
        let lane = self.lane.clone();
        self.send(turn.map(|turn| Box::new(FinishedTurn { lane, ..turn }))).await
    }

    /// Sends the error of a response that ended without an end.
    async fn fail(&mut self) -> Result<(), SocketGone> {
        self.has_ended = true;
        let event = broken_off(self.lane.as_deref());
        self.writer_without_lane().event(&event);
        self.send(None).await
    }

    /// Returns the writer for an event that names its lane itself.
    fn writer_without_lane(&mut self) -> &mut FrameWriter {
        self.writer = FrameWriter::new(Bytes::new());
        &mut self.writer
    }

    async fn send(&mut self, turn: Option<Box<FinishedTurn>>) -> Result<(), SocketGone> {
        let frames = self.writer.take();
        if frames.is_empty() && turn.is_none() {
            return Ok(());
        }
        self.socket.send(FromResponse::Messages(frames, turn)).await.map_err(|_| SocketGone)
    }
}

/// Returns the headers of an error response that concern the client: not those of its body and its connection.
fn client_headers(head: &ResponseHeader) -> impl Iterator<Item = (&str, &str)> {
    head.headers.iter().filter_map(|(name, value)| {
        let name = name.as_str();
        let ours = matches!(
            name,
            "content-type"
                | "content-length"
                | "transfer-encoding"
                | "connection"
                | "date"
                | "allow"
                | "upgrade"
        );
        value.to_str().ok().filter(|_| !ours).map(|value| (name, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn response_that_panics_frees_its_lane_with_an_error() {
        let (socket, mut events) = mpsc::channel(1);
        // The error event and the end follow what the response has sent.
        let running = Box::pin(async { std::panic::resume_unwind(Box::new("a defect")) });
        tokio::spawn(supervise(running, Some("a".into()), socket));
        let Some(FromResponse::Messages(frames, None)) = events.recv().await else { panic!() };
        let text = String::from_utf8_lossy(&frames.concat()).into_owned();
        assert!(
            text.contains(r#""type":"error","status":500"#) && text.contains(r#""stream_id":"a""#),
            "{text}"
        );
        let end = events.recv().await;
        assert!(
            matches!(&end, Some(FromResponse::End { lane: Some(lane), is_unauthenticated: false }) if &**lane == "a")
        );
        assert!(events.recv().await.is_none());
    }

    #[tokio::test]
    async fn response_that_ends_is_not_reported_again() {
        let (socket, mut events) = mpsc::channel(1);
        supervise(Box::pin(async {}), None, socket).await;
        assert!(events.recv().await.is_none());
    }
}
