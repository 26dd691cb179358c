//! Memory limits: fetched links, collected responses, frames and compressed bodies. Anything beyond a limit is refused
//! with an error.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::images::picture;
use crate::support::client::{Answer, post};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply, soon};

const MB: usize = 1 << 20;

/// Starts a file server whose images have `size` bytes, sent when the gate opens. Returns it with the maximum number of
/// concurrent downloads.
async fn files(size: usize, gate: Gate) -> (Upstream, Arc<AtomicUsize>) {
    let mut file = picture();
    file.resize(size, 0);
    let file: Arc<[u8]> = reply::whole(200, &[("content-type", "image/png")], file).into();
    // Concurrent downloads, and their maximum.
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let upstream = Upstream::start(move |mut conn| {
        let (file, gate, now, most) = (file.clone(), gate.clone(), now.clone(), most.clone());
        async move {
            while conn.request().await.is_some() {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.passed().await;
                let sent = conn.try_send(&file).await;
                now.fetch_sub(1, Ordering::SeqCst);
                if sent.is_err() {
                    break;
                }
            }
        }
    })
    .await;
    (upstream, seen)
}

/// Starts a provider that accepts no URLs and answers when the gate opens.
async fn provider(gate: Gate) -> Upstream {
    Upstream::start(move |mut conn| {
        let gate = gate.clone();
        async move {
            while conn.request().await.is_some() {
                gate.passed().await;
                conn.send(reply::json(200, Form::Generate.whole("gemini-2.5-flash"))).await;
            }
        }
    })
    .await
}

async fn gateway(provider: &Upstream, limits: &str) -> Gateway {
    let setup = Setup::new()
        .limits("fetch_allow = [\"127.0.0.0/8\"]")
        .limits(limits)
        .provider("google", "gemini", &format!("http://{}/v1beta", provider.addr), "")
        .model("flash", "google", "gemini-2.5-flash");
    Gateway::start(&setup).await
}

/// Returns a request with this number of links, in one of the formats that have links.
fn linking(form: Form, files: &Upstream, links: usize) -> Vec<u8> {
    let urls = (0..links).map(|number| format!("http://{}/{number}.png", files.addr));
    match form {
        Form::Chat => {
            let content: Vec<_> =
                urls.map(|url| json!({"type": "image_url", "image_url": {"url": url}})).collect();
            let body = json!({"model": "flash", "messages": [{"role": "user", "content": content}]});
            post("/v1/chat/completions", body.to_string())
        }
        Form::Messages => {
            let source = |url| json!({"type": "image", "source": {"type": "url", "url": url}});
            let content: Vec<_> = urls.map(source).collect();
            let messages = json!([{"role": "user", "content": content}]);
            post("/v1/messages", json!({"model": "flash", "max_tokens": 9, "messages": messages}).to_string())
        }
        _ => {
            let image = |url| json!({"type": "input_image", "image_url": url});
            let content: Vec<_> = urls.map(image).collect();
            let input = json!([{"role": "user", "content": content}]);
            post("/v1/responses", json!({"model": "flash", "store": false, "input": input}).to_string())
        }
    }
}

const LINKING: [Form; 3] = [Form::Chat, Form::Messages, Form::Responses];

fn assert_overloaded(form: Form, answer: &Answer) {
    assert_eq!(answer.status(), 503, "{form:?}: {}", answer.text());
    assert_eq!(answer.get("retry-after"), Some("1"), "{form:?}");
    let (kind, message) = form.error(answer);
    let expected = if form == Form::Messages { "overloaded_error" } else { "service_unavailable" };
    assert_eq!(kind, expected, "{form:?}");
    assert!(message.contains("gateway is overloaded"), "{message}");
}

#[tokio::test]
async fn memory_of_all_fetched_links_is_bounded() {
    let (open, gate) = (Gate::new(), Gate::new());
    open.open();
    let (files, _) = files(6 * MB, open).await;
    let provider = provider(gate.clone()).await;
    let limits = "body = \"32MiB\"\nfetch = \"8MiB\"\nmemory = \"48MiB\"";
    let gateway = Arc::new(gateway(&provider, limits).await);
    let before = gateway.start_of_peak();
    // 24 requests with 18 MB behind links each: 24 MB in Base64, once as fetched and once as sent.
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..24 {
        let form = LINKING[number % LINKING.len()];
        let (gateway, request) = (gateway.clone(), linking(form, &files, 3));
        asking.spawn(async move { (form, gateway.ask(request).await) });
    }
    let mut refused = 0;
    // At most one request is admitted: two would hold 48 MB in Base64 alone.
    while refused < 23 {
        let (form, answer) = soon(asking.join_next()).await.unwrap().unwrap();
        assert_overloaded(form, &answer);
        refused += 1;
    }
    let grown = gateway.peak_memory().saturating_sub(before) / 1024;
    // The bound includes memory that the allocator retains. Without a limit the growth would be a gigabyte.
    assert!(grown < 240, "{grown} MiB");
    gate.open();
    soon(asking.join_next()).await;
    // A single request is served: the refused ones have released their memory.
    for form in LINKING.into_iter().cycle().take(6) {
        gateway.idle().await;
        let answer = gateway.ask(linking(form, &files, 2)).await;
        assert_eq!(answer.status(), 200, "{form:?}: {}", answer.text());
    }
    // The media of one request have a separate limit.
    gateway.idle().await;
    let answer = gateway.ask(linking(Form::Chat, &files, 5)).await;
    assert_eq!(answer.status(), 413, "{}", answer.text());
    assert!(gateway.metrics().await.sum("gateway_links_total", &[("result", "busy")]) > 0.0);
}

#[tokio::test]
async fn fetch_concurrency_is_bounded() {
    let (open, gate) = (Gate::new(), Gate::new());
    open.open();
    let (files, most) = files(1_000, gate.clone()).await;
    let provider = provider(open).await;
    let gateway = Arc::new(gateway(&provider, "fetches = 3").await);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (gateway, request) = (gateway.clone(), linking(Form::Chat, &files, 4));
        asking.spawn(async move { gateway.ask(request).await });
    }
    files.wait_for(3).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(files.count(), 3);
    gate.open();
    while let Some(answer) = soon(asking.join_next()).await {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    assert_eq!((files.count(), most.load(Ordering::SeqCst)), (16, 3));
}

#[tokio::test]
async fn fetch_waiting_for_its_turn_times_out() {
    let (open, gate) = (Gate::new(), Gate::new());
    open.open();
    let (files, _) = files(1_000, gate).await;
    let provider = provider(open).await;
    let gateway = gateway(&provider, "fetches = 1\nfetch_timeout = \"2s\"").await;
    let mut first = gateway.connect().await;
    first.send(linking(Form::Chat, &files, 1)).await;
    files.wait_for(1).await;
    let answer = gateway.ask(linking(Form::Chat, &files, 2)).await;
    // The request waits for its turn or, if it got it, for the file; either wait may time out first.
    if answer.status() == 503 {
        assert_overloaded(Form::Chat, &answer);
    } else {
        assert_eq!(answer.status(), 400, "{}", answer.text());
    }
    assert_eq!(first.answer().await.status(), 400);
}

/// Starts an upstream that sends all but the end of a response, and the end when the gate opens.
async fn holding_back(head: String, most: Vec<u8>, end: Vec<u8>, gate: Gate) -> Upstream {
    let (most, end): (Arc<[u8]>, Arc<[u8]>) = (most.into(), end.into());
    Upstream::start(move |mut conn| {
        let (head, most, end, gate) = (head.clone(), most.clone(), end.clone(), gate.clone());
        async move {
            while conn.request().await.is_some() {
                let begun = conn.try_send(&head).await.is_ok() && conn.try_send(&most).await.is_ok();
                if !begun {
                    return;
                }
                gate.passed().await;
                if conn.try_send(&end).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn memory_of_all_collected_responses_is_bounded() {
    let text = "x".repeat(8 * MB);
    let whole = Form::Chat.whole("gpt").replacen('{', &format!("{{\"x\":\"{text}\","), 1).into_bytes();
    let frame = format!("data: {{\"x\":\"{text}\"}}\n\n").into_bytes();
    let frames = Form::Chat.frames("gpt");
    let end = [reply::chunk(frames.concat()), reply::LAST_CHUNK.to_vec()].concat();
    for stream in [false, true] {
        let gate = Gate::new();
        let (head, most, end) = if stream {
            let chunk = reply::chunk(&frame);
            let cut = chunk.len() - 20;
            (reply::stream_head(), chunk[..cut].to_vec(), [&chunk[cut..], &end[..]].concat())
        } else {
            let cut = whole.len() - 20;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                whole.len()
            );
            (head, whole[..cut].to_vec(), whole[cut..].to_vec())
        };
        let upstream = holding_back(head, most, end, gate.clone()).await;
        let setup = Setup::providers(upstream.addr).limits("body = \"1MiB\"\nmemory = \"20MiB\"");
        let gateway = Arc::new(Gateway::start(&setup).await);
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let gateway = gateway.clone();
            asking.spawn(async move { gateway.ask(Form::Chat.request(stream)).await });
        }
        // The memory limit admits two of the six.
        for _ in 0..4 {
            let answer = soon(asking.join_next()).await.unwrap().unwrap();
            assert!(answer.text().contains("gateway is overloaded"), "{stream}: {}", answer.everything());
            assert!(stream || answer.status() == 503, "{stream}: {}", answer.everything());
        }
        gate.open();
        while let Some(answer) = soon(asking.join_next()).await {
            let answer = answer.unwrap();
            let well = answer.status() == 200 && answer.body.len() > 8 * MB;
            assert!(well || answer.text().contains("gateway is overloaded"), "{stream}: {}", answer.status());
        }
        gateway.idle().await;
        let answer = gateway.ask(Form::Chat.request(stream)).await;
        assert!(answer.status() == 200 && answer.body.len() > 8 * MB, "{stream}: {}", answer.status());
    }
}

const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

fn compressed(coding: &str, pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    fn fill<W: Write>(mut to: W, pieces: impl Iterator<Item = Vec<u8>>) -> W {
        pieces.for_each(|piece| to.write_all(&piece).unwrap());
        to.flush().unwrap();
        to
    }
    // Little effort: what decodes to hundreds of megabytes is repetitive enough.
    let level = flate2::Compression::default();
    match coding {
        "gzip" => fill(flate2::write::GzEncoder::new(Vec::new(), level), pieces).finish().unwrap(),
        "deflate" => fill(flate2::write::ZlibEncoder::new(Vec::new(), level), pieces).finish().unwrap(),
        "br" => fill(brotli::CompressorWriter::new(Vec::new(), 4096, 1, 20), pieces).into_inner(),
        _ => fill(zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap(), pieces).finish().unwrap(),
    }
}

fn coded(status: u16, kind: &str, coding: &str, body: &[u8]) -> Vec<u8> {
    reply::whole(status, &[("content-type", kind), ("content-encoding", coding)], body)
}

/// Returns compressed bytes that decode to 512 MB of JSON.
fn bomb(coding: &str) -> Vec<u8> {
    let pieces = (0..512).map(|_| vec![b' '; MB]);
    compressed(
        coding,
        std::iter::once(b"{\"error\":{\"message\":\"slow down\"},\"x\":1".to_vec()).chain(pieces),
    )
}

/// Documents, error responses, streams and responses of job calls: decoded bytes stay within the limits, whatever they
/// decode to.
#[tokio::test]
async fn compression_bomb_stays_within_the_memory_limits() {
    for coding in CODINGS {
        let bomb = bomb(coding);
        assert!(bomb.len() < MB, "{coding}: {}", bomb.len());
        let upstream = Upstream::answering_each(vec![
            coded(200, "application/json", coding, &bomb),
            coded(429, "application/json", coding, &bomb),
            coded(200, "text/event-stream", coding, &bomb),
            coded(200, "application/json", coding, &bomb),
        ])
        .await;
        let setup = Setup::providers(upstream.addr)
            .limits("body = \"4MiB\"\nanswer = \"8MiB\"\nframe = \"8MiB\"\nmemory = \"64MiB\"")
            .provider("jina", "jina", &format!("http://{}/v1", upstream.addr), "")
            .model("order", "jina", "jina-reranker-v2");
        let gateway = Gateway::start(&setup).await;
        let before = gateway.start_of_peak();
        let whole = gateway.ask(Form::Chat.request(false)).await;
        assert_eq!(whole.status(), 500, "{coding}: {}", whole.text());
        assert!(whole.text().contains("larger than 8388608 bytes"), "{coding}: {}", whole.text());
        // The beginning of an error response is still evaluated.
        let refused = gateway.ask(Form::Chat.request(false)).await;
        assert_eq!(refused.status(), 429, "{coding}: {}", refused.text());
        let stream = gateway.ask(Form::Chat.request(true)).await;
        assert!(stream.text().contains("not valid"), "{coding}: {}", stream.everything());
        let body = json!({"model": "order", "query": "q", "documents": ["a", "b"]}).to_string();
        let job = gateway.ask(post("/v1/rerank", body)).await;
        assert_eq!(job.status(), 500, "{coding}: {}", job.text());
        let grown = gateway.peak_memory().saturating_sub(before) / 1024;
        assert!(grown < 80, "{coding}: {grown} MiB");
        // No request is left in flight.
        gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
    }
}

#[tokio::test]
async fn compression_of_large_streams_passes_completely() {
    let frames = Form::Chat.frames("gpt");
    let filler = format!(": {}\n\n", "y".repeat(1_000)).repeat(1_000);
    for coding in CODINGS {
        // 8 MB of comments between any two frames, compressed to a few kilobytes.
        let pieces =
            frames.iter().flat_map(|frame| [frame.clone().into_bytes(), filler.repeat(8).into_bytes()]);
        let body = compressed(coding, pieces.take(frames.len() * 2 - 1));
        let upstream = Upstream::answering(coded(200, "text/event-stream", coding, &body)).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr).limits("frame = \"1MiB\"")).await;
        let before = gateway.start_of_peak();
        let answer = gateway.ask(Form::Chat.request(true)).await;
        assert_eq!(answer.status(), 200, "{coding}");
        assert!(answer.complete && answer.body.len() > 8 * MB, "{coding}: {}", answer.body.len());
        let text: String =
            answer.text().split_inclusive("\n\n").filter(|frame| !frame.starts_with(':')).collect();
        assert_eq!(text, frames.concat(), "{coding}");
        let grown = gateway.peak_memory().saturating_sub(before) / 1024;
        assert!(grown < 64, "{coding}: {grown} MiB");
    }
}

#[tokio::test]
async fn compression_malformed_is_an_error() {
    for coding in CODINGS {
        let garbage = b"\xff\xfe this is not compressed at all";
        let upstream = Upstream::answering_each(vec![
            coded(200, "application/json", coding, garbage),
            coded(200, "text/event-stream", coding, garbage),
            coded(429, "application/json", coding, garbage),
        ])
        .await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        for (stream, status) in [(false, 500), (true, 500), (false, 429)] {
            let answer = gateway.ask(Form::Chat.request(stream)).await;
            assert_eq!(answer.status(), status, "{coding} {stream}: {}", answer.text());
            let (_, message) = Form::Chat.error(&answer);
            assert!(status == 429 || message.contains("not valid"), "{coding} {stream}: {message}");
        }
    }
}
