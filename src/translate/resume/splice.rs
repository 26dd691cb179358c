//! Where one provider's answer ends and another's goes on: the second beginning, and what is said twice, are taken out.

use smallvec::SmallVec;

use super::transcript::{Prefill, Transcript};
use crate::canonical::{BlockKind, Delta, Event, Usage};
use crate::json::{JsonStr, push_escaped};

/// Splice of two streams: what a continued stream must look like behind what the client has already.
#[derive(Debug)]
pub(super) struct Splice {
    started: bool,
    /// Which block of the client's a block of this provider is; those that the client does not see are none.
    places: SmallVec<[Option<u32>; 4]>,
    /// The client's next block.
    next: u32,
    /// The client's block that is open, until this provider has begun one.
    open: Option<u32>,
    /// The answer had text or reasoning: more reasoning has no place behind it.
    spoken: bool,
    /// What may be said twice.
    joint: OverlapTrimmer,
    /// What was used before.
    before: Usage,
    /// Some of it was counted.
    pub(super) counted: bool,
}

/// Overlap trimmer: removes what a provider repeats of the text that the client has already.
#[derive(Debug, Default)]
struct OverlapTrimmer {
    /// The whole beginning, if the provider repeats it.
    echo: String,
    /// What may be the repetition, as far as it has come.
    heard: String,
    /// The white space at its end, which no provider was given.
    space: String,
}

impl OverlapTrimmer {
    fn is_over(&self) -> bool {
        self.echo.is_empty() && self.space.is_empty()
    }

    /// What is new in a text.
    fn fit(&mut self, text: &str) -> String {
        let mut rest = text.to_owned();
        if !self.echo.is_empty() {
            self.heard.push_str(text);
            if self.heard.len() < self.echo.len() && self.echo.starts_with(&self.heard) {
                return String::new();
            }
            let echo = std::mem::take(&mut self.echo);
            rest = std::mem::take(&mut self.heard);
            if let Some(new) = rest.strip_prefix(&*echo) {
                rest = new.to_owned();
            }
        }
        self.fit_space(&rest).to_owned()
    }

    fn fit_space<'t>(&mut self, text: &'t str) -> &'t str {
        let same = |(a, b): &(char, char)| a == b;
        let alike: usize =
            text.chars().zip(self.space.chars()).take_while(same).map(|(c, _)| c.len_utf8()).sum();
        let rest = text.get(alike..).unwrap_or_default();
        // More of it may follow only where nothing else has.
        if rest.is_empty() {
            self.space.drain(..alike);
        } else {
            self.space.clear();
        }
        rest
    }

    /// What was taken for a repetition and is none.
    fn give_back(&mut self) -> String {
        self.echo.clear();
        let heard = std::mem::take(&mut self.heard);
        self.fit_space(&heard).to_owned()
    }
}

impl Splice {
    pub(super) fn new(
        transcript: &Transcript,
        prefill: &Prefill,
        echo: Option<&Prefill>,
        before: Usage,
        counted: bool,
    ) -> Self {
        let echo = echo.map(|echo| echo.text().decode().into_owned()).unwrap_or_default();
        Splice {
            started: transcript.start().is_some(),
            places: SmallVec::new(),
            next: transcript.blocks(),
            open: transcript.open(),
            spoken: transcript.blocks() > 0,
            joint: OverlapTrimmer { echo, heard: String::new(), space: prefill.space.clone() },
            before,
            counted,
        }
    }

    /// What was used in all: the prompt once, as the first provider had it, and all output.
    pub(super) fn total(&self, now: &Usage) -> Usage {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        let before = &self.before;
        Usage {
            output: sum(before.output, now.output),
            reasoning: sum(before.reasoning, now.reasoning),
            audio_output: sum(before.audio_output, now.audio_output),
            image_output: sum(before.image_output, now.image_output),
            searches: sum(before.searches, now.searches),
            ..*before
        }
    }

    pub(super) fn event(&mut self, event: &Event<'_>, sink: &mut impl FnMut(&Event<'_>)) {
        match *event {
            Event::Start(_) => {
                if !std::mem::replace(&mut self.started, true) {
                    sink(event);
                }
            }
            Event::BlockStart { choice, kind, .. } => {
                let place = self.place(choice, kind, sink);
                self.places.push(place);
            }
            Event::Delta { index, delta } => {
                let Some(place) = self.place_of(index) else { return };
                match delta {
                    Delta::Text(text) if !self.joint.is_over() => {
                        let new = self.joint.fit(&text.decode());
                        say(place, &new, sink);
                    }
                    delta => sink(&Event::Delta { index: place, delta }),
                }
            }
            Event::BlockStop { index } => {
                let Some(place) = self.place_of(index) else { return };
                let back = self.joint.give_back();
                say(place, &back, sink);
                sink(&Event::BlockStop { index: place });
            }
            Event::Finish { .. } => {
                self.close(sink);
                sink(event);
            }
            _ => sink(event),
        }
    }

    fn place_of(&self, index: u32) -> Option<u32> {
        self.places.get(index as usize).copied().flatten()
    }

    /// Where a block goes.
    fn place(&mut self, choice: u32, kind: BlockKind<'_>, sink: &mut impl FnMut(&Event<'_>)) -> Option<u32> {
        let thought = matches!(kind, BlockKind::Reasoning | BlockKind::HiddenReasoning);
        if choice != 0 || (thought && self.spoken) {
            return None;
        }
        if kind == BlockKind::Text {
            self.spoken = true;
            if let Some(open) = self.open.take() {
                return Some(open);
            }
        }
        self.close(sink);
        let index = self.next;
        self.next += 1;
        sink(&Event::BlockStart { index, choice, kind });
        Some(index)
    }

    /// Ends the block that this provider did not go on with.
    fn close(&mut self, sink: &mut impl FnMut(&Event<'_>)) {
        if let Some(index) = self.open.take() {
            sink(&Event::BlockStop { index });
        }
    }
}

/// Adds a plain text to a block.
fn say(index: u32, plain: &str, sink: &mut impl FnMut(&Event<'_>)) {
    if plain.is_empty() {
        return;
    }
    let mut text = Vec::with_capacity(plain.len() + 16);
    push_escaped(&mut text, plain);
    let text = String::from_utf8(text).unwrap_or_default();
    sink(&Event::Delta { index, delta: Delta::Text(JsonStr::from_escaped(&text)) });
}
