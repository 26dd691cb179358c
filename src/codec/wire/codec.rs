//! Types that the codecs of all formats share: options of response encoders, losses recorded by request encoders, and
//! helpers for ids.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Format;
use super::loss::{self, LossPolicy};
use super::watch::members;
use crate::canonical::{Index, IndexKey};
use crate::error::{ApiError, ErrorKind};
use json::{Cursor, EscapedString, JsonStr, RawJson, Scanner, Sink, Writer};

/// Options of a response encoder: facts that the response itself does not hold. The same for streams and whole
/// responses.
#[derive(Clone, Debug, Default)]
pub struct ReplyOptions {
    /// Model name that the client used.
    pub model: EscapedString,
    /// Request id, which error bodies contain.
    pub request: Box<str>,
    /// Seed of ids that the provider did not supply. Unique per request and never chosen by the client.
    pub seed: Box<str>,
    /// Start of the response (Unix seconds), used if the provider does not report it.
    pub created: u64,
    /// Clock of the request, from which Converse states the duration of the response. `None` if it is not stated.
    pub clock: Option<RequestClock>,
    /// Whether the client requested usage in its stream. Only for formats in which usage is optional.
    pub usage_wanted: bool,
    /// Whether the client wants to receive reasoning.
    pub show_thinking: bool,
    /// Issuer of the provider signatures in this response. Each signature reaches the client in an envelope with this
    /// name.
    pub issuer: Box<str>,
    /// Whether a generate stream is one JSON array instead of server-sent events.
    pub array: bool,
    /// Id under which the gateway stores the response. The response then carries this id instead of one that is derived
    /// from the provider's id, because provider ids need not be unique. Empty if the response is not stored.
    pub store_as: Box<str>,
    /// Whether the provider signatures of this response are collected, because the client may not send them back.
    pub collect_signatures: bool,
    /// Hash of the conversation before this response. Set where provider signatures are collected.
    pub before: [u8; 32],
    /// Request members that the format repeats in its response: JSON text, `"name":value` pairs joined with commas.
    pub echo: Box<str>,
    /// Compaction that the response becomes; `None` for a response that is forwarded as it is. Only for the responses
    /// format.
    pub compaction: Option<Box<CompactionReply>>,
}

/// Clock that the caller supplies: codecs read none of their own.
#[derive(Clone, Copy, Debug)]
pub struct RequestClock {
    /// Returns the time in milliseconds since any fixed moment.
    pub now: fn() -> u64,
    /// Arrival of the request, on the same clock.
    pub started: u64,
}

impl RequestClock {
    /// Returns the milliseconds since the request arrived.
    pub fn elapsed(&self) -> u64 {
        (self.now)().wrapping_sub(self.started)
    }
}

/// Compaction of a conversation: the text of the response, which is a summary, becomes one item with sealed content.
#[derive(Clone, Debug)]
pub struct CompactionReply {
    /// Seals the summary.
    pub seal: Sealer,
    /// Messages of the user that a compacted conversation keeps: JSON items joined with commas. `None` if the client
    /// requested a response, which has the compaction item only.
    pub messages: Option<Box<str>>,
}

/// Encryption of a text that only this gateway, or another one of its fleet, can open again.
#[derive(Clone)]
pub struct Sealer(Arc<SealFn>);

/// Function that encrypts a text.
type SealFn = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Sealer {
    /// Creates a sealer. `seal` returns characters that need no JSON escapes; `None` if the text cannot be encrypted.
    pub fn new(seal: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Sealer(Arc::new(seal))
    }

    /// Returns the sealed text. `None` if the text cannot be encrypted.
    pub fn seal(&self, text: &str) -> Option<String> {
        (self.0)(text)
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

/// Maximum number of losses recorded per request. A client may send any number of unknown members; this many are enough
/// for the warning header, the metric and keys that permit no losses. Larger than the number of rows in [`loss::ROWS`],
/// so that silent losses never displace one that matters.
pub const MOST_LOSSES: usize = 256;
const _: () = assert!(MOST_LOSSES > loss::ROWS.len());

/// Losses that a request encoder records, and the first reason to refuse the request.
#[derive(Debug)]
pub struct LossNotes {
    from: Format,
    to: Format,
    losses: SmallVec<[Loss; 4]>,
    known: Index,
    refusal: Option<Box<ApiError>>,
    breakpoints: u8,
}

/// Element of a request that the target format cannot carry as the client wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Name of the element: a row of the table in [`loss`], or the member's path if no row has it.
    pub element: Cow<'static, str>,
    /// Policy that applies to the element.
    pub policy: LossPolicy,
    /// Whether the element is carried with a value that was moved into the target's range.
    pub clamped: bool,
}

/// Result that stands in for that of a call which has none. It is added, not dropped.
pub const PLACEHOLDER: &str = "tool_result_placeholder";

impl Loss {
    /// Returns what became of the element, for the client.
    pub fn outcome(&self) -> &'static str {
        match &*self.element {
            PLACEHOLDER => "added",
            _ if self.clamped => "clamped",
            _ => "dropped",
        }
    }
}

impl LossNotes {
    /// Creates the record for a request that is translated from a client's format to a provider's format.
    pub fn new(from: Format, to: Format) -> Self {
        LossNotes {
            from,
            to,
            losses: SmallVec::new(),
            known: Index::default(),
            refusal: None,
            breakpoints: 0,
        }
    }

    /// Counts an automatic prompt-cache breakpoint that was set.
    pub fn count_breakpoint(&mut self) {
        self.breakpoints = self.breakpoints.saturating_add(1);
    }

    /// Returns the number of automatic prompt-cache breakpoints that were set.
    pub fn breakpoints(&self) -> u8 {
        self.breakpoints
    }

    /// Returns the format of the client.
    pub fn from(&self) -> Format {
        self.from
    }

    /// Returns the format of the provider.
    pub fn to(&self) -> Format {
        self.to
    }

    /// Records an element that is not carried; the table decides on the policy. A repeated element counts once.
    pub fn lose(&mut self, element: impl Into<Cow<'static, str>>) {
        let element = element.into();
        let policy = loss::policy(&element, self.to);
        if policy == LossPolicy::Refuse {
            let message = format!("'{element}' cannot be translated to the {} API of this model.", self.to);
            self.refuse_as(ApiError::new(ErrorKind::Unsupported, message).param(element.clone()));
        }
        self.note(Loss { element, policy, clamped: false });
    }

    /// Records a sampling parameter that is not carried. The providers' default is not a loss: dropping it changes
    /// nothing, and some SDKs always send it.
    pub fn lose_sampling(&mut self, element: &'static str, value: RawJson<'_>) {
        let default = if element.ends_with("_penalty") { 0.0 } else { 1.0 };
        let has_default =
            matches!(element, "temperature" | "top_p" | "presence_penalty" | "frequency_penalty");
        if !has_default || value.text().parse::<f64>() != Ok(default) {
            self.lose(element);
        }
    }

    /// Records an element that is dropped with a warning to the client, whatever the table says.
    pub fn warn(&mut self, element: impl Into<Cow<'static, str>>) {
        self.note(Loss { element: element.into(), policy: LossPolicy::Warn, clamped: false });
    }

    /// Records a value that is moved into the target's range, with a warning to the client.
    pub fn clamp(&mut self, element: impl Into<Cow<'static, str>>) {
        self.note(Loss { element: element.into(), policy: LossPolicy::Warn, clamped: true });
    }

    /// Refuses the request. `message` is the explanation for the client. Only the first refusal is kept.
    pub fn refuse(&mut self, param: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) {
        self.refuse_as(ApiError::new(ErrorKind::Unsupported, message).param(param));
    }

    /// Refuses the request with this error. Only the first refusal is kept.
    pub fn refuse_as(&mut self, error: ApiError) {
        // Keep the first reason: one is enough for the client.
        self.refusal.get_or_insert_with(|| Box::new(error));
    }

    fn note(&mut self, loss: Loss) {
        if self.losses.len() < MOST_LOSSES && self.known.add(IndexKey::of(&*loss.element)) {
            self.losses.push(loss);
        }
    }

    /// Returns the losses in the order in which they were recorded.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Takes the error that refuses the request. `None` if the request can be carried.
    pub fn take_refusal(&mut self) -> Option<Box<ApiError>> {
        self.refusal.take()
    }
}

/// Returns whether a text is exactly one JSON object. Read strictly: arguments that a model wrote are put into a request or
/// a response as they are, which must stay valid JSON.
pub fn is_object(text: &str) -> bool {
    let mut scanner = Scanner::new(&[]);
    scanner.push(text.as_bytes()).is_ok() && scanner.finish().is_ok()
}

/// Returns the member `type` of an object. Empty if it has none.
pub fn type_of(object: RawJson<'_>) -> JsonStr<'_> {
    let mut json = Cursor::new(object.text());
    let mut read = || {
        json.begin_object().ok()?;
        while let Some(key) = json.next_key().ok()? {
            if key.is("type") {
                return json.raw().ok()?.as_str();
            }
            json.skip().ok()?;
        }
        None
    };
    read().unwrap_or_default()
}

/// Returns whether the member `type` of an object is this word.
pub fn has_type(object: RawJson<'_>, word: &str) -> bool {
    type_of(object).is(word)
}

/// Writes the members of an object that are not among `written`, as they are.
pub fn put_rest<B: Sink>(object: RawJson<'_>, written: &[&str], json: &mut Writer<'_, B>) {
    // Cannot fail: the object is part of a valid text. Another value has no members.
    let _ = members(&mut Cursor::new(object.text()), |key, cursor| {
        let value = cursor.raw()?;
        if !written.iter().any(|name| key.is(name)) {
            json.paste_key(key).raw(value);
        }
        Ok(())
    });
}

/// Returns an id without the prefixes that formats give to response ids: `chatcmpl-9x` and `msg_9x` become `9x`.
/// Characters that would need an escape become `_`. Empty for an empty id.
pub fn bare_id(id: &str) -> Cow<'_, str> {
    let rest = ["chatcmpl-", "msg_", "resp_", "gen-"]
        .into_iter()
        .find_map(|prefix| id.strip_prefix(prefix))
        .unwrap_or(id);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if rest.bytes().all(|byte| fits(char::from(byte))) {
        Cow::Borrowed(rest)
    } else {
        Cow::Owned(rest.chars().map(|c| if fits(c) { c } else { '_' }).collect())
    }
}

/// Makes an id for an object that has no id from the provider: the prefix and 24 letters and digits. They depend only
/// on the seed and the number, so that the same response has the same ids whenever it is read.
pub fn make_id(prefix: &str, seed: &str, number: u64) -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // FNV-1a over seed and number, then one linear congruential step per letter. It spreads the bits; it is not secret.
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in seed.bytes().chain(number.to_le_bytes()) {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut letters = [b'0'; 24];
    for letter in &mut letters {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *letter = LETTERS.get((state >> 33) as usize % LETTERS.len()).copied().unwrap_or(b'0');
    }
    let mut id = String::with_capacity(prefix.len() + letters.len());
    id.push_str(prefix);
    id.push_str(std::str::from_utf8(&letters).unwrap_or_default());
    id
}

/// Ids of the calls written so far, with the numbers of calls and results. Repeated ids get a numeric suffix, because
/// some providers refuse duplicates and others number their calls from 0 in every turn.
#[derive(Default)]
pub struct WrittenIds(HashMap<String, (u32, u32), foldhash::fast::RandomState>);

impl WrittenIds {
    /// Returns the id of the next call.
    pub fn call<'i>(&mut self, id: Cow<'i, str>) -> Cow<'i, str> {
        let (calls, _) = self.0.entry(id.to_string()).or_default();
        *calls += 1;
        WrittenIds::numbered(id, *calls)
    }

    /// Returns the id of the next result. Results come in the order of their calls.
    pub fn result<'i>(&mut self, id: Cow<'i, str>) -> Cow<'i, str> {
        let Some((calls, results)) = self.0.get_mut(id.as_ref()) else { return id };
        *results = (*results + 1).min(*calls);
        WrittenIds::numbered(id, *results)
    }

    fn numbered(id: Cow<'_, str>, number: u32) -> Cow<'_, str> {
        if number > 1 { Cow::Owned(format!("{id}_{number}")) } else { id }
    }
}

/// Returns whether a finish reason means that the response is still pending. Background responses are queued first
/// (<https://platform.openai.com/docs/guides/background>).
pub fn is_to_come(reason: JsonStr<'_>) -> bool {
    matches!(reason.escaped(), "queued" | "in_progress")
}

/// Error of a stream that ended before its response was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended before it was complete")]
pub struct CutText;

/// Returns whether the arguments of a function call mean that there are none: an empty text, `null` or `[]`, as models write
/// them and clients send them back.
pub fn means_no_arguments(text: JsonStr<'_>) -> bool {
    matches!(text.escaped().trim_ascii(), "" | "null" | "[]")
}
