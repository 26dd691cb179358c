//! Upstream embeddings responses of all providers. One reader serves them all: no member name has two meanings.
//!
//! | Provider | Vectors | Usage |
//! |---|---|---|
//! | OpenAI-compatible, Voyage, Jina | `data[].embedding`, with `index` | `usage.prompt_tokens`, or `total_tokens` |
//! | Gemini | `embedding.values`, `embeddings[].values` | `usageMetadata.promptTokenCount`, newer models only |
//! | Cohere | `embeddings.float[]` | `meta.billed_units.input_tokens` |
//! | DashScope | `output.embeddings[].embedding`, with `text_index` | `usage.total_tokens` |
//! | Amazon Titan | `embedding` | `inputTextTokenCount` |
//! | Vertex AI, `:predict` | `predictions[].embeddings.values` | `predictions[].embeddings.statistics.token_count` |

use bytes::{BufMut, BytesMut};

use super::{Broken, number};
use crate::canonical::Usage;
use crate::wire::watch::{FrameFacts, StreamEnd, placed_string};
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

/// Embedding vector as the provider sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vector<'a> {
    /// JSON array of numbers.
    Numbers(RawJson<'a>),
    /// Base64 text, usually of little-endian 32-bit floats.
    Base64(JsonStr<'a>),
}

impl Vector<'_> {
    fn read(value: RawJson<'_>) -> Option<Vector<'_>> {
        match value.text().as_bytes().first()? {
            b'[' => Some(Vector::Numbers(value)),
            b'"' => value.as_str().map(Vector::Base64),
            _ => None,
        }
    }

    /// Returns the estimated written length in bytes, to reserve the output buffer.
    pub(super) fn size(self, base64: bool) -> usize {
        match (self, base64) {
            (Vector::Numbers(numbers), false) => numbers.text().len(),
            // A number has about ten characters or more as text, and under six in base64.
            (Vector::Numbers(numbers), true) => numbers.text().len() * 2 / 3,
            (Vector::Base64(text), true) => text.escaped().len(),
            (Vector::Base64(text), false) => text.escaped().len() * 2,
        }
    }

    /// Writes the vector as base64 or as numbers. Base64 that does not decode to floats is written unchanged: some
    /// providers return vectors of bytes.
    pub(super) fn write(self, base64: bool, out: &mut BytesMut) -> Result<(), Broken> {
        match self {
            Vector::Numbers(numbers) if base64 => {
                out.put_u8(b'"');
                number::push_base64(numbers, out)?;
                out.put_u8(b'"');
            }
            Vector::Numbers(numbers) => out.put_slice(numbers.text().as_bytes()),
            Vector::Base64(text) => match number::floats(text.escaped()).filter(|_| !base64) {
                Some(floats) => number::push_numbers(&floats, out),
                None => {
                    Writer::new(out).paste(text);
                }
            },
        }
        Ok(())
    }
}

/// Parsed upstream embeddings response.
#[derive(Clone, Debug, Default)]
pub struct EmbeddingsAnswer<'a> {
    /// Vectors in the order of the inputs.
    pub vectors: Vec<Vector<'a>>,
    /// Input tokens. `None` if the provider does not report them.
    pub tokens: Option<u64>,
    /// The body of a 200 response is an error object.
    pub failed: bool,
}

/// Parses a response to a request for `wanted` vectors.
///
/// # Errors
/// Returns [`Broken::NotJson`] if the body is not JSON, and [`Broken::Number`] if it does not have exactly `wanted`
/// vectors.
pub fn decode(body: &str, wanted: usize) -> Result<EmbeddingsAnswer<'_>, Broken> {
    let mut reader = Reader { slots: vec![None; wanted], ..Reader::default() };
    let mut json = Cursor::new(body);
    reader.object(&mut json, true).and_then(|()| json.end()).map_err(|_| Broken::NotJson)?;
    if reader.failed && reader.slots.iter().all(Option::is_none) {
        return Ok(EmbeddingsAnswer { failed: true, ..EmbeddingsAnswer::default() });
    }
    if reader.more {
        return Err(Broken::Number);
    }
    let vectors: Option<Vec<Vector<'_>>> = reader.slots.into_iter().collect();
    Ok(EmbeddingsAnswer { vectors: vectors.ok_or(Broken::Number)?, tokens: reader.tokens, failed: false })
}

#[derive(Default)]
struct Reader<'a> {
    slots: Vec<Option<Vector<'a>>>,
    /// Vectors read so far; the index of the next one that has no index of its own.
    next: usize,
    /// A vector had an index out of range or one that was already filled.
    more: bool,
    tokens: Option<u64>,
    failed: bool,
}

impl<'a> Reader<'a> {
    /// Reads the outermost object, and DashScope's `output` object within it. A deeper `output` is skipped: no provider
    /// has one, and following it would exhaust the stack.
    fn object(&mut self, json: &mut Cursor<'a>, outermost: bool) -> Result<(), JsonError> {
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "data" | "predictions" => self.list(json.raw()?)?,
                "embedding" => self.entry(json.raw()?)?,
                "embeddings" => {
                    let value = json.raw()?;
                    if value.text().starts_with('{') { self.by_type(value)? } else { self.list(value)? }
                }
                "output" if outermost && json.kind()? == json::ValueKind::Object => {
                    self.object(json, false)?
                }
                "usage" | "usageMetadata" | "meta" | "billed_units" | "tokens" => {
                    self.usage(json.raw()?, true)?;
                }
                "inputTextTokenCount" if outermost => self.tokens = json.raw()?.as_u64(),
                "error" => self.failed |= !json.raw()?.is_void(),
                "code" | "message" => {
                    // DashScope's error form. Its successful responses sometimes have an empty `code`.
                    self.failed |= json.raw()?.as_str().is_some_and(|text| !text.is_empty());
                }
                _ => json.skip()?,
            }
        }
        Ok(())
    }

    /// Reads Cohere's `embeddings`: an object with one list per encoding.
    fn by_type(&mut self, value: RawJson<'a>) -> Result<(), JsonError> {
        let mut json = Cursor::new(value.text());
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "float" => self.list(json.raw()?)?,
                _ => json.skip()?,
            }
        }
        Ok(())
    }

    fn list(&mut self, value: RawJson<'a>) -> Result<(), JsonError> {
        if value.is_null() {
            return Ok(());
        }
        let mut json = Cursor::new(value.text());
        json.begin_array()?;
        while json.next_element()? {
            self.entry(json.raw()?)?;
        }
        Ok(())
    }

    /// Reads one list element: a bare vector, or an object that contains one.
    fn entry(&mut self, value: RawJson<'a>) -> Result<(), JsonError> {
        if !value.text().starts_with('{') {
            self.put(None, Vector::read(value));
            return Ok(());
        }
        let (mut index, mut vector) = (None, None);
        let mut json = Cursor::new(value.text());
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "index" | "text_index" => index = json.raw()?.as_u64(),
                "embedding" | "values" => vector = Vector::read(json.raw()?),
                "embeddings" => vector = self.prediction(json.raw()?)?,
                _ => json.skip()?,
            }
        }
        self.put(index, vector);
        Ok(())
    }

    /// Reads a prediction of Vertex AI, which has its vector and its number of tokens.
    fn prediction(&mut self, value: RawJson<'a>) -> Result<Option<Vector<'a>>, JsonError> {
        let mut vector = None;
        if !value.text().starts_with('{') {
            return Ok(vector);
        }
        let mut json = Cursor::new(value.text());
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            match key.escaped() {
                "values" => vector = Vector::read(value),
                "statistics" if value.text().starts_with('{') => {
                    let mut statistics = Cursor::new(value.text());
                    statistics.begin_object()?;
                    while let Some(key) = statistics.next_key()? {
                        let count = statistics.raw()?.as_u64().filter(|_| key.is("token_count"));
                        let Some(count) = count else { continue };
                        self.tokens = Some(self.tokens.unwrap_or(0).saturating_add(count));
                    }
                }
                _ => {}
            }
        }
        Ok(vector)
    }

    fn put(&mut self, index: Option<u64>, vector: Option<Vector<'a>>) {
        // Gemini and Cohere send no index: their vectors have the order of the inputs. An index decides where there is
        // one: DashScope returns vectors in the order of completion.
        let index = index.and_then(|index| usize::try_from(index).ok()).unwrap_or(self.next);
        self.next += 1;
        match self.slots.get_mut(index) {
            Some(slot) if slot.is_none() => *slot = vector,
            _ => self.more = true,
        }
    }

    /// Reads counts, and Cohere's `billed_units` and `tokens` within `meta`, which contain no further ones.
    fn usage(&mut self, value: RawJson<'a>, outermost: bool) -> Result<(), JsonError> {
        if !value.text().starts_with('{') {
            return Ok(());
        }
        let mut total = None;
        let mut json = Cursor::new(value.text());
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            match key.escaped() {
                "prompt_tokens" | "input_tokens" | "promptTokenCount" => {
                    self.tokens = value.as_u64().or(self.tokens);
                }
                "total_tokens" | "totalTokenCount" => total = value.as_u64(),
                "billed_units" | "tokens" if outermost => self.usage(value, false)?,
                _ => {}
            }
        }
        // Some providers report only the total. It is the input: vectors have no output tokens.
        self.tokens = self.tokens.or(total);
        Ok(())
    }
}

/// Rewrites the vectors of a list-format response in the requested encoding. Returns `Ok(None)` if none has to change.
///
/// # Errors
/// Returns [`Broken::NotJson`] if the body is not JSON, and [`Broken::NoVector`] if an element is not a vector.
pub fn corrected(body: &str, base64: bool) -> Result<Option<BytesMut>, Broken> {
    let mut out = BytesMut::new();
    let mut copied = 0;
    let mut correct = |json: &mut Cursor<'_>| -> Result<(), Broken> {
        let value = json.raw().map_err(|_| Broken::NotJson)?;
        let vector = Vector::read(value).ok_or(Broken::NoVector)?;
        let fits = match vector {
            Vector::Numbers(_) => !base64,
            Vector::Base64(text) => base64 || number::floats(text.escaped()).is_none(),
        };
        if !fits {
            // The cursor stands right behind the value, so its start follows from its length.
            let end = json.offset();
            let start = end - value.text().len();
            // Allocate only once a vector changes: most responses pass unchanged.
            if out.is_empty() {
                out.reserve(body.len());
            }
            out.put_slice(body.get(copied..start).unwrap_or_default().as_bytes());
            vector.write(base64, &mut out)?;
            copied = end;
        }
        Ok(())
    };
    let mut json = Cursor::new(body);
    let not_json = |_| Broken::NotJson;
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        if !key.is("data") || json.kind().map_err(not_json)? != json::ValueKind::Array {
            json.skip().map_err(not_json)?;
            continue;
        }
        json.begin_array().map_err(not_json)?;
        while json.next_element().map_err(not_json)? {
            json.begin_object().map_err(not_json)?;
            while let Some(key) = json.next_key().map_err(not_json)? {
                if key.is("embedding") { correct(&mut json)? } else { json.skip().map_err(not_json)? }
            }
        }
    }
    if copied == 0 {
        return Ok(None);
    }
    out.put_slice(body.get(copied..).unwrap_or_default().as_bytes());
    Ok(Some(out))
}

/// Parses a whole response of the list format, or of Gemini's `embedContent` and `batchEmbedContents`, for the meter.
///
/// # Errors
/// Returns [`JsonError`] if the body is not a JSON object.
pub fn sight(body: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut sight = FrameFacts { content: true, ..FrameFacts::default() };
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "id" => sight.id = json.raw()?.as_str(),
            "model" => sight.model_at = placed_string(&mut json)?,
            "usage" => sight.usage = Some(only_input(crate::wire::chat::watch::usage(json.raw()?)?)),
            "usageMetadata" => {
                sight.usage = Some(only_input(crate::wire::generate::watch::usage(json.raw()?)?));
            }
            "error" => sight.error = Some(json.raw()?).filter(|error| !error.is_void()),
            _ => json.skip()?,
        }
    }
    json.end()?;
    if sight.error.is_some() {
        sight.end = StreamEnd::Failed;
    }
    Ok(sight)
}

/// Drops all usage but input tokens: embeddings have no output tokens, and some providers report them as zero.
fn only_input(usage: Usage) -> Usage {
    Usage { input: usage.input, ..Usage::default() }
}
