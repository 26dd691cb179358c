//! Whatever comes from outside: no bytes make a reader fail otherwise than with an error, and what a vendor says is read alike.

use proptest::prelude::*;

use super::{ask, markers, read, write};
use crate::canonical::video::{Medium, Seconds, Sound, Stage, VideoDialect, VideoShape};

const SHAPES: [VideoShape; 4] =
    [VideoShape::Remix, VideoShape::Preview, VideoShape::Nested, VideoShape::Bundled];

fn dialect(shape: VideoShape) -> VideoDialect {
    VideoDialect {
        shape,
        seconds: Seconds::Range(1, 60),
        usual_seconds: 5,
        resolutions: &["720p", "1080p", "720x1280", "1280x720"],
        usual_resolution: "720p",
        seconds_in_full: None,
        ratios: &["16:9", "9:16"],
        text: true,
        first: true,
        last: true,
        reference: true,
        samples: 4,
        sound: Sound::Told(false),
        particular: true,
        listed: false,
        links: true,
    }
}

/// JSON that is nearly a request or an answer.
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
    fn no_text_makes_a_reader_fail(text in prop_oneof![nearly(), ".*"]) {
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
fn what_vendors_say_of_a_task_is_read_alike() {
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
    // An end without a video is none, and a word that nobody knows is not guessed at.
    for (shape, body) in [
        (VideoShape::Nested, r#"{"output":{"task_status":"SUCCEEDED"}}"#),
        (VideoShape::Bundled, r#"{"status":"succeeded","content":null}"#),
        (VideoShape::Remix, r#"{"status":"dreaming"}"#),
        (VideoShape::Preview, r#"{"done":true}"#),
    ] {
        assert_eq!(read::looked(shape, body), Err(read::Broken), "{body}");
    }
}
