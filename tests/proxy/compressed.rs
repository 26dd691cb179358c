//! Compressed request bodies: decoded on arrival, within the limits of uncompressed ones.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;

use crate::bodies::{assert_arrived, body_of, chat};
use crate::images::{EDITED, PLAIN, Studio, picture};
use crate::pictures::form;
use crate::support::client::{Answer, Client};
use crate::support::compression::{CODINGS, compress};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;
use crate::support::{Gate, http2, reply};

const MB: usize = 1 << 20;

const CHAT: &str = "/v1/chat/completions";

/// Returns the head of a request with `lines` in addition, each ended by CRLF.
fn head(path: &str, lines: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {KEY}\r\n{lines}\r\n")
}

/// Returns a request with a content length.
fn whole(path: &str, coding: &str, body: &[u8]) -> Vec<u8> {
    let lines = format!(
        "content-type: application/json\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n",
        body.len()
    );
    [head(path, &lines).as_bytes(), body].concat()
}

/// Returns a request in chunks.
fn chunked<'p>(path: &str, coding: &str, pieces: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut out = chunked_head(path, coding).into_bytes();
    pieces.filter(|piece| !piece.is_empty()).for_each(|piece| out.extend(reply::chunk(piece)));
    out.extend_from_slice(reply::LAST_CHUNK.as_ref());
    out
}

fn chunked_head(path: &str, coding: &str) -> String {
    head(
        path,
        &format!(
            "content-type: application/json\r\ncontent-encoding: {coding}\r\ntransfer-encoding: chunked\r\n"
        ),
    )
}

fn assert_forwarded(upstream: &Upstream, answer: &Answer, body: &[u8], case: &str) {
    assert_eq!(answer.status(), 200, "{case}: {}", answer.text());
    assert_arrived(upstream, body);
    assert_eq!(upstream.last_request().head.get("content-encoding"), None, "{case}");
}

#[tokio::test]
async fn compressed_body_with_content_length_or_in_chunks_arrives_decoded() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    for coding in CODINGS {
        for size in [120, 65_536, 65_537, 1 << 20] {
            let body = body_of(size);
            let sent = compress(coding, &body);
            let answer = client.ask(whole(CHAT, coding, &sent)).await;
            assert_forwarded(&upstream, &answer, &body, coding);
            let answer = client.ask(chunked(CHAT, coding, sent.chunks(1000))).await;
            assert_forwarded(&upstream, &answer, &body, coding);
        }
    }
    let body = body_of(200);
    let answer = client.ask(whole(CHAT, "identity", &body)).await;
    assert_forwarded(&upstream, &answer, &body, "identity");
}

#[tokio::test]
async fn compressed_body_arrives_decoded_at_every_split() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    let body = body_of(100);
    for coding in CODINGS {
        let sent = compress(coding, &body);
        for at in 0..=sent.len() {
            let (one, other) = sent.split_at(at);
            let answer = client.ask(chunked(CHAT, coding, [one, other].into_iter())).await;
            assert_forwarded(&upstream, &answer, &body, coding);
        }
        let answer = client.ask(chunked(CHAT, coding, sent.chunks(1))).await;
        assert_forwarded(&upstream, &answer, &body, coding);
        for byte in whole(CHAT, coding, &sent).chunks(1) {
            client.send(byte).await;
        }
        assert_forwarded(&upstream, &client.answer().await, &body, coding);
    }
}

#[tokio::test]
async fn compressed_body_over_http2_arrives_decoded() {
    let (upstream, gateway) = chat().await;
    let mut client = http2::Client::connect(gateway.addr).await;
    for coding in CODINGS {
        for (size, pieces) in [(120, 1), (300_000, 1000)] {
            let body = body_of(size);
            let (answer, mut send) = client.begin(CHAT, &[("content-encoding", coding)]).await;
            for piece in compress(coding, &body).chunks(pieces) {
                http2::send_all(&mut send, Bytes::copy_from_slice(piece), false).await.unwrap();
            }
            http2::send_all(&mut send, Bytes::new(), true).await.unwrap();
            let (head, _) = http2::answer(answer).await;
            assert_eq!(head.status(), 200, "{coding}");
            assert_arrived(&upstream, &body);
            assert_eq!(upstream.last_request().head.get("content-encoding"), None, "{coding}");
        }
        let (answer, _send) = client.begin(CHAT, &[("content-encoding", "compress")]).await;
        let (head, body) = http2::answer(answer).await;
        assert_eq!(head.status(), 415);
        assert_eq!(head.headers()["accept-encoding"], "zstd, gzip, deflate, br");
        Form::Chat.error_in(&serde_json::from_slice(&body).unwrap(), 415);
    }
}

#[tokio::test]
async fn compressed_body_of_every_format_is_accepted() {
    for form in Form::ALL {
        let upstream = Upstream::answering(reply::json(200, form.whole(form.model()))).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        for coding in CODINGS {
            let path = form.path(form.model(), false);
            let sent = compress(coding, form.body(form.model(), false).as_bytes());
            let answer = gateway.ask(whole(&path, coding, &sent)).await;
            assert_eq!(answer.status(), 200, "{form:?} {coding}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn compressed_form_arrives_decoded_at_every_split() {
    let studio = Studio::open().await;
    let file = picture();
    let (media, body) = form(&[
        ("model", None, b"gpt-image-1"),
        ("prompt", None, b"make it blue"),
        ("image", Some("a.png"), &file),
    ]);
    let mut client = studio.gateway.connect().await;
    let lines = |coding: &str| {
        format!(
            "POST {EDITED} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {PLAIN}\r\n\
             content-type: {media}\r\ncontent-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n"
        )
    };
    for coding in CODINGS {
        let sent = compress(coding, &body);
        // Every tenth split, to bound the number of image requests.
        for at in (0..=sent.len()).step_by(10) {
            let mut request = lines(coding).into_bytes();
            let (one, other) = sent.split_at(at);
            for piece in [one, other].into_iter().filter(|piece| !piece.is_empty()) {
                request.extend(reply::chunk(piece));
            }
            request.extend_from_slice(reply::LAST_CHUNK.as_ref());
            let answer = client.ask(request).await;
            assert_eq!(answer.status(), 200, "{coding} {at}: {}", answer.text());
        }
        let mut request = lines(coding).into_bytes();
        sent.chunks(1).for_each(|byte| request.extend(reply::chunk(byte)));
        request.extend_from_slice(reply::LAST_CHUNK.as_ref());
        let answer = client.ask(request).await;
        assert_eq!(answer.status(), 200, "{coding}: {}", answer.text());
    }
    let last = studio.providers["gpt-image-1"].last_request().unwrap();
    assert!(last.body.windows(file.len()).any(|part| part == file), "the image arrives unchanged");
}

#[tokio::test]
async fn compressed_body_with_unsupported_coding_is_415_with_the_accepted_ones() {
    let upstream = Upstream::answering(reply::json(200, "{}")).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    for form in Form::ALL {
        let path = form.path(form.model(), false);
        for (coding, message) in [
            ("compress", "`compress` is not supported"),
            ("gzip, zstd", "several content encodings"),
            ("gzip\r\ncontent-encoding: gzip", "several content encodings"),
        ] {
            let answer = gateway.ask(whole(&path, coding, b"{}")).await;
            assert_eq!(answer.status(), 415, "{form:?}: {}", answer.text());
            assert_eq!(answer.get("accept-encoding"), Some("zstd, gzip, deflate, br"), "{form:?}");
            let (_, text) = form.error(&answer);
            assert!(text.contains(message) && text.contains("zstd, gzip, deflate, br"), "{form:?}: {text}");
        }
    }
    // An unsupported media type says nothing of codings.
    let lines = "content-type: multipart/form-data; boundary=x\r\ncontent-length: 2\r\n";
    let answer = gateway.ask(head(CHAT, lines) + "{}").await;
    assert_eq!((answer.status(), answer.get("accept-encoding")), (415, None));
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn compressed_body_that_is_broken_is_400() {
    let upstream = Upstream::answering(reply::json(200, "{}")).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    for form in Form::ALL {
        let path = form.path(form.model(), false);
        let body = form.body(form.model(), false);
        for coding in CODINGS {
            let sent = compress(coding, body.as_bytes());
            let trailing = [&sent[..], b"{}"].concat();
            for (sent, message) in [
                (&sent[..sent.len() - 1], "truncated"),
                (&sent[..sent.len() / 2], "truncated"),
                (&trailing[..], "bytes after the end"),
                (b"\xff\xff not compressed, whatever the header says", "content-encoding"),
            ] {
                for request in [whole(&path, coding, sent), chunked(&path, coding, sent.chunks(1))] {
                    let answer = gateway.ask(request).await;
                    assert_eq!(answer.status(), 400, "{form:?} {coding}: {}", answer.text());
                    let (_, text) = form.error(&answer);
                    assert!(text.contains(message), "{form:?} {coding}: {text}");
                }
            }
        }
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn compressed_body_limit_is_of_decoded_bytes() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits("body = \"64KiB\"")).await;
    for coding in CODINGS {
        let body = body_of(65_536);
        let answer = gateway.ask(whole(CHAT, coding, &compress(coding, &body))).await;
        assert_forwarded(&upstream, &answer, &body, coding);
        let answer = gateway.ask(whole(CHAT, coding, &compress(coding, &body_of(65_537)))).await;
        assert_eq!(answer.status(), 413, "{coding}: {}", answer.text());
        Form::Chat.error(&answer);
        // A length that no accepted body can have is refused before the body.
        let lines = format!("content-encoding: {coding}\r\ncontent-length: 70000\r\n");
        let mut client = gateway.connect().await;
        client.send(head(CHAT, &lines)).await;
        assert_eq!(client.answer().await.status(), 413, "{coding}");
    }
}

#[tokio::test]
async fn compressed_body_counts_decoded_in_the_memory_budget() {
    let gate = Gate::new();
    let passing = gate.clone();
    let upstream = Upstream::start(move |mut conn| {
        let gate = passing.clone();
        async move {
            while conn.request().await.is_some() {
                gate.passed().await;
                conn.send(reply::json(200, Form::Chat.whole("gpt"))).await;
            }
        }
    })
    .await;
    let limits = "body = \"8MiB\"\nmemory = \"20MiB\"";
    let gateway = Arc::new(Gateway::start(&Setup::providers(upstream.addr).limits(limits)).await);
    let sent = whole(CHAT, "zstd", &compress("zstd", &body_of(6 * MB)));
    let mut first = gateway.connect().await;
    first.send(&sent).await;
    upstream.wait_for(1).await;
    let mut second = gateway.connect().await;
    second.send(&sent).await;
    // The decoder's window counts only while the body is read: 6 and 6 MiB, and 6 of the window, are within the budget.
    upstream.wait_for(2).await;
    let third = gateway.ask(&sent).await;
    assert_eq!((third.status(), third.get("retry-after")), (503, Some("1")), "{}", third.text());
    gate.open();
    assert_eq!((first.answer().await.status(), second.answer().await.status()), (200, 200));
    assert_eq!(gateway.ask(&sent).await.status(), 200);
}

#[tokio::test]
async fn compressed_body_that_stops_is_408() {
    let upstream = Upstream::answering(reply::json(200, "{}")).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits("body_timeout = \"1s\"")).await;
    for coding in CODINGS {
        let request = whole(CHAT, coding, &compress(coding, &body_of(5000)));
        let mut client = gateway.connect().await;
        client.send(&request[..request.len() - 9]).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), 408, "{coding}: {}", answer.text());
        Form::Chat.error(&answer);
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn compressed_body_after_100_continue_arrives_decoded() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    let body = body_of(3000);
    for coding in CODINGS {
        let sent = compress(coding, &body);
        let lines = format!(
            "expect: 100-continue\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n",
            sent.len()
        );
        client.send(head(CHAT, &lines)).await;
        assert_eq!(client.head().await.status(), 100, "{coding}");
        let answer = client.ask(&sent).await;
        assert_forwarded(&upstream, &answer, &body, coding);
    }
    // A refusal comes instead of the interim response.
    let lines = "expect: 100-continue\r\ncontent-encoding: compress\r\ncontent-length: 5\r\n";
    client.send(head(CHAT, lines)).await;
    assert_eq!(client.head().await.status(), 415);
}

/// Returns the beginning of a compressed text and the piece that can follow any number of times, which decodes to
/// `MB` spaces.
fn bomb(coding: &str) -> (Vec<u8>, Vec<u8>) {
    let spaces = vec![b' '; MB];
    if coding != "br" {
        // A further member or frame.
        return (Vec::new(), compress(coding, &spaces));
    }
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    let mut blocks = (0..6).map(|_| {
        encoder.write_all(&spaces).unwrap();
        encoder.flush().unwrap();
        std::mem::take(encoder.get_mut())
    });
    let begin: Vec<u8> = blocks.by_ref().take(5).flatten().collect();
    (begin, blocks.next().unwrap())
}

/// Sends a bomb of `megabytes` until it is refused, and returns the refusal.
async fn refusal(gateway: &Gateway, client: &mut Client, coding: &str, megabytes: usize) -> Answer {
    let refused = async || gateway.metrics().await.sum("gateway_errors_total", &[("kind", "body_too_large")]);
    let before = refused().await;
    let (begin, piece) = bomb(coding);
    client.send(chunked_head(CHAT, coding)).await;
    if !begin.is_empty() {
        client.send(reply::chunk(begin)).await;
    }
    let mut complete = true;
    // The gateway reads little of a refused body: stop sending then, so that the response is not lost to a reset.
    for sent in 0..megabytes {
        if client.try_send(reply::chunk(&piece)).await.is_err() || sent % 16 == 15 && refused().await > before
        {
            complete = false;
            break;
        }
    }
    if complete {
        let _ = client.try_send(reply::LAST_CHUNK).await;
    }
    client.answer().await
}

#[tokio::test]
async fn compressed_bomb_is_refused_within_the_memory_limit() {
    for coding in ["zstd", "gzip", "br"] {
        for megabytes in [10, 1 << 10, 10 << 10] {
            let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
            let setup = Setup::providers(upstream.addr).limits("body = \"4MiB\"\nmemory = \"64MiB\"");
            // One gateway each: the allocator may retain the memory of an earlier body.
            let gateway = Gateway::start(&setup).await;
            // Code and tables that a request and a refusal need are loaded once.
            let ordinary = compress(coding, &body_of(1000));
            assert_eq!(gateway.ask(whole(CHAT, coding, &ordinary)).await.status(), 200, "{coding}");
            assert_eq!(gateway.ask(whole(CHAT, coding, &ordinary[..50])).await.status(), 400, "{coding}");
            gateway.metrics().await;
            let before = gateway.start_of_peak();
            let mut client = gateway.connect().await;
            let answer = refusal(&gateway, &mut client, coding, megabytes).await;
            assert_eq!(answer.status(), 413, "{coding} {megabytes}: {}", answer.text());
            Form::Chat.error(&answer);
            gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
            let grown = gateway.peak_memory().saturating_sub(before);
            // The body, the part of the window that it fills, tables, and one megabyte.
            let window = match coding {
                "gzip" => 80,
                "zstd" => 4096 + 384,
                _ => 4096 + 3072,
            };
            eprintln!("{coding} {megabytes} MB: {grown} KiB beyond idle");
            assert!(grown < 4096 + window + 1024, "{coding} {megabytes} MB: {grown} KiB");
            assert_eq!(upstream.count(), 1, "{coding}");
        }
    }
}
