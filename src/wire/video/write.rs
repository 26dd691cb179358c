//! A request in the form that a vendor wants.

use bytes::BytesMut;

use crate::canonical::request::Extra;
use crate::canonical::video::{Picture, PictureRole, PictureSource, Sound, Video, VideoDialect, VideoShape};
use crate::json::{JsonStr, Writer};

type Json<'o> = Writer<'o, BytesMut>;

/// Writes the request for a model. `from` is the vendor's id of the video that it is made from.
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

/// What the video's length, size and number are, said or not: what it will cost depends on it.
pub fn seconds(video: &Video<'_>, dialect: &VideoDialect) -> u64 {
    let marked = || {
        let options = super::markers::read(video.prompt.as_deref()?);
        options.into_iter().find(|(name, _)| *name == "duration")?.1.parse().ok()
    };
    let marked = (dialect.shape == VideoShape::Bundled).then(marked).flatten();
    video.seconds.or(marked).unwrap_or(dialect.usual_seconds)
}

/// The same for its resolution.
pub fn resolution(video: &Video<'_>, dialect: &VideoDialect) -> String {
    if let Some((width, height)) = video.size {
        return format!("{width}x{height}");
    }
    let marked = || {
        let options = super::markers::read(video.prompt.as_deref()?);
        Some(options.into_iter().find(|(name, _)| *name == "resolution")?.1.to_owned())
    };
    let marked = (dialect.shape == VideoShape::Bundled).then(marked).flatten();
    let given = video.resolution.as_deref().filter(|_| dialect.shape != VideoShape::Remix);
    given.map(str::to_owned).or(marked).unwrap_or_else(|| dialect.usual_resolution.to_owned())
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
        if let Some(Picture { source: PictureSource::Data { media, base64 }, .. }) = video.picture(role) {
            json.key(name).begin_object();
            json.key("bytesBase64Encoded").string(base64).key("mimeType").string(media);
            json.end_object();
        }
    }
    json.end_object().end_array();
    json.key("parameters").begin_object();
    json.key("aspectRatio").string(video.ratio.as_deref().unwrap_or("16:9"));
    json.key("resolution").string(&resolution(video, dialect));
    json.key("durationSeconds").number(seconds(video, dialect));
    if let Some(negative) = &video.negative {
        json.key("negativePrompt").string(negative);
    }
    if let Some(people) = &video.people {
        json.key("personGeneration").string(people);
    }
    if let Some(samples) = video.samples.filter(|samples| *samples > 1 || dialect.particular) {
        json.key("sampleCount").number(samples);
    }
    sound(video, dialect, "generateAudio", json);
    if dialect.particular {
        if let Some(seed) = video.seed {
            json.key("seed").number(seed);
        }
        if let Some(watermark) = video.watermark {
            json.key("addWatermark").boolean(watermark);
        }
    }
    for extra in
        video.extra.iter().filter(|extra| matches!(extra.name, "enhancePrompt" | "compressionQuality"))
    {
        put(json, extra);
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
    let ratio = video.ratio.as_deref().unwrap_or("16:9");
    if dialect.listed {
        json.key("resolution").string(&resolution.to_ascii_uppercase());
        json.key("ratio").string(ratio);
    } else if let Some((width, height)) = video.size {
        json.key("size").string(&format!("{width}*{height}"));
    } else if video.pictures.is_empty() {
        json.key("size").string(nested_size(&resolution, ratio));
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

/// Width and height as the vendor of the nested form has them.
fn nested_size(resolution: &str, ratio: &str) -> &'static str {
    match (resolution, ratio) {
        ("480p", "9:16") => "480*832",
        ("480p", "1:1") => "624*624",
        ("480p", _) => "832*480",
        ("1080p", "9:16") => "1080*1920",
        ("1080p", "1:1") => "1440*1440",
        ("1080p", "4:3") => "1632*1248",
        ("1080p", "3:4") => "1248*1632",
        ("1080p", _) => "1920*1080",
        (_, "9:16") => "720*1280",
        (_, "1:1") => "960*960",
        (_, "4:3") => "1088*832",
        (_, "3:4") => "832*1088",
        _ => "1280*720",
    }
}

fn bundled(video: &Video<'_>, dialect: &VideoDialect, model: &str, json: &mut Json<'_>) {
    json.key("model").string(model);
    json.key("content").begin_array();
    if let Some(prompt) = &video.prompt {
        json.begin_object().key("type").string("text").key("text").string(prompt).end_object();
    }
    // A single picture to begin with needs no role, and the oldest models know none.
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
    // What the prompt's markers say is said there; what the client says beside it is said beside it.
    if let Some(resolution) = &video.resolution {
        json.key("resolution").string(resolution);
    }
    if let Some(ratio) = &video.ratio {
        json.key("ratio").string(ratio);
    }
    if let Some(seconds) = video.seconds {
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
        Sound::Untold => {}
        Sound::Told(usual) => _ = json.key(name).boolean(video.audio.unwrap_or(usual)),
        Sound::Fixed(always) => _ = json.key(name).boolean(always),
    }
}

fn url(json: &mut Json<'_>, name: &str, picture: &Picture<'_>) {
    match &picture.source {
        PictureSource::Link(url) => _ = json.key(name).string(url),
        PictureSource::Data { media, base64 } => {
            json.key(name).pasted(|out| {
                for part in ["data:", media, ";base64,", base64] {
                    crate::json::push_escaped(out, part);
                }
            });
        }
    }
}

fn put(json: &mut Json<'_>, extra: &Extra<'_>) {
    json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
}
