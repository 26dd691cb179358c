//! The members of a body that matter to each API before it is routed.

use super::Api;
use crate::json::Kind;

/// The members of the outermost object that matter to an API.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    /// Names, in the order of the indexes below.
    pub(super) names: &'static [&'static str],
    /// Which of them must be there, with the kinds that they may have.
    pub(super) required: &'static [(usize, &'static [Kind])],
    /// Which of them limit the output, or hold what does; the largest counts.
    pub(super) caps: &'static [usize],
    /// Spellings of other APIs for the same, which some providers know as well.
    pub(super) loose: &'static [usize],
    /// Which of them say how many answers are wanted.
    pub(super) counts: &'static [usize],
    /// Which of them name other models that may answer instead.
    pub(super) models: &'static [usize],
    /// What names the conversation, where there is one.
    pub(super) conversing: Option<Conversing>,
}

/// Index of `model` in every list of names below.
pub(super) const MODEL: usize = 0;
/// Index of `stream`.
pub(super) const STREAM: usize = 1;
/// Index of `stream_options`, `prompt`, `max_tokens`, `query` or `generateContentRequest`: the one that each API adds.
pub(super) const EXTRA: usize = 2;
/// Index of what the request is about.
pub(super) const CONTENT: usize = 3;
/// Index of another spelling of [`EXTRA`].
pub(super) const EXTRA_SNAKE: usize = 4;

/// Index of whether a response may be kept by its vendor.
pub(super) const STORE: usize = 14;

/// What a request names its conversation by: the indexes of members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conversing {
    /// What its client calls the conversation, or whom it is with.
    pub(super) label: usize,
    /// What its vendor has of the conversation.
    pub(super) kept: &'static [usize],
}

const STRING: &[Kind] = &[Kind::String];
const ARRAY: &[Kind] = &[Kind::Array];
const NUMBER: &[Kind] = &[Kind::Number];
const TEXT_OR_ARRAY: &[Kind] = &[Kind::String, Kind::Array];
const OBJECT: &[Kind] = &[Kind::Object];

/// What no member says.
const NOTHING: Fields =
    Fields { names: &[], required: &[], caps: &[], loose: &[], counts: &[], models: &[], conversing: None };
const CHAT: Fields = Fields {
    names: &[
        "model",
        "stream",
        "stream_options",
        "messages",
        "max_completion_tokens",
        "max_tokens",
        "n",
        "prompt_cache_key",
        "models",
        "fallbacks",
        "fallback_models",
        "providerOptions",
        "best_of",
        "max_output_tokens",
        "max_new_tokens",
    ],
    required: &[(MODEL, STRING), (CONTENT, ARRAY)],
    caps: &[4, 5],
    loose: &[13, 14],
    counts: &[6, 12],
    models: &[8, 9, 10, 11],
    conversing: Some(Conversing { label: 7, kept: &[] }),
};
const MESSAGES: Fields = Fields {
    names: &[
        "model",
        "stream",
        "max_tokens",
        "messages",
        "metadata",
        "models",
        "fallbacks",
        "fallback_models",
        "providerOptions",
    ],
    required: &[(MODEL, STRING), (CONTENT, ARRAY), (EXTRA, NUMBER)],
    caps: &[EXTRA],
    loose: &[],
    counts: &[],
    models: &[5, 6, 7, 8],
    conversing: Some(Conversing { label: 4, kept: &[] }),
};
const COUNT_TOKENS: Fields = Fields {
    names: &["model", "stream", "max_tokens", "messages"],
    required: &[(MODEL, STRING), (CONTENT, ARRAY)],
    ..NOTHING
};
const RESPONSES: Fields = Fields {
    names: &[
        "model",
        "stream",
        "prompt",
        "input",
        "max_output_tokens",
        "prompt_cache_key",
        "previous_response_id",
        "conversation",
        "models",
        "fallbacks",
        "fallback_models",
        "providerOptions",
        "max_tokens",
        "max_completion_tokens",
        "store",
    ],
    required: &[(MODEL, STRING), (CONTENT, TEXT_OR_ARRAY)],
    caps: &[4],
    loose: &[12, 13],
    counts: &[],
    models: &[8, 9, 10, 11],
    conversing: Some(Conversing { label: 5, kept: &[6, 7] }),
};
const EMBEDDINGS: Fields = Fields {
    names: &["model", "stream", "encoding_format", "input", "models", "fallbacks", "fallback_models"],
    required: &[(MODEL, STRING), (CONTENT, TEXT_OR_ARRAY)],
    models: &[4, 5, 6],
    ..NOTHING
};
const RERANK: Fields = Fields {
    names: &["model", "stream", "query", "documents", "models", "fallbacks", "fallback_models"],
    required: &[(MODEL, STRING), (EXTRA, STRING), (CONTENT, ARRAY)],
    models: &[4, 5, 6],
    ..NOTHING
};
const IMAGES: Fields =
    Fields { names: &["model", "stream", "size", "prompt"], required: &[(MODEL, STRING)], ..NOTHING };
const PREDICT: Fields = Fields {
    names: &["model", "stream", "parameters", "instances"],
    required: &[(CONTENT, ARRAY)],
    ..NOTHING
};
const GENERATE: Fields = Fields {
    names: &[
        "model",
        "stream",
        "generateContentRequest",
        "contents",
        "generate_content_request",
        "generationConfig",
        "generation_config",
    ],
    required: &[(CONTENT, ARRAY)],
    caps: &[5, 6],
    ..NOTHING
};
const EMBED_CONTENT: Fields =
    Fields { names: &["model", "stream", "requests", "content"], required: &[(CONTENT, OBJECT)], ..NOTHING };
const BATCH_EMBED: Fields =
    Fields { names: &["model", "stream", "content", "requests"], required: &[(CONTENT, ARRAY)], ..NOTHING };

pub(super) fn fields(api: Api, batch: bool) -> Fields {
    match api {
        Api::Messages => MESSAGES,
        Api::CountTokens => COUNT_TOKENS,
        Api::Responses => RESPONSES,
        Api::Generate => GENERATE,
        Api::EmbedContent if batch => BATCH_EMBED,
        Api::EmbedContent => EMBED_CONTENT,
        Api::Embeddings => EMBEDDINGS,
        Api::Rerank => RERANK,
        Api::Images if batch => PREDICT,
        Api::Images => IMAGES,
        _ => CHAT,
    }
}
