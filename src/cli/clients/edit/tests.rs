//! Tests of the edits of settings files.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{FileSyntax, UndoStep, apply, undo};

fn path(dotted: &str) -> Vec<String> {
    dotted.split('/').map(str::to_owned).collect()
}

/// Sets keys and returns the text and the steps that undo it.
fn set(syntax: FileSyntax, text: &str, keys: &[(&str, Value)]) -> (String, Vec<UndoStep>) {
    let mut new = text.to_owned();
    let mut steps = Vec::new();
    for (key, value) in keys {
        let edits = syntax.set(&new, &path(key), value).unwrap_or_else(|fault| panic!("{fault:?} in {new}"));
        steps.extend(apply(&mut new, edits));
        syntax.check(&new).unwrap_or_else(|fault| panic!("{fault:?} in {new}"));
    }
    assert_eq!(undo(&new, &steps).as_deref(), Some(text), "{new}");
    (new, steps)
}

fn removed(syntax: FileSyntax, text: &str, key: &str) -> String {
    let mut new = text.to_owned();
    let edits = syntax.remove(&new, &path(key)).unwrap();
    let steps = apply(&mut new, edits);
    syntax.check(&new).unwrap_or_else(|fault| panic!("{fault:?} in {new}"));
    assert_eq!(undo(&new, &steps).as_deref(), Some(text));
    new
}

#[test]
fn json_member_is_inserted_in_the_layout_of_the_file() {
    for (text, expected) in [
        ("", "{\n  \"a\": 1\n}\n"),
        ("{}", "{\n  \"a\": 1\n}"),
        ("{ }\n", "{\n  \"a\": 1\n}\n"),
        ("{\"x\": 0}", "{\"x\": 0, \"a\": 1}"),
        ("{\"x\": 0,}", "{\"x\": 0, \"a\": 1,}"),
        ("{\n\t\"x\": 0\n}\n", "{\n\t\"x\": 0,\n\t\"a\": 1\n}\n"),
        ("{\r\n    \"x\": 0\r\n}\r\n", "{\r\n    \"x\": 0,\r\n    \"a\": 1\r\n}\r\n"),
        ("{\n  \"x\": 0, // note\n}\n", "{\n  \"x\": 0, // note\n  \"a\": 1,\n}\n"),
        ("{\n  \"x\": 0 // note\n}\n", "{\n  \"x\": 0, // note\n  \"a\": 1\n}\n"),
        ("{\n  \"x\": 0 /* note */\n}\n", "{\n  \"x\": 0, /* note */\n  \"a\": 1\n}\n"),
        ("{\n  // only a comment\n}\n", "{\n  \"a\": 1\n  // only a comment\n}\n"),
        ("// head\n", "// head\n{\n  \"a\": 1\n}\n"),
    ] {
        assert_eq!(set(FileSyntax::Json, text, &[("a", json!(1))]).0, expected, "{text}");
    }
}

#[test]
fn json_nested_members_share_one_object() {
    let keys = [("env/A", json!("x")), ("env/B", json!("y"))];
    assert_eq!(
        set(FileSyntax::Json, "{\n  \"model\": \"m\"\n}\n", &keys).0,
        "{\n  \"model\": \"m\",\n  \"env\": {\n    \"A\": \"x\",\n    \"B\": \"y\"\n  }\n}\n"
    );
}

#[test]
fn json_member_is_removed_with_its_line() {
    for (text, expected) in [
        ("{\"a\": 1}", "{}"),
        ("{\"a\": 1, \"b\": 2}", "{\"b\": 2}"),
        ("{\"b\": 2, \"a\": 1}", "{\"b\": 2}"),
        ("{\n  \"a\": 1,\n  \"b\": 2\n}\n", "{\n  \"b\": 2\n}\n"),
        ("{\n  \"b\": 2,\n  \"a\": 1\n}\n", "{\n  \"b\": 2\n}\n"),
        ("{\n  \"b\": 2, // two\n  \"a\": 1\n}\n", "{\n  \"b\": 2 // two\n}\n"),
        ("{\n  \"b\": 2,\n  \"a\": 1,\n}\n", "{\n  \"b\": 2,\n}\n"),
    ] {
        assert_eq!(removed(FileSyntax::Json, text, "a"), expected, "{text}");
    }
}

#[test]
fn json_faults_name_the_line() {
    let key = path("env/A");
    for (text, line, word) in [
        ("{\n  \"env\": {\n", 2, "object"),
        ("[]\n", 1, "top level"),
        ("{\n  \"env\": null\n}", 2, "not an object"),
        ("{\n  \"env\": {\"A\": 1},\n  \"env\": {}\n}", 3, "twice"),
        ("{\n  'env': {}\n}", 2, "quoted"),
        ("{\"a\": 1}\n{}", 2, "one JSON value"),
    ] {
        let fault = FileSyntax::Json.set(text, &key, &json!("x")).unwrap_err();
        assert_eq!(fault.line, line, "{text}: {fault:?}");
        assert!(fault.what.contains(word), "{text}: {fault:?}");
    }
}

#[test]
fn toml_key_is_inserted_before_the_first_header() {
    for (text, expected) in [
        ("", "a = 1\n"),
        ("x = 0", "x = 0\na = 1\n"),
        ("x = 0 # note\n\n[t]\ny = 1\n", "x = 0 # note\na = 1\n\n[t]\ny = 1\n"),
        ("x.y = 0\n[t]\n", "x.y = 0\na = 1\n[t]\n"),
        ("[t]\r\ny = 1\r\n", "a = 1\r\n[t]\r\ny = 1\r\n"),
        ("# about\n\n[t]\n", "# about\na = 1\n\n[t]\n"),
        ("# of t\n[t]\n", "a = 1\n# of t\n[t]\n"),
        ("#:schema x\n# of t\n[t]\n", "#:schema x\na = 1\n# of t\n[t]\n"),
        ("x = \"\"\"\n[no]\n\"\"\"\n[t]\n", "x = \"\"\"\n[no]\n\"\"\"\na = 1\n[t]\n"),
        ("x = [\n  1,\n]\n", "x = [\n  1,\n]\na = 1\n"),
    ] {
        assert_eq!(set(FileSyntax::Toml, text, &[("a", json!(1))]).0, expected, "{text}");
    }
}

#[test]
fn toml_table_is_appended_and_filled() {
    let keys = [("p/gw/name", json!("n")), ("p/gw/on", json!(false)), ("p/gw/h", json!({"A-b": "c"}))];
    for (text, expected) in [
        ("", "[p.gw]\nname = \"n\"\non = false\nh = { A-b = \"c\" }\n"),
        ("x = 1", "x = 1\n\n[p.gw]\nname = \"n\"\non = false\nh = { A-b = \"c\" }\n"),
        (
            "[p.gw]\nname = 'old' # mine\n[p.other]\n",
            "[p.gw]\nname = \"n\" # mine\non = false\nh = { A-b = \"c\" }\n[p.other]\n",
        ),
        (
            "[p.gw.sub]\nz = 1\n[q]\n",
            "[p.gw.sub]\nz = 1\n[q]\n\n[p.gw]\nname = \"n\"\non = false\nh = { A-b = \"c\" }\n",
        ),
        ("[p.gw]", "[p.gw]\nname = \"n\"\non = false\nh = { A-b = \"c\" }\n"),
    ] {
        assert_eq!(set(FileSyntax::Toml, text, &keys).0, expected, "{text}");
    }
}

#[test]
fn toml_faults_name_the_line() {
    let key = path("p/gw/name");
    for (text, line, word) in [
        ("x = 1\ny = = 2\n", 2, ""),
        ("x = 1\nx = 2\n", 2, "duplicate"),
        ("x = 1\np = { gw = { a = 1 } }\n", 2, "header"),
        ("p = 1\n", 1, "header"),
        ("[[p]]\na = 1\n", 1, "header"),
        ("p.gw.a = 1\n", 1, "dotted"),
        ("x = 1\n[p.gw.name]\n", 2, "table"),
    ] {
        let fault = FileSyntax::Toml.set(text, &key, &json!("x")).unwrap_err();
        assert_eq!(fault.line, line, "{text}: {fault:?}");
        assert!(fault.what.contains(word), "{text}: {fault:?}");
    }
}

#[test]
fn toml_key_and_empty_table_are_removed() {
    assert_eq!(removed(FileSyntax::Toml, "a = 1 # x\nb = 2\n", "a"), "b = 2\n");
    assert_eq!(removed(FileSyntax::Toml, "[t]\na = [\n1,\n]\n[u]\n", "t/a"), "[t]\n[u]\n");
    let text = "x = 1\n\n[p.gw]\n";
    let mut new = text.to_owned();
    let edits = FileSyntax::Toml.remove_empty(&new, &path("p/gw")).unwrap();
    apply(&mut new, edits);
    assert_eq!(new, "x = 1\n");
}

#[test]
fn lines_are_replaced_by_a_block_and_restored() {
    let text = "# keys\nGEMINI_API_KEY=old\r\nexport OTHER='x y'\r\n";
    let keys = [("GEMINI_API_KEY", json!("k")), ("GOOGLE_GEMINI_BASE_URL", json!("http://a:1"))];
    let (new, _) = set(FileSyntax::Env, text, &keys);
    let path_key = path("GEMINI_API_KEY");
    assert_eq!(FileSyntax::Env.get(&new, &path_key).unwrap().as_deref(), Some("k"));
    assert!(new.contains("# model-gateway replaces: GEMINI_API_KEY=old"), "{new}");
    let mut back = new;
    for key in keys.map(|(key, _)| key) {
        let edits = FileSyntax::Env.restore(&back, &path(key), None).unwrap();
        apply(&mut back, edits);
    }
    assert_eq!(back, text);
}

#[test]
fn lines_that_are_not_understood_are_faults() {
    for (syntax, text, line) in [
        (FileSyntax::Env, "A=1\nwhat is this\n", 2),
        (FileSyntax::Env, "A=\"one\ntwo\"\n", 1),
        (FileSyntax::Yaml, "a: 1\n{b: 2}\n", 2),
        (FileSyntax::Yaml, "- a\n", 1),
        (FileSyntax::Yaml, "a: 1\n---\nb: 2\n", 2),
        (FileSyntax::Yaml, "x: 1\nmodel: |\n  text\n", 2),
        (FileSyntax::Shell, "option x \\", 1),
        (FileSyntax::Shell, "# >>> model-gateway >>>\n", 1),
    ] {
        let fault = syntax.set(text, &path("model"), &json!("x")).unwrap_err();
        assert_eq!(fault.line, line, "{text}: {fault:?}");
    }
}

#[test]
fn yaml_key_of_a_nested_mapping_is_another_key() {
    let text = "---\n# aider\nread:\n  - a.md\n- b.md\nextra:\n  model: inner\nmodel: outer\n";
    let (new, _) = set(FileSyntax::Yaml, text, &[("model", json!("openai/x"))]);
    assert!(new.contains("\n  model: inner\n# model-gateway replaces: model: outer\n"), "{new}");
    assert!(new.ends_with("model: \"openai/x\"\n# <<< model-gateway <<<\n"), "{new}");
}

#[test]
fn undo_of_another_text_is_refused() {
    let (_, steps) = set(FileSyntax::Json, "{\"x\": 0}", &[("a", json!("a long value of the member"))]);
    assert_eq!(undo("{}", &steps), None);
}

/// Whitespace and comments between the tokens of a generated file.
fn gap() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => Just(""),
        3 => Just(" "),
        2 => Just("\n"),
        1 => Just("\r\n\t"),
        1 => Just(" // c, }\n"),
        1 => Just("/* { \"a\": */"),
        1 => Just("\n  /* x\n y */ "),
    ]
}

fn node() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1".to_owned()),
        Just("\"t//x\"".to_owned()),
        Just("null".to_owned()),
        Just("[ ]".to_owned()),
        Just("\"é\\n\"".to_owned()),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| (object_text(inner.clone()), inner).prop_map(|(object, _)| object))
}

fn object_text(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (gap(), gap(), gap(), inner, gap());
    (prop::collection::vec(member, 0..5), any::<bool>(), gap()).prop_map(|(members, trailing, end)| {
        let names = ["a", "b", "c", "d", "e"];
        let count = members.len();
        let members = members.into_iter().zip(names).enumerate().map(|(index, (part, name))| {
            let (before, colon, value_gap, value, after) = part;
            let comma = if index + 1 < count || trailing { "," } else { "" };
            format!("{before}\"{name}\"{colon}:{value_gap}{value}{after}{comma}")
        });
        format!("{{{}{end}}}", members.collect::<String>())
    })
}

fn key() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c"), Just("z")];
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn toml_text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("# comment = 1"),
        Just(""),
        Just("v = 'x' # y"),
        Just("m = \"\"\"\n[a]\nb = 1\n\"\"\""),
        Just("l = [ # one\n  1,\n]"),
        Just("d.e = { f = 1 }"),
    ];
    let header = prop_oneof![Just("[a]"), Just("[a.b]"), Just("[b]"), Just("[c.a]"), Just("[[q]]")];
    let section = (header, prop::collection::vec(line.clone(), 0..4));
    (prop::collection::vec(line, 0..4), prop::collection::vec(section, 0..4), any::<bool>()).prop_map(
        |(root, sections, crlf)| {
            let mut lines: Vec<&str> = root;
            for (header, body) in sections {
                lines.push(header);
                lines.extend(body);
            }
            lines.join(if crlf { "\r\n" } else { "\n" })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_edit_changes_one_key_and_can_be_undone(text in object_text(node()), key in key(), remove: bool) {
        let key = path(&key);
        let edits = if remove {
            FileSyntax::Json.remove(&text, &key)
        } else {
            FileSyntax::Json.set(&text, &key, &json!({"k": ["v", 1]}))
        };
        // A parent that is no object is a fault.
        let Ok(edits) = edits else { return Ok(()) };
        let before = super::jsonc::tree(&text).unwrap().unwrap();
        let mut new = text.clone();
        let steps = apply(&mut new, edits);
        prop_assert_eq!(undo(&new, &steps), Some(text));
        let mut after = super::jsonc::tree(&new).map_err(|fault| TestCaseError::fail(format!("{fault:?}: {new}")))?.unwrap();
        let mut expected = before;
        change(&mut expected, &key, (!remove).then(|| json!({"k": ["v", 1]})));
        sort(&mut after);
        sort(&mut expected);
        prop_assert_eq!(after, expected, "{}", new);
    }

    #[test]
    fn toml_edit_changes_one_key_and_can_be_undone(text in toml_text(), key in key(), remove: bool) {
        if FileSyntax::Toml.check(&text).is_err() {
            return Ok(());
        }
        let key = path(&key);
        let edits = if remove {
            FileSyntax::Toml.remove(&text, &key)
        } else {
            FileSyntax::Toml.set(&text, &key, &json!("v"))
        };
        let Ok(edits) = edits else { return Ok(()) };
        let mut new = text.clone();
        let steps = apply(&mut new, edits);
        prop_assert_eq!(undo(&new, &steps), Some(text.clone()));
        let tree = |text: &str| -> Result<Value, TestCaseError> {
            let value: toml_edit::DocumentMut = text.parse().map_err(|error| TestCaseError::fail(format!("{error}: {text:?}")))?;
            Ok(toml_tree(value.as_item()))
        };
        let mut expected = tree(&text)?;
        change(&mut expected, &key, (!remove).then(|| json!("v")));
        let mut after = tree(&new)?;
        sort(&mut after);
        sort(&mut expected);
        prop_assert_eq!(after, expected, "{}", new);
    }
}

fn toml_tree(item: &toml_edit::Item) -> Value {
    match item {
        toml_edit::Item::None => Value::Null,
        toml_edit::Item::Value(toml_edit::Value::InlineTable(table)) => Value::from(table.to_string().trim()),
        toml_edit::Item::Value(value) => {
            let mut value = value.clone();
            value.decor_mut().clear();
            Value::String(value.to_string())
        }
        toml_edit::Item::Table(table) => {
            Value::Object(table.iter().map(|(name, item)| (name.to_owned(), toml_tree(item))).collect())
        }
        toml_edit::Item::ArrayOfTables(tables) => Value::from(tables.len()),
    }
}

/// Sets or removes a key in a tree.
fn change(tree: &mut Value, path: &[String], value: Option<Value>) {
    let Some((name, rest)) = path.split_first() else { return };
    let Some(members) = tree.as_object_mut() else { return };
    if !rest.is_empty() {
        if value.is_some() || members.contains_key(name) {
            change(members.entry(name.clone()).or_insert_with(|| json!({})), rest, value);
        }
    } else if let Some(value) = value {
        // The text of a TOML value.
        let text = value.as_str().map(|text| json!(format!("\"{text}\"")));
        members.insert(name.clone(), text.unwrap_or(value));
    } else {
        members.shift_remove(name);
    }
}

fn sort(tree: &mut Value) {
    tree.sort_all_objects();
}
