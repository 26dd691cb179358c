//! Splice of two streams: removes the second start event and repeated text when another provider continues a response.

use smallvec::SmallVec;

use super::transcript::{Prefill, Transcript};
use crate::canonical::{BlockKind, Delta, Event, Usage};
use json::{JsonStr, push_escaped};

/// Splice of two streams: fits a continuation to the content that the client has already.
#[derive(Debug)]
pub(super) struct Splice {
    started: bool,
    /// Maps this provider's block index to the client's; `None` for a suppressed block.
    places: SmallVec<[Option<u32>; 4]>,
    /// Index of the client's next block.
    next: u32,
    /// Client's block that is still open; `None` once this provider has started a block.
    open: Option<u32>,
    /// Whether the response has content already, so that further reasoning must be suppressed.
    spoken: bool,
    /// Trimmer of repeated text.
    trimmer: OverlapTrimmer,
    /// Usage of the previous providers.
    before: Usage,
    /// Whether some of it was counted by the gateway.
    pub(super) counted: bool,
}

/// Overlap trimmer: removes what a provider repeats of the text that the client has already.
#[derive(Debug, Default)]
struct OverlapTrimmer {
    /// Whole prefill, if the provider repeats it; empty once it has been checked.
    echo: String,
    /// Text that may be the repetition, as far as it has arrived.
    pending: String,
    /// White space at the end of the forwarded text, which was not part of the prefill and which models often repeat.
    space: String,
}

impl OverlapTrimmer {
    fn is_over(&self) -> bool {
        self.echo.is_empty() && self.space.is_empty()
    }

    /// Returns the new part of a text.
    fn fit(&mut self, text: &str) -> String {
        let mut rest = text.to_owned();
        if !self.echo.is_empty() {
            self.pending.push_str(text);
            // So far the text equals the prefill: withhold it until the repetition is complete or turns out to be new
            // text.
            if self.pending.len() < self.echo.len() && self.echo.starts_with(&self.pending) {
                return String::new();
            }
            let echo = std::mem::take(&mut self.echo);
            rest = std::mem::take(&mut self.pending);
            // Otherwise it was no repetition, and all text that was withheld is new.
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
        // White space may continue in the next text, as long as nothing else has arrived.
        if rest.is_empty() {
            self.space.drain(..alike);
        } else {
            self.space.clear();
        }
        rest
    }

    /// Returns text that was withheld as a possible repetition and turned out to be new.
    fn give_back(&mut self) -> String {
        self.echo.clear();
        let heard = std::mem::take(&mut self.pending);
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
            trimmer: OverlapTrimmer { echo, pending: String::new(), space: prefill.space.clone() },
            before,
            counted,
        }
    }

    /// Returns the usage of all providers: the input of the first one, and the sum of all output.
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
                // The client has a start event from the first provider; a second one is invalid in every format.
                if !std::mem::replace(&mut self.started, true) {
                    sink(event);
                }
            }
            Event::BlockStart { choice, kind, .. } => {
                let place = self.place(choice, kind, sink);
                // Relies on the order of indices: block `n` is the `n`th to start.
                self.places.push(place);
            }
            Event::Delta { index, delta } => {
                let Some(place) = self.place_of(index) else { return };
                match delta {
                    Delta::Text(text) if !self.trimmer.is_over() => {
                        let new = self.trimmer.fit(&text.decode());
                        append_text(place, &new, sink);
                    }
                    delta => sink(&Event::Delta { index: place, delta }),
                }
            }
            Event::BlockStop { index } => {
                let Some(place) = self.place_of(index) else { return };
                // A block that ends inside a supposed repetition had new text after all.
                let back = self.trimmer.give_back();
                append_text(place, &back, sink);
                sink(&Event::BlockStop { index: place });
            }
            // Only the first choice is continued; the blocks of the others are suppressed.
            Event::Finish { choice, .. } if choice != 0 => {}
            Event::Finish { .. } => {
                // A block that this provider has not continued is still open at the client.
                self.close(sink);
                sink(event);
            }
            _ => sink(event),
        }
    }

    fn place_of(&self, index: u32) -> Option<u32> {
        self.places.get(index as usize).copied().flatten()
    }

    /// Returns the client's index for a new block, or `None` to suppress it.
    fn place(&mut self, choice: u32, kind: BlockKind<'_>, sink: &mut impl FnMut(&Event<'_>)) -> Option<u32> {
        let thought = matches!(kind, BlockKind::Reasoning | BlockKind::HiddenReasoning);
        // Clients expect reasoning before text, and the prefill continues the first choice only.
        if choice != 0 || (thought && self.spoken) {
            return None;
        }
        if kind == BlockKind::Text {
            self.spoken = true;
            // Continue the client's open text block instead of starting another one.
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

    /// Closes the client's open block, which this provider did not continue.
    fn close(&mut self, sink: &mut impl FnMut(&Event<'_>)) {
        if let Some(index) = self.open.take() {
            sink(&Event::BlockStop { index });
        }
    }
}

/// Appends plain text to a block.
fn append_text(index: u32, plain: &str, sink: &mut impl FnMut(&Event<'_>)) {
    if plain.is_empty() {
        return;
    }
    let mut text = Vec::with_capacity(plain.len() + 16);
    push_escaped(&mut text, plain);
    let text = String::from_utf8(text).unwrap_or_default();
    sink(&Event::Delta { index, delta: Delta::Text(JsonStr::from_escaped(&text)) });
}
