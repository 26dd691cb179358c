//! HTTP/1 test client that writes raw bytes and gives access to every byte of the response.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use super::http1::{Head, Io, Piece, Wire};
use super::setup::KEY;
use super::soon;

/// Complete HTTP response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing demands.
    pub(crate) complete: bool,
    /// Trailer fields after the last chunk.
    pub(crate) trailers: Vec<String>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    /// Returns status line, headers and body as one text, to be searched.
    pub(crate) fn everything(&self) -> String {
        let fields = self.head.fields.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let head: String = fields.collect();
        format!("{}\n{head}\n{}", self.head.line, String::from_utf8_lossy(&self.body))
    }
}

/// Returns a POST request as bytes, with the tests' key and a content length.
pub(crate) fn post(path: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    post_with(path, &[("authorization", &format!("Bearer {KEY}"))], body)
}

/// Returns a POST request as bytes, with `headers` in addition to host, content type and content length.
pub(crate) fn post_with(path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut head =
        format!("POST {path} HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: application/json\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    [head.as_bytes(), body].concat()
}

/// Returns a request without a body, with `headers` in addition to the host.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: gateway.test\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    (head + "\r\n").into_bytes()
}

/// Client connection to the gateway.
pub(crate) struct Client {
    wire: Wire,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Client {
        let socket = soon(TcpStream::connect(addr)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Client::over(socket)
    }

    /// Connects with a small receive buffer, so that bytes which the test does not read stay in the gateway.
    pub(crate) async fn connect_narrow(addr: SocketAddr) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        Client::over(soon(socket.connect(addr)).await.unwrap())
    }

    /// Connects over TLS and returns the ALPN protocol too. Returns an error if the handshake fails.
    pub(crate) async fn connect_tls(
        addr: SocketAddr,
        config: Arc<rustls::ClientConfig>,
        name: &'static str,
    ) -> std::io::Result<(Client, Option<Vec<u8>>)> {
        let socket = soon(TcpStream::connect(addr)).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        let stream = soon(TlsConnector::from(config).connect(name, socket)).await?;
        let alpn = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        Ok((Client::over(stream), alpn))
    }

    /// Wraps a connection that is open already.
    pub(crate) fn over(io: impl Io + 'static) -> Client {
        Client { wire: Wire::new(Box::new(io)) }
    }

    /// Writes bytes.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.wire.send(bytes)).await.unwrap();
    }

    /// Writes bytes; the gateway may have closed the connection.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        soon(self.wire.send(bytes)).await
    }

    /// Shuts down the write side; the read side stays open.
    pub(crate) async fn finish_sending(&mut self) {
        self.wire.finish_sending().await;
    }

    /// Reads the next response head. Panics if the connection ends before it.
    pub(crate) async fn head(&mut self) -> Head {
        self.try_head().await.expect("the connection ended before the head of an answer")
    }

    /// Reads the next response head, or `None` if the connection ends before it.
    pub(crate) async fn try_head(&mut self) -> Option<Head> {
        soon(self.wire.head(false)).await
    }

    /// Reads the next piece of the body.
    pub(crate) async fn piece(&mut self) -> Piece {
        soon(self.wire.piece()).await
    }

    /// Reads the next complete response. Panics if the connection ends before its head.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.try_answer().await.expect("the connection ended before the head of an answer")
    }

    /// Reads the next complete response, or `None` if the connection ends before its head.
    pub(crate) async fn try_answer(&mut self) -> Option<Answer> {
        let head = self.try_head().await?;
        let body = soon(self.wire.body()).await;
        Some(Answer { head, body: body.bytes, complete: body.complete, trailers: body.trailers })
    }

    /// Reads the response to a HEAD request.
    pub(crate) async fn answer_to_head(&mut self) -> Answer {
        let head = self.head().await;
        self.wire.expect_no_body();
        Answer { head, body: Vec::new(), complete: true, trailers: Vec::new() }
    }

    /// Sends a request and reads its response.
    pub(crate) async fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request).await;
        self.answer().await
    }

    /// Waits until the gateway closes the connection and returns the bytes that it sent before.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        soon(self.wire.rest()).await
    }

    /// Returns received bytes that belong to no response that was read.
    pub(crate) fn unread(&self) -> &[u8] {
        self.wire.unread()
    }
}

/// Sends one request over its own connection and reads the response.
pub(crate) async fn ask(addr: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    Client::connect(addr).await.ask(request).await
}
