//! Tests of content parts other than text: decoding and encoding.

use super::*;
use crate::canonical::{Block as Part, MediaSource, Role, Turn};

/// Returns the blocks of a message with this part.
fn parts(body: &str) -> Vec<Part<'_>> {
    request::decode(body).unwrap().turns.remove(0).blocks
}

fn with_part(part: &str) -> String {
    saying(&format!(r#"{{"role":"user","content":[{part}]}}"#))
}

fn base64<'a>(mime: &'a str, data: &'a str) -> MediaSource<'a> {
    MediaSource::Base64 { mime: js(mime), data: js(data) }
}

fn url(url: &str) -> MediaSource<'_> {
    MediaSource::Url { url: js(url), mime: js("") }
}

/// Encodes a block of a client of another format. Returns the part, the losses, and the refused member.
fn sent_part(block: Part<'_>, dialect: &Dialect<'_>) -> (Value, Vec<String>, Option<String>) {
    let request = Request { turns: vec![Turn::new(Role::User, vec![block])], ..Request::default() };
    let (value, losses, refusal) = sent_from(Format::Messages, &request, dialect);
    (value.pointer("/messages/0/content/0").cloned().unwrap_or_default(), losses, refusal)
}

#[test]
fn map_2_images_are_decoded_from_data_and_urls() {
    for (part, source, detail) in [
        (
            r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD","detail":"low"}}"#,
            base64("image/png", "QUJD"),
            "low",
        ),
        (r#"{"image_url":{"url":"https://a/b.png"},"type":"image_url"}"#, url("https://a/b.png"), ""),
        (r#"{"type":"image_url","image_url":"https://a/b.png"}"#, url("https://a/b.png"), ""),
        (
            r#"{"type":"image_url","text":null,"image_url":{"url":"data:image/jpeg;charset=x;base64,QQ=="}}"#,
            base64("image/jpeg", "QQ=="),
            "",
        ),
    ] {
        let expected = [Part::Image { source, detail: js(detail), cache: None, signature: None }];
        assert_eq!(parts(&with_part(part)), expected);
    }
    // The form of Ollama's own API.
    let body = saying(r#"{"role":"user","content":"u","images":["iVBORw0KGgo=","/9j/4AAQ"]}"#);
    let images = parts(&body);
    let is = |block: &Part<'_>, mime: &str| matches!(block, Part::Image { source: MediaSource::Base64 { mime: is, .. }, .. } if is.is(mime));
    assert!(is(&images[1], "image/png") && is(&images[2], "image/jpeg"));
}

#[test]
fn map_2_files_audio_and_video_are_decoded() {
    let file = |source, name| Part::File { source, name: js(name), cache: None };
    for (part, block) in [
        (
            r#"{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"}}"#,
            file(base64("application/pdf", "JVBE"), "a.pdf"),
        ),
        (
            r#"{"type":"file","file_data":"JVBE","filename":"a.pdf"}"#,
            file(base64("application/pdf", "JVBE"), "a.pdf"),
        ),
        (r#"{"type":"file","file":{"file_id":"file-1"}}"#, file(MediaSource::Id { id: js("file-1") }, "")),
        (r#"{"type":"file","file":{"file_data":"https://a/b.pdf"}}"#, file(url("https://a/b.pdf"), "")),
        (r#"{"type":"file_url","file_url":{"url":"https://a/b.pdf"}}"#, file(url("https://a/b.pdf"), "")),
        (
            r#"{"type":"document_url","document_url":"data:application/pdf;base64,JVBE","document_name":"d"}"#,
            file(base64("application/pdf", "JVBE"), "d"),
        ),
        (
            r#"{"type":"input_audio","input_audio":{"data":"UklG","format":"wav"}}"#,
            Part::Audio { source: base64("audio/wav", "UklG") },
        ),
        (
            r#"{"type":"input_audio","input_audio":{"data":"SUQz","format":"mp3"}}"#,
            Part::Audio { source: base64("audio/mp3", "SUQz") },
        ),
        (
            r#"{"type":"input_audio","input_audio":"SUQzAA"}"#,
            Part::Audio { source: base64("audio/mp3", "SUQzAA") },
        ),
        (r#"{"type":"audio_url","audio_url":{"url":"https://a"}}"#, Part::Audio { source: url("https://a") }),
        (r#"{"type":"video_url","video_url":{"url":"https://a"}}"#, Part::Video { source: url("https://a") }),
    ] {
        assert_eq!(parts(&with_part(part)), [block], "{part}");
    }
    let strange = r#"{"type":"hologram","hologram":{"x":1}}"#;
    let body = with_part(strange);
    let [Part::Opaque { name, raw }] = &parts(&body)[..] else { panic!("{body}") };
    assert_eq!((name.escaped(), raw.text()), ("hologram", strange));
}

#[test]
fn map_2_images_are_encoded_as_data_or_web_urls() {
    let image = |source, detail| Part::Image { source, detail: js(detail), cache: None, signature: None };
    let (part, ..) = sent_part(image(base64("image/jpg", "QUJD"), "original"), &dialect());
    let expected = serde_json::json!(
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD", "detail": "high"}});
    assert_eq!(part, expected);
    let (part, ..) = sent_part(image(url("https://a"), ""), &dialect());
    assert_eq!(part, serde_json::json!({"type": "image_url", "image_url": {"url": "https://a"}}));
    let blind = Dialect { media_urls: false, ..dialect() };
    let (_, losses, refusal) = sent_part(image(url("https://a"), ""), &blind);
    assert!(losses == ["image_url"] && refusal.is_some());
    let (_, losses, refusal) = sent_part(image(MediaSource::Id { id: js("x") }, ""), &dialect());
    assert!(losses == ["file_id"] && refusal.is_some());
}

#[test]
fn map_2_files_are_encoded_with_a_name_and_text_files_as_text() {
    let file = |source, name| Part::File { source, name: js(name), cache: None };
    let (part, ..) = sent_part(file(base64("application/pdf", "JVBE"), ""), &dialect());
    let expected = serde_json::json!(
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBE"}});
    assert_eq!(part, expected);
    let (part, ..) = sent_part(file(MediaSource::Text { text: js(r"a\n") }, "t"), &dialect());
    assert_eq!(part, serde_json::json!({"type": "text", "text": "t\n\na\n"}));
    let (part, ..) = sent_part(file(base64("text/plain", r"Pz8\/"), ""), &dialect());
    assert_eq!(part, serde_json::json!({"type": "text", "text": "???"}));
    let (part, ..) = sent_part(file(base64("text/plain", "YSJiCg=="), ""), &dialect());
    assert_eq!(part, serde_json::json!({"type": "text", "text": "a\"b\n"}));
    let (_, losses, refusal) = sent_part(file(url("https://a/b.pdf"), ""), &dialect());
    assert!(losses == ["file_url"] && refusal.is_some());
}

#[test]
fn map_2_audio_and_video_are_encoded_if_supported() {
    let (part, ..) = sent_part(Part::Audio { source: base64("audio/mpeg", "SUQz") }, &dialect());
    let expected =
        serde_json::json!({"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}});
    assert_eq!(part, expected);
    let video = || Part::Video { source: base64("video/mp4", "AAAA") };
    let (_, losses, refusal) = sent_part(video(), &dialect());
    assert!(losses == ["video"] && refusal.is_some());
    let sees = Dialect { extensions: &["video_url"], ..dialect() };
    let (part, ..) = sent_part(video(), &sees);
    assert_eq!(part["video_url"]["url"], "data:video/mp4;base64,AAAA");
}

#[test]
fn parts_of_the_same_format_stay_unchanged() {
    for part in [
        r#"{"type":"image_url","image_url":{"url":"https://a","detail":"high"}}"#,
        r#"{"type":"file","file":{"file_id":"file-1"}}"#,
        r#"{"type":"file","file":{"file_data":"data:text/plain;base64,YQ=="}}"#,
        r#"{"type":"hologram","hologram":{"x":1}}"#,
    ] {
        let (value, losses) = through(&with_part(part), &dialect());
        assert_eq!(value["messages"][0]["content"][0], serde_json::from_str::<Value>(part).unwrap());
        assert!(losses.is_empty(), "{losses:?}");
    }
}
