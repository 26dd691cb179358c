//! Tool calls of a choice: assignment of stream fragments to calls.
//!
//! Providers number the calls, or omit the numbers, or number all with 0. They send the id of a call once, in each
//! fragment, as an empty string, or never. Two rules hold for all: a call has one name, and its fragments arrive in
//! order.

use crate::canonical::{BlockKind, Delta, Event, Index, IndexKey, ToolKind};
use crate::wire::chat::enums::thought_signature;
use crate::wire::codec::make_id;
use crate::wire::watch::members;
use json::{Cursor, JsonError, JsonStr, RawJson};

use super::ids::IdCounters;

/// Position of a call in the deprecated `function_call` form, which allows one call.
const LEGACY: u64 = u64::MAX;

/// Fragment of a call: the members of one call in one delta.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fragment<'a> {
    place: Option<u64>,
    id: JsonStr<'a>,
    name: JsonStr<'a>,
    input: Option<RawJson<'a>>,
    kind: ToolKind,
    /// Provider signature that must be returned with the call.
    pub(super) signature: JsonStr<'a>,
}

impl<'a> Fragment<'a> {
    /// Parses an element of `tool_calls`.
    pub(super) fn read(json: &mut Cursor<'a>) -> Result<Self, JsonError> {
        let mut fragment = Fragment::default();
        let mut custom = Fragment::default();
        members(json, |key, json| {
            match key.escaped() {
                "index" => fragment.place = json.u64_or_skip()?,
                "id" => fragment.id = id_of(json.raw()?),
                "function" => fragment.read_function(json)?,
                "custom" => custom.read_function(json)?,
                "extra_content" => fragment.signature = thought_signature(json.raw()?),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        // One provider sends both members, one of them empty.
        let said = |half: &Fragment<'_>| !half.name.is_empty() || half.has_input();
        if said(&custom) && !said(&fragment) {
            fragment.name = custom.name;
            fragment.input = custom.input;
            fragment.kind = ToolKind::Custom;
        }
        Ok(fragment)
    }

    /// Parses a `function_call`.
    pub(super) fn read_legacy(value: RawJson<'a>) -> Result<Self, JsonError> {
        let mut fragment = Fragment { place: Some(LEGACY), ..Fragment::default() };
        fragment.read_function(&mut Cursor::new(value.text()))?;
        Ok(fragment)
    }

    fn read_function(&mut self, json: &mut Cursor<'a>) -> Result<(), JsonError> {
        members(json, |key, json| {
            match key.escaped() {
                "name" => self.name = json.raw()?.as_str().unwrap_or_default(),
                "arguments" | "input" => self.input = Some(json.raw()?).filter(|input| !input.is_null()),
                _ => json.skip()?,
            }
            Ok(())
        })
    }

    /// Returns the fragment without its input, and the input. `None` if it also has an id, a name or a signature.
    pub(super) fn only_input(self) -> Option<(Fragment<'static>, JsonStr<'a>)> {
        let input = self.input?.as_str().filter(|input| !input.is_empty())?;
        let nothing_else = self.id.is_empty() && self.name.is_empty() && self.signature.is_empty();
        nothing_else.then(|| (Fragment { place: self.place, kind: self.kind, ..Fragment::default() }, input))
    }

    /// Returns the fragment with another input.
    pub(super) fn with_input(self, input: RawJson<'a>) -> Self {
        Fragment { input: Some(input), ..self }
    }

    fn has_input(&self) -> bool {
        self.input.is_some_and(|input| input.text() != "\"\"")
    }

    /// Returns whether the fragment is empty. One provider adds such a fragment to every message.
    pub(super) fn is_void(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && !self.has_input()
    }

    /// Returns whether the input begins with an object.
    fn begins_object(&self) -> bool {
        self.input.is_some_and(|input| input.text().trim_start_matches(['"', ' ']).starts_with('{'))
    }
}

fn id_of(value: RawJson<'_>) -> JsonStr<'_> {
    match value.as_str() {
        Some(id) => id,
        None if value.as_u64().is_some() => JsonStr::from_escaped(value.text()),
        None => JsonStr::default(),
    }
}

/// Tool calls of one choice.
#[derive(Debug, Default)]
pub(super) struct ChoiceCalls {
    list: Vec<Call>,
    /// Hash indexes of the calls. `None` for up to `FEW` calls.
    places: Option<Box<Places>>,
    /// Open calls whose input was complete when it was last extended. They end when another block begins.
    ready: Vec<usize>,
    /// Calls that were opened since all calls were last closed.
    opened: Vec<usize>,
    /// Whether any call has begun.
    called: bool,
}

/// Number of calls up to which a linear scan finds a call. Beyond it, a hash index keeps the cost per fragment
/// constant.
const FEW: usize = 16;

/// Hash indexes of calls: by position, by id, and by both.
#[derive(Debug, Default)]
struct Places {
    by_place: Index,
    by_id: Index,
    by_both: Index,
}

impl Places {
    fn named(&mut self, call: &Call, at: usize) {
        self.by_id.put(IndexKey::of(&*call.id), at);
        self.by_both.put(IndexKey::of((&*call.id, call.place)), at);
    }
}

#[derive(Debug)]
struct Call {
    place: Option<u64>,
    id: String,
    name: String,
    /// Input that arrived before the name.
    early: String,
    /// Index of the block. `None` until the name is known.
    block: Option<u32>,
    open: bool,
    /// Whether the call is in `Calls::ready`.
    ready: bool,
    filled: bool,
    /// Whether the input arrived as an object. Nothing can be appended to it.
    whole: bool,
    kind: ToolKind,
    nesting: Nesting,
}

impl ChoiceCalls {
    /// Returns whether any call has begun.
    pub(super) fn any(&self) -> bool {
        self.called
    }

    /// Returns whether there are calls, all of them with complete arguments.
    pub(super) fn are_whole(&self) -> bool {
        self.called && self.list.iter().all(Call::is_complete)
    }

    /// Returns whether the arguments of a call have begun and not ended.
    pub(super) fn is_half(&self) -> bool {
        self.list.iter().any(|call| call.kind == ToolKind::Function && call.nesting.is_open())
    }

    /// Processes a fragment: finds or creates its call and emits the events.
    pub(super) fn take(
        &mut self,
        fragment: &Fragment<'_>,
        choice: u32,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let found = self.find(fragment);
        if found.is_none() {
            if let Some(places) = &mut self.places {
                places.by_place.put(IndexKey::of(fragment.place), self.list.len());
            }
            self.list.push(Call {
                place: fragment.place,
                id: String::new(),
                name: String::new(),
                early: String::new(),
                block: None,
                open: false,
                ready: false,
                filled: false,
                whole: false,
                kind: fragment.kind,
                nesting: Nesting::default(),
            });
            // Build the index once the list is long, so that many calls do not cost quadratic time.
            if self.places.is_none() && self.list.len() > FEW {
                let mut places = Box::<Places>::default();
                for (at, call) in self.list.iter().enumerate() {
                    places.by_place.put(IndexKey::of(call.place), at);
                    places.named(call, at);
                }
                self.places = Some(places);
            }
        }
        let at = found.unwrap_or(self.list.len().saturating_sub(1));
        if self.list.get(at).is_some_and(|call| call.block.is_none()) {
            self.start(at, fragment, choice, ids, sink);
        }
        if let Some(call) = self.list.get_mut(at) {
            call.fill(fragment.input, sink);
            if call.open && !call.ready && call.is_complete() {
                call.ready = true;
                self.ready.push(at);
            }
        }
    }

    fn at_place(&self, place: Option<u64>) -> Option<usize> {
        match &self.places {
            None => self.list.iter().rposition(|call| call.place == place),
            Some(places) => places.by_place.last(IndexKey::of(place)),
        }
    }

    /// Returns the last call with this id, and with this position if one is given.
    fn with_id(&self, id: &str, place: Option<u64>) -> Option<usize> {
        match (&self.places, place) {
            (None, _) => {
                let fits = |call: &Call| call.id == id && (place.is_none() || call.place == place);
                self.list.iter().rposition(fits)
            }
            (Some(places), None) => places.by_id.last(IndexKey::of(id)),
            (Some(places), Some(_)) => places.by_both.last(IndexKey::of((id, place))),
        }
    }

    /// Returns the call that a fragment belongs to. `None` if it begins a new call.
    fn find(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let of_place = match fragment.place {
            Some(_) => self.at_place(fragment.place),
            None => self.list.len().checked_sub(1),
        };
        if !fragment.id.is_empty() {
            if let Some(at) = self.with_id(fragment.id.escaped(), fragment.place) {
                return Some(at);
            }
            // A new id without a name continues the call: some providers invent an id for every fragment. With a name
            // it begins a new call, unless the call in that position still lacks both.
            let waits = |at: &usize| self.list.get(*at).is_some_and(|call| call.block.is_none());
            return of_place.filter(|at| fragment.name.is_empty() || waits(at));
        }
        let at = of_place?;
        let call = self.list.get(at)?;
        // A second name begins a new call if it differs, or if the call is complete and another object begins: some
        // providers send parallel calls of the same function with neither id nor distinct index.
        let anew = !fragment.name.is_empty()
            && !call.name.is_empty()
            && (call.name != fragment.name.escaped() || (call.is_complete() && fragment.begins_object()));
        (!anew).then_some(at)
    }

    fn start(
        &mut self,
        at: usize,
        fragment: &Fragment<'_>,
        choice: u32,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        // A name begins a new call, so earlier calls with complete input can end.
        if !fragment.name.is_empty() {
            self.close_complete(sink);
        }
        // Some providers repeat an id for different calls. Make a new one, because clients match tool results by id.
        let repeated = fragment.id.is_empty() || self.with_id(fragment.id.escaped(), None).is_some();
        let Some(call) = self.list.get_mut(at) else { return };
        if call.id.is_empty() && !repeated {
            fragment.id.escaped().clone_into(&mut call.id);
            if let Some(places) = &mut self.places {
                places.named(call, at);
            }
        }
        if fragment.name.is_empty() {
            return;
        }
        fragment.name.escaped().clone_into(&mut call.name);
        let block = ids.next_block();
        call.block = Some(block);
        call.open = true;
        self.called = true;
        self.opened.push(at);
        let made;
        let id = if call.id.is_empty() {
            let number = ids.next_made();
            made = make_id("call_", &ids.seed, number);
            made.as_str()
        } else {
            &call.id
        };
        let kind = BlockKind::ToolUse {
            id: JsonStr::from_escaped(id),
            name: JsonStr::from_escaped(&call.name),
            kind: call.kind,
            namespace: JsonStr::default(),
        };
        sink(Event::BlockStart { index: block, choice, kind });
        if !fragment.signature.is_empty() {
            sink(Event::Delta { index: block, delta: Delta::Signature(fragment.signature) });
        }
        // A block needs a name, so input before it was buffered.
        let early = std::mem::take(&mut call.early);
        call.send(JsonStr::from_escaped(&early), sink);
    }

    /// Closes the calls whose input is complete. Fragments of several calls may be interleaved, so the others stay open
    /// until the choice ends.
    pub(super) fn close_complete(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        self.ready.sort_unstable();
        for at in self.ready.drain(..) {
            if let Some(call) = self.list.get_mut(at) {
                call.ready = false;
                if call.is_complete() {
                    call.close(sink);
                }
            }
        }
    }

    /// Closes all calls.
    pub(super) fn close(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        self.opened.sort_unstable();
        for at in self.opened.drain(..) {
            if let Some(call) = self.list.get_mut(at) {
                call.close(sink);
            }
        }
    }
}

impl Call {
    fn is_complete(&self) -> bool {
        self.kind == ToolKind::Function && self.nesting.is_complete()
    }

    fn close(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if let (true, Some(index)) = (self.open, self.block) {
            self.open = false;
            sink(Event::BlockStop { index });
        }
    }

    fn fill(&mut self, input: Option<RawJson<'_>>, sink: &mut impl FnMut(Event<'_>)) {
        let Some(input) = input else { return };
        match (input.as_str(), self.block) {
            (Some(text), None) => self.early.push_str(text.escaped()),
            (Some(text), Some(_)) => self.send(text, sink),
            // An empty object may stand in front of the arguments.
            (None, Some(index)) if is_empty_object(input) && self.open && !self.filled => {
                self.filled = true;
                self.nesting.complete();
                sink(Event::Delta { index, delta: Delta::Arguments(JsonStr::from_escaped("{}")) });
            }
            // Some providers send the arguments as an object instead of a string.
            (None, Some(index)) if input.text().starts_with('{') && self.open && !self.filled => {
                self.filled = true;
                self.whole = true;
                self.nesting.complete();
                sink(Event::Delta { index, delta: Delta::Object(input) });
            }
            (None, _) => {}
        }
    }

    fn send(&mut self, text: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let (true, false, Some(index)) = (self.open, text.is_empty(), self.block) else { return };
        if self.whole {
            return;
        }
        self.filled = true;
        if self.kind == ToolKind::Function {
            self.nesting.read(text);
        }
        sink(Event::Delta { index, delta: Delta::Arguments(text) });
    }
}

/// Nesting depth of a JSON object whose text arrives in pieces and still escaped.
#[derive(Clone, Copy, Debug, Default)]
struct Nesting {
    depth: u32,
    begun: bool,
    in_string: bool,
    after_backslash: bool,
}

impl Nesting {
    fn is_complete(self) -> bool {
        self.begun && self.depth == 0
    }

    fn is_open(self) -> bool {
        self.begun && self.depth != 0
    }

    fn complete(&mut self) {
        *self = Nesting { begun: true, ..Nesting::default() };
    }

    fn read(&mut self, text: JsonStr<'_>) {
        let mut bytes = text.escaped().bytes();
        while let Some(byte) = bytes.next() {
            // The text is inside a JSON string, so one layer of escapes must be removed.
            let byte = match byte {
                b'\\' => match bytes.next() {
                    Some(quoted @ (b'"' | b'\\')) => quoted,
                    Some(b'u') => ascii_of(bytes.by_ref().take(4)),
                    _ => b' ',
                },
                byte => byte,
            };
            self.step(byte);
        }
    }

    #[inline]
    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.after_backslash => self.after_backslash = false,
                b'\\' => self.after_backslash = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.depth += 1;
                self.begun = true;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

fn is_empty_object(input: RawJson<'_>) -> bool {
    let inside = input.text().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| inside.trim_ascii().is_empty())
}

/// Returns the character of four hexadecimal digits, or a blank if it is not ASCII.
fn ascii_of(digits: impl Iterator<Item = u8>) -> u8 {
    let code = digits.fold(0u32, |code, digit| code << 4 | char::from(digit).to_digit(16).unwrap_or(0));
    u8::try_from(code).ok().filter(u8::is_ascii).unwrap_or(b' ')
}
