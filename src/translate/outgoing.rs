//! A request from a client of one format, as a provider of another gets it.

use std::borrow::Cow;

use bumpalo::Bump;
use bytes::{Bytes, BytesMut};

use super::adapt::adapt;
use super::bounds;
use super::call_fingerprint::HistoryHash;
use super::codecs::{decode_request, encode_request};
use super::join_texts::join_pieces;
use super::keepsake::{Key, Recalled, may_seal, missing};
use super::remote_parts::FetchedMedia;
use super::restore::Restore;
use super::resume::PrefillState;
use crate::canonical::request::Extra;
use crate::canonical::{Block, Dialect, Request, Thinking};
use crate::error::ApiError;
use crate::json::{Cursor, EscapedString};
use crate::wire::codec::{Loss, LossNotes, ReplyOptions};
use crate::wire::responses::stored::Conversation;
use crate::wire::{Format, generate};

/// Members of a responses request that its answer repeats (reference: OpenAI API, "The response object").
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
    /// The client's format.
    pub client: Format,
    /// The provider's format.
    pub provider: Format,
    /// The client wants a stream. It stands in the path for one format, in the body for the others.
    pub stream: bool,
    /// The client's stream is to be one JSON array (generate without `alt=sse`).
    pub array: bool,
    /// What the model's name says about reasoning; what the body says comes first.
    pub thinking: Thinking,
    /// What the model can be asked for.
    pub dialect: &'a Dialect<'a>,
    /// The model as the client knows it.
    pub model: &'a EscapedString,
    /// The id of the request, as the client may have chosen it: errors name it.
    pub id: &'a str,
    /// Ids are made from it where the provider gives none: random, so that no two requests share any, and the same for
    /// all attempts of one request.
    pub seed: &'a str,
    /// Now (Unix seconds).
    pub now: u64,
}

/// Conversation options of a request: what the gateway keeps, and fetched media. Empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions<'a> {
    /// The conversation that the request goes on from: items, joined with commas.
    pub before: Option<&'a str>,
    /// The id under which the answer is kept; empty where it is not.
    pub keep_as: &'a str,
    /// Seals are kept for clients that do not send them back.
    pub remembers: bool,
    /// What was found for the turns of this request that have lost theirs; nothing before it was looked for.
    pub recalled: Option<Recalled<'a>>,
    /// What lay behind the addresses that the provider must not be given ([`links`](super::links)).
    pub brought: FetchedMedia<'a>,
    /// How far another provider has come with the answer.
    pub begun: Option<PrefillState<'a>>,
}

/// What goes to the provider, and what must be known when its answer comes.
#[derive(Debug)]
pub struct Outgoing {
    /// The request's body.
    pub body: Bytes,
    /// What must be undone in the answer.
    pub restore: Restore,
    /// What the answer's encoder is told.
    pub reply: ReplyOptions,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// The conversation that the answer belongs to, where it is kept: items, joined with commas.
    pub items: String,
}

/// Why a request is not translated.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// What the client is told.
    pub error: ApiError,
    /// What would have been lost, the reason included.
    pub losses: Vec<Loss>,
}

/// Reason why a request cannot be encoded, or not before media is fetched.
#[derive(Debug, thiserror::Error)]
pub enum EncodeBlocked {
    /// It cannot be.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Some of its turns have lost the seals that their provider may have issued. They may be found under these keys,
    /// and be given as [`StoreOptions::recalled`].
    #[error("turns of the request have lost their seals")]
    Bare(Vec<Key>),
}

/// Translates a request.
///
/// # Errors
/// The request is malformed, or asks for something that cannot be carried.
pub fn outgoing(body: &str, ask: &TranslateRequest<'_>) -> Result<Outgoing, Refused> {
    outgoing_stored(body, ask, StoreOptions::default())
}

/// Translates a request that goes on from a kept conversation, or whose answer is kept.
///
/// # Errors
/// As [`outgoing`].
pub fn outgoing_stored(
    body: &str,
    ask: &TranslateRequest<'_>,
    stored: StoreOptions<'_>,
) -> Result<Outgoing, Refused> {
    run(body, ask, stored, None)
}

/// The same for a request whose seals have not been looked for. What has lost none is read no second time.
///
/// # Errors
/// As [`outgoing`]; and there are seals to look for.
pub fn outgoing_sealed(
    body: &str,
    ask: &TranslateRequest<'_>,
    stored: StoreOptions<'_>,
) -> Result<Outgoing, EncodeBlocked> {
    run(body, ask, stored, Some(EncodeBlocked::Bare))
}

/// Translates; where there are seals to look for, `bare` says what comes of it.
fn run<E: From<Refused>>(
    body: &str,
    ask: &TranslateRequest<'_>,
    stored: StoreOptions<'_>,
    bare: Option<fn(Vec<Key>) -> E>,
) -> Result<Outgoing, E> {
    let bump = Bump::new();
    let conversation = conversation(body, ask.client, stored);
    let longer = longer(body, conversation.as_ref(), stored);
    let decoded = decode_request(ask.client, longer.as_deref().unwrap_or(body));
    let checked = decoded.and_then(|request| bounds::check(&request, ask.client).map(|()| request));
    let mut request = checked.map_err(|error| Refused { error, losses: Vec::new() })?;
    if ask.client == Format::Generate
        && ask.provider != ask.client
        && let Some(error) = generate::request::unknown(&request)
    {
        return Err(Refused { error, losses: Vec::new() }.into());
    }
    if longer.is_some() {
        // It has been followed.
        request.previous = None;
    }
    request.stream = ask.stream;
    if request.thinking == Thinking::Unsaid {
        request.thinking = ask.thinking;
    }
    if let Some(bare) = bare
        && may_seal(&request, ask.dialect, ask.provider)
    {
        let keys = missing(&request, ask.dialect.issuer, ask.client);
        if !keys.is_empty() {
            return Err(bare(keys));
        }
    }
    let reply = ReplyOptions {
        keep_as: stored.keep_as.into(),
        remember: stored.remembers
            && ask.client != ask.provider
            && may_seal(&request, ask.dialect, ask.provider)
            && !sends_back(&request, ask.dialect.issuer),
        ..reply(&request, body, ask)
    };
    let before = if reply.remember { HistoryHash::of(&request.turns) } else { Default::default() };
    let reply = ReplyOptions { before, ..reply };
    if let Some(recalled) = stored.recalled {
        recalled.put_back(&mut request, ask.dialect.issuer, ask.client);
    }
    stored.brought.put_into(&mut request, ask.provider, ask.dialect);
    if let Some(begun) = &stored.begun {
        begun.put_into(&mut request, &bump);
    }
    // A provider's stream says what was used only if it is asked to.
    request.usage_wanted = true;
    request.show_thinking = Some(reply.show_thinking && request.thinking != Thinking::Off);
    let mut notes = LossNotes::new(ask.client, ask.provider);
    let restore = adapt(&mut request, ask.dialect, &mut notes, &bump);
    if ask.client == Format::Generate && ask.provider != Format::Generate {
        join_pieces(&mut request, &bump);
    }
    // Formats differ in the words around the content: a growth would copy all of it once more.
    let length = longer.as_deref().unwrap_or(body).len();
    let mut out = BytesMut::with_capacity(length + length / 16 + 1_024);
    // The same format said anew: what only this format has is no loss. Encoders write it in its place; but chat's asks
    // whether the provider knows a member, and here the client has said so.
    let anew = ask.client == Format::Chat && ask.provider == Format::Chat;
    let own = if anew { std::mem::take(&mut request.extra) } else { Vec::new() };
    encode_request(ask.provider, &request, ask.dialect, &mut notes, &mut out);
    if let Some(refusal) = notes.take_refusal() {
        return Err(Refused { error: *refusal, losses: notes.losses().to_vec() }.into());
    }
    append(&own, &mut out);
    let items = conversation.filter(|_| !stored.keep_as.is_empty()).map(|all| all.items);
    let losses = notes.losses().to_vec();
    Ok(Outgoing { body: out.freeze(), restore, reply, losses, items: items.unwrap_or_default() })
}

/// Whether the client has sent back reasoning with a seal of this issuer, and so does not need to be helped.
fn sends_back(request: &Request<'_>, issuer: &str) -> bool {
    request.turns.iter().flat_map(|turn| &turn.blocks).any(|block| match block {
        Block::Reasoning { seal: Some(seal), .. } => seal.issuer.as_deref() == Some(issuer),
        _ => false,
    })
}

/// The request with all that it goes on from in it, if it goes on from anything.
fn longer(body: &str, conversation: Option<&Conversation>, stored: StoreOptions<'_>) -> Option<String> {
    conversation.filter(|_| stored.before.is_some()).map(|all| all.request(body))
}

/// The same, for whoever has nothing but the body.
pub(super) fn whole<'b>(body: &'b str, client: Format, stored: StoreOptions<'_>) -> Cow<'b, str> {
    let conversation = conversation(body, client, stored);
    longer(body, conversation.as_ref(), stored).map_or(Cow::Borrowed(body), Cow::Owned)
}

/// The conversation that the request is part of, if it goes on from one or is kept. A body that cannot be read is the
/// decoder's to refuse.
fn conversation(body: &str, client: Format, stored: StoreOptions<'_>) -> Option<Conversation> {
    let wanted = client == Format::Responses && (stored.before.is_some() || !stored.keep_as.is_empty());
    wanted.then(|| Conversation::new(body, stored.before.unwrap_or_default()).ok())?
}

/// Puts members behind the last one of an object.
fn append(members: &[Extra<'_>], out: &mut BytesMut) {
    for member in members.iter().filter(|member| !member.name.contains('.')) {
        if out.last() == Some(&b'}') {
            out.truncate(out.len() - 1);
            let comma = if out.last() == Some(&b'{') { "" } else { "," };
            let text = format!("{comma}\"{}\":{}}}", member.name, member.value.text());
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// What the encoder of the answer is told, for an answer that is not kept.
pub(super) fn reply(request: &Request<'_>, body: &str, ask: &TranslateRequest<'_>) -> ReplyOptions {
    let thinking = if request.thinking == Thinking::Unsaid { ask.thinking } else { request.thinking };
    ReplyOptions {
        model: ask.model.clone(),
        request: ask.id.into(),
        seed: ask.seed.into(),
        created: ask.now,
        usage_wanted: request.usage_wanted,
        show_thinking: shows_thinking(ask.client, request.show_thinking, thinking),
        issuer: ask.dialect.issuer.into(),
        array: ask.array,
        keep_as: Box::default(),
        remember: false,
        before: Default::default(),
        echo: if ask.client == Format::Responses { echo(body) } else { Box::default() },
    }
}

/// Whether a client sees reasoning, if there is any.
fn shows_thinking(client: Format, said: Option<bool>, thinking: Thinking) -> bool {
    said.unwrap_or(match client {
        // An extension that clients who do not know it do not see.
        Format::Chat => true,
        Format::Messages => !matches!(thinking, Thinking::Unsaid | Thinking::Off),
        // Both must be asked for it.
        Format::Responses | Format::Generate => false,
    })
}

/// The members that the answer repeats, as text.
fn echo(body: &str) -> Box<str> {
    let mut out = String::new();
    let mut json = Cursor::new(body);
    if json.begin_object().is_err() {
        return Box::default();
    }
    while let Ok(Some(key)) = json.next_key() {
        let Ok(value) = json.raw() else { break };
        if ECHOED.contains(&key.escaped()) && !value.is_null() {
            if !out.is_empty() {
                out.push(',');
            }
            out.push('"');
            out.push_str(key.escaped());
            out.push_str("\":");
            out.push_str(value.text());
        }
    }
    out.into_boxed_str()
}
