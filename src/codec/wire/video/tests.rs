//! Fuzz tests of the readers: input from outside is parsed or rejected with an error. Table tests of upstream states.

use bytes::Bytes;
use proptest::prelude::*;

use super::answer::InlineVideoFrame;
use super::{ask, markers, read, write};
use crate::canonical::video::{AudioSetting, Medium, Seconds, Stage, VideoDialect, VideoShape};

const SHAPES: [VideoShape; 4] =
    [VideoShape::Remix, VideoShape::Preview, VideoShape::Nested, VideoShape::Bundled];

fn dialect(shape: VideoShape) -> VideoDialect {
    VideoDialect {
        shape,
        seconds: Seconds::range(1, 60),
        default_seconds: 5,
        resolutions: &["720p", "1080p", "720x1280", "1280x720"],
        default_resolution: "720p",
        seconds_in_full: None,
        ratios: &["16:9", "9:16"],
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

/// Text that resembles a request or a response.
fn nearly() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"prompt\"",
        "\"metadata\"",
        "\"content\"",
        "\"type\"",
        "\"text\"",
        "\"image_url\"",
        "\"role\"",
        "\"first_frame\"",
        "\"seconds\"",
        "\"size\"",
        "\"720x1280\"",
        "5",
        "null",
        "true",
        "\"status\"",
        "\"output\"",
        "\"task_status\"",
        "\"SUCCEEDED\"",
        "\"done\"",
        "\"response\"",
        "\"x --dur 5\"",
        "\"\\u12",
        "\"instances\"",
        "\"id\"",
    ]);
    prop::collection::vec(words, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn decode_of_arbitrary_text_never_panics(text in prop_oneof![nearly(), ".*"]) {
        for shape in SHAPES {
            if let Ok(video) = ask::decode(&text, &dialect(shape)) {
                let mut out = bytes::BytesMut::new();
                write::encode(&video, &dialect(shape), "m", false, &mut out);
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok(), "{text}");
            }
            let _ = read::submitted(shape, &text);
            let _ = read::looked(shape, &text);
        }
        let _ = read::inline(&text);
        let _ = markers::read(&text);
        let _ = ask::read_source(text.as_str().into());
        let _ = (ask::model(&text), ask::remix(&text), ask::operation(&text));
    }
}

#[test]
fn task_status_of_each_provider_is_decoded() {
    let url = || Medium::Public("https://h/v.mp4".to_owned());
    for (shape, body, stage, media) in [
        (VideoShape::Remix, r#"{"status":"in_progress","progress":140}"#, Stage::Running, vec![]),
        (VideoShape::Remix, r#"{"status":"completed","seconds":"8"}"#, Stage::Done, vec![Medium::Content]),
        (VideoShape::Preview, r#"{"name":"o","metadata":{"progressPercent":30}}"#, Stage::Running, vec![]),
        (
            VideoShape::Preview,
            r#"{"name":"o","done":true,"response":{"videos":[{"bytesBase64Encoded":"AAAA"}]}}"#,
            Stage::Done,
            vec![Medium::Inline],
        ),
        (
            VideoShape::Preview,
            r#"{"done":true,"response":{"raiMediaFilteredReasons":["no"]}}"#,
            Stage::Failed,
            vec![],
        ),
        (VideoShape::Nested, r#"{"output":{"task_status":"SUSPENDED"}}"#, Stage::Queued, vec![]),
        (
            VideoShape::Nested,
            r#"{"output":{"task_status":"SUCCEEDED","results":{"video_url":"https://h/v.mp4"}}}"#,
            Stage::Done,
            vec![url()],
        ),
        (
            VideoShape::Bundled,
            r#"{"status":"succeeded","content":{"video_url":"https:\/\/h\/v.mp4"},"duration":5.5}"#,
            Stage::Done,
            vec![url()],
        ),
    ] {
        let report = read::looked(shape, body).unwrap();
        assert_eq!((report.stage, report.media), (stage, media), "{body}");
        assert_eq!(report.fault.is_some(), stage == Stage::Failed, "{body}");
        assert!(report.progress.is_none_or(|percent| percent <= 100));
    }
    // Success without a video and an unknown status are errors.
    for (shape, body) in [
        (VideoShape::Nested, r#"{"output":{"task_status":"SUCCEEDED"}}"#),
        (VideoShape::Bundled, r#"{"status":"succeeded","content":null}"#),
        (VideoShape::Remix, r#"{"status":"dreaming"}"#),
        (VideoShape::Preview, r#"{"done":true}"#),
    ] {
        assert_eq!(read::looked(shape, body), Err(read::BrokenVideoAnswer), "{body}");
    }
}

fn model(shape: VideoShape) -> VideoDialect {
    let seconds_in_full = (shape == VideoShape::Preview).then_some(8);
    let (resolutions, usual_resolution): (&[&str], _) = match shape {
        VideoShape::Remix => (&["720x1280", "1280x720", "1080x1920", "1920x1080"], "720x1280"),
        VideoShape::Preview => (&["720p", "1080p"], "1080p"),
        _ => (&["480p", "720p", "1080p"], "720p"),
    };
    let ratios: &[&str] = match shape {
        VideoShape::Remix | VideoShape::Preview => &["16:9", "9:16"],
        _ => &["16:9", "9:16", "1:1", "4:3", "3:4", "21:9"],
    };
    let usual_seconds = if shape == VideoShape::Preview { 4 } else { 5 };
    VideoDialect {
        seconds_in_full,
        resolutions,
        default_resolution: usual_resolution,
        ratios,
        default_seconds: usual_seconds,
        ..dialect(shape)
    }
}

fn asked(shape: VideoShape, members: &str) -> Result<serde_json::Value, Option<String>> {
    let body = format!("{{\"model\":\"m\",\"prompt\":\"p\"{members}}}");
    let video =
        ask::decode(&body, &model(shape)).map_err(|error| error.param.map(std::borrow::Cow::into_owned))?;
    let mut out = bytes::BytesMut::new();
    write::encode(&video, &model(shape), "m", false, &mut out);
    Ok(serde_json::from_slice(&out).unwrap())
}

#[test]
fn size_resolution_and_ratio_are_fitted_to_the_model() {
    use VideoShape::{Bundled, Nested, Preview, Remix};
    for (shape, members, told) in [
        (Remix, "", vec![("size", "720x1280")]),
        (Remix, r#","resolution":"1080P""#, vec![("size", "1080x1920")]),
        (Remix, r#","resolution":"1080p","aspect_ratio":"16:9""#, vec![("size", "1920x1080")]),
        (Remix, r#","size":"1280X720","ratio":"16:9","resolution":"720p""#, vec![("size", "1280x720")]),
        (Preview, "", vec![("resolution", "720p"), ("durationSeconds", "4")]),
        (Preview, r#","duration":8"#, vec![("resolution", "1080p"), ("durationSeconds", "8")]),
        (Preview, r#","duration":6"#, vec![("resolution", "720p"), ("durationSeconds", "6")]),
        (Preview, r#","resolution":"1080p""#, vec![("resolution", "1080p"), ("durationSeconds", "8")]),
        (Preview, r#","resolution":"720p""#, vec![("resolution", "720p"), ("durationSeconds", "4")]),
        (Preview, r#","size":"720x1280""#, vec![("resolution", "720p"), ("aspectRatio", "9:16")]),
        (Preview, r#","size":"1920*1080""#, vec![("resolution", "1080p"), ("aspectRatio", "16:9")]),
        (
            Preview,
            r#","image":"iVBORw0K","lastFrame":"iVBORw0K""#,
            vec![("resolution", "1080p"), ("durationSeconds", "8")],
        ),
        (Nested, "", vec![("size", "1280*720"), ("duration", "5")]),
        (Nested, r#","size":"960x960""#, vec![("size", "960*960")]),
        (Nested, r#","resolution":"480p","aspect_ratio":"1:1""#, vec![("size", "624*624")]),
        (Nested, r#","image":"https://h/x","size":"1080x1920""#, vec![("resolution", "1080P")]),
        (Bundled, "", vec![("resolution", "720p"), ("ratio", "16:9"), ("duration", "5")]),
        (Bundled, r#","size":"864x480""#, vec![("resolution", "480p"), ("ratio", "16:9")]),
        (Bundled, r#","size":"720x720""#, vec![("resolution", "720p"), ("ratio", "1:1")]),
        (Bundled, r#","size":"1680x720""#, vec![("resolution", "720p"), ("ratio", "21:9")]),
        (
            Bundled,
            r#","image":"https://h/x""#,
            vec![("resolution", "720p"), ("duration", "5"), ("ratio", "none")],
        ),
        (Bundled, r#","frames":48"#, vec![("frames", "48"), ("duration", "none")]),
    ] {
        let body = asked(shape, members).unwrap_or_else(|error| panic!("{shape:?} {members}: {error:?}"));
        for (name, value) in told {
            let found = body.get(name).or_else(|| body["parameters"].get(name));
            let found = found.map_or("none".to_owned(), |found| found.to_string());
            assert_eq!(found.trim_matches('"'), value, "{shape:?} {members} {name}: {body}");
        }
    }
    for (shape, members, field) in [
        (Remix, r#","size":"1x1""#, "size"),
        (Remix, r#","size":"x""#, "size"),
        (Remix, r#","resolution":"480p""#, "resolution"),
        (Remix, r#","resolution":"9000p""#, "resolution"),
        (Remix, r#","size":"1280x720","resolution":"1080p""#, "resolution"),
        (Remix, r#","size":"1280x720","aspectRatio":"9:16""#, "aspectRatio"),
        (Remix, r#","aspect_ratio":"1:1""#, "aspect_ratio"),
        (Preview, r#","duration":4,"resolution":"1080p""#, "duration"),
        (Preview, r#","durationSeconds":6,"size":"1920x1080""#, "durationSeconds"),
        (Preview, r#","resolution":"4k""#, "resolution"),
        (Preview, r#","size":"1280x721""#, "size"),
        (Preview, r#","size":"720x720""#, "size"),
        (Preview, r#","size":"18446744073709551615x720""#, "size"),
        (Nested, r#","size":"1281x720""#, "size"),
        (Nested, r#","resolution":"480p","ratio":"3:4""#, "ratio"),
        (Nested, r#","ratio":"21:9""#, "ratio"),
        (Nested, r#","ratio":"7:5""#, "ratio"),
        (Nested, r#","metadata":{"size":"1x1"}"#, "metadata.size"),
        (Bundled, r#","size":"1x1""#, "size"),
        (Bundled, r#","size":"3840x2160""#, "size"),
        (Bundled, r#","size":"1280x720","resolution":"480p""#, "resolution"),
        (Bundled, r#","size":"1280x720","ratio":"9:16""#, "ratio"),
        (Bundled, r#","frames":10"#, "frames"),
        (Bundled, r#","frames":"many""#, "frames"),
        (Bundled, r#","prompt":"x --rs 1p""#, "prompt"),
    ] {
        let members = members.to_owned();
        let members = if let Some(rest) = members.strip_prefix(",\"prompt\":") {
            let body = format!("{{\"model\":\"m\",\"prompt\":{rest}}}");
            let error = ask::decode(&body, &model(shape)).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(field), "{shape:?} {body}");
            continue;
        } else {
            members
        };
        assert_eq!(asked(shape, &members), Err(Some(field.to_owned())), "{shape:?} {members}");
    }
}

#[test]
fn billed_duration_is_the_longest_named_and_resolution_if_certain() {
    let of = |prompt: &str, members: &str| {
        let body = format!("{{\"model\":\"m\",\"prompt\":\"{prompt}\"{members}}}");
        let dialect = model(VideoShape::Bundled);
        let video = ask::decode(&body, &dialect).unwrap();
        (write::millis(&video, &dialect), write::certain_resolution(&video, &dialect))
    };
    for (prompt, members, millis, resolution) in [
        ("p", "", 5_000, "720p"),
        ("p --dur 9 --rs 480p", "", 9_000, "480p"),
        ("p --dur 3", r#","duration":7"#, 7_000, "720p"),
        ("p --dur 3 --dur 11", r#","duration":7"#, 11_000, "720p"),
        ("p --frames 96", "", 4_000, "720p"),
        ("p --frames 96", r#","frames":49"#, 4_000, "720p"),
        ("p", r#","frames":49"#, 2_042, "720p"),
        ("p --rs 480p --resolution 1080p", "", 5_000, ""),
        ("p --rs 480p", r#","resolution":"1080p""#, 5_000, ""),
        ("p --rs 480p", r#","size":"864x480""#, 5_000, "480p"),
    ] {
        assert_eq!(of(prompt, members), (millis, resolution.to_owned()), "{prompt} {members}");
    }
}

#[test]
fn length_of_a_frame_with_the_largest_video_saturates() {
    let frame =
        InlineVideoFrame { head: Bytes::from_static(b"a"), middle: None, tail: Bytes::from_static(b"b") };
    assert_eq!(frame.len(3), 6);
    assert_eq!(frame.len(u64::MAX), u64::MAX);
    let twice = InlineVideoFrame { middle: Some(Bytes::from_static(b"c")), ..frame };
    assert_eq!((twice.len(3), twice.len(u64::MAX / 2)), (11, u64::MAX));
}
