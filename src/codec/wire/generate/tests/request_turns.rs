use serde_json::{Value, json};

use super::dialect;
use super::written::{call, model, of, raw, result, s, signed, text, tool, user, write, write_for};
use crate::canonical::{Block, Dialect, Input, MediaSource, Request, ResultObject, Role, Turn};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use crate::wire::generate::request::encode;
use json::{Cursor, RopeBuilder};

#[test]
fn mapping_1_instructions_are_joined_in_order() {
    let system = |role, words| Turn::new(role, vec![text(words)]);
    let request = of(vec![
        system(Role::System, "A."),
        system(Role::Developer, "B."),
        user(vec![text("Hi")]),
        system(Role::System, "C."),
        system(Role::System, ""),
        user(vec![text("You")]),
    ]);
    let written = write(&request);
    assert_eq!(written["systemInstruction"], json!({"parts":[{"text":"A."},{"text":"B."},{"text":"C."}]}));
    assert_eq!(written["contents"], json!([{"role":"user","parts":[{"text":"Hi"},{"text":"You"}]}]));
}

#[test]
fn mapping_1_instructions_alone_get_a_user_turn() {
    let request = of(vec![Turn::new(Role::System, vec![text("A.")])]);
    let written = write(&request);
    assert_eq!(written["systemInstruction"]["parts"][0]["text"], "A.");
    assert_eq!(written["contents"], json!([{"role":"user","parts":[{"text":" "}]}]));
    let (_, _, refusal) = write_for(&Request::default(), &dialect("gemini-2.5-flash"));
    assert!(refusal.is_some());
}

#[test]
fn mapping_1_bug_59_turns_of_one_role_are_joined_and_empty_ones_dropped() {
    let request = of(vec![
        user(vec![text("a")]),
        model(vec![text("")]),
        user(vec![text("b"), text("")]),
        model(vec![text("c")]),
        model(vec![text("d")]),
        user(vec![text("e")]),
    ]);
    assert_eq!(
        write(&request)["contents"],
        json!([
            {"role":"user","parts":[{"text":"a"},{"text":"b"}]},
            {"role":"model","parts":[{"text":"c"},{"text":"d"}]},
            {"role":"user","parts":[{"text":"e"}]}
        ])
    );
}

#[test]
fn mapping_1_first_turn_is_the_users() {
    let request = of(vec![model(vec![text("Welcome!")]), user(vec![text("Hi")])]);
    let written = write(&request);
    let roles: Vec<_> = written["contents"].as_array().unwrap().iter().map(|c| c["role"].clone()).collect();
    assert_eq!(roles, ["user", "model", "user"]);
    assert_eq!(written["contents"][0]["parts"], json!([{"text":" "}]));
}

#[test]
fn mapping_1_prefill_is_kept_only_if_supported() {
    let request = of(vec![user(vec![text("Hi")]), model(vec![text("Well,")])]);
    let (kept, losses, _) = write_for(&request, &dialect("gemini-2.5-flash"));
    assert_eq!(kept["contents"].as_array().unwrap().len(), 2);
    assert!(losses.is_empty());
    let (closed, losses, _) = write_for(&request, &Dialect { prefill: false, ..dialect("gemini-2.5-flash") });
    assert_eq!(closed["contents"][2], json!({"role":"user","parts":[{"text":" "}]}));
    assert_eq!(losses, ["prefill"]);
}

#[test]
fn client_5_bug_31_tool_calls_of_one_turn_and_their_results_are_grouped() {
    let request = of(vec![
        user(vec![text("?")]),
        model(vec![text("Let me see.")]),
        model(vec![call("c1", "f", Input::Text(s(r#"{\"city\":\"Oslo\"}"#)))]),
        model(vec![call("c2", "f", Input::Object(raw(r#"{"city":"Rome"}"#)))]),
        user(vec![result("c1", "f", vec![text("5")])]),
        user(vec![result("c2", "", vec![text(r#"{\"deg\":20}"#)]), text("Which?")]),
    ]);
    assert_eq!(
        write(&request)["contents"],
        json!([
            {"role":"user","parts":[{"text":"?"}]},
            {"role":"model","parts":[
                {"text":"Let me see."},
                {"functionCall":{"id":"c1","name":"f","args":{"city":"Oslo"}}},
                {"functionCall":{"id":"c2","name":"f","args":{"city":"Rome"}}}
            ]},
            {"role":"user","parts":[
                {"functionResponse":{"id":"c1","name":"f","response":{"output":"5"}}},
                {"functionResponse":{"id":"c2","name":"f","response":{"deg":20}}}
            ]},
            {"role":"user","parts":[{"text":"Which?"}]}
        ])
    );
    let (bare, _, _) = write_for(&request, &Dialect { call_ids: false, ..dialect("gemini-2.5-flash") });
    assert!(!bare.to_string().contains("\"id\""));
}

#[test]
fn mapping_3_tool_call_arguments_become_objects() {
    for (input, args) in [
        ("", json!({})),
        ("{}", json!({})),
        (r#"{\"a\":\n 1}"#, json!({"a":1})),
        ("oops", json!({"_raw":"oops"})),
        ("[1]", json!({"_raw":"[1]"})),
        (r#"{\"a\":1"#, json!({"_raw":"{\"a\":1"})),
    ] {
        let request = of(vec![user(vec![text("?")]), model(vec![call("c", "f", Input::Text(s(input)))])]);
        let written = write(&request);
        assert_eq!(written["contents"][1]["parts"][0]["functionCall"]["args"], args, "{input}");
    }
}

#[test]
fn mapping_3_tool_results_become_objects() {
    let of_result = |block: Block<'_>| {
        let request = of(vec![
            user(vec![text("?")]),
            model(vec![call("c", "f", Input::Text(s("")))]),
            user(vec![block]),
        ]);
        write(&request)["contents"][2]["parts"][0]["functionResponse"]["response"].clone()
    };
    assert_eq!(of_result(result("c", "f", vec![])), json!({"output":""}));
    assert_eq!(of_result(result("c", "f", vec![text("a"), text("b")])), json!({"output":"a\nb"}));
    assert_eq!(of_result(result("c", "f", vec![text("[1]")])), json!({"output":"[1]"}));
    let with = |object: &'static str, failed| {
        let mut block = result("c", "f", vec![text(r#"{\"why\":1}"#)]);
        if let Block::ToolResult { object: slot, error, .. } = &mut block {
            *slot = (!object.is_empty()).then(|| ResultObject::read(&mut Cursor::new(object)).unwrap());
            *error = failed;
        }
        block
    };
    assert_eq!(of_result(with("", false)), json!({"why":1}));
    assert_eq!(of_result(with("", true)), json!({"error":"{\"why\":1}"}));
    assert_eq!(of_result(with(r#"{"result":1.0}"#, false)), json!({"result":1.0}));
    assert_eq!(of_result(with("[1,2]", false)), json!({"output":[1,2]}));
}

#[test]
fn bug_60_tool_result_image_stays_an_image() {
    let image = Block::Image {
        source: MediaSource::Base64 { mime: s("image/jpg"), data: s("QQ==") },
        detail: s(""),
        cache: None,
        signature: None,
    };
    let request = of(vec![
        user(vec![text("?")]),
        model(vec![call("c", "f", Input::Text(s(""))), call("d", "f", Input::Text(s("")))]),
        user(vec![result("c", "f", vec![text("done"), image]), result("d", "f", vec![])]),
        model(vec![text("ok")]),
    ]);
    let data = json!({"inlineData":{"mimeType":"image/jpeg","data":"QQ=="}});
    let old = write(&request);
    assert_eq!(old["contents"][2]["parts"].as_array().unwrap().len(), 2);
    assert_eq!(old["contents"][3], json!({"role":"user","parts":[data]}));
    assert_eq!(old["contents"][4]["role"], "model");
    let (new, _, _) = write_for(&request, &dialect("gemini-3-flash"));
    assert_eq!(new["contents"][2]["parts"][0]["functionResponse"]["parts"], json!([data]));
    assert_eq!(new["contents"][3]["role"], "model");
}

#[test]
fn bug_28_bug_34_signatures_return_on_their_parts() {
    let mut first = call("c1", "f", Input::Text(s("")));
    if let Block::ToolUse { signature: seal, .. } = &mut first {
        *seal = signed("S2");
    }
    let thought = |text: &'static [&'static str], seal, hidden| Block::Reasoning {
        text: text.iter().map(|text| s(text)).collect(),
        signature: seal,
        hidden,
    };
    let request = of(vec![
        user(vec![text("?")]),
        model(vec![
            thought(&["hm", "so"], signed("S1"), false),
            thought(&["unsigned"], None, false),
            first,
            call("c2", "f", Input::Text(s(""))),
        ]),
        user(vec![result("c1", "f", vec![]), result("c2", "f", vec![])]),
        model(vec![Block::Text { text: s(""), cache: None, signature: signed("S3") }]),
    ]);
    let (written, losses, _) = write_for(&request, &dialect("gemini-3-pro-preview"));
    assert_eq!(
        written["contents"][1]["parts"],
        json!([
            {"text":"hm","thought":true},
            {"text":"so","thought":true,"thoughtSignature":"S1"},
            {"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"S2"},
            {"functionCall":{"id":"c2","name":"f","args":{}}}
        ])
    );
    assert_eq!(written["contents"][3]["parts"], json!([{"text":"","thoughtSignature":"S3"}]));
    assert_eq!(losses, ["thinking_block"]);
}

#[test]
fn bug_29_skip_signature_is_set_on_the_first_tool_call_only() {
    let request = of(vec![
        user(vec![text("?")]),
        model(vec![text("a"), call("c1", "f", Input::Text(s(""))), call("c2", "f", Input::Text(s("")))]),
        user(vec![result("c1", "f", vec![]), result("c2", "f", vec![])]),
        model(vec![call("c3", "f", Input::Text(s("")))]),
    ]);
    let signatures = |name| -> Vec<Option<String>> {
        let (written, _, _) = write_for(&request, &dialect(name));
        let contents = written["contents"].as_array().unwrap().clone();
        let parts = contents.iter().flat_map(|content| content["parts"].as_array().unwrap().clone());
        parts
            .filter(|part| part.get("functionCall").is_some())
            .map(|part| part["thoughtSignature"].as_str().map(str::to_owned))
            .collect()
    };
    let skip = Some("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=".to_owned());
    assert_eq!(signatures("gemini-3-pro-preview"), [skip.clone(), None, skip]);
    assert_eq!(signatures("gemini-2.5-pro"), [None, None, None]);
}

#[test]
fn mapping_2_media_is_encoded_inline() {
    let inline = |mime, data| MediaSource::Base64 { mime: s(mime), data: s(data) };
    let file = |source, name| Block::File { source, name: s(name), cache: None };
    let request = of(vec![user(vec![
        Block::Image { source: inline("image/png", "QQ=="), detail: s("high"), cache: None, signature: None },
        file(inline("application/pdf", "JVBERi0="), "a.pdf"),
        file(MediaSource::Text { text: s("Gr\\u00fc\\n") }, "a.txt"),
        Block::Audio { source: inline("audio/wav", "UklGRg==") },
        Block::Video {
            source: MediaSource::Url { url: s("https://www.youtube.com/watch?v=x"), mime: s("") },
        },
    ])]);
    let (written, losses, refusal) = write_for(&request, &dialect("gemini-2.5-flash"));
    assert_eq!((losses, refusal), (vec!["image_detail".to_owned()], None));
    assert_eq!(
        written["contents"][0]["parts"],
        json!([
            {"inlineData":{"mimeType":"image/png","data":"QQ=="}},
            {"inlineData":{"mimeType":"application/pdf","data":"JVBERi0="}},
            {"inlineData":{"mimeType":"text/plain","data":"R3LDvAo="}},
            {"inlineData":{"mimeType":"audio/wav","data":"UklGRg=="}},
            {"fileData":{"fileUri":"https://www.youtube.com/watch?v=x"}}
        ])
    );
    let (new, _, _) = write_for(&request, &dialect("gemini-3-pro"));
    assert_eq!(new["contents"][0]["parts"][0]["mediaResolution"], json!({"level":"MEDIA_RESOLUTION_HIGH"}));
}

#[test]
fn mapping_2_media_url_is_sent_only_if_supported() {
    let url = |url| MediaSource::Url { url: s(url), mime: s("") };
    let image =
        Block::Image { source: url("https://a/cat.PNG?x=1"), detail: s(""), cache: None, signature: None };
    let request = of(vec![user(vec![
        text("?"),
        image,
        Block::File { source: url("https://a/b"), name: s(""), cache: None },
    ])]);
    let (written, _, refusal) = write_for(&request, &dialect("gemini-2.5-flash"));
    assert_eq!(refusal, None);
    assert_eq!(
        written["contents"][0]["parts"].as_array().unwrap()[1..],
        [
            json!({"fileData":{"mimeType":"image/png","fileUri":"https://a/cat.PNG?x=1"}}),
            json!({"fileData":{"mimeType":"application/pdf","fileUri":"https://a/b"}})
        ]
    );
    let old = Dialect { media_urls: false, ..dialect("gemini-2.5-flash") };
    let (written, losses, refusal) = write_for(&request, &old);
    assert_eq!(losses, ["image_url", "file_url"]);
    assert!(refusal.unwrap().contains("image_url"));
    assert_eq!(written["contents"][0]["parts"], json!([{"text":"?"}]));
    let file = of(vec![user(vec![Block::File {
        source: MediaSource::Id { id: s("file-1") },
        name: s(""),
        cache: None,
    }])]);
    assert!(write_for(&file, &dialect("gemini-2.5-flash")).2.unwrap().contains("file_id"));
}

#[test]
fn client_7_bug_54_conversation_is_last_and_grows_by_appending() {
    let mut turns = vec![Turn::new(Role::System, vec![text("S.")])];
    let mut before = String::new();
    for number in 0..6 {
        turns.push(if number % 2 == 0 {
            user(vec![text("u")])
        } else {
            model(vec![call("c", "f", Input::Text(s("")))])
        });
        let request = Request { tools: vec![tool("f", None)], max_output: Some(5), ..of(turns.clone()) };
        let mut out = RopeBuilder::default();
        let mut notes = LossNotes::new(Format::Chat, Format::Generate);
        encode(&request, &dialect("gemini-3-pro"), &mut notes, &mut out);
        let out = out.finish().into_contiguous();
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert!(text.starts_with(&before), "{before}\n{text}");
        before = text.strip_suffix("]}").unwrap().to_owned();
    }
}

/// A request of this format is encoded without changes.
#[test]
fn request_of_the_same_format_round_trips_unchanged() {
    let body = json!({
        "systemInstruction":{"parts":[{"text":"S."}]},
        "tools":[
            {"functionDeclarations":[{"name":"f","description":"d","parameters":{"type":"OBJECT","properties":{"a":{"type":"STRING"}}}}]},
            {"googleSearch":{"excludeDomains":["x"],"timeRangeFilter":{"startTime":"2026-01-01T00:00:00Z"}}},
            {"codeExecution":{}},
            {"newTool":{"a":1}}
        ],
        "toolConfig":{"functionCallingConfig":{"mode":"AUTO","streamFunctionCallArguments":true},"includeServerSideToolInvocations":true,"retrievalConfig":{"languageCode":"no"},"newSetting":1},
        "newMember":[1],
        "safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"OFF"}],
        "cachedContent":"cachedContents/x",
        "labels":{"a":"b"},
        "serviceTier":"flex",
        "store":true,
        "generationConfig":{"maxOutputTokens":9,"responseModalities":["TEXT"],"thinkingConfig":{"thinkingBudget":-1,"includeThoughts":true},"imageConfig":{"aspectRatio":"16:9"},"mediaResolution":"MEDIA_RESOLUTION_LOW","new_member":{"x_y":1}},
        "contents":[
            {"role":"user","parts":[{"fileData":{"mimeType":"video/mp4","fileUri":"gs://b/v"}},{"fileData":{"mimeType":"video/mp4","fileUri":"https://v"},"videoMetadata":{"fps":1}}]},
            {"role":"model","parts":[{"text":"t","thought":true},{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"S"},{"functionCall":{"id":"c","name":"f","args":{"a":"b"}},"thoughtSignature":"T"}]},
            {"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"r":1},"parts":[{"inlineData":{"mimeType":"application/pdf","data":"QQ==","displayName":"n"}}]}}]}
        ]
    });
    let text = body.to_string();
    let request = crate::wire::generate::request::decode(&text).unwrap();
    let mut notes = LossNotes::new(Format::Generate, Format::Generate);
    let mut out = RopeBuilder::default();
    encode(&request, &dialect("gemini-3-pro"), &mut notes, &mut out);
    let out = out.finish().into_contiguous();
    assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), body);
    assert!(notes.losses().is_empty() && notes.take_refusal().is_none());
}

#[test]
fn file_id_is_sent_for_clients_of_the_same_format_only() {
    let text = r#"{"contents":[{"parts":[{"fileData":{"fileUri":"files/x"}}]},{"role":"model","parts":[{"text":"t","thought":true}]}]}"#;
    let request = crate::wire::generate::request::decode(text).unwrap();
    let mut notes = LossNotes::new(Format::Generate, Format::Generate);
    let mut out = RopeBuilder::default();
    encode(&request, &dialect("gemini-3-pro"), &mut notes, &mut out);
    let out = out.finish().into_contiguous();
    let written: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(written["contents"][0]["parts"], json!([{"fileData":{"fileUri":"files/x"}}]));
    assert_eq!(written["contents"].as_array().unwrap().len(), 2);
    assert!(write_for(&request, &dialect("gemini-3-pro")).2.unwrap().contains("file_id"));
}
