//! What the client has been given of an answer.

use smallvec::SmallVec;

use crate::canonical::{BlockKind, Delta, Event, Start};
use crate::json::{JsonStr, push_escaped};
use crate::wire::Format;

/// Text that is noted at most (bytes). An answer that is longer is worth a provider's trouble no more.
const MOST: usize = 256 * 1024;

/// Why no other provider can go on with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is too long.
    Long,
    /// There is something in it that is not text: a call of a tool, an image, a source, a refusal.
    Content,
    /// There is reasoning in it that is signed, or not at its end.
    Thinking,
    /// All of it has come but its last frame.
    Ended,
    /// The request asks for more than text: a form, several answers, probabilities.
    Request,
}

impl Unfit {
    /// The name in the metrics.
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

/// The beginning that a provider is given to go on with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefill {
    /// The text without the white space at its end, as the inside of a JSON string.
    text: String,
    /// That white space. Some providers refuse a beginning that ends with it, and models write it again.
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

    /// Whether there is none: the provider answers as if nobody had.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The text.
    pub fn text(&self) -> JsonStr<'_> {
        JsonStr::from_escaped(&self.text)
    }
}

/// See the module.
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
    /// As the inside of a JSON string.
    text: String,
}

impl Transcript {
    /// Takes note of what the client is given.
    #[inline]
    pub(super) fn note(&mut self, event: &Event<'_>) {
        if self.unfit.is_some() {
            return;
        }
        match *event {
            Event::Delta { index, delta: Delta::Text(text) } => {
                let text = text.escaped();
                self.length += text.len();
                if self.length > MOST {
                    self.give_up(Unfit::Long);
                } else if let Some(block) = self.blocks.get_mut(index as usize) {
                    block.text.push_str(text);
                }
            }
            Event::Delta { delta: Delta::Seal(_), .. } => self.give_up(Unfit::Thinking),
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
            Event::Finish { .. } | Event::End | Event::Error(_) => self.give_up(Unfit::Ended),
            Event::Usage(_) | Event::Ping => {}
        }
    }

    fn begin(&mut self, thought: bool) {
        self.blocks.push(Noted { thought, open: true, text: String::new() });
    }

    /// What was noted is not needed any more.
    #[cold]
    fn give_up(&mut self, why: Unfit) {
        self.unfit = Some(why);
        self.blocks = SmallVec::new();
    }

    /// Why no other provider can go on, if that is so already.
    pub(super) fn unfit(&self) -> Option<Unfit> {
        self.unfit
    }

    /// How the answer began, if the client has seen that.
    pub(super) fn start(&self) -> Option<Start<'_>> {
        self.start.as_ref().map(|begun| Start {
            id: JsonStr::from_escaped(&begun.id),
            model: JsonStr::from_escaped(&begun.model),
            created: begun.created,
        })
    }

    /// Blocks that were begun.
    pub(super) fn blocks(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    /// The block that is open, if one is.
    pub(super) fn open(&self) -> Option<u32> {
        let at = self.blocks.iter().position(|block| block.open)?;
        u32::try_from(at).ok()
    }

    /// Whether there is reasoning in it.
    pub(super) fn has_thoughts(&self) -> bool {
        self.blocks.iter().any(|block| block.thought)
    }

    /// Tells all of it once more, to a writer of this format whose words nobody hears.
    pub(super) fn replay(&self, format: Format, sink: &mut impl FnMut(&Event<'_>)) {
        let Some(start) = self.start() else { return };
        sink(&Event::Start(start));
        for (index, block) in (0..).zip(&self.blocks) {
            let kind = if block.thought { BlockKind::Reasoning } else { BlockKind::Text };
            sink(&Event::BlockStart { index, choice: 0, kind });
            // Where blocks have numbers, one that is empty has its own; its writer would wait for what is in it.
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

    /// What another provider is given.
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
        // Half a character cannot be given to anybody.
        if plain.ends_with('\u{fffd}') {
            return Err(Unfit::Content);
        }
        Ok(Prefill::of(&plain))
    }
}
