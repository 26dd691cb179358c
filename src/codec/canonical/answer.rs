//! Collected response: the events of a stream, folded into one value. Both whole JSON responses and streams pass
//! through the same events, so that they have the same meaning.

use super::{BlockKind, Delta, Event, Finish, SourceLocation, ToolKind, Usage};
use json::JsonStr;

/// Maximum number of choices of a response. No provider generates more than 128 for one request. Without this limit a
/// forged choice number would make loops over the choices run that often.
pub const MAX_CHOICES: u32 = 1_024;

/// Maximum number of blocks of a response. A response of a million tokens with a tool call for each four tokens has
/// fewer.
pub const MAX_BLOCKS: u32 = 262_144;

/// Choice of a response.
#[derive(Clone, Debug, Default)]
pub struct AnswerChoice<'a> {
    /// Blocks, in order.
    pub blocks: Vec<&'a AnswerBlock>,
    /// Finish reason; `None` if the choice did not finish.
    pub finish: Option<&'a FinishOwned>,
}

/// Collected response. Texts are stored as the insides of JSON strings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Response id of the provider; may be empty.
    pub id: String,
    /// Model name as the provider reports it; may be empty.
    pub model: String,
    /// Creation time, in Unix seconds.
    pub created: Option<u64>,
    /// Blocks of all choices, in order.
    pub blocks: Vec<AnswerBlock>,
    /// Finish reasons with their choice, in order of arrival; choices that did not finish have no entry.
    pub finishes: Vec<(u32, FinishOwned)>,
    /// Usage, cumulative.
    pub usage: Usage,
    /// Error that the provider sent in the response, as JSON text.
    pub error: Option<String>,
    /// Whether the response ended with [`Event::End`].
    pub complete: bool,
}

/// Block of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerBlock {
    /// Choice that the block belongs to.
    pub choice: u32,
    /// Kind of the block.
    pub kind: AnswerBlockKind,
    /// Text; for a tool call its input (for a function the text of an object, escaped); for media the bytes in base64.
    pub text: String,
    /// Arguments of a function, if they arrived as an object; `text` is empty then.
    pub object: Option<String>,
    /// Address of media, if it arrived so; `text` is empty then.
    pub url: Option<String>,
    /// Provider signature; may be empty.
    pub signature: String,
    /// Citations of the text.
    pub citations: Vec<CitationOwned>,
    /// Log probabilities: the elements of the array, joined with commas, without brackets.
    pub logprobs: String,
}

/// Kind of a block; see [`BlockKind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerBlockKind {
    /// Visible text.
    Text,
    /// Refusal.
    Refusal,
    /// Visible reasoning.
    Reasoning,
    /// Reasoning without text, which only has a provider signature.
    HiddenReasoning,
    /// Tool call.
    ToolUse {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// Function or custom tool.
        kind: ToolKind,
        /// Namespace of the tool; usually empty.
        namespace: String,
    },
    /// Generated media.
    Media {
        /// Media type.
        mime: String,
    },
    /// Block that only its own format can represent.
    Opaque {
        /// Type of the block.
        name: String,
        /// JSON value of the block at its start.
        raw: String,
    },
}

/// Citation, owned; see [`super::Citation`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CitationOwned {
    /// Address of a web page; may be empty.
    pub url: String,
    /// Title of the source.
    pub title: String,
    /// Cited passage of the source.
    pub quote: String,
    /// Name that the client gave a search result; may be empty.
    pub source: String,
    /// Place of the passage in the request. `None` for web pages and if the provider reports none.
    pub location: Option<SourceLocation>,
    /// Cited range of the text, in characters: start (inclusive) and end (exclusive).
    pub span: Option<(u64, u64)>,
}

impl CitationOwned {
    /// Borrows it in the form that an event carries.
    pub fn borrow(&self) -> super::Citation<'_> {
        super::Citation {
            url: JsonStr::from_escaped(&self.url),
            title: JsonStr::from_escaped(&self.title),
            quote: JsonStr::from_escaped(&self.quote),
            source: JsonStr::from_escaped(&self.source),
            location: self.location,
            span: self.span,
        }
    }

    /// Copies a borrowed citation.
    pub fn own(citation: &super::Citation<'_>) -> Self {
        CitationOwned {
            url: citation.url.escaped().to_owned(),
            title: citation.title.escaped().to_owned(),
            quote: citation.quote.escaped().to_owned(),
            source: citation.source.escaped().to_owned(),
            location: citation.location,
            span: citation.span,
        }
    }
}

/// Finish reason, owned; see [`Finish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishOwned {
    /// The answer is complete.
    Stop,
    /// Stop sequence, with its text if it is known.
    StopSequence(Option<String>),
    /// Output token limit reached.
    Length,
    /// Context window full.
    ContextFull,
    /// Tool calls.
    ToolUse,
    /// Content filter or refusal.
    ContentFilter,
    /// Paused by the provider.
    Pause,
    /// Another reason, in the provider's own word.
    Other(String),
}

impl FinishOwned {
    /// Borrows it in the form that an event carries.
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

    /// Copies a borrowed finish reason.
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
    /// Applies an event.
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

    /// Returns the number of choices: at least 1, at most [`MAX_CHOICES`].
    pub fn choices(&self) -> u32 {
        let last =
            self.blocks.iter().map(|block| block.choice).chain(self.finishes.iter().map(|end| end.0)).max();
        last.map_or(1, |last| last.saturating_add(1).min(MAX_CHOICES))
    }

    /// Returns the blocks of a choice, in order.
    pub fn blocks_of(&self, choice: u32) -> impl Iterator<Item = &AnswerBlock> {
        self.blocks.iter().filter(move |block| block.choice == choice)
    }

    /// Returns all choices, indexed by their number. Numbers from [`MAX_CHOICES`] on are left out.
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

    /// Returns the finish reason of a choice; `None` if the choice did not finish.
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
            signature: String::new(),
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
            Delta::Signature(seal) => seal.escaped().clone_into(&mut self.signature),
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
