//! The loop of one socket: reads frames, starts responses, writes their messages, and closes.

mod steer;

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use prometheus::IntGauge;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::accepted::Accepted;
use super::deadlines::{Deadlines, Due};
use super::kept_sockets::KeptSockets;
use super::lanes::{Lanes, Queued};
use super::message::IncomingMessage;
use super::outbox::Outbox;
use super::response::{self, FinishedTurn, FromResponse, LaneRequest};
use super::turn_states::TurnStates;
use crate::Gateway;
use codec::error::{ApiError, ErrorKind, RetryAfter};
use codec::wire::responses::socket::{
    ClientEvent, ConversationMemory, Create, ErrorEvent, Origin, error_event, steer_failed,
};
use driver::body_memory::MemoryPermit;
use driver::header_timeout::HeaderTimeoutStream;
use driver::offload::run_blocking_if_large;
use driver::provider_socket::conversation::SocketConversation;
use driver::provider_socket::steering::SteerInbox;
use framing::websocket::{CloseCode, Control, FrameFault, FrameReader, Incoming, MessageKind, close_payload};

/// Read buffer of a socket between messages, in bytes: enough for most events of a client, and little for an idle one.
const READ: usize = 2 * 1024;
/// Read buffer inside a large frame, in bytes.
const READ_LARGE: usize = 64 * 1024;
/// Batches of messages that may wait until the socket has written the one before.
const BATCHES: usize = 2;
/// Time for the last bytes of a connection to leave.
const SHUTDOWN: std::time::Duration = std::time::Duration::from_secs(1);

/// Serves a socket until it ends, and counts it. The handshake is accepted; its response is written here.
pub(super) async fn serve(
    gateway: Gateway,
    accepted: Arc<Accepted>,
    stream: Box<HeaderTimeoutStream>,
    rest: BytesMut,
) {
    // The process must not end before the close frame is written.
    let _drain = gateway.shutdown.guard();
    let _open = OpenSocket::new(gateway.metrics.websockets.clone());
    let permit = gateway.websockets.as_ref().and_then(|permits| permits.clone().try_acquire_owned().ok());
    let mut connection = Connection::new(gateway.clone(), accepted, rest);
    if permit.is_none() {
        connection.close(CloseCode::Again, "Too many WebSockets are open; try again later.", "overload");
    }
    let reason = connection.run(stream).await;
    gateway.metrics.websocket_closes.with_label_values(&[reason]).inc();
}

/// Count of an open socket; released on drop.
struct OpenSocket(IntGauge);

impl OpenSocket {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        OpenSocket(gauge)
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// State of one socket.
struct Connection {
    gateway: Gateway,
    accepted: Arc<Accepted>,
    reader: FrameReader,
    /// Received bytes that are not parsed yet.
    buf: BytesMut,
    message: IncomingMessage,
    outbox: Outbox,
    lanes: Lanes,
    memory: ConversationMemory,
    memory_permit: Option<MemoryPermit>,
    /// Sockets to providers that the conversations keep.
    sockets: KeptSockets,
    turn_states: TurnStates,
    /// Input for the responses in progress.
    inboxes: Vec<Weak<SteerInbox>>,
    /// Messages of the responses in progress. `None` while there are none: a channel takes memory.
    events: Option<(mpsc::Sender<FromResponse>, mpsc::Receiver<FromResponse>)>,
    deadlines: Deadlines,
    is_draining: bool,
    is_revoked: bool,
    /// Reason of the close, as a metric label, once the close frame is queued.
    closing: Option<&'static str>,
    /// The client's close frame has arrived.
    peer_closed: bool,
    /// The connection ends without a close.
    broken: Option<&'static str>,
}

impl Connection {
    fn new(gateway: Gateway, accepted: Arc<Accepted>, rest: BytesMut) -> Self {
        let limits = &gateway.limits;
        let mut outbox = Outbox::default();
        outbox.push(Bytes::copy_from_slice(&accepted.response));
        Connection {
            reader: FrameReader::new(limits.body),
            buf: rest,
            message: IncomingMessage::default(),
            outbox,
            lanes: Lanes::default(),
            // A longer conversation could not be sent to a provider: it would exceed the limit of a body.
            memory: ConversationMemory::new(limits.body),
            memory_permit: None,
            sockets: KeptSockets::default(),
            turn_states: TurnStates::default(),
            inboxes: Vec::new(),
            events: None,
            deadlines: Deadlines::new(limits),
            is_draining: false,
            is_revoked: false,
            closing: None,
            peer_closed: false,
            broken: None,
            gateway,
            accepted,
        }
    }

    /// Runs the socket. Returns the reason of its end, as a metric label.
    async fn run(mut self, stream: Box<HeaderTimeoutStream>) -> &'static str {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let gateway = self.gateway.clone();
        let mut draining = pin!(gateway.shutdown.draining());
        let mut reloads = gateway.reloads.subscribe();
        let mut timer = pin!(sleep_until(self.deadlines.next()));
        let reason = loop {
            self.parse();
            if let Some(reason) = self.end() {
                break reason;
            }
            self.deadlines.set_waiting(self.outbox.len());
            // Moved only if it would fire too late: it is not reset for every message.
            if self.deadlines.next() < timer.deadline() {
                timer.as_mut().reset(self.deadlines.next());
            }
            let has_output = !self.outbox.is_empty();
            let reads = !self.outbox.is_full() && !self.peer_closed;
            if reads {
                self.reserve();
            }
            let events = &mut self.events;
            tokio::select! {
                written = self.outbox.write(&mut writer), if has_output => {
                    if written.is_err() {
                        self.broken = Some("gone");
                    }
                }
                // One batch at a time: a client that reads slowly stops its responses, and so their providers.
                Some(event) = receive(events), if !has_output && events.is_some() => self.on_event(event),
                read = reader.read_buf(&mut self.buf), if reads => match read {
                    Ok(1..) => self.deadlines.on_read(),
                    Ok(0) | Err(_) => self.broken = Some("gone"),
                },
                () = timer.as_mut() => {
                    self.on_timer();
                    timer.as_mut().reset(self.deadlines.next());
                }
                () = draining.as_mut(), if !self.is_draining => {
                    self.is_draining = true;
                    self.lanes.drop_queued();
                    self.close_if_due();
                }
                Ok(()) = reloads.changed() => self.check_key(),
            }
        };
        // Ends the responses in progress, if there are any.
        self.events = None;
        let _ = timeout(SHUTDOWN, writer.shutdown()).await;
        reason
    }

    /// Returns the reason of the end, if the connection is to be closed now.
    fn end(&self) -> Option<&'static str> {
        let closed = self.closing.filter(|_| self.outbox.is_empty() && self.peer_closed);
        // The reason of the close stands, also if the client then leaves without a close frame.
        self.broken.map(|broken| self.closing.unwrap_or(broken)).or(closed)
    }

    /// Prepares the buffer for the next read.
    fn reserve(&mut self) {
        let wanted = if self.reader.left() > READ { self.reader.left().min(READ_LARGE) } else { READ };
        if self.buf.is_empty() && (self.buf.capacity() < wanted || self.buf.capacity() > 2 * wanted) {
            // A buffer of its own: the old one may be shared with parts of a message that are held for long.
            self.buf = BytesMut::with_capacity(wanted);
        } else if self.buf.capacity() - self.buf.len() < 64 {
            self.buf.reserve(wanted);
        }
    }

    /// Parses what was received, as far as the queue of what is to be written permits.
    fn parse(&mut self) {
        while !self.buf.is_empty() && !self.outbox.is_full() && !self.peer_closed {
            match self.reader.next(&mut self.buf) {
                Ok(None) => break,
                Ok(Some(incoming)) => self.on_incoming(incoming),
                Err(FrameFault::TooBig(limit)) => {
                    let reason = format!("A message may have {limit} bytes.");
                    self.close(CloseCode::Size, &reason, "too_large");
                    return self.ignore_rest();
                }
                Err(FrameFault::Utf8) => {
                    self.close(CloseCode::Invalid, "A text message must be UTF-8.", "protocol");
                    return self.ignore_rest();
                }
                Err(fault) => {
                    self.close(CloseCode::Protocol, &format!("Not a valid frame: {fault}."), "protocol");
                    return self.ignore_rest();
                }
            }
        }
        let is_partial = self.reader.is_partial();
        self.deadlines.set_message(is_partial.then_some(self.message.text.len()));
    }

    /// Nothing after a violation can be understood: the client's close frame is not waited for.
    fn ignore_rest(&mut self) {
        self.buf = BytesMut::new();
        self.message = IncomingMessage::default();
        self.deadlines.set_message(None);
        self.peer_closed = true;
    }

    fn on_incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Part { .. } if self.closing.is_some() => {}
            Incoming::Part { kind: MessageKind::Binary, end, .. } => {
                if end {
                    let message = "Send events as text messages; this was a binary one.";
                    self.push_error(&ApiError::new(ErrorKind::InvalidJson, message), None);
                }
            }
            Incoming::Part { kind: MessageKind::Text, bytes, end } => {
                self.message.text.push(bytes);
                if !self.message.count(&self.gateway.memory, end) {
                    self.message = IncomingMessage::default();
                    let reason = "The gateway has no memory for this message; try again later.";
                    return self.close(CloseCode::Again, reason, "overload");
                }
                if end {
                    let message = std::mem::take(&mut self.message);
                    self.on_message(message);
                }
            }
            Incoming::Ping(payload) if self.closing.is_none() => {
                self.outbox.push_control(Control::Pong, &payload);
            }
            Incoming::Ping(_) | Incoming::Pong => {}
            Incoming::Close(code) => {
                self.peer_closed = true;
                if self.closing.is_none() {
                    let code = code.map(u16::to_be_bytes).unwrap_or_default();
                    let payload: &[u8] = if code == [0; 2] { &[] } else { &code };
                    self.outbox.push_control(Control::Close, payload);
                    self.begin_close("client");
                }
            }
        }
    }

    fn on_message(&mut self, message: IncomingMessage) {
        let IncomingMessage { text, mut permit } = message;
        match run_blocking_if_large(text.len(), || ClientEvent::read(text)) {
            Ok(ClientEvent::Create(create)) => self.on_create(Queued { create, permit }),
            Ok(ClientEvent::Steer(mut steer)) => {
                if !self.gateway.memory.set(&mut permit, steer.release_buffer()) {
                    let message = ApiError::overloaded().message;
                    return self.push_event(&steer_failed(&steer, "server_overloaded", &message));
                }
                if let Err((code, message)) = self.on_steer(&steer, permit) {
                    self.push_event(&steer_failed(&steer, code, &message));
                }
            }
            Ok(ClientEvent::Other) => {}
            Err((error, lane)) => self.push_error(&error, lane.as_deref()),
        }
    }

    fn on_create(&mut self, mut queued: Queued) {
        if self.is_draining || self.is_revoked {
            // The socket closes when its responses have ended; the client sends the request again on another one.
            return;
        }
        let lane = queued.create.lane.clone();
        if self.deadlines.is_expired() {
            return self.push_error(&lifetime_error(), lane.as_deref());
        }
        if self.lanes.is_busy(lane.as_deref()) {
            let bytes = queued.create.release_buffer();
            if !self.gateway.memory.set(&mut queued.permit, bytes) {
                return self.push_error(&ApiError::overloaded(), lane.as_deref());
            }
        }
        match self.lanes.add(queued) {
            Ok(Some(queued)) => self.start(queued),
            Ok(None) => {}
            Err(error) => self.push_error(&error, lane.as_deref()),
        }
    }

    /// Starts a request whose turn it is. If it is not valid, the next one of its lane is started.
    fn start(&mut self, queued: Queued) {
        let mut next = Some(queued);
        while let Some(queued) = next {
            let lane = queued.create.lane.clone();
            match self.lane_request(queued) {
                Ok(request) => {
                    let (events, _) = self.events.get_or_insert_with(|| mpsc::channel(BATCHES));
                    let (gateway, accepted) = (self.gateway.clone(), self.accepted.clone());
                    response::spawn(gateway, accepted, request, events.clone());
                    return;
                }
                Err(error) => {
                    self.push_error(&error, lane.as_deref());
                    next = self.lanes.next(lane.as_deref());
                }
            }
        }
    }

    fn lane_request(&mut self, queued: Queued) -> Result<LaneRequest, ApiError> {
        let Queued { create, permit } = queued;
        let mut create: Create = *create;
        // Looked up now and not when the request arrived: the response that it continues may have been in progress.
        let turn = create.previous.as_deref().and_then(|id| self.memory.find(id));
        let items = create.items()?;
        let before = create.before(turn.clone());
        let socket = self.sockets.of_lane(create.lane.as_deref());
        // Most providers have no socket.
        let held = turn.as_ref().filter(|_| socket.is_some()).and_then(|turn| create.held(turn));
        let turn_state = self.turn_states.of(create.previous.as_deref()).filter(|_| !create.begins_turn());
        let inbox = Arc::new(SteerInbox::default());
        self.inboxes.retain(|inbox| inbox.strong_count() > 0);
        self.inboxes.push(Arc::downgrade(&inbox));
        let conversation = SocketConversation { socket, held: held.map(Arc::new), inbox };
        Ok(LaneRequest {
            lane: create.lane.clone(),
            generate: create.generate,
            model: create.model.clone(),
            previous: create.previous.clone(),
            origin: if create.is_elsewhere { Origin::Provider } else { Origin::Memory },
            before,
            items,
            body: create.into_body(turn.as_ref())?,
            conversation,
            turn_state,
            permit,
        })
    }

    fn on_event(&mut self, event: FromResponse) {
        match event {
            FromResponse::Messages(frames, turn) => {
                if let Some(turn) = turn {
                    self.remember(*turn);
                }
                frames.into_iter().for_each(|frame| self.outbox.push(frame));
            }
            FromResponse::End { lane, is_unauthenticated } => {
                self.is_revoked |= is_unauthenticated;
                let next = self.lanes.next(lane.as_deref());
                if let Some(next) = next.filter(|_| !self.is_revoked) {
                    self.start(next);
                }
                if self.lanes.is_idle() {
                    self.inboxes = Vec::new();
                    self.events = None;
                }
                self.close_if_due();
            }
        }
    }

    /// Adds a turn to the memory of the socket, within the budget of the process.
    fn remember(&mut self, turn: FinishedTurn) {
        let FinishedTurn { lane, id, origin, before, texts, turn_state } = turn;
        if let Some(state) = turn_state {
            self.turn_states.insert(&id, state);
        }
        self.memory.insert(lane.as_deref(), id, origin, before, texts);
        let (budget, states) = (self.gateway.memory.clone(), self.turn_states.held());
        if !budget.set(&mut self.memory_permit, self.memory.held() + states) {
            self.memory.shrink(self.memory.held() / 2);
            if !budget.set(&mut self.memory_permit, self.memory.held() + states) {
                // Its clients send their whole conversations then.
                self.memory.clear();
                budget.set(&mut self.memory_permit, self.memory.held() + states);
            }
        }
    }

    fn on_timer(&mut self) {
        while let Some(due) = self.deadlines.take(Instant::now(), self.outbox.len()) {
            match due {
                Due::Ping if self.closing.is_none() => self.outbox.push_control(Control::Ping, b""),
                Due::Ping => {}
                Due::Silent => return self.broken = Some("silent"),
                Due::SlowReader => return self.broken = Some("slow"),
                Due::Close => return self.broken = Some("gone"),
                Due::SlowMessage => {
                    self.close(CloseCode::Error, "The message did not arrive in time.", "slow");
                    return self.ignore_rest();
                }
                Due::Lifetime => self.close_if_due(),
            }
        }
    }

    /// Checks the key after a reload of the configuration. A response in progress is completed, as over HTTP.
    fn check_key(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if !self.gateway.is_key_usable(&self.accepted, i64::try_from(now).unwrap_or(i64::MAX)) {
            self.is_revoked = true;
            self.lanes.drop_queued();
            self.close_if_due();
        }
    }

    /// Closes the socket if there is a reason to and no response is in progress.
    fn close_if_due(&mut self) {
        if !self.lanes.is_idle() {
            return;
        }
        if self.is_revoked {
            self.close(CloseCode::Policy, "The API key of this connection is not valid any more.", "key");
        } else if self.is_draining {
            self.close(CloseCode::Restart, "The gateway restarts; connect again.", "drain");
        } else if self.deadlines.is_expired() && self.closing.is_none() {
            self.push_error(&lifetime_error(), None);
            self.close(
                CloseCode::Away,
                "The connection has reached its lifetime; connect again.",
                "lifetime",
            );
        }
    }

    /// Queues a close frame. Responses in progress end.
    fn close(&mut self, code: CloseCode, reason: &str, label: &'static str) {
        if self.closing.is_none() {
            self.outbox.push_control(Control::Close, &close_payload(code, reason));
            self.begin_close(label);
        }
    }

    fn begin_close(&mut self, label: &'static str) {
        self.closing = Some(label);
        self.events = None;
        self.lanes = Lanes::default();
        self.deadlines.begin_close();
    }

    fn push_event(&mut self, event: &[u8]) {
        self.outbox.push_text(event);
    }

    fn push_error(&mut self, error: &ApiError, lane: Option<&str>) {
        let wait = error.retry_after.as_ref().map(RetryAfter::header_value);
        let headers = wait.iter().map(|wait| ("retry-after", &**wait));
        self.push_event(&error_event(error.status, ErrorEvent::Own(error), headers, lane));
    }
}

/// Receives from the responses in progress.
async fn receive(
    events: &mut Option<(mpsc::Sender<FromResponse>, mpsc::Receiver<FromResponse>)>,
) -> Option<FromResponse> {
    events.as_mut()?.1.recv().await
}

fn lifetime_error() -> ApiError {
    let message = "This connection has reached its lifetime. Create a new one to continue.";
    let mut error = ApiError::new(ErrorKind::InvalidField, message);
    error.code = Some("websocket_connection_limit_reached".into());
    error
}
