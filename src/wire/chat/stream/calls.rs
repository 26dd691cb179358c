//! The calls of a choice: which fragment belongs to which.
//!
//! Providers number calls, or not, or all with 0; they say a call's id once, in each fragment, as an empty string, or
//! never. What is common to all: a call has one name, and its fragments come in order.

use crate::canonical::{BlockKind, Delta, Event, Index, Key, ToolKind};
use crate::json::{Cursor, JsonError, JsonStr, RawJson};
use crate::wire::chat::enums::thought_signature;
use crate::wire::codec::make_id;
use crate::wire::watch::members;

use super::ids::Ids;

/// The place of a call in the form that came before `tool_calls`, of which there is one at most.
const LEGACY: u64 = u64::MAX;

/// What one delta says of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fragment<'a> {
    place: Option<u64>,
    id: JsonStr<'a>,
    name: JsonStr<'a>,
    input: Option<RawJson<'a>>,
    kind: ToolKind,
    /// The signature that must come back with the call.
    pub(super) seal: JsonStr<'a>,
}

impl<'a> Fragment<'a> {
    /// Reads an element of `tool_calls`.
    pub(super) fn read(json: &mut Cursor<'a>) -> Result<Self, JsonError> {
        let mut fragment = Fragment::default();
        let mut custom = Fragment::default();
        members(json, |key, json| {
            match key.escaped() {
                "index" => fragment.place = json.u64_or_skip()?,
                "id" => fragment.id = id_of(json.raw()?),
                "function" => fragment.read_function(json)?,
                "custom" => custom.read_function(json)?,
                "extra_content" => fragment.seal = thought_signature(json.raw()?),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        // One provider sends both, one of them empty.
        let said = |half: &Fragment<'_>| !half.name.is_empty() || half.has_input();
        if said(&custom) && !said(&fragment) {
            fragment.name = custom.name;
            fragment.input = custom.input;
            fragment.kind = ToolKind::Custom;
        }
        Ok(fragment)
    }

    /// Reads a `function_call`.
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

    /// The fragment without its input, and its input, if it has nothing else to tell.
    pub(super) fn only_input(self) -> Option<(Fragment<'static>, JsonStr<'a>)> {
        let input = self.input?.as_str().filter(|input| !input.is_empty())?;
        let nothing_else = self.id.is_empty() && self.name.is_empty() && self.seal.is_empty();
        nothing_else.then(|| (Fragment { place: self.place, kind: self.kind, ..Fragment::default() }, input))
    }

    /// A fragment like this one with another input.
    pub(super) fn with_input(self, input: RawJson<'a>) -> Self {
        Fragment { input: Some(input), ..self }
    }

    fn has_input(&self) -> bool {
        self.input.is_some_and(|input| input.text() != "\"\"")
    }

    /// An empty shell, as one provider adds to every message.
    pub(super) fn is_void(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && !self.has_input()
    }

    /// The input begins an object anew.
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

/// The calls of one choice.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Call>,
    /// Where they stand, once they are many.
    places: Option<Box<Places>>,
    /// Calls that are open and were complete when they were last added to: those that another call may end.
    ready: Vec<usize>,
    /// Calls that were opened since all were last ended.
    opened: Vec<usize>,
    /// Something was called.
    called: bool,
}

/// Calls among which one is found by a scan.
const FEW: usize = 16;

/// Where calls stand: by their places, by their ids, and by both.
#[derive(Debug, Default)]
struct Places {
    by_place: Index,
    by_id: Index,
    by_both: Index,
}

impl Places {
    fn named(&mut self, call: &Call, at: usize) {
        self.by_id.put(Key::of(&*call.id), at);
        self.by_both.put(Key::of((&*call.id, call.place)), at);
    }
}

#[derive(Debug)]
struct Call {
    place: Option<u64>,
    id: String,
    name: String,
    /// Input that came before the name.
    early: String,
    /// The block, once the name is known.
    block: Option<u32>,
    open: bool,
    /// It stands among those that another call may end.
    ready: bool,
    filled: bool,
    /// Its input came as an object, to which nothing can be added.
    whole: bool,
    kind: ToolKind,
    nesting: Nesting,
}

impl Calls {
    /// Whether anything was called.
    pub(super) fn any(&self) -> bool {
        self.called
    }

    /// Takes a fragment.
    pub(super) fn take(
        &mut self,
        fragment: &Fragment<'_>,
        choice: u32,
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let found = self.find(fragment);
        if found.is_none() {
            if let Some(places) = &mut self.places {
                places.by_place.put(Key::of(fragment.place), self.list.len());
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
            if self.places.is_none() && self.list.len() > FEW {
                let mut places = Box::<Places>::default();
                for (at, call) in self.list.iter().enumerate() {
                    places.by_place.put(Key::of(call.place), at);
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
            Some(places) => places.by_place.last(Key::of(place)),
        }
    }

    /// The last call with this id: in this place, if a place is said.
    fn with_id(&self, id: &str, place: Option<u64>) -> Option<usize> {
        match (&self.places, place) {
            (None, _) => {
                let fits = |call: &Call| call.id == id && (place.is_none() || call.place == place);
                self.list.iter().rposition(fits)
            }
            (Some(places), None) => places.by_id.last(Key::of(id)),
            (Some(places), Some(_)) => places.by_both.last(Key::of((id, place))),
        }
    }

    /// The call that a fragment belongs to; nothing for a new one.
    fn find(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let of_place = match fragment.place {
            Some(_) => self.at_place(fragment.place),
            None => self.list.len().checked_sub(1),
        };
        if !fragment.id.is_empty() {
            if let Some(at) = self.with_id(fragment.id.escaped(), fragment.place) {
                return Some(at);
            }
            // A new id without a name goes on with the call: some make up an id for every fragment. With a name it
            // is a new call, unless the call in that place still waits for both.
            let waits = |at: &usize| self.list.get(*at).is_some_and(|call| call.block.is_none());
            return of_place.filter(|at| fragment.name.is_empty() || waits(at));
        }
        let at = of_place?;
        let call = self.list.get(at)?;
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
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        if !fragment.name.is_empty() {
            self.close_complete(sink);
        }
        // A provider that repeats an id cannot tell the calls apart; the client must be able to.
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
        if !fragment.seal.is_empty() {
            sink(Event::Delta { index: block, delta: Delta::Seal(fragment.seal) });
        }
        let early = std::mem::take(&mut call.early);
        call.send(JsonStr::from_escaped(&early), sink);
    }

    /// Ends the calls that can have nothing more to come. Fragments of several calls may be mixed, so the others stay
    /// open until the choice ends.
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

    /// Ends all calls.
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
            // Some give the object itself.
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

/// How deep the text of an object has come, which arrives in pieces and still escaped.
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

    fn complete(&mut self) {
        *self = Nesting { begun: true, ..Nesting::default() };
    }

    fn read(&mut self, text: JsonStr<'_>) {
        let mut bytes = text.escaped().bytes();
        while let Some(byte) = bytes.next() {
            // One layer of escapes is the string's around the object's text.
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

/// The character of four hexadecimal digits, or a blank if it is none that matters here.
fn ascii_of(digits: impl Iterator<Item = u8>) -> u8 {
    let code = digits.fold(0u32, |code, digit| code << 4 | char::from(digit).to_digit(16).unwrap_or(0));
    u8::try_from(code).ok().filter(u8::is_ascii).unwrap_or(b' ')
}
