//! Streams in flight: frames are forwarded as they arrive, a cut stream never looks complete, and disconnects and
//! silence are detected.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use crate::support::client::Client;
use crate::support::form::{Form, every_form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::Setup;
use crate::support::sse::read_until;
use crate::support::upstream::{Conn, Upstream};
use crate::support::{Gate, http2, reply, soon, until};

/// How a provider's connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is closed before the end of the body.
    Close,
    /// It is reset before the end of the body.
    Reset,
    /// The body ends as its framing announces.
    Complete,
}

/// Script of a provider's response: `before`, a gate, `after`, and the end.
#[derive(Clone, Debug)]
struct Script {
    before: Vec<u8>,
    after: Vec<u8>,
    end: End,
    gate: Gate,
}

/// Starts a provider that follows the script that is set when a connection opens.
async fn scripted() -> (Upstream, Arc<std::sync::Mutex<Option<Script>>>) {
    let script = Arc::new(std::sync::Mutex::new(None::<Script>));
    let current = script.clone();
    let upstream = Upstream::start(move |mut conn| {
        let script = current.lock().unwrap().clone().unwrap();
        async move {
            conn.request().await;
            conn.send(script.before).await;
            script.gate.passed().await;
            conn.send(script.after).await;
            match script.end {
                End::Close => {}
                End::Reset => conn.reset(),
                // The connection closes here: the next request uses another one.
                End::Complete => {
                    conn.send(reply::LAST_CHUNK).await;
                }
            }
        }
    })
    .await;
    (upstream, script)
}

/// Starts an upstream with one script for all connections.
async fn ending(before: Vec<u8>, after: Vec<u8>, end: End, gate: Gate) -> Upstream {
    let (upstream, script) = scripted().await;
    *script.lock().unwrap() = Some(Script { before, after, end, gate });
    upstream
}

/// Reads a stream to its end, of whatever kind, and returns that.
async fn rest(client: &mut Client, seen: &mut Vec<u8>) -> Piece {
    loop {
        match client.piece().await {
            Piece::Data(piece) => seen.extend_from_slice(&piece),
            end => return end,
        }
    }
}

/// The provider sends a frame only after the client has received the previous one.
#[tokio::test]
async fn stream_frames_are_forwarded_as_they_arrive() {
    for form in Form::ALL {
        for model in [form.model(), form.alias().0] {
            let frames = form.frames(model);
            let (seen, wait) = mpsc::unbounded_channel::<()>();
            let wait = Arc::new(Mutex::new(wait));
            let sent = frames.clone();
            let upstream = Upstream::start(move |mut conn| {
                let (frames, wait) = (sent.clone(), wait.clone());
                async move {
                    conn.request().await;
                    conn.send(reply::stream_head()).await;
                    for frame in &frames {
                        conn.send(reply::chunk(frame)).await;
                        wait.lock().await.recv().await;
                    }
                    conn.send(reply::LAST_CHUNK).await;
                    conn.closed().await;
                }
            })
            .await;
            let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
            let mut client = gateway.connect().await;
            client.send(form.request_for(model, true)).await;
            assert_eq!(client.head().await.status(), 200);
            let mut all = Vec::new();
            for (n, _) in frames.iter().enumerate() {
                let so_far = frames[..=n].concat();
                while all.len() < so_far.len() {
                    match client.piece().await {
                        Piece::Data(piece) => all.extend_from_slice(&piece),
                        end => panic!("{end:?} after {n} frames"),
                    }
                }
                assert_eq!(String::from_utf8_lossy(&all), so_far);
                seen.send(()).unwrap();
            }
            assert_eq!(rest(&mut client, &mut all).await, Piece::End);
        }
    }
}

#[tokio::test]
async fn stream_frames_over_http2_are_forwarded_as_they_arrive() {
    for form in Form::ALL {
        let frames = form.frames(form.model());
        let (seen, wait) = mpsc::unbounded_channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let sent = frames.clone();
        let upstream = Upstream::start_h2(None, move |mut exchange| {
            let (frames, wait) = (sent.clone(), wait.clone());
            async move {
                let mut send = exchange.head(200, "text/event-stream");
                for frame in frames {
                    http2::send_all(&mut send, frame.into(), false).await.unwrap();
                    wait.lock().await.recv().await;
                }
                http2::send_all(&mut send, bytes::Bytes::new(), true).await.unwrap();
            }
        })
        .await;
        let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "http = \"2\"")).await;
        let mut client = http2::Client::connect(gateway.addr).await;
        let answer = soon(client.request(form, true).await).await.unwrap();
        let mut body = answer.into_body();
        let mut all = Vec::new();
        for n in 0..frames.len() {
            let so_far = frames[..=n].concat();
            while all.len() < so_far.len() {
                let piece = soon(body.data()).await.unwrap().unwrap();
                let _ = body.flow_control().release_capacity(piece.len());
                all.extend_from_slice(&piece);
            }
            assert_eq!(String::from_utf8_lossy(&all), so_far);
            seen.send(()).unwrap();
        }
        let (more, error) = http2::read_body(body).await;
        assert!(more.is_empty() && error.is_none(), "{error:?}");
    }
}

/// Wherever a stream is cut, the frames before it arrive, then an error in the client's format, and never a regular end
/// of stream.
#[tokio::test]
async fn stream_cut_ends_with_an_error_and_never_looks_complete() {
    every_form(|form| async move {
        let frames = form.frames(form.model());
        let before = [reply::stream_head().into_bytes(), reply::chunk(&frames[0])].concat();
        let half = &frames[1][..frames[1].len() / 2];
        let all_but_the_end: usize = frames.len() - if form == Form::Chat { 3 } else { 1 };
        let middle = frames[1..all_but_the_end].concat();
        let (upstream, script) = scripted().await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut asked = 0;
        // One client connection for all cases: the response head announced keep-alive.
        let mut client = gateway.connect().await;
        for (what, after, end, arrives) in [
            ("after a frame", vec![], End::Close, ""),
            ("after a frame, by a reset", vec![], End::Reset, ""),
            ("after a frame, as if complete", vec![], End::Complete, ""),
            ("in a frame", reply::chunk(half), End::Close, ""),
            ("in a frame, as if complete", reply::chunk(half), End::Complete, ""),
            ("in a chunk", reply::chunk(&frames[1])[..9].to_vec(), End::Close, ""),
            ("in the size of a chunk", b"1".to_vec(), End::Close, ""),
            ("before the last frame", reply::chunk(&middle), End::Close, &middle),
            ("before the last frame, as if complete", reply::chunk(&middle), End::Complete, &middle),
            ("by what is no chunk", b"zz\r\nHTTP/1.1 200 OK\r\n".to_vec(), End::Close, ""),
        ] {
            let gate = Gate::new();
            *script.lock().unwrap() = Some(Script { before: before.clone(), after, end, gate: gate.clone() });
            asked += 1;
            client.send(form.request(true)).await;
            assert_eq!(client.head().await.status(), 200);
            let mut seen = Vec::new();
            read_until(&mut client, &mut seen, &frames[0]).await;
            gate.open();
            // The HTTP body is complete, so that the client reads the error.
            assert_eq!(rest(&mut client, &mut seen).await, Piece::End, "{form:?} {what}");
            let text = String::from_utf8(seen).unwrap();
            let expected = format!("{}{arrives}", frames[0]);
            assert!(text.starts_with(&expected), "{form:?} {what}: {text}");
            let (_, message) = form.stream_error(&text).unwrap_or_else(|| panic!("{form:?} {what}: {text}"));
            assert!(!message.contains("127.0.0.1"), "{message}");
            assert!(!form.looks_complete(&text), "{form:?} {what}: {text}");
            assert_eq!(upstream.count(), asked, "{form:?} {what}: asked twice");
        }
        for line in gateway.wait_for_log(asked).await {
            assert_eq!((&line["status"], &line["error"]), (&200.into(), &"upstream_broken".into()), "{line}");
        }
    })
    .await;
}

#[tokio::test]
async fn stream_cut_json_array_is_valid_json_with_an_error() {
    let frame = Form::Generate.frames("gemini").remove(0);
    let element = frame.trim_end().strip_prefix("data: ").unwrap().to_owned();
    let head = reply::head(200, &[("content-type", "application/json"), ("transfer-encoding", "chunked")]);
    for (what, body) in [
        ("after an element", format!("[{element}")),
        ("after a comma", format!("[{element},\r\n")),
        ("in an element", format!("[{element},\r\n{}", &element[..30])),
        ("after the bracket", "[".to_owned()),
    ] {
        for end in [End::Close, End::Complete] {
            let gate = Gate::new();
            gate.open();
            let before = [head.as_bytes(), &reply::chunk(&body)].concat();
            let upstream = ending(before, vec![], end, gate).await;
            let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
            let path = "/v1beta/models/gemini:streamGenerateContent";
            let request = crate::support::client::post(path, Form::Generate.body("gemini", true));
            let answer = gateway.ask(request).await;
            let json = answer.json();
            let error = match json.as_array() {
                Some(elements) => elements.last().unwrap(),
                None => &json,
            };
            Form::Generate.error_in(error, u16::try_from(error["error"]["code"].as_u64().unwrap()).unwrap());
            assert!(!answer.text().contains("finishReason"), "{what}: {}", answer.text());
        }
    }
}

/// Nothing was sent yet, so the client receives an error status.
#[tokio::test]
async fn stream_broken_before_the_first_frame_is_an_error_status() {
    every_form(|form| async move {
        let whole = reply::json(200, form.whole(form.model()));
        let stream = reply::stream_head();
        let (upstream, script) = scripted().await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut asked = 0;
        for (what, sent, end) in [
            ("at once", vec![], End::Close),
            ("at once, by a reset", vec![], End::Reset),
            ("in the head", whole[..20].to_vec(), End::Close),
            ("behind the head", reply::head(200, &[("content-length", "100")]).into_bytes(), End::Close),
            ("in the document", whole[..whole.len() - 10].to_vec(), End::Close),
            ("in a chunk", [stream.as_bytes(), &reply::chunk("data: {}")[..5]].concat(), End::Close),
            ("before the first frame", stream.clone().into_bytes(), End::Close),
            ("an empty stream", stream.clone().into_bytes(), End::Complete),
            ("no http", b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec(), End::Close),
        ] {
            let gate = Gate::new();
            gate.open();
            *script.lock().unwrap() = Some(Script { before: sent, after: vec![], end, gate });
            asked += 1;
            let is_stream = what.contains("chunk") || what.contains("stream") || what.contains("frame");
            let answer = gateway.ask(form.request(is_stream)).await;
            assert_eq!(answer.status(), 500, "{form:?} {what}: {}", answer.text());
            form.error(&answer);
            assert_eq!(upstream.count(), asked, "{form:?} {what}: asked twice");
        }
    })
    .await;
}

#[tokio::test]
async fn stream_reset_by_an_http2_provider_is_an_error() {
    for form in Form::ALL {
        let frames = form.frames(form.model());
        let gate = Gate::new();
        let (first, opened) = (frames[0].clone(), gate.clone());
        let upstream = Upstream::start_h2(None, move |mut exchange| {
            let (first, gate) = (first.clone(), opened.clone());
            async move {
                let mut send = exchange.head(200, "text/event-stream");
                http2::send_all(&mut send, first.into(), false).await.unwrap();
                gate.passed().await;
                send.send_reset(h2::Reason::INTERNAL_ERROR);
            }
        })
        .await;
        let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "http = \"2\"")).await;
        let mut client = gateway.connect().await;
        client.send(form.request(true)).await;
        client.head().await;
        let mut seen = Vec::new();
        read_until(&mut client, &mut seen, &frames[0]).await;
        gate.open();
        assert_eq!(rest(&mut client, &mut seen).await, Piece::End);
        let text = String::from_utf8(seen).unwrap();
        assert!(form.stream_error(&text).is_some() && !form.looks_complete(&text), "{form:?}: {text}");
    }
}

/// Starts an upstream that sends these bytes and then nothing, until the connection ends.
async fn silent(sent: Vec<u8>) -> Upstream {
    Upstream::start(move |mut conn: Conn| {
        let sent = sent.clone();
        async move {
            conn.request().await;
            conn.send(sent).await;
            conn.closed().await;
        }
    })
    .await
}

#[tokio::test]
async fn stream_client_disconnect_ends_the_exchange() {
    let frame = Form::Chat.frames("gpt").remove(0);
    let begun = [reply::stream_head().into_bytes(), reply::chunk(&frame)].concat();
    for (what, sent) in [
        ("before the head", vec![]),
        ("before the first frame", reply::stream_head().into_bytes()),
        ("in the stream", begun),
    ] {
        let upstream = silent(sent).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut client = gateway.connect().await;
        client.send(Form::Chat.request(true)).await;
        upstream.wait_for(1).await;
        if what == "in the stream" {
            client.head().await;
            read_until(&mut client, &mut Vec::new(), &frame).await;
        }
        drop(client);
        until(|| upstream.closed() == 1).await;
        let line = gateway.wait_for_log(1).await.remove(0);
        assert_eq!(line["error"], "client_gone", "{what}: {line}");
        gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
        // The same over HTTP/2, where the client resets only the stream.
        let mut client = http2::Client::connect(gateway.addr).await;
        let answer = client.request(Form::Chat, true).await;
        upstream.wait_for(2).await;
        if what == "in the stream" {
            let mut body = soon(answer).await.unwrap().into_body();
            soon(body.data()).await.unwrap().unwrap();
            drop(body);
        } else {
            drop(answer);
        }
        until(|| upstream.closed() == 2).await;
        assert!(!client.is_closed(), "{what}");
        assert_eq!(gateway.wait_for_log(2).await[1]["error"], "client_gone", "{what}");
    }
}

#[tokio::test]
async fn stream_client_disconnect_resets_the_http2_upstream_stream() {
    let (told, mut resets) = mpsc::unbounded_channel();
    let upstream = Upstream::start_h2(None, move |mut exchange| {
        let told = told.clone();
        async move {
            let mut send = exchange.head(200, "text/event-stream");
            let frame = Form::Chat.frames("gpt").remove(0);
            http2::send_all(&mut send, frame.into(), false).await.unwrap();
            let reason = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
            told.send(reason.unwrap()).unwrap();
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "http = \"2\"")).await;
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request(true)).await;
    read_head_and_frame(&mut client).await;
    drop(client);
    assert_eq!(soon(resets.recv()).await, Some(h2::Reason::CANCEL));
    // The connection is still used.
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request(true)).await;
    read_head_and_frame(&mut client).await;
    assert_eq!(upstream.connections(), 1);
}

async fn read_head_and_frame(client: &mut Client) {
    assert_eq!(client.head().await.status(), 200);
    let frame = Form::Chat.frames("gpt").remove(0);
    read_until(client, &mut Vec::new(), &frame).await;
}

#[tokio::test]
async fn timeout_of_a_silent_provider() {
    // Each case has one short time-out, so that no other one can come first on a busy machine.
    let (first_byte, idle) = ("timeouts = { first_byte = \"500ms\" }", "timeouts = { idle = \"1s\" }");
    every_form(|form| async move {
        let frame = form.frames(form.model()).remove(0);
        let late = if form == Form::Messages { 500 } else { 504 };
        // Before the head.
        let upstream = silent(vec![]).await;
        let gateway = Gateway::start(&Setup::providers_with(upstream.addr, first_byte)).await;
        for stream in [false, true] {
            let answer = gateway.ask(form.request(stream)).await;
            assert_eq!(answer.status(), late, "{form:?}: {}", answer.text());
            form.error(&answer);
        }
        until(|| upstream.closed() == 2).await;
        // In a document.
        let upstream = silent(reply::head(200, &[("content-length", "50")]).into_bytes()).await;
        let gateway = Gateway::start(&Setup::providers_with(upstream.addr, idle)).await;
        let answer = gateway.ask(form.request(false)).await;
        assert_eq!(answer.status(), late, "{form:?}: {}", answer.text());
        form.error(&answer);
        // In a stream.
        let upstream = silent([reply::stream_head().into_bytes(), reply::chunk(&frame)].concat()).await;
        let gateway = Gateway::start(&Setup::providers_with(upstream.addr, idle)).await;
        let answer = gateway.ask(form.request(true)).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.complete && form.stream_error(answer.text()).is_some(), "{form:?}: {}", answer.text());
        assert!(!form.looks_complete(answer.text()));
        until(|| upstream.closed() == 1).await;
        let line = gateway.wait_for_log(1).await.remove(0);
        assert_eq!(line["error"], "upstream_timeout", "{line}");
    })
    .await;
}

/// A provider that keeps sending is stopped by the time-out of the whole exchange.
#[tokio::test]
async fn timeout_of_the_whole_exchange() {
    let upstream = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.send(reply::stream_head()).await;
        let frame = reply::chunk(Form::Chat.frames("gpt").remove(1));
        while conn.try_send(&frame).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    let lines = "timeouts = { total = \"2s\" }";
    let gateway = Gateway::start(&Setup::providers_with(upstream.addr, lines)).await;
    let answer = gateway.ask(Form::Chat.request(true)).await;
    assert_eq!(answer.status(), 200);
    assert!(Form::Chat.stream_error(answer.text()).is_some(), "{}", answer.text());
    until(|| upstream.closed() == 1).await;
}

/// A provider that pauses before its first frame: the client receives the head meanwhile, and a later error is part of
/// the stream.
#[tokio::test]
async fn stream_head_is_sent_before_a_late_first_frame() {
    every_form(|form| async move {
        if !matches!(form, Form::Chat | Form::Messages) {
            return;
        }
        let gate = Gate::new();
        let body = provider_error(form, 503, "overloaded, sorry");
        let frame = match form {
            Form::Messages => format!("event: error\ndata: {body}\n\n"),
            _ => format!("data: {body}\n\n"),
        };
        let upstream =
            ending(reply::stream_head().into_bytes(), reply::chunk(frame), End::Complete, gate.clone()).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut client = gateway.connect().await;
        client.send(form.request(true)).await;
        assert_eq!(client.head().await.status(), 200);
        gate.open();
        let mut seen = Vec::new();
        assert_eq!(rest(&mut client, &mut seen).await, Piece::End);
        let text = String::from_utf8(seen).unwrap();
        assert!(text.contains("overloaded, sorry") && !form.looks_complete(&text), "{text}");
    })
    .await;
}
