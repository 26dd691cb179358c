//! JSON Schemas in conf/schema, checked against the configuration reader's keys, the page and all examples.

use std::collections::BTreeSet;

use model_gateway::config;
use model_gateway::config::reference::{ConfigFile, keys};
use serde_json::Value;

use super::json_schema::violations;
use super::{gateway, golden, root, text};

fn parsed(file: ConfigFile) -> Value {
    serde_json::from_str(&config::schema(file)).unwrap()
}

/// A TOML document as JSON, as editors convert it: date-times are texts.
fn as_json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(list) => list.into_iter().map(as_json).collect(),
        toml::Value::Table(table) => table.into_iter().map(|(key, value)| (key, as_json(value))).collect(),
    }
}

fn read(text: &str) -> Value {
    as_json(text.parse::<toml::Table>().unwrap().into())
}

#[test]
fn schemas_are_up_to_date_and_printed_by_the_program() {
    for file in ConfigFile::ALL {
        golden(&format!("conf/schema/{}.schema.json", file.name()), &config::schema(file));
        let output = gateway(&["schema", file.name()]);
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), config::schema(file));
    }
    assert!(!gateway(&["schema", "others"]).status.success());
}

#[test]
fn schemas_accept_every_valid_configuration() {
    for folder in ["conf", "packaging/conf", "tests/config/valid"] {
        let mut seen = 0;
        let parent = root().join(folder);
        let below = std::fs::read_dir(&parent).unwrap().map(|entry| entry.unwrap().path());
        for place in below.filter(|path| path.is_dir()).chain([parent.clone()]) {
            for file in ConfigFile::ALL {
                let path = place.join(format!("{}.toml", file.name()));
                let Ok(text) = std::fs::read_to_string(&path) else { continue };
                seen += 1;
                let found = violations(&parsed(file), &read(&text));
                assert!(found.is_empty(), "{}: {found:#?}", path.display());
            }
        }
        assert!(seen >= 3, "{folder}: {seen} files");
    }
}

/// Keys of a schema by their paths, without the list marks.
fn collect(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            collect(property, &path, found);
            found.insert(path);
        }
    }
    if let Some(items) = schema.get("items") {
        collect(items, path, found);
    }
    // A text, or where it is read from: no keys of their own.
    let is_source = |other: &&Value| {
        other.pointer("/properties/env").is_some() && other.pointer("/properties/value").is_some()
    };
    for other in
        schema.get("anyOf").and_then(Value::as_array).into_iter().flatten().filter(|other| !is_source(other))
    {
        collect(other, path, found);
    }
}

#[test]
fn schemas_have_the_documented_keys_and_no_other() {
    for file in ConfigFile::ALL {
        let mut found = BTreeSet::new();
        collect(&parsed(file), "", &mut found);
        let documented: BTreeSet<String> = keys(file).into_iter().map(|key| key.path).collect();
        assert_eq!(found, documented);
    }
}

#[test]
fn schemas_refuse_what_the_reader_refuses() {
    for (file, text) in [
        (ConfigFile::Gateway, "[server]\nlisten = [\"localhost\"]\n"),
        (ConfigFile::Gateway, "[server]\nlisten = []\nport = 80\n"),
        (ConfigFile::Gateway, "[limits]\nbody = \"64MiB\"\n"),
        (ConfigFile::Gateway, "[server]\n[limits]\nbody = 64\n"),
        (ConfigFile::Gateway, "[server]\n[limits]\nbody = \"64 megabytes\"\n"),
        (ConfigFile::Gateway, "[server]\ndrain = \"2 weeks\"\n"),
        (ConfigFile::Gateway, "[server]\n[store]\naway = \"maybe\"\n"),
        (ConfigFile::Routes, "[[provider]]\nname = \"p\"\nkind = \"opena\"\n"),
        (ConfigFile::Routes, "[[provider]]\nname = \"p\"\nkind = \"openai\"\ncredential = {}\n"),
        (ConfigFile::Routes, "[[provider]]\nname = \"p\"\nkind = \"openai\"\napis = [\"chat\", \"x\"]\n"),
        (ConfigFile::Routes, "[[model]]\nid = \"m\"\n"),
        (ConfigFile::Routes, "[[model]]\nid = \"m\"\ntargets = [{ provider = \"p\" }]\n"),
        (ConfigFile::Routes, "[retry]\nattempts = 17\n"),
        (ConfigFile::Keys, "[[key]]\nname = \"alice\"\n"),
        (ConfigFile::Keys, "[[key]]\nname = \"alice\"\nsha256 = \"ab\"\n"),
        (ConfigFile::Keys, "[key]\nname = \"alice\"\n"),
    ] {
        assert!(!violations(&parsed(file), &read(text)).is_empty(), "{}: {text}", file.name());
        // Beside valid files, so that every fault is one of this text.
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("gateway.toml", "[server]\nlisten = [\"127.0.0.1:0\"]\n");
        put("routes.toml", "");
        put("keys.toml", "");
        put(&format!("{}.toml", file.name()), text);
        let loaded = config::load(&folder.path().join("gateway.toml"), &config::NoSecrets);
        assert!(loaded.is_err(), "{}: {text}", file.name());
    }
}

/// TOML editors take the schema from this comment.
#[test]
fn examples_name_their_schemas() {
    for example in ["minimal", "full", "production"] {
        for file in ConfigFile::ALL {
            let path = format!("conf/{example}/{}.toml", file.name());
            let line = format!("#:schema ../schema/{}.schema.json\n", file.name());
            assert!(text(&path).starts_with(&line), "{path} does not begin with {line}");
        }
    }
}
