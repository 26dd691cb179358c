//! `reasoning_details`: what compatible providers want to see again of reasoning, and where seals travel through
//! clients of this format.
//!
//! An element is `{"type":"reasoning.text","text","signature"}`, `{"type":"reasoning.summary","summary"}` or
//! `{"type":"reasoning.encrypted","data"}`, with `id`, `format` and `index` as the provider likes. The seal of an
//! element is the element itself without its text; so it can be made again, whatever else stands in it.

use bytes::{BufMut, BytesMut};

use crate::json::{Cursor, JsonError, JsonStr, RawJson, Writer, push_escaped};
use crate::wire::watch::{elements, members};

/// What kind of element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DetailKind {
    /// Reasoning, perhaps signed.
    #[default]
    Text,
    /// A summary of reasoning.
    Summary,
    /// Reasoning that only the provider can read.
    Encrypted,
}

/// An element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detail<'a> {
    /// What kind.
    pub(super) kind: DetailKind,
    /// Its text; may be empty.
    pub(super) text: JsonStr<'a>,
    /// Its signature, or what is encrypted; may be empty.
    pub(super) opaque: JsonStr<'a>,
    /// Its id; may be empty.
    pub(super) id: JsonStr<'a>,
    /// Which block it is a part of, in the provider's count.
    pub(super) index: &'a str,
    raw: RawJson<'a>,
}

impl<'a> Detail<'a> {
    /// Visits the elements of a list.
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

    /// Whether there is something besides text that the provider must see again.
    pub(super) fn has_seal(&self) -> bool {
        !self.opaque.is_empty()
    }

    /// The seal: the element without its text, as the inside of a JSON string.
    pub(super) fn seal(&self) -> String {
        let mut plain = String::with_capacity(self.raw.text().len());
        plain.push('{');
        let _ = members(&mut Cursor::new(self.raw.text()), |key, json| {
            let value = json.raw()?;
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

/// Writes elements of `reasoning_details` again for the provider that has issued the seal: what is in the seal, with
/// the text in its place. A bare seal is a signature.
pub(super) fn write_again(json: &mut Writer<'_, BytesMut>, text: &[JsonStr<'_>], seal: &str) {
    let plain = JsonStr::from_escaped(seal).decode();
    let element = RawJson::from_text(&plain);
    let (kind, sound) = match plain.starts_with('{') {
        true => match Detail::read(element) {
            Ok(detail) => (detail.kind, true),
            Err(_) => (DetailKind::Text, false),
        },
        false => (DetailKind::Text, false),
    };
    // What the client may read of something encrypted is an element of its own.
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

fn paste_all(json: &mut Writer<'_, BytesMut>, name: &str, text: &[JsonStr<'_>]) {
    json.key(name).pasted(|out| text.iter().for_each(|text| out.put_slice(text.escaped().as_bytes())));
}

/// Writes the members of an element again, but for some.
fn repeat(json: &mut Writer<'_, BytesMut>, element: RawJson<'_>, without: &[&str]) {
    let _ = members(&mut Cursor::new(element.text()), |key, cursor| {
        let value = cursor.raw()?;
        if !without.contains(&key.escaped()) && !key.escaped().contains('\\') {
            json.key(key.escaped()).raw(value);
        }
        Ok(())
    });
}
