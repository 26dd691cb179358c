//! What a client asks for.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

use super::Task;
use crate::canonical::ElementLoss;
use crate::canonical::image::{ImageInput, ImageRequest};
use crate::canonical::video::{Picture, PictureRole, PictureSource, Seconds, Video};
use crate::error::ApiError;
use crate::json::{Cursor, RawJson, Writer};
use crate::wire::images::request::source;
use crate::wire::video::ask::read_source;
use crate::wire::video::members::{Field, Members, wrong};

/// Lengths of a video from a text, in seconds (specification, section 8).
const SECONDS: Seconds = Seconds::OneOf(&[3, 5, 8, 10, 12]);
/// Names of fields, by the names that they have where images are asked for otherwise.
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

/// What the product of width and height must stay below.
const PIXELS: u64 = 2048 * 2048;
/// Longest tag.
const TAG: usize = 256;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<'a> {
    /// The model, where the request names one.
    pub model: Option<Cow<'a, str>>,
    /// What makes it the same as another one.
    pub tag: Option<Cow<'a, str>>,
    /// What is asked for.
    pub what: What<'a>,
    /// The client's paths of fields, by the names that they have where images are asked for otherwise.
    pub names: Vec<(&'static str, String)>,
    /// What nobody has a place for.
    pub lost: Vec<ElementLoss>,
}

impl Asked<'_> {
    /// An error in the client's words.
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

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum What<'a> {
    /// A video.
    Video(Box<Video<'a>>),
    /// A video with another face.
    Face(Face<'a>),
    /// Pictures.
    Image(Box<ImageRequest>),
}

/// A video with another face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face<'a> {
    /// The address of the face.
    pub image: Cow<'a, str>,
    /// The address of the video.
    pub video: Cow<'a, str>,
    /// How much like the face.
    pub similarity: Option<Cow<'a, str>>,
}

/// Reads a request, with its wrapper or without.
///
/// # Errors
/// It is malformed; the error names the field.
pub fn decode(task: Task, body: &str) -> Result<Asked<'_>, ApiError> {
    let mut members = Members::read(body)?;
    let wrapper = task.wrapper();
    if let Some(inner) = members.take(&[wrapper]).filter(|_| !wrapper.is_empty()) {
        let mut inside = Members::default();
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
        Task::FirstLast => What::Video(Box::new(first_last(&mut members)?)),
        Task::TextToVideo => What::Video(Box::new(text_to_video(&mut members)?)),
        Task::FaceMerge => What::Face(Face {
            image: address(&mut members, &["imageUrl", "image_url"])?,
            video: address(&mut members, &["videoUrl", "video_url"])?,
            similarity: members.text(&["sourceSimilarity", "source_similarity"])?.map(|(_, text)| text),
        }),
        Task::TextToImage => What::Image(Box::new(text_to_image(&mut members)?)),
        Task::ProductExtraction => What::Image(Box::new(product(&mut members)?)),
        Task::ImageToImage => What::Image(Box::new(image_to_image(&mut members)?)),
    };
    let mut lost: Vec<ElementLoss> =
        members.rest().into_iter().map(|field| ElementLoss::dropped(field.path)).collect();
    if let What::Face(Face { similarity: Some(_), .. }) = &what {
        lost.push(ElementLoss::dropped("sourceSimilarity"));
    }
    Ok(Asked { model, tag, what, names, lost })
}

/// What a request says, whatever spaces stand between its words: two that say the same with the same tag are one.
pub fn words(body: &str, mut each: impl FnMut(&[u8])) {
    let (mut inside, mut escaped) = (false, false);
    let mut from = 0;
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b' ' | b'\t' | b'\r' | b'\n' if !inside => {
                each(body.as_bytes().get(from..at).unwrap_or_default());
                from = at + 1;
            }
            _ => {}
        }
    }
    each(body.as_bytes().get(from..).unwrap_or_default());
}

/// The key that a request for a token has in its body, if it has one.
pub fn api_key(body: &str) -> Option<String> {
    let mut members = Members::read(body).ok()?;
    let (_, key) = members.text(&["apiKey", "api_key"]).ok()??;
    Some(key.into_owned())
}

/// The request with another model's name in it; nothing where it cannot be read.
pub fn rename(body: &str, model: &str) -> Option<Bytes> {
    let at = place_of_model(body, 0)?;
    let mut out = BytesMut::with_capacity(body.len() + model.len());
    out.extend_from_slice(body.get(..at.start)?.as_bytes());
    Writer::new(&mut out).string(model);
    out.extend_from_slice(body.get(at.end..)?.as_bytes());
    Some(out.freeze())
}

/// Where the model's name stands, quotes included; in the wrapper, if there is one.
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

fn address<'a>(members: &mut Members<'a>, names: &[&'static str]) -> Result<Cow<'a, str>, ApiError> {
    let name = names.first().copied().unwrap_or_default();
    let (path, text) = members.text(names)?.ok_or_else(|| ApiError::missing(name))?;
    match read_source(text.clone()) {
        Some(PictureSource::Link(_)) => Ok(text),
        _ => Err(wrong(&path, "an http(s) address")),
    }
}

/// The addresses in a list.
fn addresses<'a>(path: &str, value: RawJson<'a>) -> Result<Vec<Cow<'a, str>>, ApiError> {
    let fault = || wrong(path, "an array of addresses");
    let mut json = Cursor::new(value.text());
    json.begin_array().map_err(|_| fault())?;
    let mut all = Vec::new();
    while json.next_element().map_err(|_| fault())? {
        let text = json.raw().ok().and_then(RawJson::as_str).ok_or_else(fault)?.decode();
        if read_source(text.clone()).is_none() {
            return Err(wrong(
                &format!("{path}[{}]", all.len()),
                "an http(s) address, or an image in base64",
            ));
        }
        all.push(text);
    }
    Ok(all)
}

fn first_last<'a>(members: &mut Members<'a>) -> Result<Video<'a>, ApiError> {
    let urls = members.take(&["image_urls", "imageUrls"]).ok_or_else(|| ApiError::missing("image_urls"))?;
    let all = addresses(&urls.path, urls.value)?;
    if all.len() != 2 {
        return Err(wrong(&urls.path, "exactly two images: the first and the last"));
    }
    let roles = [PictureRole::First, PictureRole::Last];
    let pictures = all.into_iter().zip(roles).filter_map(|(url, role)| {
        Some(Picture { role, source: read_source(url)?, field: urls.path.clone().into() })
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

fn seconds(members: &mut Members<'_>) -> Result<u64, ApiError> {
    let (path, seconds) = members.whole(&["duration"])?.ok_or_else(|| ApiError::missing("duration"))?;
    if SECONDS.has(seconds) { Ok(seconds) } else { Err(wrong(&path, format_args!("{SECONDS} seconds"))) }
}

fn text_to_video<'a>(members: &mut Members<'a>) -> Result<Video<'a>, ApiError> {
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

/// Width and height of `1328x1328`.
fn parse_size(text: &str) -> Option<(u64, u64)> {
    let (width, height) = text.split_once(['x', 'X', '*'])?;
    let (width, height) = (width.trim().parse().ok()?, height.trim().parse().ok()?);
    (width > 0 && height > 0).then_some((width, height))
}

fn text_to_image(members: &mut Members<'_>) -> Result<ImageRequest, ApiError> {
    let prompt = members.required(&["prompt"])?;
    let size = members.required(&["size"])?;
    let value = members.required(&["value"])?;
    if size != value {
        return Err(wrong("value", "the same as 'size'"));
    }
    let mut sides = parse_size(&size).ok_or_else(|| wrong("size", "<width>x<height>"))?;
    let width = members.whole(&["width"])?;
    let height = members.whole(&["height"])?;
    match (width, height) {
        (None, None) => {}
        (Some((_, width)), Some((_, height))) if width > 0 && height > 0 => sides = (width, height),
        _ => return Err(wrong("width", "there together with 'height', and both greater than 0")),
    }
    if sides.0.checked_mul(sides.1).is_none_or(|pixels| pixels >= PIXELS) {
        return Err(wrong("size", "less than 2048 x 2048 in all"));
    }
    Ok(ImageRequest {
        prompt: prompt.into_owned(),
        size: Some(format!("{}x{}", sides.0, sides.1)),
        group: true,
        ..ImageRequest::default()
    })
}

fn product(members: &mut Members<'_>) -> Result<ImageRequest, ApiError> {
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
        watermark,
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
            return Err(wrong(&path, "absent where the images do not belong together"));
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

/// How the prompt is made better: as a word, or as an object with one.
fn optimize(members: &mut Members<'_>) -> Result<Option<String>, ApiError> {
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

/// The members of a field that is an object.
fn object<'a>(field: Option<Field<'a>>) -> Result<Option<(String, Members<'a>)>, ApiError> {
    let Some(field) = field else { return Ok(None) };
    let mut members = Members::default();
    members
        .add(field.value.text(), &format!("{}.", field.path))
        .map_err(|_| wrong(&field.path, "an object"))?;
    Ok(Some((field.path, members)))
}

fn image_to_image(members: &mut Members<'_>) -> Result<ImageRequest, ApiError> {
    let (path, single) =
        members.text(&["imageUrl", "image_url"])?.ok_or_else(|| ApiError::missing("imageUrl"))?;
    let single = ImageInput { source: source(&path, &single)?, field: path };
    let prompt = members.required(&["prompt"])?;
    let mut request = ImageRequest { prompt: prompt.into_owned(), group: true, ..ImageRequest::default() };
    match members.take(&["image_urls", "imageUrls"]) {
        Some(urls) => {
            let all = addresses(&urls.path, urls.value)?;
            if !(1..=2).contains(&all.len()) {
                return Err(wrong(&urls.path, "an image and, where a part is to change, its mask"));
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
