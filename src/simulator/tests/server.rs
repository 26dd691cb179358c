//! Tests of the server: records, counters, chunks, HTTP/2, and malformed input.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::{Options, SimulatedProvider, Simulator, SimulatorError};
use super::client::{exchange, get, post, request, send};
use super::start;

fn chat(text: &str, stream: bool) -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}], "stream": stream})
}

/// Waits until a counter has the expected value. Panics after 10 seconds.
async fn eventually(count: impl Fn() -> u64, expected: u64) {
    let reached = timeout(Duration::from_secs(10), async {
        while count() != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(reached.await.is_ok(), "{} instead of {expected}", count());
}

#[tokio::test]
async fn last_request_is_recorded_as_received() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    assert_eq!(simulator.base_url(), format!("http://{}/v1", simulator.addr()));
    assert!(simulator.last_request().is_none());
    let headers = [("x-b", "2"), ("x-a", "1"), ("transfer-encoding", "chunked")];
    let body = chat("hello", false).to_string();
    let (one, two) = body.split_at(10);
    let chunked = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
    let answer = send(&simulator, "POST", "/v1/chat/completions?a=b", &headers, chunked.as_bytes()).await;
    assert_eq!(answer.status, 200);
    let recorded = simulator.last_request().unwrap();
    assert_eq!((recorded.method.as_str(), recorded.path.as_str()), ("POST", "/v1/chat/completions?a=b"));
    assert_eq!(recorded.body, body.as_bytes());
    assert_eq!(recorded.version, http::Version::HTTP_11);
    let own: Vec<&str> =
        recorded.headers.iter().map(|(n, _)| n.as_str()).filter(|n| n.starts_with("x-")).collect();
    assert_eq!(own, ["x-b", "x-a"]);
}

#[tokio::test]
async fn aborted_counts_clients_that_disconnect_during_a_response() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    for (nth, directive) in
        ["[[hang]]", "[[delay 60000]]", "[[stall 1]]", "[[pace 60000]]"].iter().enumerate()
    {
        let mut socket = TcpStream::connect(simulator.addr()).await.unwrap();
        let body = chat(directive, true).to_string();
        let bytes = request("POST", "/v1/chat/completions", &[], body.as_bytes());
        socket.write_all(&bytes).await.unwrap();
        eventually(|| simulator.requests(), nth as u64 + 1).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(simulator.aborted(), nth as u64, "{directive}: the client is still there");
        drop(socket);
        eventually(|| simulator.aborted(), nth as u64 + 1).await;
    }
    for directive in
        ["", "[[cut 1]]", "[[end 1]]", "[[truncate]]", "[[empty]]", "[[status 500]]", "[[status 304]]"]
    {
        post(&simulator, "/v1/chat/completions", &chat(directive, true)).await;
        post(&simulator, "/v1/chat/completions", &chat(directive, false)).await;
    }
    send(&simulator, "HEAD", "/v1/models", &[], b"").await;
    assert_eq!((simulator.requests(), simulator.aborted()), (4 + 15, 4));
}

#[tokio::test]
async fn aborted_counts_a_client_that_disconnects_during_its_request() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let mut socket = TcpStream::connect(simulator.addr()).await.unwrap();
    socket
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    drop(socket);
    eventually(|| simulator.aborted(), 1).await;
    assert_eq!(simulator.requests(), 0);
}

#[tokio::test]
async fn stream_sends_each_frame_as_one_chunk() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    for directive in ["", "[[pace 1]]"] {
        let answer = post(&simulator, "/v1/chat/completions", &chat(directive, true)).await;
        assert!(answer.complete && answer.chunks.len() > 5);
        for chunk in &answer.chunks {
            let chunk = String::from_utf8(chunk.clone()).unwrap();
            assert!(chunk.starts_with("data: ") && chunk.find("\n\n") == Some(chunk.len() - 2), "{chunk}");
        }
    }
}

#[tokio::test]
async fn stream_sends_paced_frames_separately() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let mut socket = TcpStream::connect(simulator.addr()).await.unwrap();
    // Long enough that the reader of a busy machine is not late by a whole frame.
    let body = chat("[[pace 500]]", true).to_string();
    socket.write_all(&request("POST", "/v1/chat/completions", &[], body.as_bytes())).await.unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    for _ in 0..6 {
        let length = timeout(Duration::from_secs(5), socket.read(&mut buffer)).await.unwrap().unwrap();
        seen.push(String::from_utf8_lossy(&buffer[..length]).matches("\"content\":\" ").count());
    }
    assert!(seen.iter().all(|words| *words <= 1), "{seen:?}");
}

#[tokio::test]
async fn pauses_of_options_are_overridden_by_directives() {
    let options = Options { first_token: Duration::from_millis(150), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::OpenAi, options).await.unwrap();
    let begin = std::time::Instant::now();
    post(&simulator, "/v1/chat/completions", &chat("hi", true)).await;
    assert!(begin.elapsed() >= Duration::from_millis(150));
    // Far longer than a response takes on a busy machine.
    let pause = Duration::from_secs(60);
    let options = Options { first_token: pause, ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::OpenAi, options).await.unwrap();
    let begin = std::time::Instant::now();
    post(&simulator, "/v1/chat/completions", &chat("[[first 0 delay 30]]", true)).await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(30) && took < pause, "{took:?}");
}

#[tokio::test]
async fn connection_serves_pipelined_requests() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let one = b"GET /v1/models/a HTTP/1.1\r\nhost: x\r\n\r\n";
    let both = [&one[..], &request("GET", "/v1/models/b", &[], b"")].concat();
    let text = exchange(&simulator, &both).await.text();
    assert!(text.contains("\"id\":\"a\"") && text.contains("\"id\":\"b\""), "{text}");
    assert_eq!(simulator.requests(), 2);
}

#[tokio::test]
async fn request_with_a_large_body_is_accepted() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let answer = post(&simulator, "/v1/chat/completions", &chat(&"x".repeat(20_000_000), false)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 5_000_000);
}

#[tokio::test]
async fn connection_with_invalid_bytes_does_not_break_the_server() {
    for provider in [SimulatedProvider::OpenAi, SimulatedProvider::Anthropic, SimulatedProvider::Google] {
        let simulator = start(provider).await;
        for nonsense in [
            &b"\0\0\0\0\r\n\r\n"[..],
            b"GET\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            let mut socket = TcpStream::connect(simulator.addr()).await.unwrap();
            socket.write_all(nonsense).await.unwrap();
            let mut rest = Vec::new();
            let _ = timeout(Duration::from_secs(5), socket.read_to_end(&mut rest)).await.unwrap();
        }
        let model = if provider == SimulatedProvider::Google { "/v1beta/models/x" } else { "/v1/models/x" };
        assert_eq!(get(&simulator, model).await.status, 200);
    }
}

#[tokio::test]
async fn address_in_use_is_an_error_and_is_freed_on_drop() {
    let simulator = start(SimulatedProvider::Google).await;
    assert_eq!(simulator.base_url(), format!("http://{}/v1beta", simulator.addr()));
    let options = Options { addr: simulator.addr(), ..Options::default() };
    let error = Simulator::start(SimulatedProvider::Google, options.clone()).await.unwrap_err();
    let SimulatorError::Listen { addr, .. } = &error;
    assert_eq!(*addr, simulator.addr());
    assert!(error.to_string().starts_with(&format!("cannot listen on {addr}: ")));
    let mut open = TcpStream::connect(simulator.addr()).await.unwrap();
    drop(simulator);
    let mut rest = Vec::new();
    let closed = timeout(Duration::from_secs(5), open.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "open connections are closed too");
    assert!(TcpStream::connect(options.addr).await.is_err());
}

/// Returns an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns the HTTP/2 preface and a request on stream 1. `method` is its index in the HPACK static table.
fn http2_request(method: u8, path: &str, body: &[u8]) -> Vec<u8> {
    // The method and `:scheme http` from the static table (RFC 7541, appendix A), then `:path` and `:authority` as
    // literals.
    let mut block = vec![0x80 | method, 0x86, 0x04, path.len() as u8];
    block.extend(path.bytes());
    block.extend([0x01, 1, b'x']);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(1, 0x4, 1, &block));
    bytes.extend(frame(0, 0x1, 1, body));
    bytes
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_served_on_the_same_port() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let mut socket = TcpStream::connect(simulator.addr()).await.unwrap();
    socket.write_all(&http2_request(2, "/v1/models", b"")).await.unwrap();
    let mut status = None;
    let mut body = Vec::new();
    loop {
        let mut head = [0; 9];
        timeout(Duration::from_secs(5), socket.read_exact(&mut head)).await.unwrap().unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        socket.read_exact(&mut payload).await.unwrap();
        match head[3] {
            1 => status = payload.first().copied(),
            0 => body.extend(payload),
            _ => {}
        }
        if matches!(head[3], 0 | 1) && head[4] & 1 == 1 {
            break;
        }
    }
    // Index 8 of the static table: `:status 200`.
    assert_eq!(status, Some(0x88));
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["object"], "list");
    assert_eq!(simulator.last_request().unwrap().version, http::Version::HTTP_2);
    assert_eq!(simulator.aborted(), 0);
}

#[tokio::test]
async fn http2_stream_reset_is_counted_as_aborted() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    for (nth, directive) in ["[[hang]]", "[[stall 2]]"].iter().enumerate() {
        let mut socket = TcpStream::connect(simulator.addr()).await.unwrap();
        let body = chat(directive, true).to_string();
        socket.write_all(&http2_request(3, "/v1/chat/completions", body.as_bytes())).await.unwrap();
        eventually(|| simulator.requests(), nth as u64 + 1).await;
        assert_eq!(simulator.aborted(), nth as u64);
        // RST_STREAM with CANCEL. The connection stays open.
        socket.write_all(&frame(3, 0, 1, &[0, 0, 0, 8])).await.unwrap();
        eventually(|| simulator.aborted(), nth as u64 + 1).await;
    }
}
