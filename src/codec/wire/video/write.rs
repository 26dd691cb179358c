//! Writers of upstream video requests, one per shape.

use bytes::BytesMut;

use super::markers;
use super::settle::{FRAMES_A_SECOND, USUAL_RATIO, nested_size};
use crate::canonical::ElementLoss;
use crate::canonical::request::Extra;
use crate::canonical::video::{
    AudioSetting, PictureRole, PictureSource, Video, VideoDialect, VideoInputImage, VideoShape,
};
use json::{JsonStr, Writer};

type Json<'o> = Writer<'o, BytesMut>;

/// Writes the upstream request. `from` is true for a remix; the provider's id of its source video is in the path.
pub fn encode(video: &Video<'_>, dialect: &VideoDialect, model: &str, from: bool, out: &mut BytesMut) {
    let pictures = video.pictures.iter().map(|picture| match &picture.source {
        PictureSource::Link(url) => url.len(),
        PictureSource::Data { base64, .. } => base64.len(),
    });
    out.reserve(pictures.sum::<usize>() + video.prompt.as_deref().map_or(0, str::len) + 1024);
    let mut json = Writer::new(out);
    json.begin_object();
    match dialect.shape {
        VideoShape::Remix if from => {
            json.key("prompt").string(video.prompt.as_deref().unwrap_or_default());
        }
        VideoShape::Remix => remix(video, dialect, model, &mut json),
        VideoShape::Preview => preview(video, dialect, &mut json),
        VideoShape::Nested => nested(video, dialect, model, &mut json),
        VideoShape::Bundled => bundled(video, dialect, model, &mut json),
    }
    json.end_object();
}

/// Returns the values of a marker in the prompt. Only the bundled shape has markers.
fn marked<'v>(video: &'v Video<'_>, dialect: &VideoDialect, name: &str) -> Vec<&'v str> {
    match &video.prompt {
        Some(prompt) if dialect.shape == VideoShape::Bundled => {
            let options = markers::read(prompt).into_iter();
            options.filter(|(known, _)| *known == name).map(|(_, value)| value).collect()
        }
        _ => Vec::new(),
    }
}

fn frames_as_millis(frames: u64) -> u64 {
    frames.saturating_mul(1_000).div_ceil(FRAMES_A_SECOND)
}

/// Returns the length of the video in milliseconds, for its price: the longest of the lengths in the request, or the
/// default.
pub fn millis(video: &Video<'_>, dialect: &VideoDialect) -> u64 {
    let numbers = |name| marked(video, dialect, name).into_iter().filter_map(|text| text.parse::<u64>().ok());
    let seconds = video.seconds.into_iter().chain(numbers("duration"));
    let frames = video.frames.into_iter().chain(numbers("frames"));
    let all = seconds.map(|seconds| seconds.saturating_mul(1_000)).chain(frames.map(frames_as_millis));
    all.max().unwrap_or(dialect.default_seconds * 1_000)
}

/// Returns the length in seconds, or the default.
fn seconds(video: &Video<'_>, dialect: &VideoDialect) -> u64 {
    video.seconds.unwrap_or(dialect.default_seconds)
}

/// Returns the resolutions in the request, including those of prompt markers.
fn resolutions<'v>(video: &'v Video<'_>, dialect: &VideoDialect) -> impl Iterator<Item = &'v str> {
    video.resolution.as_deref().into_iter().chain(marked(video, dialect, "resolution"))
}

/// Returns the size or the resolution, or the default.
pub fn resolution(video: &Video<'_>, dialect: &VideoDialect) -> String {
    if let Some((width, height)) = video.size {
        return format!("{width}x{height}");
    }
    resolutions(video, dialect).next().unwrap_or(dialect.default_resolution).to_owned()
}

/// Returns the resolution if it is unambiguous, and an empty string if the request has two different ones.
pub fn certain_resolution(video: &Video<'_>, dialect: &VideoDialect) -> String {
    let first = resolution(video, dialect);
    if resolutions(video, dialect).any(|other| other != first) { String::new() } else { first }
}

/// Returns the settings that cannot be passed to the model. `from` is true for a remix.
pub fn lost(video: &Video<'_>, dialect: &VideoDialect, from: bool) -> Vec<ElementLoss> {
    let mut lost: Vec<ElementLoss> = Vec::new();
    let mut drop_if = |name: &'static str, dropped: bool| {
        if dropped {
            lost.push(ElementLoss::dropped(video.path_of(name)));
        }
    };
    use VideoShape::{Bundled, Nested, Preview, Remix};
    let shape = dialect.shape;
    let particular = shape == Preview && dialect.seed_and_watermark;
    drop_if("negative_prompt", video.negative.is_some() && matches!(shape, Remix | Bundled));
    drop_if("personGeneration", video.people.is_some() && shape != Preview);
    let chance = matches!(shape, Nested | Bundled) || particular;
    drop_if("seed", video.seed.is_some() && !chance);
    drop_if("watermark", video.watermark.is_some() && !chance);
    // A model without an audio setting always has sound, or never: a loss only if the client wants the other.
    let sound = match dialect.sound {
        AudioSetting::Configurable(_) => None,
        AudioSetting::Fixed(always) => Some(always),
        AudioSetting::Omitted => (shape != Nested).then_some(matches!(shape, Remix | Preview)),
    };
    drop_if("generateAudio", video.audio.zip(sound).is_some_and(|(wanted, always)| wanted != always));
    let with_picture = shape == Nested && !dialect.listed && !video.pictures.is_empty();
    // A size was split into ratio and resolution. The resolution is sent, the ratio is lost.
    let ratio = if video.is_set("aspect_ratio") { "aspect_ratio" } else { "size" };
    drop_if(ratio, with_picture && video.ratio.is_some());
    if from {
        for (name, said) in [
            ("duration", video.seconds.is_some()),
            ("size", video.size.is_some()),
            ("image", !video.pictures.is_empty()),
        ] {
            drop_if(name, said);
        }
    }
    let passes = |name: &str| match shape {
        Remix => false,
        Preview => name == "enhancePrompt" || (particular && name == "compressionQuality"),
        Nested | Bundled => true,
    };
    lost.extend(
        video.extra.iter().filter(|extra| !passes(extra.name)).map(|extra| ElementLoss::dropped(extra.name)),
    );
    lost
}

fn remix(video: &Video<'_>, dialect: &VideoDialect, model: &str, json: &mut Json<'_>) {
    json.key("model").string(model);
    json.key("prompt").string(video.prompt.as_deref().unwrap_or_default());
    json.key("seconds").string(&seconds(video, dialect).to_string());
    json.key("size").string(&resolution(video, dialect));
    if let Some(picture) = video.picture(PictureRole::First) {
        json.key("input_reference").begin_object();
        url(json, "image_url", picture);
        json.end_object();
    }
}

fn preview(video: &Video<'_>, dialect: &VideoDialect, json: &mut Json<'_>) {
    json.key("instances").begin_array().begin_object();
    json.key("prompt").string(video.prompt.as_deref().unwrap_or_default());
    for (role, name) in [(PictureRole::First, "image"), (PictureRole::Last, "lastFrame")] {
        if let Some(VideoInputImage { source: PictureSource::Data { media, base64 }, .. }) =
            video.picture(role)
        {
            json.key(name).begin_object();
            json.key("bytesBase64Encoded").string(base64).key("mimeType").string(media);
            json.end_object();
        }
    }
    json.end_object().end_array();
    json.key("parameters").begin_object();
    json.key("aspectRatio").string(video.ratio.as_deref().unwrap_or(USUAL_RATIO));
    json.key("resolution").string(&resolution(video, dialect));
    json.key("durationSeconds").number(seconds(video, dialect));
    if let Some(negative) = &video.negative {
        json.key("negativePrompt").string(negative);
    }
    if let Some(people) = &video.people {
        json.key("personGeneration").string(people);
    }
    if let Some(samples) = video.samples.filter(|samples| *samples > 1 || dialect.seed_and_watermark) {
        json.key("sampleCount").number(samples);
    }
    sound(video, dialect, "generateAudio", json);
    if dialect.seed_and_watermark {
        if let Some(seed) = video.seed {
            json.key("seed").number(seed);
        }
        if let Some(watermark) = video.watermark {
            json.key("addWatermark").boolean(watermark);
        }
    }
    for extra in &video.extra {
        if extra.name == "enhancePrompt" || (dialect.seed_and_watermark && extra.name == "compressionQuality")
        {
            put(json, extra);
        }
    }
    json.end_object();
}

fn nested(video: &Video<'_>, dialect: &VideoDialect, model: &str, json: &mut Json<'_>) {
    json.key("model").string(model);
    json.key("input").begin_object();
    if let Some(prompt) = &video.prompt {
        json.key("prompt").string(prompt);
    }
    if let Some(negative) = &video.negative {
        json.key("negative_prompt").string(negative);
    }
    let last = video.picture(PictureRole::Last).is_some();
    if dialect.listed && !video.pictures.is_empty() {
        json.key("media").begin_array();
        for picture in &video.pictures {
            json.begin_object().key("type").string(picture.role.name());
            url(json, "url", picture);
            json.end_object();
        }
        json.end_array();
    } else {
        for picture in &video.pictures {
            let name = match picture.role {
                PictureRole::First if last => "first_frame_url",
                PictureRole::Last => "last_frame_url",
                _ => "img_url",
            };
            url(json, name, picture);
        }
    }
    const INPUT: [&str; 3] = ["audio_url", "template", "video_url"];
    for extra in video.extra.iter().filter(|extra| INPUT.contains(&extra.name)) {
        put(json, extra);
    }
    json.end_object();
    json.key("parameters").begin_object();
    let resolution = resolution(video, dialect);
    let ratio = video.ratio.as_deref().unwrap_or(USUAL_RATIO);
    if dialect.listed {
        json.key("resolution").string(&resolution.to_ascii_uppercase());
        json.key("ratio").string(ratio);
    } else if let (Some(size), true) = (nested_size(&resolution, ratio), video.pictures.is_empty()) {
        json.key("size").string(size);
    } else {
        json.key("resolution").string(&resolution.to_ascii_uppercase());
    }
    json.key("duration").number(seconds(video, dialect));
    if let Some(audio) = video.audio {
        json.key("audio").boolean(audio);
    }
    if let Some(seed) = video.seed {
        json.key("seed").number(seed);
    }
    json.key("watermark").boolean(video.watermark.unwrap_or(false));
    for extra in video.extra.iter().filter(|extra| !INPUT.contains(&extra.name)) {
        put(json, extra);
    }
    json.end_object();
}

fn bundled(video: &Video<'_>, dialect: &VideoDialect, model: &str, json: &mut Json<'_>) {
    json.key("model").string(model);
    json.key("content").begin_array();
    if let Some(prompt) = &video.prompt {
        json.begin_object().key("type").string("text").key("text").string(prompt).end_object();
    }
    // A single first image needs no role, and the oldest models reject one.
    let alone = video.pictures.len() == 1;
    for picture in &video.pictures {
        json.begin_object().key("type").string("image_url");
        json.key("image_url").begin_object();
        url(json, "url", picture);
        json.end_object();
        if !alone || picture.role != PictureRole::First {
            json.key("role").string(picture.role.name());
        }
        json.end_object();
    }
    for item in &video.content {
        json.raw(*item);
    }
    json.end_array();
    // Markers stay in the prompt, and members of the request are sent beside them. Settings that are in neither are
    // sent with their defaults, because models have different ones. The exception is the ratio of a video from an
    // image, which is the image's.
    let unsaid = |name| marked(video, dialect, name).is_empty();
    let resolution = video.resolution.as_deref();
    if let Some(resolution) = resolution.or(unsaid("resolution").then_some(dialect.default_resolution)) {
        json.key("resolution").string(resolution);
    }
    let from_text = video.pictures.is_empty() && video.content.is_empty();
    let usual = (from_text && unsaid("ratio")).then_some(USUAL_RATIO);
    if let Some(ratio) = video.ratio.as_deref().or(usual) {
        json.key("ratio").string(ratio);
    }
    if let Some(frames) = video.frames {
        json.key("frames").number(frames);
    }
    let usual = video.frames.is_none() && unsaid("duration") && unsaid("frames");
    if let Some(seconds) = video.seconds.or(usual.then_some(dialect.default_seconds)) {
        json.key("duration").number(seconds);
    }
    if let Some(seed) = video.seed {
        json.key("seed").number(seed);
    }
    if let Some(watermark) = video.watermark {
        json.key("watermark").boolean(watermark);
    }
    sound(video, dialect, "generate_audio", json);
    for extra in &video.extra {
        put(json, extra);
    }
}

fn sound(video: &Video<'_>, dialect: &VideoDialect, name: &str, json: &mut Json<'_>) {
    match dialect.sound {
        AudioSetting::Omitted => {}
        AudioSetting::Configurable(usual) => _ = json.key(name).boolean(video.audio.unwrap_or(usual)),
        AudioSetting::Fixed(always) => _ = json.key(name).boolean(always),
    }
}

fn url(json: &mut Json<'_>, name: &str, picture: &VideoInputImage<'_>) {
    match &picture.source {
        PictureSource::Link(url) => _ = json.key(name).string(url),
        PictureSource::Data { media, base64 } => {
            json.key(name).pasted(|out| {
                for part in ["data:", media, ";base64,", base64] {
                    json::push_escaped(out, part);
                }
            });
        }
    }
}

fn put(json: &mut Json<'_>, extra: &Extra<'_>) {
    json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
}
