//! `reasoning_details`: reasoning that OpenAI-compatible providers require back in later turns. Clients of this format
//! carry provider signatures of other formats in it too.
//!
//! An element is `{"type":"reasoning.text","text","signature"}`, `{"type":"reasoning.summary","summary"}` or
//! `{"type":"reasoning.encrypted","data"}`, with optional `id`, `format` and `index`. The provider signature of an
//! element is the element itself without its text. That way all its members survive and the element can be restored.

use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, Sink, Writer, push_escaped};

/// Kind of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DetailKind {
    /// Reasoning text, optionally signed.
    #[default]
    Text,
    /// Summary of the reasoning.
    Summary,
    /// Encrypted reasoning that only its provider can read.
    Encrypted,
}

/// Element of `reasoning_details`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detail<'a> {
    pub(super) kind: DetailKind,
    /// Text; may be empty.
    pub(super) text: JsonStr<'a>,
    /// Signature or encrypted data; may be empty.
    pub(super) opaque: JsonStr<'a>,
    /// Id; may be empty.
    pub(super) id: JsonStr<'a>,
    /// Number of the reasoning block that the element belongs to, as the provider wrote it.
    pub(super) index: &'a str,
    raw: RawJson<'a>,
}

impl<'a> Detail<'a> {
    /// Calls `visit` for every element of a list.
    pub(super) fn each(list: RawJson<'a>, mut visit: impl FnMut(Detail<'a>)) -> Result<(), JsonError> {
        elements(&mut Cursor::new(list.text()), |json| {
            let raw = json.raw()?;
            visit(Detail::read(raw)?);
            Ok(())
        })?;
        Ok(())
    }

    fn read(raw: RawJson<'a>) -> Result<Self, JsonError> {
        let mut detail = Detail {
            kind: DetailKind::Text,
            text: JsonStr::default(),
            opaque: JsonStr::default(),
            id: JsonStr::default(),
            index: "",
            raw,
        };
        members(&mut Cursor::new(raw.text()), |key, json| {
            let value = json.raw()?;
            let text = || value.as_str().unwrap_or_default();
            match key.escaped() {
                "type" => {
                    detail.kind = match text().escaped() {
                        "reasoning.summary" => DetailKind::Summary,
                        "reasoning.encrypted" => DetailKind::Encrypted,
                        _ => DetailKind::Text,
                    }
                }
                "text" | "summary" => detail.text = text(),
                "signature" | "data" => detail.opaque = text(),
                "id" => detail.id = text(),
                "index" => detail.index = value.text(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(detail)
    }

    /// Returns whether the element has a signature or encrypted data, which the provider must get back.
    pub(super) fn has_signature(&self) -> bool {
        !self.opaque.is_empty()
    }

    /// Returns the provider signature: the element without its text, as the inside of a JSON string.
    pub(super) fn signature(&self) -> String {
        let mut plain = String::with_capacity(self.raw.text().len());
        plain.push('{');
        let _ = members(&mut Cursor::new(self.raw.text()), |key, json| {
            let value = json.raw()?;
            // Clients return the text separately; null members carry nothing.
            if !matches!(key.escaped(), "text" | "summary") && !value.is_null() {
                if plain.len() > 1 {
                    plain.push(',');
                }
                plain.push('"');
                plain.push_str(key.escaped());
                plain.push_str("\":");
                plain.push_str(value.text());
            }
            Ok(())
        });
        plain.push('}');
        let mut escaped = Vec::with_capacity(plain.len() + 32);
        push_escaped(&mut escaped, &plain);
        String::from_utf8(escaped).unwrap_or_default()
    }
}

/// Writes an element of `reasoning_details` for the provider that issued the signature: the members stored in the
/// signature, with the text put back. A signature that is not such an element is written as a plain `signature`.
pub(super) fn write_again(json: &mut Writer<'_, impl Sink>, text: &[JsonStr<'_>], seal: &str) {
    let plain = JsonStr::from_escaped(seal).decode();
    let element = RawJson::from_text(&plain);
    // A signature from another source than `reasoning_details` is a plain string.
    let (kind, sound) = match plain.starts_with('{') {
        true => match Detail::read(element) {
            Ok(detail) => (detail.kind, true),
            Err(_) => (DetailKind::Text, false),
        },
        false => (DetailKind::Text, false),
    };
    // The readable part of encrypted reasoning is an element of its own.
    if kind == DetailKind::Encrypted && !text.is_empty() {
        json.begin_object();
        json.key("type").string("reasoning.summary");
        paste_all(json, "summary", text);
        repeat(json, element, &["type", "data", "signature"]);
        json.end_object();
    }
    json.begin_object();
    if sound {
        repeat(json, element, &[]);
    } else {
        json.key("type").string("reasoning.text");
        if !seal.is_empty() {
            json.key("signature").paste(JsonStr::from_escaped(seal));
        }
    }
    match kind {
        DetailKind::Encrypted => {}
        _ if text.is_empty() => {}
        DetailKind::Text => paste_all(json, "text", text),
        DetailKind::Summary => paste_all(json, "summary", text),
    }
    json.end_object();
}

fn paste_all(json: &mut Writer<'_, impl Sink>, name: &str, text: &[JsonStr<'_>]) {
    json.key(name).pasted(|out| text.iter().for_each(|text| out.put_slice(text.escaped().as_bytes())));
}

/// Writes the members of an element, except the named ones.
fn repeat(json: &mut Writer<'_, impl Sink>, element: RawJson<'_>, without: &[&str]) {
    let _ = members(&mut Cursor::new(element.text()), |key, cursor| {
        let value = cursor.raw()?;
        if !without.contains(&key.escaped()) && !key.escaped().contains('\\') {
            json.key(key.escaped()).raw(value);
        }
        Ok(())
    });
}
