//! Recorded embeddings and rerank responses: the gateway's decoder must agree with a plain JSON parser.
//!
//! The recordings are not part of this repository. Their folder is GATEWAY_CAPTURES, or else ../shared/captures.
//! Without recordings the tests print SKIPPED.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "captures/folder.rs"]
mod folder;

use bytes::BytesMut;
use model_gateway::json::EscapedString;
use model_gateway::wire::{embeddings, rerank};
use serde_json::Value;

/// Returns the recorded responses of these APIs, with the name of the file.
fn answers(apis: &[&str]) -> Vec<(String, Value)> {
    let recordings = folder::recordings().unwrap_or_default();
    let of = |(file, value): &(std::path::PathBuf, Value)| {
        let body = &value["response"]["body"];
        // InvokeModel has one path for all kinds of models.
        let api = match value["api"].as_str() {
            Some("bedrock-invoke")
                if body["results"].is_array()
                    && value["model"].as_str().is_some_and(|model| model.contains("rerank")) =>
            {
                Some("rerank")
            }
            Some("bedrock-invoke") if !vectors(body).iter().all(|vector| vector.is_array()) => None,
            other => other,
        };
        let wanted = api.is_some_and(|api| apis.contains(&api));
        (wanted && value["response"]["status"] == 200 && body.is_object())
            .then(|| (file.display().to_string(), body.clone()))
    };
    recordings.iter().filter_map(of).collect()
}

/// Returns the vectors of a response in any of the formats, unconverted.
fn vectors(body: &Value) -> Vec<&Value> {
    if let Some(data) = body["data"].as_array() {
        return data.iter().map(|entry| &entry["embedding"]).collect();
    }
    if let Some(typed) = body["embeddings"]["float"].as_array() {
        return typed.iter().collect();
    }
    // Titan at Bedrock.
    if body["embedding"].is_array() {
        return vec![&body["embedding"]];
    }
    match body["embeddings"].as_array() {
        Some(several) => several.iter().map(|entry| &entry["values"]).collect(),
        None => vec![&body["embedding"]["values"]],
    }
}

#[test]
fn embeddings_recorded_vectors_are_decoded_and_encoded() {
    let answers =
        answers(&["openai-embeddings", "gemini-embeddings", "others/cohere-embed", "bedrock-invoke"]);
    let mut seen = 0;
    for (name, body) in &answers {
        let text = body.to_string();
        let expected = vectors(body);
        let answer = embeddings::decode_answer(&text, expected.len())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!answer.failed, "{name}");
        let used = [
            &body["usage"]["prompt_tokens"],
            &body["usage"]["total_tokens"],
            &body["usageMetadata"]["promptTokenCount"],
            &body["meta"]["billed_units"]["input_tokens"],
            &body["inputTextTokenCount"],
        ];
        assert_eq!(answer.tokens, used.iter().find_map(|tokens| tokens.as_u64()), "{name}");
        let written = |base64| -> String {
            let mut out = BytesMut::new();
            embeddings::encode_list(&answer.vectors, base64, &EscapedString::from("m"), 1, &mut out).unwrap();
            String::from_utf8(out.to_vec()).unwrap()
        };
        let (numbers, packed) = (written(false), written(true));
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let (read_numbers, read_packed) = (read(&numbers), read(&packed));
        for (index, vector) in expected.iter().enumerate() {
            let base64 = read_packed["data"][index]["embedding"].as_str().unwrap();
            let floats = embeddings::number::floats(base64);
            match vector {
                Value::Array(given) => {
                    assert!(
                        numbers.contains(&vector.to_string()),
                        "{name}: numbers stay as they are written"
                    );
                    // Parsed from text, because the plain parser does not always round to the nearest number.
                    let given: Vec<f32> =
                        given.iter().map(|number| number.to_string().parse().unwrap()).collect();
                    assert!(floats.unwrap() == given, "{name}");
                }
                text => {
                    assert!(*text == base64, "{name}: base64 stays as it is");
                    let array = read_numbers["data"][index]["embedding"].as_array().map(|array| {
                        let float = |number: &Value| number.as_f64().unwrap() as f32;
                        array.iter().map(float).collect::<Vec<f32>>()
                    });
                    assert!(array == floats, "{name}");
                }
            }
            seen += 1;
        }
    }
    assert!(answers.is_empty() || seen > 30, "only {seen} vectors");
}

#[test]
fn rerank_recorded_results_are_decoded() {
    let answers = answers(&["rerank"]);
    for (name, body) in &answers {
        let results = [&body["results"], &body["data"], &body["output"]["results"]];
        let results = results.iter().find_map(|results| results.as_array()).unwrap();
        let most = results.iter().map(|result| result["index"].as_u64().unwrap()).max().unwrap();
        let answer = rerank::decode_answer(&body.to_string(), most as usize + 1);
        let mut answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        for (result, expected) in answer.results.iter().zip(results) {
            assert_eq!(result.index as u64, expected["index"].as_u64().unwrap(), "{name}");
            assert_eq!(result.score, expected["relevance_score"].as_f64().unwrap(), "{name}");
        }
        assert_eq!(answer.results.len(), results.len(), "{name}");
        assert_eq!(answer.tokens, body["usage"]["total_tokens"].as_u64(), "{name}");
        assert_eq!(answer.searches, body["meta"]["billed_units"]["search_units"].as_u64(), "{name}");
        let order: Vec<usize> = answer.results.iter().map(|result| result.index).collect();
        rerank::sort_results(&mut answer.results, None);
        let settled: Vec<usize> = answer.results.iter().map(|result| result.index).collect();
        assert_eq!(settled, order, "{name}: providers sort");
        assert!(answer.results.iter().all(|result| (0.0..=1.0).contains(&result.score)), "{name}");
    }
    assert!(answers.is_empty() || answers.len() > 8, "only {} answers", answers.len());
}
