//! Storage of provider signatures, for clients that send back only texts and tool-call ids.
//!
//! Most signatures travel through clients in envelopes ([`ProviderSignature`]), but a client that drops unknown fields
//! loses them. A [`Collector`] therefore collects the signatures of a response while it passes. The caller stores them
//! under the [`SignatureKey`]s of the turn: one for each call id, or keys of its text. When the turn comes back without
//! signatures, [`missing_keys`] returns its keys, and [`StoredSignatures`] inserts the stored signatures at their
//! places. For turns whose calls have no ids either, the key contains the history before them
//! ([`super::call_fingerprint`]).
//!
//! Every key contains the issuer, so that no signature reaches another provider. The caller separates the accounts.

use std::collections::{HashMap, HashSet};

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::call_fingerprint::{HashedArguments, HistoryHash, key_of_calls, key_of_text};

use crate::canonical::content::Turn;
use crate::canonical::dialect::{ReasoningParameter, ReasoningSupport};
use crate::canonical::index::IndexKey as Lookup;
use crate::canonical::{
    Block, BlockKind, Delta, Dialect, Event, Index, ProviderSignature, Request, Role, Slots,
};
use crate::wire::Format;
use json::{Cursor, JsonError, JsonStr, Writer};

/// Storage key of the signatures of a turn: a SHA-256 hash.
pub type SignatureKey = [u8; 32];

/// Maximum number of turns that are looked up: the latest ones.
const MOST_TURNS: usize = 256;

/// Maximum size of the stored signatures with their reasoning, in bytes. A larger response is not stored.
const MOST_BYTES: usize = 1 << 20;

/// Provider signatures of a response, with the keys to store them under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureBundle {
    /// Storage keys.
    pub keys: Vec<SignatureKey>,
    /// Stored record, which [`StoredSignatures`] parses.
    pub record: Bytes,
}

/// Returns true if the model can issue signatures, according to its dialect.
pub fn issues_signatures(dialect: &Dialect<'_>, provider: Format) -> bool {
    match provider {
        Format::Chat => dialect.extensions.contains(&"reasoning"),
        _ => dialect.reasoning != ReasoningSupport::Fixed,
    }
}

/// Returns true if the provider may issue signatures for this request.
pub(super) fn may_sign(request: &Request<'_>, dialect: &Dialect<'_>, provider: Format) -> bool {
    let told = dialect.reasoning.reasoning_parameter(request.thinking);
    let unsaid = provider == Format::Messages && told == ReasoningParameter::Omitted;
    issues_signatures(dialect, provider) && told != ReasoningParameter::Off && !unsaid
}

pub(super) fn key(issuer: &str, what: &str, text: impl FnOnce(&mut Sha256)) -> SignatureKey {
    let mut hash = Sha256::new();
    hash.update(issuer.as_bytes());
    hash.update([0]);
    hash.update(what.as_bytes());
    hash.update([0]);
    text(&mut hash);
    hash.finalize().into()
}

/// Returns the key of a call id. Clients replace characters that their format does not allow in ids, so these are
/// folded.
fn key_of_call(issuer: &str, id: JsonStr<'_>) -> SignatureKey {
    key(issuer, "call", |hash| {
        for byte in id.escaped().bytes() {
            hash.update([if byte.is_ascii_alphanumeric() || byte == b'-' { byte } else { b'_' }]);
        }
    })
}

/// Hashes the words of a text without white space, because clients trim texts and join fragments. Returns false if
/// there are no words.
pub(super) fn add_words(hash: &mut Sha256, text: JsonStr<'_>) -> bool {
    let plain = text.decode();
    let mut any = false;
    for word in plain.split_whitespace() {
        hash.update(word.as_bytes());
        any = true;
    }
    any
}

/// Collects the signatures of a response's first choice while it passes.
#[derive(Debug)]
pub(super) struct Collector {
    issuer: Box<str>,
    /// Hash of the conversation before the response.
    before: [u8; 32],
    /// Whether the client may send back calls without their ids.
    drops_ids: bool,
    /// Blocks in order. `open` has the positions of the open ones.
    entries: Vec<Entry>,
    open: Slots<usize>,
    words: Option<Sha256>,
    bytes: usize,
    sealed: bool,
    done: Option<SignatureBundle>,
}

#[derive(Debug)]
struct Entry {
    what: What,
    /// Reasoning text, or the id of a call: the inside of a JSON string.
    text: String,
    seal: String,
    /// Arguments of a call, if its key needs them.
    arguments: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Reasoning,
    Hidden,
    Text,
    Call,
}

impl What {
    const fn word(self) -> &'static str {
        match self {
            What::Reasoning => "reasoning",
            What::Hidden => "hidden",
            What::Text => "text",
            What::Call => "call",
        }
    }

    fn from_word(word: JsonStr<'_>) -> Option<What> {
        [What::Reasoning, What::Hidden, What::Text, What::Call].into_iter().find(|what| word.is(what.word()))
    }
}

impl Collector {
    pub(super) fn new(issuer: &str, before: [u8; 32], client: Format) -> Self {
        Collector {
            issuer: issuer.into(),
            before,
            drops_ids: drops_ids(client),
            entries: Vec::new(),
            open: Slots::default(),
            words: None,
            bytes: 0,
            sealed: false,
            done: None,
        }
    }

    /// Records an event.
    pub(super) fn observe(&mut self, event: &Event<'_>) {
        match *event {
            Event::BlockStart { index, choice: 0, kind } => {
                let (what, text) = match kind {
                    BlockKind::Reasoning => (What::Reasoning, JsonStr::default()),
                    BlockKind::HiddenReasoning => (What::Hidden, JsonStr::default()),
                    BlockKind::Text | BlockKind::Refusal => (What::Text, JsonStr::default()),
                    BlockKind::ToolUse { id, .. } => (What::Call, id),
                    BlockKind::Media { .. } | BlockKind::Opaque { .. } => return,
                };
                self.open.push(index.into(), self.entries.len());
                let (text, seal, arguments) = (text.escaped().to_owned(), String::new(), String::new());
                self.entries.push(Entry { what, text, seal, arguments });
            }
            Event::Delta { index, delta } => self.add(index, delta),
            Event::BlockStop { index } => {
                self.open.remove(index.into());
            }
            Event::Finish { choice: 0, .. } if self.sealed && self.bytes <= MOST_BYTES => {
                self.done = Some(self.keepsake());
            }
            _ => {}
        }
    }

    fn add(&mut self, index: u32, delta: Delta<'_>) {
        let Some(at) = self.open.get_mut(index.into()).map(|at| *at) else { return };
        let Some(entry) = self.entries.get_mut(at) else { return };
        match delta {
            Delta::Text(text) if entry.what == What::Text => {
                add_words(self.words.get_or_insert_default(), text);
            }
            Delta::Arguments(piece) if self.drops_ids && self.bytes <= MOST_BYTES => {
                self.bytes += piece.escaped().len();
                entry.arguments.push_str(&piece.decode());
            }
            Delta::Object(object) if self.drops_ids && self.bytes <= MOST_BYTES => {
                self.bytes += object.text().len();
                entry.arguments.push_str(object.text());
            }
            Delta::Text(text) if self.bytes <= MOST_BYTES => {
                self.bytes += text.escaped().len();
                entry.text.push_str(text.escaped());
            }
            Delta::Signature(seal) if !seal.is_empty() => {
                self.bytes += seal.escaped().len();
                self.sealed = true;
                seal.escaped().clone_into(&mut entry.seal);
            }
            _ => {}
        }
    }

    fn keepsake(&mut self) -> SignatureBundle {
        let mut keys: Vec<SignatureKey> = Vec::new();
        for call in self.entries.iter().filter(|entry| entry.what == What::Call) {
            keys.push(key_of_call(&self.issuer, JsonStr::from_escaped(&call.text)));
        }
        if self.drops_ids && !keys.is_empty() {
            let calls = self.entries.iter().filter(|entry| entry.what == What::Call);
            let arguments = calls.map(|entry| HashedArguments::Plain(&entry.arguments));
            keys.push(key_of_calls(&self.issuer, &self.before, arguments));
        }
        // A turn with calls is identified by them. Its text alone may also occur in another turn.
        if let (true, Some(words)) = (keys.is_empty(), self.words.take()) {
            keys.push(key_of_text(&self.issuer, &self.before, words.clone()));
            keys.push(key_of_words(&self.issuer, words));
        }
        let mut out = BytesMut::with_capacity(self.bytes + self.entries.len() * 48);
        let mut json = Writer::new(&mut out);
        json.begin_array();
        for Entry { what, text, seal, .. } in &self.entries {
            json.begin_array().string(what.word());
            json.paste(JsonStr::from_escaped(text)).paste(JsonStr::from_escaped(seal)).end_array();
        }
        json.end_array();
        SignatureBundle { keys, record: out.freeze() }
    }

    /// Takes the signatures to be stored: `Some` once, when the response is complete.
    pub(super) fn take(&mut self) -> Option<SignatureBundle> {
        self.done.take()
    }
}

fn key_of_words(issuer: &str, words: Sha256) -> SignatureKey {
    key(issuer, "text", |hash| hash.update(words.finalize()))
}

/// Returns the runs of adjacent turns of the model, as ranges; at most the last [`MOST_TURNS`].
fn runs(turns: &[Turn<'_>]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, turn) in turns.iter().enumerate().filter(|(_, turn)| turn.role == Role::Assistant) {
        match runs.last_mut() {
            Some(last) if last.end == at && !turn.blocks.is_empty() => last.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    let surplus = runs.len().saturating_sub(MOST_TURNS);
    runs.drain(..surplus);
    runs
}

fn seal_of<'b, 'a>(block: &'b Block<'a>) -> Option<&'b ProviderSignature<'a>> {
    match block {
        Block::Text { signature: seal, .. }
        | Block::Reasoning { signature: seal, .. }
        | Block::Image { signature: seal, .. }
        | Block::ToolUse { signature: seal, .. } => seal.as_ref(),
        _ => None,
    }
}

/// Returns true if clients of a format may send back calls without ids: in generate, results match calls by order.
fn drops_ids(client: Format) -> bool {
    client == Format::Generate
}

#[derive(Clone, Copy)]
struct RecordKey {
    key: SignatureKey,
    /// Whether calls are matched by order, because their ids differ from the stored ones.
    in_order: bool,
    unique: bool,
}

/// Run of turns without signatures, and its keys: the most specific first.
struct Bare {
    run: std::ops::Range<usize>,
    names: [Option<RecordKey>; 2],
}

/// Returns the runs that have no signature of the issuer. Runs without calls and text are left out.
fn bare(turns: &[Turn<'_>], issuer: &str, client: Format) -> Vec<Bare> {
    let mut history = HistoryHash::default();
    let mut heard = 0;
    let named = |run: std::ops::Range<usize>| {
        let own = turns.get(run.clone())?;
        history.add_turns(turns.get(heard..run.start).unwrap_or_default());
        heard = run.start;
        let blocks = || own.iter().flat_map(|turn| &turn.blocks);
        if blocks().filter_map(seal_of).any(|seal| seal.issuer.as_deref() == Some(issuer)) {
            return None;
        }
        let calls = || {
            blocks().filter_map(|block| match block {
                Block::ToolUse { id, input, .. } => Some((*id, HashedArguments::Said(input))),
                _ => None,
            })
        };
        let name = |key, in_order| Some(RecordKey { key, in_order, unique: true });
        if let Some((id, _)) = calls().next() {
            let arguments = calls().map(|(_, arguments)| arguments);
            let bare = drops_ids(client).then(|| key_of_calls(issuer, &history.here(), arguments));
            let names = [name(key_of_call(issuer, id), false), bare.and_then(|key| name(key, true))];
            return Some(Bare { run, names });
        }
        let mut words = Sha256::new();
        let mut any = false;
        for block in blocks() {
            if let Block::Text { text, .. } | Block::Refusal { text } = block {
                any |= add_words(&mut words, *text);
            }
        }
        let said = key_of_text(issuer, &history.here(), words.clone());
        let words = RecordKey { key: key_of_words(issuer, words), in_order: false, unique: false };
        any.then(|| Bare { run, names: [name(said, false), Some(words)] })
    };
    runs(turns).into_iter().filter_map(named).collect()
}

/// Returns the keys of all turns of a request that lack signatures.
pub(super) fn missing_keys(request: &Request<'_>, issuer: &str, client: Format) -> Vec<SignatureKey> {
    let bare = bare(&request.turns, issuer, client);
    bare.into_iter().flat_map(|bare| bare.names).flatten().map(|name| name.key).collect()
}

/// Stored signatures that were found: records by key.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredSignatures<'s>(pub &'s [(SignatureKey, Bytes)]);

impl<'s> StoredSignatures<'s> {
    /// Inserts the signatures at their places.
    pub(super) fn insert_into<'a>(&self, request: &mut Request<'a>, issuer: &'s str, client: Format)
    where
        's: 'a,
    {
        if self.0.is_empty() {
            return;
        }
        let found: HashMap<&SignatureKey, &'s Bytes> =
            self.0.iter().map(|(key, record)| (key, record)).collect();
        let bare = bare(&request.turns, issuer, client);
        let record = |bare: &Bare| {
            let record = |name: RecordKey| found.get(&name.key).map(|record| (name, *record));
            bare.names.into_iter().flatten().find_map(record)
        };
        let unique = bare.iter().filter_map(record).filter(|(name, _)| name.unique);
        let mut used: HashSet<&'s [u8]> = unique.map(|(_, record)| &record[..]).collect();
        // Several turns may have the same text. A record that is stored under text alone belongs to the latest such
        // turn only, because a provider refuses an item that occurs twice.
        for bare in bare.iter().rev() {
            let Some((name, record)) = record(bare) else { continue };
            if !name.unique && !used.insert(record) {
                continue;
            }
            let Some(turns) = request.turns.get_mut(bare.run.clone()) else { continue };
            if let Some(Ok(entries)) = std::str::from_utf8(record).ok().map(read) {
                restore(turns, &entries, issuer, name.in_order);
            }
        }
    }
}

struct Kept<'s> {
    what: What,
    text: JsonStr<'s>,
    seal: JsonStr<'s>,
}

fn read(record: &str) -> Result<Vec<Kept<'_>>, JsonError> {
    let mut entries = Vec::new();
    let mut json = Cursor::new(record);
    json.begin_array()?;
    while json.next_element()? {
        json.begin_array()?;
        let mut texts = [JsonStr::default(); 3];
        let mut at = 0;
        while json.next_element()? {
            let text = json.string()?;
            if let Some(slot) = texts.get_mut(at) {
                *slot = text;
            }
            at += 1;
        }
        let [word, text, seal] = texts;
        if let Some(what) = What::from_word(word) {
            entries.push(Kept { what, text, seal });
        }
    }
    Ok(entries)
}

/// Inserts reasoning before the block that it preceded, and signatures into their blocks. Calls are matched by id, or
/// by order if their ids are unknown.
fn restore<'a>(turns: &mut [Turn<'a>], entries: &[Kept<'a>], issuer: &'a str, in_order: bool) {
    let reasons = entries.iter().any(|entry| matches!(entry.what, What::Reasoning | What::Hidden));
    if reasons {
        // The record has the same reasoning, with its signature: remove the client's copy.
        for turn in turns.iter_mut() {
            turn.blocks.retain(|block| !matches!(block, Block::Reasoning { signature: None, .. }));
        }
    }
    let sealed = |seal: JsonStr<'a>| {
        (!seal.is_empty())
            .then(|| ProviderSignature { issuer: Some(issuer.into()), text: seal.escaped().into() })
    };
    // Positions of blocks before anything is inserted: texts in order, and calls by id.
    let (mut texts, mut calls, mut ids) = (Vec::new(), Vec::new(), Index::default());
    for (at, turn) in turns.iter().enumerate() {
        for (index, block) in turn.blocks.iter().enumerate() {
            match block {
                Block::Text { .. } => texts.push((at, index)),
                Block::ToolUse { id, .. } => {
                    calls.push((at, index));
                    ids.push(Lookup::of(key_of_call("", *id)));
                }
                _ => {}
            }
        }
    }
    let mut texts = texts.into_iter();
    let mut waiting: Vec<Block<'a>> = Vec::new();
    let mut placed: Vec<(usize, usize, Vec<Block<'a>>)> = Vec::new();
    // Number of calls so far, for matching by order.
    let mut nth = 0;
    for entry in entries {
        match entry.what {
            What::Reasoning | What::Hidden => {
                let seal = sealed(entry.seal);
                let hidden = entry.what == What::Hidden;
                let text = Some(entry.text).filter(|text| !text.is_empty()).into_iter().collect::<Vec<_>>();
                if seal.is_some() {
                    waiting.push(Block::Reasoning { text, signature: seal, hidden });
                }
            }
            What::Text => {
                // The client may have joined several texts of the provider into one.
                settle(turns, texts.next(), &mut waiting, &mut placed, sealed(entry.seal));
            }
            What::Call => {
                let by_id = || ids.first(Lookup::of(key_of_call("", entry.text)));
                let at = if in_order { Some(nth) } else { by_id() };
                nth += 1;
                let place = at.and_then(|at| calls.get(at)).copied();
                settle(turns, place, &mut waiting, &mut placed, sealed(entry.seal));
            }
        }
    }
    put_between(turns, placed);
    if let Some(last) = turns.last_mut() {
        last.blocks.append(&mut waiting);
    }
}

/// Inserts blocks before the blocks at the given positions.
fn put_between<'a>(turns: &mut [Turn<'a>], mut placed: Vec<(usize, usize, Vec<Block<'a>>)>) {
    // The sort is stable, so blocks for the same position stay in order.
    placed.sort_by_key(|(turn, index, _)| (*turn, *index));
    let mut placed = placed.into_iter().peekable();
    for (at, turn) in turns.iter_mut().enumerate() {
        if placed.peek().is_none_or(|next| next.0 != at) {
            continue;
        }
        for (index, block) in std::mem::take(&mut turn.blocks).into_iter().enumerate() {
            while let Some((_, _, blocks)) = placed.next_if(|next| (next.0, next.1) == (at, index)) {
                turn.blocks.extend(blocks);
            }
            turn.blocks.push(block);
        }
    }
}

fn settle<'a>(
    turns: &mut [Turn<'a>],
    place: Option<(usize, usize)>,
    waiting: &mut Vec<Block<'a>>,
    placed: &mut Vec<(usize, usize, Vec<Block<'a>>)>,
    seal: Option<ProviderSignature<'a>>,
) {
    let Some((at, index)) = place else { return };
    let Some(turn) = turns.get_mut(at) else { return };
    if let Some(Block::Text { signature: slot, .. } | Block::ToolUse { signature: slot, .. }) =
        turn.blocks.get_mut(index)
        && slot.is_none()
    {
        *slot = seal;
    }
    if !waiting.is_empty() {
        placed.push((at, index, std::mem::take(waiting)));
    }
}
