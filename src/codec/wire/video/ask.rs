//! Video requests of clients, checked against the model's capabilities.

use std::borrow::Cow;

use super::members::{VideoMembers, one_of, unsupported, wrong};
use super::{markers, settle};
use crate::canonical::request::Extra;
use crate::canonical::video::{PictureRole, PictureSource, Video, VideoDialect, VideoInputImage, VideoShape};
use crate::error::{ApiError, ErrorKind};
use json::{Cursor, RawJson};

/// Maximum number of input images per request.
const PICTURES: usize = 10;

/// Returns the model that a request names.
///
/// # Errors
/// Returns an [`ApiError`] if the body is not a JSON object or has no model.
pub fn model(body: &str) -> Result<Cow<'_, str>, ApiError> {
    VideoMembers::read(body)?.required(&["model"])
}

/// Returns the task id from the operation name of a `:fetchPredictOperation` request.
///
/// # Errors
/// Returns an [`ApiError`] if the body has no operation name.
pub fn operation(body: &str) -> Result<String, ApiError> {
    let name = VideoMembers::read(body)?.required(&["operationName"])?;
    let id = name.rsplit_once("/operations/").map(|(_, id)| id.to_owned());
    id.ok_or_else(|| wrong("operationName", "the name of an operation"))
}

/// Returns the id of the video that a request remixes. `None` if the request is not a remix.
pub fn remix(body: &str) -> Option<String> {
    let mut members = VideoMembers::read(body).ok()?;
    let (_, from) = members.text(&["remix_from_video_id"]).ok()??;
    from.starts_with("video_").then(|| from.into_owned())
}

/// Parses a request for a model.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the request is malformed, or the model does not support it.
pub fn decode<'a>(body: &'a str, dialect: &VideoDialect) -> Result<Video<'a>, ApiError> {
    let mut members = VideoMembers::read(body)?;
    members.take(&["model"]);
    if let Some(instances) = members.take(&["instances"]) {
        read_instance(instances.value, &mut members)?;
    }
    if let Some(parameters) = members.take(&["parameters"]) {
        members.add(parameters.value.text(), "parameters.").map_err(|_| wrong("parameters", "an object"))?;
    }
    // Added last, so that a member at the top level wins over the same one in `metadata`.
    let metadata = members.take(&["metadata"]);
    if let Some(metadata) = &metadata {
        members.add(metadata.value.text(), "metadata.").map_err(|_| wrong("metadata", "an object"))?;
    }
    let mut paths = Vec::new();
    // Record the client's spelling of each field before it is taken: later errors and warnings name it.
    let mut known = |members: &VideoMembers<'a>, name: &'static str, names: &[&str]| {
        paths.extend(members.path(names).map(|path| (name, path.to_owned())));
    };
    const NEGATIVE: &[&str] = &["negative_prompt", "negativePrompt"];
    const AUDIO: &[&str] = &["generateAudio", "generate_audio", "audio"];
    const PEOPLE: &[&str] = &["personGeneration", "person_generation"];
    const WATERMARK: &[&str] = &["addWatermark", "add_watermark", "watermark"];
    for (name, names) in [
        ("prompt", &["prompt"][..]),
        ("negative_prompt", NEGATIVE),
        ("generateAudio", AUDIO),
        ("personGeneration", PEOPLE),
        ("watermark", WATERMARK),
        ("seed", &["seed"]),
        ("frames", &["frames"]),
        ("duration", settle::lengths(dialect.shape)),
        ("size", &["size"]),
        ("resolution", &["resolution"]),
        ("aspect_ratio", settle::RATIO),
    ] {
        known(&members, name, names);
    }
    let mut video = Video {
        prompt: members.text(&["prompt"])?.map(|(_, text)| text),
        negative: members.text(NEGATIVE)?.map(|(_, text)| text),
        audio: members.boolean(AUDIO)?,
        watermark: members.boolean(WATERMARK)?,
        paths,
        ..Video::default()
    };
    if let Some((path, people)) = members.text(PEOPLE)? {
        if !settle::PEOPLE.contains(&&*people) {
            return Err(wrong(&path, one_of(settle::PEOPLE)));
        }
        video.people = Some(people);
    }
    if let Some((path, seed)) = members.whole(&["seed"])? {
        if seed > 0xffff_ffff {
            return Err(wrong(&path, "at most 4294967295"));
        }
        video.seed = Some(seed);
    }
    samples(&mut members, dialect, &mut video)?;
    settle::read(&mut members, dialect, &mut video)?;
    pictures(&mut members, &mut video)?;
    let content = members.take(&["content"]);
    if let Some(content) = content {
        if dialect.shape != VideoShape::Bundled {
            return Err(unsupported(&content.path));
        }
        read_content(&content.path, content.value, dialect, &mut video)?;
    }
    if let Some((path, from)) = members.text(&["remix_from_video_id"])? {
        if dialect.shape != VideoShape::Remix {
            return Err(unsupported(&path));
        }
        if !from.starts_with("video_") || from.len() > 128 {
            return Err(wrong(&path, "the id of a video, which starts with 'video_'"));
        }
        video.remix = Some(from);
    }
    settle::resolve_dimensions(dialect, &mut video)?;
    check(dialect, &video)?;
    video.extra =
        members.rest().into_iter().map(|field| Extra { name: field.name, value: field.value }).collect();
    Ok(video)
}

/// Reads the single element of Google's `instances`.
fn read_instance<'a>(value: RawJson<'a>, members: &mut VideoMembers<'a>) -> Result<(), ApiError> {
    let fault = |_| wrong("instances", "an array with one object");
    let mut json = Cursor::new(value.text());
    json.begin_array().map_err(fault)?;
    let mut count = 0;
    while json.next_element().map_err(fault)? {
        let instance = json.raw().map_err(fault)?;
        members.add(instance.text(), "instances[0].").map_err(fault)?;
        count += 1;
    }
    if count == 1 { Ok(()) } else { Err(wrong("instances", "an array with one object")) }
}

fn samples<'a>(
    members: &mut VideoMembers<'a>,
    dialect: &VideoDialect,
    video: &mut Video<'a>,
) -> Result<(), ApiError> {
    let Some((path, samples)) = members.whole(&["sampleCount", "sample_count", "n"])? else { return Ok(()) };
    if !(1..=dialect.samples).contains(&samples) {
        let most = dialect.samples;
        return Err(wrong(&path, if most == 1 { "1".to_owned() } else { format!("from 1 to {most}") }));
    }
    video.samples = Some(samples);
    Ok(())
}

fn pictures<'a>(members: &mut VideoMembers<'a>, video: &mut Video<'a>) -> Result<(), ApiError> {
    let roles: [(&[&str], PictureRole); 2] = [
        (&["image", "input_reference", "image_url", "firstFrame", "first_frame"], PictureRole::First),
        (&["lastFrame", "last_frame", "last_frame_url"], PictureRole::Last),
    ];
    for (names, role) in roles {
        if let Some(field) = members.take(names) {
            let source = source(&field.path, field.value)?;
            video.pictures.push(VideoInputImage { role, source, field: field.path.into() });
        }
    }
    Ok(())
}

/// Parses an image: a URL, a data URL, bare base64, or an object with one of these.
fn source<'a>(path: &str, value: RawJson<'a>) -> Result<PictureSource<'a>, ApiError> {
    let fault = || wrong(path, "an http(s) URL, a data URL of an image, or an image in base64");
    if value.text().starts_with('{') {
        let mut members = VideoMembers::default();
        members.add(value.text(), "").map_err(|_| fault())?;
        let media = members.text(&["mimeType", "mime_type"])?;
        let inner =
            members.take(&["url", "image_url", "bytesBase64Encoded", "imageBytes"]).ok_or_else(fault)?;
        let source = source(path, inner.value)?;
        return Ok(match (source, media) {
            (PictureSource::Data { base64, .. }, Some((_, media))) => PictureSource::Data { media, base64 },
            (source, _) => source,
        });
    }
    let text = value.as_str().ok_or_else(fault)?.decode();
    read_source(text).ok_or_else(fault)
}

/// Parses a URL, a data URL of an image, or bare base64 of a known image type. Returns `None` for other text.
pub fn read_source(text: Cow<'_, str>) -> Option<PictureSource<'_>> {
    let is_link = |text: &str| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
    };
    if is_link(&text) {
        return Some(PictureSource::Link(text));
    }
    if let Some(rest) = text.strip_prefix("data:") {
        let (media, base64) = rest.split_once(";base64,")?;
        if !media.starts_with("image/") || media.contains(|c: char| !c.is_ascii_graphic()) {
            return None;
        }
        let (media, at) = (media.to_owned(), text.len() - base64.len());
        let base64 = match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.get(at..)?),
            Cow::Owned(text) => Cow::Owned(text.get(at..)?.to_owned()),
        };
        return is_base64(&base64).then_some(PictureSource::Data { media: Cow::Owned(media), base64 });
    }
    // Base64 of the first bytes of each file type.
    const SIGNS: [(&str, &str); 6] = [
        ("/9j/", "image/jpeg"),
        ("iVBOR", "image/png"),
        ("UklGR", "image/webp"),
        ("R0lGOD", "image/gif"),
        ("Qk", "image/bmp"),
        ("SUkqA", "image/tiff"),
    ];
    let (_, media) = SIGNS.iter().find(|(sign, _)| text.starts_with(sign))?;
    is_base64(&text).then_some(PictureSource::Data { media: Cow::Borrowed(media), base64: text })
}

fn is_base64(text: &str) -> bool {
    let plain = text.trim_end_matches('=');
    !plain.is_empty()
        && text.len() - plain.len() <= 2
        && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// Reads the `content` list of the bundled shape, which has prompt and images as elements.
fn read_content<'a>(
    path: &str,
    value: RawJson<'a>,
    dialect: &VideoDialect,
    video: &mut Video<'a>,
) -> Result<(), ApiError> {
    let not_json = |_| wrong(path, "an array of objects");
    let mut prompt: Option<Cow<'a, str>> = None;
    let mut inside = None;
    let mut json = Cursor::new(value.text());
    json.begin_array().map_err(not_json)?;
    let mut at = 0;
    while json.next_element().map_err(not_json)? {
        let here = format!("{path}[{at}]");
        at += 1;
        let item = json.raw().map_err(not_json)?;
        let mut members = VideoMembers::default();
        members.add(item.text(), &format!("{here}.")).map_err(|_| wrong(&here, "an object"))?;
        let kind = members.text(&["type"])?.map(|(_, kind)| kind);
        match kind.as_deref() {
            Some("text") => {
                let (path, text) =
                    members.text(&["text"])?.ok_or_else(|| wrong(&format!("{here}.text"), "a string"))?;
                check_markers(&path, &text, dialect)?;
                inside = inside.or(Some(path));
                prompt = Some(match prompt {
                    None => text,
                    Some(before) => Cow::Owned(format!("{before}\n{text}")),
                });
            }
            Some("image_url") => {
                let image = members.take(&["image_url"]);
                let image = image.ok_or_else(|| wrong(&format!("{here}.image_url"), "an object"))?;
                let source = source(&image.path, image.value)?;
                let role = match members.text(&["role"])? {
                    None => PictureRole::First,
                    Some((path, word)) => {
                        let roles = [PictureRole::First, PictureRole::Last, PictureRole::Reference];
                        let known = roles.into_iter().find(|role| role.name() == word);
                        known.ok_or_else(|| wrong(&path, one_of(&roles.map(PictureRole::name))))?
                    }
                };
                video.pictures.push(VideoInputImage { role, source, field: here.into() });
            }
            Some(_) => video.content.push(item),
            None => return Err(wrong(&format!("{here}.type"), "a string")),
        }
    }
    if prompt.is_some() {
        // The list replaces a prompt beside it.
        video.prompt = prompt;
        video.paths.retain(|(name, _)| *name != "prompt");
        video.paths.extend(inside.map(|path| ("prompt", path)));
    }
    Ok(())
}

fn check_markers(path: &str, text: &str, dialect: &VideoDialect) -> Result<(), ApiError> {
    for (name, value) in markers::read(text) {
        let fault = |wanted: String| {
            let message = format!("The marker '--{name}' in '{path}' must be {wanted} for this model.");
            Err(ApiError::new(ErrorKind::InvalidField, message).param(path.to_owned()))
        };
        match name {
            "ratio" if !dialect.ratios.contains(&value) => return fault(one_of(dialect.ratios)),
            "resolution" if !dialect.resolutions.contains(&value) => {
                return fault(one_of(dialect.resolutions));
            }
            "duration" if !value.parse().is_ok_and(|seconds| dialect.seconds.has(seconds)) => {
                return fault(format!("{} seconds", dialect.seconds));
            }
            "frames" if !value.parse().is_ok_and(settle::has_frames) => {
                return fault(settle::FRAMES.to_owned());
            }
            "framespersecond" if value != "24" => return fault("24".to_owned()),
            _ => {}
        }
    }
    Ok(())
}

/// Checks and normalizes a video that was decoded from another request format.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the model does not support it.
pub fn fit(dialect: &VideoDialect, video: &mut Video<'_>) -> Result<(), ApiError> {
    settle::resolve_dimensions(dialect, video)?;
    check(dialect, video)
}

/// Checks combinations of prompt and images against the model's capabilities.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the model does not support the combination.
pub fn check(dialect: &VideoDialect, video: &Video<'_>) -> Result<(), ApiError> {
    if let Some(prompt) = video.prompt.as_deref().filter(|_| dialect.shape == VideoShape::Bundled) {
        check_markers(video.path_of("prompt"), prompt, dialect)?;
    }
    for picture in &video.pictures {
        let takes = match picture.role {
            PictureRole::First => dialect.first,
            PictureRole::Last => dialect.last,
            PictureRole::Reference => dialect.reference,
        };
        if !takes {
            let message = match picture.role {
                PictureRole::First => "This model does not accept a first image",
                PictureRole::Last => "This model does not accept a last image",
                PictureRole::Reference => "This model does not accept reference images",
            };
            let message = format!("{message}: '{}'.", picture.field);
            return Err(ApiError::new(ErrorKind::Unsupported, message).param(picture.field.to_string()));
        }
    }
    let count = |role| video.pictures.iter().filter(|picture| picture.role == role).count();
    let (first, last, reference) =
        (count(PictureRole::First), count(PictureRole::Last), count(PictureRole::Reference));
    let content = if dialect.shape == VideoShape::Bundled { "metadata.content" } else { "image" };
    if first > 1 || last > 1 || video.pictures.len() > PICTURES {
        return Err(wrong(content, "at most one first and one last image, and 10 images in total"));
    }
    if last > 0 && first == 0 {
        return Err(wrong(content, "given with a first image if there is a last image"));
    }
    if reference > 0 && first + last > 0 {
        return Err(wrong(content, "either first and last images or reference images"));
    }
    if !dialect.text && video.pictures.is_empty() {
        let message = format!("This model makes videos from images: '{content}' is missing.");
        return Err(ApiError::new(ErrorKind::InvalidField, message).param(content));
    }
    let has_prompt = video.prompt.as_deref().is_some_and(|prompt| !prompt.trim().is_empty());
    let can_do_without = dialect.shape != VideoShape::Remix
        && dialect.shape != VideoShape::Preview
        && !video.pictures.is_empty();
    if !has_prompt && !can_do_without && video.content.is_empty() {
        return Err(ApiError::missing(if dialect.shape == VideoShape::Bundled {
            "metadata.content"
        } else {
            "prompt"
        }));
    }
    Ok(())
}
