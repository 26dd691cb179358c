//! Request bodies of every size and framing: the provider receives the client's bytes unchanged.

use bytes::Bytes;

use crate::support::client::{post, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::{Upstream, a_moment};
use crate::support::{http2, reply, tls};

/// Body sizes in bytes: buffer boundaries, and the largest body that the default limit is meant for.
const SIZES: [usize; 6] = [120, 65_535, 65_536, 65_537, 1 << 20, 60 << 20];

/// Returns a chat request body of exactly `size` bytes.
pub(crate) fn body_of(size: usize) -> Vec<u8> {
    let (start, end) = (r#"{"messages":[{"role":"user","content":""#, r#""}],"model":"gpt"}"#);
    let mut body = start.as_bytes().to_vec();
    // Varied bytes, so that a lost or duplicated piece is noticed.
    body.extend(
        (0..size - start.len() - end.len()).map(|n| b'a' + u8::try_from((n ^ (n >> 9)) % 26).unwrap()),
    );
    body.extend_from_slice(end.as_bytes());
    assert_eq!(body.len(), size);
    body
}

/// Starts an upstream that answers in the chat format, and a gateway in front of it.
pub(crate) async fn chat() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    (upstream, gateway)
}

pub(crate) fn assert_arrived(upstream: &Upstream, body: &[u8]) {
    let request = upstream.last_request();
    assert_eq!(request.body.len(), body.len());
    assert!(request.body == body, "{}: the body is another one", body.len());
    assert_eq!(request.head.get("content-length"), Some(&*body.len().to_string()));
    assert_eq!(request.head.get("transfer-encoding"), None);
}

/// Encodes a body in chunks of these sizes, used in turn. Three of four chunks have a chunk extension.
fn chunked(body: &[u8], sizes: &[usize], trailers: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body;
    let mut turn = 0;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes[turn % sizes.len()].min(rest.len()));
        let extension = ["", ";a=b", ";q=\"x;y\"", "; lone"][turn % 4];
        out.extend_from_slice(format!("{:X}{extension}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
        rest = after;
        turn += 1;
    }
    out.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    out
}

pub(crate) fn chunked_head(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
}

#[tokio::test]
async fn body_with_content_length_arrives_unchanged() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    for size in SIZES {
        let body = body_of(size);
        let answer = client.ask(post("/v1/chat/completions", &body)).await;
        assert_eq!(answer.status(), 200, "{size}: {}", answer.text());
        assert_arrived(&upstream, &body);
    }
}

#[tokio::test]
async fn body_in_chunks_arrives_unchanged() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    for (size, sizes) in [
        (120, &[1][..]),
        (120, &[7, 1, 64]),
        (65_535, &[1, 65_533]),
        (65_536, &[4096]),
        (65_537, &[65_536]),
        (65_537, &[13, 1021, 9973]),
        (1 << 20, &[16_384, 3]),
        (60 << 20, &[1 << 20, 77, 65_536]),
    ] {
        let body = body_of(size);
        client.send(chunked_head("/v1/chat/completions")).await;
        let answer = client.ask(chunked(&body, sizes, "")).await;
        assert_eq!(answer.status(), 200, "{size}: {}", answer.text());
        assert_arrived(&upstream, &body);
    }
    let body = body_of(300);
    client.send(chunked_head("/v1/chat/completions")).await;
    let answer = client.ask(chunked(&body, &[100], "x-checksum: 1\r\nexpires: never\r\n")).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_arrived(&upstream, &body);
    let last = upstream.last_request();
    assert_eq!((last.head.get("x-checksum"), last.head.get("expires")), (None, None));
}

#[tokio::test]
async fn body_sent_byte_by_byte_arrives_unchanged() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    let body = body_of(100);
    for byte in post("/v1/chat/completions", &body).chunks(1) {
        client.send(byte).await;
    }
    assert_eq!(client.answer().await.status(), 200);
    assert_arrived(&upstream, &body);
}

#[tokio::test]
async fn body_over_http2_without_tls_arrives_unchanged() {
    let (upstream, gateway) = chat().await;
    let mut client = http2::Client::connect(gateway.addr).await;
    for size in SIZES {
        let body = body_of(size);
        let length = size.to_string();
        for headers in [&[][..], &[("content-length", &*length)]] {
            let (answer, mut send) = client.begin("/v1/chat/completions", headers).await;
            http2::send_all(&mut send, Bytes::from(body.clone()), true).await.unwrap();
            let (head, _) = http2::answer(answer).await;
            assert_eq!(head.status(), 200);
            assert_arrived(&upstream, &body);
        }
    }
}

#[tokio::test]
async fn body_over_http2_in_one_byte_frames_arrives_unchanged() {
    let (upstream, gateway) = chat().await;
    let mut client = http2::Client::connect(gateway.addr).await;
    let body = body_of(90);
    let (answer, mut send) = client.begin("/v1/chat/completions", &[]).await;
    for byte in body.chunks(1) {
        http2::send_all(&mut send, Bytes::copy_from_slice(byte), false).await.unwrap();
    }
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-checksum", http::HeaderValue::from_static("1"));
    send.send_trailers(trailers).unwrap();
    let (head, _) = http2::answer(answer).await;
    assert_eq!(head.status(), 200);
    assert_arrived(&upstream, &body);
}

#[tokio::test]
async fn body_over_tls_arrives_unchanged() {
    let authority = tls::Authority::new();
    let identity = authority.identity(&["gateway.test"]);
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::providers(upstream.addr).tls(&identity.chain, &identity.key);
    let gateway = Gateway::start(&setup).await;
    let mut h2 =
        http2::Client::connect_tls(gateway.tls, authority.client(&["h2", "http/1.1"]), "gateway.test").await;
    let mut h1 = gateway.connect_tls(authority.client(&["http/1.1"]), "gateway.test").await.unwrap().0;
    for size in [120, 65_536, 65_537, 1 << 20, 60 << 20] {
        let body = body_of(size);
        let (head, _) = http2::answer(h2.post("/v1/chat/completions", body.clone()).await).await;
        assert_eq!(head.status(), 200);
        assert_arrived(&upstream, &body);
        assert_eq!(h1.ask(post("/v1/chat/completions", &body)).await.status(), 200);
        assert_arrived(&upstream, &body);
    }
}

#[tokio::test]
async fn body_to_an_http2_upstream_arrives_unchanged() {
    let upstream = Upstream::start_h2(None, |mut exchange| async move {
        exchange.whole(200, "application/json", Form::Chat.whole("gpt")).await;
    })
    .await;
    let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "http = \"2\"")).await;
    let mut client = gateway.connect().await;
    for size in SIZES {
        let body = body_of(size);
        let answer = client.ask(post("/v1/chat/completions", &body)).await;
        assert_eq!(answer.status(), 200, "{size}: {}", answer.text());
        assert_arrived(&upstream, &body);
        let head = upstream.last_request().head;
        assert_eq!(head.get(":authority"), Some(&*upstream.addr.to_string()));
        assert_eq!((head.get("host"), head.get("connection")), (None, None));
    }
    assert_eq!(upstream.connections(), 1, "one connection serves them all");
}

#[tokio::test]
async fn body_incomplete_opens_no_upstream_connection() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    let whole = post("/v1/chat/completions", body_of(200_000));
    client.send(&whole[..whole.len() - 1]).await;
    a_moment().await;
    assert_eq!(upstream.connections(), 0);
    assert_eq!(client.ask(&whole[whole.len() - 1..]).await.status(), 200);
}

#[tokio::test]
async fn body_with_unsupported_type_or_encoding_is_refused() {
    let (upstream, gateway) = chat().await;
    let bearer = format!("Bearer {KEY}");
    for header in [
        ("content-encoding", "compress"),
        ("content-encoding", "gzip, br"),
        ("content-type", "multipart/form-data; boundary=x"),
    ] {
        let headers = [("authorization", &*bearer), header];
        let body = post_with("/v1/chat/completions", &headers, "{}");
        let text = String::from_utf8(body).unwrap();
        let text = match header.0 {
            "content-type" => text.replace("content-type: application/json\r\n", ""),
            _ => text,
        };
        let answer = gateway.ask(text).await;
        assert_eq!(answer.status(), 415, "{header:?}: {}", answer.text());
        Form::Chat.error(&answer);
    }
    assert_eq!(upstream.connections(), 0);
    // No content type, the content type that browsers send, and the identity encoding are accepted.
    for kind in ["", "content-type: text/plain;charset=UTF-8\r\n", "content-encoding: identity\r\n"] {
        let body = body_of(100);
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: {bearer}\r\n{kind}content-length: 100\r\n\r\n"
        );
        let answer = gateway.ask([head.as_bytes(), &body].concat()).await;
        assert_eq!(answer.status(), 200, "{kind}: {}", answer.text());
        assert_arrived(&upstream, &body);
    }
}

/// Peak memory for one large body is at most 1.5 times its size.
#[tokio::test]
async fn body_of_60_mib_is_held_once_in_memory() {
    let (upstream, _) = chat().await;
    let size = 60 << 20;
    let body = body_of(size);
    for (name, bytes) in [
        ("content-length", post("/v1/chat/completions", &body)),
        (
            "chunks",
            [chunked_head("/v1/chat/completions").into_bytes(), chunked(&body, &[65_536, 1000], "")].concat(),
        ),
        (
            "renamed",
            post(
                "/v1/chat/completions",
                String::from_utf8(body.clone()).unwrap().replace("\"gpt\"", "\"fast-gpt\""),
            ),
        ),
    ] {
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        assert_eq!(gateway.ask(post("/v1/chat/completions", body_of(1000))).await.status(), 200);
        let idle = gateway.start_of_peak();
        assert_eq!(gateway.ask(&bytes).await.status(), 200);
        let peak = gateway.peak_memory();
        let used = peak.saturating_sub(idle) * 1024;
        eprintln!("{name}: idle {idle} KiB, peak {peak} KiB, {:.2} bodies", used as f64 / size as f64);
        assert!(used <= size as u64 * 3 / 2, "{name}: {used} bytes above idle");
    }
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = http2::Client::connect(gateway.addr).await;
    let idle = gateway.start_of_peak();
    let (head, _) = http2::answer(client.post("/v1/chat/completions", body).await).await;
    assert_eq!(head.status(), 200);
    let used = gateway.peak_memory().saturating_sub(idle) * 1024;
    eprintln!("http/2: {:.2} bodies", used as f64 / size as f64);
    assert!(used <= size as u64 * 3 / 2, "http/2: {used} bytes above idle");
}

/// A body that exceeds the limit while it is being sent is answered with 413: the gateway never holds more than the
/// limit and opens no connection to the provider.
#[tokio::test]
async fn body_beyond_the_limit_is_refused_while_it_is_sent() {
    let upstream = Upstream::answering(reply::json(200, "{}")).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits("body = \"1MiB\"")).await;
    let mut client = gateway.connect().await;
    client.send(chunked_head("/v1/chat/completions")).await;
    let start = r#"{"model":"gpt","messages":[{"role":"user","content":""#;
    client.send(reply::chunk(start)).await;
    let chunk = reply::chunk(vec![b'x'; 64 * 1024]);
    for _ in 0..20 {
        if client.try_send(&chunk).await.is_err() {
            break;
        }
    }
    let head = client.head().await;
    assert_eq!(head.status(), 413);
    let mut body = Vec::new();
    while let Piece::Data(piece) = client.piece().await {
        body.extend_from_slice(&piece);
    }
    Form::Chat.error_in(&serde_json::from_slice(&body).unwrap(), 413);
    assert_eq!(upstream.connections(), 0);
}
