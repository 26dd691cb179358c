//! After a stream was continued: tool calls, the stored response, clients that disconnect, and keep-alive filler.

use serde_json::{Value, json};

use super::providers::{Break, STORY, beginning, breaking, frames, going_on, pieces, stream};
use super::{ON, able, asking, gateway, gateway_with, hear, whole};
use crate::support::client::{Answer, request};
use crate::support::form::Form;
use crate::support::http1::Piece;
use crate::support::setup::KEY;
use crate::support::sse::{events, read_until};
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply};

/// The continuing provider may call tools, as content blocks of their own.
#[tokio::test]
async fn resume_may_continue_with_tool_calls() {
    let tool = json!({"name": "look", "description": "Looks.", "input_schema": {"type": "object"}});
    let function =
        json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
    for (client, tools) in [(Form::Messages, json!([tool])), (Form::Chat, json!([function]))] {
        let gate = Gate::new();
        let one = breaking(client, 6, Break::Cut, &gate).await;
        let two = Upstream::start(|mut conn| async move {
            while let Some(request) = conn.request().await {
                let rest = &STORY[beginning(Form::Messages, &request).len()..];
                let said = frames(Form::Messages, "msg_second", &pieces(rest));
                let call = json!({"type": "content_block_start", "index": 1, "content_block":
                    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}});
                let input = json!({"type": "content_block_delta", "index": 1, "delta":
                    {"type": "input_json_delta", "partial_json": "{\"a\":1}"}});
                let event =
                    |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
                let (stop, end) = said.closing.split_once("\n\n").unwrap();
                let frames = [
                    said.opening,
                    said.content.concat(),
                    format!("{stop}\n\n"),
                    event(&call),
                    event(&input),
                    event(&json!({"type": "content_block_stop", "index": 1})),
                    end.replace("end_turn", "tool_use"),
                ];
                conn.send(reply::stream(&frames)).await;
            }
        })
        .await;
        let gateway = gateway(&[able(client, &one), able(Form::Messages, &two)], ON).await;
        let answer = hear(&gateway, asking(client, json!({"tools": tools})), "dann:", &gate).await;
        assert_eq!(two.only_request().json()["tools"][0]["name"], "look");
        let told: Vec<Value> = events(answer.text())
            .iter()
            .filter(|event| event.data != "[DONE]")
            .map(|event| event.json())
            .collect();
        let found = |pointer: &str| -> Vec<String> {
            let texts = told.iter().filter_map(|data| data.pointer(pointer)?.as_str());
            texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
        };
        let (texts, inputs, names, reasons) = match client {
            Form::Chat => (
                found("/choices/0/delta/content"),
                found("/choices/0/delta/tool_calls/0/function/arguments"),
                found("/choices/0/delta/tool_calls/0/function/name"),
                found("/choices/0/finish_reason"),
            ),
            _ => (
                found("/delta/text"),
                found("/delta/partial_json"),
                found("/content_block/name"),
                found("/delta/stop_reason"),
            ),
        };
        assert_eq!(texts.concat(), STORY, "{}", answer.text());
        assert_eq!((inputs.concat().as_str(), names.as_slice()), ("{\"a\":1}", &["look".to_owned()][..]));
        assert_eq!(reasons, [if client == Form::Chat { "tool_calls" } else { "tool_use" }]);
        if client == Form::Messages {
            let numbers = |kind: &str| -> Vec<u64> {
                let of_kind = told.iter().filter(|data| data["type"] == kind);
                of_kind.map(|data| data["index"].as_u64().unwrap()).collect()
            };
            assert_eq!(numbers("content_block_start"), [0, 1], "{}", answer.text());
            assert_eq!(numbers("content_block_stop"), [0, 1], "{}", answer.text());
        }
    }
}

/// The stored response equals the response that the client received.
#[tokio::test]
async fn resume_stored_response_has_the_whole_text() {
    let gate = Gate::new();
    let one = breaking(Form::Messages, 6, Break::Cut, &gate).await;
    let two = going_on(Form::Generate, false).await;
    let gateway = gateway(&[able(Form::Messages, &one), able(Form::Generate, &two)], ON).await;
    let answer = hear(&gateway, asking(Form::Responses, json!({})), "dann:", &gate).await;
    let told = whole(Form::Responses, &answer, "kept");
    let path = format!("/v1/responses/{}", told.id);
    let kept = gateway.ask(request("GET", &path, &[("authorization", &format!("Bearer {KEY}"))])).await;
    assert_eq!(kept.status(), 200, "{}", kept.text());
    assert_eq!(kept.json()["output"][0]["content"][0]["text"], STORY);
    assert_eq!(kept.json()["usage"]["output_tokens"], told.usage.1);
}

/// A client that disconnects while another target is called pays for what it has received.
#[tokio::test]
async fn resume_client_that_disconnects_pays_for_received_tokens() {
    let gate = Gate::new();
    let one = breaking(Form::Messages, 6, Break::Cut, &gate).await;
    let two = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await;
    let gateway = gateway(&[able(Form::Messages, &one), able(Form::Messages, &two)], ON).await;
    let mut client = gateway.connect().await;
    client.send(asking(Form::Messages, json!({}))).await;
    client.head().await;
    read_until(&mut client, &mut Vec::new(), "dann:").await;
    gate.open();
    two.wait_for(1).await;
    drop(client);
    let record = gateway.records(1).await.remove(0);
    let log = gateway.wait_for_log(1).await;
    // 50 input tokens, and more than six output tokens, at 1000 per million.
    assert!(log[0]["cost"].as_f64().unwrap() >= 0.056, "{} {record}", log[0]);
    assert_eq!(log[0]["error"], "client_gone", "{}", log[0]);
}

/// A client that waits for the continuation receives keep-alive filler of its format.
#[tokio::test]
async fn resume_sends_filler_while_the_next_target_is_called() {
    for client in [Form::Chat, Form::Messages, Form::Generate] {
        let (gate, kept) = (Gate::new(), Gate::new());
        let one = breaking(client, 6, Break::Cut, &gate).await;
        let now = kept.clone();
        let two = Upstream::start(move |mut conn| {
            let now = now.clone();
            async move {
                let request = conn.request().await.unwrap();
                now.passed().await;
                let rest = &STORY[beginning(Form::Messages, &request).len()..];
                conn.send(stream(Form::Messages, "msg_second", rest)).await;
                conn.closed().await;
            }
        })
        .await;
        let targets = [able(client, &one), able(Form::Messages, &two)];
        let gateway = gateway_with(&targets, ON, "heartbeat = \"100ms\"").await;
        let mut asking = gateway.connect().await;
        asking.send(super::asking(client, json!({}))).await;
        let (head, mut body) = (asking.head().await, Vec::new());
        read_until(&mut asking, &mut body, "dann:").await;
        gate.open();
        two.wait_for(1).await;
        let filler = match client {
            Form::Chat => ": ",
            Form::Messages => "event: ping",
            _ => "\r\n\r\n\r\n",
        };
        let before = body.len();
        while !String::from_utf8_lossy(&body[before..]).contains(filler) {
            let Piece::Data(piece) = asking.piece().await else { panic!("{client:?}: it has ended") };
            body.extend_from_slice(&piece);
            // Blank lines are sufficient filler in the generate format.
            if client == Form::Generate && body[before..].iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        kept.open();
        while let Piece::Data(piece) = asking.piece().await {
            body.extend_from_slice(&piece);
        }
        let answer = Answer { head, body, complete: true, trailers: Vec::new() };
        whole(client, &answer, &format!("{client:?}"));
    }
}
