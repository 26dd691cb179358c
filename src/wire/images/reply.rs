//! What the client gets.

use bytes::{Bytes, BytesMut};

use super::file;
use crate::canonical::Usage;
use crate::error::ApiError;
use crate::json::Writer;
use crate::wire::pieces::{Body, Piece};

/// The shape of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The specification's (2.9): a code and a message around the images.
    #[default]
    Envelope,
    /// OpenAI's, which its SDK reads.
    Plain,
    /// Google's predictions.
    Predictions,
    /// The task group's: addresses in its envelope.
    Group,
}

impl Shape {
    /// The shape of this name, of those that a client may ask for.
    pub fn from_name(name: &str) -> Option<Shape> {
        match name {
            "envelope" => Some(Shape::Envelope),
            "plain" => Some(Shape::Plain),
            _ => None,
        }
    }

    /// The name that a client asks for it by.
    pub const fn name(self) -> &'static str {
        match self {
            Shape::Envelope => "envelope",
            Shape::Plain => "plain",
            Shape::Predictions => "predictions",
            Shape::Group => "group",
        }
    }
}

/// An image as the client gets it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A link.
    Link(String),
    /// Base64 as it came.
    Base64(Bytes),
    /// Bytes that leave as base64.
    Bytes(Bytes),
    /// The same, as an address.
    Data(Bytes),
}

/// Base64 as bytes, as far as its beginning tells a format.
fn beginning(base64: &[u8]) -> Vec<u8> {
    let head = base64.get(..32.min(base64.len())).unwrap_or_default();
    base64_simd::forgiving_decode_to_vec(head).unwrap_or_default()
}

impl Shown {
    fn media(&self) -> &'static str {
        let found = match self {
            Shown::Base64(text) => file(&beginning(text)),
            Shown::Bytes(bytes) | Shown::Data(bytes) => file(bytes),
            Shown::Link(_) => None,
        };
        found.map_or("image/png", |file| file.picture.media())
    }
}

/// Images of an answer, each with what was made of its prompt.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// The images.
    pub images: Vec<(Shown, Option<String>)>,
    /// When they were made, in Unix seconds.
    pub created: u64,
    /// What was used, as far as it is known.
    pub usage: Usage,
    /// Their size, where it is known.
    pub size: Option<String>,
    /// Their quality, likewise.
    pub quality: Option<String>,
}

/// Text that is collected until something large follows.
#[derive(Default)]
struct Text {
    body: Body,
    text: BytesMut,
}

impl Text {
    fn push(&mut self, piece: Piece) {
        self.body.push(Piece::Text(self.text.split().freeze()));
        self.body.push(piece);
    }

    fn add(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn string(&mut self, text: &str) {
        Writer::new(&mut self.text).string(text);
    }

    fn finish(mut self) -> Body {
        self.body.push(Piece::Text(self.text.freeze()));
        self.body
    }
}

/// Writes an answer.
pub fn encode(made: Made, shape: Shape) -> Body {
    let mut out = Text::default();
    match shape {
        Shape::Predictions => {
            out.add("{\"predictions\":[");
            for (number, (image, revised)) in made.images.into_iter().enumerate() {
                out.add(if number == 0 { "{\"mimeType\":" } else { ",{\"mimeType\":" });
                out.string(image.media());
                if let Some(revised) = revised {
                    out.add(",\"prompt\":");
                    out.string(&revised);
                }
                out.add(",\"bytesBase64Encoded\":\"");
                match image {
                    Shown::Base64(text) => out.push(Piece::Text(text)),
                    Shown::Bytes(bytes) | Shown::Data(bytes) => out.push(Piece::Base64(bytes)),
                    Shown::Link(_) => {}
                }
                out.add("\"}");
            }
            out.add("]}");
        }
        Shape::Group => {
            out.add("{\"code\":200,\"msg\":\"success\",\"data\":{\"images\":[");
            for (number, (image, _)) in made.images.into_iter().enumerate() {
                out.add(if number == 0 { "{\"url\":" } else { ",{\"url\":" });
                address(&mut out, image);
                out.add("}");
            }
            out.add("]}}");
        }
        Shape::Envelope | Shape::Plain => {
            let envelope = shape == Shape::Envelope;
            out.add(if envelope {
                "{\"code\":200,\"msg\":\"success\",\"data\":{\"created\":"
            } else {
                "{\"created\":"
            });
            out.add(&made.created.to_string());
            out.add(",\"data\":[");
            for (number, (image, revised)) in made.images.into_iter().enumerate() {
                out.add(if number == 0 { "{" } else { ",{" });
                one(&mut out, image, revised, envelope);
                out.add("}");
            }
            out.add("]");
            for (name, value) in [("size", made.size), ("quality", made.quality)] {
                if let Some(value) = value {
                    out.add(&format!(",\"{name}\":"));
                    out.string(&value);
                }
            }
            usage(&mut out, &made.usage);
            out.add(if envelope { "}}" } else { "}" });
        }
    }
    out.finish()
}

/// An image as an address, whatever it came as.
fn address(out: &mut Text, image: Shown) {
    let media = image.media();
    let piece = match image {
        Shown::Link(url) => return out.string(&url),
        Shown::Base64(text) => Piece::Text(text),
        Shown::Bytes(bytes) | Shown::Data(bytes) => Piece::Base64(bytes),
    };
    out.add(&format!("\"data:{media};base64,"));
    out.push(piece);
    out.add("\"");
}

/// In the envelope what is not filled is there all the same.
fn one(out: &mut Text, image: Shown, revised: Option<String>, envelope: bool) {
    let here = !matches!(image, Shown::Link(_) | Shown::Data(_));
    if !here || envelope {
        out.add("\"url\":");
        match &image {
            Shown::Link(url) => out.string(url),
            Shown::Data(bytes) => {
                out.add(&format!("\"data:{};base64,", image.media()));
                out.push(Piece::Base64(bytes.clone()));
                out.add("\"");
            }
            _ => out.add("\"\""),
        }
    }
    if here || envelope {
        out.add(if envelope { ",\"b64_json\":\"" } else { "\"b64_json\":\"" });
        match image {
            Shown::Base64(text) => out.push(Piece::Text(text)),
            Shown::Bytes(bytes) => out.push(Piece::Base64(bytes)),
            Shown::Link(_) | Shown::Data(_) => {}
        }
        out.add("\"");
    }
    if let Some(revised) = revised.or_else(|| envelope.then(String::new)) {
        out.add(",\"revised_prompt\":");
        out.string(&revised);
    }
}

fn usage(out: &mut Text, usage: &Usage) {
    if !usage.is_known() {
        return;
    }
    let (input, output) = (usage.input.unwrap_or(0), usage.output.unwrap_or(0));
    let images = usage.image_input.unwrap_or(0);
    out.add(",\"usage\":");
    let mut json = Writer::new(&mut out.text);
    json.begin_object().key("input_tokens").number(input);
    json.key("input_tokens_details").begin_object();
    json.key("text_tokens").number(input.saturating_sub(images)).key("image_tokens").number(images);
    json.end_object().key("output_tokens").number(output);
    if let Some(images) = usage.image_output {
        json.key("output_tokens_details").begin_object();
        json.key("text_tokens").number(output.saturating_sub(images)).key("image_tokens").number(images);
        json.end_object();
    }
    json.key("total_tokens").number(input.saturating_add(output)).end_object();
}

/// An error in the envelope: OpenAI's error, with a code and a message beside it.
pub fn error(error: &ApiError, plain: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(plain.len() + error.message.len() + 64);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("code").number(error.status).key("msg").string(&error.message);
    json.end_object();
    // The rest of the object follows.
    if let (Some(rest), true) = (plain.strip_prefix(b"{"), out.ends_with(b"}")) {
        out.truncate(out.len() - 1);
        out.extend_from_slice(b",");
        out.extend_from_slice(rest);
    }
    out
}
