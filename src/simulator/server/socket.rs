//! WebSocket of a simulator: reads events, and plays the stream of each response as messages.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::Method;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tungstenite::Message;
use tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};

use super::super::Recorded;
use super::super::body::Step;
use super::super::http::{Content, Reply, Request, Start};
use super::super::openai::Site;
use super::super::openai::socket::{
    ClientEvent, ConnectionMemory, Create, end_steered, error_event, lifetime_error, mark, read, steer,
};
use super::{Call, InFlight, Shared};

/// Requests of a connection that may wait for the response in progress.
const MAX_QUEUED: usize = 16;

/// The connection is to be closed, or is gone.
struct Closed;

/// One WebSocket.
pub(super) struct Session<'s> {
    shared: &'s Arc<Shared>,
    site: &'s Site,
    socket: WebSocketStream<TokioIo<Upgraded>>,
    /// Request of the handshake.
    handshake: Request,
    memory: ConnectionMemory,
    /// Requests that wait for the response in progress, with the text that they were sent in.
    queue: VecDeque<(Box<Create>, Bytes)>,
    /// Input that the response in progress was steered with.
    steers: Vec<Value>,
}

impl<'s> Session<'s> {
    /// Takes over an upgraded connection.
    pub(super) async fn new(
        shared: &'s Arc<Shared>,
        site: &'s Site,
        upgraded: Upgraded,
        handshake: Request,
    ) -> Self {
        let io = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        let (memory, queue) = (ConnectionMemory::default(), VecDeque::new());
        Session { shared, site, socket, handshake, memory, queue, steers: Vec::new() }
    }

    /// Serves the connection to its end.
    pub(super) async fn run(mut self) {
        let mut lifetime = pin!(sleep_until(Instant::now() + self.shared.websocket_lifetime));
        loop {
            let served = match self.queue.pop_front() {
                Some((create, text)) => self.respond(*create, text).await,
                None => tokio::select! {
                    message = self.socket.next() => self.on_message(message, None).await,
                    () = lifetime.as_mut() => {
                        let _ = self.send(&lifetime_error()).await;
                        let _ = self.close(CloseCode::Away).await;
                        Err(Closed)
                    }
                },
            };
            if served.is_err() {
                return;
            }
        }
    }

    async fn send(&mut self, event: &Value) -> Result<(), Closed> {
        self.socket.send(Message::text(event.to_string())).await.map_err(|_| Closed)
    }

    async fn close(&mut self, code: CloseCode) -> Result<(), Closed> {
        let frame = CloseFrame { code, reason: "".into() };
        self.socket.close(Some(frame)).await.map_err(|_| Closed)?;
        // The client's close frame ends the connection.
        while let Some(Ok(_)) = self.socket.next().await {}
        Err(Closed)
    }

    /// Handles a message. `in_progress` is the id of the response that is being sent.
    async fn on_message(
        &mut self,
        message: Option<Result<Message, tungstenite::Error>>,
        in_progress: Option<&str>,
    ) -> Result<(), Closed> {
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_))) => return Ok(()),
            Some(Ok(Message::Close(_) | Message::Frame(_)) | Err(_)) | None => return Err(Closed),
        };
        match read(&text) {
            Ok(ClientEvent::Create(create)) if self.queue.len() < MAX_QUEUED => {
                self.queue.push_back((create, Bytes::from(text.to_string())));
                Ok(())
            }
            Ok(ClientEvent::Create(_)) => Err(Closed),
            Ok(ClientEvent::Steer(event)) => {
                let (answer, items) = steer(&event, in_progress);
                self.steers.extend(items);
                self.send(&answer).await
            }
            Ok(ClientEvent::Other) => Ok(()),
            Err(event) => self.send(&event).await,
        }
    }

    /// Answers a request, and then steers what the client said meanwhile.
    async fn respond(&mut self, mut create: Create, mut text: Bytes) -> Result<(), Closed> {
        loop {
            self.respond_once(&create, text).await?;
            if self.steers.is_empty() {
                return Ok(());
            }
            (create, text) = create.successor(std::mem::take(&mut self.steers));
        }
    }

    async fn respond_once(&mut self, create: &Create, text: Bytes) -> Result<(), Closed> {
        let mut in_flight = InFlight::new(Arc::clone(&self.shared.counts));
        let reply = self.reply(create, text);
        match reply.start {
            Start::Now => {}
            Start::After(delay) => self.wait(pin!(tokio::time::sleep(delay)), None).await?,
            Start::Never => self.wait(std::future::pending::<()>(), None).await?,
        }
        let lane = create.lane.clone();
        match reply.content {
            Content::Steps(steps) if reply.status == 200 => self.play(steps, lane, &mut in_flight).await,
            _ => {
                in_flight.complete();
                self.send(&error_event(&reply, lane.as_ref())).await
            }
        }
    }

    /// Counts and records the request, and returns the reply to it.
    fn reply(&self, create: &Create, text: Bytes) -> Reply {
        let request = Request {
            method: Method::POST,
            path: self.handshake.path.clone(),
            query: self.handshake.query.clone(),
            headers: self.handshake.headers.clone(),
            body: text.clone(),
            too_large: false,
        };
        let headers = request.headers.iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        let record = Recorded {
            method: self.handshake.method.to_string(),
            path: request.path.clone(),
            headers: headers.collect(),
            body: text,
            version: http::Version::HTTP_11,
        };
        *self.shared.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
        let call = Call {
            request: &request,
            credential: self.shared.credential.as_deref(),
            pacing: self.shared.pacing,
            serial: self.shared.counts.requests.fetch_add(1, Ordering::SeqCst) + 1,
            scenario: &self.shared.scenario,
        };
        self.site.answer_create(&call, create, &self.memory)
    }

    /// Waits, and handles messages meanwhile.
    async fn wait(&mut self, until: impl Future, in_progress: Option<&str>) -> Result<(), Closed> {
        let mut until = pin!(until);
        loop {
            tokio::select! {
                biased;
                message = self.socket.next() => {
                    self.on_message(message, in_progress).await?;
                    if !self.steers.is_empty() {
                        return Ok(());
                    }
                }
                _ = until.as_mut() => return Ok(()),
            }
        }
    }

    /// Sends the events of a stream as messages.
    async fn play(
        &mut self,
        steps: Vec<Step>,
        lane: Option<Value>,
        in_flight: &mut InFlight,
    ) -> Result<(), Closed> {
        let (mut id, mut has_ended) = (None, false);
        for step in steps {
            match step {
                Step::Send(frame) => {
                    // A frame that a fault has cut is no message.
                    let Some(text) = data(&frame) else { continue };
                    let mut event: Option<Value> = serde_json::from_str(text).ok();
                    let kind = event.as_ref().and_then(|event| event.get("type")).and_then(Value::as_str);
                    has_ended = matches!(
                        kind,
                        Some("response.completed" | "response.incomplete" | "response.failed")
                    );
                    // Steered: nothing but the end follows.
                    if !self.steers.is_empty() {
                        match event.as_mut().filter(|_| has_ended) {
                            Some(event) => end_steered(event),
                            None => continue,
                        }
                    }
                    if let Some(response) = event.as_ref().and_then(|event| event.get("response")) {
                        id = response.get("id").and_then(Value::as_str).map(str::to_owned);
                    }
                    if has_ended {
                        in_flight.complete();
                    }
                    match event.as_mut() {
                        Some(event) => {
                            mark(event, lane.as_ref());
                            self.send(event).await?;
                        }
                        None => self.socket.send(Message::text(text)).await.map_err(|_| Closed)?,
                    }
                }
                Step::Wait(_) if !self.steers.is_empty() => {}
                Step::Wait(time) => {
                    let until: Sleep = tokio::time::sleep(time);
                    self.wait(until, id.as_deref()).await?;
                }
                Step::Flush => {}
                Step::Stall => self.wait(std::future::pending::<()>(), id.as_deref()).await?,
                Step::Cut => {
                    in_flight.complete();
                    return Err(Closed);
                }
            }
        }
        in_flight.complete();
        if has_ended { Ok(()) } else { self.close(CloseCode::Normal).await }
    }
}

/// Returns the data of a server-sent event. `None` if the event is not complete.
fn data(frame: &[u8]) -> Option<&str> {
    let frame = std::str::from_utf8(frame).ok()?.strip_suffix("\n\n")?;
    frame.lines().find_map(|line| line.strip_prefix("data: "))
}
