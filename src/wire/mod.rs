//! The wire formats: what is said in which words.
//!
//! Here live the four formats that clients and providers speak ([`Format`]), the endpoints under which they are
//! reached ([`path`]), and what may be read from a request, an answer or a frame without translating it
//! ([`request`], [`watch`]), and how an error looks in each ([`error`]). A folder per format has what only that
//! format knows, decode beside encode: its requests, its streams, its whole answers. The formats never import each
//! other; what their codecs share is [`codec`] and [`schema`], and what is done about what they cannot say is [`loss`].
//! Bodies that are forms, whatever they ask for, are read by [`form`].
//!
//! Here must not live: who speaks a format (that is `provider`), sockets, or the meeting of two formats (`translate`).

pub mod body_facts;
mod body_members;
pub mod chat;
pub mod codec;
pub mod count_tokens;
pub mod embeddings;
pub mod error;
mod fields;
mod filler;
pub mod form;
pub mod generate;
pub mod images;
pub mod loss;
pub mod messages;
pub mod models;
pub mod path;
pub mod pieces;
pub mod prompt;
mod ranges;
pub mod request;
pub mod rerank;
pub mod responses;
pub mod schema;
pub mod spelling;
pub mod tasks;
pub mod video;
pub mod watch;

#[cfg(test)]
mod tests;

use std::fmt;

pub use filler::filler;

/// One of the four chat formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenAI chat completions.
    Chat,
    /// Anthropic messages.
    Messages,
    /// OpenAI responses.
    Responses,
    /// Gemini generateContent.
    Generate,
}

impl Format {
    /// All four.
    pub const ALL: [Format; 4] = [Format::Chat, Format::Messages, Format::Responses, Format::Generate];

    /// The name in configuration, metrics and docs.
    pub const fn name(self) -> &'static str {
        self.api().name()
    }

    /// The API that speaks this format.
    pub const fn api(self) -> Api {
        match self {
            Format::Chat => Api::Chat,
            Format::Messages => Api::Messages,
            Format::Responses => Api::Responses,
            Format::Generate => Api::Generate,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An API that a provider may offer, under its name in the configuration (`apis = [...]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI chat completions: `/chat/completions`.
    Chat,
    /// Anthropic messages: `/messages`.
    Messages,
    /// OpenAI responses: `/responses`.
    Responses,
    /// Gemini: `/models/{model}:generateContent` and `:streamGenerateContent`.
    Generate,
    /// OpenAI embeddings: `/embeddings`.
    Embeddings,
    /// Gemini embeddings: `/models/{model}:embedContent` and `:batchEmbedContents`.
    EmbedContent,
    /// Reranking: `/rerank`.
    Rerank,
    /// Images: `/images/generations`.
    Images,
    /// Video jobs.
    Videos,
    /// Anthropic token counting: `/messages/count_tokens`.
    CountTokens,
    /// Jobs of the task group.
    Tasks,
}

impl Api {
    /// All of them, in the order of the configuration's documentation.
    pub const ALL: [Api; 11] = [
        Api::Chat,
        Api::Messages,
        Api::Responses,
        Api::Generate,
        Api::Embeddings,
        Api::EmbedContent,
        Api::Rerank,
        Api::Images,
        Api::Videos,
        Api::CountTokens,
        Api::Tasks,
    ];

    /// The name in configuration, metrics and docs.
    pub const fn name(self) -> &'static str {
        match self {
            Api::Chat => "chat",
            Api::Messages => "messages",
            Api::Responses => "responses",
            Api::Generate => "generate",
            Api::Embeddings => "embeddings",
            Api::EmbedContent => "embed_content",
            Api::Rerank => "rerank",
            Api::Images => "images",
            Api::Videos => "videos",
            Api::CountTokens => "count_tokens",
            Api::Tasks => "tasks",
        }
    }

    /// The API of this name.
    pub fn from_name(name: &str) -> Option<Api> {
        Api::ALL.into_iter().find(|api| api.name() == name)
    }

    /// The chat format that this API speaks, if it is one of the four.
    pub const fn format(self) -> Option<Format> {
        match self {
            Api::Chat => Some(Format::Chat),
            Api::Messages => Some(Format::Messages),
            Api::Responses => Some(Format::Responses),
            Api::Generate => Some(Format::Generate),
            _ => None,
        }
    }

    /// The shape of this API's errors.
    pub const fn error_format(self) -> Format {
        match self {
            Api::Messages | Api::CountTokens => Format::Messages,
            Api::Responses => Format::Responses,
            Api::Generate | Api::EmbedContent => Format::Generate,
            _ => Format::Chat,
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
