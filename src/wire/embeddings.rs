//! Embeddings in the list format (OpenAI `POST /v1/embeddings`): what an answer tells the meter.

use crate::canonical::Usage;
use crate::json::{Cursor, JsonError};
use crate::wire::watch::{End, Sight, placed_string};

/// Reads one whole answer of the list format, or of Gemini's `embedContent` and `batchEmbedContents`.
///
/// # Errors
/// The answer is not JSON or not an object.
pub fn answer(body: &str) -> Result<Sight<'_>, JsonError> {
    let mut sight = Sight { content: true, ..Sight::default() };
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "id" => sight.id = json.raw()?.as_str(),
            "model" => sight.model_at = placed_string(&mut json)?,
            "usage" => sight.usage = Some(only_input(super::chat::watch::usage(json.raw()?)?)),
            "usageMetadata" => sight.usage = Some(only_input(super::generate::watch::usage(json.raw()?)?)),
            "error" => sight.error = Some(json.raw()?).filter(|error| !error.is_void()),
            _ => json.skip()?,
        }
    }
    json.end()?;
    if sight.error.is_some() {
        sight.end = End::Failed;
    }
    Ok(sight)
}

/// Embeddings have no output tokens; some vendors say so with a zero.
fn only_input(usage: Usage) -> Usage {
    Usage { input: usage.input, ..Usage::default() }
}
