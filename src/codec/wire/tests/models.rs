//! Tests of the model list in its three shapes.

use bytes::BytesMut;
use serde_json::{Value, json};

use crate::canonical::request::Effort;
use crate::wire::models::{
    Hints, ListedModel, ListingPage, ListingShape, encode_list, encode_one, release_time,
};

fn entries<'a>(ids: &[&'a str]) -> Vec<ListedModel<'a>> {
    ids.iter()
        .map(|&id| ListedModel {
            id,
            alias_of: None,
            owned_by: "someone",
            created: 1_700_000_000,
            conversational: true,
            methods: &["generateContent"],
            context_window: None,
            input_limit: None,
            max_output_tokens: None,
            efforts: Vec::new(),
            image_input: true,
            parallel_tool_calls: true,
            gpt5_parameters: false,
        })
        .collect()
}

fn list(shape: ListingShape, ids: &[&str], page: &ListingPage) -> Value {
    let mut out = BytesMut::new();
    encode_list(shape, &entries(ids), page, &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn one(shape: ListingShape, id: &str) -> Value {
    let mut out = BytesMut::new();
    encode_one(shape, &entries(&[id])[0], &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn listing_shape_is_derived_from_headers_and_path() {
    for (beta, provider_version, google_key, shape) in [
        (false, false, false, ListingShape::List),
        (false, true, false, ListingShape::Messages),
        (false, true, true, ListingShape::Messages),
        (false, false, true, ListingShape::Generate),
        (true, false, false, ListingShape::Generate),
        (true, true, false, ListingShape::Generate),
    ] {
        let hints = Hints { beta, provider_version, google_key, client_version: false };
        assert_eq!(hints.shape(), shape);
        // The version of Codex selects its catalogue only where nothing names another API.
        let shape = if shape == ListingShape::List { ListingShape::Catalogue } else { shape };
        assert_eq!(Hints { client_version: true, ..hints }.shape(), shape);
    }
}

fn info(id: &str) -> Value {
    json!({"type": "model", "id": id, "display_name": id, "created_at": "2023-11-14T22:13:20Z", "lifecycle": "active",
           "capabilities": null, "deprecated_at": null, "line": null, "max_input_tokens": null, "max_tokens": null,
           "retires_at": null})
}

#[test]
fn listing_of_each_shape_is_what_its_sdk_parses() {
    let all = ListingPage::default();
    assert_eq!(
        list(ListingShape::List, &["a\"b"], &all),
        json!({"object": "list", "data": [
            {"id": "a\"b", "object": "model", "created": 1_700_000_000, "owned_by": "someone"}]})
    );
    assert_eq!(
        list(ListingShape::Messages, &["a", "b"], &all),
        json!({"data": [
            info("a"), info("b")],
            "has_more": false, "first_id": "a", "last_id": "b"})
    );
    let generate = list(ListingShape::Generate, &["a/b"], &all);
    assert_eq!(generate["models"][0]["name"], "models/a/b");
    assert_eq!(generate["models"][0]["supportedGenerationMethods"], json!(["generateContent"]));
    assert_eq!(generate.get("nextPageToken"), None);
    for shape in [ListingShape::List, ListingShape::Messages, ListingShape::Generate] {
        let all = list(shape, &["a"], &all);
        let key = if shape == ListingShape::Generate { "models" } else { "data" };
        assert_eq!(one(shape, "a"), all[key][0], "a single entry is the list's");
    }
}

#[test]
fn listing_shows_the_token_limits_of_a_model_in_each_shape() {
    let entry = ListedModel {
        context_window: Some(200_000),
        max_output_tokens: Some(64_000),
        ..entries(&["a"]).remove(0)
    };
    for (shape, window, output) in [
        (ListingShape::List, "context_window", "max_output_tokens"),
        (ListingShape::Messages, "max_input_tokens", "max_tokens"),
        (ListingShape::Generate, "inputTokenLimit", "outputTokenLimit"),
        (ListingShape::Catalogue, "context_window", "max_output_tokens"),
    ] {
        let mut out = BytesMut::new();
        encode_one(shape, &entry, &mut out);
        let one: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&one[window], &one[output]), (&json!(200_000), &json!(64_000)), "{one}");
    }
}

/// Coding clients must not offer a model that cannot converse, and have to know what an alias stands for. Other entries
/// are exactly OpenAI's.
#[test]
fn listing_says_which_models_cannot_converse_and_what_an_alias_stands_for() {
    let one = |entry: &ListedModel<'_>| -> Value {
        let mut out = BytesMut::new();
        encode_one(ListingShape::List, entry, &mut out);
        serde_json::from_slice(&out).unwrap()
    };
    let entry = one(&ListedModel { conversational: false, ..entries(&["text-embedding-3-small"]).remove(0) });
    assert_eq!((&entry["conversational"], entry.get("alias_of")), (&json!(false), None));
    let entry = one(&ListedModel { alias_of: Some("gpt-5"), ..entries(&["claude-gw-gpt-5"]).remove(0) });
    assert_eq!((&entry["id"], &entry["alias_of"]), (&json!("claude-gw-gpt-5"), &json!("gpt-5")));
    assert_eq!(entry.get("conversational"), None);
}

/// Codex rejects an entry without one of these members, and an effort that it does not know.
#[test]
fn catalogue_entries_have_every_member_that_codex_requires() {
    let known = ListedModel {
        context_window: Some(200_000),
        efforts: Effort::ALL.to_vec(),
        gpt5_parameters: true,
        ..entries(&["a"]).remove(0)
    };
    let fixed = ListedModel { efforts: vec![Effort::High], ..entries(&["c"]).remove(0) };
    let mut out = BytesMut::new();
    let entries = [known, entries(&["b"]).remove(0), fixed];
    encode_list(ListingShape::Catalogue, &entries, &ListingPage::default(), &mut out);
    let catalogue: Value = serde_json::from_slice(&out).unwrap();
    let models = catalogue["models"].as_array().unwrap();
    for (rank, (model, id)) in models.iter().zip(["a", "b", "c"]).enumerate() {
        assert_eq!((&model["slug"], &model["display_name"]), (&json!(id), &json!(id)));
        assert_eq!(model["priority"], rank);
        assert_eq!((&model["shell_type"], &model["visibility"]), (&json!("unified_exec"), &json!("list")));
        assert_eq!(
            (&model["supported_in_api"], &model["support_verbosity"]),
            (&json!(true), &json!(id == "a"))
        );
        let gpt5 = [("default_verbosity", "low"), ("apply_patch_tool_type", "freeform")];
        for (name, value) in gpt5 {
            assert_eq!(model.get(name), (id == "a").then(|| json!(value)).as_ref(), "{id} {name}");
        }
        assert_eq!(model["truncation_policy"], json!({"mode": "tokens", "limit": 10_000}));
        assert_eq!(model["experimental_supported_tools"], json!([]));
        assert_eq!(model["input_modalities"], json!(["text", "image"]));
        assert_eq!(model["supports_parallel_tool_calls"], true);
        assert_eq!(model["use_responses_lite"], false);
        let reasons = id != "b";
        for name in ["supports_reasoning_summaries", "supports_reasoning_summary_parameter"] {
            assert_eq!(model[name], reasons, "{id}");
        }
        assert_eq!(model["effective_context_window_percent"], 95);
        assert!(model["base_instructions"].as_str().unwrap().starts_with("You are a coding agent"));
    }
    let efforts = |model: &Value| -> Vec<String> {
        let levels = model["supported_reasoning_levels"].as_array().unwrap();
        assert!(levels.iter().all(|level| !level["description"].as_str().unwrap().is_empty()));
        levels.iter().map(|level| level["effort"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(efforts(&models[0]), ["low", "medium", "high", "xhigh", "max"]);
    assert_eq!(
        (&models[0]["default_reasoning_level"], &models[0]["context_window"]),
        (&json!("medium"), &json!(200_000))
    );
    assert_eq!((efforts(&models[1]), models[1].get("context_window")), (Vec::new(), None));
    assert_eq!(models[1].get("default_reasoning_level"), None);
    assert_eq!(
        (efforts(&models[2]), &models[2]["default_reasoning_level"]),
        (vec!["high".to_owned()], &json!("high"))
    );
}

#[test]
fn listing_that_is_empty_is_still_a_list() {
    let all = ListingPage::default();
    assert_eq!(list(ListingShape::List, &[], &all), json!({"object": "list", "data": []}));
    assert_eq!(
        list(ListingShape::Messages, &[], &all),
        json!({"data": [], "has_more": false, "first_id": null, "last_id": null})
    );
    assert_eq!(list(ListingShape::Generate, &[], &all), json!({"models": []}));
    assert_eq!(list(ListingShape::Catalogue, &[], &all), json!({"models": []}));
}

#[test]
fn page_after_page_has_no_gap_or_duplicate() {
    let ids: Vec<String> = (0..25).map(|n| format!("m{n:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for limit in 1..=26 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page =
                list(ListingShape::Messages, &ids, &ListingPage { limit: Some(limit), after, before: None });
            let got: Vec<String> = page["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|m| m["id"].as_str().unwrap().to_owned())
                .collect();
            assert!(got.len() <= limit);
            seen.extend(got);
            after = page["last_id"].as_str().map(str::to_owned);
            if page["has_more"] == json!(false) {
                break;
            }
        }
        assert_eq!(seen, ids, "{limit}");
    }
}

#[test]
fn page_before_an_id_ends_right_before_it() {
    let page = ListingPage { limit: Some(2), after: None, before: Some("d".into()) };
    let got = list(ListingShape::Messages, &["a", "b", "c", "d", "e"], &page);
    assert_eq!(
        (&got["first_id"], &got["last_id"], &got["has_more"]),
        (&json!("b"), &json!("c"), &json!(true))
    );
    let page = ListingPage { limit: Some(1), after: None, before: None };
    assert_eq!(list(ListingShape::Generate, &["a", "b"], &page)["nextPageToken"], "a");
    let crossed = ListingPage { limit: Some(3), after: Some("b".into()), before: Some("a".into()) };
    assert_eq!(list(ListingShape::List, &["a", "b"], &crossed)["data"], json!([]));
}

/// A client that got the first page for an unknown id would page forever.
#[test]
fn page_at_an_unknown_id_is_empty_and_the_last() {
    for (after, before) in
        [(Some("zz"), None), (None, Some("zz")), (Some("zz"), Some("b")), (Some("a"), Some("zz"))]
    {
        let (after, before) = (after.map(str::to_owned), before.map(str::to_owned));
        for limit in [None, Some(1)] {
            let page = ListingPage { limit, after: after.clone(), before: before.clone() };
            let got = list(ListingShape::Messages, &["a", "b", "c"], &page);
            assert_eq!((&got["data"], &got["has_more"]), (&json!([]), &json!(false)), "{page:?}");
            assert_eq!((&got["first_id"], &got["last_id"]), (&Value::Null, &Value::Null), "{page:?}");
            let got = list(ListingShape::Generate, &["a", "b", "c"], &page);
            assert_eq!(got, json!({"models": []}), "{page:?}");
        }
    }
}

#[test]
fn catalogue_has_the_modalities_and_the_compaction_limit_of_a_model() {
    let entry = |window, output, image_input| ListedModel {
        context_window: window,
        max_output_tokens: output,
        image_input,
        ..entries(&["a"]).remove(0)
    };
    for (entry, limit, modalities) in [
        (entry(Some(200_000), None, true), json!(180_000), json!(["text", "image"])),
        (entry(Some(200_000), Some(8_000), true), json!(180_000), json!(["text", "image"])),
        (entry(Some(200_000), Some(64_000), false), json!(136_000), json!(["text"])),
        (entry(Some(128_000), Some(128_000), false), json!(64_000), json!(["text"])),
        (entry(None, Some(64_000), false), Value::Null, json!(["text"])),
        // Nine tenths of an input limit that is less than the window.
        (
            ListedModel { input_limit: Some(272_000), ..entry(Some(400_000), Some(128_000), true) },
            json!(244_800),
            json!(["text", "image"]),
        ),
    ] {
        let mut out = BytesMut::new();
        encode_list(ListingShape::Catalogue, &[entry], &ListingPage::default(), &mut out);
        let model = serde_json::from_slice::<Value>(&out).unwrap()["models"][0].clone();
        assert_eq!(
            (&model["auto_compact_token_limit"], &model["input_modalities"]),
            (&limit, &modalities),
            "{model}"
        );
    }
}

/// Clients sort by the time, and show no model of 1970.
#[test]
fn release_time_is_the_date_in_the_name_or_a_fixed_one() {
    for (id, time) in [
        ("claude-sonnet-4-5-20250929", 1_759_104_000),
        ("gpt-4o-2024-08-06", 1_722_902_400),
        ("openai/gpt-4o-2024-08-06:free", 1_722_902_400),
        ("plain", 1_735_689_600),
        ("model-20259999", 1_735_689_600),
        ("20", 1_735_689_600),
        ("größe-2025", 1_735_689_600),
    ] {
        assert_eq!(release_time(id), time, "{id}");
    }
}
