//! Translation: the response path of an exchange, and the request path between two formats.
//!
//! An [`Exchange`] is chosen once per response: pass the bytes unchanged ([`verbatim`]) or translate them
//! ([`translated`]), with a usage meter on the path ([`Meter`]). A translated request is decoded into the canonical
//! model, adapted to the capabilities of its target and encoded ([`outgoing`](outgoing())); the response reverses the
//! adaptations.
//!
//! This module must not use sockets, providers or routes: an exchange handles bytes and formats only.

mod adapt;
mod beginning;
mod bounds;
mod call_fingerprint;
mod call_ids;
mod codecs;
mod compaction;
mod count;
mod event_pipeline;
pub mod event_stream;
mod fit;
mod frame_edit;
mod frame_seal;
mod history;
mod hosted_choice;
pub mod invoke_stream;
pub mod invoke_writer;
mod join_texts;
mod keepsake;
mod meter;
mod opaque;
mod open_reasoning;
mod outgoing;
mod output_slices;
mod own_elements;
mod remote_parts;
mod restore;
mod results;
pub mod resume;
mod search_texts;
mod synthetic_error;
pub mod translated;
mod unanswered;
pub mod verbatim;
mod void_arguments;

#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use bounds::{MOST_CALLS, MOST_PARTS, MOST_TOOLS};
pub use codecs::decode_request;
pub use count::CountedRequest;
pub use keepsake::{SignatureBundle, SignatureKey, StoredSignatures, issues_signatures};
pub use meter::Meter;
pub use outgoing::{
    CompactionOptions, EncodeBlocked, EncodeError, Outgoing, PromptCaching, StoreOptions, TranslateRequest,
    outgoing, outgoing_sealed, outgoing_stored,
};
pub use remote_parts::{FetchedMedia, MediaAddress, RemoteParts, WantedMedia, remote_urls};
pub use restore::Restore;
pub use translated::Translated;
pub use verbatim::{StreamError, Verbatim};

use crate::error::ApiError;
use crate::tokens::TokenizerFamily;
use crate::wire::Format;
use crate::wire::error::{self as wire_error};

/// Response path of an exchange, chosen once per response.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it lives in a box already")]
pub enum Exchange {
    /// Same format: the bytes pass unchanged.
    Verbatim(Verbatim),
    /// The response is translated into another format.
    Translated(Box<Translated>),
}

impl Exchange {
    /// Returns the usage meter.
    pub fn meter(&self) -> &Meter {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.meter(),
            Exchange::Translated(translated) => translated.meter(),
        }
    }

    /// Parses the frames whose parsing was deferred. Call it when no more input follows.
    pub fn parse_deferred(&mut self) {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.parse_deferred(),
            Exchange::Translated(translated) => translated.parse_deferred(),
        }
    }

    /// Sets the tokenizer family and the expected number of input tokens, as a fallback if the provider reports no
    /// usage. A translated stream whose format reports usage at its start begins with this number, if the provider has
    /// reported none by then.
    pub fn expect(&mut self, family: TokenizerFamily, input: u64) {
        self.meter_mut().expect(family, input);
        if let Exchange::Translated(translated) = self {
            translated.expect_input(input);
        }
    }

    /// Sets the number of choices that the client has requested: counted output is theirs alone.
    pub fn expect_choices(&mut self, choices: u64) {
        self.meter_mut().expect_choices(choices);
    }

    /// Makes the meter record the model name that the response has.
    pub fn record_model(&mut self) {
        self.meter_mut().record_model();
    }

    /// Stores the request, as a fallback for counting its input tokens if the provider reports none.
    pub fn set_request(&mut self, asked: CountedRequest) {
        self.meter_mut().set_request(asked);
    }

    /// Marks the response as complete: usage that the provider did not report is counted.
    pub fn complete(&mut self) {
        self.parse_deferred();
        let generates = self.generates();
        self.meter_mut().count_missing(generates);
    }

    /// Marks the response as cut off: the output that was delivered is counted if the provider reported less.
    pub fn cut(&mut self) {
        self.cut_within(u64::MAX);
    }

    /// Marks the response as cut off, but counts no more than `most` output tokens.
    pub fn cut_within(&mut self, most: u64) {
        self.parse_deferred();
        let generates = self.generates();
        self.meter_mut().count_cut_within(generates, most);
    }

    fn generates(&self) -> bool {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.generates(),
            Exchange::Translated(_) => true,
        }
    }

    fn meter_mut(&mut self) -> &mut Meter {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.meter_mut(),
            Exchange::Translated(translated) => translated.meter_mut(),
        }
    }

    /// Feeds a piece of a stream and returns the bytes to forward.
    ///
    /// # Errors
    /// Returns [`StreamError`] if the response cannot continue. [`take_ready`](Self::take_ready) then returns the
    /// frames that were complete before the fault.
    #[inline]
    pub fn feed(&mut self, piece: Bytes) -> Result<Bytes, StreamError> {
        self.meter_mut().record_piece(&piece);
        match self {
            Exchange::Verbatim(verbatim) => verbatim.feed(piece),
            Exchange::Translated(translated) => translated.feed(piece),
        }
    }

    /// Returns true if a frame of the stream is incomplete.
    pub fn is_partial(&self) -> bool {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.is_partial(),
            Exchange::Translated(translated) => translated.is_partial(),
        }
    }

    /// Ends the stream and returns the remaining bytes to forward.
    ///
    /// # Errors
    /// Returns [`StreamError`] if the response is incomplete.
    pub fn finish(&mut self) -> Result<Bytes, StreamError> {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.finish(),
            Exchange::Translated(translated) => translated.finish(),
        }
    }

    /// Feeds a whole response and returns the document for a client that did not request a stream.
    ///
    /// # Errors
    /// Returns [`StreamError`] if the body is not a valid response of its format.
    pub fn whole(&mut self, body: Bytes) -> Result<Bytes, StreamError> {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.whole(body),
            Exchange::Translated(translated) => translated.whole(body),
        }
    }

    /// Returns keep-alive filler, which may be sent between the results of [`feed`](Self::feed) so that an idle stream
    /// does not time out. Empty once the response has ended.
    pub fn keep_alive(&mut self) -> Bytes {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.keep_alive(),
            Exchange::Translated(translated) => translated.keep_alive(),
        }
    }

    /// Returns the output that was complete before a fault and still has to be forwarded.
    pub fn take_ready(&mut self) -> Bytes {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.take_ready(),
            Exchange::Translated(translated) => translated.take_ready(),
        }
    }

    /// Takes the response document to be stored: `Some` once, as soon as the output contains the end of the response.
    pub fn take_document(&mut self) -> Option<Bytes> {
        match self {
            Exchange::Verbatim(_) => None,
            Exchange::Translated(translated) => translated.take_document(),
        }
    }

    /// Takes the provider signatures to be stored: `Some` once, as soon as the output contains the end of the response.
    pub fn take_signatures(&mut self) -> Option<SignatureBundle> {
        match self {
            Exchange::Verbatim(_) => None,
            Exchange::Translated(translated) => translated.take_signatures(),
        }
    }

    /// Returns the bytes that end a failed stream: the error in the client's format.
    pub fn fail(&mut self, format: Format, error: &ApiError, request_id: &str) -> Bytes {
        match self {
            Exchange::Verbatim(verbatim) => {
                wire_error::stream_tail(format, error, request_id, verbatim.array_state()).freeze()
            }
            Exchange::Translated(translated) => translated.fail(error),
        }
    }
}
