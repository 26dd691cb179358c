//! Where two formats meet, or the same format meets itself.
//!
//! Here lives the decision of an exchange, taken once ([`Exchange`]): pass everything as it is ([`verbatim`]), or
//! translate it ([`translated`]), with the meter that reads along ([`Meter`]). A request that is translated is decoded,
//! adapted on the hub to what its target can be asked, and encoded ([`outgoing`](outgoing())); what was adapted is
//! undone in the answer.
//!
//! Here must not live: sockets, providers, routes; an exchange sees bytes and formats.

mod adapt;
mod beginning;
mod bounds;
mod call_fingerprint;
mod codecs;
mod count;
mod fit;
mod join_texts;
mod keepsake;
mod meter;
mod outgoing;
mod output_slices;
mod remote_parts;
mod restore;
pub mod resume;
pub mod translated;
pub mod verbatim;

#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use bounds::{MOST_CALLS, MOST_PARTS, MOST_TOOLS};
pub use codecs::decode_request;
pub use count::CountedRequest;
pub use keepsake::{Keepsake, Key, Recalled, issues_seals};
pub use meter::Meter;
pub use outgoing::{
    EncodeBlocked, Outgoing, Refused, StoreOptions, TranslateRequest, outgoing, outgoing_sealed,
    outgoing_stored,
};
pub use remote_parts::{FetchedMedia, RemoteParts, WantedMedia, links};
pub use restore::Restore;
pub use translated::Translated;
pub use verbatim::{StreamError, Verbatim};

use verbatim::Arrival;

use crate::error::ApiError;
use crate::tokens::Family;
use crate::wire::Format;
use crate::wire::error::{self as wire_error};

/// How an answer is brought to its client: decided once, never frame by frame.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it lives in a box already")]
pub enum Exchange {
    /// As it is.
    Verbatim(Verbatim),
    /// In another format.
    Translated(Box<Translated>),
}

impl Exchange {
    /// What was noted so far.
    pub fn meter(&self) -> &Meter {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.meter(),
            Exchange::Translated(translated) => translated.meter(),
        }
    }

    /// Reads what was left unread while frames passed: when nothing more will come.
    pub fn settle(&mut self) {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.settle(),
            Exchange::Translated(translated) => translated.settle(),
        }
    }

    /// Says whose tokens they are, and how many of input are expected, in case that the provider does not say how many
    /// there were.
    pub fn expect(&mut self, family: Family, input: u64) {
        self.meter_mut().expect(family, input);
    }

    /// Keeps what the provider was asked, likewise.
    pub fn asked(&mut self, asked: CountedRequest) {
        self.meter_mut().asked(asked);
    }

    /// The answer is complete: its usage is what its provider said, and for the rest what was counted.
    pub fn complete(&mut self) {
        self.settle();
        let generates = self.generates();
        self.meter_mut().count_missing(generates);
    }

    /// Nothing more will come, and the answer is not complete: its usage is what was delivered.
    pub fn cut(&mut self) {
        self.settle();
        let generates = self.generates();
        self.meter_mut().count_cut(generates);
    }

    fn generates(&self) -> bool {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.generates(),
            Exchange::Translated(_) => true,
        }
    }

    fn hear_whole(&mut self, body: &Bytes) {
        let arrival = match self {
            Exchange::Verbatim(verbatim) => verbatim.arrival(),
            Exchange::Translated(translated) => translated.arrival(),
        };
        match arrival {
            Arrival::Whole => self.meter_mut().hear_whole(body),
            Arrival::Events | Arrival::Array => self.meter_mut().hear(body),
        }
    }

    fn meter_mut(&mut self) -> &mut Meter {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.meter_mut(),
            Exchange::Translated(translated) => translated.meter_mut(),
        }
    }

    /// Takes a piece of a stream and returns what may leave.
    ///
    /// # Errors
    /// The answer cannot go on; see [`take_ready`](Self::take_ready).
    #[inline]
    pub fn feed(&mut self, piece: Bytes) -> Result<Bytes, StreamError> {
        self.meter_mut().hear(&piece);
        match self {
            Exchange::Verbatim(verbatim) => verbatim.feed(piece),
            Exchange::Translated(translated) => translated.feed(piece),
        }
    }

    /// Whether a frame of a stream has begun whose end is still to come.
    pub fn is_partial(&self) -> bool {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.is_partial(),
            Exchange::Translated(translated) => translated.is_partial(),
        }
    }

    /// The stream has ended: what is still to leave.
    ///
    /// # Errors
    /// The answer is not complete.
    pub fn finish(&mut self) -> Result<Bytes, StreamError> {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.finish(),
            Exchange::Translated(translated) => translated.finish(),
        }
    }

    /// Takes a whole answer and returns what leaves for a client that wants a document.
    ///
    /// # Errors
    /// It is not what its format promises.
    pub fn whole(&mut self, body: Bytes) -> Result<Bytes, StreamError> {
        self.hear_whole(&body);
        match self {
            Exchange::Verbatim(verbatim) => verbatim.whole(body),
            Exchange::Translated(translated) => translated.whole(body),
        }
    }

    /// Something without meaning that may leave between what [`feed`](Self::feed) returns, so that a silent stream is
    /// not given up; nothing once the answer is over.
    pub fn keep_alive(&mut self) -> Bytes {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.keep_alive(),
            Exchange::Translated(translated) => translated.keep_alive(),
        }
    }

    /// What was complete before a fault and still belongs to the client.
    pub fn take_ready(&mut self) -> Bytes {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.take_ready(),
            Exchange::Translated(translated) => translated.take_ready(),
        }
    }

    /// The response that is to be kept, once, as soon as its end is among what may leave.
    pub fn take_document(&mut self) -> Option<Bytes> {
        match self {
            Exchange::Verbatim(_) => None,
            Exchange::Translated(translated) => translated.take_document(),
        }
    }

    /// The provider's seals that are to be kept, once, as soon as the end of the answer is among what may leave.
    pub fn take_keepsake(&mut self) -> Option<Keepsake> {
        match self {
            Exchange::Verbatim(_) => None,
            Exchange::Translated(translated) => translated.take_keepsake(),
        }
    }

    /// What is appended to a stream that cannot go on: the error in the client's own way.
    pub fn fail(&mut self, format: Format, error: &ApiError, request_id: &str) -> Bytes {
        match self {
            Exchange::Verbatim(verbatim) => {
                wire_error::stream_tail(format, error, request_id, verbatim.array_state()).freeze()
            }
            Exchange::Translated(translated) => translated.fail(error),
        }
    }
}
