//! Compaction items in the text of a body.

use serde_json::{Value, json};

use super::super::compaction::{CompactionItems, INSTRUCTION, user_messages};

fn message(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn item(sealed: &str) -> Value {
    json!({"type": "compaction", "id": "cmp_1", "encrypted_content": sealed})
}

fn body(input: &[Value]) -> String {
    json!({"model": "m", "input": input, "metadata": {"input": "no"}}).to_string()
}

#[test]
fn compaction_items_are_found_with_their_index_and_unescaped_content() {
    let text = r#"{"input" : [ "text", {"encrypted_content":"a\/b","type":"compaction"} , {"role":"user","content":"compaction"},
        {"type":"compaction","encrypted_content":"c"} ] }"#;
    let found = CompactionItems::read(text).unwrap();
    let seen: Vec<_> = found.items.iter().map(|item| (item.index, item.encrypted.as_str())).collect();
    assert_eq!(seen, [(1, "a/b"), (3, "c")]);
    assert!(!found.is_triggered());
    for without in [r#"{"input":"compaction"}"#, r#"{"input":null}"#, "{}"] {
        assert_eq!(CompactionItems::read(without).unwrap(), CompactionItems::default(), "{without}");
    }
}

#[test]
fn compaction_trigger_must_be_the_last_item() {
    let trigger = json!({"type": "compaction_trigger"});
    assert!(CompactionItems::read(&body(&[message("a"), trigger.clone()])).unwrap().is_triggered());
    assert!(CompactionItems::read(&body(std::slice::from_ref(&trigger))).unwrap().is_triggered());
    for (input, param) in [
        (vec![trigger.clone(), message("a")], "input[0]"),
        (vec![message("a"), trigger.clone(), json!("text")], "input[1]"),
        (vec![message("a"), trigger.clone(), trigger], "input[1]"),
        (vec![json!({"type": "compaction"})], "input[0].encrypted_content"),
        (vec![message("a"), item("")], "input[1].encrypted_content"),
    ] {
        let error = CompactionItems::read(&body(&input)).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{error}");
    }
}

#[test]
fn compaction_items_opened_are_messages_and_the_rest_is_unchanged() {
    let trigger = json!({"type": "compaction_trigger"});
    let input = [item("one"), message("a"), item("two"), item("three"), trigger.clone()];
    let text = body(&input);
    let found = CompactionItems::read(&text).unwrap();
    let summaries = [Some("First \"x\"\n".to_owned()), None, Some("Third".to_owned())];
    for removes in [false, true] {
        let rewritten: Value = serde_json::from_str(&found.rewritten(&text, &summaries, removes)).unwrap();
        let now = rewritten["input"].as_array().unwrap();
        let summary = |item: &Value| {
            assert_eq!((&item["type"], &item["role"]), (&json!("message"), &json!("user")));
            item["content"][0]["text"].as_str().unwrap().split_once("\n\n").unwrap().1.to_owned()
        };
        assert_eq!((summary(&now[0]), summary(&now[3])), ("First \"x\"\n".to_owned(), "Third".to_owned()));
        assert_eq!((&now[1], &now[2]), (&input[1], &input[2]));
        assert_eq!(now.len(), if removes { 4 } else { 5 });
        assert_eq!(rewritten["metadata"], json!({"input": "no"}));
    }
    let only = body(&[trigger]);
    let rewritten = CompactionItems::read(&only).unwrap().rewritten(&only, &[], true);
    assert_eq!(serde_json::from_str::<Value>(&rewritten).unwrap()["input"], json!([]));
}

#[test]
fn compacted_conversation_keeps_the_users_messages_without_earlier_summaries() {
    let text = body(&[
        item("one"),
        json!({"role": "user", "content": "b\n"}),
        message("c"),
        json!({"role": "assistant", "content": "d"}),
        json!({"type": "reasoning", "role": "user", "content": []}),
    ]);
    let found = CompactionItems::read(&text).unwrap();
    let opened = found.rewritten(&text, &[Some("summary".to_owned())], false);
    let kept = user_messages(&opened, "seed").unwrap();
    let kept: Vec<Value> = serde_json::from_str(&format!("[{kept}]")).unwrap();
    let texts: Vec<&str> = kept.iter().map(|item| item["content"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["b\n", "c"]);
    assert!(
        kept.iter()
            .all(|item| item["status"] == "completed" && item["id"].as_str().unwrap().starts_with("msg_"))
    );
    assert_ne!(kept[0]["id"], kept[1]["id"]);
    let one = user_messages(r#"{"input":"only"}"#, "seed").unwrap();
    assert!(one.contains(r#""text":"only""#), "{one}");
    assert_eq!(user_messages("{}", "seed").unwrap(), "");
}

#[test]
fn compaction_instruction_needs_no_escapes() {
    assert_eq!(serde_json::to_string(INSTRUCTION).unwrap(), format!("\"{INSTRUCTION}\""));
}
