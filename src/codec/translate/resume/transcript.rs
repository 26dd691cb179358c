//! Transcript of the content that the client has received of a response.

use smallvec::SmallVec;

use crate::canonical::{BlockKind, Delta, Event, Start};
use crate::wire::Format;
use json::{JsonStr, push_escaped};

/// Maximum size of the recorded text, in bytes. A longer response is not continued.
const MOST: usize = 256 * 1024;

/// Reason why no other provider can continue a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The text is too long.
    Long,
    /// The response has content other than text: a tool call, an image, a citation, a refusal.
    Content,
    /// The response has signed reasoning, or ends inside reasoning.
    Thinking,
    /// The response is complete except for its last frame.
    Ended,
    /// The request asks for more than text: structured output, several choices, log probabilities.
    Request,
}

impl Unfit {
    /// Returns the label in the metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Unfit::Long => "long",
            Unfit::Content => "content",
            Unfit::Thinking => "thinking",
            Unfit::Ended => "ended",
            Unfit::Request => "request",
        }
    }
}

/// Prefill: the start of a response that a provider is to continue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefill {
    /// Text without trailing white space, as the inside of a JSON string.
    text: String,
    /// Trailing white space. Some providers refuse a prefill that ends with it, and models write it again.
    pub(super) space: String,
}

impl Prefill {
    fn of(plain: &str) -> Self {
        let kept = plain.trim_end();
        let space = plain.get(kept.len()..).unwrap_or_default().to_owned();
        let mut text = Vec::with_capacity(kept.len() + kept.len() / 16);
        push_escaped(&mut text, kept);
        Prefill { text: String::from_utf8(text).unwrap_or_default(), space }
    }

    /// Returns true if there is no text, so that the provider starts the response anew.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the text without trailing white space.
    pub fn text(&self) -> JsonStr<'_> {
        JsonStr::from_escaped(&self.text)
    }
}

/// Transcript of one response.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    start: Option<Begun>,
    blocks: SmallVec<[Noted; 2]>,
    length: usize,
    unfit: Option<Unfit>,
}

#[derive(Debug, Default)]
struct Begun {
    id: String,
    model: String,
    created: Option<u64>,
}

#[derive(Debug)]
struct Noted {
    thought: bool,
    open: bool,
    /// Text, as the inside of a JSON string.
    text: String,
}

impl Transcript {
    /// Records an event that is forwarded to the client.
    #[inline]
    pub(super) fn record(&mut self, event: &Event<'_>) {
        if self.unfit.is_some() {
            return;
        }
        match *event {
            Event::Delta { index, delta: Delta::Text(text) } => {
                let text = text.escaped();
                // Count the text even if its block is unknown: the limit bounds memory and the size of the next
                // request.
                self.length += text.len();
                if self.length > MOST {
                    self.give_up(Unfit::Long);
                } else if let Some(block) = self.blocks.get_mut(index as usize) {
                    block.text.push_str(text);
                }
            }
            // Signed reasoning is valid only at the provider that signed it.
            Event::Delta { delta: Delta::Signature(_), .. } => self.give_up(Unfit::Thinking),
            Event::Delta { .. } => self.give_up(Unfit::Content),
            Event::Start(start) => {
                let own = |text: JsonStr<'_>| text.escaped().to_owned();
                let (id, model) = (own(start.id), own(start.model));
                self.start = Some(Begun { id, model, created: start.created });
            }
            Event::BlockStart { choice, kind, .. } => match kind {
                _ if choice != 0 => self.give_up(Unfit::Content),
                BlockKind::Text => self.begin(false),
                BlockKind::Reasoning => self.begin(true),
                BlockKind::HiddenReasoning => self.give_up(Unfit::Thinking),
                _ => self.give_up(Unfit::Content),
            },
            Event::BlockStop { index } => {
                if let Some(block) = self.blocks.get_mut(index as usize) {
                    block.open = false;
                }
            }
            // Once a finish reason is forwarded, further text would contradict it.
            Event::Finish { .. } | Event::End | Event::Error(_) => self.give_up(Unfit::Ended),
            Event::Usage(_) | Event::Ping => {}
        }
    }

    fn begin(&mut self, thought: bool) {
        self.blocks.push(Noted { thought, open: true, text: String::new() });
    }

    /// Marks the response as unfit and frees the recorded text.
    #[cold]
    fn give_up(&mut self, why: Unfit) {
        self.unfit = Some(why);
        self.blocks = SmallVec::new();
    }

    /// Returns the reason why no provider can continue; `None` if none is known so far.
    pub(super) fn unfit(&self) -> Option<Unfit> {
        self.unfit
    }

    /// Returns the start event; `None` if the client has not received it.
    pub(super) fn start(&self) -> Option<Start<'_>> {
        self.start.as_ref().map(|begun| Start {
            id: JsonStr::from_escaped(&begun.id),
            model: JsonStr::from_escaped(&begun.model),
            created: begun.created,
        })
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    /// Returns the index of the open block, if there is one.
    pub(super) fn open(&self) -> Option<u32> {
        let at = self.blocks.iter().position(|block| block.open)?;
        u32::try_from(at).ok()
    }

    /// Returns true if there is reasoning.
    pub(super) fn has_thoughts(&self) -> bool {
        self.blocks.iter().any(|block| block.thought)
    }

    /// Replays the transcript into an encoder of this format whose output is discarded.
    pub(super) fn replay(&self, format: Format, sink: &mut impl FnMut(&Event<'_>)) {
        let Some(start) = self.start() else { return };
        sink(&Event::Start(start));
        for (index, block) in (0..).zip(&self.blocks) {
            let kind = if block.thought { BlockKind::Reasoning } else { BlockKind::Text };
            sink(&Event::BlockStart { index, choice: 0, kind });
            // The messages encoder writes the start of a block, and so counts its index, with its first content: give
            // it some.
            let empty = if format == Format::Messages { " " } else { "" };
            let text = if block.text.is_empty() { empty } else { &block.text };
            if !text.is_empty() {
                let text = JsonStr::from_escaped(text);
                sink(&Event::Delta { index, delta: Delta::Text(text) });
            }
            if !block.open {
                sink(&Event::BlockStop { index });
            }
        }
    }

    /// Returns the prefill for another provider, or the reason why there is none.
    pub(super) fn prefill(&self) -> Result<Prefill, Unfit> {
        if let Some(why) = self.unfit {
            return Err(why);
        }
        if self.blocks.iter().any(|block| block.thought && block.open) {
            return Err(Unfit::Thinking);
        }
        let texts = self.blocks.iter().filter(|block| !block.thought).map(|block| block.text.as_str());
        let text: String = texts.collect();
        let plain = JsonStr::from_escaped(&text).decode();
        // The text ends inside a surrogate pair, which cannot be sent.
        if plain.ends_with('\u{fffd}') {
            return Err(Unfit::Content);
        }
        Ok(Prefill::of(&plain))
    }
}
