//! Tables of the body members of APIs that are no conversations: embeddings, reranking and images.

use super::fields::{ARRAY, CONTENT, EXTRA, Fields, MODEL, NOTHING, OBJECT, STRING, TEXT_OR_ARRAY, bits};
use json::WantedMembers;

pub(super) static EMBEDDINGS: Fields = Fields {
    sought: &const {
        WantedMembers::new(
            &["model", "stream", "encoding_format", "input", "models", "fallbacks", "fallback_models"],
            &[],
        )
    },
    required: &[(MODEL, STRING), (CONTENT, TEXT_OR_ARRAY)],
    models: bits(&[4, 5, 6]),
    ..NOTHING
};
pub(super) static RERANK: Fields = Fields {
    sought: &const {
        WantedMembers::new(
            &["model", "stream", "query", "documents", "models", "fallbacks", "fallback_models"],
            &[],
        )
    },
    required: &[(MODEL, STRING), (EXTRA, STRING), (CONTENT, ARRAY)],
    models: bits(&[4, 5, 6]),
    ..NOTHING
};
pub(super) static IMAGES: Fields = Fields {
    sought: &const { WantedMembers::new(&["model", "stream", "size", "prompt"], &[]) },
    required: &[(MODEL, STRING)],
    ..NOTHING
};
pub(super) static PREDICT: Fields = Fields {
    sought: &const { WantedMembers::new(&["model", "stream", "parameters", "instances"], &[]) },
    required: &[(CONTENT, ARRAY)],
    ..NOTHING
};
pub(super) static EMBED_CONTENT: Fields = Fields {
    sought: &const { WantedMembers::new(&["model", "stream", "requests", "content"], &[]) },
    required: &[(CONTENT, OBJECT)],
    ..NOTHING
};
pub(super) static BATCH_EMBED: Fields = Fields {
    sought: &const { WantedMembers::new(&["model", "stream", "content", "requests"], &[]) },
    required: &[(CONTENT, ARRAY)],
    ..NOTHING
};
