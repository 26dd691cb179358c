use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn scan(pieces: &[&[u8]]) -> Result<Vec<Member>, ScanError> {
    let mut scan = Scanner::new(&["model", "stream"]);
    for piece in pieces {
        scan.push(piece)?;
    }
    scan.finish().map(|members| members.into_vec())
}

fn values<'t>(text: &'t str, members: &[Member]) -> Vec<(Option<u8>, &'t str)> {
    members.iter().map(|m| (m.wanted, &text[m.value.clone()])).collect()
}

#[test]
fn scanner_finds_members_of_the_outermost_object_only() {
    let text = r#" {"a":{"model":"no","x":[{"model":1}]} , "model" : "yes","stream":true, "n":-1.5e+3 } "#;
    let members = scan(&[text.as_bytes()]).unwrap();
    assert_eq!(
        values(text, &members),
        [
            (None, r#"{"model":"no","x":[{"model":1}]}"#),
            (Some(0), r#""yes""#),
            (Some(1), "true"),
            (None, "-1.5e+3")
        ]
    );
    assert_eq!(members[1].kind, ValueKind::String);
    assert_eq!(members[3].kind, ValueKind::Number);
}

#[test]
fn scanner_decodes_escapes_in_member_names() {
    let text = r#"{"mod\u0065l":"x"}"#;
    assert_eq!(scan(&[text.as_bytes()]).unwrap()[0].wanted, Some(0));
    let doubled = r#"{"model":"x","m\u006fdel":"y"}"#;
    let error = scan(&[doubled.as_bytes()]).unwrap_err();
    let ScanErrorKind::Duplicate(range) = error.kind else { panic!("{error}") };
    assert_eq!(&doubled[range], "m\\u006fdel");
}

#[test]
fn scanner_detects_duplicates_among_many_and_long_names() {
    let many: String = (0..200).map(|i| format!("\"k{i}\":{i},")).collect();
    assert!(scan(&[format!("{{{many}\"z\":1}}").as_bytes()]).is_ok());
    assert!(matches!(
        scan(&[format!("{{{many}\"k77\":1}}").as_bytes()]).unwrap_err().kind,
        ScanErrorKind::Duplicate(_)
    ));
    let long = "n".repeat(5000);
    let text = format!("{{\"{long}\":1,\"{long}\":2}}");
    for cut in [1, 300, 1500, 5003, 5300, 7000] {
        let (a, b) = text.as_bytes().split_at(cut);
        assert!(matches!(scan(&[a, b]).unwrap_err().kind, ScanErrorKind::Duplicate(_)), "{cut}");
    }
    assert!(scan(&[format!("{{\"{long}a\":1,\"{long}b\":2}}").as_bytes()]).is_ok());
}

#[test]
fn scanner_member_limit_holds_at_every_split() {
    let object = |count: usize| {
        let members: Vec<String> = (0..count).map(|number| format!("\"k{number}\":{{}}")).collect();
        format!("{{{}}}", members.join(","))
    };
    assert_eq!(scan(&[object(MOST_MEMBERS).as_bytes()]).unwrap().len(), MOST_MEMBERS);
    let more = object(MOST_MEMBERS + 1);
    let at = more.rfind("\"k").unwrap();
    for cut in [at - 1, at, at + 1, more.len()] {
        let (a, b) = more.as_bytes().split_at(cut);
        assert_eq!(
            scan(&[a, b]).unwrap_err(),
            ScanError { at, kind: ScanErrorKind::TooManyMembers },
            "{cut}"
        );
    }
    // Inner objects may have more members than that.
    assert_eq!(scan(&[format!("{{\"a\":{more}}}").as_bytes()]).unwrap().len(), 1);
}

#[test]
fn scanner_refuses_input_that_is_not_one_object() {
    use ScanErrorKind::*;
    for (text, kind) in [
        ("", Empty),
        ("  \n", Empty),
        ("[1,2]", NotAnObject),
        ("\"a\"", NotAnObject),
        ("12", NotAnObject),
        ("{", Syntax("the document ends too early")),
        ("{\"a\":1", Syntax("the document ends too early")),
        ("{\"a\"", Syntax("the document ends too early")),
        ("{\"a\":1}x", Syntax("something follows the document")),
        ("{\"a\":1}{}", Syntax("something follows the document")),
    ] {
        assert_eq!(scan(&[text.as_bytes()]).unwrap_err().kind, kind, "{text}");
    }
}

/// Reference check: serde_json must agree on which documents are valid.
fn twin(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
        && serde_json::from_slice::<std::collections::BTreeMap<String, &serde_json::value::RawValue>>(bytes)
            .is_ok()
}

#[test]
fn scanner_accepts_the_same_hard_cases_as_the_reference() {
    for text in [
        r#"{}"#,
        r#"{"a":0}"#,
        r#"{"a":-0}"#,
        r#"{"a":01}"#,
        r#"{"a":1.}"#,
        r#"{"a":.5}"#,
        r#"{"a":1e}"#,
        r#"{"a":1e+}"#,
        r#"{"a":1E-07}"#,
        r#"{"a":-}"#,
        r#"{"a":+1}"#,
        r#"{"a":tru}"#,
        r#"{"a":True}"#,
        r#"{"a":nul}"#,
        r#"{"a":[1,]}"#,
        r#"{"a":[,1]}"#,
        r#"{"a":1,}"#,
        r#"{,"a":1}"#,
        r#"{"a" 1}"#,
        r#"{"a":}"#,
        r#"{a:1}"#,
        r#"{"a":[}]}"#,
        r#"{"a":{]}}"#,
        r#"{"a":"\x"}"#,
        r#"{"a":"\u12G4"}"#,
        r#"{"a":"\u1234\ud83d\ude00"}"#,
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\u{7f}\"}",
        "{\"a\":1 2}",
        "\u{feff}{}",
        r#"{"a":"é🌍","b":[[[]],{}]}"#,
    ] {
        assert_eq!(scan(&[text.as_bytes()]).is_ok(), twin(text.as_bytes()), "{text}");
    }
    for bytes in
        [&b"{\"a\":\"\xff\"}"[..], b"{\"a\":\"\xc3\"}", b"{\"a\":\"\xe2\x82\"}", b"{\"\xf0\x9f\x8c\x8d\":1}"]
    {
        assert_eq!(scan(&[bytes]).is_ok(), twin(bytes), "{bytes:?}");
    }
}

#[test]
fn scanner_nesting_depth_is_limited() {
    let deep = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
    assert!(scan(&[deep(511).as_bytes()]).is_ok());
    assert_eq!(scan(&[deep(512).as_bytes()]).unwrap_err().kind, ScanErrorKind::Syntax("nested too deeply"));
}

#[test]
fn cursor_walks_nested_values_in_order() {
    let text = r#"{"id":"a\nb","list":[1,[2],{"x":null}],"usage":{"n": 7 },"ok":false,"f":1.0}"#;
    let mut json = Cursor::new(text);
    let mut seen = Vec::new();
    json.begin_object().unwrap();
    while let Some(key) = json.next_key().unwrap() {
        match key.escaped() {
            "id" => seen.push(json.string().unwrap().decode().into_owned()),
            "list" => {
                json.begin_array().unwrap();
                while json.next_element().unwrap() {
                    seen.push(json.raw().unwrap().text().to_owned());
                }
            }
            "usage" => {
                json.begin_object().unwrap();
                while let Some(inner) = json.next_key().unwrap() {
                    assert!(inner.is("n"));
                    seen.push(json.u64_or_skip().unwrap().unwrap().to_string());
                }
            }
            "f" => seen.push(json.u64_or_skip().unwrap().unwrap().to_string()),
            _ => json.skip().unwrap(),
        }
    }
    json.end().unwrap();
    assert_eq!(seen, ["a\nb", "1", "[2]", r#"{"x":null}"#, "7", "1"]);
}

#[test]
fn cursor_error_has_the_byte_position() {
    let mut json = Cursor::new(r#"{"a":"b" "c":1}"#);
    json.begin_object().unwrap();
    json.next_key().unwrap();
    json.skip().unwrap();
    assert_eq!(json.next_key().unwrap_err().at, 9);
    for broken in ["", "{", "[1", "\"a", "{\"a\":\"b", "tru", "{\"a\\"] {
        assert!(Cursor::new(broken).skip().is_err(), "{broken}");
    }
}

#[test]
fn string_escapes_decode_as_in_serde() {
    for text in [
        r#""""#,
        r#""plain""#,
        r#""\"\\\/\b\f\n\r\t""#,
        r#""\u00e9\u4e2d""#,
        r#""\ud83c\udf0d and \u0041""#,
        r#""a\u0000b""#,
    ] {
        let expected: String = serde_json::from_str(text).unwrap();
        let got = RawJson::from_text(text).as_str().unwrap();
        assert_eq!(got.decode(), expected);
        assert!(got.is(&expected));
    }
    // A lone surrogate is replaced, and the text behind it stays.
    assert_eq!(JsonStr::from_escaped(r"\ud83cx").decode(), "\u{fffd}x");
    assert_eq!(JsonStr::from_escaped(r"\ud83c\u0041").decode(), "\u{fffd}A");
}

#[test]
fn rope_of_many_small_pieces_is_compacted() {
    let mut rope = Rope::new();
    for _ in 0..100_000 {
        rope.push(Bytes::copy_from_slice(b"x"));
    }
    assert_eq!(rope.len(), 100_000);
    let pieces = rope.into_pieces();
    assert!(pieces.len() < 10, "{} pieces", pieces.len());
}

proptest! {
    #[test]
    fn scanner_accepts_the_same_text_as_the_reference(text in r#"[\[\]{},:"a\\u0-9.eE+\- tfnrulse\x01é]{0,24}"#) {
        let text = format!("{{\"k\":{text}}}");
        prop_assert_eq!(scan(&[text.as_bytes()]).is_ok(), twin(text.as_bytes()));
    }

    #[test]
    fn scanner_result_is_the_same_at_every_split(
        text in r#"\{"model":"[a-z é🌍\\n]{0,9}","(a|stream|mod\\u0065l)":(\[1,\{"model":"x"\},-2\.5e3\]|true|"\\"\\u00e9")\}"#,
        cuts in proptest::collection::vec(0usize..80, 0..6),
    ) {
        let whole = scan(&[text.as_bytes()]);
        let bytewise: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        prop_assert_eq!(&scan(&bytewise), &whole);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&c| c < text.len()).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts {
            pieces.push(&text.as_bytes()[from..cut]);
            from = cut;
        }
        pieces.push(&text.as_bytes()[from..]);
        prop_assert_eq!(scan(&pieces), whole);
    }

    #[test]
    fn scanner_long_escaped_strings_match_the_reference_at_every_split(
        parts in proptest::collection::vec(prop_oneof![
            8 => "[a-z ]{0,30}",
            8 => prop_oneof![Just(r"\n"), Just(r#"\""#), Just(r"\\\\"), Just(r"\t\\"), Just(r"\u00e9"), Just(r"\/")]
                .prop_map(str::to_owned),
            2 => "é{0,9}",
            1 => prop_oneof![Just(r"\x"), Just(r"\u00g9"), Just(r"\\\"), Just("\n"), Just("\\\n"), Just("\"")]
                .prop_map(str::to_owned),
        ], 0..40),
        cuts in proptest::collection::vec(0usize..600, 0..4),
        tail in "[a-z]{0,70}",
    ) {
        let text = format!(r#"{{"k":"{}","tail":"{tail}"}}"#, parts.concat());
        let bytes = text.as_bytes();
        let whole = scan(&[bytes]);
        prop_assert_eq!(whole.is_ok(), twin(bytes));
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&scan(&bytewise), &whole);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < bytes.len()).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([bytes.len()]) {
            pieces.push(&bytes[from..cut]);
            from = cut;
        }
        prop_assert_eq!(scan(&pieces), whole);
    }

    #[test]
    fn string_escaping_round_trips(plain in any::<String>()) {
        let mut out = Vec::new();
        Writer::new(&mut out).string(&plain);
        let text = String::from_utf8(out).unwrap();
        prop_assert_eq!(serde_json::from_str::<String>(&text).unwrap(), plain.clone());
        let raw = RawJson::from_text(&text);
        prop_assert_eq!(raw.as_str().unwrap().decode(), plain);
    }

    #[test]
    fn cursor_never_panics_and_accepts_valid_json(text in r#"[\[\]{},:"a\\u0-9.eE+\- tfnrulse]{0,30}"#) {
        let mut json = Cursor::new(&text);
        let read = json.skip().and_then(|()| json.end());
        if serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok() {
            prop_assert!(read.is_ok());
        }
    }

    #[test]
    fn rope_edits_equal_string_edits(
        text in proptest::collection::vec(any::<u8>(), 1..200),
        cuts in proptest::collection::vec(1usize..40, 1..8),
        marks in proptest::collection::btree_set(0usize..200, 0..8),
    ) {
        let mut rope = Rope::new();
        let mut from = 0;
        for cut in cuts.iter().cycle() {
            let to = (from + cut).min(text.len());
            rope.push_exact(Bytes::copy_from_slice(&text[from..to]));
            from = to;
            if from == text.len() { break; }
        }
        let marks: Vec<usize> = marks.into_iter().filter(|&m| m <= text.len()).collect();
        let mut edits = Vec::new();
        let mut expected = Vec::new();
        let mut at = 0;
        for (index, pair) in marks.chunks(2).enumerate() {
            let start = pair[0];
            let end = pair.get(1).copied().unwrap_or(start);
            let replacement = format!("<{index}>");
            expected.extend_from_slice(&text[at..start]);
            expected.extend_from_slice(replacement.as_bytes());
            edits.push(Edit { range: start..end, text: Bytes::from(replacement) });
            at = end;
        }
        expected.extend_from_slice(&text[at..]);
        for range in [0..text.len(), 3..9, 50..120, 10..10] {
            let end = range.end.min(text.len());
            let start = range.start.min(end);
            prop_assert_eq!(&rope.clone().slice(start..end)[..], &text[start..end]);
        }
        let edited = rope.edited(&edits);
        prop_assert_eq!(edited.len(), expected.len());
        prop_assert_eq!(&edited.into_contiguous()[..], &expected[..]);
    }
}

/// Reads a value as a tree, using only the cursor.
fn tree(json: &mut Cursor<'_>) -> Result<serde_json::Value, JsonError> {
    use serde_json::Value;
    Ok(match json.kind()? {
        ValueKind::Object => {
            let mut members = serde_json::Map::new();
            json.begin_object()?;
            while let Some(key) = json.next_key()? {
                members.insert(key.decode().into_owned(), tree(json)?);
            }
            Value::Object(members)
        }
        ValueKind::Array => {
            let mut elements = Vec::new();
            json.begin_array()?;
            while json.next_element()? {
                elements.push(tree(json)?);
            }
            Value::Array(elements)
        }
        ValueKind::String => Value::String(json.string()?.decode().into_owned()),
        ValueKind::Bool => Value::Bool(json.boolean()?),
        ValueKind::Null => {
            assert_eq!(json.string_or_null()?, None);
            Value::Null
        }
        ValueKind::Number => serde_json::from_str(json.raw()?.text()).unwrap(),
    })
}

fn any_tree() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        // Multiples of 1/8: serde_json does not parse every float exactly.
        (-1_000_000i32..1_000_000).prop_map(|n| Value::from(f64::from(n) / 8.0)),
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::btree_map("[a-zé\"\\\\]{0,4}", inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn cursor_reads_the_same_tree_as_serde(value in any_tree(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let mut json = Cursor::new(&text);
        prop_assert_eq!(tree(&mut json).unwrap(), value);
        prop_assert_eq!(json.end(), Ok(()));
        let mut json = Cursor::new(&text);
        prop_assert_eq!(json.raw().unwrap().text(), &text);
    }

    #[test]
    fn string_of_an_object_is_never_taken_for_another_text(
        front in r"( |\\[ntr]|\\u0020|\\u000[9aAdD]|\\f){0,4}(\{|\\u007[bB]|\\u0022|\\/|\[|[a-z]|é|\u{a0})?",
        behind in r"( |\\n|\\u0020)?\}?",
    ) {
        let inside = format!("{front}{behind}");
        let string = JsonStr::from_escaped(&inside);
        let plain = string.decode();
        // White space of JSON, and the wider white space that some readers trim.
        let is_object = plain.trim().starts_with('{');
        prop_assert!(!is_object || string.may_be_object(), "{inside}");
        // What is plainly something else is found without decoding it.
        if !inside.contains(['\\', '{']) && inside.is_ascii() {
            prop_assert!(!string.may_be_object(), "{inside}");
        }
    }

    #[test]
    fn number_as_u64_agrees_with_serde(text in "-?(0|[1-9][0-9]{0,21})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?") {
        let ours = RawJson::from_text(&text).as_u64();
        if let Ok(whole) = serde_json::from_str::<u64>(&text) {
            prop_assert_eq!(ours, Some(whole));
        } else if let Some(ours) = ours {
            // serde_json does not parse every float exactly.
            let theirs = serde_json::from_str::<f64>(&text).unwrap();
            prop_assert!((theirs - ours as f64).abs() <= 1.0, "{} against {}", theirs, ours);
        }
    }

    /// Escapes of every kind, valid and invalid.
    #[test]
    fn string_generated_escapes_decode_as_in_serde(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("\\n".to_owned()), Just("\\/".to_owned()), Just("\\\\".to_owned()), Just("\\\"".to_owned()),
                Just("\\ud83d\\ude00".to_owned()), Just("\\u0000".to_owned()),
                "[a-zé🌍 ]{0,5}", "\\\\u00[0-9a-fA-F]{2}",
            ],
            0..60,
        ),
    ) {
        let inside = parts.concat();
        let text = format!("\"{inside}\"");
        let expected: String = serde_json::from_str(&text).unwrap();
        let string = JsonStr::from_escaped(&inside);
        prop_assert_eq!(string.decode(), &*expected);
        prop_assert_eq!(string.char_count(), expected.chars().count() as u64);
        prop_assert!(string.is(&expected));
        prop_assert_eq!(Cursor::new(&text).string().unwrap(), string);
    }
}

#[test]
fn string_characters_are_counted_as_code_points() {
    for (escaped, count) in [
        ("", 0),
        ("abc", 3),
        ("a\\n\\\"b", 4),
        ("Grüße 🌍", 7),
        ("\\u00e9x", 2),
        ("\\ud83c\\udf0d!", 2),
        ("\\ud83c!", 2),
    ] {
        assert_eq!(JsonStr::from_escaped(escaped).char_count(), count, "{escaped}");
    }
}
