//! Writers of upstream image requests. The shapes with a native `watermark` setting always send it, true or false:
//! providers differ in their defaults. A List provider that takes every member gets it as the client says, because it
//! may refuse members that it does not know.

use base64_simd::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};

use super::file;
use crate::canonical::image::{
    ImageDialect, ImageFamily, ImageInput, ImagePart, ImageRequest, ImageShape, ImageSource, ImageTurn,
};
use crate::wire::form::FormWriter;
use json::{JsonStr, RawJson, Writer, push_escaped};

/// Upstream call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageCall {
    /// The call edits images that it contains.
    pub edits: bool,
    /// Request body.
    pub body: Bytes,
    /// Content type of the body. `None` for JSON.
    pub media: Option<String>,
    /// The provider answers with a task to be polled.
    pub later: bool,
}

/// Returns true if the shape needs the bytes of input images, so that URLs must be fetched first.
pub fn needs_bytes(shape: ImageShape) -> bool {
    matches!(shape, ImageShape::List | ImageShape::Parts | ImageShape::Instances)
}

/// Writes a call for `count` images.
pub fn encode_call(request: &ImageRequest, dialect: &ImageDialect, model: &str, count: u32) -> ImageCall {
    let edits = !request.images.is_empty();
    let json = |body: BytesMut| ImageCall { edits, body: body.freeze(), media: None, later: false };
    match dialect.shape {
        ImageShape::List if edits => {
            let (media, body) = list_form(request, dialect, model, count).finish();
            ImageCall { edits, body, media: Some(media), later: false }
        }
        ImageShape::List => json(list(request, dialect, model, count)),
        ImageShape::Flat => json(flat(request, dialect, model)),
        ImageShape::Parts => json(parts(request)),
        ImageShape::Instances => json(instances(request, dialect, count)),
        ImageShape::Turns => json(turns(request, dialect, model, count)),
        ImageShape::TurnsLater => ImageCall { later: true, ..json(turns(request, dialect, model, count)) },
        ImageShape::PromptLater => ImageCall { later: true, ..json(prompt(request, dialect, model, count)) },
    }
}

type Json<'o> = Writer<'o, BytesMut>;

fn raw(json: &mut Json<'_>, name: &str, text: Option<&String>) {
    if let Some(text) = text {
        json.key(name).raw(RawJson::from_text(text));
    }
}

fn string(json: &mut Json<'_>, name: &str, text: Option<&String>) {
    if let Some(text) = text {
        json.key(name).string(text);
    }
}

/// Writes a member that a client sent, whose name needs escaping.
fn member(json: &mut Json<'_>, name: &str, value: &str) {
    let mut escaped = Vec::with_capacity(name.len());
    push_escaped(&mut escaped, name);
    let escaped = String::from_utf8_lossy(&escaped);
    json.paste_key(JsonStr::from_escaped(&escaped)).raw(RawJson::from_text(value));
}

fn extras(json: &mut Json<'_>, request: &ImageRequest, dialect: &ImageDialect) {
    for (name, value) in request.extra.iter().filter(|(name, _)| dialect.supports_extension(name)) {
        member(json, name, value);
    }
}

/// Returns the output format, as the List shape names it. `None` if the client set `output_format` itself.
fn output_format(request: &ImageRequest, dialect: &ImageDialect) -> Option<String> {
    let named = request.extra.iter().any(|(name, _)| name == "output_format");
    let media = request.media.as_ref().filter(|_| !named && dialect.supports_extension("output_format"))?;
    media.strip_prefix("image/").map(str::to_owned)
}

fn list(request: &ImageRequest, dialect: &ImageDialect, model: &str, count: u32) -> BytesMut {
    let mut out = BytesMut::with_capacity(request.prompt.len() + 512);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("model").string(model).key("prompt").string(&request.prompt);
    json.key("n").number(count);
    string(&mut json, "size", request.size.as_ref());
    string(&mut json, "quality", request.quality.as_ref());
    if let Some(inline) = request.inline.filter(|_| dialect.sends_response_format) {
        json.key("response_format").string(if inline { "b64_json" } else { "url" });
    }
    string(&mut json, "output_format", output_format(request, dialect).as_ref());
    if dialect.supports_extension("*") {
        if let Some(seed) = request.seed {
            json.key("seed").number(seed);
        }
        raw(&mut json, "guidance_scale", request.guidance.as_ref());
        string(&mut json, "image_size", request.tier.as_ref());
        if let Some(watermark) = request.watermark {
            json.key("watermark").boolean(watermark);
        }
    }
    extras(&mut json, request, dialect);
    json.end_object();
    out
}

fn list_form(request: &ImageRequest, dialect: &ImageDialect, model: &str, count: u32) -> FormWriter {
    let mut form = FormWriter::default();
    form.field("model", model);
    form.field("prompt", &request.prompt);
    form.field("n", &count.to_string());
    if let Some(size) = &request.size {
        form.field("size", size);
    }
    if let Some(quality) = &request.quality {
        form.field("quality", quality);
    }
    if let Some(inline) = request.inline.filter(|_| dialect.sends_response_format) {
        form.field("response_format", if inline { "b64_json" } else { "url" });
    }
    if let Some(format) = output_format(request, dialect) {
        form.field("output_format", &format);
    }
    if dialect.supports_extension("*") {
        let seed = request.seed.map(|seed| seed.to_string());
        let mark = request.watermark.map(|watermark| watermark.to_string());
        for (name, value) in [
            ("seed", &seed),
            ("guidance_scale", &request.guidance),
            ("image_size", &request.tier),
            ("watermark", &mark),
        ] {
            if let Some(value) = value {
                form.field(name, value);
            }
        }
    }
    for (name, value) in request.extra.iter().filter(|(name, _)| dialect.supports_extension(name)) {
        let value = RawJson::from_text(value);
        match value.as_str() {
            Some(text) => form.field(name, &text.decode()),
            None => form.field(name, value.text()),
        }
    }
    let name = if request.images.len() == 1 { "image" } else { "image[]" };
    for (number, input) in request.images.iter().enumerate() {
        file_of(&mut form, name, &format!("image{number}"), input);
    }
    if let Some(mask) = &request.mask {
        file_of(&mut form, "mask", "mask", mask);
    }
    form
}

fn file_of(form: &mut FormWriter, name: &str, stem: &str, input: &ImageInput) {
    let ImageSource::Bytes(bytes) = &input.source else { return };
    let (suffix, media) =
        file(bytes).map_or(("bin", OPAQUE), |file| (file.picture.suffix(), file.picture.media()));
    form.file(name, &format!("{stem}.{suffix}"), media, bytes.clone());
}

/// Media type of unknown content.
const OPAQUE: &str = "application/octet-stream";

fn media_of(bytes: &[u8]) -> &'static str {
    file(bytes).map_or(OPAQUE, |file| file.picture.media())
}

/// Writes a JSON string of `begin` followed by the bytes in base64.
fn base64(json: &mut Json<'_>, begin: &[&str], bytes: &[u8]) {
    json.pasted(|out| {
        // Encode into the output itself: an image has megabytes, and a temporary string would double the memory.
        begin.iter().for_each(|text| out.put_slice(text.as_bytes()));
        let at = out.len();
        out.resize(at + STANDARD.encoded_length(bytes.len()), 0);
        if let Some(room) = out.get_mut(at..) {
            use base64_simd::AsOut as _;
            let _ = STANDARD.encode(bytes, room.as_out());
        }
    });
}

/// Writes an input image as a URL: its own, or a data URL.
fn address(json: &mut Json<'_>, input: &ImageInput) {
    match &input.source {
        ImageSource::Link(url) => _ = json.string(url),
        ImageSource::Bytes(bytes) => base64(json, &["data:", media_of(bytes), ";base64,"], bytes),
    }
}

/// Returns the estimated length of the body in bytes.
fn room(request: &ImageRequest) -> usize {
    let inputs = request.images.iter().map(|input| match &input.source {
        ImageSource::Link(url) => url.len() + 16,
        ImageSource::Bytes(bytes) => STANDARD.encoded_length(bytes.len()) + 64,
    });
    inputs.sum::<usize>() + request.prompt.len() * 2 + 1024
}

fn flat(request: &ImageRequest, dialect: &ImageDialect, model: &str) -> BytesMut {
    let mut out = BytesMut::with_capacity(room(request));
    let mut json = Writer::new(&mut out);
    json.begin_object().key("model").string(model).key("prompt").string(&request.prompt);
    match request.images.as_slice() {
        [] => {}
        [one] => {
            json.key("image");
            address(&mut json, one);
        }
        several => {
            json.key("image").begin_array();
            several.iter().for_each(|input| address(&mut json, input));
            json.end_array();
        }
    }
    string(&mut json, "size", request.size.as_ref().or(request.tier.as_ref()));
    let inline = request.inline == Some(true);
    json.key("response_format").string(if inline { "b64_json" } else { "url" });
    json.key("watermark").boolean(request.watermark == Some(true));
    // Newer models have no seed.
    if let Some(seed) = request.seed.filter(|_| is_third(dialect.family)) {
        json.key("seed").number(seed);
    }
    raw(&mut json, "guidance_scale", request.guidance.as_ref());
    if let Some(most) = request.sequence {
        json.key("sequential_image_generation").string("auto");
        json.key("sequential_image_generation_options").begin_object().key("max_images").number(most);
        json.end_object();
    }
    if let Some(mode) = &request.optimize {
        json.key("optimize_prompt_options").begin_object().key("mode").string(mode).end_object();
    }
    extras(&mut json, request, dialect);
    json.end_object();
    out
}

pub(super) fn is_third(family: ImageFamily) -> bool {
    matches!(family, ImageFamily::Seedream3 | ImageFamily::Seededit3 | ImageFamily::Other)
}

fn parts(request: &ImageRequest) -> BytesMut {
    let mut out = BytesMut::with_capacity(room(request));
    let mut json = Writer::new(&mut out);
    json.begin_object().key("contents").begin_array();
    if request.turns.is_empty() {
        let images = (0..request.images.len()).map(ImagePart::Image);
        let parts = [ImagePart::Text(request.prompt.clone())].into_iter().chain(images).collect();
        turn(&mut json, request, &ImageTurn { model: false, parts });
    }
    request.turns.iter().for_each(|each| turn(&mut json, request, each));
    json.end_array().key("generationConfig").begin_object();
    json.key("responseModalities").begin_array();
    if request.with_text != Some(false) {
        json.string("TEXT");
    }
    json.string("IMAGE").end_array();
    if request.size.is_some() || request.tier.is_some() {
        json.key("imageConfig").begin_object();
        string(&mut json, "aspectRatio", request.size.as_ref());
        string(&mut json, "imageSize", request.tier.as_ref());
        json.end_object();
    }
    raw(&mut json, "temperature", request.temperature.as_ref());
    raw(&mut json, "topP", request.top_p.as_ref());
    if let Some(seed) = request.seed {
        json.key("seed").number(seed);
    }
    json.end_object().end_object();
    out
}

fn turn(json: &mut Json<'_>, request: &ImageRequest, turn: &ImageTurn) {
    json.begin_object().key("role").string(if turn.model { "model" } else { "user" });
    json.key("parts").begin_array();
    for part in &turn.parts {
        match part {
            ImagePart::Text(text) => _ = json.begin_object().key("text").string(text).end_object(),
            ImagePart::Image(place) => {
                let source = request.images.get(*place).map(|input| &input.source);
                let Some(ImageSource::Bytes(bytes)) = source else { continue };
                json.begin_object().key("inlineData").begin_object();
                json.key("mimeType").string(media_of(bytes)).key("data");
                base64(json, &[], bytes);
                json.end_object().end_object();
            }
        }
    }
    json.end_array().end_object();
}

fn instances(request: &ImageRequest, dialect: &ImageDialect, count: u32) -> BytesMut {
    let mut out = BytesMut::with_capacity(room(request));
    let mut json = Writer::new(&mut out);
    json.begin_object().key("instances").begin_array().begin_object();
    json.key("prompt").string(&request.prompt);
    if let Some(ImageSource::Bytes(bytes)) = request.images.first().map(|input| &input.source) {
        json.key("image").begin_object().key("bytesBase64Encoded");
        base64(&mut json, &[], bytes);
        json.key("mimeType").string(media_of(bytes)).end_object();
    }
    json.end_object().end_array().key("parameters").begin_object();
    json.key("sampleCount").number(count);
    string(&mut json, "aspectRatio", request.size.as_ref());
    string(&mut json, "sampleImageSize", request.tier.as_ref());
    if let Some(seed) = request.seed {
        json.key("seed").number(seed);
    }
    raw(&mut json, "guidanceScale", request.guidance.as_ref());
    let options = request.extra.iter().any(|(name, _)| name == "outputOptions");
    if let Some(media) = request.media.as_ref().filter(|_| !options) {
        json.key("outputOptions").begin_object().key("mimeType").string(media).end_object();
    }
    for (name, value) in request.extra.iter().filter(|(name, _)| dialect.supports_extension(name)) {
        let name = if name == "negative_prompt" { "negativePrompt" } else { name };
        member(&mut json, name, value);
    }
    json.end_object().end_object();
    out
}

fn turns(request: &ImageRequest, dialect: &ImageDialect, model: &str, count: u32) -> BytesMut {
    let mut out = BytesMut::with_capacity(room(request));
    let mut json = Writer::new(&mut out);
    json.begin_object().key("model").string(model);
    json.key("input").begin_object().key("messages").begin_array();
    json.begin_object().key("role").string("user").key("content").begin_array();
    for input in &request.images {
        json.begin_object().key("image");
        address(&mut json, input);
        json.end_object();
    }
    json.begin_object().key("text").string(&request.prompt).end_object();
    json.end_array().end_object().end_array().end_object();
    json.key("parameters").begin_object();
    parameters(&mut json, request, count);
    extras(&mut json, request, dialect);
    json.end_object().end_object();
    out
}

fn prompt(request: &ImageRequest, dialect: &ImageDialect, model: &str, count: u32) -> BytesMut {
    let mut out = BytesMut::with_capacity(room(request));
    let mut json = Writer::new(&mut out);
    json.begin_object().key("model").string(model);
    json.key("input").begin_object().key("prompt").string(&request.prompt);
    // `negative_prompt` belongs to `input`, the other extra members to `parameters`.
    let beside = |name: &str| name == "negative_prompt";
    for (name, value) in request.extra.iter().filter(|(name, _)| beside(name)) {
        member(&mut json, name, value);
    }
    json.end_object().key("parameters").begin_object();
    parameters(&mut json, request, count);
    for (name, value) in
        request.extra.iter().filter(|(name, _)| !beside(name) && dialect.supports_extension(name))
    {
        member(&mut json, name, value);
    }
    json.end_object().end_object();
    out
}

fn parameters(json: &mut Json<'_>, request: &ImageRequest, count: u32) {
    if let Some(size) = &request.size {
        json.key("size").string(&size.replace('x', "*"));
    }
    json.key("n").number(count).key("watermark").boolean(request.watermark == Some(true));
    if let Some(seed) = request.seed {
        json.key("seed").number(seed);
    }
}
