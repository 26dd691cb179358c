//! `model-gateway catalogue`: what it shows of models, what it says about a configuration, and what it imports.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::process::Command;

/// Runs the command. Returns whether it succeeded, with standard output and standard error.
fn catalogue(folder: &Path, arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
        .arg("catalogue")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Asserts that a text has each of these parts.
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn show_names_facts_prices_and_sources() {
    let folder = folder(&[]);
    let (ok, out, _) = catalogue(folder.path(), &["show", "us.anthropic.claude-opus-5-5"]);
    assert!(ok);
    has(
        &out,
        &[
            "claude-opus-5-5",
            "the name is listed",
            "forced         no",
            "context        1,000,000 tokens",
            "at anthropic",
            "at bedrock, as anthropic.claude-opus-5-5",
            "input 4, cached_input 0.2",
            "tiers        batch x0.5, fast x2",
            "litellm",
            "edition 2026-",
        ],
    );
    let (ok, out, _) = catalogue(folder.path(), &["show", "gemini-2.5-pro", "--at", "vertex"]);
    assert!(ok);
    has(
        &out,
        &[
            "ends           2026-12-01; successor gemini-3.8-flash",
            "until 2026-11-30",
            "answered by gemini-3.8-flash",
        ],
    );
    assert!(!out.contains("at gemini"), "{out}");

    let (ok, out, _) = catalogue(folder.path(), &["show", "claude-opus-9"]);
    assert!(ok);
    has(&out, &["a guess by the beginning of the name", "no price is known"]);
    let (ok, _, error) = catalogue(folder.path(), &["show", "zzz"]);
    assert!(!ok && error.contains("knows no model like \"zzz\""), "{error}");
    let (ok, _, error) = catalogue(folder.path(), &["show", "gpt-5", "--at", "nowhere"]);
    assert!(!ok && error.contains("has no provider \"nowhere\"; it has openai"), "{error}");
}

const OVER: &str = "schema = 1\n[[family]]\nid = \"claude-opus-5-5\"\nforced = true\nsource = \"x\"\n[[model]]\nid = \"gpt-5.2\"\n\
    output = 1000\n[[model.at]]\nprovider = \"openai\"\n[[model.at.price]]\ninput = 3.5\noutput = 14\nsource = \"contract\"\n";

#[test]
fn diff_lists_what_a_file_changes() {
    let folder = folder(&[
        ("over.toml", OVER),
        ("none.toml", "schema = 1\n"),
        ("bad.toml", "schema = 1\n[[model]]\n"),
    ]);
    let (ok, out, _) = catalogue(folder.path(), &["diff", "over.toml"]);
    assert!(ok);
    has(
        &out,
        &[
            "family claude-opus-5-5: forced no -> yes",
            "model gpt-5.2: output 128000 -> 1000",
            "gpt-5.2 at openai: input 1.75 -> 3.5 (x2.00)",
            "cached_input 0.175 -> none",
            "tiers changed",
        ],
    );
    has(&catalogue(folder.path(), &["diff", "none.toml"]).1, &["the file changes nothing"]);
    let (ok, _, error) = catalogue(folder.path(), &["diff", "bad.toml"]);
    assert!(!ok && error.contains("bad.toml:2:1: model[0].id: is missing"), "{error}");
}

#[test]
fn check_names_models_without_facts_or_prices_and_ends_ahead() {
    let routes = "[[provider]]\nname = \"openai\"\nkind = \"openai\"\ncredential = { value = \"secret\" }\n\
        [[provider]]\nname = \"local\"\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
        [[model]]\nid = \"new\"\ntargets = [{ provider = \"openai\", model = \"gpt-9\" }]\n\
        [[model]]\nid = \"mine\"\ntargets = [{ provider = \"local\", model = \"my-model\" }]\n\
        [[model]]\nid = \"old\"\ntargets = [{ provider = \"openai\", model = \"gpt-4-turbo\" }]\n\
        [[model]]\nid = \"uncertain\"\ntargets = [{ provider = \"openai\", model = \"gpt-6.2-astra\" }]\n";
    let folder = folder(&[
        ("gateway.toml", "catalogue = \"over.toml\"\n[server]\nlisten = [\"127.0.0.1:0\"]\n"),
        ("over.toml", OVER),
        ("routes.toml", routes),
        ("keys.toml", ""),
    ]);
    let (ok, out, error) = catalogue(folder.path(), &["check", "--conf", "gateway.toml"]);
    assert!(ok, "{error}");
    has(
        &out,
        &[
            "over.toml",
            "facts are guessed by those of gpt-6-always: new",
            "no price is known at openai: new",
            "no facts are known: mine",
            "no price is known at local, which the catalogue does not have: mine",
            "gpt-4-turbo ended on 2026-10-23: old",
            "the price of gpt-6.2-astra is not verified: uncertain",
        ],
    );
}

/// Each model of the file is one trap.
const LITELLM: &str = r#"{
    "sample_spec": { "input_cost_per_token": 0, "litellm_provider": "one of ..." },
    "gpt-5.2": { "litellm_provider": "openai", "input_cost_per_token": 1.75e-06, "output_cost_per_token": 1.4e-05,
        "cache_read_input_token_cost": 1.75e-07, "max_input_tokens": 272000 },
    "gpt-6.1-sol": { "litellm_provider": "openai", "input_cost_per_token": 3e-06, "output_cost_per_token": 1.2e-05,
        "input_cost_per_token_above_272k_tokens": 6e-06, "output_cost_per_token_above_272k_tokens": 1.8e-05,
        "input_cost_per_token_flex": 1.5e-06, "output_cost_per_token_flex": 6e-06,
        "input_cost_per_token_above_272k_tokens_flex": 3e-06, "output_cost_per_token_above_272k_tokens_flex": 9e-06,
        "regional_processing_uplift_multiplier_eu": 1.1 },
    "gpt-5.1": { "litellm_provider": "openai", "input_cost_per_token": 1.25e-05, "output_cost_per_token": 1e-04 },
    "gpt-5": { "litellm_provider": "openai", "input_cost_per_token": 0, "output_cost_per_token": 0 },
    "gpt-5.4": { "litellm_provider": "openai", "input_cost_per_token": 2.5e-06, "output_cost_per_token": 1.5e-05,
        "output_cost_per_thought": 1 },
    "gpt-5.5": { "litellm_provider": "openai", "input_cost_per_token": 6e-06, "output_cost_per_token": 3e-05,
        "input_cost_per_token_above_272k_tokens": 1.2e-05, "output_cost_per_token_above_272k_tokens": 6e-05,
        "input_cost_per_token_flex": 3e-06, "output_cost_per_token_flex": 1.5e-05,
        "input_cost_per_token_above_272k_tokens_flex": 5e-06 },
    "gemini/gemini-3.5-flash-lite": { "litellm_provider": "gemini", "input_cost_per_token": 4e-07,
        "output_cost_per_token": 2.5e-06, "cache_read_input_token_cost": 3e-08, "input_cost_per_token_flex": 2e-07,
        "output_cost_per_token_flex": 1.25e-06, "cache_read_input_token_cost_flex": 2e-08 },
    "xai/grok-4.9": { "litellm_provider": "xai", "input_cost_per_token": 2e-06, "output_cost_per_token": 6e-06,
        "input_cost_per_token_above_200k_tokens": 4e-06, "output_cost_per_token_above_200k_tokens": 1.2e-05,
        "max_input_tokens": 500000, "deprecation_date": "2027-05-01", "successor_model": "grok-4.7" },
    "anthropic.claude-opus-5": { "litellm_provider": "bedrock_converse", "input_cost_per_token": 6e-06,
        "output_cost_per_token": 2.5e-05 },
    "us.anthropic.claude-opus-5": { "litellm_provider": "bedrock_converse", "input_cost_per_token": 6.6e-06,
        "output_cost_per_token": 2.75e-05 },
    "dashscope/qwen3-max": { "litellm_provider": "dashscope", "tiered_pricing": [
        { "range": [0, 32000.0], "input_cost_per_token": 1.3e-06, "output_cost_per_token": 6e-06 },
        { "range": [32000.0, 128000.0], "input_cost_per_token": 2.4e-06, "output_cost_per_token": 1.2e-05 } ] },
    "together_ai/some-model": { "litellm_provider": "together_ai", "input_cost_per_token": 1e-06 }
}"#;

#[test]
fn import_of_litellm_avoids_its_traps() {
    let folder = folder(&[("prices.json", LITELLM)]);
    let (ok, out, error) =
        catalogue(folder.path(), &["import", "litellm", "prices.json", "--out", "proposal.toml"]);
    // Prices differ: the exit status says so.
    assert!(!ok && error.is_empty(), "{error}");
    has(
        &out,
        &[
            "differs  gpt-6.1-sol at openai: input 2 -> 3",
            "refused  gpt-5.1 at openai: more than three times as high or as low",
            "refused  gpt-5 at openai: a price of 0 (input, output); if it is free: --free MODEL",
            "refused  gpt-5.4 at openai: unknown prices: output_cost_per_thought",
            "refused  gpt-5.5 at openai: input of long requests in the tier flex is no product of factors",
            "new      grok-4.9 at xai",
            "differs  anthropic.claude-opus-5 at bedrock: input 5 -> 6",
            "1 same, 1 new, 4 differ, 4 refused",
        ],
    );
    let text = std::fs::read_to_string(folder.path().join("proposal.toml")).unwrap();
    has(
        &text,
        &[
            "long = { above = 272000, input = 2, output = 1.5 }",
            "tiers = { \"batch\" = 0.5, \"flex\" = 0.5, \"priority\" = 2, \"ultrafast\" = 6 }",
            "regions = { \"eu\" = 1.1, \"us\" = 1.1 }",
            "odd = { flex = { cached_input = 0.02 } }",
            // From 200,000 tokens on, which is above 199,999.
            "long = { above = 199999, input = 2, output = 2 }",
            "input_limit = 500000",
            "retires = 2027-05-01\nsuccessor = \"grok-4.7\"",
            "regions = { \"apac\" = 1.1, \"au\" = 1.1, \"eu\" = 1.1, \"jp\" = 1.1, \"us\" = 1.1 }",
            "steps = [ { above = 32000, input = 2.4, output = 12 } ]",
        ],
    );
    assert!(!text.contains("context ="), "the input limit is not the window: {text}");
    // The proposal fits over the catalogue, and imports are not written over a file.
    let (ok, out, _) = catalogue(folder.path(), &["diff", "proposal.toml"]);
    assert!(ok);
    has(&out, &["gpt-6.1-sol at openai: input 2 -> 3 (x1.50)", "model grok-4.9: added"]);
    let (ok, _, error) =
        catalogue(folder.path(), &["import", "litellm", "prices.json", "--out", "proposal.toml"]);
    assert!(!ok && error.contains("exists already"), "{error}");

    let accepted = ["--accept", "gpt-5.1", "--free", "gpt-5"];
    let arguments = [&["import", "litellm", "prices.json", "--out", "more.toml"], &accepted[..]].concat();
    let (_, out, _) = catalogue(folder.path(), &arguments);
    has(&out, &["differs  gpt-5.1 at openai: input 1.25 -> 12.5", "differs  gpt-5 at openai", "2 refused"]);
    has(&std::fs::read_to_string(folder.path().join("more.toml")).unwrap(), &["free = true"]);
}

#[test]
fn import_of_genai_prices_takes_days_and_tiers_and_no_patterns() {
    let text = r#"[{ "id": "openai", "models": [
        { "id": "gpt-5.2", "match": { "starts_with": "gpt-5" }, "prices": [
            { "prices": { "input_mtok": 9, "output_mtok": 9 } },
            { "constraint": { "start_date": "2026-01-01" }, "prices": { "input_mtok": 2, "output_mtok": 14 } },
            { "constraint": { "start_date": "2099-01-01" }, "prices": { "input_mtok": 3, "output_mtok": 14 } } ],
          "price_variants": [ { "when": { "processing": "batch" }, "prices": { "input_mtok": 1.5, "output_mtok": 7 } } ] },
        { "id": "gpt-5.1", "prices": { "input_mtok": { "base": 1.5, "tiers": [ { "start": 200000, "price": 3 } ] },
            "output_mtok": 10, "web_searches_kcount": 10 } },
        { "id": "gpt-5", "prices": { "input_mtok": 1.25, "output_video_mtok": 1 } },
        { "id": "o3", "prices": [ { "constraint": { "start_time": "00:30:00Z", "end_time": "16:30:00Z" },
            "prices": { "input_mtok": 1, "output_mtok": 1 } } ] } ] }]"#;
    let folder = folder(&[("data.json", text)]);
    let (ok, out, _) = catalogue(folder.path(), &["import", "genai-prices", "data.json", "--out", "p.toml"]);
    assert!(!ok);
    has(
        &out,
        &[
            "differs  gpt-5.2 at openai: input 1.75 -> 2",
            "differs  gpt-5.1 at openai: input 1.25 -> 1.5",
            "refused  gpt-5 at openai: unknown price: output_video_mtok",
            "refused  o3 at openai: a price depends on the time of day",
        ],
    );
    let text = std::fs::read_to_string(folder.path().join("p.toml")).unwrap();
    has(
        &text,
        &["until = 2098-12-31", "from = 2099-01-01", "tiers = { \"batch\" = 0.5, \"flex\"", "search = 0.01"],
    );
    has(&text, &["steps = [ { above = 200000, input = 3 } ]"]);
    assert!(!text.contains("input = 9"), "{text}");
}

#[test]
fn import_of_models_dev_ignores_the_relic_of_200k() {
    let text = r#"{ "openai": { "models": {
        "gpt-5.2": { "id": "gpt-5.2", "cost": { "input": 2, "output": 14, "cache_read": 0.175,
            "context_over_200k": { "input": 9, "output": 9 },
            "tiers": [ { "tier": { "type": "context", "size": 272000 }, "input": 4, "output": 21, "cache_read": 0.35 } ] },
            "limit": { "context": 400000, "output": 128000 } },
        "gpt-5.1": { "id": "gpt-5.1", "cost": { "input": 1.25, "output": 10, "per_page": 1 } } } } }"#;
    let folder = folder(&[("api.json", text), ("other.json", "{}"), ("broken.json", "{")]);
    let (_, out, _) = catalogue(folder.path(), &["import", "models-dev", "api.json", "--out", "p.toml"]);
    has(
        &out,
        &[
            "differs  gpt-5.2 at openai: input 1.75 -> 2",
            "refused  gpt-5.1 at openai: unknown prices: per_page",
        ],
    );
    let text = std::fs::read_to_string(folder.path().join("p.toml")).unwrap();
    has(&text, &["long = { above = 272000, input = 2, output = 1.5 }"]);
    for (file, message) in [("other.json", "has no models in the form of models.dev"), ("broken.json", "EOF")]
    {
        let (ok, _, error) = catalogue(folder.path(), &["import", "models-dev", file, "--out", "q.toml"]);
        assert!(!ok && error.contains(message), "{error}");
        assert!(!folder.path().join("q.toml").exists());
    }
}

/// What the files of 2026-11 have in this form.
const LITELLM_FORMS: &str = r#"{
    "low/1024-x-1024/gpt-image-1": { "litellm_provider": "openai", "input_cost_per_image": 0.011 },
    "text-embedding-3-small": { "litellm_provider": "openai", "mode": "embedding", "input_cost_per_token": 2e-08,
        "input_cost_per_token_batches": 1e-08, "output_cost_per_token": 0.0, "output_cost_per_token_batches": 0.0 },
    "zai/glm-5.3": { "litellm_provider": "zai", "input_cost_per_token": 1.4e-06, "output_cost_per_token": 4.4e-06,
        "cache_creation_input_token_cost": 0.0 },
    "gpt-5.4": { "litellm_provider": "openai", "input_cost_per_token": 2.6e-06, "output_cost_per_token": 1.5e-05,
        "cache_read_input_token_cost": 2.5e-07, "cache_read_input_token_cost_batches": 1.3e-07,
        "input_cost_per_token_batches": 1.3e-06, "output_cost_per_token_batches": 7.5e-06,
        "input_cost_per_token_above_272k_tokens": 5.2e-06, "output_cost_per_token_above_272k_tokens": 2.25e-05,
        "cache_read_input_token_cost_above_272k_tokens": 5e-07,
        "input_cost_per_token_above_272k_tokens_batches": 2.6e-06,
        "cache_read_input_token_cost_above_272k_tokens_batches": 2.5e-07 },
    "gpt-6-luna": { "litellm_provider": "openai", "input_cost_per_token": 9e-09, "input_cost_per_token_decisions": 1e-07 },
    "gpt-5.1": { "litellm_provider": "openai", "input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.3e-07, "input_cost_per_token_batches": 6.25e-07,
        "output_cost_per_token_batches": 6e-06 },
    "gpt-9-new": { "litellm_provider": "openai", "input_cost_per_token": 3e-06, "output_cost_per_token": 1e-06 },
    "eu.anthropic.claude-opus-9": { "litellm_provider": "bedrock", "input_cost_per_token": 3e-06 },
    "global.anthropic.claude-opus-8": { "litellm_provider": "bedrock", "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1.5e-05 },
    "eu.anthropic.claude-opus-8": { "litellm_provider": "bedrock", "input_cost_per_token": 3.3e-06,
        "output_cost_per_token": 1.65e-05 }
}"#;

#[test]
fn import_of_litellm_reads_each_form_of_its_prices() {
    let folder = folder(&[("prices.json", LITELLM_FORMS)]);
    let (_, out, error) = catalogue(folder.path(), &["import", "litellm", "prices.json", "--out", "p.toml"]);
    assert!(error.is_empty(), "{error}");
    has(
        &out,
        &[
            // A tier's price differs although the base price is the same, and the rounded price of cached input is none.
            "differs  gpt-5.1 at openai: output in batch 5 -> 6\n",
            "differs  gpt-5.4 at openai: input 2.5 -> 2.6",
            "refused  gpt-6-luna at openai: more than three times",
            // One wrong row does not keep the others from being written.
            "refused  gpt-9-new at openai: input costs more than output",
            "refused  anthropic.claude-opus-9 at bedrock: it has a price in eu only",
            "new      anthropic.claude-opus-8 at bedrock",
            "2 same, 1 new, 2 differ, 3 refused",
        ],
    );
    assert!(!out.contains("gpt-image-1"), "prices of one size each are no model: {out}");
    let text = std::fs::read_to_string(folder.path().join("p.toml")).unwrap();
    has(&text, &["regions = { \"eu\" = 1.1 }", "long = { above = 272000, input = 2, output = 1.5 }"]);
    // Tiers that the source leaves out stay, and 0.13 is half of 0.25, rounded.
    has(&text, &["tiers = { \"batch\" = 0.5, \"flex\" = 0.5, \"priority\" = 2 }"]);
    let (ok, _, error) = catalogue(folder.path(), &["diff", "p.toml"]);
    assert!(ok, "{error}");
}

#[test]
fn import_of_genai_prices_reads_variants_as_tiers_by_day() {
    let text = r#"[{ "id": "openai", "models": [
        { "id": "gpt-4.1", "prices": { "input_mtok": 2, "cache_read_mtok": 0.4, "output_mtok": 8, "storage_searches_kcount": 2.5 },
          "price_variants": [ { "when": { "service_tier": "default" }, "prices": {} },
            { "when": { "service_tier": "priority" }, "prices": { "input_mtok": 3.5, "cache_read_mtok": 0.7, "output_mtok": 14 },
              "constraint": { "start_date": "2026-10-12" } },
            { "when": { "service_tier": "fast" }, "prices": { "input_mtok": 3.5 } },
            { "when": { "processing": "batch" }, "prices": { "input_mtok": 1, "output_mtok": 4 } },
            { "when": { "processing": "batch" }, "prices": { "input_mtok": 0.5, "output_mtok": 2 } },
            { "when": { "service_tier": "flex" }, "prices": { "input_mtok": 1, "cache_read_mtok": 0.2, "output_mtok": 4 },
              "constraint": { "start_date": "2099-02-01" } } ] },
        { "id": "ft:gpt-4o-", "prices": { "input_mtok": 1 } },
        { "id": "gpt-5.2", "prices": { "input_mtok": 1.75 }, "price_variants": [
            { "when": { "route": "eu" }, "prices": { "input_mtok": 2 } } ] } ] },
      { "id": "zhipuai", "models": [ { "id": "glm-5.3", "prices": { "input_mtok": 1.103, "output_mtok": 3.862 } } ] },
      { "id": "zai", "models": [ { "id": "GLM-5.3", "prices": { "input_mtok": 1.4, "output_mtok": 4.4 } } ] },
      { "id": "aws", "models": [
        { "id": "global.anthropic.claude-opus-5", "prices": { "input_mtok": 5, "output_mtok": 25 } },
        { "id": "regional.anthropic.claude-opus-5", "prices": { "input_mtok": 5.5, "output_mtok": 27.5 } } ] },
      { "id": "google", "models": [ { "id": "claude-opus-5", "prices": { "input_mtok": 5, "output_mtok": 25 } } ] }]"#;
    let folder = folder(&[("data.json", text)]);
    let (_, out, error) =
        catalogue(folder.path(), &["import", "genai-prices", "data.json", "--out", "p.toml"]);
    assert!(error.is_empty(), "{error}");
    has(
        &out,
        &[
            "differs  gpt-4.1 at openai: cached_input 0.5 -> 0.4",
            "refused  ft:gpt-4o- at openai: its id is the beginning of names",
            "refused  gpt-5.2 at openai: a price depends on something that is no service tier",
            "3 same, 0 new, 1 differ, 2 refused",
        ],
    );
    let text = std::fs::read_to_string(folder.path().join("p.toml")).unwrap();
    // Batch has the cached input of the base price, which the variant does not name; flex begins later.
    has(
        &text,
        &[
            "tiers = { \"batch\" = 0.5, \"priority\" = 1.75 }\nodd = { batch = { cached_input = 0.4 } }\nuntil = 2099-01-31",
            "tiers = { \"batch\" = 0.5, \"flex\" = 0.5, \"priority\" = 1.75 }",
            "from = 2099-02-01",
        ],
    );
    assert!(!text.contains("default") && !text.contains("fast"), "{text}");
}

#[test]
fn import_of_models_dev_joins_geographies_and_other_names() {
    let text = r#"{ "openai": { "models": {
        "text-embedding-3-small": { "cost": { "input": 0.02, "output": 0 } },
        "gpt-5.1": { "cost": { "input": 1.25, "output": 10, "cache_read": 0.13, "cache_write": 0 } },
        "gpt-5.5": { "cost": { "input": 6, "output": 30 }, "limit": { "context": 0, "output": 0 } } } },
      "xai": { "models": { "grok-4.3": { "cost": { "input": 1.25, "output": 2.5,
        "tiers": [ { "tier": { "type": "context", "size": 200000 }, "input": 2.5, "output": 5 } ] } } } },
      "amazon-bedrock": { "models": {
        "anthropic.claude-opus-5": { "cost": { "input": 5, "output": 25 } },
        "eu.anthropic.claude-opus-5": { "cost": { "input": 5.5, "output": 27.5 } },
        "jp.anthropic.claude-opus-5": { "cost": { "input": 6, "output": 30 } } } } }"#;
    let folder = folder(&[("api.json", text)]);
    let (_, out, error) = catalogue(folder.path(), &["import", "models-dev", "api.json", "--out", "p.toml"]);
    assert!(error.is_empty(), "{error}");
    has(
        &out,
        &[
            "differs  gpt-5.5 at openai: input 5 -> 6",
            "differs  anthropic.claude-opus-5 at bedrock: region jp 1.1 -> 1.2",
            "3 same, 0 new, 2 differ, 0 refused",
        ],
    );
    let text = std::fs::read_to_string(folder.path().join("p.toml")).unwrap();
    // What the source does not know is kept where it is a factor, and named where it is an amount.
    has(
        &text,
        &[
            "long = { above = 272000, input = 2, output = 1.5 }",
            "tiers = {",
            "# The catalogue has these beside, which the source does not state: cached_input",
        ],
    );
}

/// Each example of the page is a file that the gateway takes.
#[test]
fn examples_of_the_page_are_valid() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/catalogue.md")).unwrap();
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 3);
    for example in &examples {
        let folder = folder(&[("over.toml", example)]);
        let (ok, out, error) = catalogue(folder.path(), &["diff", "over.toml"]);
        assert!(ok && !out.is_empty(), "{example}\n{error}");
    }
    let example = examples.iter().find(|example| example.contains("[[serving]]")).unwrap();
    let folder = folder(&[("over.toml", example)]);
    let (_, out, _) = catalogue(folder.path(), &["show", "acme-coder-70b", "--file", "over.toml"]);
    has(&out, &["family         acme-coder (a guess", "sampling       all"]);
}
