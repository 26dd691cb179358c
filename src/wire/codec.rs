//! What the codecs of all formats share: what an answer's encoder is told besides the events, and what a request's
//! encoder tells besides the text.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Format;
use super::loss::{self, LossPolicy};
use crate::canonical::{Index, Key};
use crate::error::{ApiError, Kind};
use crate::json::{Cursor, EscapedString, JsonStr, RawJson};

/// What the encoder of an answer must know that is not in the answer. The same for a stream and for a whole answer.
#[derive(Clone, Debug, Default)]
pub struct ReplyOptions {
    /// The model under the name that the client used.
    pub model: EscapedString,
    /// The id of the request, which errors name.
    pub request: Box<str>,
    /// Ids are made from it where the provider gives none. It belongs to one request and is not the client's to choose.
    pub seed: Box<str>,
    /// When the answer began (Unix seconds), where the provider does not say.
    pub created: u64,
    /// The client asked for usage in its stream, in formats where that must be asked for.
    pub usage_wanted: bool,
    /// The client wants to see reasoning.
    pub show_thinking: bool,
    /// Who issues the seals in this answer: they go to the client in envelopes with this name on them.
    pub issuer: Box<str>,
    /// A generate stream is one JSON array instead of server-sent events.
    pub array: bool,
    /// The id under which the answer is kept, and which it therefore carries instead of one made from the provider's: a
    /// provider's id need not be the only one of its kind. Empty where the answer is not kept.
    pub keep_as: Box<str>,
    /// The seals in this answer are collected, because the client may not send them back.
    pub remember: bool,
    /// What stands for the conversation before the answer, where seals are collected.
    pub before: [u8; 32],
    /// Members of the request that the format repeats in its answer: JSON text, `"name":value` joined with commas.
    pub echo: Box<str>,
}

/// Losses of a request that are recorded at most. Names of members that nobody knows are the client's, as many as it
/// likes; this many say all that a header, a metric and a key that wants no losses need. More than [`loss::ROWS`] has
/// rows, so that no number of silent losses hides one that matters.
pub const MOST_LOSSES: usize = 256;
const _: () = assert!(MOST_LOSSES > loss::ROWS.len());

/// What is found out while a request is encoded: what was lost.
#[derive(Debug)]
pub struct LossNotes {
    from: Format,
    to: Format,
    losses: SmallVec<[Loss; 4]>,
    known: Index,
    refusal: Option<Box<ApiError>>,
}

/// An element of a request that its target cannot be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Its name: a row of the table in [`loss`], or the member's path where no row names it.
    pub element: Cow<'static, str>,
    /// What is done about it.
    pub policy: LossPolicy,
    /// It is carried, but brought into the range of the target.
    pub clamped: bool,
}

impl LossNotes {
    /// For a request from a client of one format to a provider of another.
    pub fn new(from: Format, to: Format) -> Self {
        LossNotes { from, to, losses: SmallVec::new(), known: Index::default(), refusal: None }
    }

    /// The format of the client.
    pub fn from(&self) -> Format {
        self.from
    }

    /// The format of the provider.
    pub fn to(&self) -> Format {
        self.to
    }

    /// The element is not carried; the table says how bad that is. Said twice, it counts once.
    pub fn lose(&mut self, element: impl Into<Cow<'static, str>>) {
        let element = element.into();
        let policy = loss::policy(&element, self.to);
        if policy == LossPolicy::Refuse {
            let message = format!("'{element}' cannot be carried to the {} API of this model.", self.to);
            self.refuse_with(ApiError::new(Kind::Unsupported, message).param(element.clone()));
        }
        self.note(Loss { element, policy, clamped: false });
    }

    /// The element is dropped, and the client is told so, whatever the table says.
    pub fn warn(&mut self, element: impl Into<Cow<'static, str>>) {
        self.note(Loss { element: element.into(), policy: LossPolicy::Warn, clamped: false });
    }

    /// A figure is brought into the range of the target, and the client is told so.
    pub fn clamp(&mut self, element: impl Into<Cow<'static, str>>) {
        self.note(Loss { element: element.into(), policy: LossPolicy::Warn, clamped: true });
    }

    /// The request cannot be carried. `message` says why, in words for the client.
    pub fn refuse(&mut self, param: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) {
        self.refuse_with(ApiError::new(Kind::Unsupported, message).param(param));
    }

    fn refuse_with(&mut self, error: ApiError) {
        // The first reason is as good as any.
        self.refusal.get_or_insert_with(|| Box::new(error));
    }

    fn note(&mut self, loss: Loss) {
        if self.losses.len() < MOST_LOSSES && self.known.add(Key::of(&*loss.element)) {
            self.losses.push(loss);
        }
    }

    /// What was lost, in the order in which it was met.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Takes out why the request cannot be carried, if it cannot.
    pub fn take_refusal(&mut self) -> Option<Box<ApiError>> {
        self.refusal.take()
    }
}

/// The rest of an id behind the prefixes that formats give to the ids of answers, with nothing in it that needs an
/// escape: `chatcmpl-9x` and `msg_9x` are `9x`. Empty for an empty id.
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

/// An id for something that the provider gave none: 24 letters and digits that depend on the seed and the number only,
/// so that the same answer has the same ids whenever it is read.
pub fn make_id(prefix: &str, seed: &str, number: u64) -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // FNV-1a over seed and number, then a multiplicative step for each letter: spread, not secrecy.
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in seed.bytes().chain(number.to_le_bytes()) {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut id = String::with_capacity(prefix.len() + 24);
    id.push_str(prefix);
    for _ in 0..24 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let letter = LETTERS.get((state >> 33) as usize % LETTERS.len()).copied().unwrap_or(b'0');
        id.push(char::from(letter));
    }
    id
}

/// The text in an object that has nothing else, and the name that it has there: `{"output":"..."}` and its like, which
/// a format writes that wants an object where the others have a text.
pub fn wrapped(object: RawJson<'_>) -> Option<(&'static str, JsonStr<'_>)> {
    let mut json = Cursor::new(object.text());
    json.begin_object().ok()?;
    let name = json.next_key().ok()??;
    let name = ["output", "result", "error"].into_iter().find(|known| name.is(known))?;
    let text = json.raw().ok()?.as_str()?;
    json.next_key().ok()?.is_none().then_some((name, text))
}

/// Whether the reason that an answer ended with says that it has not begun: an answer that was asked for in the
/// background is queued first (reference: OpenAI API, "Background mode").
pub fn is_to_come(reason: JsonStr<'_>) -> bool {
    matches!(reason.escaped(), "queued" | "in_progress")
}

/// A stream ended before the answer in it was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended before it was complete")]
pub struct CutText;
