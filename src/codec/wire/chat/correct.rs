//! Corrections of completions and chunks that pass to a client of the same format: what no client of the format
//! understands becomes what it does. Everything else in them passes as it is.
//!
//! | Found | Becomes |
//! |---|---|
//! | a finish reason of another format or server that means an end, a limit or a filter | `stop`, `length`, `content_filter` |
//! | `stop` with a call, `tool_calls` without one | `tool_calls`, `stop` |
//! | usage with `input_tokens` and `output_tokens` | the same with `prompt_tokens` and `completion_tokens` |
//! | arguments that are encoded twice, stand behind an empty object, or are no text | the text of the object |
//!
//! An unknown word passes: the client may know it. Words that mean a failure are errors, not corrections.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::BytesMut;
use memchr::memmem::Finder;
use smallvec::SmallVec;

use super::enums::finish_word;
use super::watch;
use super::write;
use crate::canonical::Finish;
use crate::wire::Format;
use crate::wire::encoded_twice::{self, Beginning, MAX_HELD, OuterEncoding};
use crate::wire::finish_words::{self, FinishMeaning};
use crate::wire::watch::{bit, elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, Writer, push_escaped};

/// Calls of one response whose arguments are looked at. Later ones pass as they are.
const MAX_CALLS: usize = 128;
/// Longest part of a chunk that is kept for one that the gateway writes itself, in bytes.
const MAX_SHELL: usize = 1_024;

/// Corrector of one response.
#[derive(Debug, Default)]
pub struct Corrector {
    /// Whether the response may have calls.
    calls: bool,
    /// Choices that have a call, one bit each.
    called: u64,
    list: Vec<OwnCall>,
    /// Number of calls whose arguments are not known to be as usual.
    open: usize,
    /// What the last chunk whose arguments are held back has before and behind its choices.
    shell: Option<(String, String)>,
}

/// Call of a stream that passes.
#[derive(Debug)]
struct OwnCall {
    choice: u64,
    place: Option<u64>,
    /// Fingerprint of the id.
    id: u64,
    arguments: Arguments,
}

/// Form in which calls arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// In a completion.
    Document,
    /// In a chunk that has all of them.
    WholeCalls,
    /// In fragments.
    Fragment,
}

#[derive(Debug)]
enum Arguments {
    /// They have not begun; the text that is held back.
    Begun(String),
    /// They are encoded twice.
    EncodedTwice(OuterEncoding),
    Usual,
}

/// Edit of a text: a range and what takes its place.
type Edits = SmallVec<[(Range<usize>, String); 2]>;

/// Members of a choice that are looked at.
#[derive(Default)]
struct OwnChoice<'a> {
    index: u64,
    finish: Option<RawJson<'a>>,
    /// Delta or message.
    said: Option<RawJson<'a>>,
}

impl Corrector {
    /// Creates the corrector. `calls` is whether the response may have tool calls, because the request offers tools.
    pub fn new(calls: bool) -> Self {
        Corrector { calls, ..Corrector::default() }
    }

    /// Returns whether a chunk or completion has a call, or continues one that must be looked at.
    #[inline]
    pub fn is_concerned(&self, data: &[u8]) -> bool {
        self.calls && self.holds_call(data)
    }

    #[inline(never)]
    fn holds_call(&self, data: &[u8]) -> bool {
        // Only the first fragment of a call has a name, and no other element of a chunk has one.
        static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"name\""));
        self.open > 0 || NAME.find(data).is_some()
    }

    /// Returns whether the response may have calls.
    pub fn expects_calls(&self) -> bool {
        self.calls
    }

    /// Returns the choices that are known to have a call so far, one bit each.
    pub fn called(&self) -> u64 {
        self.called
    }

    /// Corrects a chunk. `None` if it passes as it is. Several chunks are separated as events.
    #[cold]
    pub fn chunk(&mut self, text: &str) -> Option<String> {
        let (edits, before) = self.edits(text, false).ok()?;
        corrected(text, edits, &before)
    }

    /// Corrects a completion. `None` if it passes as it is.
    #[cold]
    pub fn document(&mut self, text: &str) -> Option<String> {
        self.calls = true;
        let (edits, _) = self.edits(text, true).ok()?;
        corrected(text, edits, "")
    }

    /// Returns what is written before the terminator of a stream that ends without a finish reason. `None` if it is
    /// nothing.
    pub fn rest(&mut self) -> Option<String> {
        if self.open == 0 {
            return None;
        }
        let mut before = String::new();
        let choices: SmallVec<[u64; 1]> = self.list.iter().map(|call| call.choice).collect();
        for choice in choices {
            self.flush(choice, None, &mut before);
        }
        Some(before).filter(|before| !before.is_empty())
    }

    fn edits(&mut self, text: &str, whole: bool) -> Result<(Edits, String), JsonError> {
        let (mut edits, mut before) = (Edits::new(), String::new());
        let mut choices = SmallVec::<[OwnChoice<'_>; 1]>::new();
        let mut place = 0..0;
        members(&mut Cursor::new(text), |key, json| match key.escaped() {
            "choices" => {
                json.kind()?;
                place.start = json.offset();
                elements(json, |json| {
                    let choice = own_choice(json, whole, text, &mut edits)?;
                    choices.push(choice);
                    Ok(())
                })?;
                place.end = json.offset();
                Ok(())
            }
            "usage" => own_usage(json.raw()?, text, &mut edits),
            _ => json.skip(),
        })?;
        for choice in &choices {
            self.choice(choice, whole, (text, &place), &mut edits, &mut before)?;
        }
        edits.sort_by_key(|(range, _)| range.start);
        Ok((edits, before))
    }

    fn choice(
        &mut self,
        choice: &OwnChoice<'_>,
        whole: bool,
        (text, choices): (&str, &Range<usize>),
        edits: &mut Edits,
        before: &mut String,
    ) -> Result<(), JsonError> {
        let finish =
            choice.finish.and_then(RawJson::as_str).filter(|word| !matches!(word.escaped(), "" | "null"));
        let (mut has_legacy, mut fragments) = (false, SmallVec::<[Fragment<'_>; 1]>::new());
        if let Some(said) = choice.said.filter(|_| self.calls) {
            members(&mut Cursor::new(said.text()), |key, json| match key.escaped() {
                "tool_calls" => elements(json, |json| {
                    fragments.push(Fragment::read(json)?);
                    Ok(())
                })
                .map(drop),
                "function_call" => {
                    has_legacy |= json.raw()?.text().starts_with('{');
                    Ok(())
                }
                _ => json.skip(),
            })?;
        }
        // What is whole in one chunk is not held back.
        let form = match () {
            () if whole => Form::Document,
            () if finish.is_some() || fragments.len() > 1 => Form::WholeCalls,
            () => Form::Fragment,
        };
        for fragment in &fragments {
            self.fragment(choice.index, fragment, form, (text, choices), edits, before);
        }
        if has_legacy && self.called & bit(choice.index) == 0 {
            // The deprecated form has a word of its own, and its chunks are not looked at any further.
            self.calls = false;
        }
        let Some(word) = finish else { return Ok(()) };
        self.flush(choice.index, None, before);
        let called = self.calls.then_some(self.called & bit(choice.index) != 0);
        if let Some(instead) = instead_of(word, called)
            && let Some(range) = choice.finish.and_then(|finish| place_in(text, finish.text()))
        {
            edits.push((range, format!("\"{instead}\"")));
        }
        Ok(())
    }

    /// Handles a fragment of a call.
    fn fragment(
        &mut self,
        choice: u64,
        fragment: &Fragment<'_>,
        form: Form,
        (text, choices): (&str, &Range<usize>),
        edits: &mut Edits,
        before: &mut String,
    ) {
        if fragment.is_named {
            self.called |= bit(choice);
        }
        let Some(arguments) = fragment.arguments.filter(|arguments| !arguments.is_null()) else {
            return self.begin(choice, fragment, before);
        };
        let Some(place) = place_in(text, arguments.text()) else { return };
        let mut made = Vec::new();
        let said = match arguments.as_str() {
            Some(said) => said.escaped(),
            // Some servers send the object itself.
            None if arguments.text().starts_with('{') => {
                push_escaped(&mut made, arguments.text());
                std::str::from_utf8(&made).unwrap_or_default()
            }
            None => return,
        };
        let mut instead = (!made.is_empty()).then(|| said.to_owned());
        if form == Form::Document {
            instead = encoded_twice::corrected(said).or(instead);
        } else {
            self.begin(choice, fragment, before);
            if let Some(call) = self.list.iter_mut().rev().find(|call| call.is_of(choice, fragment.place)) {
                let passed = call.arguments.push(said, form == Form::Fragment);
                if matches!(call.arguments, Arguments::Usual) && passed.is_some() {
                    self.open = self.open.saturating_sub(1);
                }
                instead = passed.flatten().or(instead);
                if instead.as_ref().is_some_and(String::is_empty) {
                    let (head, tail) = (text.get(..choices.start), text.get(choices.end..));
                    let shell = head.zip(tail).filter(|(head, tail)| head.len() + tail.len() <= MAX_SHELL);
                    self.shell = shell.map(|(head, tail)| (head.to_owned(), tail.to_owned()));
                }
            }
        }
        if let Some(instead) = instead {
            edits.push((place, format!("\"{instead}\"")));
        }
    }

    /// Begins a call if the fragment is the first one of it.
    fn begin(&mut self, choice: u64, fragment: &Fragment<'_>, before: &mut String) {
        let known = self.list.iter().rev().find(|call| call.is_of(choice, fragment.place));
        let is_new = fragment.is_named && known.is_none_or(|call| fragment.id != 0 && fragment.id != call.id);
        if !is_new || self.list.len() >= MAX_CALLS {
            return;
        }
        self.flush(choice, Some(fragment.place), before);
        let arguments = Arguments::Begun(String::new());
        self.list.push(OwnCall { choice, place: fragment.place, id: fragment.id, arguments });
        self.open += 1;
    }

    /// Writes what is held back of the calls of a choice that have ended: all of them, or the one whose place is taken.
    fn flush(&mut self, choice: u64, place: Option<Option<u64>>, before: &mut String) {
        let shell =
            self.shell.as_ref().map_or(("{\"choices\":", "}"), |(head, tail)| (head.as_str(), tail.as_str()));
        for call in &mut self.list {
            if call.choice != choice || place.is_some_and(|place| call.place != place) {
                continue;
            }
            if !matches!(call.arguments, Arguments::Usual) {
                self.open = self.open.saturating_sub(1);
            }
            let ended = std::mem::replace(&mut call.arguments, Arguments::Usual);
            if let Arguments::Begun(held) = ended
                && !held.is_empty()
            {
                let place = call.place.unwrap_or(0);
                let (head, tail) = shell;
                before.push_str(&format!(
                    "{head}[{{\"index\":{choice},\"delta\":{{\"tool_calls\":[{{\"index\":{place},\"function\":\
                     {{\"arguments\":\"{held}\"}}}}]}},\"finish_reason\":null}}]{tail}\n\ndata: "
                ));
            }
        }
    }
}

impl OwnCall {
    /// Returns whether a fragment in this place belongs to the call. Without a place, it is the last call of the choice.
    fn is_of(&self, choice: u64, place: Option<u64>) -> bool {
        self.choice == choice && (place.is_none() || self.place == place)
    }
}

impl Arguments {
    /// Reads the next text. Returns `None` if it is of usual arguments, and otherwise what takes its place, if anything.
    /// `more` is whether further text may follow.
    fn push(&mut self, said: &str, more: bool) -> Option<Option<String>> {
        match self {
            Arguments::Usual => None,
            Arguments::EncodedTwice(encoding) => {
                let mut out = String::new();
                encoding.push(said, &mut out);
                Some(Some(out))
            }
            Arguments::Begun(held) => {
                let before = held.len();
                held.push_str(said);
                match encoded_twice::beginning(held) {
                    Beginning::Open | Beginning::EmptyObject if more && held.len() <= MAX_HELD => {
                        Some((!said.is_empty()).then(String::new))
                    }
                    Beginning::EncodedTwice(at) => {
                        let (mut encoding, mut out) = (OuterEncoding::default(), String::new());
                        encoding.push(held.get(at..).unwrap_or_default(), &mut out);
                        *self = Arguments::EncodedTwice(encoding);
                        Some(Some(out))
                    }
                    Beginning::BehindEmptyObject(at) => {
                        let rest = held.get(at..).unwrap_or_default().to_owned();
                        *self = Arguments::Usual;
                        Some(Some(rest))
                    }
                    _ => {
                        let all = std::mem::take(held);
                        *self = Arguments::Usual;
                        Some((before > 0).then_some(all))
                    }
                }
            }
        }
    }
}

/// Fragment of a call, or a whole one.
#[derive(Default)]
struct Fragment<'a> {
    place: Option<u64>,
    id: u64,
    is_named: bool,
    arguments: Option<RawJson<'a>>,
}

impl<'a> Fragment<'a> {
    fn read(json: &mut Cursor<'a>) -> Result<Self, JsonError> {
        let mut fragment = Fragment::default();
        members(json, |key, json| match key.escaped() {
            "index" => {
                fragment.place = json.u64_or_skip()?;
                Ok(())
            }
            "id" => {
                fragment.id = json.raw()?.as_str().filter(|id| !id.is_empty()).map_or(0, fingerprint);
                Ok(())
            }
            "function" => members(json, |key, json| {
                let value = json.raw()?;
                match key.escaped() {
                    "name" => fragment.is_named = value.as_str().is_some_and(|name| !name.is_empty()),
                    "arguments" => fragment.arguments = Some(value),
                    _ => {}
                }
                Ok(())
            }),
            // A custom tool: its input is free text.
            "custom" => {
                fragment.is_named |= json.raw()?.text().starts_with('{');
                Ok(())
            }
            _ => json.skip(),
        })?;
        Ok(fragment)
    }
}

fn fingerprint(id: JsonStr<'_>) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(id.escaped()).max(1)
}

fn own_choice<'a>(
    json: &mut Cursor<'a>,
    whole: bool,
    text: &str,
    edits: &mut Edits,
) -> Result<OwnChoice<'a>, JsonError> {
    let mut choice = OwnChoice::default();
    members(json, |key, json| {
        match key.escaped() {
            "index" => choice.index = json.u64_or_skip()?.unwrap_or(0),
            "finish_reason" => choice.finish = Some(json.raw()?),
            "delta" if !whole => choice.said = Some(json.raw()?),
            "message" => choice.said = Some(json.raw()?),
            // Kimi's older models report usage in the choice.
            "usage" => own_usage(json.raw()?, text, edits)?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(choice)
}

/// Adds the names of this format to usage that has those of the responses format.
fn own_usage(value: RawJson<'_>, text: &str, edits: &mut Edits) -> Result<(), JsonError> {
    let (mut is_own, mut is_other) = (!value.text().starts_with('{'), false);
    members(&mut Cursor::new(value.text()), |key, json| {
        is_own |= matches!(key.escaped(), "prompt_tokens" | "completion_tokens");
        is_other |= matches!(key.escaped(), "input_tokens" | "output_tokens");
        json.skip()
    })?;
    let Some(range) = place_in(text, value.text()).filter(|_| is_other && !is_own) else { return Ok(()) };
    let mut out = BytesMut::new();
    write::usage(&mut Writer::new(&mut out), &watch::usage(value)?);
    let mut own = String::from_utf8(out.to_vec()).unwrap_or_default();
    own.truncate(own.len().saturating_sub(1));
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        if !matches!(key.escaped(), "total_tokens" | "prompt_tokens_details" | "completion_tokens_details") {
            own.push_str(&format!(",\"{}\":{}", key.escaped(), value.text()));
        }
        Ok(())
    })?;
    own.push('}');
    edits.push((range, own));
    Ok(())
}

/// Returns the word of the format that takes the place of a finish reason; `None` if it stays. `called` means that the
/// choice has a call; `None` if that is not known.
fn instead_of(word: JsonStr<'_>, called: Option<bool>) -> Option<&'static str> {
    let calls = called.unwrap_or(false);
    let finish = match finish_words::meaning(Format::Chat, word.escaped()) {
        FinishMeaning::Stop | FinishMeaning::StopSequence | FinishMeaning::Pause => Finish::Stop,
        FinishMeaning::Length | FinishMeaning::ContextFull => Finish::Length,
        FinishMeaning::ContentFilter => Finish::ContentFilter,
        FinishMeaning::ToolUse if called.is_none() && word.is("function_call") => return None,
        FinishMeaning::ToolUse => Finish::ToolUse,
        FinishMeaning::Uncalled if calls => Finish::ToolUse,
        FinishMeaning::Unknown
        | FinishMeaning::Uncalled
        | FinishMeaning::Failed
        | FinishMeaning::Busy
        | FinishMeaning::Refused => return None,
    };
    let calls = calls || (called.is_none() && finish == Finish::ToolUse);
    let (own, _) = finish_word(finish, calls);
    (!word.is(own)).then_some(own)
}

/// Returns the range of a part of a text.
fn place_in(text: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let range = start..start.checked_add(part.len())?;
    text.get(range.clone()).map(|_| range)
}

/// Returns a text with these edits, in their order, behind what is written before it. `None` if nothing changes.
fn corrected(text: &str, edits: Edits, before: &str) -> Option<String> {
    if edits.is_empty() && before.is_empty() {
        return None;
    }
    let mut out = String::with_capacity(before.len() + text.len() + 64);
    out.push_str(before);
    let mut at = 0;
    for (range, instead) in edits {
        out.push_str(text.get(at..range.start)?);
        out.push_str(&instead);
        at = range.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}
