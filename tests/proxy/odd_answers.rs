//! What servers of the chat format answer that no client of it understands: errors without an `error` member, objects that
//! are no answers, finish reasons of other formats, arguments in another form, usage under other names.

use std::sync::Arc;

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::faults::scripts::{good, wants_stream};
use crate::support::client::{Answer, post};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::sse::events;
use crate::support::upstream::Upstream;

/// Words of the provider in every error of these tests.
const WORDS: &str = "insufficient balance";

/// Error objects without an `error` member, and one inside of a choice.
fn bare_errors() -> Vec<Value> {
    vec![
        json!({"success": false, "code": 400, "msg": WORDS}),
        json!({"code": 500, "msg": WORDS, "data": null}),
        json!({"code": 20015, "message": WORDS, "data": null}),
        json!({"detail": WORDS}),
        json!({"detail": [{"msg": WORDS, "type": "x", "loc": ["body"]}]}),
        json!({"errors": [{"message": WORDS}]}),
        json!({"success": false, "errors": [{"code": 1, "message": WORDS}], "result": null}),
        json!({"error_code": 336, "error_msg": WORDS}),
        json!({"code": "InvalidParameter", "message": WORDS, "request_id": "x"}),
        json!({"object": "error", "message": WORDS, "type": "BadRequestError", "code": 400}),
        json!({"message": WORDS}),
        json!({"choices": null, "base_resp": {"status_code": 1008, "status_msg": WORDS}}),
        json!({"id": "x", "choices": [], "base_resp": {"status_code": 1002, "status_msg": WORDS}}),
        json!({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "error",
                                       "error": {"code": 502, "message": WORDS}}]}),
        json!([{"error": {"code": 400, "message": WORDS}}]),
    ]
}

fn chunk(delta: Value, finish: Value) -> String {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                       "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {chunk}\n\n")
}

fn completion(message: Value, finish: &str, usage: Value) -> Value {
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
           "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage})
}

fn usage() -> Value {
    json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
}

/// Provider that answers with the document or, if a stream is asked for, with the frames.
async fn answering(document: Value, frames: Vec<String>) -> Upstream {
    let (document, stream) = (reply::json(200, document.to_string()), reply::stream(&frames));
    let answers = Arc::new((document, stream));
    Upstream::start(move |mut conn| {
        let answers = answers.clone();
        async move {
            while let Some(request) = conn.request().await {
                let (document, stream) = &*answers;
                conn.send(if wants_stream(&request) { stream.clone() } else { document.clone() }).await;
            }
        }
    })
    .await
}

/// Starts a gateway whose model `gpt` has these targets, in their order.
async fn targets(upstreams: &[&Upstream]) -> Gateway {
    let (mut setup, mut names) = (Setup::new(), Vec::new());
    for (number, upstream) in upstreams.iter().enumerate() {
        let (name, base) = (format!("p{number}"), format!("http://{}/v1", upstream.addr));
        setup = setup.provider(&name, "openai-compatible", &base, "apis = [\"chat\"]");
        names.push(format!("{{ provider = \"{name}\", model = \"m\", tier = {number} }}"));
    }
    setup.routes += &format!("[[model]]\nid = \"gpt\"\ntargets = [{}]\n\n", names.join(", "));
    Gateway::start(&setup).await
}

/// Request of a chat client with a tool.
fn with_tool(stream: bool) -> Vec<u8> {
    let mut body: Value = serde_json::from_str(&Form::Chat.body("gpt", stream)).unwrap();
    body["tools"] =
        json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    post("/v1/chat/completions", body.to_string())
}

/// Chunks of a chat stream.
fn chunks(answer: &Answer) -> Vec<Value> {
    let events = events(answer.text());
    events.iter().filter(|event| event.data != "[DONE]").map(|event| event.json()).collect()
}

/// Checks that a client that asks for a stream gets an error that says the provider's words: as a status if nothing has
/// been sent, else at the end of the stream.
fn ends_with_error(form: Form, answer: &Answer) {
    let text = answer.text();
    if answer.status() >= 400 {
        return assert!(form.error(answer).1.contains(WORDS), "{form:?} {text}");
    }
    let is_error = form.stream_error(text).is_some() || text.contains("event: response.failed");
    assert!(is_error && text.contains(WORDS) && !form.looks_complete(text), "{form:?} {text}");
}

#[tokio::test]
async fn bare_error_at_status_200_is_an_error_with_its_words_for_every_client() {
    for error in bare_errors() {
        let event =
            answering(error.clone(), vec![format!("data: {error}\n\n"), "data: [DONE]\n\n".into()]).await;
        let document = Upstream::answering(reply::json(200, error.to_string())).await;
        let (event, document) = (targets(&[&event]).await, targets(&[&document]).await);
        for form in Form::ALL {
            for (gateway, stream) in [(&event, false), (&event, true), (&document, true)] {
                let answer = gateway.ask(form.request_for("gpt", stream)).await;
                assert!(answer.status() >= 400, "{form:?} {stream} {error}: {}", answer.text());
                assert!(
                    form.error(&answer).1.contains(WORDS),
                    "{form:?} {stream} {error}: {}",
                    answer.text()
                );
            }
        }
    }
}

#[tokio::test]
async fn bare_error_in_the_middle_of_a_stream_ends_it_with_an_error_for_every_client() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "type": "function",
                                      "function": {"name": "f", "arguments": "{\"q\""}}]});
    let befores = [json!({"role": "assistant", "content": "Hel"}), json!({"reasoning_content": "Hm"}), call];
    for (number, error) in bare_errors().into_iter().enumerate() {
        for (frames, before) in [(1, &befores[number % 3]), (12, &befores[(number + 1) % 3])] {
            // Behind the frames that are read in any case, too.
            let mut stream = vec![chunk(before.clone(), Value::Null)];
            stream.resize(frames, chunk(json!({"content": "lo"}), Value::Null));
            stream.extend([format!("event: error\ndata: {error}\n\n"), "data: [DONE]\n\n".into()]);
            let upstream = answering(Value::Null, stream).await;
            let gateway = targets(&[&upstream]).await;
            for form in Form::ALL {
                let answer = gateway.ask(form.request_for("gpt", true)).await;
                ends_with_error(form, &answer);
            }
        }
    }
}

#[tokio::test]
async fn bare_error_is_hidden_by_the_next_target() {
    let healthy = Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            conn.send(good(Form::Chat, wants_stream(&request))).await;
        }
    })
    .await;
    for body in [json!({"code": 500, "msg": WORDS}), json!({}), json!({"unheard_of": [1]})] {
        let broken = answering(body.clone(), vec![format!("data: {}\n\n", json!({"detail": WORDS}))]).await;
        for form in Form::ALL {
            for stream in [false, true] {
                let gateway = targets(&[&broken, &healthy]).await;
                let answer = gateway.ask(form.request_for("gpt", stream)).await;
                assert_eq!(
                    (answer.status(), answer.get("x-gateway-attempts")),
                    (200, Some("2")),
                    "{body} {form:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn object_that_is_no_answer_is_an_error_in_every_format() {
    for body in ["{}", "{\"unheard_of\":[1]}", "{\"id\":\"x\"}"] {
        let upstream = Upstream::answering(reply::json(200, body)).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        for provider in Form::ALL {
            for client in Form::ALL {
                for stream in [false, true] {
                    let answer = gateway.ask(client.request_for(provider.model(), stream)).await;
                    let told = (answer.status(), body, provider, client, stream);
                    assert!(matches!(answer.status(), 500 | 502), "{told:?} {}", answer.text());
                    client.error(&answer);
                }
            }
        }
    }
}

#[tokio::test]
async fn finish_reason_of_another_format_is_the_one_that_chat_clients_know() {
    for (word, own) in [
        ("eos", "stop"),
        ("eos_token", "stop"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("STOP", "stop"),
        ("model_length", "length"),
        ("max_tokens", "length"),
        ("repetition", "length"),
        ("model_context_window_exceeded", "length"),
        ("sensitive", "content_filter"),
        ("refusal", "content_filter"),
        ("guardrail_intervened", "content_filter"),
        // An unknown word passes: the client may know it.
        ("unheard_of", "unheard_of"),
        ("tool_calls", "stop"),
        ("stop", "stop"),
        ("length", "length"),
    ] {
        let document = completion(json!({"role": "assistant", "content": "Hi"}), word, usage());
        let frames = [
            chunk(json!({"content": "Hi"}), Value::Null),
            chunk(json!({}), json!(word)),
            "data: [DONE]\n\n".into(),
        ];
        let upstream = answering(document.clone(), frames.to_vec()).await;
        let gateway = targets(&[&upstream]).await;
        let answer = gateway.ask(with_tool(false)).await;
        // Everything else passes byte for byte.
        let expected = document.to_string().replace(&format!("\"{word}\""), &format!("\"{own}\""));
        let expected = expected.replace("\"model\":\"m\"", "\"model\":\"gpt\"");
        assert_eq!((answer.status(), answer.text()), (200, &*expected), "{word}");
        let answer = gateway.ask(with_tool(true)).await;
        let [first, last, ..] = &chunks(&answer)[..] else { panic!("{}", answer.text()) };
        assert_eq!(first["choices"][0]["delta"]["content"], "Hi", "{word}");
        assert_eq!(last["choices"][0]["finish_reason"], own, "{word}: {}", answer.text());
    }
}

#[tokio::test]
async fn finish_reason_says_whether_there_is_a_call() {
    let call = |arguments: &str| {
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]})
    };
    for (word, own) in [
        ("stop", "tool_calls"),
        ("tool_calls", "tool_calls"),
        ("end_turn", "tool_calls"),
        ("length", "length"),
    ] {
        let document = completion(call("{\"q\":1}"), word, usage());
        // The call begins behind the frames that are read in any case.
        let mut frames = vec![chunk(json!({"content": "a"}), Value::Null); 12];
        frames.push(chunk(call("{\"q\":"), Value::Null));
        frames
            .push(chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}), Value::Null));
        frames.extend([chunk(json!({}), json!(word)), "data: [DONE]\n\n".into()]);
        let upstream = answering(document, frames).await;
        let gateway = targets(&[&upstream]).await;
        let answer = gateway.ask(with_tool(false)).await;
        assert_eq!(answer.json()["choices"][0]["finish_reason"], own, "{word}");
        let answer = gateway.ask(with_tool(true)).await;
        let ends: Vec<Value> = chunks(&answer)
            .iter()
            .map(|chunk| chunk["choices"][0]["finish_reason"].clone())
            .filter(Value::is_string)
            .collect();
        assert_eq!(ends, [json!(own)], "{word}: {}", answer.text());
    }
}

/// Returns the joined arguments of the only call in a stream of chunks.
fn arguments(chunks: &[Value]) -> String {
    let calls = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str());
    calls.collect()
}

#[tokio::test]
async fn arguments_in_another_form_are_the_object_for_chat_clients() {
    let object = json!({"q": "Grüße \"x\" \\ \n", "n": [1, {}]});
    let once = object.to_string();
    let twice = json!(once).to_string();
    let middle = (0..4).map(|n| twice.len() / 2 - n).find(|at| twice.is_char_boundary(*at)).unwrap();
    let forms: [(Value, Vec<&str>); 6] = [
        (json!(twice), vec!["", &twice[..middle], &twice[middle..]]),
        (json!(twice), vec![&twice]),
        (json!(format!("{{}}{once}")), vec!["{}", &once]),
        (json!(format!("{{}}{once}")), vec!["{}", "", "{", &once[1..]]),
        (object.clone(), vec![&once]),
        (json!(once), vec!["", &once[..3], &once[3..]]),
    ];
    for (whole, pieces) in forms {
        let call = |arguments: Value| {
            json!({"role": "assistant", "content": null, "tool_calls": [
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]})
        };
        let mut frames = vec![chunk(call(json!(pieces[0])), Value::Null)];
        for piece in &pieces[1..] {
            frames.push(chunk(
                json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}),
                Value::Null,
            ));
        }
        frames.extend([chunk(json!({}), json!("tool_calls")), "data: [DONE]\n\n".into()]);
        let upstream = answering(completion(call(whole.clone()), "tool_calls", usage()), frames).await;
        let gateway = targets(&[&upstream]).await;
        let answer = gateway.ask(with_tool(false)).await;
        let text = answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].clone();
        let said: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        assert_eq!(said, object, "{whole}: {text}");
        let answer = gateway.ask(with_tool(true)).await;
        let text = arguments(&chunks(&answer));
        assert_eq!(
            serde_json::from_str::<Value>(&text).ok(),
            Some(object.clone()),
            "{pieces:?}: {}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn empty_object_of_a_call_without_arguments_reaches_chat_clients() {
    let start = |arguments: &str, place: u32| {
        json!({"tool_calls": [{"index": place, "id": format!("a{place}"), "type": "function",
                               "function": {"name": "f", "arguments": arguments}}]})
    };
    let piece = |arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let end = || chunk(json!({}), json!("tool_calls"));
    for frames in [
        vec![chunk(start("{}", 0), Value::Null), end()],
        vec![chunk(start("", 0), Value::Null), chunk(piece("{}"), Value::Null), end()],
        vec![chunk(start("{}", 0), json!("tool_calls"))],
        vec![chunk(start("{}", 0), Value::Null), chunk(start("{}", 1), Value::Null), end()],
        // Without a finish reason.
        vec![chunk(start("{}", 0), Value::Null)],
    ] {
        let sent = frames.concat();
        let upstream = answering(Value::Null, [frames, vec!["data: [DONE]\n\n".into()]].concat()).await;
        let gateway = targets(&[&upstream]).await;
        let answer = gateway.ask(with_tool(true)).await;
        let (mut calls, mut named) = ([String::new(), String::new()], 0);
        for chunk in chunks(&answer) {
            for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
                named += usize::from(call["function"]["name"].is_string());
                let place = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
                calls[place] += call["function"]["arguments"].as_str().unwrap();
            }
        }
        assert!(calls[..named].iter().all(|text| text == "{}"), "{sent}\n{}", answer.text());
        assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    }
}

#[tokio::test]
async fn usage_under_the_names_of_the_responses_format_is_metered_and_told() {
    let other = json!({"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050,
                       "input_tokens_details": {"cached_tokens": 800}, "output_tokens_details": {"reasoning_tokens": 20}});
    let frames = vec![
        chunk(json!({"content": "Hi"}), Value::Null),
        chunk(json!({}), json!("stop")),
        format!("data: {}\n\n", json!({"id": "c", "choices": [], "usage": other})),
        "data: [DONE]\n\n".to_owned(),
    ];
    let upstream = answering(completion(json!({"content": "Hi"}), "stop", other.clone()), frames).await;
    let gateway = targets(&[&upstream]).await;
    for form in Form::ALL {
        for stream in [false, true] {
            let answer = gateway.ask(form.request_for("gpt", stream)).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            let bodies = if stream {
                let events = events(answer.text());
                events.iter().filter(|event| event.data != "[DONE]").map(|event| event.json()).collect()
            } else {
                vec![answer.json()]
            };
            let told = |names: [&str; 3]| {
                let figure = |name: &str| {
                    let found = bodies.iter().rev().find_map(|body| {
                        let usages = [&body["usage"], &body["response"]["usage"], &body["usageMetadata"]];
                        usages.into_iter().find_map(|usage| usage.pointer(name)?.as_u64())
                    });
                    found.unwrap_or_else(|| panic!("{name} in {}", answer.text()))
                };
                names.map(figure)
            };
            let figures = match form {
                Form::Chat => {
                    told(["/prompt_tokens", "/completion_tokens", "/prompt_tokens_details/cached_tokens"])
                }
                Form::Messages => told(["/input_tokens", "/output_tokens", "/cache_read_input_tokens"]),
                Form::Responses => {
                    told(["/input_tokens", "/output_tokens", "/input_tokens_details/cached_tokens"])
                }
                Form::Generate => told(["/promptTokenCount", "/totalTokenCount", "/cachedContentTokenCount"]),
            };
            let expected = match form {
                Form::Messages => [200, 50, 800],
                Form::Generate => [1000, 1050, 800],
                Form::Chat | Form::Responses => [1000, 50, 800],
            };
            assert_eq!(figures, expected, "{form:?} {}", answer.text());
        }
    }
    let lines = gateway.access_log();
    assert!(
        lines.iter().all(|line| line["input_tokens"] == 1000 && line["output_tokens"] == 50),
        "{lines:?}"
    );
}

/// The same at a simulated provider, for clients of every format.
#[tokio::test]
async fn simulated_relay_is_understood_by_every_client() {
    let openai = Simulator::start(SimulatedProvider::OpenAi, Options::default()).await.unwrap();
    let setup = Setup::new()
        .provider("relay", "openai-compatible", &openai.base_url(), "apis = [\"chat\"]")
        .model("m1", "relay", "gpt-4o");
    let gateway = Gateway::start(&setup).await;
    for form in Form::ALL {
        for stream in [false, true] {
            for (directive, is_error, told) in [
                ("[[bare error 2]]", true, "The service is busy."),
                ("[[void]]", true, "not valid"),
                ("[[finish network_error]]", true, "network_error"),
                ("[[finish eos_token other-usage]]", false, "Hello"),
            ] {
                let body = form.body("m1", stream).replace("Grüße", &format!("Hello there {directive}"));
                let answer = gateway.ask(post(&form.path("m1", stream), body)).await;
                let text = answer.text();
                let fails = answer.status() >= 400
                    || (stream && form.stream_error(text).is_some())
                    || text.contains("event: response.failed");
                assert_eq!(fails, is_error, "{form:?} {stream} {directive} {text}");
                assert!(
                    text.contains(told) && !text.contains("eos_token"),
                    "{form:?} {stream} {directive} {text}"
                );
            }
        }
    }
    let said = |text: String| -> Value { serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")) };
    for form in ["[[twice]]", "[[led]]", ""] {
        let mut found = Vec::new();
        for stream in [false, true] {
            let mut body: Value = serde_json::from_str(&Form::Chat.body("m1", stream)).unwrap();
            body["messages"][0]["content"] = json!(format!("{form} call f"));
            body["tools"] = json!([{"type": "function", "function": {"name": "f", "parameters": {
                "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]);
            let answer = gateway.ask(post("/v1/chat/completions", body.to_string())).await;
            found.push(match stream {
                true => said(arguments(&chunks(&answer))),
                false => {
                    let call = &answer.json()["choices"][0]["message"]["tool_calls"][0]["function"];
                    said(call["arguments"].as_str().unwrap_or_default().to_owned())
                }
            });
            let mut body: Value = serde_json::from_str(&Form::Messages.body("m1", stream)).unwrap();
            body["messages"][0]["content"] = json!(format!("{form} call f"));
            body["tools"] = json!([{"name": "f", "input_schema": {
                "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]);
            let answer = gateway.ask(post("/v1/messages", body.to_string())).await;
            found.push(match stream {
                true => {
                    let events = events(answer.text());
                    let parts = events.iter().map(|event| event.json()["delta"]["partial_json"].clone());
                    said(parts.filter_map(|part| part.as_str().map(str::to_owned)).collect())
                }
                false => answer.json()["content"][0]["input"].clone(),
            });
        }
        assert!(
            found.iter().all(|object| object["city"].is_string() && *object == found[0]),
            "{form} {found:?}"
        );
    }
}
