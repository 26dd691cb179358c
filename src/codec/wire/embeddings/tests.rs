//! Tests of embeddings requests and responses.

use bytes::BytesMut;

use super::*;
use crate::canonical::embed::{Embed, EmbedDialect, EmbedInput, EmbedShape, Purpose, PurposeWords};
use json::EscapedString;

fn asked(embed: &Embed<'_>, dialect: &EmbedDialect) -> String {
    let mut out = BytesMut::new();
    ask::encode(embed, &embed.items, dialect, "up", &mut out).unwrap();
    String::from_utf8(out.to_vec()).unwrap()
}

const TEXTS: EmbedDialect = EmbedDialect {
    shape: EmbedShape::Texts,
    dimensions: "output_dimension",
    purpose: "input_type",
    words: PurposeWords::Search,
    ..EmbedDialect::LIST
};
const PARTS: EmbedDialect = EmbedDialect { shape: EmbedShape::Parts, ..EmbedDialect::LIST };
const NESTED: EmbedDialect = EmbedDialect {
    shape: EmbedShape::Nested,
    dimensions: "dimension",
    purpose: "text_type",
    words: PurposeWords::Sides,
    ..EmbedDialect::LIST
};

#[test]
fn request_list_is_encoded_for_each_provider() {
    let body = r#"{"model":"m","input":["a\n","ü"],"dimensions":8,"input_type":"query","truncate":"END"}"#;
    let embed = decode_list(body).unwrap();
    assert!(embed.items.iter().all(|item| item.purpose == Some(Purpose::Query)));
    assert_eq!(
        asked(&embed, &EmbedDialect::LIST),
        r#"{"model":"up","input":["a\n","ü"],"dimensions":8,"input_type":"query","truncate":"END"}"#
    );
    assert_eq!(
        asked(&embed, &TEXTS),
        r#"{"model":"up","texts":["a\n","ü"],"embedding_types":["float"],"output_dimension":8,"input_type":"search_query","truncate":"END"}"#
    );
    assert_eq!(
        asked(&embed, &NESTED),
        r#"{"model":"up","input":{"texts":["a\n","ü"]},"parameters":{"dimension":8,"text_type":"query"}}"#
    );
    assert_eq!(
        asked(&embed, &PARTS),
        concat!(
            r#"{"requests":[{"model":"models/up","content":{"parts":[{"text":"a\n"}]},"taskType":"RETRIEVAL_QUERY","outputDimensionality":8},"#,
            r#"{"model":"models/up","content":{"parts":[{"text":"ü"}]},"taskType":"RETRIEVAL_QUERY","outputDimensionality":8}]}"#
        )
    );
    let packed = decode_list(r#"{"input":"a","encoding_format":"base64","user":null}"#).unwrap();
    assert_eq!(
        asked(&packed, &EmbedDialect::LIST),
        r#"{"model":"up","input":["a"],"encoding_format":"base64"}"#
    );
    let none = EmbedDialect { dimensions: "", ..EmbedDialect::LIST };
    let error = ask::encode(&embed, &embed.items, &none, "up", &mut BytesMut::new()).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("dimensions"));
}

#[test]
fn request_token_input_is_accepted() {
    for (body, number) in
        [(r#"{"input":[1, 2,3]}"#, 1), (r#"{"input":[[1],[2,3]]}"#, 2), (r#"{"input":["a",[2,3]]}"#, 2)]
    {
        let embed = decode_list(body).unwrap();
        assert_eq!(embed.items.len(), number);
        assert!(embed.items.iter().any(|item| matches!(item.input, EmbedInput::Tokens(_))));
    }
    for body in [r#"{"input":[1,"a"]}"#, r#"{"input":[[]]}"#, r#"{"input":[[1.5]]}"#, r#"{"input":[[-1]]}"#] {
        assert!(decode_list(body).is_err(), "{body}");
    }
}

#[test]
fn request_parts_of_text_are_joined_and_media_is_kept() {
    let one = |body| decode_part(body, "m").map(|embed| embed.items.into_iter().next().unwrap());
    let item = one(
        r#"{"model":"models/m","content":{"role":"user","parts":[{"text":"a"},{"text":""},{"text":"b\u00e9"}]},
            "task_type":"CLUSTERING","output_dimensionality":4,"title":"t"}"#,
    )
    .unwrap();
    assert_eq!(item.input, EmbedInput::Text(r"a\nb\u00e9".into()));
    assert_eq!((item.purpose, item.dimensions, item.extra.len()), (Some(Purpose::Clustering), Some(4), 1));
    let media = one(r#"{"content":{"parts":[{"text":"a"},{"inlineData":{}}]}}"#).unwrap();
    assert!(matches!(media.input, EmbedInput::Parts(_)));
    let embed = Embed { items: vec![media], ..Embed::default() };
    assert_eq!(
        asked(&embed, &PARTS),
        r#"{"model":"models/up","content":{"parts":[{"text":"a"},{"inlineData":{}}]}}"#
    );
    let error = ask::encode(&embed, &embed.items, &TEXTS, "up", &mut BytesMut::new()).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("content.parts"));
    for (body, param) in [
        (r#"{"content":{"parts":[{"text":""}]}}"#, "content.parts"),
        (r#"{"content":{"parts":[{"text":1}]}}"#, "content.parts[0].text"),
        (r#"{"content":{"parts":["a"]}}"#, "content.parts[0]"),
        (r#"{"content":"a"}"#, "content"),
        (r#"{"model":"n","content":{"parts":[{"text":"a"}]}}"#, "model"),
    ] {
        assert_eq!(one(body).unwrap_err().param.as_deref(), Some(param), "{body}");
    }
}

#[test]
fn response_of_every_provider_is_decoded() {
    let (one, two) = ("[0.10,-2]", "[3,4.5e-1]");
    for (body, tokens) in [
        (
            format!(
                r#"{{"object":"list","data":[{{"index":1,"embedding":{two}}},{{"index":0,"embedding":{one}}}],"usage":{{"prompt_tokens":5,"total_tokens":6}}}}"#
            ),
            Some(5),
        ),
        (
            format!(
                r#"{{"data":[{{"embedding":{one}}},{{"embedding":{two}}}],"usage":{{"total_tokens":6}}}}"#
            ),
            Some(6),
        ),
        (format!(r#"{{"embeddings":[{{"values":{one}}},{{"values":{two}}}]}}"#), None),
        (
            format!(
                r#"{{"embeddings":[{{"values":{one}}},{{"values":{two}}}],"usageMetadata":{{"promptTokenCount":4}}}}"#
            ),
            Some(4),
        ),
        (
            format!(
                r#"{{"id":"x","embeddings":{{"float":[{one},{two}]}},"texts":["a","b"],"meta":{{"api_version":{{"version":"2"}},"billed_units":{{"input_tokens":7}}}}}}"#
            ),
            Some(7),
        ),
        (format!(r#"{{"embeddings":[{one},{two}]}}"#), None),
        (
            format!(
                r#"{{"output":{{"embeddings":[{{"text_index":1,"embedding":{two}}},{{"text_index":0,"embedding":{one}}}]}},"usage":{{"total_tokens":8}},"request_id":"r","code":"","message":""}}"#
            ),
            Some(8),
        ),
    ] {
        let answer = decode_answer(&body, 2).unwrap();
        assert_eq!((answer.tokens, answer.failed), (tokens, false), "{body}");
        let mut out = BytesMut::new();
        encode_parts(&answer.vectors, false, 1, &mut out).unwrap();
        let expected = format!(r#"{{"embeddings":[{{"values":{one}}},{{"values":{two}}}],"metadata":"#);
        assert!(out.starts_with(expected.as_bytes()), "{out:?}");
        for wrong in [1, 3] {
            assert_eq!(decode_answer(&body, wrong).unwrap_err(), Broken::Number, "{body}");
        }
    }
    let one = decode_answer(r#"{"embedding":{"values":[1]}}"#, 1).unwrap();
    assert_eq!(one.vectors.len(), 1);
    assert!(decode_answer(r#"{"code":"Throttling","message":"no"}"#, 1).unwrap().failed);
    assert!(decode_answer(r#"{"error":{"message":"no"}}"#, 1).unwrap().failed);
    assert_eq!(decode_answer("nothing", 1).unwrap_err(), Broken::NotJson);
}

#[test]
fn response_list_is_encoded_as_floats_or_base64() {
    let body = r#"{"data":[{"embedding":[0.25,-0.5,1.0]},{"embedding":"AACAPgAAAL8AAIA/"}]}"#;
    let answer = decode_answer(body, 2).unwrap();
    let written = |base64| {
        let mut out = BytesMut::new();
        encode_list(&answer.vectors, base64, &EscapedString::from("m\"1"), 3, &mut out).unwrap();
        String::from_utf8(out.to_vec()).unwrap()
    };
    let list = |vector: &str| {
        format!(
            r#"{{"object":"list","data":[{{"object":"embedding","index":0,"embedding":{vector}}},{{"object":"embedding","index":1,"embedding":{vector}}}],"model":"m\"1","usage":{{"prompt_tokens":3,"total_tokens":3}}}}"#
        )
    };
    assert_eq!(written(false), list("[0.25,-0.5,1.0]"));
    assert_eq!(written(true), list("\"AACAPgAAAL8AAIA/\""));
}

#[test]
fn response_is_corrected_only_if_its_encoding_differs() {
    let list = |vector: &str| {
        format!(
            r#"{{"x":[1], "data":[{{"embedding":{vector} , "index":0}},{{"embedding":{vector}}}],"y":{{}}}}"#
        )
    };
    let (numbers, packed, bytes) = ("[0.25, -0.5,1.0]", "\"AACAPgAAAL8AAIA/\"", "\"9sYAAzzy/vfgDQAeOgD2\"");
    for (given, base64, expected) in [
        (numbers, false, None),
        (packed, true, None),
        (bytes, false, None),
        (numbers, true, Some(packed)),
        (packed, false, Some("[0.25,-0.5,1.0]")),
    ] {
        let corrected = corrected(&list(given), base64).unwrap();
        let corrected = corrected.map(|out| String::from_utf8(out.to_vec()).unwrap());
        assert_eq!(corrected, expected.map(list), "{given}");
    }
    assert!(corrected(&list("null"), true).is_err());
    assert!(corrected(&list("[1,\"a\"]"), true).is_err());
}

#[test]
fn answer_nested_deeply_is_refused() {
    let endless = r#"{"output":"#.repeat(500_000);
    assert_eq!(answer::decode(&endless, 1).unwrap_err(), Broken::NotJson);
    let one = r#"{"output":{"embeddings":[{"text_index":0,"embedding":[1,2]}]},"usage":{"total_tokens":3}}"#;
    let read = answer::decode(one, 1).unwrap();
    assert_eq!((read.vectors.len(), read.tokens), (1, Some(3)));
    // No provider has a second level.
    assert_eq!(answer::decode(&format!(r#"{{"output":{one}}}"#), 1).unwrap_err(), Broken::Number);
}

#[test]
fn usage_nested_deeply_is_left_out() {
    let usage = format!(r#"{}{{"input_tokens":1}}{}"#, r#"{"billed_units":"#.repeat(400), "}".repeat(400));
    let body = format!(r#"{{"embeddings":{{"float":[[1]]}},"meta":{usage}}}"#);
    assert_eq!(answer::decode(&body, 1).unwrap().tokens, None);
}

#[test]
fn request_to_vertex_has_instances_or_one_content() {
    let body = r#"{"model":"m","input":["a\n","ü"],"dimensions":8,"input_type":"query"}"#;
    let embed = decode_list(body).unwrap();
    let predict = EmbedDialect { shape: EmbedShape::Instances, ..EmbedDialect::LIST };
    assert_eq!(
        asked(&embed, &predict),
        concat!(
            r#"{"instances":[{"content":"a\n","task_type":"RETRIEVAL_QUERY"},{"content":"ü","task_type":"RETRIEVAL_QUERY"}],"#,
            r#""parameters":{"outputDimensionality":8}}"#
        )
    );
    let one = decode_list(r#"{"model":"m","input":"a"}"#).unwrap();
    assert_eq!(asked(&one, &predict), r#"{"instances":[{"content":"a"}]}"#);
    let content = EmbedDialect { shape: EmbedShape::Content, ..EmbedDialect::LIST };
    assert_eq!(asked(&one, &content), r#"{"content":{"parts":[{"text":"a"}]}}"#);
}

#[test]
fn answer_of_vertex_has_vectors_and_counts_in_its_predictions() {
    let body = r#"{"predictions":[
        {"embeddings":{"values":[0.5,1],"statistics":{"truncated":false,"token_count":6}}},
        {"embeddings":{"statistics":{"token_count":3},"values":[2]}}],"metadata":{"billableCharacterCount":9}}"#;
    let answer = decode_answer(body, 2).unwrap();
    let texts: Vec<&str> = answer
        .vectors
        .iter()
        .map(|vector| match vector {
            Vector::Numbers(numbers) => numbers.text(),
            Vector::Base64(_) => panic!("base64"),
        })
        .collect();
    assert_eq!((texts, answer.tokens), (vec!["[0.5,1]", "[2]"], Some(9)));
    assert_eq!(decode_answer(body, 1).unwrap_err(), Broken::Number);
    let none = decode_answer(r#"{"predictions":[{"embeddings":[]}]}"#, 1);
    assert_eq!(none.unwrap_err(), Broken::Number);
}
