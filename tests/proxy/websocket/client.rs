//! Client of the responses API over WebSocket: one that shares no code with the gateway, and one that writes raw frames.

use std::net::SocketAddr;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::support::gateway::Gateway;
use crate::support::setup::KEY;
use crate::support::soon;

/// Open socket.
pub(crate) struct Socket {
    pub(crate) ws: WebSocketStream<TcpStream>,
}

impl Socket {
    pub(crate) async fn open(gateway: &Gateway) -> Socket {
        Socket::open_with(gateway.addr, "/v1/responses", &[("authorization", &format!("Bearer {KEY}"))]).await
    }

    pub(crate) async fn open_with(addr: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Socket {
        let socket = soon(TcpStream::connect(addr)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let mut request = format!("ws://{addr}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let (ws, answer) = soon(tokio_tungstenite::client_async(request, socket)).await.unwrap();
        assert_eq!(answer.status(), 101);
        Socket { ws }
    }

    /// Sends an event.
    pub(crate) async fn send(&mut self, event: &Value) {
        soon(self.ws.send(Message::text(event.to_string()))).await.unwrap();
    }

    /// Returns the next event.
    #[track_caller]
    pub(crate) fn event(&mut self) -> impl Future<Output = Value> {
        soon(async {
            loop {
                match self.ws.next().await {
                    Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    other => panic!("no event: {other:?}"),
                }
            }
        })
    }

    /// Returns the events up to the end of one response.
    pub(crate) async fn events(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.event().await;
            let ends = is_end(&event);
            events.push(event);
            if ends {
                return events;
            }
        }
    }

    /// Requests a response and returns its last event.
    pub(crate) async fn ask(&mut self, mut request: Value) -> Value {
        request["type"] = json!("response.create");
        self.send(&request).await;
        self.events().await.pop().unwrap()
    }

    /// Waits for the close frame, and returns its code and reason; `None` if the connection ends without one.
    pub(crate) async fn closed(&mut self) -> Option<(u16, String)> {
        soon(async {
            loop {
                match self.ws.next().await {
                    Some(Ok(Message::Close(frame))) => {
                        return frame.map(|frame| (u16::from(frame.code), frame.reason.to_string()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(Error::ConnectionClosed)) | None => return None,
                    Some(Err(_)) => return None,
                }
            }
        })
        .await
    }
}

/// Whether an event ends a response.
pub(crate) fn is_end(event: &Value) -> bool {
    let kind = event["type"].as_str().unwrap();
    matches!(kind, "response.completed" | "response.incomplete" | "response.failed" | "error")
}

/// Opens a socket with a handshake as bytes, and returns its connection.
pub(crate) async fn raw(gateway: &Gateway) -> TcpStream {
    let mut socket = soon(TcpStream::connect(gateway.addr)).await.unwrap();
    socket.set_nodelay(true).unwrap();
    socket.write_all(&handshake("/v1/responses", &[])).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(socket.read_u8()).await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    socket
}

/// Returns a handshake with the tests' key; `changes` replace or remove (empty value) its headers.
pub(crate) fn handshake(path: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let mut headers = vec![
        ("host", "gateway.test".to_owned()),
        ("authorization", format!("Bearer {KEY}")),
        ("connection", "keep-alive, Upgrade".to_owned()),
        ("upgrade", "websocket".to_owned()),
        ("sec-websocket-version", "13".to_owned()),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==".to_owned()),
    ];
    for (name, value) in changes {
        headers.retain(|(known, _)| known != name);
        if !value.is_empty() {
            headers.push((name, (*value).to_owned()));
        }
    }
    let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\n{fields}\r\n").into_bytes()
}

/// Returns a masked frame; `first` is its first byte.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const KEY: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
    let mut out = vec![first];
    match payload.len() {
        length @ 0..=125 => out.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend(KEY);
    out.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ KEY[at % 4]));
    out
}

/// Reads one frame of the gateway: its first byte and its payload. `None` at the end of the connection.
pub(crate) async fn read_frame(socket: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    soon(async {
        let first = socket.read_u8().await.ok()?;
        let length = match socket.read_u8().await.ok()? {
            126 => usize::from(socket.read_u16().await.ok()?),
            127 => usize::try_from(socket.read_u64().await.ok()?).unwrap(),
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).await.ok()?;
        Some((first, payload))
    })
    .await
}

/// Reads text frames up to the end of one response, and returns the last event.
pub(crate) async fn read_response(socket: &mut TcpStream) -> Value {
    loop {
        let (first, payload) = read_frame(socket).await.expect("the connection ended");
        if first != 0x81 {
            continue;
        }
        let event: Value = serde_json::from_slice(&payload).unwrap();
        if is_end(&event) {
            return event;
        }
    }
}
