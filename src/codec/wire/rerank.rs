//! Reranking: the client's request and response, the requests to providers, and the responses of providers.
//!
//! Providers return documents in the order of their relevance to a query, in one of these shapes:
//!
//! | Provider | Results | Score | Usage |
//! |---|---|---|---|
//! | Cohere | `results[]` | `relevance_score` | `meta.billed_units.search_units` |
//! | vLLM, llama.cpp, Together | `results[]` | `relevance_score` | `usage.total_tokens` |
//! | Jina | `results[]`, with the documents | `relevance_score` | `usage.total_tokens` |
//! | Voyage | `data[]` | `relevance_score` | `usage.total_tokens` |
//! | DashScope | `output.results[]`, or `results[]` | `relevance_score` | `usage.total_tokens` |
//! | Text embeddings inference | the array itself | `score` | none |

use bytes::BytesMut;

use crate::canonical::rank::{Rank, RankDialect, RankShape};
use crate::canonical::request::Extra;
use crate::error::{ApiError, ErrorKind};
use json::{Cursor, EscapedString, JsonError, JsonStr, RawJson, Writer};

/// Parses a client's request.
///
/// # Errors
/// Returns [`ApiError`] if the request is malformed. The error names the member.
pub fn decode(body: &str) -> Result<Rank<'_>, ApiError> {
    let mut rank = Rank::default();
    let (mut query, mut documents) = (None, None);
    let mut json = Cursor::new(body);
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        let value = json.raw().map_err(not_json)?;
        match key.escaped() {
            "model" | "stream" => {}
            "query" => {
                let text = value.as_str().filter(|text| !text.is_empty());
                query = Some(text.ok_or_else(|| wrong("query", "a string that is not empty"))?);
            }
            "documents" => documents = Some(self::documents(value)?),
            "top_n" if value.is_null() => {}
            "top_n" => {
                let top = value.as_u64().filter(|top| *top > 0);
                let top = top.ok_or_else(|| wrong("top_n", "a whole number greater than 0"))?;
                rank.top = Some(usize::try_from(top).unwrap_or(usize::MAX));
            }
            "return_documents" if value.is_null() => {}
            "return_documents" => {
                rank.echo = value.as_bool().ok_or_else(|| wrong("return_documents", "a boolean"))?;
            }
            name => {
                if !value.is_null() {
                    rank.extra.push(Extra { name, value });
                }
            }
        }
    }
    rank.query = query.ok_or_else(|| ApiError::missing("query"))?;
    rank.documents = documents.ok_or_else(|| ApiError::missing("documents"))?;
    Ok(rank)
}

fn documents(value: RawJson<'_>) -> Result<Vec<JsonStr<'_>>, ApiError> {
    let mut documents = Vec::new();
    let mut json = Cursor::new(value.text());
    json.begin_array().map_err(|_| wrong("documents", "an array of strings"))?;
    while json.next_element().map_err(not_json)? {
        let document = text_of(json.raw().map_err(not_json)?);
        documents.push(document.ok_or_else(|| wrong(format!("documents[{}]", documents.len()), "a string"))?);
    }
    if documents.is_empty() {
        return Err(wrong("documents", "not empty"));
    }
    Ok(documents)
}

/// Returns the text of a document: a string, or an object with a text, which some providers accept. `None` for anything
/// else.
fn text_of(value: RawJson<'_>) -> Option<JsonStr<'_>> {
    if value.text().starts_with('"') {
        return value.as_str();
    }
    let mut json = Cursor::new(value.text());
    json.begin_object().ok()?;
    while let Some(key) = json.next_key().ok()? {
        let value = json.raw().ok()?;
        if key.is("text") {
            return value.as_str();
        }
    }
    None
}

fn wrong(name: impl Into<String>, wanted: &str) -> ApiError {
    let name = name.into();
    ApiError::new(ErrorKind::InvalidField, format!("'{name}' must be {wanted}.")).param(name)
}

fn not_json(_: JsonError) -> ApiError {
    ApiError::new(ErrorKind::InvalidJson, "The request body must be a JSON object.")
}

/// Writes the provider's request for some of the documents. It does not request the documents back, because the gateway
/// has them.
pub fn encode_request(
    rank: &Rank<'_>,
    documents: &[JsonStr<'_>],
    dialect: &RankDialect,
    model: &str,
    out: &mut BytesMut,
) {
    out.reserve(documents.iter().map(|text| text.escaped().len() + 8).sum::<usize>() + 512);
    let top = rank.top.filter(|_| !dialect.top.is_empty()).map(|top| top.min(documents.len()));
    let mut json = Writer::new(out);
    json.begin_object();
    let texts = |json: &mut Writer<'_, BytesMut>| {
        json.begin_array();
        documents.iter().for_each(|text| _ = json.paste(*text));
        json.end_array();
    };
    match dialect.shape {
        RankShape::Plain => {
            json.key("model").string(model).key("query").paste(rank.query).key("documents");
            texts(&mut json);
            if let Some(top) = top {
                json.key(dialect.top).number(top);
            }
            for extra in rank.extra.iter().filter(|extra| dialect.extensions && extra.name != dialect.top) {
                json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
            }
        }
        RankShape::Unnamed(version) => {
            if version > 0 {
                json.key("api_version").number(u64::from(version));
            }
            json.key("query").paste(rank.query).key("documents");
            texts(&mut json);
            if let Some(top) = top {
                json.key(dialect.top).number(top);
            }
        }
        RankShape::Nested => {
            json.key("model").string(model);
            json.key("input").begin_object().key("query").paste(rank.query).key("documents");
            texts(&mut json);
            json.end_object().key("parameters").begin_object();
            if let Some(top) = top {
                json.key(dialect.top).number(top);
            }
            json.key("return_documents").boolean(false);
            for extra in rank.extra.iter().filter(|extra| extra.name == "instruct") {
                json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
            }
            json.end_object();
        }
        RankShape::Texts => {
            json.key("query").paste(rank.query).key("texts");
            texts(&mut json);
            json.key("raw_scores").boolean(false);
            for extra in rank.extra.iter().filter(|extra| extra.name.starts_with("truncat")) {
                json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
            }
        }
    }
    json.end_object();
}

/// Result of a rerank request: one document and its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Index of the document in the request.
    pub index: usize,
    /// Relevance score. Higher is better.
    pub score: f64,
}

/// Response of a provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RerankAnswer {
    /// Results in the order of the response.
    pub results: Vec<Ranked>,
    /// Tokens used. `None` if the provider does not report it.
    pub tokens: Option<u64>,
    /// Billed searches. `None` if the provider does not report it.
    pub searches: Option<u64>,
    /// Whether the response is an error with status 200.
    pub failed: bool,
}

/// Error of a provider's response that is malformed or inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response is not a ranking of the documents")]
pub struct BrokenRerankAnswer;

/// Parses the provider's response to a request with this number of documents.
///
/// # Errors
/// Returns [`BrokenRerankAnswer`] if the response is not JSON, or if a result lacks a valid index and score.
pub fn decode_answer(body: &str, documents: usize) -> Result<RerankAnswer, BrokenRerankAnswer> {
    let mut answer = RerankAnswer::default();
    let mut json = Cursor::new(body);
    let mut found = false;
    let read = match json.kind() {
        Ok(json::ValueKind::Array) => json.raw().and_then(|value| results(value, &mut answer, &mut found)),
        _ => object(&mut json, true, &mut answer, &mut found),
    };
    read.and_then(|()| json.end()).map_err(|_| BrokenRerankAnswer)?;
    if !found {
        return if answer.failed { Ok(answer) } else { Err(BrokenRerankAnswer) };
    }
    answer.failed = false;
    let mut seen = vec![false; documents];
    for result in &answer.results {
        match seen.get_mut(result.index) {
            Some(seen) if !*seen && result.score.is_finite() => *seen = true,
            _ => return Err(BrokenRerankAnswer),
        }
    }
    Ok(answer)
}

/// Reads the outermost object, and DashScope's `output` object within it. A deeper `output` is skipped: no provider has
/// one, and following it would exhaust the stack.
fn object(
    json: &mut Cursor<'_>,
    outermost: bool,
    answer: &mut RerankAnswer,
    found: &mut bool,
) -> Result<(), JsonError> {
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "results" | "data" => results(json.raw()?, answer, found)?,
            "output" if outermost && json.kind()? == json::ValueKind::Object => {
                object(json, false, answer, found)?;
            }
            "usage" | "meta" => usage(json.raw()?, true, answer)?,
            "error" => answer.failed |= !json.raw()?.is_void(),
            "code" | "message" => {
                answer.failed |= json.raw()?.as_str().is_some_and(|text| !text.is_empty());
            }
            _ => json.skip()?,
        }
    }
    Ok(())
}

fn results(value: RawJson<'_>, answer: &mut RerankAnswer, found: &mut bool) -> Result<(), JsonError> {
    if value.is_null() {
        return Ok(());
    }
    *found = true;
    let mut json = Cursor::new(value.text());
    json.begin_array()?;
    while json.next_element()? {
        // Defaults that the validation rejects: an index out of range and a score that is not finite.
        let mut result = Ranked { index: usize::MAX, score: f64::NAN };
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            match key.escaped() {
                "index" => {
                    let index = value.as_u64().and_then(|index| usize::try_from(index).ok());
                    result.index = index.unwrap_or(usize::MAX);
                }
                "relevance_score" | "score" => result.score = value.text().parse().unwrap_or(f64::NAN),
                _ => {}
            }
        }
        answer.results.push(result);
    }
    Ok(())
}

/// Reads counts, and Cohere's `billed_units` and `tokens` within `meta`, which contain no further ones.
fn usage(value: RawJson<'_>, outermost: bool, answer: &mut RerankAnswer) -> Result<(), JsonError> {
    if !value.text().starts_with('{') {
        return Ok(());
    }
    let mut json = Cursor::new(value.text());
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        let value = json.raw()?;
        match key.escaped() {
            "total_tokens" => answer.tokens = value.as_u64().or(answer.tokens),
            "input_tokens" => answer.tokens = answer.tokens.or(value.as_u64()),
            "search_units" => answer.searches = value.as_u64(),
            "billed_units" | "tokens" if outermost => usage(value, false, answer)?,
            _ => {}
        }
    }
    Ok(())
}

/// Sorts results by score, highest first, with scores from 0 to 1, and keeps at most `top` of them.
///
/// Models return logits or probabilities. If any score lies outside 0 to 1, all scores are taken for logits and mapped
/// by the sigmoid function, which preserves their order.
pub fn sort_results(results: &mut Vec<Ranked>, top: Option<usize>) {
    if results.iter().any(|result| !(0.0..=1.0).contains(&result.score)) {
        results.iter_mut().for_each(|result| result.score = 1.0 / (1.0 + (-result.score).exp()));
    }
    results.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
    results.truncate(top.unwrap_or(usize::MAX));
}

/// Writes the client's response.
pub fn encode(rank: &Rank<'_>, results: &[Ranked], model: &EscapedString, tokens: u64, out: &mut BytesMut) {
    let mut digits = zmij::Buffer::new();
    let mut json = Writer::new(out);
    json.begin_object().key("model").paste(model.as_json_str()).key("results").begin_array();
    for result in results {
        json.begin_object().key("index").number(result.index).key("relevance_score");
        json.raw(RawJson::from_text(digits.format_finite(result.score)));
        if let Some(document) = rank.documents.get(result.index).filter(|_| rank.echo) {
            json.key("document").paste(*document);
        }
        json.end_object();
    }
    json.end_array().key("usage").begin_object().key("total_tokens").number(tokens);
    json.end_object().end_object();
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTS: &str = r#"{"model":"m","query":"q","documents":["a",{"text":"b"},"c\n"],"top_n":2,"return_documents":true,"x":1}"#;

    fn asked(dialect: RankDialect) -> String {
        let rank = decode(DOCUMENTS).unwrap();
        let mut out = BytesMut::new();
        encode_request(&rank, &rank.documents, &dialect, "up", &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn request_is_encoded_for_each_provider() {
        let plain = RankDialect::PLAIN;
        assert_eq!(asked(plain), r#"{"model":"up","query":"q","documents":["a","b","c\n"],"top_n":2,"x":1}"#);
        let voyage = RankDialect { top: "top_k", extensions: false, ..plain };
        assert_eq!(asked(voyage), r#"{"model":"up","query":"q","documents":["a","b","c\n"],"top_k":2}"#);
        let nested = RankDialect { shape: RankShape::Nested, ..plain };
        assert_eq!(
            asked(nested),
            r#"{"model":"up","input":{"query":"q","documents":["a","b","c\n"]},"parameters":{"top_n":2,"return_documents":false}}"#
        );
        let cohere = RankDialect { shape: RankShape::Unnamed(2), ..plain };
        assert_eq!(asked(cohere), r#"{"api_version":2,"query":"q","documents":["a","b","c\n"],"top_n":2}"#);
        let amazon = RankDialect { shape: RankShape::Unnamed(0), ..plain };
        assert_eq!(asked(amazon), r#"{"query":"q","documents":["a","b","c\n"],"top_n":2}"#);
        let texts = RankDialect { shape: RankShape::Texts, top: "", ..plain };
        assert_eq!(asked(texts), r#"{"query":"q","texts":["a","b","c\n"],"raw_scores":false}"#);
    }

    #[test]
    fn request_malformed_is_refused_with_the_parameter() {
        for (body, param) in [
            (r#"{"documents":["a"]}"#, "query"),
            (r#"{"query":"","documents":["a"]}"#, "query"),
            (r#"{"query":"q"}"#, "documents"),
            (r#"{"query":"q","documents":[]}"#, "documents"),
            (r#"{"query":"q","documents":"a"}"#, "documents"),
            (r#"{"query":"q","documents":["a",1]}"#, "documents[1]"),
            (r#"{"query":"q","documents":["a"],"top_n":0}"#, "top_n"),
            (r#"{"query":"q","documents":["a"],"top_n":1.5}"#, "top_n"),
            (r#"{"query":"q","documents":["a"],"return_documents":1}"#, "return_documents"),
        ] {
            assert_eq!(decode(body).unwrap_err().param.as_deref(), Some(param), "{body}");
        }
        let rank = decode(r#"{"query":"q","documents":["a"],"top_n":null,"return_documents":null}"#).unwrap();
        assert_eq!((rank.top, rank.echo), (None, false));
    }

    #[test]
    fn response_of_each_provider_is_decoded() {
        for (body, tokens, searches) in [
            (
                r#"{"id":"x","results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.1}],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}"#,
                None,
                Some(1),
            ),
            (
                r#"{"model":"j","results":[{"index":1,"relevance_score":0.9,"document":{"text":"b"}},{"index":0,"relevance_score":0.1}],"usage":{"total_tokens":9}}"#,
                Some(9),
                None,
            ),
            (
                r#"{"object":"list","data":[{"relevance_score":0.9,"index":1},{"relevance_score":0.1,"index":0}],"usage":{"total_tokens":9}}"#,
                Some(9),
                None,
            ),
            (
                r#"{"output":{"results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.1}]},"usage":{"total_tokens":9},"request_id":"r"}"#,
                Some(9),
                None,
            ),
            (r#"[{"index":1,"score":0.9},{"index":0,"score":0.1}]"#, None, None),
        ] {
            let answer = decode_answer(body, 2).unwrap();
            let results = vec![Ranked { index: 1, score: 0.9 }, Ranked { index: 0, score: 0.1 }];
            assert_eq!(answer, RerankAnswer { results, tokens, searches, failed: false }, "{body}");
        }
        assert!(decode_answer(r#"{"code":"InvalidParameter","message":"no"}"#, 2).unwrap().failed);
        for broken in [
            "{}",
            "",
            r#"{"results":[{"index":2,"relevance_score":0.9}]}"#,
            r#"{"results":[{"index":0,"relevance_score":0.9},{"index":0,"relevance_score":0.8}]}"#,
            r#"{"results":[{"index":0}]}"#,
            r#"{"results":[{"relevance_score":0.9}]}"#,
            r#"{"results":[{"index":0,"relevance_score":"high"}]}"#,
        ] {
            assert_eq!(decode_answer(broken, 2), Err(BrokenRerankAnswer), "{broken}");
        }
    }

    #[test]
    fn answer_nested_deeply_is_refused() {
        let endless = r#"{"output":"#.repeat(500_000);
        assert_eq!(decode_answer(&endless, 1), Err(BrokenRerankAnswer));
        let results = r#"{"results":[{"index":0,"relevance_score":0.5}],"usage":{"total_tokens":3}}"#;
        let one = format!(r#"{{"output":{results}}}"#);
        let answer = decode_answer(&one, 1).unwrap();
        assert_eq!((answer.results.len(), answer.tokens), (1, Some(3)));
        // No provider has a second level.
        assert_eq!(decode_answer(&format!(r#"{{"output":{one}}}"#), 1), Err(BrokenRerankAnswer));
    }

    #[test]
    fn usage_nested_deeply_is_left_out() {
        let usage =
            format!(r#"{}{{"search_units":1}}{}"#, r#"{"billed_units":"#.repeat(400), "}".repeat(400));
        let body = format!(r#"{{"results":[{{"index":0,"relevance_score":0.5}}],"meta":{usage}}}"#);
        assert_eq!(decode_answer(&body, 1).unwrap().searches, None);
    }

    #[test]
    fn results_are_sorted_and_scores_are_probabilities() {
        let ranked = |scores: &[f64]| -> Vec<Ranked> {
            scores.iter().enumerate().map(|(index, score)| Ranked { index, score: *score }).collect()
        };
        let mut plain = ranked(&[0.1, 0.9, 0.5, 0.9]);
        sort_results(&mut plain, Some(3));
        assert_eq!(plain.iter().map(|result| result.index).collect::<Vec<_>>(), [1, 3, 2]);
        assert_eq!(plain[0].score, 0.9, "a probability stays as it is");
        let mut logits = ranked(&[-8.37, 0.82, -4.76]);
        sort_results(&mut logits, None);
        assert_eq!(logits.iter().map(|result| result.index).collect::<Vec<_>>(), [1, 2, 0]);
        assert!(logits.iter().all(|result| (0.0..=1.0).contains(&result.score)));
        assert!((logits[0].score - 0.694).abs() < 0.001);
        let mut extreme = ranked(&[1e300, -1e300]);
        sort_results(&mut extreme, None);
        assert_eq!((extreme[0].score, extreme[1].score), (1.0, 0.0));
    }

    #[test]
    fn response_documents_come_from_the_request() {
        let mut out = BytesMut::new();
        let rank = decode(DOCUMENTS).unwrap();
        let results = [Ranked { index: 2, score: 0.5 }, Ranked { index: 1, score: 0.25 }];
        encode(&rank, &results, &EscapedString::from("mine"), 7, &mut out);
        assert_eq!(
            out,
            r#"{"model":"mine","results":[{"index":2,"relevance_score":0.5,"document":"c\n"},{"index":1,"relevance_score":0.25,"document":"b"}],"usage":{"total_tokens":7}}"#
        );
        let plain = Rank { echo: false, ..rank };
        out.clear();
        encode(&plain, &results[..1], &EscapedString::from("mine"), 7, &mut out);
        assert_eq!(
            out,
            r#"{"model":"mine","results":[{"index":2,"relevance_score":0.5}],"usage":{"total_tokens":7}}"#
        );
    }
}
