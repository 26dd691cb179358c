//! Targets for paths, request bodies, compaction items, frames and error bodies.

use bytes::{Bytes, BytesMut};
use codec::canonical::embed::EmbedDialect;
use codec::canonical::{RequestFeatures, Usage};
use codec::error::ApiError;
use codec::provider::{BaseUrl, Provider, ProviderKind, Setup};
use codec::wire::error::{self, ProviderError};
use codec::wire::path::{parse, percent_decode, push_path_segment, query_value, query_without};
use codec::wire::request::{Body, BodyReader};
use codec::wire::responses::compaction::{CompactionItems, user_messages};
use codec::wire::watch::{self, FrameClass, StreamEnd};
use codec::wire::{Api, Format, embeddings, rerank};
use json::Edit;
use serde_json::Value;

use crate::{choose, pieces};

/// Path and query of a request line.
pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    let target = parse(path, query);
    // Additional slashes and an additional version prefix change nothing.
    let more = format!("/v1/{}/", path.replace('/', "//"));
    assert_eq!(parse(&more, query), target);
    if let Some(endpoint) = &target.endpoint {
        assert!(endpoint.allow().split(", ").all(|method| endpoint.allows(method)));
        assert!(!endpoint.label().is_empty());
    }
    let mut escaped = String::new();
    push_path_segment(&mut escaped, text);
    assert!(escaped.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#')));
    assert_eq!(percent_decode(&escaped), text);
    if let Some(query) = query {
        let without = query_without(query, &["key"]);
        assert_eq!(query_value(Some(&without), "key").filter(|_| !without.is_empty()), None);
        assert_eq!(query_value(Some(&without), "alt"), query_value(Some(query), "alt"));
    }
}

fn read(api: Api, batch: bool, pieces: &[&[u8]]) -> Result<Body, ApiError> {
    let mut reader = BodyReader::new(api, batch);
    for piece in pieces {
        reader.push(Bytes::copy_from_slice(piece))?;
    }
    reader.finish()
}

fn apply(body: &Body, edits: impl IntoIterator<Item = Edit>) -> Bytes {
    let mut edits: Vec<Edit> = edits.into_iter().collect();
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    body.text.clone().edited(&edits).into_contiguous()
}

/// Returns a JSON text in which escapes of half a surrogate pair are those of U+FFFD.
fn with_whole_characters(text: &[u8]) -> Vec<u8> {
    let half_at = |at: usize| {
        let escape = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let unit = u32::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()?;
        (0xd800..0xe000).contains(&unit).then_some(unit)
    };
    let mut whole = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        at += match (half_at(at), half_at(at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..)) => 12,
            (Some(_), _) => {
                whole[at..at + 6].copy_from_slice(b"\\ufffd");
                6
            }
            (None, _) if text[at] == b'\\' => 2,
            (None, _) => 1,
        };
    }
    whole
}

/// Request body: every split gives the same result, and edits change only what they are for.
pub fn request(mut data: &[u8]) {
    const APIS: [Api; 7] = [
        Api::Chat,
        Api::Messages,
        Api::CountTokens,
        Api::Responses,
        Api::Generate,
        Api::Embeddings,
        Api::EmbedContent,
    ];
    let api = APIS[choose(&mut data, APIS.len())];
    let seed = choose(&mut data, 256);
    let batch = seed % 2 == 1;
    let invoke = |pieces: &[&[u8]]| {
        let mut reader = BodyReader::invoke("a \"model\"", seed % 2 == 0);
        pieces.iter().try_for_each(|piece| reader.push(Bytes::copy_from_slice(piece)))?;
        reader.finish().map(|body| (*body.text.into_contiguous()).to_owned())
    };
    assert_eq!(invoke(&[data]), invoke(&pieces(data, seed)));
    let whole = read(api, batch, &[data]);
    let split = read(api, batch, &pieces(data, seed));
    let (body, split) = match (whole, split) {
        (Ok(whole), Ok(split)) => (whole, split),
        (Err(whole), Err(split)) => {
            assert_eq!(whole, split);
            assert_eq!(whole.status, 400);
            return;
        }
        (whole, split) => panic!("{whole:?} against {split:?}"),
    };
    assert_eq!((&body.model, body.stream), (&split.model, split.stream));
    assert_eq!((body.set_model("x"), body.request_usage()), (split.set_model("x"), split.request_usage()));
    assert_eq!(split.text.clone().into_contiguous(), with_whole_characters(data));

    let tree = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    let Some(before) = tree(data) else { return };
    let name = "a \"new\"\nnäme";
    let edited = tree(&apply(&split, split.set_model(name))).unwrap();
    if body.model.is_some() {
        let mut expected = before.clone();
        expected["model"] = Value::from(name);
        assert_eq!(edited, expected);
    }
    if let Some(edit) = body.request_usage() {
        let edited = tree(&apply(&split, [edit])).unwrap();
        assert_eq!(edited["stream_options"]["include_usage"], true);
        assert_eq!(edited["model"], before["model"]);
    }
    let both = apply(&split, split.set_model(name).into_iter().chain(split.request_usage()));
    assert!(tree(&both).is_some());
}

/// Request with spellings of the specification that a provider may not support: the edited body is JSON, does not
/// depend on the split, and equals the original if no such spelling was found.
pub fn spellings(mut data: &[u8]) {
    const APIS: [Api; 4] = [Api::Chat, Api::Messages, Api::Responses, Api::Generate];
    let api = APIS[choose(&mut data, APIS.len())];
    let seed = choose(&mut data, 256);
    let (Ok(whole), Ok(split)) = (read(api, false, &[data]), read(api, false, &pieces(data, seed))) else {
        return;
    };
    let base = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let setup = Setup { name: "p".to_owned(), kind: ProviderKind::OpenAi, apis: Vec::new(), base };
    let provider = Provider::new(setup);
    let dialect = provider.dialect(api, "o3");
    let told = |body: &Body| apply(body, body.respelled(&dialect).edits);
    assert_eq!(told(&whole), told(&split));
    if !whole.may_be_spelled() && whole.held(dialect.refuses, dialect.most_output) == RequestFeatures::NONE {
        assert_eq!(told(&whole), with_whole_characters(data));
    }
    if serde_json::from_slice::<Value>(data).is_ok() {
        assert!(serde_json::from_slice::<Value>(&told(&split)).is_ok());
    }
    let with_model: Vec<Edit> = whole
        .respelled(&dialect)
        .edits
        .into_iter()
        .chain(whole.set_model("x"))
        .chain(whole.request_usage())
        .collect();
    if serde_json::from_slice::<Value>(data).is_ok() {
        assert!(serde_json::from_slice::<Value>(&apply(&whole, with_model)).is_ok());
    }
    assert_eq!((whole.betas(), whole.has_stop_sequence()), (split.betas(), split.has_stop_sequence()));
}

/// Data of a frame, and a complete response.
pub fn watch(mut data: &[u8]) {
    let format = Format::ALL[choose(&mut data, Format::ALL.len())];
    let Ok(text) = std::str::from_utf8(data) else { return };
    let glance = watch::classify(format, data);
    let sights = [watch::frame(format, text), watch::answer(format, text)];
    for sight in sights.iter().flatten() {
        if let Some(at) = &sight.model_at {
            assert!(text[at.clone()].starts_with('"') && text[at.clone()].ends_with('"') && at.len() >= 2);
        }
        assert_eq!(sight.finished & !sight.seen, 0, "finished without having been seen");
        let mut usage = Usage::default();
        for report in sight.usage.iter().chain(&sight.usage) {
            let before = usage;
            usage.update(report);
            assert!(before == Usage::default() || before == usage, "the same report twice is one");
        }
        assert!(!sight.usage_only || sight.usage.is_some());
    }
    if let ([Ok(frame), _], false) = (&sights, data.contains(&b'\\')) {
        let quiet = frame.finish.is_none() && frame.finished == 0 && frame.end == StreamEnd::Open;
        match glance {
            FrameClass::Read => {}
            // The names may occur where they have no meaning, therefore only this direction holds.
            FrameClass::Content => assert!(quiet && frame.usage.is_none()),
            FrameClass::ContentAndUsage => assert!(quiet),
        }
    }
    let _ = embeddings::answer(text);
    vectors_and_orders(text);
}

/// Requests and responses of embeddings and reranking: decoding either succeeds or returns an error.
fn vectors_and_orders(text: &str) {
    let requests = [
        embeddings::decode_list(text),
        embeddings::decode_part(text, "m"),
        embeddings::decode_parts(text, "m"),
    ];
    for embed in requests.into_iter().flatten() {
        let mut out = BytesMut::new();
        let _ = embeddings::ask::encode(&embed, &embed.items, &EmbedDialect::LIST, "up", &mut out);
        assert!(embed.items.is_empty() || !out.is_empty());
    }
    for wanted in [1, 3] {
        if let Ok(answer) = embeddings::decode_answer(text, wanted) {
            assert!(answer.failed || answer.vectors.len() == wanted);
        }
        if let Ok(answer) = rerank::decode_answer(text, wanted) {
            assert!(answer.results.len() <= wanted);
        }
    }
    for base64 in [false, true] {
        let _ = embeddings::corrected(text, base64);
    }
    let _ = rerank::decode(text);
}

/// Error body of a provider, and the error that clients of each format receive.
pub fn provider_error(mut data: &[u8]) {
    let status = [400, 401, 404, 429, 500, 529, 302, 0][choose(&mut data, 8)];
    let provider = ProviderError::decode(data);
    if let Ok(text) = std::str::from_utf8(data) {
        for format in Format::ALL {
            let _ = error::is_in_shape(format, status, text);
        }
    }
    let error = error::from_provider(status, provider, None);
    assert!((400..600).contains(&error.status) && error.status != 401);
    for format in Format::ALL {
        let body = error::body(format, &error, "req_1");
        let text = std::str::from_utf8(&body).unwrap();
        let tree: Value = serde_json::from_str(text).unwrap();
        let message = if format == Format::Converse { &tree["message"] } else { &tree["error"]["message"] };
        assert_eq!(*message, *error.message);
        assert!(error::is_in_shape(format, error::client_status(format, &error), text), "{text}");
        let tail = error::stream_tail(format, &error, "req_1", None);
        assert!(format == Format::Converse || tail.ends_with(b"\n\n") || tail.ends_with(b"\r\n\r\n"));
    }
}

/// Compaction items of a request: opened items and a removed trigger leave valid JSON, and change nothing else.
pub fn compaction(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Must not panic for any text. The invariants are those of bodies that the scan accepts.
    let found = CompactionItems::read(text);
    let _ = user_messages(text, "seed");
    if read(Api::Responses, false, &[data]).is_err() {
        return;
    }
    let (Ok(found), Ok(before)) = (found, serde_json::from_str::<Value>(text)) else { return };
    let summaries: Vec<Option<String>> =
        found.items.iter().map(|item| (item.index % 2 == 0).then(|| item.encrypted.clone())).collect();
    for removes in [false, true] {
        let after: Value =
            serde_json::from_str(&found.rewritten(text, &summaries, removes)).expect("valid JSON");
        let items = |body: &Value| body["input"].as_array().cloned().unwrap_or_default();
        let (old, new) = (items(&before), items(&after));
        assert_eq!(old.len() - new.len(), usize::from(removes && found.is_triggered()));
        for (index, (old, new)) in old.iter().zip(&new).enumerate() {
            let opened = found.items.iter().any(|item| item.index == index && index % 2 == 0);
            assert!(if opened { new["role"] == "user" } else { old == new }, "{index}");
        }
    }
    let kept = user_messages(text, "seed").expect("valid JSON");
    serde_json::from_str::<Vec<Value>>(&format!("[{kept}]")).expect("items");
}
