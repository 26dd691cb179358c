//! A whole answer: the events of a stream, collected. A JSON answer and a stream mean the same thing by going through
//! the same events.

use super::{BlockKind, Delta, Event, Finish, ToolKind, Usage};
use crate::json::JsonStr;

/// Choices that an answer has at most. No provider makes more than 128 for one request; a number beyond all of them
/// would be believed blindly by whoever counts up to it.
pub const MAX_CHOICES: u32 = 1_024;

/// Blocks that an answer has at most. An answer of a million tokens, with a call for each four of them, has fewer.
pub const MAX_BLOCKS: u32 = 262_144;

/// One choice of an answer.
#[derive(Clone, Debug, Default)]
pub struct AnswerChoice<'a> {
    /// Its blocks, in order.
    pub blocks: Vec<&'a AnswerBlock>,
    /// Why it ended.
    pub finish: Option<&'a FinishOwned>,
}

/// An answer, collected. Texts are kept as the insides of JSON strings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The provider's id; may be empty.
    pub id: String,
    /// The model that the provider names; may be empty.
    pub model: String,
    /// When it was made (Unix seconds).
    pub created: Option<u64>,
    /// The blocks, in order.
    pub blocks: Vec<AnswerBlock>,
    /// Why each choice ended; one entry for each choice that ended, in order of the choices.
    pub finishes: Vec<(u32, FinishOwned)>,
    /// What it used.
    pub usage: Usage,
    /// The provider's error, if the answer turned into one.
    pub error: Option<String>,
    /// The answer came to its end.
    pub complete: bool,
}

/// One block of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerBlock {
    /// The choice that it belongs to.
    pub choice: u32,
    /// What it is.
    pub kind: AnswerBlockKind,
    /// Its text; of a call its input (of a function the text of an object, escaped); of media its bytes in base64.
    pub text: String,
    /// A function's arguments, if they came as an object; `text` is empty then.
    pub object: Option<String>,
    /// Where media can be fetched, if it came so; `text` is empty then.
    pub url: Option<String>,
    /// Its seal; may be empty.
    pub seal: String,
    /// Where the text is from.
    pub citations: Vec<CitationOwned>,
    /// Log probabilities: the elements of the array, joined with commas.
    pub logprobs: String,
}

/// What a block is; see [`BlockKind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerBlockKind {
    /// Text.
    Text,
    /// A refusal.
    Refusal,
    /// Reasoning.
    Reasoning,
    /// Reasoning without text.
    HiddenReasoning,
    /// A call.
    ToolUse {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// What kind of tool.
        kind: ToolKind,
        /// The tool's group; usually empty.
        namespace: String,
    },
    /// Media.
    Media {
        /// Its media type.
        mime: String,
    },
    /// What only its own format knows.
    Opaque {
        /// Its type.
        name: String,
        /// What was said at its start: one JSON value.
        raw: String,
    },
}

/// Where a text is from; see [`super::Citation`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CitationOwned {
    /// Address.
    pub url: String,
    /// Title.
    pub title: String,
    /// Words of the source.
    pub quote: String,
    /// Characters cited.
    pub span: Option<(u64, u64)>,
}

impl CitationOwned {
    /// As an event carries it.
    pub fn borrow(&self) -> super::Citation<'_> {
        super::Citation {
            url: JsonStr::from_escaped(&self.url),
            title: JsonStr::from_escaped(&self.title),
            quote: JsonStr::from_escaped(&self.quote),
            span: self.span,
        }
    }

    /// Owned.
    pub fn own(citation: &super::Citation<'_>) -> Self {
        CitationOwned {
            url: citation.url.escaped().to_owned(),
            title: citation.title.escaped().to_owned(),
            quote: citation.quote.escaped().to_owned(),
            span: citation.span,
        }
    }
}

/// [`Finish`], owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishOwned {
    /// Complete.
    Stop,
    /// A stop sequence.
    StopSequence(Option<String>),
    /// Too long.
    Length,
    /// The context is full.
    ContextFull,
    /// Tools are called.
    ToolUse,
    /// Refused.
    ContentFilter,
    /// Paused.
    Pause,
    /// For a reason of the provider's own.
    Other(String),
}

impl FinishOwned {
    /// As an event carries it.
    pub fn borrow(&self) -> Finish<'_> {
        match self {
            FinishOwned::Stop => Finish::Stop,
            FinishOwned::StopSequence(text) => {
                Finish::StopSequence(text.as_deref().map(JsonStr::from_escaped))
            }
            FinishOwned::Length => Finish::Length,
            FinishOwned::ContextFull => Finish::ContextFull,
            FinishOwned::ToolUse => Finish::ToolUse,
            FinishOwned::ContentFilter => Finish::ContentFilter,
            FinishOwned::Pause => Finish::Pause,
            FinishOwned::Other(word) => Finish::Other(JsonStr::from_escaped(word)),
        }
    }

    /// Owned.
    pub fn own(finish: Finish<'_>) -> Self {
        match finish {
            Finish::Stop => FinishOwned::Stop,
            Finish::StopSequence(text) => {
                FinishOwned::StopSequence(text.map(|text| text.escaped().to_owned()))
            }
            Finish::Length => FinishOwned::Length,
            Finish::ContextFull => FinishOwned::ContextFull,
            Finish::ToolUse => FinishOwned::ToolUse,
            Finish::ContentFilter => FinishOwned::ContentFilter,
            Finish::Pause => FinishOwned::Pause,
            Finish::Other(word) => FinishOwned::Other(word.escaped().to_owned()),
        }
    }
}

impl Answer {
    /// Takes an event in.
    pub fn take(&mut self, event: &Event<'_>) {
        match *event {
            Event::Start(start) => {
                self.id = start.id.escaped().to_owned();
                self.model = start.model.escaped().to_owned();
                self.created = start.created;
            }
            Event::BlockStart { choice, kind, .. } => self.blocks.push(AnswerBlock::new(choice, kind)),
            Event::Delta { index, delta } => {
                if let Some(block) = self.blocks.get_mut(index as usize) {
                    block.add(delta);
                }
            }
            Event::Usage(usage) => self.usage.update(&usage),
            Event::Finish { choice, finish } => self.finishes.push((choice, FinishOwned::own(finish))),
            Event::Error(error) => self.error = Some(error.text().to_owned()),
            Event::End => self.complete = true,
            Event::BlockStop { .. } | Event::Ping => {}
        }
    }

    /// How many choices there are: one at least.
    pub fn choices(&self) -> u32 {
        let last =
            self.blocks.iter().map(|block| block.choice).chain(self.finishes.iter().map(|end| end.0)).max();
        last.map_or(1, |last| last.saturating_add(1).min(MAX_CHOICES))
    }

    /// The blocks of a choice.
    pub fn blocks_of(&self, choice: u32) -> impl Iterator<Item = &AnswerBlock> {
        self.blocks.iter().filter(move |block| block.choice == choice)
    }

    /// All choices, each in the place of its number.
    pub fn by_choice(&self) -> Vec<AnswerChoice<'_>> {
        let mut choices = vec![AnswerChoice::default(); self.choices() as usize];
        for block in &self.blocks {
            if let Some(choice) = choices.get_mut(block.choice as usize) {
                choice.blocks.push(block);
            }
        }
        for (choice, finish) in &self.finishes {
            if let Some(choice) = choices.get_mut(*choice as usize) {
                choice.finish.get_or_insert(finish);
            }
        }
        choices
    }

    /// Why a choice ended.
    pub fn finish_of(&self, choice: u32) -> Option<&FinishOwned> {
        self.finishes.iter().find(|end| end.0 == choice).map(|end| &end.1)
    }
}

impl AnswerBlock {
    fn new(choice: u32, kind: BlockKind<'_>) -> Self {
        let own = |text: JsonStr<'_>| text.escaped().to_owned();
        let kind = match kind {
            BlockKind::Text => AnswerBlockKind::Text,
            BlockKind::Refusal => AnswerBlockKind::Refusal,
            BlockKind::Reasoning => AnswerBlockKind::Reasoning,
            BlockKind::HiddenReasoning => AnswerBlockKind::HiddenReasoning,
            BlockKind::ToolUse { id, name, kind, namespace } => {
                AnswerBlockKind::ToolUse { id: own(id), name: own(name), kind, namespace: own(namespace) }
            }
            BlockKind::Media { mime } => AnswerBlockKind::Media { mime: own(mime) },
            BlockKind::Opaque { name, raw } => {
                AnswerBlockKind::Opaque { name: own(name), raw: raw.text().to_owned() }
            }
        };
        AnswerBlock {
            choice,
            kind,
            text: String::new(),
            object: None,
            url: None,
            seal: String::new(),
            citations: Vec::new(),
            logprobs: String::new(),
        }
    }

    fn add(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Text(text) | Delta::Arguments(text) | Delta::Data(text) => {
                self.text.push_str(text.escaped())
            }
            Delta::Object(object) => self.object = Some(object.text().to_owned()),
            Delta::Url(url) => self.url = Some(url.escaped().to_owned()),
            Delta::Seal(seal) => seal.escaped().clone_into(&mut self.seal),
            Delta::Citation(citation) => self.citations.push(CitationOwned::own(&citation)),
            Delta::Logprobs(list) => {
                let inside = list.text().trim_start_matches('[').trim_end_matches(']').trim();
                if !self.logprobs.is_empty() && !inside.is_empty() {
                    self.logprobs.push(',');
                }
                self.logprobs.push_str(inside);
            }
        }
    }
}
