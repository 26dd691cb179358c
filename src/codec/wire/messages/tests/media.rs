//! Tests of images, documents, audio and video that are sent to a provider.

use serde_json::json;

use super::conversation::{chat, of, s, text};
use super::{dialect, send};
use crate::canonical::Role::{Assistant, User};
use crate::canonical::{Block, Dialect, MediaSource};
use crate::wire::Format;

#[test]
fn mapping_2_images_are_encoded_with_their_true_type() {
    let send_image = |source, dialect: &Dialect<'_>, from| {
        let image = Block::Image { source, detail: s("high"), cache: None, signature: None };
        send(from, &of(vec![(User, vec![text("a"), image])]), dialect)
    };
    let base64 = |mime, data| MediaSource::Base64 { mime: s(mime), data: s(data) };
    for (source, mime) in [
        (base64("image/jpg", "QQ=="), "image/jpeg"),
        (base64("image/png", "/9j/4AAQ"), "image/jpeg"),
        (base64("image/jpeg", "iVBORw0KGgoAAA"), "image/png"),
        (base64("", "R0lGODlh"), "image/gif"),
        (base64("image/webp", "UklGRgAA"), "image/webp"),
    ] {
        let sent = send_image(source, &dialect(), Format::Chat);
        assert_eq!(sent.body["messages"][0]["content"][1]["source"]["media_type"], mime, "{source:?}");
        assert_eq!(sent.losses, ["image_detail"]);
    }
    let url = MediaSource::Url { url: s("https://a.example/i.png"), mime: s("") };
    let sent = send_image(url, &dialect(), Format::Chat);
    assert_eq!(
        sent.body["messages"][0]["content"][1]["source"],
        json!({"type": "url", "url": "https://a.example/i.png"})
    );
    let sent = send_image(url, &Dialect { media_urls: false, ..dialect() }, Format::Chat);
    assert_eq!(sent.refused.as_deref(), Some("image_url"));
    // File ids are not valid at another provider.
    let id = MediaSource::Id { id: s("file_1") };
    assert_eq!(send_image(id, &dialect(), Format::Chat).refused.as_deref(), Some("file_id"));
    let sent = send_image(id, &dialect(), Format::Messages);
    assert_eq!(
        sent.body["messages"][0]["content"][1]["source"],
        json!({"type": "file", "file_id": "file_1"})
    );
}

#[test]
fn mapping_2_files_are_encoded_as_documents() {
    let send_file = |source, from| {
        let file = Block::File { source, name: s("a.x"), cache: None };
        send(from, &of(vec![(User, vec![text("a"), file])]), &dialect())
    };
    let base64 = |mime, data| MediaSource::Base64 { mime: s(mime), data: s(data) };
    for (source, block) in [
        (
            base64("application/pdf", "JVBERi0="),
            json!({"type": "document", "title": "a.x",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}),
        ),
        (
            base64("", "JVBERi0xLjQK"),
            json!({"type": "document", "title": "a.x",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}}),
        ),
        (
            base64("text/csv", "YSwiYiIKMSwy"),
            json!({"type": "document", "title": "a.x",
                "source": {"type": "text", "media_type": "text/plain", "data": "a,\"b\"\n1,2"}}),
        ),
        (
            base64("image/png", "iVBORw0KGgo="),
            json!({"type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}),
        ),
        (
            MediaSource::Text { text: s("x\\ny") },
            json!({"type": "document", "title": "a.x",
                "source": {"type": "text", "media_type": "text/plain", "data": "x\ny"}}),
        ),
        (
            MediaSource::Url { url: s("https://a.example/a.pdf"), mime: s("") },
            json!({"type": "document", "title": "a.x", "source": {"type": "url", "url": "https://a.example/a.pdf"}}),
        ),
    ] {
        let sent = send_file(source, Format::Responses);
        assert_eq!(sent.body["messages"][0]["content"][1], block);
        assert_eq!(sent.refused, None);
    }
    assert_eq!(
        send_file(base64("application/zip", "UEsDBAA="), Format::Chat).refused.as_deref(),
        Some("file")
    );
    let id = MediaSource::Id { id: s("file_1") };
    assert_eq!(send_file(id, Format::Responses).refused.as_deref(), Some("file_id"));
    assert_eq!(send_file(id, Format::Messages).refused, None);
}

#[test]
fn mapping_2_audio_and_video_are_refused() {
    let source = MediaSource::Base64 { mime: s("audio/wav"), data: s("UklGRg==") };
    for (block, element) in [(Block::Audio { source }, "audio"), (Block::Video { source }, "video")] {
        let sent = chat(vec![(User, vec![text("a"), block])]);
        assert_eq!(sent.refused.as_deref(), Some(element));
    }
}

#[test]
fn model_image_is_dropped_from_its_turn() {
    let source = MediaSource::Base64 { mime: s("image/png"), data: s("iVBORw0KGgo=") };
    let image = Block::Image { source, detail: s(""), cache: None, signature: None };
    let turns =
        vec![(User, vec![text("draw")]), (Assistant, vec![text("Here."), image]), (User, vec![text("more")])];
    let sent = chat(turns);
    assert_eq!(sent.body["messages"][1]["content"], json!([{"type": "text", "text": "Here."}]));
    assert_eq!(sent.losses, ["assistant_media"]);
}
