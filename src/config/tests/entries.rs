//! Tests of entries that are edited as JSON: comments and order stay, and the rest of the file is untouched.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toml_edit::DocumentMut;

use crate::EntryKind;
use crate::entries::Entries;
use crate::masking::masked;

const KINDS: [EntryKind; 4] = [EntryKind::Key, EntryKind::Account, EntryKind::Provider, EntryKind::Model];

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

/// Texts of the examples, which have comments of every kind.
fn examples() -> Vec<(EntryKind, String)> {
    super::enter_repository();
    let mut texts = Vec::new();
    for kind in KINDS {
        let file = if matches!(kind, EntryKind::Key | EntryKind::Account) { "keys" } else { "routes" };
        for folder in ["conf/full", "conf/production", "conf/minimal"] {
            texts.push((kind, std::fs::read_to_string(format!("{folder}/{file}.toml")).unwrap()));
        }
    }
    texts
}

#[test]
fn entry_that_is_created_and_removed_leaves_nothing_behind() {
    for (kind, text) in examples() {
        let mut document: DocumentMut = text.parse().unwrap();
        let entry = members(json!({ kind.id(): "brand new", "limits": { "concurrent": 3 }, "none": null }));
        Entries::new(&mut document, kind).create(&entry, "A comment.").unwrap();
        let changed = document.to_string();
        assert!(changed.contains("# A comment.\n"), "{changed}");
        let parsed: toml::Table = changed.parse().unwrap();
        assert!(
            parsed[kind.name()]
                .as_array()
                .unwrap()
                .iter()
                .any(|e| e[kind.id()].as_str() == Some("brand new"))
        );
        for line in text.lines() {
            assert!(changed.contains(line), "{line}");
        }
        assert!(Entries::new(&mut document, kind).remove("brand new"));
        assert!(!Entries::new(&mut document, kind).remove("brand new"));
        assert_eq!(document.to_string(), text);
    }
}

#[test]
fn entry_change_touches_only_the_lines_of_its_members() {
    let text = "\
# Head.
[[key]] # first
name = \"a\" # who
enabled = true # until further notice

[key.limits]
concurrent = 5 # at a time
# Below.
spend_per_day = 1.50

[[key]]
name = \"b\"
limits = { concurrent = 1, spend_per_day = 2 } # inline
# end
";
    let mut document: DocumentMut = text.parse().unwrap();
    let change = |document: &mut DocumentMut, id: &str, patch: Value| {
        assert!(Entries::new(document, EntryKind::Key).merge(id, &members(patch)).unwrap());
    };
    change(&mut document, "a", json!({ "enabled": false, "limits": { "spend_per_day": "0.1" } }));
    change(&mut document, "b", json!({ "limits": { "concurrent": null, "spend_per_month": 3 } }));
    let expected = text
        .replace("enabled = true #", "enabled = false #")
        .replace("spend_per_day = 1.50", "spend_per_day = 0.1")
        .replace("{ concurrent = 1, spend_per_day = 2 }", "{ spend_per_day = 2 , spend_per_month = 3 }");
    let plain = |text: &str| text.replace(' ', "");
    assert_eq!(plain(&document.to_string()), plain(&expected), "{document}");
    assert!(!Entries::new(&mut document, EntryKind::Key).merge("c", &Map::new()).unwrap());
}

#[test]
fn entry_values_are_converted_by_the_type_of_their_key() {
    let entry = members(json!({
        "name": "k", "sha256": "ab", "expires": "2030-01-01T00:00:00Z",
        "limits": { "spend_per_day": "0.000000001", "spend_per_month": 12345678901.5, "concurrent": 2 },
    }));
    let mut document = DocumentMut::new();
    Entries::new(&mut document, EntryKind::Key).create(&entry, "x").unwrap();
    let text = document.to_string();
    for part in ["expires = 2030-01-01T00:00:00Z", "0.000000001", "12345678901.5", "concurrent = 2"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (wrong, field) in [
        (json!({ "expires": "tomorrow" }), "expires"),
        (json!({ "limits": { "spend_per_day": "1e" } }), "limits.spend_per_day"),
        (json!({ "limits": { "spend_per_day": "nan" } }), "limits.spend_per_day"),
        (json!({ "models": ["a", null] }), "models[1]"),
    ] {
        let refused = Entries::new(&mut document, EntryKind::Key).merge("k", &members(wrong.clone()));
        assert_eq!(refused.unwrap_err().field, field, "{wrong}");
    }
}

#[test]
fn entry_shows_no_secret() {
    let text = "[[provider]]\nname = \"p\"\nbase_url = \"https://u:SECRET@host/v1\"\ncredential = { value = \"SECRET\" }\n\
                headers = { \"x-key\" = \"SECRET\" }\n[[key]]\nname = \"k\"\nsha256 = \"0123456789abSECRET\"\n";
    let mut document: DocumentMut = text.parse().unwrap();
    for (kind, id) in [(EntryKind::Provider, "p"), (EntryKind::Key, "k")] {
        let shown = masked(Entries::new(&mut document, kind).get(id).unwrap(), kind.name()).to_string();
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(12, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(".{0,8}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    /// Whatever a caller sends, the file stays valid TOML, or the entry is refused.
    #[test]
    fn entry_of_arbitrary_json_is_written_as_valid_toml_or_refused(value in json_value(), id in ".{1,12}") {
        let mut document: DocumentMut = "# Head.\n[[key]]\nname = \"a\"\n# end\n".parse().unwrap();
        let mut entry = members(json!({ "limits": value, "models": value, "other": value }));
        entry.insert("name".to_owned(), id.as_str().into());
        if Entries::new(&mut document, EntryKind::Key).create(&entry, "x").is_ok() {
            let text = document.to_string();
            let parsed: toml::Table = text.parse().unwrap();
            prop_assert_eq!(parsed["key"].as_array().unwrap().len(), 2);
            prop_assert!(text.starts_with("# Head.\n[[key]]\nname = \"a\"\n") && text.ends_with("# end\n"));
            prop_assert!(Entries::new(&mut document, EntryKind::Key).get(&id).is_some());
        }
    }
}

/// The comments at the top of a file are not about its first entry, which may come and go.
#[test]
fn entry_that_is_first_leaves_the_comments_of_the_file() {
    let head = "#:schema ../schema/keys.schema.json\n# Keys of the team.\n";
    let mut document: DocumentMut = head.parse().unwrap();
    let create = |document: &mut DocumentMut, name: &str| {
        Entries::new(document, EntryKind::Key).create(&members(json!({ "name": name })), "Added.").unwrap();
    };
    create(&mut document, "one");
    create(&mut document, "two");
    let text = document.to_string();
    assert_eq!(
        text,
        format!("{head}\n# Added.\n[[key]]\nname = \"one\"\n\n# Added.\n[[key]]\nname = \"two\"\n")
    );
    let mut document: DocumentMut = text.parse().unwrap();
    assert!(Entries::new(&mut document, EntryKind::Key).remove("one"));
    assert_eq!(document.to_string(), format!("{head}\n# Added.\n[[key]]\nname = \"two\"\n"));
    assert!(Entries::new(&mut document, EntryKind::Key).remove("two"));
    assert_eq!(document.to_string(), head);
}
