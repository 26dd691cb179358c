//! What is true of a model is a row of the catalogue: no source file names one.

use super::source::{rust, without_inline_tests};

/// Beginnings of names of models, as they stand in texts.
const STEMS: [&str; 27] = [
    "claude",
    "gpt-",
    "gemini",
    "grok",
    "kimi",
    "glm-",
    "qwen",
    "qwq",
    "deepseek",
    "mistral",
    "llama",
    "nova",
    "titan",
    "codestral",
    "devstral",
    "imagen",
    "dall-e",
    "veo-",
    "sora",
    "wan2",
    "wan3",
    "seedream",
    "seedance",
    "voxtral",
    "nano-banana",
    "gemma",
    "whisper",
];

/// Files with such texts, and why. The list may only shrink.
const ALLOWED: [(&str, &str); 26] = [
    ("src/routing/account/price/invoices.rs", "invoices that tests compare"),
    ("src/admin/resources/models.rs", "name of a client"),
    ("src/codec/canonical/image.rs", "families of settings of the API document"),
    ("src/cli/catalogue/import/", "words of other catalogues"),
    ("src/cli/clients/", "names, settings and models of clients"),
    ("src/cli/explain.rs", "examples"),
    ("src/config/catalogue.rs", "names of providers"),
    ("src/config/key_types.rs", "name of a client"),
    ("src/config/print.rs", "name of a client"),
    ("src/config/routes.rs", "name of a client"),
    ("src/codec/provider/bedrock.rs", "form of requests, and a tool of the provider"),
    ("src/codec/provider/doc_table.rs", "examples of the documentation"),
    ("src/codec/provider/kind.rs", "name of a provider"),
    ("src/codec/provider/preset.rs", "names of providers"),
    ("src/codec/provider/profile.rs", "names of makers"),
    ("src/proxy/gateway/invoke.rs", "name of a client"),
    ("src/proxy/gateway/listing.rs", "name of a client"),
    ("src/driver/names.rs", "header of a client"),
    ("src/routing/route/alias.rs", "what a client shows"),
    ("src/codec/tokens/family.rs", "names of tokenizers"),
    ("src/codec/translate/hosted_choice.rs", "tool of a provider"),
    ("src/codec/wire/converse/request/decode.rs", "tool of a provider"),
    ("src/codec/wire/finish_words.rs", "names of providers"),
    ("src/cli/demo", "the demonstration"),
    ("src/cli/import/", "words of other gateways"),
    ("src/simulator/", "simulated providers have rules of their own"),
];

#[test]
fn source_names_no_model() {
    let mut seen = [false; ALLOWED.len()];
    let mut faults = Vec::new();
    for file in rust("src").into_iter().filter(|file| !file.is_test()) {
        let code = without_inline_tests(&file.text);
        let is_named = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| line.split('"').skip(1).step_by(2))
            .any(|text| STEMS.iter().any(|stem| text.to_ascii_lowercase().contains(stem)));
        match ALLOWED.iter().position(|(path, _)| file.path.starts_with(path)) {
            Some(at) => seen[at] |= is_named,
            None if is_named && file.path != "src/codec/provider/model_rules.rs" => {
                faults.push(file.path.clone())
            }
            None => {}
        }
    }
    super::assert_none("a model is named: write a row of conf/catalogue.toml instead", &faults);
    let stale: Vec<String> =
        ALLOWED.iter().zip(seen).filter(|(_, seen)| !seen).map(|((path, _), _)| (*path).to_owned()).collect();
    super::assert_none("the file names no model any more: take it off the list", &stale);
}
