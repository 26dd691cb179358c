//! Remote media in requests, for providers that accept bytes only.

use serde_json::{Value, json};

use crate::canonical::Thinking;
use crate::provider::{BaseUrl, Provider, ProviderKind, Setup};
use crate::translate::{
    FetchedMedia, RemoteParts, StoreOptions, TranslateRequest, WantedMedia, outgoing_stored, remote_urls,
};
use crate::wire::Format;
use json::EscapedString;

const URL: &str = "https://pictures.example/a.png?x=1&y=\u{e9}";

struct Way {
    provider: Provider,
    model: &'static str,
    from: Format,
    to: Format,
}

fn way(kind: ProviderKind, model: &'static str, from: Format, to: Format) -> Way {
    let base = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let provider = Provider::new(Setup { name: "p".to_owned(), kind, apis: vec![to.api()], base });
    Way { provider, model, from, to }
}

impl Way {
    fn links(&self, body: &Value) -> Vec<(String, WantedMedia)> {
        let dialect = self.provider.dialect(self.to.api(), self.model);
        let found = remote_urls(&body.to_string(), self.from, self.to, &dialect, StoreOptions::default());
        found.into_iter().map(|found| (found.url, found.kind)).collect()
    }

    fn sent(&self, body: &Value, brought: &[RemoteParts]) -> Result<Value, String> {
        let ask = TranslateRequest {
            client: self.from,
            provider: self.to,
            stream: false,
            array: false,
            thinking: Thinking::Unset,
            dialect: &self.provider.dialect(self.to.api(), self.model),
            model: &EscapedString::from(self.model),
            id: "req_1",
            seed: "req_1",
            now: 0,
        };
        let stored = StoreOptions { media: FetchedMedia(brought), ..StoreOptions::default() };
        match outgoing_stored(&body.to_string().into(), &ask, stored) {
            Ok(outgoing) => Ok(serde_json::from_slice(&outgoing.text()).unwrap()),
            Err(refused) => Err(refused.error.message.into_owned()),
        }
    }
}

fn linked(url: &str, media_type: &'static str, base64: &str) -> RemoteParts {
    RemoteParts { url: url.into(), media_type, base64: base64.into() }
}

#[test]
fn mapping_2_image_url_is_sent_as_fetched_bytes_to_gemini() {
    let way = way(ProviderKind::Gemini, "gemini-2.5-pro", Format::Chat, Format::Generate);
    let image = json!({"type": "image_url", "image_url": {"url": URL}});
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Look"}, image, image]},
    ]});
    assert!(way.sent(&body, &[]).unwrap_err().contains("image_url"));
    // An address that occurs several times is listed once.
    assert_eq!(way.links(&body), [(URL.to_owned(), WantedMedia::Image)]);
    let sent = way.sent(&body, &[linked(URL, "image/png", "iVBO")]).unwrap();
    for part in [1, 2] {
        let inline = &sent["contents"][0]["parts"][part]["inlineData"];
        assert_eq!(*inline, json!({"mimeType": "image/png", "data": "iVBO"}), "{sent}");
    }
    // An address that was not fetched is refused as before.
    assert!(way.sent(&body, &[linked("https://else.example/", "image/png", "iVBO")]).is_err());
}

#[test]
fn mapping_2_document_url_is_sent_as_a_fetched_file_to_chat() {
    let way = way(ProviderKind::OpenAi, "gpt-4.1", Format::Messages, Format::Chat);
    let document = json!({"type": "document", "source": {"type": "url", "url": URL}, "title": "t.pdf"});
    let body = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": [document, {"type": "text", "text": "Read"}]},
    ]});
    assert_eq!(way.links(&body), [(URL.to_owned(), WantedMedia::File)]);
    let sent = way.sent(&body, &[linked(URL, "application/pdf", "JVBE")]).unwrap();
    let file = &sent["messages"][0]["content"][0]["file"];
    assert_eq!(
        *file,
        json!({"filename": "t.pdf", "file_data": "data:application/pdf;base64,JVBE"}),
        "{sent}"
    );
}

#[test]
fn media_url_in_a_tool_result_is_fetched() {
    let way = way(ProviderKind::Gemini, "gemini-2.5-pro", Format::Messages, Format::Generate);
    let image = json!({"type": "image", "source": {"type": "url", "url": URL}});
    let body = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [image]}]},
    ]});
    assert_eq!(way.links(&body), [(URL.to_owned(), WantedMedia::Image)]);
    assert!(way.sent(&body, &[linked(URL, "image/png", "iVBO")]).unwrap().to_string().contains("iVBO"));
}

#[test]
fn media_url_is_not_fetched_if_the_provider_does_or_if_it_is_not_http() {
    let image = |url: &str| {
        json!({"model": "m", "max_tokens": 9, "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
        ]})
    };
    for (kind, model, to) in [
        (ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Messages),
        (ProviderKind::OpenAi, "gpt-4.1", Format::Responses),
        (ProviderKind::Gemini, "gemini-3-pro-preview", Format::Generate),
    ] {
        assert_eq!(way(kind, model, Format::Chat, to).links(&image(URL)), [], "{model}");
    }
    let gemini = way(ProviderKind::Gemini, "gemini-2.5-pro", Format::Chat, Format::Generate);
    for url in ["data:image/png;base64,iVBO", "file:///etc/passwd", "gs://bucket/a.png", "ftp://a/b", ""] {
        assert_eq!(gemini.links(&image(url)), [], "{url}");
    }
}

#[test]
fn media_type_is_detected_from_the_bytes() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01";
    for (bytes, image, audio, file) in [
        (&png[..], Some("image/png"), None, Some("image/png")),
        (b"%PDF-1.7 ...", None, None, Some("application/pdf")),
        (b"RIFF....WAVEfmt ", None, Some("audio/wav"), Some("audio/wav")),
        (b"ID3\x04...", None, Some("audio/mp3"), Some("audio/mp3")),
        (b"Plain words.", None, None, Some("text/plain")),
        (b"<html>", None, None, Some("text/plain")),
        (b"\x7fELF\x02\x01\x01\0", None, None, None),
        (b"", None, None, None),
    ] {
        let found = [WantedMedia::Image, WantedMedia::Audio, WantedMedia::File]
            .map(|wanted| wanted.media_type(bytes));
        assert_eq!(found, [image, audio, file], "{bytes:?}");
    }
}
