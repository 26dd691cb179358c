//! Tests of the request decoder.

use super::*;
use crate::canonical::{Block as B, Input, MediaSource, Request, Role};

fn read(body: &str) -> Request<'_> {
    request::decode(body).unwrap()
}

/// Returns the roles, and a short description of each block.
fn outline(request: &Request<'_>) -> Vec<(Role, Vec<String>)> {
    fn source(source: &MediaSource<'_>) -> String {
        match source {
            MediaSource::Base64 { mime, data } => format!("{}:{}", mime.escaped(), data.escaped()),
            MediaSource::Url { url, .. } => url.escaped().to_owned(),
            MediaSource::Id { id } => id.escaped().to_owned(),
            MediaSource::Text { text } => text.escaped().to_owned(),
        }
    }
    fn short(block: &B<'_>) -> String {
        match block {
            B::Text { text, .. } => text.escaped().to_owned(),
            B::Image { source: from, detail, .. } => format!("image {} {}", source(from), detail.escaped()),
            B::File { source: from, name, .. } => format!("file {} {}", source(from), name.escaped()),
            B::SearchResult(result) => format!("search result {}", result.title.escaped()),
            B::Audio { source: from } => format!("audio {}", source(from)),
            B::Video { source: from } => format!("video {}", source(from)),
            B::Reasoning { text, hidden, .. } => format!("reasoning {text:?} {hidden}"),
            B::Refusal { text } => format!("refusal {}", text.escaped()),
            B::ToolUse { id, name, input, .. } => {
                let input = match input {
                    Input::Text(text) => text.escaped(),
                    Input::Object(object) => object.text(),
                };
                format!("call {} {} {input}", id.escaped(), name.escaped())
            }
            B::ToolResult { id, content, .. } => {
                format!("result {} {}", id.escaped(), content.iter().map(short).collect::<Vec<_>>().join("+"))
            }
            B::Opaque { name, .. } => format!("opaque {}", name.escaped()),
        }
    }
    request.turns.iter().map(|turn| (turn.role, turn.blocks.iter().map(short).collect())).collect()
}

fn turn(role: Role, blocks: &[&str]) -> (Role, Vec<String>) {
    (role, blocks.iter().map(|block| (*block).to_owned()).collect())
}

#[test]
fn input_string_or_messages_of_any_shape_are_decoded() {
    assert_eq!(outline(&read(r#"{"input":"Hi \"you\"\n"}"#)), [turn(Role::User, &[r#"Hi \"you\"\n"#])]);
    let request = read(
        r#"{"input":[{"role":"user","content":"a"},{"content":[{"text":"b","type":"output_text","annotations":[]}],"type":"message","role":"assistant","id":"msg_1","status":"completed","phase":"final_answer"},
            {"type":"message","role":"user","content":[{"type":"input_text","text":"c"},{"type":"input_text","text":"d"}]},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},
            {"role":"developer","content":"e"},{"role":"system","content":"f"}],"instructions":"first"}"#,
    );
    assert_eq!(
        outline(&request),
        [
            turn(Role::System, &["first"]),
            turn(Role::User, &["a"]),
            turn(Role::Assistant, &["b"]),
            turn(Role::User, &["c", "d"]),
            turn(Role::Assistant, &["refusal no"]),
            turn(Role::Developer, &["e"]),
            turn(Role::System, &["f"]),
        ]
    );
    assert_eq!(request.turns[2].phase.escaped(), "final_answer");
}

#[test]
fn input_parts_in_place_of_items_are_one_user_turn() {
    let request = read(
        r#"{"input":[{"type":"input_text","text":"Look"},{"type":"input_image","image_url":"https://a.example/x.png","detail":"low"},{"type":"input_file","file_url":"https://a.example/x.pdf"},
            {"role":"assistant","content":"ok"},{"type":"input_text","text":"again"}]}"#,
    );
    assert_eq!(
        outline(&request),
        [
            turn(Role::User, &["Look", "image https://a.example/x.png low", "file https://a.example/x.pdf "]),
            turn(Role::Assistant, &["ok"]),
            turn(Role::User, &["again"]),
        ]
    );
}

#[test]
fn mapping_02_media_is_decoded_in_every_form() {
    let request = read(
        r#"{"input":[{"role":"user","content":[
            {"type":"input_image","image_url":"data:image/png;base64,iVBO"},
            {"type":"input_image","image_url":{"url":"https://a.example/y","detail":"high"}},
            {"type":"input_image","file_id":"file-1","image_url":null},
            {"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"},
            {"type":"input_file","filename":"a.txt","file_data":"QUJD"},
            {"type":"input_file","file_id":"file-2"},
            {"type":"input_audio","input_audio":{"data":"UklG","format":"wav"}},
            {"type":"input_video","video_url":"https://a.example/v.mp4"}]}]}"#,
    );
    assert_eq!(
        outline(&request),
        [turn(
            Role::User,
            &[
                "image image/png:iVBO ",
                "image https://a.example/y high",
                "image file-1 ",
                "file application/pdf:JVBE a.pdf",
                "file text/plain:QUJD a.txt",
                "file file-2 ",
                "audio audio/wav:UklG",
                "video https://a.example/v.mp4",
            ]
        )]
    );
}

#[test]
fn client_5_assistant_items_are_one_turn_and_results_are_one() {
    let request = read(
        r#"{"input":[{"role":"user","content":"Oslo and Rome?"},
            {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"A"},{"type":"summary_text","text":"B"}],"encrypted_content":"gAA"},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see."}]},
            {"type":"function_call","call_id":"c1","name":"w","arguments":"{\"city\":\"Oslo\"}","id":"fc_1","status":"completed"},
            {"type":"function_call","call_id":"c2","name":"w","arguments":{"city":"Rome"}},
            {"type":"function_call_output","call_id":"c1","output":"5"},
            {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"20"},{"type":"input_image","image_url":"data:image/png;base64,iVBO"}]},
            {"role":"user","content":"Which is warmer?"}]}"#,
    );
    assert_eq!(
        outline(&request),
        [
            turn(Role::User, &["Oslo and Rome?"]),
            turn(
                Role::Assistant,
                &[
                    r#"reasoning ["A", "B"] false"#,
                    "Let me see.",
                    r#"call c1 w {\"city\":\"Oslo\"}"#,
                    r#"call c2 w {"city":"Rome"}"#,
                ]
            ),
            turn(Role::User, &["result c1 5", "result c2 20+image image/png:iVBO "]),
            turn(Role::User, &["Which is warmer?"]),
        ]
    );
    let B::Reasoning { signature: Some(seal), .. } = &request.turns[1].blocks[0] else { panic!() };
    // A signature of the provider itself has no `gw1.` envelope.
    assert_eq!((seal.issuer.as_deref(), &*seal.text), (None, "gAA"));
}

#[test]
fn assistant_messages_stay_separate_unless_tools_are_called() {
    let request =
        read(r#"{"input":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]}"#);
    assert_eq!(outline(&request), [turn(Role::Assistant, &["a"]), turn(Role::Assistant, &["b"])]);
    let request = read(
        r#"{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":""},{"role":"assistant","content":"a"},{"type":"function_call_output","call_id":"c","output":""}]}"#,
    );
    assert_eq!(
        outline(&request),
        [turn(Role::Assistant, &["call c f ", "a"]), turn(Role::User, &["result c "])]
    );
}

#[test]
fn fact_29_reasoning_of_earlier_turns_is_decoded_in_all_kinds() {
    let request = read(
        r#"{"input":[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"raw"}],"encrypted_content":null},
            {"type":"reasoning","id":"rs","summary":[],"encrypted_content":"gAA"},{"type":"reasoning","id":"rs_3","summary":[]}]}"#,
    );
    assert_eq!(
        outline(&request),
        [turn(Role::Assistant, &[r#"reasoning ["raw"] false"#, "reasoning [] true"])]
    );
}

#[test]
fn client_1_custom_tools_namespaces_and_native_items_are_decoded() {
    let request = read(
        r#"{"input":[{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"*** Begin"},
            {"type":"function_call","call_id":"d","name":"f","namespace":"mcp__x","arguments":"{}"},
            {"type":"custom_tool_call_output","call_id":"c","output":"ok"},
            {"type":"web_search_call","id":"ws_1","action":{"type":"search","query":"q"}},
            {"id":"msg_7","type":null}]}"#,
    );
    assert_eq!(
        outline(&request),
        [
            turn(Role::Assistant, &["call c apply_patch *** Begin", "call d f {}"]),
            turn(Role::User, &["result c ok"]),
            turn(Role::Assistant, &["opaque web_search_call", "opaque item_reference"]),
        ]
    );
    let B::ToolUse { kind, .. } = request.turns[0].blocks[0] else { panic!() };
    assert_eq!(kind, ToolKind::Custom);
    let B::ToolUse { namespace, .. } = request.turns[0].blocks[1] else { panic!() };
    assert_eq!(namespace.escaped(), "mcp__x");
    let B::Opaque { raw, .. } = request.turns[2].blocks[1] else { panic!() };
    assert_eq!(raw.text(), r#"{"id":"msg_7","type":null}"#);
}

#[test]
fn bug_10_tool_call_id_with_a_signature_is_the_same_on_its_result() {
    let request = read(
        r#"{"input":[{"type":"function_call","call_id":"call_1__gw1__google__c2VhbA","name":"f","arguments":"{}"},
            {"type":"function_call_output","call_id":"call_1__gw1__google__c2VhbA","output":"5"}]}"#,
    );
    assert_eq!(
        outline(&request),
        [turn(Role::Assistant, &["call call_1 f {}"]), turn(Role::User, &["result call_1 5"])]
    );
    let B::ToolUse { signature: Some(seal), .. } = &request.turns[0].blocks[0] else { panic!() };
    assert_eq!((seal.issuer.as_deref(), &*seal.text), (Some("google"), "seal"));
}

#[test]
fn member_malformed_is_refused_with_its_path() {
    for (body, param) in [
        (r#"{"model":"m"}"#, "input"),
        (r#"{"input":5}"#, "input"),
        (r#"{"input":[5]}"#, "input[0]"),
        (r#"{"input":[{"content":"a"}]}"#, "input[0].type"),
        (r#"{"input":[{"role":"king","content":"a"}]}"#, "input[0].role"),
        (r#"{"input":[{"type":"message","content":"a"}]}"#, "input[0].role"),
        (r#"{"input":[{"role":"user","content":[{"type":"input_text"}]}]}"#, "input[0].content[0].text"),
        (
            r#"{"input":[{"role":"user","content":[{"text":"a"},{"type":"input_image"}]}]}"#,
            "input[0].content[1].image_url",
        ),
        (r#"{"input":[{"type":"function_call","call_id":"c"}]}"#, "input[0].name"),
        (r#"{"input":[{"type":"function_call","name":"f"}]}"#, "input[0].call_id"),
        (r#"{"input":[{"type":"function_call_output","output":""}]}"#, "input[0].call_id"),
        (r#"{"input":"a","tools":{}}"#, "tools"),
        (r#"{"input":"a","tools":[{"type":"function"}]}"#, "tools[0].name"),
        (r#"{"input":"a","tools":[{"name":"f"}]}"#, "tools[0].type"),
        (r#"{"input":"a","tool_choice":"some"}"#, "tool_choice"),
        (r#"{"input":"a","tool_choice":{"type":"function"}}"#, "tool_choice.name"),
        (r#"{"input":"a","temperature":"hot"}"#, "temperature"),
        (r#"{"input":"a","max_output_tokens":-1}"#, "max_output_tokens"),
        (r#"{"input":"a","text":{"format":{"type":"json_schema"}}}"#, "text.format.schema"),
        (r#"{"input":"a","text":{"format":{"type":"xml"}}}"#, "text.format.type"),
    ] {
        let error = request::decode(body).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{body}");
    }
    assert_eq!(request::decode(r#"{"input":"a""#).unwrap_err().status, 400);
    // A request that continues something needs no input.
    for body in [r#"{"previous_response_id":"resp_1"}"#, r#"{"prompt":{"id":"p"},"input":null}"#] {
        assert!(request::decode(body).is_ok(), "{body}");
    }
}
