//! What providers answer with vectors, whatever its form: the forms share no member that would mean two things.
//!
//! | Provider | Vectors | Usage |
//! |---|---|---|
//! | OpenAI and its likes, Voyage, Jina | `data[].embedding`, with `index` | `usage.prompt_tokens`, or only `total_tokens` |
//! | Gemini | `embedding.values`, `embeddings[].values` | `usageMetadata.promptTokenCount`, of newer models |
//! | Cohere | `embeddings.float[]` | `meta.billed_units.input_tokens` |
//! | DashScope | `output.embeddings[].embedding`, with `text_index` | `usage.total_tokens` |

use bytes::{BufMut, BytesMut};

use super::{Broken, number};
use crate::canonical::Usage;
use crate::json::{Cursor, JsonError, JsonStr, RawJson, Writer};
use crate::wire::watch::{FrameFacts, StreamEnd, placed_string};

/// A vector as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vector<'a> {
    /// An array of numbers.
    Numbers(RawJson<'a>),
    /// Base64.
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

    /// About how long it is when it is written.
    pub(super) fn size(self, base64: bool) -> usize {
        match (self, base64) {
            (Vector::Numbers(numbers), false) => numbers.text().len(),
            // A number takes ten characters or more, and six in base64.
            (Vector::Numbers(numbers), true) => numbers.text().len() * 2 / 3,
            (Vector::Base64(text), true) => text.escaped().len(),
            (Vector::Base64(text), false) => text.escaped().len() * 2,
        }
    }

    /// Writes it in the form that is wanted. Text that holds no floats stays what it is: some providers answer in
    /// bytes.
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

/// What an answer says.
#[derive(Clone, Debug, Default)]
pub struct Answer<'a> {
    /// The vectors in the order of what was asked.
    pub vectors: Vec<Vector<'a>>,
    /// Tokens of the input, where the provider says it.
    pub tokens: Option<u64>,
    /// An error instead, in a 200.
    pub failed: bool,
}

/// Reads an answer to a request for `wanted` vectors.
///
/// # Errors
/// It is not JSON, or has not so many vectors.
pub fn decode(body: &str, wanted: usize) -> Result<Answer<'_>, Broken> {
    let mut reader = Reader { slots: vec![None; wanted], ..Reader::default() };
    let mut json = Cursor::new(body);
    reader.object(&mut json).and_then(|()| json.end()).map_err(|_| Broken::NotJson)?;
    if reader.failed && reader.slots.iter().all(Option::is_none) {
        return Ok(Answer { failed: true, ..Answer::default() });
    }
    if reader.more {
        return Err(Broken::Number);
    }
    let vectors: Option<Vec<Vector<'_>>> = reader.slots.into_iter().collect();
    Ok(Answer { vectors: vectors.ok_or(Broken::Number)?, tokens: reader.tokens, failed: false })
}

#[derive(Default)]
struct Reader<'a> {
    slots: Vec<Option<Vector<'a>>>,
    /// Vectors without an index so far.
    next: usize,
    /// There was one beyond what was asked for, or twice.
    more: bool,
    tokens: Option<u64>,
    failed: bool,
}

impl<'a> Reader<'a> {
    /// The answer itself, and `output` in it.
    fn object(&mut self, json: &mut Cursor<'a>) -> Result<(), JsonError> {
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "data" => self.list(json.raw()?)?,
                "embedding" => self.entry(json.raw()?)?,
                "embeddings" => {
                    let value = json.raw()?;
                    if value.text().starts_with('{') { self.by_type(value)? } else { self.list(value)? }
                }
                "output" if json.kind()? == crate::json::Kind::Object => self.object(json)?,
                "usage" | "usageMetadata" | "meta" | "billed_units" | "tokens" => self.usage(json.raw()?)?,
                "error" => self.failed |= !json.raw()?.is_void(),
                "code" | "message" => {
                    // DashScope's errors; its answers have an empty code now and then.
                    self.failed |= json.raw()?.as_str().is_some_and(|text| !text.is_empty());
                }
                _ => json.skip()?,
            }
        }
        Ok(())
    }

    /// Cohere: an object with a list for each type.
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

    /// A vector, or an object that holds one.
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
                _ => json.skip()?,
            }
        }
        self.put(index, vector);
        Ok(())
    }

    fn put(&mut self, index: Option<u64>, vector: Option<Vector<'a>>) {
        let index = index.and_then(|index| usize::try_from(index).ok()).unwrap_or(self.next);
        self.next += 1;
        match self.slots.get_mut(index) {
            Some(slot) if slot.is_none() => *slot = vector,
            _ => self.more = true,
        }
    }

    fn usage(&mut self, value: RawJson<'a>) -> Result<(), JsonError> {
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
                "billed_units" | "tokens" => self.usage(value)?,
                _ => {}
            }
        }
        self.tokens = self.tokens.or(total);
        Ok(())
    }
}

/// A list that a provider answered, with its vectors in the form that is wanted; nothing where they are in it already.
///
/// # Errors
/// It is not JSON, or a vector is none.
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
            // The value stands at the end of what has been read.
            let end = json.offset();
            let start = end - value.text().len();
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
        if !key.is("data") || json.kind().map_err(not_json)? != crate::json::Kind::Array {
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

/// Reads one whole answer of the list format, or of Gemini's `embedContent` and `batchEmbedContents`, for the meter.
///
/// # Errors
/// The answer is not JSON or not an object.
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

/// Embeddings have no output tokens; some providers say so with a zero.
fn only_input(usage: Usage) -> Usage {
    Usage { input: usage.input, ..Usage::default() }
}
