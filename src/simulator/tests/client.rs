//! Test client that writes HTTP/1.1 directly to the socket and exposes the chunks of the response.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::Simulator;

/// Response, read until the connection was closed.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// Chunks of a chunked body. Any other body is one chunk.
    pub(super) chunks: Vec<Vec<u8>>,
    /// The body is complete according to its framing.
    pub(super) complete: bool,
}

/// Returns the bytes of a request with `connection: close`.
pub(super) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: simulator\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !headers.iter().any(|(name, _)| *name == "transfer-encoding") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// Sends bytes, and reads until the connection is closed.
pub(super) async fn exchange(simulator: &Simulator, bytes: &[u8]) -> Answer {
    let mut socket = TcpStream::connect(simulator.addr()).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut received = Vec::new();
    // A connection reset keeps the bytes that arrived before.
    let _ = socket.read_to_end(&mut received).await;
    parse(&received)
}

pub(super) async fn send(
    simulator: &Simulator,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    exchange(simulator, &request(method, path, headers, body)).await
}

/// Posts JSON with the headers that the provider's clients send.
pub(super) async fn post(simulator: &Simulator, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    send(simulator, "POST", path, &headers, body.to_string().as_bytes()).await
}

pub(super) async fn get(simulator: &Simulator, path: &str) -> Answer {
    send(simulator, "GET", path, &[("anthropic-version", "2023-06-01")], b"").await
}

fn parse(received: &[u8]) -> Answer {
    let at = received.windows(4).position(|w| w == b"\r\n\r\n").expect("a whole head");
    let head = String::from_utf8(received[..at].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned())).unwrap())
        .collect();
    let find = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let body = &received[at + 4..];
    let (chunks, complete) = match (find("transfer-encoding"), find("content-length")) {
        (Some("chunked"), _) => chunks(body),
        (_, Some(length)) => (vec![body.to_vec()], length.parse::<usize>().unwrap() == body.len()),
        _ => (vec![body.to_vec()], true),
    };
    Answer { status, headers, chunks, complete }
}

fn chunks(mut body: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut chunks = Vec::new();
    while let Some(at) = body.windows(2).position(|w| w == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&body[..at]).unwrap(), 16).unwrap();
        if length == 0 {
            return (chunks, true);
        }
        let rest = &body[at + 2..];
        if rest.len() < length + 2 {
            return (chunks, false);
        }
        chunks.push(rest[..length].to_vec());
        body = &rest[length + 2..];
    }
    (chunks, false)
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.chunks.concat()).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    /// Returns name (may be empty) and data of each event of a stream.
    pub(super) fn events(&self) -> Vec<(String, String)> {
        let text = self.text().replace("\r\n", "\n");
        text.split("\n\n")
            .filter(|frame| !frame.is_empty())
            .map(|frame| {
                let line = |prefix: &str| frame.lines().find_map(|l| l.strip_prefix(prefix));
                (
                    line("event: ").unwrap_or_default().to_owned(),
                    line("data: ").unwrap_or_default().to_owned(),
                )
            })
            .collect()
    }

    /// Returns the data of the events that is valid JSON.
    pub(super) fn data(&self) -> Vec<Value> {
        self.events().iter().filter_map(|(_, data)| serde_json::from_str(data).ok()).collect()
    }
}

/// Joins the texts at a pointer in all values.
pub(super) fn joined(values: &[Value], pointer: &str) -> String {
    values.iter().filter_map(|value| value.pointer(pointer)?.as_str()).collect()
}
