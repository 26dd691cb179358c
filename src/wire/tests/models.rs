//! Tests of the model list in its three shapes.

use bytes::BytesMut;
use serde_json::{Value, json};

use crate::wire::models::{Hints, ListedModel, ListingPage, ListingShape, encode_list, encode_one};

fn entries<'a>(ids: &[&'a str]) -> Vec<ListedModel<'a>> {
    ids.iter()
        .map(|&id| ListedModel {
            id,
            owned_by: "someone",
            created: 1_700_000_000,
            methods: &["generateContent"],
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
        assert_eq!(Hints { beta, provider_version, google_key }.shape(), shape);
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
fn listing_that_is_empty_is_still_a_list() {
    let all = ListingPage::default();
    assert_eq!(list(ListingShape::List, &[], &all), json!({"object": "list", "data": []}));
    assert_eq!(
        list(ListingShape::Messages, &[], &all),
        json!({"data": [], "has_more": false, "first_id": null, "last_id": null})
    );
    assert_eq!(list(ListingShape::Generate, &[], &all), json!({"models": []}));
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
