//! Features of a request body that not every target of its format takes, from what the scan noted and from a few short
//! members. The conversation is not read for them.
//!
//! Must not live here: what a target refuses ([`Dialect::refuses`](crate::canonical::Dialect::refuses)), which the tables
//! of the providers say.

use super::fields::{CONTENT, chat, converse, generate, messages, responses};
use super::request::{Body, BodyReader};
use super::{Api, answered_calls, own_settings, watch};
use crate::canonical::RequestFeatures as Features;
use json::{Cursor, JsonError, JsonStr, RawJson, Rope, ValueKind};

/// Bits that looks at values note, above those of the words.
mod bits {
    pub(super) const ENVELOPE: u32 = 1 << 20;
    pub(super) const UNSIGNED: u32 = 1 << 21;
    /// A signature that could not be looked at.
    pub(super) const UNKNOWN: u32 = 1 << 22;
    pub(super) const ODD: u32 = 1 << 23;
    pub(super) const STRANGE: u32 = 1 << 24;
    pub(super) const LONG: u32 = 1 << 25;
    pub(super) const OVERLONG: u32 = 1 << 26;
    pub(super) const SIGNED: u32 = 1 << 27;
}

/// Features of what providers signed and of ids.
pub(super) const PROVENANCE: Features = Features::ENVELOPE
    .with(Features::SEALED)
    .with(Features::UNSIGNED)
    .with(Features::SIGNED)
    .with(Features::ODD_ID)
    .with(Features::STRANGE_ID)
    .with(Features::LONG_ID)
    .with(Features::OVERLONG_ID)
    .with(Features::BARE_REASONING);

/// Beginning of an envelope, as it is and in base64.
const BEGINNINGS: [&[u8]; 2] = [b"gw1.", b"Z3cx"];
/// What carries an envelope behind an id.
const CARRIER: &[u8] = b"__gw1";
/// Beginning of the id of an item that the gateway made to carry the signature of a text.
const SEAL_OF_TEXT: &[u8] = b"rs_of_text_";

/// Looks at a signature.
pub(super) fn look_at_seal(seal: Option<&[u8]>) -> u32 {
    match seal {
        None => bits::UNKNOWN,
        Some([]) => bits::UNSIGNED,
        Some(seal) if BEGINNINGS.iter().any(|start| seal.starts_with(start)) => bits::ENVELOPE,
        Some(_) => bits::SIGNED,
    }
}

/// Looks at the id of a tool call.
pub(super) fn look_at_id(id: Option<&[u8]>) -> u32 {
    // An id with escapes is odd; one that is cut between two pieces and not read is long.
    let Some(id) = id else { return bits::ODD | bits::STRANGE | bits::LONG | bits::OVERLONG };
    let mut found = 0;
    for byte in id {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => {}
            b'.' | b':' => found |= bits::ODD,
            _ => found |= bits::ODD | bits::STRANGE,
        }
    }
    if id.len() > 40 {
        found |= if id.len() > 64 { bits::LONG | bits::OVERLONG } else { bits::LONG };
    }
    found | carried(id)
}

/// Looks at the id of an item of the responses format.
pub(super) fn look_at_item_id(id: Option<&[u8]>) -> u32 {
    match id {
        None => bits::UNKNOWN,
        Some(id) if id.starts_with(SEAL_OF_TEXT) => bits::ENVELOPE,
        Some(id) => carried(id),
    }
}

/// Returns whether an element that is copied as it is holds an envelope in a place where one could have been put. For elements
/// of types that are not known; an envelope in another place is the client's own text.
pub fn carries_envelope(element: RawJson<'_>) -> bool {
    /// Members of any format with a signature or with an id.
    const PLACES: [&str; 11] = [
        "signature",
        "thoughtSignature",
        "thought_signature",
        "encrypted_content",
        "redactedContent",
        "redacted_content",
        "id",
        "call_id",
        "tool_call_id",
        "tool_use_id",
        "toolUseId",
    ];
    fn walk(json: &mut Cursor<'_>) -> Result<bool, JsonError> {
        let mut found = false;
        match json.kind()? {
            ValueKind::Object => {
                json.begin_object()?;
                while let Some(key) = json.next_key()? {
                    if json.kind()? != ValueKind::String || !PLACES.contains(&key.escaped()) {
                        found |= walk(json)?;
                        continue;
                    }
                    let value = json.raw()?.as_str().map_or("", JsonStr::escaped).as_bytes();
                    found |= look_at_seal(Some(value)) == bits::ENVELOPE
                        || look_at_item_id(Some(value)) == bits::ENVELOPE;
                }
            }
            ValueKind::Array => {
                json.begin_array()?;
                while json.next_element()? {
                    found |= walk(json)?;
                }
            }
            _ => json.skip()?,
        }
        Ok(found)
    }
    walk(&mut Cursor::new(element.text())).unwrap_or(false)
}

fn carried(id: &[u8]) -> u32 {
    if memchr::memmem::find(id, CARRIER).is_some() { bits::ENVELOPE } else { 0 }
}

impl Body {
    /// Returns whether the request offers tools.
    pub fn has_tools(&self) -> bool {
        let tools = match self.api {
            Api::Chat => chat::TOOLS,
            Api::Messages => messages::TOOLS,
            Api::Responses => responses::TOOLS,
            Api::Generate => generate::TOOLS,
            Api::Converse => converse::TOOL_CONFIG,
            _ => return false,
        };
        self.member(tools).is_some_and(|tools| tools.kind != ValueKind::Null && tools.value.len() > 2)
    }

    /// Returns which of these features the request has, and perhaps others.
    pub fn features(&self, asked: Features) -> Features {
        let words = self.words_found;
        let has = |mask: u32| words & mask != 0;
        // Other elements than calls have ids at the same depth: reasoning that OpenAI encrypted.
        let may_be_long = has(bits::LONG) && asked.intersects(Features::LONG_ID);
        let is_long = may_be_long && (self.api != Api::Chat || self.has_long_call_id());
        let is_hidden = self.api == Api::Messages && has(messages::REDACTED);
        let found = Features::ENVELOPE
            .with(Features::SEALED)
            .when(has(bits::ENVELOPE) || self.may_hide_envelope() && self.holds_envelope())
            .with(Features::UNSIGNED.when(has(bits::UNSIGNED)))
            .with(Features::SIGNED.when(has(bits::SIGNED | bits::UNKNOWN) || is_hidden))
            .with(Features::ODD_ID.when(has(bits::ODD)))
            .with(Features::STRANGE_ID.when(has(bits::STRANGE)))
            .with(Features::LONG_ID.when(is_long))
            .with(Features::OVERLONG_ID.when(has(bits::OVERLONG)));
        let (image, union) = match self.api {
            Api::Chat => (chat::IMAGE, chat::UNION),
            Api::Messages => (messages::IMAGE, messages::UNION),
            Api::Responses => (responses::IMAGE, responses::UNION),
            Api::Converse => (converse::IMAGE, converse::UNION),
            _ => (0, 0),
        };
        let found = found.with(Features::IMAGE.when(has(image))).with(Features::ROOT_UNION.when(has(union)));
        let found = match self.api {
            Api::Chat => {
                let is_added = asked.intersects(Features::ADDED_MEMBER)
                    && chat::ADDED.iter().any(|index| self.member(*index).is_some());
                let sampling = self.sampling([chat::TEMPERATURE, chat::TOP_P]);
                found
                    .with(sampling)
                    .with(Features::ADDED_MEMBER.when(is_added))
                    .with(Features::MESSAGE_MEMBER.when(has(chat::MESSAGE_MEMBER)))
            }
            Api::Messages => found.with(self.messages_features(asked)),
            Api::Responses => found.with(self.sampling([responses::TEMPERATURE, responses::TOP_P])),
            Api::Generate => found.with(self.generate_features(asked)),
            Api::Converse => found.with(self.converse_features(asked)),
            _ => found,
        };
        let is_unmatched = asked.intersects(Features::UNMATCHED_CALL) && self.has_unmatched_call();
        found.with(self.effort_features(asked, found)).with(Features::UNMATCHED_CALL.when(is_unmatched))
    }

    /// Returns which of these features, that a target refuses, the request has. `most` is the highest output limit of the target, if
    /// it is known.
    pub fn held(&self, refuses: Features, most: Option<u64>) -> Features {
        let is_over =
            refuses.intersects(Features::OUTPUT_LIMIT) && most.is_some_and(|most| self.is_over_limit(most));
        self.features(refuses).with(Features::OUTPUT_LIMIT.when(is_over)).common(refuses)
    }

    /// Returns whether edits settle these features, which the target refuses. If not, the body is encoded again: where the
    /// order of the conversation or several members are concerned.
    pub fn is_settled_by_edits(&self, held: Features) -> bool {
        if held == Features::NONE {
            return true;
        }
        let settings = own_settings::EDITED;
        let elements =
            PROVENANCE.with(Features::IMAGE).with(Features::ROOT_UNION).with(Features::OUTPUT_LIMIT);
        let edited = match self.api {
            Api::Messages => {
                // Without the reasoning before a call, the budget must go as well.
                let has_budget = self.features(Features::BUDGET).intersects(Features::BUDGET);
                let is_signed = held.intersects(Features::ENVELOPE.with(Features::UNSIGNED));
                let efforts = settings.without(Features::SAMPLING);
                if has_budget && is_signed { Features::NONE } else { elements.with(efforts) }
            }
            Api::Responses => elements.with(settings),
            Api::Generate => PROVENANCE.with(settings).with(Features::OUTPUT_LIMIT),
            Api::Converse => elements,
            Api::Chat => {
                settings.with(Features::IMAGE).with(Features::OUTPUT_LIMIT).with(Features::MESSAGE_MEMBER)
            }
            _ => Features::NONE,
        };
        held.without(edited) == Features::NONE
    }

    /// Returns whether a call has no result right behind it, or a result no call.
    fn has_unmatched_call(&self) -> bool {
        let Some(content) = self.member(CONTENT).filter(|_| self.has_tools()) else { return false };
        let is_continued = self.api == Api::Responses && self.members.has_any(self.fields.stored_refs);
        !is_continued && answered_calls::is_broken(self.api, &self.text.view(content.value.clone()))
    }

    /// Returns whether there may be an envelope that the scan has not looked at.
    fn may_hide_envelope(&self) -> bool {
        let words = match self.api {
            Api::Chat => chat::SIGNED,
            Api::Messages => messages::REDACTED,
            _ => 0,
        };
        self.words_found & (bits::UNKNOWN | words) != 0
    }

    /// Searches the conversation for the beginning of an envelope.
    fn holds_envelope(&self) -> bool {
        let Some(content) = self.member(CONTENT) else { return false };
        let text = self.text.view(content.value.clone());
        BEGINNINGS.iter().any(|start| memchr::memmem::find(text.as_bytes(), start).is_some())
            || memchr::memmem::find(text.as_bytes(), CARRIER).is_some()
    }

    /// Returns whether the id of a call in a chat conversation has more than 40 characters.
    fn has_long_call_id(&self) -> bool {
        let Some(content) = self.member(CONTENT) else { return false };
        let text = self.text.view(content.value.clone());
        let mut is_long = false;
        let mut look = |id: RawJson<'_>| is_long |= id.as_str().is_some_and(|id| id.escaped().len() > 40);
        let _ = watch::elements(&mut Cursor::new(&text), |message| {
            watch::members(message, |key, json| {
                match key.escaped() {
                    "tool_call_id" => look(json.raw()?),
                    "tool_calls" => {
                        _ = watch::elements(json, |call| {
                            watch::members(call, |key, json| {
                                let value = json.raw()?;
                                if key.is("id") {
                                    look(value);
                                }
                                Ok(())
                            })
                        })?
                    }
                    _ => drop(json.raw()?),
                }
                Ok(())
            })
        });
        is_long
    }

    /// Returns the features of `temperature` and `top_p`.
    fn sampling(&self, members: [usize; 2]) -> Features {
        let [temperature, top_p] = members.map(|index| self.number(index));
        let is_set = |figure: Option<f64>| figure.is_some_and(|figure| figure != 1.0);
        Features::SAMPLING
            .when(is_set(temperature) || is_set(top_p))
            .with(Features::BOTH_SAMPLING.when(temperature.is_some() && top_p.is_some()))
    }

    /// Returns a member that is a number. `None` for one that is not, and for -1, which some SDKs send for "not set".
    fn number(&self, index: usize) -> Option<f64> {
        let member = self.member(index).filter(|member| member.kind == ValueKind::Number)?;
        self.text.view(member.value.clone()).parse().ok().filter(|figure| *figure != -1.0)
    }

    /// Calls `each` for the members of a member that is an object.
    fn each_member(&self, index: usize, mut each: impl FnMut(&str, RawJson<'_>)) {
        let Some(member) = self.member(index).filter(|member| member.kind == ValueKind::Object) else {
            return;
        };
        let text = self.text.view(member.value.clone());
        // Cannot fail: the scan has validated the text.
        let _ = watch::members(&mut Cursor::new(&text), |key, json| {
            let value = json.raw()?;
            if !value.is_null() {
                each(key.escaped(), value);
            }
            Ok(())
        });
    }

    fn messages_features(&self, asked: Features) -> Features {
        let mut found = self.sampling([messages::TEMPERATURE, messages::TOP_P]);
        found = found.with(Features::SAMPLING.when(self.number(messages::TOP_K).is_some()));
        if self.words_found & messages::SYSTEM_ROLE != 0 {
            let is_misplaced = asked.intersects(Features::MISPLACED_SYSTEM) && self.has_misplaced_system();
            found = found.with(Features::LATER_SYSTEM).with(Features::MISPLACED_SYSTEM.when(is_misplaced));
        }
        self.each_member(messages::THINKING, |key, value| {
            if key == "type" {
                found = found.with(match value.as_str().unwrap_or_default().escaped() {
                    "disabled" => Features::REASONING_OFF,
                    "enabled" => Features::BUDGET,
                    _ => Features::ADAPTIVE,
                });
            }
        });
        self.each_member(messages::OUTPUT_CONFIG, |key, _| {
            found = found.with(Features::EFFORT.when(key == "effort"));
        });
        self.each_member(messages::TOOL_CHOICE, |key, value| {
            let word = value.as_str().unwrap_or_default();
            if key == "type" && (word.is("any") || word.is("tool")) {
                let beside = Features::FORCED_WITH_BUDGET.when(found.intersects(Features::BUDGET));
                found = found.with(Features::FORCED_TOOL).with(beside);
            }
        });
        if asked.intersects(Features::BARE_CALL) && found.intersects(Features::BUDGET) {
            found = found.with(Features::BARE_CALL.when(self.ends_with_bare_call()));
        }
        // Beside a budget the two are respelled in place.
        let edited = Features::BOTH_SAMPLING.when(found.intersects(Features::BUDGET));
        let is_prefilled = asked.intersects(Features::PREFILL) && self.ends_with_model();
        found.without(edited).with(Features::PREFILL.when(is_prefilled))
    }

    /// Returns whether the conversation ends with results of calls that have no reasoning before them.
    fn ends_with_bare_call(&self) -> bool {
        let Some(tail) = self.member(CONTENT).and_then(|list| self.tail(list)) else { return false };
        let mut last = tail.last();
        let mut next = || Some(self.text.view(last.next()?.range.clone()));
        let (Some(results), Some(calls)) = (next(), next()) else { return false };
        let has = |text: &str, word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
        has(&results, "\"tool_result\"")
            && has(&calls, "\"tool_use\"")
            && !has(&calls, "\"thinking\"")
            && !has(&calls, "\"redacted_thinking\"")
    }

    /// Returns whether instructions in the conversation do not follow a turn of the user, or do not precede one of the
    /// model.
    fn has_misplaced_system(&self) -> bool {
        let Some(content) = self.member(CONTENT) else { return false };
        let text = self.text.view(content.value.clone());
        let (mut last, mut misplaced) = (JsonStr::default(), false);
        let _ = watch::elements(&mut Cursor::new(&text), |json| {
            let role = role_of(json.raw()?);
            misplaced |= role.is("system") && !last.is("user") || last.is("system") && !role.is("assistant");
            last = role;
            Ok(())
        });
        misplaced
    }

    /// Returns whether the last message is one of the model.
    fn ends_with_model(&self) -> bool {
        let last = self.member(CONTENT).and_then(|list| self.tail(list)).and_then(|tail| tail.last().next());
        let Some(last) = last else { return false };
        let text = self.text.view(last.range.clone());
        role_of(RawJson::from_text(&text)).is("assistant")
    }

    /// Returns whether the last content of a generate request is one of the model. The contents are read only if the last role
    /// in them is the model's, which may be a member of something else.
    fn ends_with_content_of_model(&self) -> bool {
        let Some(content) = self.member(CONTENT) else { return false };
        let text = self.text.view(content.value.clone());
        let last = memchr::memmem::rfind(text.as_bytes(), b"\"role\"").and_then(|at| text.get(at + 6..));
        let value = last.map_or("", |rest| rest.trim_start_matches([':', ' ', '\n', '\r', '\t']));
        if !value.starts_with("\"model\"") {
            return false;
        }
        let mut is_model = false;
        let _ = watch::elements(&mut Cursor::new(&text), |json| {
            is_model = role_of(json.raw()?).is("model");
            Ok(())
        });
        is_model
    }

    fn converse_features(&self, asked: Features) -> Features {
        let words = |mask: u32| self.words_found & mask != 0;
        let is_prefilled = asked.intersects(Features::PREFILL) && self.ends_with_model();
        let is_bare = asked.intersects(Features::BARE_REASONING)
            && words(converse::REASONING_TEXT)
            && self.occurrences("\"reasoningText\"") > self.occurrences("\"signature\"");
        let mut found = Features::PREFILL
            .when(is_prefilled)
            .with(Features::BARE_REASONING.when(is_bare))
            .with(Features::CACHE_MARK.when(words(converse::CACHE_POINT)));
        if asked.intersects(Features::FORCED_TOOL) {
            self.each_member(converse::TOOL_CONFIG, |key, value| {
                let is_forced = key == "toolChoice" && !value.text().contains("\"auto\"");
                found = found.with(Features::FORCED_TOOL.when(is_forced));
            });
        }
        if asked.intersects(Features::SAMPLING) {
            self.each_member(converse::INFERENCE_CONFIG, |key, value| {
                let is_set = matches!(key, "temperature" | "topP") && value.text().parse() != Ok(1.0);
                found = found.with(Features::SAMPLING.when(is_set));
            });
        }
        found
    }

    /// Returns how often a text occurs in the conversation.
    fn occurrences(&self, text: &str) -> usize {
        let Some(content) = self.member(CONTENT) else { return 0 };
        let content = self.text.view(content.value.clone());
        memchr::memmem::find_iter(content.as_bytes(), text).count()
    }

    /// Returns whether a call of the model has no signature, where the first one of each content must have one.
    fn has_unsigned_call(&self) -> bool {
        let Some(content) = self.member(CONTENT) else { return false };
        let text = self.text.view(content.value.clone());
        let mut is_unsigned = false;
        let _ = watch::elements(&mut Cursor::new(&text), |content| {
            let mut is_first = true;
            watch::members(content, |key, json| {
                if !key.is("parts") || json.kind()? != ValueKind::Array {
                    return json.skip();
                }
                let _ = watch::elements(json, |part| {
                    let (mut is_call, mut is_signed) = (false, false);
                    watch::members(part, |key, json| {
                        match key.escaped() {
                            "functionCall" | "function_call" => is_call = true,
                            "thoughtSignature" | "thought_signature" => is_signed = true,
                            _ => {}
                        }
                        json.skip()
                    })?;
                    is_unsigned |= is_call && std::mem::take(&mut is_first) && !is_signed;
                    Ok(())
                })?;
                Ok(())
            })
        });
        is_unsigned
    }

    fn generate_features(&self, asked: Features) -> Features {
        let mut found =
            Features::PREFILL.when(asked.intersects(Features::PREFILL) && self.ends_with_content_of_model());
        if asked.intersects(Features::UNSIGNED) && self.words_found & generate::CALL != 0 {
            found = found.with(Features::UNSIGNED.when(self.has_unsigned_call()));
        }
        if asked.intersects(Features::SAMPLING) {
            found = found.with(self.generation_sampling());
        }
        for index in generate::GENERATION_CONFIG {
            self.each_member(index, |key, value| {
                if matches!(key, "thinkingConfig" | "thinking_config") {
                    let _ = watch::members(&mut Cursor::new(value.text()), |key, json| {
                        let is_set = !json.raw()?.is_null();
                        found = found.with(match key.escaped() {
                            "thinkingBudget" | "thinking_budget" => Features::BUDGET.when(is_set),
                            "thinkingLevel" | "thinking_level" => Features::EFFORT.when(is_set),
                            _ => Features::NONE,
                        });
                        Ok(())
                    });
                }
            });
        }
        found
    }
}

/// Returns whether a request to a provider has an envelope in the place of a signature or an id. For assertions.
pub fn leaks_envelope(api: Api, body: &Rope) -> bool {
    let mut reader = BodyReader::new(api, false);
    for piece in body.clone().into_pieces() {
        if reader.push(piece).is_err() {
            return false;
        }
    }
    reader.finish().is_ok_and(|body| body.words_found & bits::ENVELOPE != 0)
}

/// Returns the role of a message, which is mostly its first member. Empty if it has none.
fn role_of(message: RawJson<'_>) -> JsonStr<'_> {
    let mut json = Cursor::new(message.text());
    let mut role = || {
        json.begin_object().ok()?;
        while let Some(key) = json.next_key().ok()? {
            if key.is("role") {
                return json.raw().ok()?.as_str();
            }
            json.skip().ok()?;
        }
        None
    };
    role().unwrap_or_default()
}
