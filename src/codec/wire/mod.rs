//! Wire formats of the LLM APIs: parsing and writing of requests, responses and streams.
//!
//! This module holds the five chat formats ([`Format`]), the endpoints and their URL paths ([`path`]), the facts that
//! are read from a request, response or frame without translating it ([`request`], [`watch`]), and the error bodies of
//! each format ([`error`]). Each format has its own folder with decoder and encoder side by side, for requests, streams
//! and whole responses. Formats never import each other. Their codecs share [`codec`] and [`schema`]; [`loss`] decides
//! about elements that a target format cannot carry, [`finish_words`] what the end of a response means. [`form`] reads multipart form bodies of any endpoint.
//!
//! Providers and their quirks (`provider`), sockets, and translation between two formats (`translate`) must not live
//! here.

mod answered_calls;
mod automatic_marks;
mod base_resp;
pub mod body_facts;
mod body_members;
pub mod breakpoints;
mod cache_key;
mod catalogue;
pub mod chat;
pub mod codec;
pub mod content_last;
pub mod converse;
mod converse_fields;
pub mod count_tokens;
pub mod embeddings;
pub mod encoded_twice;
pub mod error;
pub mod features;
mod fields;
mod filler;
pub mod finish_words;
pub mod form;
pub mod generate;
pub mod images;
mod invoke_body;
pub mod loss;
mod member_removal;
pub mod messages;
pub mod models;
pub mod overflow;
mod own_settings;
pub mod path;
pub mod pieces;
mod plain_fields;
pub mod prompt;
mod prompt_sections;
mod provenance;
mod query;
mod query_path;
mod ranges;
mod read;
pub mod refused_elements;
pub mod request;
pub mod rerank;
pub mod responses;
pub mod root_schema;
pub mod schema;
pub mod spelling;
mod strict_schema;
pub mod tasks;
mod tier_request;
mod tier_words;
pub mod video;
pub mod watch;

#[cfg(test)]
mod tests;

use std::fmt;

pub use filler::filler;

/// Wire format of a chat API.
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
    /// Converse of Amazon Bedrock.
    Converse,
}

impl Format {
    /// All five formats.
    pub const ALL: [Format; 5] =
        [Format::Chat, Format::Messages, Format::Responses, Format::Generate, Format::Converse];

    /// Returns the name in configuration, metrics and documentation.
    pub const fn name(self) -> &'static str {
        self.api().name()
    }

    /// Returns the API that uses this format.
    pub const fn api(self) -> Api {
        match self {
            Format::Chat => Api::Chat,
            Format::Messages => Api::Messages,
            Format::Responses => Api::Responses,
            Format::Generate => Api::Generate,
            Format::Converse => Api::Converse,
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
    /// Amazon Bedrock: `/model/{model}/converse` and `/model/{model}/converse-stream`.
    Converse,
    /// OpenAI embeddings: `/embeddings`.
    Embeddings,
    /// Gemini embeddings: `/models/{model}:embedContent` and `:batchEmbedContents`.
    EmbedContent,
    /// Reranking: `/rerank`.
    Rerank,
    /// Images: `/images/generations`.
    Images,
    /// Video generation tasks.
    Videos,
    /// Anthropic token counting: `/messages/count_tokens`.
    CountTokens,
    /// Endpoints of the task group.
    Tasks,
}

impl Api {
    /// All APIs, in the order of the configuration's documentation.
    pub const ALL: [Api; 12] = [
        Api::Chat,
        Api::Messages,
        Api::Responses,
        Api::Generate,
        Api::Converse,
        Api::Embeddings,
        Api::EmbedContent,
        Api::Rerank,
        Api::Images,
        Api::Videos,
        Api::CountTokens,
        Api::Tasks,
    ];

    /// Returns the name in configuration, metrics and documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Api::Chat => "chat",
            Api::Messages => "messages",
            Api::Responses => "responses",
            Api::Generate => "generate",
            Api::Converse => "converse",
            Api::Embeddings => "embeddings",
            Api::EmbedContent => "embed_content",
            Api::Rerank => "rerank",
            Api::Images => "images",
            Api::Videos => "videos",
            Api::CountTokens => "count_tokens",
            Api::Tasks => "tasks",
        }
    }

    /// Returns the API with this name. `None` if the name is unknown.
    pub fn from_name(name: &str) -> Option<Api> {
        Api::ALL.into_iter().find(|api| api.name() == name)
    }

    /// Returns the chat format of this API. `None` for APIs that do not use one of the formats.
    pub const fn format(self) -> Option<Format> {
        match self {
            Api::Chat => Some(Format::Chat),
            Api::Messages => Some(Format::Messages),
            Api::Responses => Some(Format::Responses),
            Api::Generate => Some(Format::Generate),
            Api::Converse => Some(Format::Converse),
            _ => None,
        }
    }

    /// Returns the format in which this API's clients expect error bodies.
    pub const fn error_format(self) -> Format {
        match self {
            Api::Messages | Api::CountTokens => Format::Messages,
            Api::Responses => Format::Responses,
            Api::Generate | Api::EmbedContent => Format::Generate,
            Api::Converse => Format::Converse,
            _ => Format::Chat,
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
