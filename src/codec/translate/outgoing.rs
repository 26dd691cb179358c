//! Request translation: the body for a provider of another format, and the state needed for its response.

use std::borrow::Cow;

use bumpalo::Bump;
use bytes::Bytes;

use super::adapt::adapt;
use super::bounds;
use super::call_fingerprint::HistoryHash;
use super::codecs::{decode_request_with, encode_request};
use super::compaction;
use super::join_texts::join_pieces;
use super::keepsake::{SignatureKey, StoredSignatures, may_sign, missing_keys};
use super::own_elements;
use super::remote_parts::FetchedMedia;
use super::restore::Restore;
use super::resume::PrefillState;
use crate::canonical::request::Extra;
use crate::canonical::{Block, BreakpointRule, Dialect, OutputFormat, Request, RequestFeatures, Thinking};
use crate::error::ApiError;
use crate::wire::codec::{Loss, LossNotes, ReplyOptions, Sealer};
use crate::wire::features::leaks_envelope;
use crate::wire::responses::stored::Conversation;
use crate::wire::{Format, chat, generate, messages};
use json::{
    Cursor, EscapedString, JsonStr, JsonText, RawJson, Rope, RopeBuilder, Sink, with_whole_characters,
};

/// Bytes that a short request gets longer by, in nearly all cases.
const SURPLUS: usize = 256;

/// Members of a responses request that the response repeats
/// (<https://platform.openai.com/docs/api-reference/responses/object>).
const ECHOED: [&str; 18] = [
    "background",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
];

/// Translation input beside the body.
#[derive(Debug)]
pub struct TranslateRequest<'a> {
    /// Format of the client.
    pub client: Format,
    /// Format of the provider.
    pub provider: Format,
    /// Whether the client requested a stream. One format has this in the path, the others in the body.
    pub stream: bool,
    /// Whether the client's stream is one JSON array (generate without `alt=sse`).
    pub array: bool,
    /// Reasoning setting implied by the model name; a setting in the body takes precedence.
    pub thinking: Thinking,
    /// Capability profile of the target.
    pub dialect: &'a Dialect<'a>,
    /// Model name that the client used.
    pub model: &'a EscapedString,
    /// Request id, possibly chosen by the client; error bodies contain it.
    pub id: &'a str,
    /// Seed of ids that the provider does not supply. Random, so that no two requests share an id, and the same for all
    /// attempts of one request.
    pub seed: &'a str,
    /// Current time, in Unix seconds.
    pub now: u64,
}

/// Conversation options of a request: what the gateway keeps, and fetched media. Empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions<'a> {
    /// Items of the conversation that the request continues, joined with commas; `None` if it continues none.
    pub before: Option<&'a str>,
    /// Id under which the response is stored; empty if it is not stored.
    pub store_as: &'a str,
    /// Whether provider signatures are stored, for clients that do not send them back.
    pub stores_signatures: bool,
    /// Stored signatures for turns of this request that lack theirs; `None` before the lookup.
    pub signatures: Option<StoredSignatures<'a>>,
    /// Media fetched from addresses that the provider cannot fetch itself ([`remote_urls`](super::remote_urls)).
    pub media: FetchedMedia<'a>,
    /// Prefill, if this request continues a broken response.
    pub prefill: Option<PrefillState<'a>>,
    /// Prompt caching that the gateway adds to the request.
    pub caching: PromptCaching<'a>,
    /// Compaction of the conversation in place of its continuation; `None` for all other requests.
    pub compaction: Option<&'a CompactionOptions>,
}

/// Compaction of a conversation: the model writes a summary, and the response becomes one item with it.
#[derive(Clone, Debug)]
pub struct CompactionOptions {
    /// Seals the summary.
    pub seal: Sealer,
    /// Whether the client receives the compacted conversation, with the messages of the user, instead of a response.
    pub conversation: bool,
}

/// Prompt caching that the gateway adds to a request whose client requested none. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptCaching<'a> {
    /// Rule for automatic breakpoints, for providers with explicit breakpoints.
    pub breakpoints: Option<BreakpointRule>,
    /// Prompt-cache key, in characters that need no escapes, for providers that route by one.
    pub key: Option<&'a str>,
}

/// Translated request, and the state that is needed to translate its response.
#[derive(Debug)]
pub struct Outgoing {
    /// Request body for the provider. Its long texts and media are shared with the client's.
    pub body: Rope,
    /// Bytes of it that are not shared.
    pub copied: usize,
    /// Adaptations to reverse in the response.
    pub restore: Restore,
    /// Reply options for the response encoder.
    pub reply: ReplyOptions,
    /// Elements that were lost or changed.
    pub losses: Vec<Loss>,
    /// Items of the conversation up to the response, joined with commas; empty if the response is not stored.
    pub items: String,
    /// Number of automatic prompt-cache breakpoints that were set.
    pub breakpoints: u8,
}

impl Outgoing {
    /// Returns the body as one piece; copies it if it has several.
    pub fn text(&self) -> Bytes {
        self.body.clone().into_contiguous()
    }
}

/// Error of a request that cannot be translated.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct EncodeError {
    /// Error for the client.
    pub error: ApiError,
    /// Losses, including the one that is the reason.
    pub losses: Vec<Loss>,
}

/// Reason why a request cannot be encoded, or not before media is fetched.
#[derive(Debug, thiserror::Error)]
pub enum EncodeBlocked {
    /// The request is invalid or cannot be carried by the target.
    #[error(transparent)]
    Rejected(#[from] EncodeError),
    /// Turns lack provider signatures that may be in the store under these keys. The caller looks them up and repeats
    /// the call with [`StoreOptions::signatures`].
    #[error("turns of the request lack their provider signatures")]
    MissingSignatures(Vec<SignatureKey>),
}

/// Translates a request.
///
/// # Errors
/// Returns [`EncodeError`] if the request is malformed, or has an element that cannot be carried.
pub fn outgoing(body: &JsonText, ask: &TranslateRequest<'_>) -> Result<Outgoing, EncodeError> {
    outgoing_stored(body, ask, StoreOptions::default())
}

/// Translates a request that continues a stored conversation, or whose response is stored.
///
/// # Errors
/// Returns [`EncodeError`] as [`outgoing`] does.
pub fn outgoing_stored(
    body: &JsonText,
    ask: &TranslateRequest<'_>,
    stored: StoreOptions<'_>,
) -> Result<Outgoing, EncodeError> {
    run(body, ask, stored, None)
}

/// Same as [`outgoing_stored`], before stored signatures were looked up. A request that lacks none is translated at
/// once.
///
/// # Errors
/// Returns [`EncodeBlocked::Rejected`] as [`outgoing`] does, and [`EncodeBlocked::MissingSignatures`] if signatures
/// must be looked up.
pub fn outgoing_sealed(
    body: &JsonText,
    ask: &TranslateRequest<'_>,
    stored: StoreOptions<'_>,
) -> Result<Outgoing, EncodeBlocked> {
    run(body, ask, stored, Some(EncodeBlocked::MissingSignatures))
}

/// Returns whether the provider's signatures are stored: the client will not send them back.
fn collects_signatures(request: &Request<'_>, ask: &TranslateRequest<'_>, stored: &StoreOptions<'_>) -> bool {
    stored.stores_signatures
        && stored.compaction.is_none()
        && ask.client != ask.provider
        && may_sign(request, ask.dialect, ask.provider)
        && !sends_back(request, ask.dialect.issuer)
}

/// Refuses what the decoder of a generate request does not know, if a provider of another format is to serve it.
fn check_known(request: &Request<'_>, ask: &TranslateRequest<'_>) -> Result<(), EncodeError> {
    let is_translated = ask.client == Format::Generate && ask.provider != ask.client;
    let unknown = if is_translated { generate::request::unknown(request) } else { None };
    unknown.map_or(Ok(()), |error| Err(EncodeError { error, losses: Vec::new() }))
}

/// Translates a request. If `bare` is given and signatures must be looked up, returns its result as the error.
fn run<E: From<EncodeError>>(
    body: &JsonText,
    ask: &TranslateRequest<'_>,
    stored: StoreOptions<'_>,
    bare: Option<fn(Vec<SignatureKey>) -> E>,
) -> Result<Outgoing, E> {
    // One arena for texts that the request borrows while it is adapted: freed at once, instead of one by one.
    let bump = Bump::new();
    let conversation = conversation(body, ask.client, stored);
    let longer = longer(body, conversation.as_ref(), stored).map(JsonText::from);
    let whole = longer.as_ref().unwrap_or(body);
    let mut echoed = String::new();
    let decoded = decode_request_with(ask.client, whole, |name, value| {
        push_echoed(&mut echoed, name, value);
    });
    let checked = decoded.and_then(|request| bounds::check(&request, ask.client).map(|()| request));
    let mut request = checked.map_err(|error| EncodeError { error, losses: Vec::new() })?;
    inline_schema(&mut request, ask.client, &bump);
    check_known(&request, ask)?;
    if longer.is_some() {
        // The previous response has been expanded into the request. The response repeats the members as they came.
        request.previous = None;
        echoed = echo(body, ask.client);
    }
    request.stream = ask.stream;
    if stored.compaction.is_some() {
        compaction::request_summary(&mut request);
    }
    // A reasoning suffix of the model name is a default: an explicit setting in the body wins.
    if request.thinking == Thinking::Unset {
        request.thinking = ask.thinking;
    }
    // Check before anything is inserted: the keys are hashes of the turns as the client sent them.
    if let Some(bare) = bare
        && may_sign(&request, ask.dialect, ask.provider)
    {
        let keys = missing_keys(&request, ask.dialect.issuer, ask.client);
        if !keys.is_empty() {
            return Err(bare(keys));
        }
    }
    let reply = ReplyOptions {
        store_as: stored.store_as.into(),
        compaction: stored.compaction.map(|options| Box::new(compaction::reply(options, whole, ask.seed))),
        collect_signatures: collects_signatures(&request, ask, &stored),
        ..reply_with(&request, echoed, ask)
    };
    // Hash the history before signatures, media and prefill are inserted: the next request has it without them.
    let before = if reply.collect_signatures { HistoryHash::of(&request.turns) } else { Default::default() };
    let reply = ReplyOptions { before, ..reply };
    if let Some(recalled) = stored.signatures {
        recalled.insert_into(&mut request, ask.dialect.issuer, ask.client);
    }
    stored.media.put_into(&mut request, ask.provider, ask.dialect);
    if let Some(begun) = &stored.prefill {
        begun.put_into(&mut request, &bump);
    }
    // Always request usage: a provider's stream reports it only then, and accounting needs it.
    request.usage_wanted = true;
    request.show_thinking = Some(reply.show_thinking && request.thinking != Thinking::Off);
    request.breakpoints = stored.caching.breakpoints;
    // The client's own key wins: it knows which of its requests share a prefix.
    if request.cache_key.is_none() {
        request.cache_key = stored.caching.key.map(JsonStr::from_escaped);
    }
    let mut notes = LossNotes::new(ask.client, ask.provider);
    if ask.client == ask.provider {
        own_elements::keep(&mut request, whole, ask.client, &mut notes);
    }
    if ask.client == Format::Messages && ask.provider != Format::Messages {
        messages::request::prepare(&mut request, &mut notes);
    }
    let restore = adapt(&mut request, ask.dialect, &mut notes, &bump);
    if ask.client == Format::Generate && ask.provider != Format::Generate {
        join_pieces(&mut request, &bump);
    }
    // Expect more than the input size, because formats differ in the JSON around the content; growing would copy it
    // all. Not much more: a chat stream keeps this until its end, in case the provider reports no usage.
    let mut out = RopeBuilder::new(whole, whole.len() + whole.len() / 16 + SURPLUS);
    stored.media.0.iter().for_each(|media| out.share(&media.base64));
    // Chat to chat: members that only this format has are no loss. The chat encoder would drop those that the dialect
    // does not list, so they are appended unchanged, because the client named them explicitly.
    let anew = ask.client == Format::Chat && ask.provider == Format::Chat;
    let own = if anew { own_members(&mut request, ask.dialect) } else { Vec::new() };
    encode_request(ask.provider, &request, ask.dialect, &mut notes, &mut out);
    if let Some(refusal) = notes.take_refusal() {
        return Err(EncodeError { error: *refusal, losses: notes.losses().to_vec() }.into());
    }
    append(&own, &mut out);
    let breakpoints = notes.breakpoints();
    let items = conversation.filter(|_| !stored.store_as.is_empty()).map(|all| all.items);
    let losses = notes.losses().to_vec();
    let copied = out.copied();
    let (body, items) = (out.finish(), items.unwrap_or_default());
    debug_assert!(!leaks_envelope(ask.provider.api(), &body), "an envelope leaves the gateway");
    Ok(Outgoing { body, copied, restore, reply, losses, items, breakpoints })
}

/// Takes out the members that only the chat format has and that the target does not refuse.
fn own_members<'a>(request: &mut Request<'a>, dialect: &Dialect<'_>) -> Vec<Extra<'a>> {
    let refuses_added = dialect.refuses.intersects(RequestFeatures::ADDED_MEMBER);
    let is_own = |extra: &Extra<'_>| !(refuses_added && chat::request::is_added(extra.name));
    let (own, rest) = std::mem::take(&mut request.extra).into_iter().partition(is_own);
    request.extra = rest;
    own
}

/// Replaces a schema by the object in its text: Converse carries a schema as a string. Its decoder has checked that the
/// string is an object.
fn inline_schema<'a>(request: &mut Request<'a>, client: Format, bump: &'a Bump) {
    if client == Format::Converse
        && let OutputFormat::Schema { schema, .. } = &mut request.output
        && let Some(text) = schema.as_str()
    {
        *schema = RawJson::from_text(bump.alloc_str(&with_whole_characters(text.decode().trim())));
    }
}

/// Returns true if the client sent back reasoning with a signature of this issuer, so that storing is unnecessary.
fn sends_back(request: &Request<'_>, issuer: &str) -> bool {
    request.turns.iter().flat_map(|turn| &turn.blocks).any(|block| match block {
        Block::Reasoning { signature: Some(seal), .. } => seal.issuer.as_deref() == Some(issuer),
        _ => false,
    })
}

/// Returns the request with the conversation that it continues inserted; `None` if it continues none.
fn longer(body: &str, conversation: Option<&Conversation>, stored: StoreOptions<'_>) -> Option<String> {
    conversation.filter(|_| stored.before.is_some()).map(|all| all.request(body))
}

/// Same as [`longer`], for callers that have only the body; returns the body itself if it continues nothing.
pub(super) fn whole<'b>(body: &'b str, client: Format, stored: StoreOptions<'_>) -> Cow<'b, str> {
    let conversation = conversation(body, client, stored);
    longer(body, conversation.as_ref(), stored).map_or(Cow::Borrowed(body), Cow::Owned)
}

/// Reads the conversation that the request belongs to. Returns `None` if it continues none and is not stored, or if the
/// body is malformed, which the decoder reports.
fn conversation(body: &str, client: Format, stored: StoreOptions<'_>) -> Option<Conversation> {
    let wanted = client == Format::Responses && (stored.before.is_some() || !stored.store_as.is_empty());
    wanted.then(|| Conversation::new(body, stored.before.unwrap_or_default()).ok())?
}

/// Appends members to a JSON object.
fn append(members: &[Extra<'_>], out: &mut RopeBuilder) {
    for member in members.iter().filter(|member| !member.name.contains('.')) {
        if out.last() == Some(b'}') {
            out.pop();
            let comma = if out.last() == Some(b'{') { "" } else { "," };
            out.put_slice(format!("{comma}\"{}\":", member.name).as_bytes());
            out.put_slice(member.value.text().as_bytes());
            out.put_u8(b'}');
        }
    }
}

/// Returns the reply options of a response that is not stored.
pub(super) fn reply(request: &Request<'_>, body: &str, ask: &TranslateRequest<'_>) -> ReplyOptions {
    reply_with(request, echo(body, ask.client), ask)
}

/// Same as [`reply`], with the members that the response repeats.
fn reply_with(request: &Request<'_>, echo: String, ask: &TranslateRequest<'_>) -> ReplyOptions {
    let thinking = if request.thinking == Thinking::Unset { ask.thinking } else { request.thinking };
    ReplyOptions {
        model: ask.model.clone(),
        request: ask.id.into(),
        seed: ask.seed.into(),
        created: ask.now,
        clock: None,
        usage_wanted: request.usage_wanted,
        show_thinking: shows_thinking(ask.client, request.show_thinking, thinking),
        issuer: ask.dialect.issuer.into(),
        array: ask.array,
        store_as: Box::default(),
        collect_signatures: false,
        before: Default::default(),
        echo: echo.into_boxed_str(),
        compaction: None,
    }
}

/// Returns whether the client receives reasoning, if there is any.
fn shows_thinking(client: Format, said: Option<bool>, thinking: Thinking) -> bool {
    said.unwrap_or(match client {
        // An extension of chat: clients that do not know it ignore it. Converse has no setting for it.
        Format::Chat | Format::Converse => true,
        Format::Messages => !matches!(thinking, Thinking::Unset | Thinking::Off),
        // Both formats send reasoning only on request.
        Format::Responses | Format::Generate => false,
    })
}

/// Returns the request members that the response repeats, as JSON text. Empty for formats whose response repeats none.
fn echo(body: &str, client: Format) -> String {
    let mut out = String::new();
    let mut json = Cursor::new(body);
    if client != Format::Responses || json.begin_object().is_err() {
        return out;
    }
    while let Ok(Some(key)) = json.next_key() {
        let Ok(value) = json.raw() else { break };
        push_echoed(&mut out, key.escaped(), value);
    }
    out
}

/// Appends a member to the members that the response repeats, if it is one of them.
fn push_echoed(out: &mut String, name: &str, value: RawJson<'_>) {
    if !ECHOED.contains(&name) || value.is_null() {
        return;
    }
    if !out.is_empty() {
        out.push(',');
    }
    out.push('"');
    out.push_str(name);
    out.push_str("\":");
    out.push_str(value.text());
}
