//! Writer of upstream embeddings requests.

use bytes::BytesMut;

use crate::canonical::embed::{Embed, EmbedDialect, EmbedInput, EmbedItem, EmbedShape, PurposeWords};
use crate::error::{ApiError, ErrorKind};
use json::{Cursor, JsonStr, RawJson, Writer};

/// Writes one upstream request for `items`, which must share their settings (see [`alike`]). In the content format
/// (`EmbedShape::Parts`) a single item becomes an `embedContent` request, several become `batchEmbedContents`.
///
/// # Errors
/// Returns an [`ApiError`] that names the member if the provider has no way to express it.
pub fn encode(
    embed: &Embed<'_>,
    items: &[EmbedItem<'_>],
    dialect: &EmbedDialect,
    model: &str,
    out: &mut BytesMut,
) -> Result<(), ApiError> {
    out.reserve(items.iter().map(|item| size(&item.input) + 64).sum::<usize>() + 256);
    match dialect.shape {
        EmbedShape::Parts => return parts(items, model, out),
        EmbedShape::Content => {
            let Some(item) = items.first() else { return Ok(()) };
            return part(item, None, &mut Writer::new(out));
        }
        EmbedShape::Instances => return instances(items, out),
        _ => {}
    }
    let mut json = Writer::new(out);
    json.begin_object();
    if !matches!(dialect.shape, EmbedShape::UnnamedTexts | EmbedShape::InputText) {
        json.key("model").string(model);
    }
    match dialect.shape {
        EmbedShape::List | EmbedShape::Parts | EmbedShape::Content | EmbedShape::Instances => {
            json.key("input");
            inputs(items, &mut json)?;
            if embed.base64 && dialect.base64 {
                json.key("encoding_format").string("base64");
            }
            settings(items, dialect, &mut json)?;
            // `settings` writes these members; the client's own ones among the extra members would be duplicates.
            let said = ["encoding_format", dialect.dimensions, dialect.purpose];
            for extra in embed.extra.iter().filter(|extra| !said.contains(&extra.name)) {
                json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
            }
        }
        EmbedShape::Texts | EmbedShape::UnnamedTexts => {
            json.key("texts");
            inputs(items, &mut json)?;
            json.key("embedding_types").begin_array().string("float").end_array();
            settings(items, dialect, &mut json)?;
            for extra in embed.extra.iter().filter(|extra| extra.name == "truncate") {
                json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
            }
        }
        EmbedShape::InputText => {
            let Some(EmbedItem { input: EmbedInput::Text(text), .. }) = items.first() else {
                let message = "This model embeds text only.";
                return Err(ApiError::new(ErrorKind::Unsupported, message).param("input"));
            };
            json.key("inputText").paste(JsonStr::from_escaped(text));
            settings(items, dialect, &mut json)?;
            for extra in embed.extra.iter().filter(|extra| extra.name == "normalize") {
                json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
            }
        }
        EmbedShape::Nested => {
            json.key("input").begin_object().key("texts");
            inputs(items, &mut json)?;
            json.end_object().key("parameters").begin_object();
            settings(items, dialect, &mut json)?;
            json.end_object();
        }
    }
    json.end_object();
    Ok(())
}

/// Returns true if two items fit in one request. Most providers have one setting of dimensions and purpose per request.
pub fn alike(one: &EmbedItem<'_>, other: &EmbedItem<'_>, dialect: &EmbedDialect) -> bool {
    dialect.shape == EmbedShape::Parts
        || one.dimensions == other.dimensions
            && dialect.words.word(one.purpose) == dialect.words.word(other.purpose)
}

/// Parses an array of token ids. Returns `None` if an element is not an unsigned 32-bit integer.
pub fn tokens(value: RawJson<'_>) -> Option<Vec<u32>> {
    let mut tokens = Vec::new();
    let mut json = Cursor::new(value.text());
    json.begin_array().ok()?;
    while json.next_element().ok()? {
        tokens.push(u32::try_from(json.raw().ok()?.as_u64()?).ok()?);
    }
    Some(tokens)
}

fn size(input: &EmbedInput<'_>) -> usize {
    match input {
        EmbedInput::Text(text) => text.len(),
        EmbedInput::Tokens(value) | EmbedInput::Parts(value) => value.text().len(),
    }
}

fn inputs(items: &[EmbedItem<'_>], json: &mut Writer<'_, BytesMut>) -> Result<(), ApiError> {
    json.begin_array();
    for item in items {
        match &item.input {
            EmbedInput::Text(text) => json.paste(JsonStr::from_escaped(text)),
            EmbedInput::Tokens(tokens) => json.raw(*tokens),
            EmbedInput::Parts(_) => {
                let message = "This model embeds text only; 'content.parts' has something else.";
                return Err(ApiError::new(ErrorKind::Unsupported, message).param("content.parts"));
            }
        };
    }
    json.end_array();
    Ok(())
}

/// Writes dimensions and purpose. The items share them, so the first item's are taken.
fn settings(
    items: &[EmbedItem<'_>],
    dialect: &EmbedDialect,
    json: &mut Writer<'_, BytesMut>,
) -> Result<(), ApiError> {
    let Some(item) = items.first() else { return Ok(()) };
    if let Some(dimensions) = item.dimensions {
        if dialect.dimensions.is_empty() {
            let message = "The number of dimensions of this model's vectors is fixed.";
            return Err(ApiError::new(ErrorKind::Unsupported, message).param("dimensions"));
        }
        json.key(dialect.dimensions).number(dimensions);
    }
    if let Some(word) = dialect.words.word(item.purpose).filter(|_| !dialect.purpose.is_empty()) {
        json.key(dialect.purpose).string(word);
    }
    Ok(())
}

fn parts(items: &[EmbedItem<'_>], model: &str, out: &mut BytesMut) -> Result<(), ApiError> {
    let model = format!("models/{model}");
    let mut json = Writer::new(out);
    if let [item] = items {
        return part(item, Some(&model), &mut json);
    }
    json.begin_object().key("requests").begin_array();
    for item in items {
        part(item, Some(&model), &mut json)?;
    }
    json.end_array().end_object();
    Ok(())
}

/// Writes the `predict` request of Vertex AI, whose instances have purposes of their own and one number of dimensions
/// (Vertex AI, "Text embeddings API").
fn instances(items: &[EmbedItem<'_>], out: &mut BytesMut) -> Result<(), ApiError> {
    let mut json = Writer::new(out);
    json.begin_object().key("instances").begin_array();
    for item in items {
        let EmbedInput::Text(text) = &item.input else {
            let message = "This model embeds text only.";
            return Err(ApiError::new(ErrorKind::Unsupported, message).param("input"));
        };
        json.begin_object().key("content").paste(JsonStr::from_escaped(text));
        if let Some(word) = PurposeWords::Tasks.word(item.purpose) {
            json.key("task_type").string(word);
        }
        for extra in item.extra.iter().filter(|extra| extra.name == "title") {
            json.key("title").raw(extra.value);
        }
        json.end_object();
    }
    json.end_array();
    if let Some(dimensions) = items.first().and_then(|item| item.dimensions) {
        json.key("parameters").begin_object().key("outputDimensionality").number(dimensions).end_object();
    }
    json.end_object();
    Ok(())
}

/// Writes a content. `model` is its name in the body; `None` if it is in the path only.
fn part(item: &EmbedItem<'_>, model: Option<&str>, json: &mut Writer<'_, BytesMut>) -> Result<(), ApiError> {
    json.begin_object();
    if let Some(model) = model {
        json.key("model").string(model);
    }
    json.key("content");
    match &item.input {
        EmbedInput::Text(text) => {
            json.begin_object().key("parts").begin_array().begin_object();
            json.key("text").paste(JsonStr::from_escaped(text));
            json.end_object().end_array().end_object();
        }
        EmbedInput::Parts(content) => {
            json.raw(*content);
        }
        EmbedInput::Tokens(_) => {
            let message = "This model embeds text only; it does not accept tokens.";
            return Err(ApiError::new(ErrorKind::Unsupported, message).param("input"));
        }
    }
    if let Some(word) = PurposeWords::Tasks.word(item.purpose) {
        json.key("taskType").string(word);
    }
    if let Some(dimensions) = item.dimensions {
        json.key("outputDimensionality").number(dimensions);
    }
    for extra in &item.extra {
        json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
    }
    json.end_object();
    Ok(())
}
