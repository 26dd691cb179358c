//! Client and provider of one format: requests and responses pass byte for byte, except for what must change.

use serde_json::{Value, json};

use crate::routing::{every_provider, providers};
use crate::support::client::{Answer, post};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;
use crate::support::{http2, reply};

#[tokio::test]
async fn verbatim_documents_and_streams_pass_unchanged() {
    let (upstream, gateway) = providers().await;
    for form in Form::ALL {
        let model = form.model();
        let answer = gateway.ask(form.request(false)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*form.whole(model)), "{form:?}");
        assert_eq!(answer.get("content-type"), Some("application/json"));
        assert_eq!(answer.get("content-length"), Some(&*form.whole(model).len().to_string()));
        let answer = gateway.ask(form.request(true)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*form.frames(model).concat()), "{form:?}");
        assert!(answer.complete);
        assert_eq!(answer.get("content-type"), Some("text/event-stream"));
        assert_eq!(answer.get("cache-control"), Some("no-cache"));
        assert_eq!(answer.get("x-accel-buffering"), Some("no"));
        assert_eq!(answer.get("content-length"), None);
        // The provider received the request bodies unchanged.
        let asked: Vec<_> = upstream.requests().into_iter().rev().take(2).collect();
        assert_eq!(asked[0].text(), form.body(model, true), "{form:?}");
        assert_eq!(asked[1].text(), form.body(model, false), "{form:?}");
    }
}

#[tokio::test]
async fn verbatim_renamed_model_is_the_only_change() {
    let (upstream, gateway) = providers().await;
    for form in Form::ALL {
        let (alias, name) = form.alias();
        let returned = if form == Form::Generate { "gemini" } else { name };
        for stream in [false, true] {
            let answer = gateway.ask(form.request_for(alias, stream)).await;
            let sent = if stream { form.frames(returned).concat() } else { form.whole(returned) };
            // Only the model members of a response contain this text.
            let expected = sent.replace(&format!("\"{returned}\""), &format!("\"{alias}\""));
            assert_eq!((answer.status(), answer.text()), (200, &*expected), "{form:?} {stream}");
            let request = upstream.last_request();
            match form {
                Form::Generate => assert!(request.head.target().contains(&format!("/models/{name}:"))),
                _ => assert_eq!(request.text(), form.body(alias, stream).replace(alias, name)),
            }
        }
    }
}

/// The member `model` may be anywhere in the body; nested members of that name are not changed.
#[tokio::test]
async fn verbatim_rename_changes_only_the_outermost_model_member() {
    let upstream = every_provider().await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    for body in [
        "{\"messages\":[{\"role\":\"user\",\"content\":\"model\",\"model\":\"fast-gpt\"}],\r\n\t\"tools\":[{\"model\":\
         \"fast-gpt\"}] , \"model\" : \"fast-gpt\" ,\"x\":{\"model\":\"fast-gpt\"},\"n\":1.50e+2}\n",
        "  {\"mod\\u0065l\":\"fast\\u002dgpt\",\"messages\":[],\"seed\":12345678901234567890}",
        "{\"model\":\"fast-gpt\",\"messages\":[],\"a\":\"\\\"model\\\":\\\"fast-gpt\\\"\",\"b\":\"\\\\\"}",
    ] {
        let answer = gateway.ask(post("/v1/chat/completions", body)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let expected = match body.find("\"fast\\u002dgpt\"") {
            Some(_) => body.replace("\"fast\\u002dgpt\"", "\"gpt-2026-01-01\""),
            None => {
                let at = body
                    .find(" : \"fast-gpt\"")
                    .map(|at| at + 3)
                    .unwrap_or_else(|| body.find(":\"fast-gpt\"").unwrap() + 1);
                format!("{}\"gpt-2026-01-01\"{}", &body[..at], &body[at + "\"fast-gpt\"".len()..])
            }
        };
        assert_eq!(upstream.last_request().text(), expected);
    }
}

/// For a chat stream without `include_usage` the gateway requests usage from the provider and removes it from the
/// client's stream.
#[tokio::test]
async fn usage_of_a_chat_stream_is_requested_and_removed() {
    let (upstream, gateway) = providers().await;
    let frames = Form::Chat.frames("gpt");
    let without: String = frames.iter().filter(|frame| !frame.contains("\"choices\":[]")).cloned().collect();
    for (options, asked, kept) in [
        ("", true, false),
        (",\"stream_options\":{}", true, false),
        (",\"stream_options\":{\"include_usage\":false}", true, false),
        (",\"stream_options\":null", true, false),
        (",\"stream_options\":{\"include_usage\":true}", false, true),
    ] {
        let body = format!("{{\"model\":\"gpt\",\"stream\":true,\"messages\":[]{options}}}");
        let answer = gateway.ask(post("/v1/chat/completions", &body)).await;
        let expected = if kept { frames.concat() } else { without.clone() };
        assert_eq!((answer.status(), answer.text()), (200, &*expected), "{options}");
        let request = upstream.last_request();
        assert_eq!(request.json()["stream_options"]["include_usage"], true, "{options}");
        assert_eq!(request.text() != body, asked, "{options}");
        let line = gateway.wait_for_log(upstream.count()).await.pop().unwrap();
        assert_eq!((&line["input_tokens"], &line["output_tokens"]), (&json!(11), &json!(7)), "{line}");
        assert_eq!(line["finish"], "stop");
    }
    let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "ask_usage = false")).await;
    let body = "{\"model\":\"gpt\",\"stream\":true,\"messages\":[]}";
    assert_eq!(gateway.ask(post("/v1/chat/completions", body)).await.status(), 200);
    assert_eq!(upstream.last_request().text(), body);
}

/// A client that requests the usage of a stream receives it (docs/specification.md, 2.1), with or without `[DONE]`.
#[tokio::test]
async fn usage_is_added_to_a_chat_stream_without_it() {
    let chunk = |choices: Value| {
        let chunk = json!({"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt", "choices": choices});
        format!("data: {chunk}\n\n")
    };
    let said = chunk(json!([{"index": 0, "delta": {"role": "assistant", "content": "Good day to you."}}]))
        + &chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]));
    for done in ["data: [DONE]\n\n", ""] {
        let upstream = Upstream::answering(reply::stream(&[format!("{said}{done}")])).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let body = r#"{"model":"gpt","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hi"}]}"#;
        let answer = gateway.ask(post("/v1/chat/completions", body)).await;
        let told = answer.text().strip_prefix(&said).unwrap_or_else(|| panic!("{}", answer.text()));
        let told = told.strip_suffix(done).and_then(|told| told.strip_prefix("data: ")).unwrap();
        let told: Value = serde_json::from_str(told).unwrap();
        let count = |name: &str| told["usage"][name].as_u64().unwrap();
        assert!(count("prompt_tokens") > 0 && count("completion_tokens") > 0, "{told}");
        assert_eq!(count("total_tokens"), count("prompt_tokens") + count("completion_tokens"));
        assert_eq!(
            (&told["id"], &told["model"], &told["choices"]),
            (&json!("c-1"), &json!("gpt"), &json!([]))
        );
        assert!(told["created"].as_u64().unwrap() > 1_700_000_000);
    }
}

/// Chat completions always carry `usage` (docs/specification.md, 2.1), although some self-hosted servers report none.
#[tokio::test]
async fn usage_is_added_to_a_chat_completion_without_it() {
    let told = json!({"prompt_tokens": 5, "completion_tokens": 3});
    for (usage, counted) in [(None, true), (Some(Value::Null), true), (Some(told), false)] {
        let mut body = json!({"id": "c-1", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hello there, how are you?"}, "finish_reason": "stop"}
        ]});
        if let Some(usage) = usage.clone() {
            body["usage"] = usage;
        }
        let upstream = Upstream::answering(reply::json(200, body.to_string())).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let answer = gateway.ask(Form::Chat.request(false)).await;
        assert!(answer.status() == 200 && answer.complete, "{}", answer.text());
        let mut given = answer.json();
        if counted {
            let figure = |name: &str| given["usage"][name].as_u64().unwrap();
            let (input, output) = (figure("prompt_tokens"), figure("completion_tokens"));
            assert!((1..=200).contains(&input) && (4..=12).contains(&output), "{given}");
            assert_eq!(figure("total_tokens"), input + output);
            // The log has the same counts as the client.
            let line = &gateway.wait_for_log(1).await[0];
            assert_eq!(
                (&line["input_tokens"], &line["output_tokens"]),
                (&input.into(), &output.into()),
                "{line}"
            );
            given.as_object_mut().unwrap().remove("usage");
            body.as_object_mut().unwrap().remove("usage");
        }
        assert_eq!(given, body, "{usage:?}");
    }
}

#[tokio::test]
async fn usage_is_in_the_log_and_in_the_metrics() {
    let (_upstream, gateway) = providers().await;
    let mut lines = 0;
    for form in Form::ALL {
        for stream in [false, true] {
            assert_eq!(gateway.ask(form.request(stream)).await.status(), 200);
            lines += 1;
            let line = gateway.wait_for_log(lines).await.pop().unwrap();
            for (field, expected) in [
                ("status", json!(200)),
                ("upstream_status", json!(200)),
                ("key", json!("alice")),
                ("model", json!(form.model())),
                ("input_tokens", json!(11)),
                ("output_tokens", json!(7)),
                ("attempts", json!(1)),
                ("client", json!("127.0.0.1")),
                ("http", json!("1.1")),
                ("method", json!("POST")),
            ] {
                assert_eq!(line[field], expected, "{field}: {line}");
            }
            assert_eq!(line["stream"].as_bool().unwrap_or(false), stream, "{line}");
            assert_eq!(line["error"], Value::Null, "{line}");
            assert!(line["finish"].is_string(), "{line}");
            let length = form.body(form.model(), stream).len();
            assert_eq!(line["request_bytes"], length, "{line}");
            let frames = form.frames(form.model());
            if stream {
                assert_eq!(line["response_bytes"], frames.concat().len(), "{line}");
                // `[DONE]` may not be counted as a frame.
                assert!(line["frames"].as_u64().unwrap() >= frames.len() as u64 - 1, "{line}");
                assert!(line["first_token_ms"].is_number(), "{line}");
            }
        }
    }
    gateway.wait_for_metric("gateway_requests_total", &[("status", "200")], 8.0).await;
    let metrics = gateway.metrics_after(8).await;
    assert_eq!(metrics.sum("gateway_requests_total", &[("endpoint", "messages"), ("model", "claude")]), 2.0);
    assert_eq!(metrics.sum("gateway_errors_total", &[]), 0.0);
    assert_eq!(metrics.sum("gateway_requests_in_flight", &[]), 0.0);
}

/// Embeddings of a provider with the client's format pass unchanged.
#[tokio::test]
async fn verbatim_embeddings_pass_unchanged() {
    let vector = "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[1.0e-3,-0.50]}],\
                  \"model\":\"gpt-2026-01-01\",\"usage\":{\"prompt_tokens\":5,\"total_tokens\":5}}\n";
    let packed = vector.replace("[1.0e-3,-0.50]", "\"bxKDOgAAAL8=\"");
    let native = "{ \"embedding\": {\"values\": [0.10, -1]}, \"usageMetadata\": {\"promptTokenCount\": 3} }";
    let batch = "{\"embeddings\": [{\"values\": [0.10]}, {\"values\": [2]}], \"usageMetadata\": {\"promptTokenCount\": 3}}";
    let passed = packed.clone();
    let upstream = Upstream::start(move |mut conn| {
        let packed = packed.clone();
        async move {
            while let Some(request) = conn.request().await {
                let target = request.head.target();
                let body = match () {
                    () if target == "/v1/embeddings" && request.text().contains("base64") => &*packed,
                    () if target == "/v1/embeddings" => vector,
                    () if target.ends_with(":embedContent") => native,
                    () if target.ends_with(":batchEmbedContents") => batch,
                    () => panic!("{target}"),
                };
                conn.send(reply::json(200, body)).await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    for (body, expected) in [
        ("{\"input\":[\"a\",\"b\"],\"model\":\"fast-gpt\",\"encoding_format\":\"base64\"}", &*passed),
        ("{\"input\":\"a\", \"model\":\"fast-gpt\",\"user\":\"u\"}", vector),
    ] {
        let answer = gateway.ask(post("/v1/embeddings", body)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*expected.replace("gpt-2026-01-01", "fast-gpt")));
        assert_eq!(upstream.last_request().text(), body.replace("fast-gpt", "gpt-2026-01-01"));
    }
    // Usage members of docs/specification.md are added; numbers keep their notation.
    let usage = "\"metadata\":{\"usage\":{\"prompt_tokens\":3,\"total_tokens\":3}},\"usageMetadata\":{\"promptTokenCount\":3}";
    let content = "{\"content\":{\"parts\":[{\"text\":\"x\"}]},\"title\":\"t\"}";
    let requests = format!("{{\"requests\":[{content},{content}]}}");
    for (path, body, expected) in [
        (
            "/v1beta/models/gemini:embedContent",
            content,
            format!("{{\"embedding\":{{\"values\":[0.10, -1]}},{usage}}}"),
        ),
        (
            "/v1/models/gemini:embedContent",
            content,
            format!("{{\"embedding\":{{\"values\":[0.10, -1]}},{usage}}}"),
        ),
        (
            "/v1beta/models/gemini:batchEmbedContents",
            &requests,
            format!("{{\"embeddings\":[{{\"values\":[0.10]}},{{\"values\":[2]}}],{usage}}}"),
        ),
    ] {
        let answer = gateway.ask(post(path, body)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*expected), "{path}");
        let asked = upstream.last_request().text().to_owned();
        assert_eq!(asked.replace("\"model\":\"models/gemini\",", ""), body, "{path}");
    }
}

/// The stream of Gemini without `alt=sse` is one JSON array, sent in pieces.
#[tokio::test]
async fn verbatim_json_array_stream_passes_in_pieces() {
    let pieces: Vec<String> = Form::Generate
        .frames("gemini")
        .iter()
        .enumerate()
        .map(|(n, frame)| {
            let element = frame.trim_end().strip_prefix("data: ").unwrap().to_owned();
            format!("{}{element}", if n == 0 { "[" } else { ",\r\n" })
        })
        .chain(["\r\n]\n".to_owned()])
        .collect();
    let head = reply::head(200, &[("content-type", "application/json"), ("transfer-encoding", "chunked")]);
    let chunks: Vec<u8> = pieces.iter().flat_map(reply::chunk).collect();
    let answer = [head.as_bytes(), &chunks, reply::LAST_CHUNK].concat();
    let upstream = Upstream::answering(answer).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let body = Form::Generate.body("gemini", true);
    for path in
        ["/v1beta/models/gemini:streamGenerateContent", "/v1/models/gemini:streamGenerateContent?alt=json"]
    {
        let answer = gateway.ask(post(path, &body)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*pieces.concat()), "{path}");
        assert_eq!(answer.json().as_array().unwrap().len(), 3);
        assert_eq!(answer.get("content-type"), Some("application/json"));
        assert_eq!(upstream.last_request().head.target(), "/v1beta/models/gemini:streamGenerateContent");
    }
    // A renamed model, in every element.
    let answer = gateway.ask(post("/v1beta/models/fast-gemini:streamGenerateContent", &body)).await;
    assert_eq!(answer.text(), pieces.concat().replace("\"gemini\"", "\"fast-gemini\""));
}

/// The client receives the same content however the provider frames its response.
#[tokio::test]
async fn verbatim_content_is_independent_of_upstream_framing() {
    for form in Form::ALL {
        let whole = form.whole(form.model());
        let stream = form.frames(form.model()).concat();
        let kind = [("content-type", "application/json")];
        let events = ("content-type", "text/event-stream; charset=utf-8");
        let cut = |text: &str, size: usize| -> Vec<u8> {
            text.as_bytes().chunks(size).flat_map(reply::chunk).collect()
        };
        let chunked = ("transfer-encoding", "chunked");
        let answers = [
            (
                false,
                [
                    reply::head(200, &[kind[0], chunked]).as_bytes(),
                    &cut(&whole, 3),
                    b"0\r\nx-checksum: 1\r\n\r\n",
                ]
                .concat(),
            ),
            (
                false,
                [reply::head(200, &[kind[0], chunked]).as_bytes(), &cut(&whole, 1), reply::LAST_CHUNK]
                    .concat(),
            ),
            (false, reply::whole(200, &[("Content-Type", "application/json; charset=utf-8")], &whole)),
            (
                true,
                [reply::head(200, &[events, chunked]).as_bytes(), &cut(&stream, 1), reply::LAST_CHUNK]
                    .concat(),
            ),
            (
                true,
                [reply::head(200, &[events, chunked]).as_bytes(), &cut(&stream, 10_000), reply::LAST_CHUNK]
                    .concat(),
            ),
            (true, reply::whole(200, &[events], &stream)),
            (
                true,
                [
                    reply::head(103, &[("link", "x")]).into_bytes(),
                    reply::head(100, &[]).into_bytes(),
                    reply::whole(200, &[events], &stream),
                ]
                .concat(),
            ),
        ];
        let count = answers.len();
        let upstream =
            Upstream::answering_each(answers.iter().map(|(_, answer)| answer.clone()).collect()).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut client = gateway.connect().await;
        for (n, (is_stream, _)) in answers.iter().enumerate() {
            let answer = client.ask(form.request(*is_stream)).await;
            let expected = if *is_stream { &stream } else { &whole };
            assert_eq!((answer.status(), answer.text()), (200, &**expected), "{form:?} {n}");
            assert!(answer.complete && answer.trailers.is_empty(), "{form:?} {n}");
        }
        assert_eq!((upstream.count(), upstream.connections()), (count, 1), "{form:?}");
        // A response that ends with its connection, as in HTTP/1.0.
        for (is_stream, expected, kind) in [(false, &whole, kind[0]), (true, &stream, events)] {
            let text = format!("{}{expected}", reply::head(200, &[kind]).replace("HTTP/1.1", "HTTP/1.0"));
            let upstream = Upstream::start(move |mut conn| {
                let text = text.clone();
                async move {
                    conn.request().await;
                    conn.send(text).await;
                }
            })
            .await;
            let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
            let answer = gateway.ask(form.request(is_stream)).await;
            assert_eq!((answer.status(), answer.text()), (200, &**expected), "{form:?}");
        }
    }
}

/// Comments between frames and unknown events pass unchanged.
#[tokio::test]
async fn verbatim_unknown_events_and_comments_pass() {
    for form in Form::ALL {
        let mut frames = form.frames(form.model());
        frames.insert(1, ": keep-alive\n\n".to_owned());
        frames.insert(2, "event: new_event\nid: 7\nretry: 10\ndata: {\"type\":\"new_event\",\n".to_owned());
        frames.insert(3, "data: \"more\":[1]}\n\n".to_owned());
        let upstream = Upstream::answering(reply::stream(&frames)).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let answer = gateway.ask(form.request(true)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*frames.concat()), "{form:?}");
    }
}

#[tokio::test]
async fn verbatim_long_stream_and_large_document_are_complete() {
    let text = "ü😀\\n\\\"x".repeat(40_000);
    let whole = format!(
        "{{\"id\":\"c\",\"choices\":[{{\"message\":{{\"content\":\"{text}\"}}}}],\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}}}"
    );
    let mut frames: Vec<String> = (0..20_000)
        .map(|n| {
            format!(
                "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{n}\"}}}}]}}\n\n"
            )
        })
        .collect();
    frames.push(format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"));
    frames.extend_from_slice(&Form::Chat.frames("gpt")[3..]);
    let upstream = Upstream::answering_each(vec![reply::json(200, &whole), reply::stream(&frames)]).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let answer = gateway.ask(Form::Chat.request(false)).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.text() == whole, "{} of {} bytes", answer.body.len(), whole.len());
    let answer = gateway.ask(Form::Chat.request(true)).await;
    assert!(answer.text() == frames.concat(), "{} bytes", answer.body.len());
    let mut client = http2::Client::connect(gateway.addr).await;
    let (_, body) = http2::answer(client.request(Form::Chat, true).await).await;
    assert!(body == frames.concat().as_bytes(), "{} bytes", body.len());
}

/// If the provider answers with a stream instead of a document, or the reverse, the client receives what the provider
/// sent.
#[tokio::test]
async fn verbatim_stream_for_a_document_and_the_reverse_pass() {
    for form in [Form::Chat, Form::Messages, Form::Responses] {
        let frames = form.frames(form.model());
        let whole = form.whole(form.model());
        let upstream = Upstream::answering_each(vec![reply::stream(&frames), reply::json(200, &whole)]).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let answer: Answer = gateway.ask(form.request(false)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*frames.concat()), "{form:?}");
        let answer = gateway.ask(form.request(true)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*whole), "{form:?}");
    }
}
