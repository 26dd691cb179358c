//! Translation of one request or one response from one format to another, as the rosetta tests use it.

use std::sync::Arc;

use bytes::Bytes;
use model_gateway::canonical::dialect::ReasoningSupport;
use model_gateway::canonical::{Dialect, Effort, Thinking};
use model_gateway::error::{ApiError, ErrorKind};
use model_gateway::framing::event_stream::EventMessage;
use model_gateway::json::EscapedString;
use model_gateway::translate::translated::{Route, Translated};
use model_gateway::translate::verbatim::{Arrival, StreamError};
use model_gateway::translate::{EncodeError, Outgoing, Restore, TranslateRequest, outgoing};
use model_gateway::wire::Format;
use model_gateway::wire::codec::ReplyOptions;
use model_gateway::wire::error::{ProviderError, from_provider};

const LIMIT: usize = 1 << 24;

/// Returns all pairs of formats, including pairs of a format with itself.
pub(crate) fn pairs() -> impl Iterator<Item = (Format, Format)> {
    Format::ALL.into_iter().flat_map(|from| Format::ALL.into_iter().map(move |to| (from, to)))
}

/// Returns all pairs of different formats.
pub(crate) fn translated_pairs() -> impl Iterator<Item = (Format, Format)> {
    pairs().filter(|(from, to)| from != to)
}

/// Returns the name of the provider of a format in these tests.
pub(crate) fn issuer(format: Format) -> &'static str {
    match format {
        Format::Chat => "provider-c",
        Format::Messages => "provider-m",
        Format::Responses => "provider-r",
        Format::Generate => "provider-g",
        Format::Converse => "provider-b",
    }
}

/// Returns the profile of a model that supports everything that its format can express.
pub(crate) fn dialect(format: Format) -> Dialect<'static> {
    Dialect {
        reasoning: match format {
            Format::Chat | Format::Responses => ReasoningSupport::efforts(Effort::Minimal, Effort::Max, true),
            Format::Messages | Format::Generate | Format::Converse => {
                ReasoningSupport::Budget { min: 1_024, max: 32_768, off: true }
            }
        },
        max_output: 4_096,
        max_completion_tokens: true,
        prefill: true,
        reasoning_replay: true,
        ..Dialect::plain("model-1", issuer(format))
    }
}

/// Translates a request body to a provider's format.
pub(crate) fn request(from: Format, to: Format, body: &str) -> Result<Outgoing, EncodeError> {
    let dialect = dialect(to);
    let ask = TranslateRequest {
        client: from,
        provider: to,
        stream: false,
        array: false,
        thinking: Thinking::Unset,
        dialect: &dialect,
        model: &EscapedString::from("model-1"),
        id: "req_1",
        seed: "req_1",
        now: 1_700_000_000,
    };
    outgoing(&body.into(), &ask)
}

/// Returns the options of the response encoder in most tests.
pub(crate) fn reply(provider: Format) -> ReplyOptions {
    ReplyOptions {
        model: EscapedString::from("model-1"),
        request: "req_1".into(),
        seed: "req_1".into(),
        created: 1_700_000_000,
        usage_wanted: true,
        show_thinking: true,
        issuer: issuer(provider).into(),
        ..ReplyOptions::default()
    }
}

/// Translation of a provider's response to a client.
pub(crate) struct Way {
    pub(crate) provider: Format,
    pub(crate) client: Format,
    /// Form in which the response arrives.
    pub(crate) arrival: Arrival,
    /// Whether the client wants a stream.
    pub(crate) stream: bool,
}

impl Way {
    /// Translation of a stream to a stream.
    pub(crate) fn streamed(provider: Format, client: Format) -> Way {
        Way { provider, client, arrival: Arrival::Events, stream: true }
    }

    /// Translation of a document to a document.
    pub(crate) fn whole(provider: Format, client: Format) -> Way {
        Way { provider, client, arrival: Arrival::Whole, stream: false }
    }

    /// Translates a response that arrives in these pieces. Returns the client's bytes and the outcome.
    pub(crate) fn pass(&self, pieces: &[&[u8]]) -> (String, Result<(), String>) {
        self.pass_with(pieces, reply(self.provider), Restore::default())
    }

    pub(crate) fn pass_with(
        &self,
        pieces: &[&[u8]],
        reply: ReplyOptions,
        restore: Restore,
    ) -> (String, Result<(), String>) {
        let route = Route { client: self.client, provider: self.provider, stream: self.stream };
        let mut translated = Translated::new(&route, self.arrival, Arc::new(reply), restore, LIMIT);
        let mut out = Vec::new();
        let mut feed = || -> Result<(), StreamError> {
            if !self.stream {
                let whole = Bytes::from(pieces.concat());
                out.extend_from_slice(&translated.whole(whole)?);
                return Ok(());
            }
            for piece in pieces {
                out.extend_from_slice(&translated.feed(Bytes::copy_from_slice(piece))?);
            }
            out.extend_from_slice(&translated.finish()?);
            Ok(())
        };
        let ended = feed();
        if let Err(error) = &ended {
            out.extend_from_slice(&translated.take_ready());
            out.extend_from_slice(&translated.fail(&told(error)));
        }
        (text(self.client, &out), ended.map_err(|error| error.to_string()))
    }
}

/// Returns what a client receives as text. The messages of an event stream are written as the data of server-sent
/// events: an object with one member, which is named like the event. Decoders read it in this form too.
pub(crate) fn text(client: Format, out: &[u8]) -> String {
    // The first byte of a message is that of its length.
    if client != Format::Converse || out.first() != Some(&0) {
        return String::from_utf8(out.to_vec()).unwrap();
    }
    let (mut text, mut rest) = (String::new(), out);
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let message = EventMessage::parse(&rest[..length]).unwrap();
        let name = message.text(":event-type").or(message.text(":exception-type")).unwrap();
        let payload = std::str::from_utf8(message.payload()).unwrap();
        text += &format!("data: {{\"{name}\":{payload}}}\n\n");
        rest = &rest[length..];
    }
    text
}

/// Returns the error that a client receives when a response fails.
fn told(error: &StreamError) -> ApiError {
    match error {
        StreamError::FirstFrame(frame) | StreamError::Failed(frame) => {
            from_provider(500, ProviderError::decode(frame), None)
        }
        other => ApiError::new(ErrorKind::UpstreamBroken, other.to_string()),
    }
}
