//! Targets for videos and tasks: requests in all shapes, provider responses, and multipart forms.

use bytes::{Bytes, BytesMut};
use codec::canonical::video::{
    AudioSetting, PictureSource, Seconds, Stage, VideoDialect, VideoReport, VideoShape,
};
use codec::wire::form;
use codec::wire::tasks::{Task, answer, ask as task_ask, image};
use codec::wire::video::{ask, markers, read, write};
use serde_json::{Map, Value};

use super::choose;

const SHAPES: [VideoShape; 4] =
    [VideoShape::Remix, VideoShape::Preview, VideoShape::Nested, VideoShape::Bundled];

/// Returns the profile of a model that supports nearly everything.
fn dialect(shape: VideoShape) -> VideoDialect {
    VideoDialect {
        shape,
        seconds: Seconds::range(2, 12),
        default_seconds: 5,
        resolutions: &["480p", "720p", "1080p", "720x1280", "1280x720"],
        default_resolution: if shape == VideoShape::Remix { "720x1280" } else { "720p" },
        seconds_in_full: None,
        ratios: &["16:9", "9:16", "1:1"],
        text: true,
        first: true,
        last: true,
        reference: true,
        samples: 4,
        sound: AudioSetting::Configurable(false),
        seed_and_watermark: true,
        listed: false,
        fetches_urls: true,
    }
}

/// Videos and tasks: an accepted request is within the model's capabilities and is encoded as JSON; renaming the model
/// of a task keeps all other members; a task report is consistent; a multipart form converted to JSON keeps its values.
pub fn videos(mut data: &[u8]) {
    let chosen = choose(&mut data, 5);
    if chosen == 4 {
        return of_form(&Bytes::copy_from_slice(data));
    }
    let shape = SHAPES[choose(&mut data, SHAPES.len())];
    let Ok(text) = std::str::from_utf8(data) else { return };
    match chosen {
        0 => request(text, &dialect(shape)),
        1 => {
            if let Ok(id) = read::submitted(shape, text) {
                assert!(!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic()));
            }
            if let Ok(report) = read::looked(shape, text) {
                holds(&report);
            }
            let _ = read::inline(text);
        }
        2 => task(text),
        _ => {
            assert!(answer::upstream_id(text).is_none_or(|id| !id.is_empty()));
            if let Some(report) = answer::parse_report(text) {
                holds(&report);
            }
            if let Ok(made) = image::decode(text) {
                assert!(made.urls.iter().all(|url| !url.is_empty()));
            }
        }
    }
}

fn object(text: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(text).unwrap()
}

/// Whether serde_json accepts the request. Values that pass unchanged (half a surrogate pair, a number out of range)
/// may be refused by serde_json, and then the encoded request is refused too.
fn is_read(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

fn request(text: &str, dialect: &VideoDialect) {
    let _ = (ask::model(text), ask::remix(text), ask::operation(text), markers::read(text));
    let Ok(video) = ask::decode(text, dialect) else { return };
    assert!(ask::check(dialect, &video).is_ok());
    assert!(
        (1_000..=13_000).contains(&write::millis(&video, dialect)),
        "a length that the model cannot make"
    );
    let known = |size: &str| size.is_empty() || dialect.resolutions.contains(&size);
    assert!(known(&write::certain_resolution(&video, dialect)), "a resolution that has no price");
    let _ = write::lost(&video, dialect, false);
    assert!(video.samples.is_none_or(|samples| samples <= dialect.samples));
    for picture in &video.pictures {
        if let PictureSource::Link(link) = &picture.source {
            let scheme = link.split("://").next().unwrap_or_default();
            assert!(["http", "https"].contains(&&*scheme.to_ascii_lowercase()), "{link}");
        }
    }
    for from in [false, true] {
        let mut out = BytesMut::new();
        write::encode(&video, dialect, "the model", from, &mut out);
        if !is_read(text) {
            continue;
        }
        let written = object(&out);
        let named = dialect.shape != VideoShape::Preview && !(from && dialect.shape == VideoShape::Remix);
        assert!(!named || written.contains_key("model"));
    }
}

fn task(text: &str) {
    let _ = task_ask::api_key(text);
    if let Some(renamed) = task_ask::rename(text, "another")
        && is_read(text)
    {
        assert!(object(&renamed).len() == object(text.as_bytes()).len());
        assert_eq!(task_ask::rename(utf8(&renamed), "another").unwrap(), renamed);
    }
    for task in Task::ALL {
        let Ok(asked) = task_ask::decode(task, text) else { continue };
        assert!(asked.tag.is_none_or(|tag| !tag.is_empty() && tag.len() <= 256));
        let (mut out, read) = (BytesMut::new(), is_read(text));
        match &asked.what {
            task_ask::DecodedTask::Image(asked) => {
                assert!(task.is_image() && asked.group && !asked.prompt.trim().is_empty());
                continue;
            }
            task_ask::DecodedTask::Face(face) => image::encode_face(face, "m", &mut out),
            task_ask::DecodedTask::Video(video) => {
                for shape in SHAPES {
                    let dialect = dialect(shape);
                    let mut video = video.clone();
                    if ask::fit(&dialect, &mut video).is_ok() {
                        write::encode(&video, &dialect, "m", false, &mut out);
                        assert!(!read || is_read(utf8(&out.split())));
                    }
                }
                continue;
            }
        }
        assert!(!read || is_read(utf8(&out)));
    }
}

fn utf8(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap()
}

fn holds(report: &VideoReport) {
    assert!(report.progress.is_none_or(|percent| percent <= 100));
    assert_eq!(report.fault.is_some(), report.stage == Stage::Failed, "{report:?}");
    assert!(report.stage != Stage::Done || !report.media.is_empty(), "a video that is nowhere");
}

fn of_form(body: &Bytes) {
    let Ok(json) = form::to_json(body, "x") else { return };
    let written = object(&json);
    // Of two parts with the same name, a JSON reader keeps the later one.
    for part in form::read(body, "x").unwrap() {
        let value = written[&part.name].as_str().unwrap();
        let again = form::read(body, "x").unwrap();
        let last = again.iter().rev().find(|other| other.name == part.name).unwrap();
        match last.is_file {
            true => assert!(value.starts_with("data:") && value.contains(";base64,")),
            false => assert_eq!(value, last.text().unwrap()),
        }
    }
}
