//! Requests of the task group.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

use super::Task;
use crate::canonical::ElementLoss;
use crate::canonical::image::{ImageInput, ImageRequest};
use crate::canonical::video::{PictureRole, PictureSource, Seconds, Video, VideoInputImage};
use crate::error::ApiError;
use crate::wire::images::request::source;
use crate::wire::video::ask::read_source;
use crate::wire::video::members::{VideoField, VideoMembers, wrong};
use json::{Cursor, RawJson, Writer};

/// Video lengths of text-to-video and first-last-image tasks, in seconds (docs/specification.md, 8).
const SECONDS: Seconds = Seconds::of(&[3, 5, 8, 10, 12]);
/// Field names of the images endpoint, each with the names that the group has for the field.
const NAMES: &[(&str, &[&str])] = &[
    ("image", &["image", "imageUrl", "image_url"]),
    ("mask", &["image_urls", "imageUrls"]),
    ("optimize_prompt_options", OPTIMIZE),
    ("sequential_image_generation", SEQUENTIAL),
    ("sequential_image_generation_options", SEQUENTIAL_OPTIONS),
    ("response_format", FORMAT),
    ("n", &["n"]),
    ("size", &["size"]),
    ("quality", &["quality"]),
    ("temperature", &["temperature"]),
    ("watermark", &["watermark"]),
];
const OPTIMIZE: &[&str] =
    &["promptOptions", "prompt_options", "optimize_prompt_options", "optimizePrompt", "optimize_prompt"];
const SEQUENTIAL: &[&str] = &["sequentialImageGeneration", "sequential_image_generation"];
const SEQUENTIAL_OPTIONS: &[&str] =
    &["sequentialImageGenerationOptions", "sequential_image_generation_options"];
const FORMAT: &[&str] = &["responseFormat", "response_format"];

/// Exclusive upper bound of width times height, in pixels.
const PIXELS: u64 = 2048 * 2048;
/// Maximum length of a request tag (`req_key`) in bytes.
const TAG: usize = 256;

/// Parsed request.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedTask<'a> {
    /// Model. `None` if the request does not name one; the endpoint's name is then the model.
    pub model: Option<Cow<'a, str>>,
    /// Request tag (`req_key`), part of the idempotency key.
    pub tag: Option<Cow<'a, str>>,
    /// Decoded task.
    pub what: DecodedTask<'a>,
    /// Paths of the fields that the client set, by the field names of the images endpoint.
    pub names: Vec<(&'static str, String)>,
    /// Fields that are unknown or have no equivalent upstream.
    pub lost_settings: Vec<ElementLoss>,
}

impl ParsedTask<'_> {
    /// Rewrites an error of the images endpoint with the field names that the client used.
    pub fn named(&self, mut error: ApiError) -> ApiError {
        let known = |param: &str| {
            let found = self.names.iter().find(|(name, _)| param.strip_prefix(name).is_some_and(is_end))?;
            Some((found.0, found.1.as_str()))
        };
        if let Some((ours, theirs)) = error.param.as_deref().and_then(known) {
            error.message = error.message.replacen(&format!("'{ours}"), &format!("'{theirs}"), 1).into();
            error.param = error.param.map(|param| param.replacen(ours, theirs, 1).into());
        }
        error
    }
}

fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(['.', '['])
}

/// Decoded task.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodedTask<'a> {
    /// Video.
    Video(Box<Video<'a>>),
    /// Video with a replaced face.
    Face(Face<'a>),
    /// Images.
    Image(Box<ImageRequest>),
}

/// Video with a replaced face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face<'a> {
    /// URL of the image with the face.
    pub image: Cow<'a, str>,
    /// URL of the video.
    pub video: Cow<'a, str>,
    /// Similarity to the face. No provider supports it, so it is dropped with a warning.
    pub similarity: Option<Cow<'a, str>>,
}

/// Parses a request, with or without its wrapper object.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the request is malformed.
pub fn decode(task: Task, body: &str) -> Result<ParsedTask<'_>, ApiError> {
    let mut members = VideoMembers::read(body)?;
    let wrapper = task.wrapper();
    if let Some(inner) = members.take(&[wrapper]).filter(|_| !wrapper.is_empty()) {
        let mut inside = VideoMembers::default();
        inside.add(inner.value.text(), &format!("{wrapper}.")).map_err(|_| wrong(wrapper, "an object"))?;
        members = inside;
    }
    let tag = members.text(&["req_key", "reqKey"])?;
    if let Some((path, tag)) = &tag
        && (tag.is_empty() || tag.len() > TAG)
    {
        return Err(wrong(path, format_args!("a string of 1 to {TAG} bytes")));
    }
    let tag = tag.map(|(_, tag)| tag);
    let needs_tag = matches!(task, Task::FaceMerge | Task::TextToImage);
    if needs_tag && tag.is_none() {
        return Err(ApiError::missing(if task == Task::FaceMerge { "reqKey" } else { "req_key" }));
    }
    members.boolean(&["return_url", "returnUrl"])?;
    let names = NAMES.iter().filter_map(|(name, all)| Some((*name, members.path(all)?.to_owned()))).collect();
    let model = match task {
        Task::TextToVideo | Task::ProductExtraction => Some(members.required(&["model"])?),
        _ => members.text(&["model"])?.map(|(_, model)| model),
    };
    let what = match task {
        Task::FirstLast => DecodedTask::Video(Box::new(first_last(&mut members)?)),
        Task::TextToVideo => DecodedTask::Video(Box::new(text_to_video(&mut members)?)),
        Task::FaceMerge => DecodedTask::Face(Face {
            image: address(&mut members, &["imageUrl", "image_url"])?,
            video: address(&mut members, &["videoUrl", "video_url"])?,
            similarity: members.text(&["sourceSimilarity", "source_similarity"])?.map(|(_, text)| text),
        }),
        Task::TextToImage => DecodedTask::Image(Box::new(text_to_image(&mut members)?)),
        Task::ProductExtraction => DecodedTask::Image(Box::new(product(&mut members)?)),
        Task::ImageToImage => DecodedTask::Image(Box::new(image_to_image(&mut members)?)),
    };
    let mut lost: Vec<ElementLoss> =
        members.rest().into_iter().map(|field| ElementLoss::dropped(field.path)).collect();
    if let DecodedTask::Face(Face { similarity: Some(_), .. }) = &what {
        lost.push(ElementLoss::dropped("sourceSimilarity"));
    }
    Ok(ParsedTask { model, tag, what, names, lost_settings: lost })
}

/// Passes the body without whitespace between JSON tokens to `each`, piece by piece. Two submissions with the same tag
/// and equal pieces are the same task.
pub fn words(body: &str, mut each: impl FnMut(&[u8])) {
    let (mut inside, mut escaped) = (false, false);
    let mut from = 0;
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            // White space between tokens has no meaning; within strings it has.
            b' ' | b'\t' | b'\r' | b'\n' if !inside => {
                each(body.as_bytes().get(from..at).unwrap_or_default());
                from = at + 1;
            }
            _ => {}
        }
    }
    each(body.as_bytes().get(from..).unwrap_or_default());
}

/// Returns the API key in the body of a token request, or `None` if it has none.
pub fn api_key(body: &str) -> Option<String> {
    let mut members = VideoMembers::read(body).ok()?;
    let (_, key) = members.text(&["apiKey", "api_key"]).ok()??;
    Some(key.into_owned())
}

/// Returns the request with its model replaced. `None` if the body is malformed or does not name a model.
pub fn rename(body: &str, model: &str) -> Option<Bytes> {
    let at = place_of_model(body, 0)?;
    let mut out = BytesMut::with_capacity(body.len() + model.len());
    out.extend_from_slice(body.get(..at.start)?.as_bytes());
    Writer::new(&mut out).string(model);
    out.extend_from_slice(body.get(at.end..)?.as_bytes());
    Some(out.freeze())
}

/// Returns the byte range of the model's name, quotes included, at the top level or in the wrapper object.
fn place_of_model(text: &str, depth: u32) -> Option<std::ops::Range<usize>> {
    let mut json = Cursor::new(text);
    json.begin_object().ok()?;
    while let Some(key) = json.next_key().ok()? {
        let value = json.raw().ok()?;
        let end = json.offset();
        let start = end - value.text().len();
        if key.is("model") && value.as_str().is_some() {
            return Some(start..end);
        }
        let wrapped = Task::ALL.iter().any(|task| key.is(task.wrapper()) && !key.is_empty());
        if wrapped && depth == 0 {
            let inner = place_of_model(value.text(), 1)?;
            return Some(start + inner.start..start + inner.end);
        }
    }
    None
}

fn address<'a>(members: &mut VideoMembers<'a>, names: &[&'static str]) -> Result<Cow<'a, str>, ApiError> {
    let name = names.first().copied().unwrap_or_default();
    let (path, text) = members.text(names)?.ok_or_else(|| ApiError::missing(name))?;
    match read_source(text.clone()) {
        Some(PictureSource::Link(_)) => Ok(text),
        _ => Err(wrong(&path, "an http(s) URL")),
    }
}

/// Parses an array of addresses: HTTP(S) URLs or base64 images.
fn addresses<'a>(path: &str, value: RawJson<'a>) -> Result<Vec<Cow<'a, str>>, ApiError> {
    let fault = || wrong(path, "an array of URLs");
    let mut json = Cursor::new(value.text());
    json.begin_array().map_err(|_| fault())?;
    let mut all = Vec::new();
    while json.next_element().map_err(|_| fault())? {
        let text = json.raw().ok().and_then(RawJson::as_str).ok_or_else(fault)?.decode();
        if read_source(text.clone()).is_none() {
            return Err(wrong(&format!("{path}[{}]", all.len()), "an http(s) URL, or an image in base64"));
        }
        all.push(text);
    }
    Ok(all)
}

fn first_last<'a>(members: &mut VideoMembers<'a>) -> Result<Video<'a>, ApiError> {
    let urls = members.take(&["image_urls", "imageUrls"]).ok_or_else(|| ApiError::missing("image_urls"))?;
    let all = addresses(&urls.path, urls.value)?;
    if all.len() != 2 {
        return Err(wrong(&urls.path, "exactly two images: the first and the last"));
    }
    let roles = [PictureRole::First, PictureRole::Last];
    let pictures = all.into_iter().zip(roles).filter_map(|(url, role)| {
        Some(VideoInputImage { role, source: read_source(url)?, field: urls.path.clone().into() })
    });
    let pictures = pictures.collect();
    let prompt = members.required(&["prompt"])?;
    Ok(Video {
        prompt: Some(prompt),
        pictures,
        seconds: Some(seconds(members)?),
        resolution: members.text(&["resolution"])?.map(|(_, text)| lower(&text)),
        ..Video::default()
    })
}

fn seconds(members: &mut VideoMembers<'_>) -> Result<u64, ApiError> {
    let (path, seconds) = members.whole(&["duration"])?.ok_or_else(|| ApiError::missing("duration"))?;
    if SECONDS.has(seconds) { Ok(seconds) } else { Err(wrong(&path, format_args!("{SECONDS} seconds"))) }
}

fn text_to_video<'a>(members: &mut VideoMembers<'a>) -> Result<Video<'a>, ApiError> {
    let prompt = members.required(&["prompt"])?;
    Ok(Video {
        prompt: Some(prompt),
        seconds: Some(seconds(members)?),
        ratio: Some(members.required(&["aspect_ratio", "aspectRatio"])?),
        resolution: members.text(&["resolution"])?.map(|(_, text)| lower(&text)),
        ..Video::default()
    })
}

fn lower<'a>(text: &str) -> Cow<'a, str> {
    Cow::Owned(text.to_ascii_lowercase())
}

/// Parses a size as `1328x1328` into width and height in pixels.
fn parse_size(text: &str) -> Option<(u64, u64)> {
    let (width, height) = text.split_once(['x', 'X', '*'])?;
    let (width, height) = (width.trim().parse().ok()?, height.trim().parse().ok()?);
    (width > 0 && height > 0).then_some((width, height))
}

fn text_to_image(members: &mut VideoMembers<'_>) -> Result<ImageRequest, ApiError> {
    let prompt = members.required(&["prompt"])?;
    let size = members.required(&["size"])?;
    let value = members.required(&["value"])?;
    if size != value {
        return Err(wrong("value", "the same as 'size'"));
    }
    let sides = parse_size(&size).ok_or_else(|| wrong("size", "<width>x<height>"))?;
    let width = members.whole(&["width"])?;
    let height = members.whole(&["height"])?;
    match (width, height) {
        (None, None) => {}
        (Some((_, width)), Some((_, height))) if (width, height) == sides => {}
        (Some((_, width)), Some((_, height))) if width > 0 && height > 0 => {
            return Err(wrong("width", "the width of 'size', and 'height' its height"));
        }
        _ => return Err(wrong("width", "given together with 'height', and both greater than 0")),
    }
    if sides.0.checked_mul(sides.1).is_none_or(|pixels| pixels >= PIXELS) {
        return Err(wrong("size", "less than 2048 x 2048 pixels in total"));
    }
    Ok(ImageRequest {
        prompt: prompt.into_owned(),
        size: Some(format!("{}x{}", sides.0, sides.1)),
        group: true,
        ..ImageRequest::default()
    })
}

fn product(members: &mut VideoMembers<'_>) -> Result<ImageRequest, ApiError> {
    let prompt = members.required(&["prompt"])?;
    let (path, count) = members.whole(&["n"])?.ok_or_else(|| ApiError::missing("n"))?;
    let count = u32::try_from(count).ok().filter(|count| (1..=15).contains(count));
    let count = count.ok_or_else(|| wrong(&path, "from 1 to 15"))?;
    let size = members.required(&["size"])?;
    let (path, temperature) =
        members.whole(&["temperature"])?.ok_or_else(|| ApiError::missing("temperature"))?;
    if temperature > 2 {
        return Err(wrong(&path, "from 0 to 2"));
    }
    let watermark = members.boolean(&["watermark"])?.ok_or_else(|| ApiError::missing("watermark"))?;
    let mut request = ImageRequest {
        prompt: prompt.into_owned(),
        size: Some(size.into_owned()),
        temperature: Some(temperature.to_string()),
        watermark: Some(watermark),
        group: true,
        quality: members.text(&["quality"])?.map(|(_, quality)| quality.into_owned()),
        ..ImageRequest::default()
    };
    if let Some((path, image)) = members.text(&["image"])? {
        request.images.push(ImageInput { source: source(&path, &image)?, field: path });
    }
    if let Some((path, format)) = members.text(FORMAT)? {
        request.inline = Some(match &*format {
            "url" => false,
            "b64_json" => true,
            _ => return Err(wrong(&path, "'url' or 'b64_json'")),
        });
    }
    request.optimize = optimize(members)?;
    let sequential = match members.text(SEQUENTIAL)? {
        None => false,
        Some((_, word)) if word == "disabled" => false,
        Some((_, word)) if word == "auto" => true,
        Some((path, _)) => return Err(wrong(&path, "'auto' or 'disabled'")),
    };
    let most = match object(members.take(SEQUENTIAL_OPTIONS))? {
        Some((path, _)) if !sequential => {
            return Err(wrong(&path, "absent unless 'sequential_image_generation' is 'auto'"));
        }
        Some((path, mut inner)) => {
            let most = inner.whole(&["max_images", "maxImages"])?.map(|(_, most)| most);
            let most = most.map(|most| u32::try_from(most).ok().filter(|most| (1..=4).contains(most)));
            match most {
                Some(None) => return Err(wrong(&format!("{path}.max_images"), "from 1 to 4")),
                most => most.flatten(),
            }
        }
        None => None,
    };
    if sequential {
        request.sequence = Some(most.unwrap_or(count));
    } else {
        request.count = Some(count);
    }
    Ok(request)
}

/// Parses the prompt optimization: a mode, or an object with a mode.
fn optimize(members: &mut VideoMembers<'_>) -> Result<Option<String>, ApiError> {
    let (words, objects) = (&["optimizePrompt", "optimize_prompt"], OPTIMIZE.get(..3).unwrap_or_default());
    let word = members.text(words)?;
    let mode = match object(members.take(objects))? {
        Some((_, mut inner)) => inner.text(&["mode"])?,
        None => None,
    };
    match mode.or(word) {
        None => Ok(None),
        Some((_, mode)) if matches!(&*mode, "" | "false") => Ok(None),
        Some((_, mode)) if mode == "true" => Ok(Some("standard".to_owned())),
        Some((_, mode)) if matches!(&*mode, "standard" | "fast") => Ok(Some(mode.into_owned())),
        Some((path, _)) => Err(wrong(&path, "'standard' or 'fast'")),
    }
}

/// Returns the path and the members of a field that must be an object.
fn object<'a>(field: Option<VideoField<'a>>) -> Result<Option<(String, VideoMembers<'a>)>, ApiError> {
    let Some(field) = field else { return Ok(None) };
    let mut members = VideoMembers::default();
    members
        .add(field.value.text(), &format!("{}.", field.path))
        .map_err(|_| wrong(&field.path, "an object"))?;
    Ok(Some((field.path, members)))
}

fn image_to_image(members: &mut VideoMembers<'_>) -> Result<ImageRequest, ApiError> {
    let (path, single) =
        members.text(&["imageUrl", "image_url"])?.ok_or_else(|| ApiError::missing("imageUrl"))?;
    let single = ImageInput { source: source(&path, &single)?, field: path };
    let prompt = members.required(&["prompt"])?;
    let mut request = ImageRequest { prompt: prompt.into_owned(), group: true, ..ImageRequest::default() };
    match members.take(&["image_urls", "imageUrls"]) {
        Some(urls) => {
            let all = addresses(&urls.path, urls.value)?;
            if !(1..=2).contains(&all.len()) {
                return Err(wrong(&urls.path, "an image and, for an edit of a part, its mask"));
            }
            let input = |(number, text): (usize, &Cow<'_, str>)| {
                let field = format!("{}[{number}]", urls.path);
                Ok(ImageInput { source: source(&field, text)?, field })
            };
            let mut inputs = all.iter().enumerate().map(input).collect::<Result<Vec<_>, ApiError>>()?;
            request.mask = (inputs.len() == 2).then(|| inputs.pop()).flatten();
            request.images = inputs;
        }
        None => request.images.push(single),
    }
    Ok(request)
}
