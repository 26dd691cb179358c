//! Error responses, malformed responses and compressed responses of providers.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use crate::routing::providers;
use crate::support::client::Answer;
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, KEY, Setup};
use crate::support::upstream::Upstream;

/// A gateway in front of a provider that gives every request the same, replaceable answer.
struct Stand {
    upstream: Upstream,
    gateway: Gateway,
    answer: Arc<Mutex<Vec<u8>>>,
    asked: usize,
}

impl Stand {
    async fn new() -> Stand {
        let answer = Arc::new(Mutex::new(Vec::new()));
        let current = answer.clone();
        let upstream = Upstream::start(move |mut conn| {
            let current = current.clone();
            async move {
                while conn.request().await.is_some() {
                    let answer = current.lock().unwrap().clone();
                    conn.send(answer).await;
                }
            }
        })
        .await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        Stand { upstream, gateway, answer, asked: 0 }
    }

    /// Sends a request for a document and one for a stream while the provider gives this answer, and returns both
    /// responses.
    async fn ask_both(&mut self, form: Form, answer: &[u8]) -> Vec<Answer> {
        *self.answer.lock().unwrap() = answer.to_vec();
        let mut answers = Vec::new();
        for stream in [false, true] {
            answers.push(self.gateway.ask(form.request(stream)).await);
            self.asked += 1;
        }
        assert_eq!(self.upstream.count(), self.asked, "an answer is never asked for twice");
        let secrets = [self.upstream.addr.to_string(), CREDENTIAL.to_owned(), KEY.to_owned()];
        for answer in &answers {
            for secret in &secrets {
                assert!(!answer.everything().contains(secret), "{secret}: {}", answer.everything());
            }
        }
        let upstream = [("source", "upstream")];
        self.gateway.wait_for_metric("gateway_errors_total", &upstream, self.asked as f64).await;
        answers
    }
}

/// Returns a provider's error as its client receives it: the messages format has error types of its own
/// (docs/specification.md).
fn standard(form: Form, error: &str, kind: &str) -> String {
    let own = r#""type":"provider_type""#;
    let table = format!(r#""type":"{kind}","provider_type":"provider_type""#);
    if form == Form::Messages { error.replace(own, &table) } else { error.to_owned() }
}

#[tokio::test]
async fn provider_error_in_the_client_format_passes_unchanged() {
    let mut stand = Stand::new().await;
    for form in Form::ALL {
        for status in [400, 404, 409, 413, 422, 429, 500, 503, 529] {
            let body = provider_error(form, status, "the provider's own words, Grüße");
            let sent = reply::whole(
                status,
                &[("content-type", "application/json"), ("retry-after", "17"), ("x-should-retry", "true")],
                &body,
            );
            let kind = match status {
                404 => "not_found_error",
                429 => "rate_limit_error",
                400..500 => "invalid_request",
                _ => "upstream_error",
            };
            let told = standard(form, &body, kind);
            // The tests of `errors` have the statuses that messages and generate have instead of these.
            let moved = match form {
                Form::Messages => ![400, 404, 409, 413, 429, 500, 529].contains(&status),
                Form::Generate => [413, 422, 529].contains(&status),
                Form::Chat | Form::Responses => false,
            };
            if moved {
                continue;
            }
            for answer in stand.ask_both(form, &sent).await {
                assert_eq!((answer.status(), answer.text()), (status, &*told), "{form:?}");
                form.error(&answer);
                assert_eq!(answer.get("retry-after"), Some("17"), "{form:?} {status}");
            }
        }
    }
}

#[tokio::test]
async fn provider_error_401_of_the_gateway_credential_is_500() {
    let mut stand = Stand::new().await;
    for form in Form::ALL {
        for status in [401, 403] {
            let body = provider_error(form, status, &format!("Incorrect API key provided: {CREDENTIAL}"));
            for answer in stand.ask_both(form, &reply::json(status, body)).await {
                assert_eq!(answer.status(), 500, "{form:?}");
                let (_, message) = form.error(&answer);
                assert!(message.contains("credential"), "{message}");
                assert_eq!(answer.get("x-should-retry"), Some("false"));
            }
        }
    }
}

/// For any shape of a provider's error the client receives an error in its own format.
#[tokio::test]
async fn provider_error_in_another_shape_is_translated() {
    let mut stand = Stand::new().await;
    let html = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
    for form in Form::ALL {
        let other = if form == Form::Generate { Form::Chat } else { Form::Generate };
        for (status, kind, body, message) in [
            (502, "text/html", html.to_owned(), "502"),
            (503, "text/plain", "upstream connect error".to_owned(), "upstream connect error"),
            (500, "application/json", String::new(), "500"),
            (429, "application/json", String::new(), "429"),
            (400, "application/json", "{\"error\":\"too long\"}".to_owned(), "too long"),
            (
                422,
                "application/json",
                "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"no good\"}]}".to_owned(),
                "no good",
            ),
            (500, "application/json", "{\"error\":{\"mess".to_owned(), "500"),
            (404, "application/json", provider_error(other, 404, "no such thing"), "no such thing"),
        ] {
            let answers = stand.ask_both(form, &reply::whole(status, &[("content-type", kind)], &body)).await;
            for answer in answers {
                // `errors` has a test of each status.
                let told_status = match (form, status) {
                    (Form::Messages, 502 | 503) | (Form::Generate, 502) => 500,
                    (Form::Messages | Form::Generate, 422) => 400,
                    _ => status,
                };
                assert_eq!(answer.status(), told_status, "{form:?} {body}");
                let (_, told) = form.error(&answer);
                assert!(told.contains(message), "{form:?} {body}: {told}");
                assert!(!told.contains("nginx"), "{told}");
            }
        }
    }
}

#[tokio::test]
async fn provider_response_malformed_is_an_error() {
    let mut stand = Stand::new().await;
    let json = [("content-type", "application/json")];
    let to = [("location", "http://127.0.0.1:1/"), ("content-type", "text/html")];
    for form in Form::ALL {
        for (what, sent) in [
            ("nothing", reply::whole(200, &json, "")),
            ("no content", reply::head(204, &[]).into_bytes()),
            ("html", reply::whole(200, &[("content-type", "text/html")], "<html>login</html>")),
            ("half a document", reply::whole(200, &json, &form.whole("m")[..50])),
            ("a list", reply::whole(200, &json, "[1]")),
            ("two documents", reply::whole(200, &json, "{} {}")),
            ("no utf-8", reply::whole(200, &json, [b"{\"a\":\"", &[0xff][..], b"\"}"].concat())),
            ("a redirect", reply::whole(302, &to, "moved")),
            ("an unknown encoding", reply::whole(200, &[json[0], ("content-encoding", "x-odd")], "{}")),
            ("a broken encoding", reply::whole(200, &[json[0], ("content-encoding", "gzip")], "{}")),
        ] {
            for answer in stand.ask_both(form, &sent).await {
                assert_eq!(answer.status(), 500, "{form:?} {what}: {}", answer.text());
                form.error(&answer);
            }
        }
    }
}

/// An error with status 200 becomes an error response: as a document, and as the first frame of a stream.
#[tokio::test]
async fn provider_error_inside_a_200_gets_its_own_status() {
    let mut stand = Stand::new().await;
    for form in Form::ALL {
        let body = provider_error(form, 429, "slow down");
        for answer in stand.ask_both(form, &reply::json(200, &body)).await {
            assert!(answer.status() >= 400, "{form:?}: {}", answer.everything());
            let (_, message) = form.error(&answer);
            assert_eq!(message, "slow down");
        }
        let first = match form {
            Form::Messages => format!("event: error\ndata: {body}\n\n"),
            Form::Responses => {
                "event: error\ndata: {\"type\":\"error\",\"code\":\"x\",\"message\":\"slow down\",\"param\":null}\n\n".to_owned()
            }
            _ => format!("data: {body}\n\n"),
        };
        for answer in stand.ask_both(form, &reply::stream(&[first])).await {
            assert!(answer.status() >= 400, "{form:?}: {}", answer.everything());
            let (_, message) = form.error(&answer);
            assert_eq!(message, "slow down", "{form:?}");
        }
    }
}

/// An error event after content passes to the client unchanged.
#[tokio::test]
async fn provider_error_in_the_middle_of_a_stream_passes() {
    for form in Form::ALL {
        let mut frames = form.frames(form.model());
        frames.truncate(2);
        let body = provider_error(form, 503, "overloaded, sorry");
        frames.push(match form {
            Form::Messages => format!("event: error\ndata: {body}\n\n"),
            Form::Responses => {
                "event: error\ndata: {\"type\":\"error\",\"code\":null,\"message\":\"overloaded, sorry\",\
                                \"param\":null,\"sequence_number\":3}\n\n"
                    .to_owned()
            }
            _ => format!("data: {body}\n\n"),
        });
        let upstream = Upstream::answering(reply::stream(&frames)).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let answer = gateway.ask(form.request(true)).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.text().starts_with(&frames.concat()), "{form:?}: {}", answer.text());
        assert!(!form.looks_complete(answer.text()), "{form:?}: {}", answer.text());
        assert_eq!(answer.text().matches("overloaded, sorry").count(), 1);
    }
}

#[tokio::test]
async fn provider_error_connection_is_reused_for_any_body_size() {
    let long =
        format!("{{\"error\":{{\"message\":\"{}\",\"type\":\"t\",\"code\":null}}}}", "x".repeat(600_000));
    let upstream = Upstream::answering_each(vec![
        reply::json(400, long),
        reply::json(429, ""),
        reply::json(200, Form::Chat.whole("gpt")),
    ])
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    let answer = client.ask(Form::Chat.request(false)).await;
    assert_eq!(answer.status(), 400);
    let (_, message) = Form::Chat.error(&answer);
    assert!(message.len() < 8_000, "an error of {} bytes", message.len());
    assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 429);
    assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(upstream.connections(), 1);
}

/// Compresses the pieces and flushes after each, so that each can be decoded on arrival.
fn compressed(encoding: &str, pieces: &[String]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    match encoding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            for piece in pieces {
                encoder.write_all(piece.as_bytes()).unwrap();
                encoder.flush().unwrap();
                out.push(std::mem::take(encoder.get_mut()));
            }
            out.push(encoder.finish().unwrap());
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            for piece in pieces {
                encoder.write_all(piece.as_bytes()).unwrap();
                encoder.flush().unwrap();
                out.push(std::mem::take(encoder.get_mut()));
            }
            out.push(encoder.finish().unwrap());
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
            for piece in pieces {
                encoder.write_all(piece.as_bytes()).unwrap();
                encoder.flush().unwrap();
                out.push(std::mem::take(encoder.get_mut()));
            }
            out.push(encoder.into_inner());
        }
        _ => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            for piece in pieces {
                encoder.write_all(piece.as_bytes()).unwrap();
                encoder.flush().unwrap();
                out.push(std::mem::take(encoder.get_mut()));
            }
            out.push(encoder.finish().unwrap());
        }
    }
    out
}

const ENCODINGS: [&str; 4] = ["gzip", "br", "zstd", "deflate"];

#[tokio::test]
async fn compression_is_decoded_for_the_client() {
    let json = ("content-type", "application/json");
    for encoding in ENCODINGS {
        let encoded = ("content-encoding", encoding);
        let pack = |text: String| compressed(encoding, &[text]).concat();
        for form in Form::ALL {
            let refused = provider_error(form, 400, "no");
            let frames = form.frames(form.model());
            let stream: Vec<u8> = compressed(encoding, &frames)
                .iter()
                .filter(|c| !c.is_empty())
                .flat_map(reply::chunk)
                .collect();
            let head = reply::head(
                200,
                &[("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), encoded],
            );
            let upstream = Upstream::answering_each(vec![
                reply::whole(200, &[json, encoded], pack(form.whole(form.model()))),
                reply::whole(400, &[json, encoded], pack(refused.clone())),
                [head.as_bytes(), &stream, reply::LAST_CHUNK].concat(),
            ])
            .await;
            let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "errors = \"own\"")).await;
            let mut client = gateway.connect().await;
            for (is_stream, status, expected) in
                [(false, 200, form.whole(form.model())), (false, 400, refused), (true, 200, frames.concat())]
            {
                let answer = client.ask(form.request(is_stream)).await;
                assert_eq!((answer.status(), answer.text()), (status, &*expected), "{form:?} {encoding}");
                assert_eq!(answer.get("content-encoding"), None);
            }
            assert_eq!(upstream.connections(), 1, "{form:?} {encoding}");
        }
    }
}

/// Text whose compressed form has no end was not checked, and may be part of the response only.
#[tokio::test]
async fn compression_that_ends_early_is_an_error() {
    let json = ("content-type", "application/json");
    let event_stream = ("content-type", "text/event-stream");
    for encoding in ENCODINGS {
        for form in Form::ALL {
            let encoded = ("content-encoding", encoding);
            let mut pieces = compressed(encoding, &[form.whole(form.model())]);
            pieces.pop();
            let frames = form.frames(form.model());
            let unfinished = frames[..frames.len() - if form == Form::Chat { 3 } else { 1 }].concat();
            let mut streamed = compressed(encoding, &[unfinished]);
            streamed.pop();
            let upstream = Upstream::answering_each(vec![
                reply::whole(200, &[json, encoded], pieces.concat()),
                reply::whole(200, &[event_stream, encoded], streamed.concat()),
            ])
            .await;
            let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
            let answer = gateway.ask(form.request(false)).await;
            assert_eq!(answer.status(), 500, "{form:?} {encoding}: {}", answer.text());
            form.error(&answer);
            let answer = gateway.ask(form.request(true)).await;
            assert!(!form.looks_complete(answer.text()), "{form:?} {encoding}: {}", answer.text());
            assert!(form.stream_error(answer.text()).is_some(), "{form:?} {encoding}: {}", answer.text());
        }
    }
}

/// A frame that the compressor flushed is forwarded at once.
#[tokio::test]
async fn compression_does_not_delay_stream_frames() {
    for encoding in ENCODINGS {
        let frames = Form::Chat.frames("gpt");
        let pieces = compressed(encoding, &frames);
        let (seen, wait) = tokio::sync::mpsc::unbounded_channel::<()>();
        let wait = Arc::new(tokio::sync::Mutex::new(wait));
        let upstream = Upstream::start(move |mut conn| {
            let (pieces, wait) = (pieces.clone(), wait.clone());
            async move {
                conn.request().await;
                let encoded = ("content-encoding", encoding);
                conn.send(reply::head(
                    200,
                    &[("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), encoded],
                ))
                .await;
                let mut wait = wait.lock().await;
                for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                    conn.send(reply::chunk(piece)).await;
                    wait.recv().await;
                }
                conn.send(reply::LAST_CHUNK).await;
                conn.closed().await;
            }
        })
        .await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut client = gateway.connect().await;
        client.send(Form::Chat.request(true)).await;
        client.head().await;
        let mut all = Vec::new();
        for frame in &frames {
            crate::support::sse::read_until(&mut client, &mut all, frame).await;
            seen.send(()).unwrap();
        }
        seen.send(()).unwrap();
        while let crate::support::http1::Piece::Data(piece) = client.piece().await {
            all.extend_from_slice(&piece);
        }
        assert_eq!(String::from_utf8(all).unwrap(), frames.concat(), "{encoding}");
    }
}

#[tokio::test]
async fn method_other_than_post_is_405() {
    let (upstream, gateway) = providers().await;
    for method in ["HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH"] {
        let mut client = gateway.connect().await;
        client
            .send(crate::support::client::request(
                method,
                "/v1/chat/completions",
                &[("authorization", &format!("Bearer {KEY}"))],
            ))
            .await;
        assert_eq!(client.head().await.status(), 405, "{method}");
    }
    assert_eq!(upstream.connections(), 0);
}
