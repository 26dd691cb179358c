//! Remote media in requests, for providers that accept bytes only.
//!
//! There are two steps, and the caller fetches in between: [`remote_urls`] lists the addresses that the provider cannot
//! fetch, and [`FetchedMedia`] replaces them by the fetched bytes.

use super::codecs::decode_request;
use super::outgoing::{StoreOptions, whole};
use crate::canonical::{Block, Dialect, Index, IndexKey, MediaSource, Request};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use crate::wire::images::file;
use json::{JsonStr, JsonText};

/// Media fetched from one address.
#[derive(Clone, Debug)]
pub struct RemoteParts {
    /// Address as the client wrote it, without JSON escapes.
    pub url: Box<str>,
    /// Media type, plain ASCII.
    pub media_type: &'static str,
    /// Content, in the standard base64 alphabet. Long content is shared by all references of the request to it.
    pub base64: JsonText,
}

/// Media that was fetched for a request. Empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchedMedia<'a>(pub &'a [RemoteParts]);

impl<'a> FetchedMedia<'a> {
    /// Replaces addresses by fetched bytes.
    pub(super) fn put_into(self, request: &mut Request<'a>, provider: Format, dialect: &Dialect<'_>) {
        if self.0.is_empty() {
            return;
        }
        let brought: Index = self.0.iter().map(|linked| IndexKey::of(&*linked.url)).collect();
        each_block(request, &mut |block| {
            let Some(source) = link_of(block, provider, dialect) else { return };
            let MediaSource::Url { url, .. } = *source else { return };
            if let Some(linked) = brought.first(IndexKey::of(&*url.decode())).and_then(|at| self.0.get(at)) {
                let (mime, data) = (linked.media_type, linked.base64.as_str());
                *source = MediaSource::Base64 {
                    mime: JsonStr::from_escaped(mime),
                    data: JsonStr::from_escaped(data),
                };
            }
        });
    }
}

/// Kind of media that an address must lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WantedMedia {
    /// Image.
    Image,
    /// Audio.
    Audio,
    /// Document, or any other known file type.
    File,
}

impl WantedMedia {
    /// Returns the media type of the bytes, detected from their start and not from any declared type. Returns `None` if
    /// they are not of the wanted kind.
    pub fn media_type(self, bytes: &[u8]) -> Option<&'static str> {
        let image = || file(bytes).map(|file| file.picture.media());
        match self {
            WantedMedia::Image => image(),
            WantedMedia::Audio => sound(bytes),
            WantedMedia::File => image().or_else(|| sound(bytes)).or_else(|| document(bytes)),
        }
    }

    /// Returns the display name.
    pub const fn name(self) -> &'static str {
        match self {
            WantedMedia::Image => "image",
            WantedMedia::Audio => "sound",
            WantedMedia::File => "file",
        }
    }
}

fn sound(bytes: &[u8]) -> Option<&'static str> {
    Some(match bytes {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => "audio/wav",
        // ID3 tag, or a frame of MPEG layer III with or without a checksum.
        [b'I', b'D', b'3', ..] | [0xff, 0xfa | 0xfb | 0xf2 | 0xf3, ..] => "audio/mp3",
        [b'O', b'g', b'g', b'S', ..] => "audio/ogg",
        [b'f', b'L', b'a', b'C', ..] => "audio/flac",
        // ADTS frame without a checksum.
        [0xff, 0xf1 | 0xf9, ..] => "audio/aac",
        _ => return None,
    })
}

fn document(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        // A zero byte is valid UTF-8, but no text has one.
        _ if bytes.is_empty() || bytes.contains(&0) => None,
        _ => std::str::from_utf8(bytes).ok().map(|_| "text/plain"),
    }
}

/// Address of media that the provider cannot fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaAddress {
    /// Address, without JSON escapes.
    pub url: String,
    /// Kind of media that it must lead to.
    pub kind: WantedMedia,
    /// Number of elements of the request that give it: the provider is sent the media as often.
    pub references: usize,
}

/// Lists the addresses that the provider cannot fetch, without duplicates. Empty if the request is malformed.
pub fn remote_urls(
    body: &str,
    client: Format,
    provider: Format,
    dialect: &Dialect<'_>,
    stored: StoreOptions<'_>,
) -> Vec<MediaAddress> {
    // With a stored conversation, its media counts too.
    let body = whole(body, client, stored);
    let Ok(mut request) = decode_request(client, &body) else { return Vec::new() };
    let mut urls: Vec<MediaAddress> = Vec::new();
    let mut known = Index::default();
    each_block(&mut request, &mut |block| {
        let wanted = match block {
            Block::Image { .. } => WantedMedia::Image,
            Block::Audio { .. } => WantedMedia::Audio,
            _ => WantedMedia::File,
        };
        if let Some(MediaSource::Url { url, .. }) = link_of(block, provider, dialect) {
            let url = url.decode();
            // The same address may be wanted as an image and as a file: each kind accepts other media types.
            let key = IndexKey::of((&*url, wanted));
            match known.first(key).and_then(|at| urls.get_mut(at)) {
                Some(address) => address.references += 1,
                None => {
                    known.push(key);
                    urls.push(MediaAddress { url: url.into_owned(), kind: wanted, references: 1 });
                }
            }
        }
    });
    urls
}

/// Returns the source of a block if it is an address that the provider does not fetch.
fn link_of<'b, 'a>(
    block: &'b mut Block<'a>,
    provider: Format,
    dialect: &Dialect<'_>,
) -> Option<&'b mut MediaSource<'a>> {
    let (source, follows) = match block {
        Block::Image { source, .. } => (source, dialect.media_urls),
        Block::File { source, .. } => {
            let follows = match provider {
                Format::Chat => dialect.supports("file_url"),
                _ => dialect.media_urls,
            };
            (source, follows)
        }
        Block::Audio { source } => {
            let follows = match provider {
                Format::Generate => dialect.media_urls,
                Format::Chat => dialect.supports("audio_url"),
                // The format has no audio input, so fetching would not help.
                Format::Messages => true,
                Format::Responses | Format::Converse => false,
            };
            (source, follows)
        }
        _ => return None,
    };
    match source {
        MediaSource::Url { url, .. } if !follows && is_web(*url) => Some(source),
        _ => None,
    }
}

/// Refuses media in the storage of a cloud (`s3://`, `gs://`) that neither the provider nor the gateway can fetch.
pub(super) fn refuse_stored_media(request: &mut Request<'_>, notes: &mut LossNotes) {
    let reads = |url: JsonStr<'_>| {
        let scheme = url.escaped().split_once(':').map_or("", |(scheme, _)| scheme);
        !["s3", "gs"].iter().any(|stored| scheme.eq_ignore_ascii_case(stored))
    };
    if notes.from() == notes.to()
        || !matches!(notes.to(), Format::Chat | Format::Messages | Format::Responses)
    {
        return;
    }
    each_block(request, &mut |block| {
        let (source, element) = match block {
            Block::Image { source, .. } => (source, "image_url"),
            Block::File { source, .. } => (source, "file_url"),
            Block::Audio { source } => (source, "audio"),
            Block::Video { source } => (source, "video"),
            _ => return,
        };
        if let MediaSource::Url { url, .. } = source
            && !reads(*url)
        {
            let message =
                format!("This model cannot read '{}': send the bytes or a web address.", url.decode());
            notes.refuse(if notes.from() == Format::Converse { "s3Location" } else { element }, message);
        }
    });
}

fn is_web(url: JsonStr<'_>) -> bool {
    let url = url.decode();
    let begins =
        |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    begins("https://") || begins("http://")
}

fn each_block<'a>(request: &mut Request<'a>, visit: &mut impl FnMut(&mut Block<'a>)) {
    for block in request.turns.iter_mut().flat_map(|turn| &mut turn.blocks) {
        match block {
            Block::ToolResult { content, .. } => content.iter_mut().for_each(&mut *visit),
            block => visit(block),
        }
    }
}
