//! Token estimates against the providers' counts: recorded requests, and the usage in their responses.
//!
//! The recordings are not part of this repository. Their folder is GATEWAY_CAPTURES, or else ../shared/captures.
//! Without recordings the test prints SKIPPED. `TOKENS_FEATURES=1` prints the features that the coefficients of the
//! families are fitted to, one line for each recording; `TOKENS_WORST=1` prints the worst estimates.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "captures/folder.rs"]
mod folder;

use std::collections::BTreeMap;
use std::path::Path;

use model_gateway::tokens::{Tally, TokenizerFamily};
use model_gateway::translate::decode_request;
use model_gateway::wire::Format;
use serde_json::Value;

/// Features whose tokens are not in the request: content that the provider fetches, stores or generates itself.
const UNSEEN: [&str; 27] = [
    "web_search",
    "web_fetch",
    "code_execution",
    "file_id",
    "previous_response_id",
    "cachedContent",
    "\"mcp",
    "googleSearch",
    "google_search",
    "urlContext",
    "url_context",
    "codeExecution",
    "file_search",
    "image_generation",
    "tool_search",
    "\"conversation\"",
    "computer",
    "\"memory_",
    "text_editor",
    "\"bash_",
    "compact",
    "task_budget",
    "\"citations\"",
    "advisor",
    "code_interpreter",
    "\"pro\"",
    "fallback",
];

/// Providers whose counts are authoritative for a family. Families that many providers serve, each with its own prompt
/// template, have no entry.
const OWN: [(TokenizerFamily, &[&str]); 8] = [
    (TokenizerFamily::OpenAi, &["openai", "azure-openai", "azure-ai"]),
    (TokenizerFamily::OpenAiOld, &["openai", "azure-openai", "azure-ai"]),
    (TokenizerFamily::Claude, &["anthropic", "google-vertex"]),
    (TokenizerFamily::ClaudeNew, &["anthropic", "google-vertex"]),
    (TokenizerFamily::Gemini, &["google", "google-vertex"]),
    (TokenizerFamily::Mistral, &["mistral"]),
    (TokenizerFamily::DeepSeek, &["deepseek"]),
    (TokenizerFamily::Grok, &["xai"]),
];
/// Providers that add prompts, searches or responses of other models.
const MIDDLEMEN: [&str; 5] = ["openrouter", "venice", "perplexity", "vercel-gateway", "snowflake"];

/// Recorded request with the provider's count of its input tokens.
struct Sample {
    name: String,
    family: TokenizerFamily,
    format: Format,
    body: String,
    counted: u64,
    native: bool,
}

fn samples() -> Option<Vec<Sample>> {
    let recordings = folder::recordings()?;
    Some(recordings.iter().filter_map(|(file, value)| sample(file, value)).collect())
}

fn sample(file: &Path, value: &Value) -> Option<Sample> {
    let format = match value["api"].as_str()? {
        "anthropic-messages" | "others/anthropic-count-tokens" => Format::Messages,
        "openai-chat" => Format::Chat,
        "openai-responses" => Format::Responses,
        "gemini-generate" | "others/gemini-count-tokens" => Format::Generate,
        _ => return None,
    };
    if value["response"]["status"].as_u64() != Some(200) {
        return None;
    }
    let mut body = &value["request"]["body"];
    let native = value["api"].as_str()?.ends_with("count-tokens");
    if native && body["generateContentRequest"].is_object() {
        body = &body["generateContentRequest"];
    }
    let path = value["request"]["path"].as_str().unwrap_or_default();
    let in_path = || Some(path.split_once("models/")?.1.split(':').next()?.to_owned());
    let model = body["model"].as_str().map(str::to_owned).or_else(in_path)?;
    let counted = counted(&value["response"])?;
    let family = TokenizerFamily::of(&model);
    let provider = value["provider"].as_str()?;
    let own = OWN.iter().find(|(known, _)| *known == family).map(|(_, own)| *own);
    if own.is_some_and(|own| !own.contains(&provider)) || MIDDLEMEN.contains(&provider) {
        return None;
    }
    let name = format!("{} {model}", file.file_name()?.to_str()?);
    body.is_object().then(|| Sample { name, family, format, body: body.to_string(), counted, native })
}

/// Returns the input tokens that a response reports: the largest of several reports.
fn counted(response: &Value) -> Option<u64> {
    let mut most = None;
    let mut look = |document: &Value| most = most.max(usage(document));
    if let Some(text) = response["sse"].as_str() {
        for line in text.lines().filter_map(|line| line.strip_prefix("data:")) {
            serde_json::from_str::<Value>(line.trim()).iter().for_each(&mut look);
        }
    } else if let Some(chunks) = response["chunks"].as_array() {
        chunks.iter().for_each(&mut look);
    } else {
        match &response["body"] {
            Value::Array(all) => all.iter().for_each(&mut look),
            body => look(body),
        }
    }
    most.filter(|tokens| *tokens > 0)
}

fn usage(document: &Value) -> Option<u64> {
    let number = |value: &Value| value.as_u64();
    for holder in [document, &document["message"], &document["response"]] {
        let usage = &holder["usage"];
        if let Some(tokens) = number(&usage["prompt_tokens"]) {
            return Some(tokens);
        }
        if let Some(tokens) = number(&usage["input_tokens"]) {
            let kept = |name: &str| usage[name].as_u64().unwrap_or(0);
            return Some(tokens + kept("cache_creation_input_tokens") + kept("cache_read_input_tokens"));
        }
    }
    number(&document["usageMetadata"]["promptTokenCount"])
        .or_else(|| number(&document["input_tokens"]))
        .or_else(|| number(&document["totalTokens"]))
}

#[test]
fn token_estimates_match_recorded_counts() {
    let Some(samples) = samples() else { return };
    let print = std::env::var("TOKENS_FEATURES").is_ok();
    let mut errors: BTreeMap<&str, Vec<(f64, String)>> = BTreeMap::new();
    for sample in &samples {
        if UNSEEN.iter().any(|word| sample.body.contains(word)) {
            continue;
        }
        let Ok(request) = decode_request(sample.format, &sample.body) else { continue };
        let tally = Tally::of(&request);
        let tokens = tally.tokens(sample.family);
        if print {
            let Tally { turns, instructions, tools, calls, results, images, media, .. } = tally;
            let texts =
                [TokenizerFamily::OpenAi, TokenizerFamily::OpenAiOld].map(|family| tally.texts(family));
            let texts = texts.concat().iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            println!(
                "F,{:?},{},{},{turns},{instructions},{tools},{calls},{results},{images},{media},{},{texts},{}",
                sample.family,
                sample.format,
                sample.counted,
                u8::from(sample.native),
                sample.name
            );
        }
        if tally.images == 0 && tally.media == 0 {
            let error = tokens as f64 / sample.counted as f64 - 1.0;
            let told = format!("{error:+.3} {tokens} for {} {}", sample.counted, sample.name);
            errors.entry(sample.family.name()).or_default().push((error, told));
        }
    }
    // Most recordings are prompts of a few words, where a template that differs by ten tokens is a large error.
    let mut faults = Vec::new();
    for (family, mut all) in errors {
        all.sort_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize].0.abs() * 100.0;
        let (middle, most) = (at(0.5), at(0.9));
        println!(
            "{family}: {} requests, half of them within {middle:.1} %, nine of ten within {most:.1} %",
            all.len()
        );
        if std::env::var("TOKENS_WORST").is_ok() {
            all.iter().rev().take(12).for_each(|(_, told)| println!("    {told}"));
        }
        if middle > 12.0 {
            faults.push(format!("{family}: {middle:.1} %"));
        }
    }
    assert!(faults.is_empty(), "{faults:?}");
}

/// The estimate that a stream begins with whose provider reports its usage at the end: from the bytes of the body
/// alone, so that no text is counted before the response begins. The recorded prompts of providers that add prompts of
/// their own are part of the sample.
#[test]
fn estimate_at_the_start_of_a_stream_has_the_size_of_the_count() {
    use model_gateway::account::estimate;

    let Some(samples) = samples() else { return };
    let mut errors: [Vec<f64>; 3] = Default::default();
    for sample in &samples {
        let is_seen = !UNSEEN.iter().any(|word| sample.body.contains(word));
        let request = decode_request(sample.format, &sample.body).ok().filter(|_| is_seen);
        let Some(tally) = request.map(|request| Tally::of(&request)) else { continue };
        if tally.images > 0 || tally.media > 0 {
            continue;
        }
        let expected = estimate::InputEstimate::of(std::iter::once(sample.body.as_bytes())).tokens();
        let size = usize::from(sample.counted >= 100) + usize::from(sample.counted >= 1_000);
        errors[size].push(expected as f64 / sample.counted as f64 - 1.0);
    }
    for (name, all) in ["below 100", "100 to 999", "1,000 and more"].into_iter().zip(&mut errors) {
        all.sort_by(f64::total_cmp);
        let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize] * 100.0;
        println!(
            "{name} tokens: {} requests, from the bytes {:+.0} % (median), eight of ten from {:+.0} % to {:+.0} %",
            all.len(),
            at(0.5),
            at(0.1),
            at(0.9)
        );
        // Names and punctuation of the JSON outweigh the text of a short prompt.
        assert!(name == "below 100" || at(0.5).abs() <= 40.0, "{name}: {:+.0} %", at(0.5));
    }
}

/// Compressed vocabularies of the token counts, made of those of the crate that the counts are compared with.
#[test]
fn vocabularies_in_the_binary_are_those_of_the_reference() {
    for (name, reference) in [("o200k", bpe_openai::o200k_base()), ("cl100k", bpe_openai::cl100k_base())] {
        let count = u32::try_from(reference.bpe.num_tokens()).unwrap();
        let tokens: Vec<Vec<u8>> = (0..count).map(|id| reference.bpe.decode_tokens(&[id])).collect();
        let mut data = count.to_be_bytes().to_vec();
        data.extend(tokens.iter().map(|token| u8::try_from(token.len()).unwrap()));
        data.extend(tokens.concat());
        let path = format!("{}/src/codec/tokens/bpe/data/{name}.br", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let settings = brotli::enc::BrotliEncoderParams { quality: 11, lgwin: 24, ..Default::default() };
            let mut out = Vec::new();
            brotli::BrotliCompress(&mut &data[..], &mut out, &settings).unwrap();
            std::fs::write(&path, out).unwrap();
        }
        let mut found = Vec::new();
        brotli::BrotliDecompress(&mut &std::fs::read(&path).unwrap()[..], &mut found).unwrap();
        assert!(found == data, "{path}: run with UPDATE_GOLDEN=1");
    }
}
