//! Media that a client gives by address, for providers that must be given the bytes.
//!
//! Two steps, with the fetching between them, which is not done here: which addresses of a request its provider cannot
//! be given ([`links`]), and the request with what lay behind them in it ([`FetchedMedia`]).

use super::codecs::decode_request;
use super::outgoing::{StoreOptions, whole};
use crate::canonical::{Block, Dialect, Index, Key, Request, Source};
use crate::json::JsonStr;
use crate::wire::Format;
use crate::wire::images::file;

/// What lay behind an address.
#[derive(Clone, Debug)]
pub struct RemoteParts {
    /// The address as the client wrote it, without the escapes of JSON.
    pub url: Box<str>,
    /// What it is: plain ASCII.
    pub media_type: &'static str,
    /// Its bytes, in the standard alphabet of base64.
    pub base64: String,
}

/// Media that was fetched for a request. Empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchedMedia<'a>(pub &'a [RemoteParts]);

impl<'a> FetchedMedia<'a> {
    /// Puts bytes in the place of addresses.
    pub(super) fn put_into(self, request: &mut Request<'a>, provider: Format, dialect: &Dialect<'_>) {
        if self.0.is_empty() {
            return;
        }
        let brought: Index = self.0.iter().map(|linked| Key::of(&*linked.url)).collect();
        each_block(request, &mut |block| {
            let Some(source) = link_of(block, provider, dialect) else { return };
            let Source::Url { url, .. } = *source else { return };
            if let Some(linked) = brought.first(Key::of(&*url.decode())).and_then(|at| self.0.get(at)) {
                let (mime, data) = (linked.media_type, &linked.base64);
                *source =
                    Source::Base64 { mime: JsonStr::from_escaped(mime), data: JsonStr::from_escaped(data) };
            }
        });
    }
}

/// What a link may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WantedMedia {
    /// An image.
    Image,
    /// A sound.
    Audio,
    /// A document, or anything else that is known.
    File,
}

impl WantedMedia {
    /// What these bytes are, by their beginning and whatever anybody calls them; nothing where they are not what is
    /// wanted.
    pub fn media_type(self, bytes: &[u8]) -> Option<&'static str> {
        let image = || file(bytes).map(|file| file.picture.media());
        match self {
            WantedMedia::Image => image(),
            WantedMedia::Audio => sound(bytes),
            WantedMedia::File => image().or_else(|| sound(bytes)).or_else(|| document(bytes)),
        }
    }

    /// The name for people.
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
        [b'I', b'D', b'3', ..] | [0xff, 0xfa | 0xfb | 0xf2 | 0xf3, ..] => "audio/mp3",
        [b'O', b'g', b'g', b'S', ..] => "audio/ogg",
        [b'f', b'L', b'a', b'C', ..] => "audio/flac",
        [0xff, 0xf1 | 0xf9, ..] => "audio/aac",
        _ => return None,
    })
}

fn document(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ if bytes.is_empty() || bytes.contains(&0) => None,
        _ => std::str::from_utf8(bytes).ok().map(|_| "text/plain"),
    }
}

/// The addresses of a request that its provider must not be given, each once. None where the request cannot be read.
pub fn links(
    body: &str,
    client: Format,
    provider: Format,
    dialect: &Dialect<'_>,
    stored: StoreOptions<'_>,
) -> Vec<(String, WantedMedia)> {
    let body = whole(body, client, stored);
    let Ok(mut request) = decode_request(client, &body) else { return Vec::new() };
    let mut links: Vec<(String, WantedMedia)> = Vec::new();
    let mut known = Index::default();
    each_block(&mut request, &mut |block| {
        let wanted = match block {
            Block::Image { .. } => WantedMedia::Image,
            Block::Audio { .. } => WantedMedia::Audio,
            _ => WantedMedia::File,
        };
        if let Some(Source::Url { url, .. }) = link_of(block, provider, dialect) {
            let url = url.decode();
            if known.add(Key::of((&*url, wanted))) {
                links.push((url.into_owned(), wanted));
            }
        }
    });
    links
}

/// The source of a block, if it is an address that the provider does not follow.
fn link_of<'b, 'a>(
    block: &'b mut Block<'a>,
    provider: Format,
    dialect: &Dialect<'_>,
) -> Option<&'b mut Source<'a>> {
    let (source, follows) = match block {
        Block::Image { source, .. } => (source, dialect.media_urls),
        Block::File { source, .. } => {
            let follows = match provider {
                Format::Chat => dialect.understands("file_url"),
                _ => dialect.media_urls,
            };
            (source, follows)
        }
        Block::Audio { source } => {
            let follows = match provider {
                Format::Generate => dialect.media_urls,
                Format::Chat => dialect.understands("audio_url"),
                // No bytes would do either.
                Format::Messages => true,
                Format::Responses => false,
            };
            (source, follows)
        }
        _ => return None,
    };
    match source {
        Source::Url { url, .. } if !follows && is_web(*url) => Some(source),
        _ => None,
    }
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
