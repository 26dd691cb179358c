//! What a client asks for.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

use super::Task;
use crate::canonical::video::{Picture, PictureRole, PictureSource, Seconds, Video};
use crate::error::ApiError;
use crate::json::{Cursor, RawJson, Writer};
use crate::wire::video::ask::read_source;
use crate::wire::video::members::{Members, wrong};

/// Lengths of a video from a text, in seconds (specification, section 8).
const SECONDS: Seconds = Seconds::OneOf(&[3, 5, 8, 10, 12]);
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
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum What<'a> {
    /// A video.
    Video(Box<Video<'a>>),
    /// A video with another face.
    Face(Face<'a>),
    /// Pictures.
    Image(Box<Image<'a>>),
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

/// Pictures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image<'a> {
    /// What is to be seen.
    pub prompt: Cow<'a, str>,
    /// What they are made from: addresses or data URLs.
    pub images: Vec<Cow<'a, str>>,
    /// Width and height, or a word for them.
    pub size: Option<Cow<'a, str>>,
    /// How many.
    pub count: u64,
    /// With a mark.
    pub watermark: bool,
    /// Several that belong together: `auto` or `disabled`.
    pub sequential: Option<Cow<'a, str>>,
    /// How many of them.
    pub sequential_options: Option<RawJson<'a>>,
    /// How the prompt is made better.
    pub prompt_options: Option<RawJson<'a>>,
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
    Ok(Asked { model, tag, what })
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
    let (path, seconds) = members.whole(&["duration"])?.ok_or_else(|| ApiError::missing("duration"))?;
    if seconds == 0 {
        return Err(wrong(&path, "a number of seconds"));
    }
    Ok(Video {
        prompt: Some(prompt),
        pictures,
        seconds: Some(seconds),
        resolution: members.text(&["resolution"])?.map(|(_, text)| lower(&text)),
        ..Video::default()
    })
}

fn text_to_video<'a>(members: &mut Members<'a>) -> Result<Video<'a>, ApiError> {
    let prompt = members.required(&["prompt"])?;
    let (path, seconds) = members.whole(&["duration"])?.ok_or_else(|| ApiError::missing("duration"))?;
    if !SECONDS.has(seconds) {
        return Err(wrong(&path, format_args!("{SECONDS} seconds")));
    }
    Ok(Video {
        prompt: Some(prompt),
        seconds: Some(seconds),
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

fn text_to_image<'a>(members: &mut Members<'a>) -> Result<Image<'a>, ApiError> {
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
    Ok(Image {
        prompt,
        size: Some(Cow::Owned(format!("{}x{}", sides.0, sides.1))),
        count: 1,
        ..Image::default()
    })
}

fn product<'a>(members: &mut Members<'a>) -> Result<Image<'a>, ApiError> {
    let prompt = members.required(&["prompt"])?;
    let (path, count) = members.whole(&["n"])?.ok_or_else(|| ApiError::missing("n"))?;
    if !(1..=15).contains(&count) {
        return Err(wrong(&path, "from 1 to 15"));
    }
    let size = members.required(&["size"])?;
    members.whole(&["temperature"])?.ok_or_else(|| ApiError::missing("temperature"))?;
    let watermark = members.boolean(&["watermark"])?.ok_or_else(|| ApiError::missing("watermark"))?;
    let images = match members.text(&["image"])? {
        Some((path, image)) => {
            read_source(image.clone())
                .ok_or_else(|| wrong(&path, "an http(s) address, or an image in base64"))?;
            vec![image]
        }
        None => Vec::new(),
    };
    let object = |field: Option<crate::wire::video::members::Field<'a>>| match field {
        Some(field) if field.value.text().starts_with('{') => Ok(Some(field.value)),
        Some(field) => Err(wrong(&field.path, "an object")),
        None => Ok(None),
    };
    let options = object(members.take(&["promptOptions", "prompt_options", "optimize_prompt_options"]))?;
    let sequential_options =
        object(members.take(&["sequentialImageGenerationOptions", "sequential_image_generation_options"]))?;
    let sequential = members.text(&["sequentialImageGeneration", "sequential_image_generation"])?;
    if let Some((path, word)) = &sequential
        && !matches!(&**word, "auto" | "disabled")
    {
        return Err(wrong(path, "'auto' or 'disabled'"));
    }
    Ok(Image {
        prompt,
        images,
        size: Some(size),
        count,
        watermark,
        sequential: sequential.map(|(_, word)| word),
        sequential_options,
        prompt_options: options,
    })
}

fn image_to_image<'a>(members: &mut Members<'a>) -> Result<Image<'a>, ApiError> {
    let (path, single) =
        members.text(&["imageUrl", "image_url"])?.ok_or_else(|| ApiError::missing("imageUrl"))?;
    read_source(single.clone()).ok_or_else(|| wrong(&path, "an http(s) address, or an image in base64"))?;
    let prompt = members.required(&["prompt"])?;
    let images = match members.take(&["image_urls", "imageUrls"]) {
        Some(urls) => {
            let all = addresses(&urls.path, urls.value)?;
            if !(1..=2).contains(&all.len()) {
                return Err(wrong(&urls.path, "an image and, where a part is to change, its mask"));
            }
            all
        }
        None => vec![single],
    };
    Ok(Image { prompt, images, count: 1, ..Image::default() })
}
