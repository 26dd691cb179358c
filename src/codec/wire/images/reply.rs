//! Client responses of images endpoints.

use bytes::{Bytes, BytesMut};

use super::file;
use crate::canonical::Usage;
use crate::error::ApiError;
use crate::wire::pieces::{BodyPieces, Piece};
use json::Writer;

/// Response shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ImageReplyShape {
    /// Default (docs/specification.md, 2.9): `code` and `msg` around the images.
    #[default]
    Envelope,
    /// OpenAI's images response, for its SDKs.
    Plain,
    /// Google's `predictions`.
    Predictions,
    /// The task group's envelope, which has URLs only.
    Group,
}

impl ImageReplyShape {
    /// Returns the shape of this name, or `None`. Clients may choose only these two.
    pub fn from_name(name: &str) -> Option<ImageReplyShape> {
        match name {
            "envelope" => Some(ImageReplyShape::Envelope),
            "plain" => Some(ImageReplyShape::Plain),
            _ => None,
        }
    }

    /// Returns the shape's name.
    pub const fn name(self) -> &'static str {
        match self {
            ImageReplyShape::Envelope => "envelope",
            ImageReplyShape::Plain => "plain",
            ImageReplyShape::Predictions => "predictions",
            ImageReplyShape::Group => "group",
        }
    }
}

/// Image in the form in which the client gets it.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputImage {
    /// URL.
    Link(String),
    /// Base64, as the provider sent it.
    Base64(Bytes),
    /// Bytes, written as base64.
    Bytes(Bytes),
    /// Bytes, written as a data URL.
    Data(Bytes),
}

/// Decodes the first 32 characters of base64, which suffice to tell the file format.
fn beginning(base64: &[u8]) -> Vec<u8> {
    let head = base64.get(..32.min(base64.len())).unwrap_or_default();
    base64_simd::forgiving_decode_to_vec(head).unwrap_or_default()
}

impl OutputImage {
    fn media(&self) -> &'static str {
        let found = match self {
            OutputImage::Base64(text) => file(&beginning(text)),
            OutputImage::Bytes(bytes) | OutputImage::Data(bytes) => file(bytes),
            OutputImage::Link(_) => None,
        };
        found.map_or("image/png", |file| file.picture.media())
    }
}

/// Images of a response, each with its revised prompt.
#[derive(Clone, Debug, Default)]
pub struct ImageSet {
    /// Images and revised prompts.
    pub images: Vec<(OutputImage, Option<String>)>,
    /// Creation time in Unix seconds.
    pub created: u64,
    /// Usage, as far as it is known.
    pub usage: Usage,
    /// Size of the images, if known.
    pub size: Option<String>,
    /// Quality of the images, if known.
    pub quality: Option<String>,
}

/// Body under construction. Text is collected in a buffer; large pieces are added without a copy.
#[derive(Default)]
struct Text {
    body: BodyPieces,
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

    fn finish(mut self) -> BodyPieces {
        self.body.push(Piece::Text(self.text.freeze()));
        self.body
    }
}

/// Writes a response.
pub fn encode(made: ImageSet, shape: ImageReplyShape) -> BodyPieces {
    let mut out = Text::default();
    match shape {
        ImageReplyShape::Predictions => {
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
                    OutputImage::Base64(text) => out.push(Piece::Text(text)),
                    OutputImage::Bytes(bytes) | OutputImage::Data(bytes) => out.push(Piece::Base64(bytes)),
                    OutputImage::Link(_) => {}
                }
                out.add("\"}");
            }
            out.add("]}");
        }
        ImageReplyShape::Group => {
            out.add("{\"code\":200,\"msg\":\"success\",\"data\":{\"images\":[");
            for (number, (image, _)) in made.images.into_iter().enumerate() {
                out.add(if number == 0 { "{\"url\":" } else { ",{\"url\":" });
                address(&mut out, image);
                out.add("}");
            }
            out.add("]}}");
        }
        ImageReplyShape::Envelope | ImageReplyShape::Plain => {
            let envelope = shape == ImageReplyShape::Envelope;
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

/// Writes an image as a URL: its own, or a data URL.
fn address(out: &mut Text, image: OutputImage) {
    let media = image.media();
    let piece = match image {
        OutputImage::Link(url) => return out.string(&url),
        OutputImage::Base64(text) => Piece::Text(text),
        OutputImage::Bytes(bytes) | OutputImage::Data(bytes) => Piece::Base64(bytes),
    };
    out.add(&format!("\"data:{media};base64,"));
    out.push(piece);
    out.add("\"");
}

/// Writes one element of `data`. In the envelope, members without a value are present and empty.
fn one(out: &mut Text, image: OutputImage, revised: Option<String>, envelope: bool) {
    let here = !matches!(image, OutputImage::Link(_) | OutputImage::Data(_));
    if !here || envelope {
        out.add("\"url\":");
        match &image {
            OutputImage::Link(url) => out.string(url),
            OutputImage::Data(bytes) => {
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
            OutputImage::Base64(text) => out.push(Piece::Text(text)),
            OutputImage::Bytes(bytes) => out.push(Piece::Base64(bytes)),
            OutputImage::Link(_) | OutputImage::Data(_) => {}
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

/// Writes an error in the envelope: OpenAI's error object with `code` and `msg` added.
pub fn error(error: &ApiError, plain: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(plain.len() + error.message.len() + 64);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("code").number(error.status).key("msg").string(&error.message);
    json.end_object();
    // Replace the closing brace by the members of the plain error.
    if let (Some(rest), true) = (plain.strip_prefix(b"{"), out.ends_with(b"}")) {
        out.truncate(out.len() - 1);
        out.extend_from_slice(b",");
        out.extend_from_slice(rest);
    }
    out
}
