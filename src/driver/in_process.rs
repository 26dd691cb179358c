//! In-process session: a request that comes from the gateway itself on behalf of a client, through the same phases as one
//! that comes over a connection.
//!
//! Body and response are passed as they are held: no bytes of HTTP are written or parsed, and nothing is copied. The
//! response goes through a channel of a few parts, so that a reader that is slow stops the provider as a slow connection
//! does. Dropping the receiver is the disconnect of the client.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::{Error, ErrorType, Result};
use tokio::sync::mpsc;

use super::hooks::ExchangeHooks;
use super::request::{handle_request, session_of};

/// Parts of a response that may wait for their reader. Each holds the bytes of one read from the provider, some tens of
/// kilobytes.
const PARTS: usize = 4;

/// Part of a response.
#[derive(Debug)]
pub enum ResponsePart {
    /// The head.
    Head(Box<ResponseHeader>),
    /// A piece of the body.
    Body(Bytes),
    /// The regular end. A channel that closes without it: the response was broken off.
    End,
}

/// Request of a client whose connection is not an HTTP connection.
pub struct InProcessRequest {
    /// Request head.
    pub head: RequestHeader,
    /// Request body, in pieces.
    pub body: Vec<Bytes>,
    /// Connection of the client: its address, and whether it is encrypted.
    pub digest: Arc<Digest>,
}

/// Runs a request through all phases, to its log line. Returns the future that does so and the response.
pub fn run<P: ExchangeHooks>(
    proxy: P,
    request: InProcessRequest,
) -> (impl Future<Output = ()> + Send, mpsc::Receiver<ResponsePart>) {
    let (parts, response) = mpsc::channel(PARTS);
    let running = async move {
        let client = InProcessSession::new(request, parts);
        let mut session = session_of(&proxy, ServerSession::new_custom(Box::new(client)));
        let mut ctx = proxy.new_ctx();
        handle_request(&proxy, &mut session, &mut ctx).await;
    };
    (running, response)
}

/// The client's side of an in-process request.
struct InProcessSession {
    head: RequestHeader,
    body: std::vec::IntoIter<Bytes>,
    digest: Arc<Digest>,
    /// `None` after the end of the response.
    parts: Option<mpsc::Sender<ResponsePart>>,
    written: Option<Box<ResponseHeader>>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    drain_timeout: Option<Duration>,
    sent: usize,
    read: usize,
}

impl InProcessSession {
    fn new(request: InProcessRequest, parts: mpsc::Sender<ResponsePart>) -> Self {
        InProcessSession {
            head: request.head,
            body: request.body.into_iter(),
            digest: request.digest,
            parts: Some(parts),
            written: None,
            read_timeout: None,
            write_timeout: None,
            drain_timeout: None,
            sent: 0,
            read: 0,
        }
    }

    async fn send(&mut self, part: ResponsePart) -> Result<()> {
        let closed = || Error::explain(ErrorType::ConnectionClosed, "the client is gone").into_down();
        let parts = self.parts.as_ref().ok_or_else(closed)?;
        let sending = parts.send(part);
        let sent = match self.write_timeout {
            Some(within) => match tokio::time::timeout(within, sending).await {
                Ok(sent) => sent,
                Err(_) => return Err(Error::new_down(ErrorType::WriteTimedout)),
            },
            None => sending.await,
        };
        sent.map_err(|_| closed())
    }

    async fn end(&mut self) -> Result<()> {
        if self.parts.is_none() {
            return Ok(());
        }
        self.send(ResponsePart::End).await?;
        self.parts = None;
        Ok(())
    }
}

#[async_trait]
impl CustomSession for InProcessSession {
    fn req_header(&self) -> &RequestHeader {
        &self.head
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        &mut self.head
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        let piece = self.body.find(|piece| !piece.is_empty());
        self.read += piece.as_ref().map_or(0, Bytes::len);
        Ok(piece)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.body = Vec::new().into_iter();
        Ok(())
    }

    async fn write_response_header(&mut self, resp: Box<ResponseHeader>, end: bool) -> Result<()> {
        if !resp.status.is_informational() {
            self.send(ResponsePart::Head(resp.clone())).await?;
            self.written = Some(resp);
        }
        if end { self.end().await } else { Ok(()) }
    }

    async fn write_response_header_ref(&mut self, resp: &ResponseHeader, end: bool) -> Result<()> {
        self.write_response_header(Box::new(resp.clone()), end).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        if !data.is_empty() {
            let length = data.len();
            self.send(ResponsePart::Body(data)).await?;
            self.sent += length;
        }
        if end { self.end().await } else { Ok(()) }
    }

    async fn write_trailers(&mut self, _trailers: HeaderMap) -> Result<()> {
        Ok(())
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        for task in tasks {
            match task {
                HttpTask::Header(head, end) => self.write_response_header(head, end).await?,
                HttpTask::Body(data, end) | HttpTask::UpgradedBody(data, end) => {
                    self.write_body(data.unwrap_or_default(), end).await?;
                }
                HttpTask::Trailer(_) | HttpTask::Done => self.end().await?,
                HttpTask::Failed(error) => return Err(error),
            }
        }
        Ok(self.parts.is_none())
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.read_timeout
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.write_timeout
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.drain_timeout = timeout;
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.drain_timeout
    }

    fn request_summary(&self) -> String {
        format!("{} {}", self.head.method, self.head.uri.path())
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.written.as_deref()
    }

    async fn shutdown(&mut self, _code: u32, _ctx: &str) {
        self.parts = None;
    }

    fn is_body_done(&mut self) -> bool {
        self.body.as_slice().iter().all(Bytes::is_empty)
    }

    async fn finish(&mut self) -> Result<()> {
        self.end().await
    }

    fn is_body_empty(&mut self) -> bool {
        self.read == 0 && self.is_body_done()
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if !no_body_expected && !self.is_body_done() {
            return self.read_body_bytes().await;
        }
        match &self.parts {
            Some(parts) => parts.closed().await,
            // The response was sent to its end: a disconnect changes nothing any more.
            None => std::future::pending().await,
        }
        Err(Error::explain(ErrorType::ConnectionClosed, "the client is gone").into_down())
    }

    fn body_bytes_sent(&self) -> usize {
        self.sent
    }

    fn body_bytes_read(&self) -> usize {
        self.read
    }

    fn digest(&self) -> Option<&Digest> {
        Some(&self.digest)
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        Arc::get_mut(&mut self.digest)
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.digest.socket_digest.as_ref().and_then(|digest| digest.peer_addr())
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.digest.socket_digest.as_ref().and_then(|digest| digest.local_addr())
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        Bytes::new()
    }

    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        None
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(
        &mut self,
    ) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>> {
        None
    }

    fn restore_custom_message_reader(
        &mut self,
        _reader: Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>,
    ) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
