//! Targets for translated requests and responses, in all pairs of formats.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use codec::canonical::dialect::{ReasoningOff, ReasoningSupport, SamplingSupport, Structured};
use codec::canonical::seal::{SealedSignature, SignedCallId};
use codec::canonical::{
    BreakpointSupport, Dialect, Effort, EffortSet, Event, Grammar, MemberSet, ProviderSignature, Quirks,
    RequestFeatures, Thinking,
};
use codec::error::{ApiError, ErrorKind};
use codec::translate::translated::{Route, Translated};
use codec::translate::verbatim::{Arrival, StreamError};
use codec::translate::{Restore, TranslateRequest, outgoing};
use codec::wire::codec::ReplyOptions;
use codec::wire::{Format, chat, converse, generate, messages, responses, schema};
use framing::event_stream::EventMessage;
use json::{EscapedString, JsonStr, RawJson};
use serde_json::value::RawValue;

use crate::{choose, pieces};

/// Frame limit, in bytes. It is never reached, because whether a frame is too large depends on the split.
const LIMIT: usize = 1 << 24;

/// Whether a text is one JSON value, of any depth.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

fn assert_json(text: &str) {
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        panic!("{error}: {text}");
    }
}

/// Whether everything that a provider sent is JSON. Decoders skip values that they do not need and copy values that
/// they do not change, so that invalid JSON may be passed on as such.
fn is_sound(data: &[u8], array: bool) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    if array {
        return is_json(text);
    }
    let lines = text.trim_start_matches('\u{feff}').split(['\n', '\r']);
    let mut values =
        lines.filter_map(|line| line.strip_prefix("data")).map(|rest| rest.trim_start_matches(':'));
    values.all(|value| matches!(value.trim(), "" | "[DONE]") || is_json(value))
}

/// Asserts that bytes are messages of an event stream, with JSON in each event if `sound`.
fn assert_messages(mut out: &[u8], sound: bool) {
    while !out.is_empty() {
        let length = u32::from_be_bytes(out[..4].try_into().unwrap()) as usize;
        let message = EventMessage::parse(&out[..length]).unwrap();
        if sound {
            assert_json(std::str::from_utf8(message.payload()).unwrap());
        }
        out = &out[length..];
    }
}

/// Asserts that a text is a stream in SSE framing, with a JSON value in each event if `sound`.
fn assert_events(text: &str, sound: bool) {
    for line in text.split(['\n', '\r']).filter(|line| !line.is_empty()) {
        match line.split_once(':') {
            Some(("data", data)) if !sound || data.trim() == "[DONE]" => {}
            Some(("data", data)) => assert_json(data),
            Some(("event" | "", _)) => {}
            _ => panic!("{line:?} in {text}"),
        }
    }
}

fn reply(flags: usize) -> ReplyOptions {
    ReplyOptions {
        model: EscapedString::from("our \"model\""),
        request: "req_1".into(),
        seed: "req_1".into(),
        created: 1,
        usage_wanted: flags & 1 == 0,
        show_thinking: flags & 2 == 0,
        issuer: "provider".into(),
        array: flags & 4 != 0,
        ..ReplyOptions::default()
    }
}

#[derive(Debug, PartialEq)]
struct Passed {
    out: Vec<u8>,
    result: Result<(), StreamError>,
}

fn pass(route: &Route, arrival: Arrival, flags: usize, pieces: &[&[u8]]) -> Passed {
    let mut translated = Translated::new(route, arrival, Arc::new(reply(flags)), Restore::default(), LIMIT);
    let mut out = Vec::new();
    let mut read = || -> Result<(), StreamError> {
        if !route.stream {
            out.extend_from_slice(&translated.whole(Bytes::from(pieces.concat()))?);
            return Ok(());
        }
        for piece in pieces {
            out.extend_from_slice(&translated.feed(Bytes::copy_from_slice(piece))?);
        }
        out.extend_from_slice(&translated.finish()?);
        Ok(())
    };
    let result = read();
    if result.is_err() {
        out.extend_from_slice(&translated.take_ready());
        let error = ApiError::new(ErrorKind::UpstreamBroken, "The \"stream\" broke.");
        out.extend_from_slice(&translated.fail(&error));
    }
    Passed { out, result }
}

/// Asserts that the events of a response obey the event grammar, whatever the frames are.
fn assert_grammar(format: Format, frames: &[&str]) {
    let mut grammar = Grammar::default();
    let mut sink = |event: Event<'_>| {
        if let Err(fault) = grammar.check(&event) {
            panic!("{fault}: {event:?} in {frames:?}");
        }
    };
    macro_rules! read {
        ($decoder:expr) => {{
            let mut decoder = $decoder;
            for frame in frames {
                if decoder.is_over() || decoder.frame(frame, &mut sink).is_err() {
                    return;
                }
            }
            let _ = decoder.finish(&mut sink);
        }};
    }
    match format {
        Format::Chat => read!(chat::stream::Decoder::new("req_1")),
        Format::Messages => read!(messages::stream::Decoder::new("req_1")),
        Format::Responses => read!(responses::stream::Decoder::new("req_1")),
        Format::Generate => read!(generate::stream::Decoder::new("req_1")),
        Format::Converse => read!(converse::stream::Decoder::new("req_1")),
    }
}

/// Translated stream: every split gives the same output, the output has the client's framing, and the events in between
/// obey the event grammar.
pub fn translated(mut data: &[u8]) {
    let provider = Format::ALL[choose(&mut data, Format::ALL.len())];
    let client = Format::ALL[choose(&mut data, Format::ALL.len())];
    let flags = choose(&mut data, 16);
    let seed = choose(&mut data, 256);
    if let Ok(text) = std::str::from_utf8(data) {
        let frames: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_grammar(provider, &frames);
    }
    let arrival =
        if provider == Format::Generate && flags & 8 != 0 { Arrival::Array } else { Arrival::Events };
    let route = Route { client, provider, stream: true };
    let whole = pass(&route, arrival, flags, &[data]);
    let split = pass(&route, arrival, flags, &pieces(data, seed));
    let text = |passed: &Passed| String::from_utf8_lossy(&passed.out).into_owned();
    assert!(
        split == whole,
        "{:?} {}\nagainst {:?} {}",
        split.result,
        text(&split),
        whole.result,
        text(&whole)
    );
    let sound = is_sound(data, arrival == Arrival::Array);
    if client == Format::Converse {
        return assert_messages(&whole.out, sound);
    }
    match client == Format::Generate && flags & 4 != 0 {
        // A client that requested an array receives a closed array in any case.
        true if sound => assert_json(&text(&whole)),
        true => {}
        false => assert_events(&text(&whole), sound),
    }
    let collected = pass(&Route { stream: false, ..route }, arrival, flags, &[data]);
    assert_eq!(collected.result.is_ok(), whole.result.is_ok(), "{:?} {:?}", collected.result, whole.result);
    if collected.result.is_ok() && sound {
        assert_json(&text(&collected));
    }
}

/// Translated document, for a client that wants a document and for one that wants a stream.
pub fn answer(mut data: &[u8]) {
    let provider = Format::ALL[choose(&mut data, Format::ALL.len())];
    let client = Format::ALL[choose(&mut data, Format::ALL.len())];
    let flags = choose(&mut data, 8);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let sound = is_json(text);
    let mut grammar = Grammar::default();
    let mut sink = |event: Event<'_>| {
        if let Err(fault) = grammar.check(&event) {
            panic!("{fault}: {event:?} in {text}");
        }
    };
    let _ = match provider {
        Format::Chat => chat::answer::decode(text, "req_1", flags & 1 != 0, &mut sink),
        Format::Messages => messages::answer::decode(text, "req_1", &mut sink),
        Format::Responses => responses::answer::decode(text, "req_1", &mut sink),
        Format::Generate => generate::answer::decode(text, "req_1", &mut sink),
        Format::Converse => converse::answer::decode(text, "req_1", &mut sink),
    };
    let route = Route { client, provider, stream: false };
    let document = pass(&route, Arrival::Whole, flags, &[data]);
    if document.result.is_ok() && sound {
        assert_json(std::str::from_utf8(&document.out).unwrap());
    }
    let stream = pass(&Route { stream: true, ..route }, Arrival::Whole, flags, &[data]);
    if client == Format::Converse {
        return assert_messages(&stream.out, sound);
    }
    let text = std::str::from_utf8(&stream.out).unwrap();
    match client == Format::Generate && flags & 4 != 0 {
        true if sound => assert_json(text),
        true => {}
        false => assert_events(text, sound),
    }
}

/// Returns one of several capability profiles, which lead the encoders to different branches.
fn dialect(kind: usize) -> Dialect<'static> {
    let odd = kind & 1 != 0;
    Dialect {
        model: if odd { "gemini-3-pro" } else { "model-1" },
        issuer: "provider",
        reasoning: match kind % 4 {
            0 => ReasoningSupport::Fixed,
            1 => ReasoningSupport::Budget { min: 1_024, max: 32_768, off: odd },
            2 => ReasoningSupport::efforts(Effort::Minimal, Effort::Max, true),
            _ => ReasoningSupport::Adaptive {
                efforts: EffortSet::of([Effort::Low, Effort::High]),
                off: [ReasoningOff::Never, ReasoningOff::UpTo(Effort::Low), ReasoningOff::BetweenTools]
                    [kind / 4 % 3],
            },
        },
        reasons_by_default: kind & 8 != 0,
        knows_efforts: odd,
        most_output: (kind & 16 != 0).then_some(8_192),
        most_output_whole: (kind & 32 != 0).then_some(4_096),
        max_output: 4_096,
        sampling: [SamplingSupport::All, SamplingSupport::One, SamplingSupport::IfOff, SamplingSupport::None]
            [kind / 2 % 4],
        structured: [Structured::Native, Structured::NativeWithoutTools, Structured::Tool, Structured::Hint]
            [kind / 2 % 4],
        json_schema: kind & 4 != 0,
        call_ids: kind & 8 == 0,
        developer_role: odd,
        max_completion_tokens: odd,
        system_in_middle: kind & 2 != 0,
        system_follows_user: kind & 64 != 0,
        forced_tools: kind & 16 == 0,
        effort_beside_budget: odd,
        max_call_id: (kind & 32 != 0).then_some(64),
        prefill: kind & 16 != 0,
        reasoning_replay: kind & 8 != 0,
        media_urls: kind & 32 != 0,
        image_input: kind & 64 == 0,
        own_envelopes: kind & 128 != 0 && odd,
        parallel_tool_calls: kind & 4 == 0,
        extensions: if odd { &["*"] } else { &[] },
        breakpoints: Some(BreakpointSupport::full(0)),
        think_tags: false,
        refuses: RequestFeatures::NONE,
        refused: match kind & 128 {
            0 => MemberSet::EMPTY,
            _ => MemberSet::EMPTY.with("stop").and_then(|set| set.with("top_k")).unwrap_or_default(),
        },
        signed_calls: odd,
        signs: kind & 8 == 0,
        quirks: &Quirks::PLAIN,
    }
}

fn ask(from: Format, to: Format, kind: usize, body: &str) -> Option<String> {
    let dialect = dialect(kind);
    let ask = TranslateRequest {
        client: from,
        provider: to,
        stream: kind & 1 != 0,
        array: false,
        thinking: [Thinking::Unset, Thinking::Budget(2_000), Thinking::Off][kind % 3],
        dialect: &dialect,
        model: &EscapedString::from("our \"model\""),
        id: "req_1",
        seed: "req_1",
        now: 1,
    };
    let outgoing = outgoing(&body.into(), &ask).ok()?;
    Some(String::from_utf8(outgoing.text().into()).unwrap())
}

/// Translated request: the output is JSON, is the same each time, and can be decoded by the provider's format.
pub fn translated_request(mut data: &[u8]) {
    let from = Format::ALL[choose(&mut data, Format::ALL.len())];
    let to = Format::ALL[choose(&mut data, Format::ALL.len())];
    let kind = choose(&mut data, 256);
    let Ok(body) = std::str::from_utf8(data) else { return };
    let Some(written) = ask(from, to, kind, body) else { return };
    // The gateway has validated a body as JSON before it translates it.
    if !is_json(body) {
        return;
    }
    assert_json(&written);
    assert_eq!(ask(from, to, kind, body).as_deref(), Some(&*written));
    if from != to {
        let again = match to {
            Format::Chat => chat::request::decode(&written).err(),
            Format::Messages => messages::request::decode(&written).err(),
            Format::Responses => responses::request::decode(&written).err(),
            Format::Generate => generate::request::decode(&written).err(),
            Format::Converse => converse::request::decode(&written).err(),
        };
        // The decoder may refuse values that were passed through unchanged.
        if let Some(error) = again {
            assert!(error.param.is_some(), "{error}: {written}");
        }
    }
}

/// Provider signatures: whatever a client sends, the decoded text can be pasted into JSON, and an encoded signature is
/// restored for its issuer only.
pub fn seals(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pasted = |text: &str| assert_json(&format!("\"{text}\""));
    let mut quoted = Vec::new();
    json::push_escaped(&mut quoted, text);
    let escaped = String::from_utf8(quoted).unwrap();
    let field = JsonStr::from_escaped(&escaped);
    if let Some(seal) = ProviderSignature::read(field) {
        pasted(&seal.text);
    }
    let carried = SignedCallId::read(field);
    pasted(carried.id.escaped());
    if let Some(seal) = &carried.signature {
        pasted(&seal.text);
    }
    let sealed = SealedSignature { issuer: "provider-1", text: field };
    let mut envelope = BytesMut::new();
    sealed.write(&mut envelope);
    let envelope = std::str::from_utf8(&envelope).unwrap();
    let read = ProviderSignature::read(JsonStr::from_escaped(envelope)).unwrap();
    assert_eq!(read.for_issuer("provider-1").map(JsonStr::escaped), Some(&*escaped));
    assert_eq!(read.for_issuer("provider-2"), None);
    let mut id = BytesMut::from(&b"call_1"[..]);
    SignedCallId::write(sealed, &mut id);
    let id = std::str::from_utf8(&id).unwrap();
    let carried = SignedCallId::read(JsonStr::from_escaped(id));
    assert_eq!(carried.id.escaped(), "call_1");
    assert_eq!(carried.signature.unwrap().for_issuer("provider-1").map(JsonStr::escaped), Some(&*escaped));
}

/// JSON schemas: any JSON in the place of a schema is encoded as JSON, for every profile.
pub fn schemas(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if serde_json::from_str::<&RawValue>(text).is_err() {
        return;
    }
    let mut plain = Vec::new();
    schema::from_openapi(RawJson::from_text(text.trim()), &mut plain);
    assert_json(std::str::from_utf8(&plain).unwrap());
    let tool = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"tools":[{{"type":"function","function":{{"name":"f","strict":true,"parameters":{text}}}}}]}}"#
    );
    let form = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"response_format":{{"type":"json_schema","json_schema":{{"name":"f","strict":true,"schema":{text}}}}}}}"#
    );
    let gemini = format!(
        r#"{{"contents":[{{"parts":[{{"text":"x"}}]}}],"generationConfig":{{"responseMimeType":"application/json","responseSchema":{text}}}}}"#
    );
    for (from, body) in [(Format::Chat, &tool), (Format::Chat, &form), (Format::Generate, &gemini)] {
        for to in Format::ALL {
            // With full JSON Schema, and with the subset that some providers support.
            for kind in [0, 4] {
                if let Some(written) = ask(from, to, kind, body) {
                    assert_json(&written);
                }
            }
        }
    }
}
