//! Responses on their way to the client: of a provider, or made by the gateway.

use std::time::Instant;

use bytes::Bytes;

use codec::canonical::{Product, Usage};
use codec::translate::invoke_stream::InvokeStream;
use codec::translate::invoke_writer::InvokeWriter;
use codec::translate::{Exchange, StreamError};
use driver::body_memory::MemoryPermit;

/// Response that the gateway made itself, as far as accounting and logging need it.
#[derive(Debug)]
pub(crate) struct SynthesizedResponse {
    pub(crate) usage: Usage,
    /// Products that are charged besides tokens.
    pub(crate) products: Vec<Product>,
    /// Whether the gateway counted some of the usage itself.
    pub(crate) counted: bool,
}

/// Response in progress: the exchange that reads or translates it, and the memory that it holds.
pub(crate) struct ResponseInProgress {
    pub(crate) exchange: Exchange,
    /// Held bytes of the provider's response: all of a document; of a stream those received since its last output.
    pub(crate) buffered_bytes: usize,
    /// Memory permit of these bytes.
    pub(crate) memory_permit: Option<MemoryPermit>,
    /// When the client received the first content of a stream that this one continues. `None` if it continues none, or
    /// one without content.
    pub(crate) continued_content: Option<Instant>,
    /// Reader of an event stream of InvokeModel, before the exchange. `None` for all other responses.
    pub(crate) invoked: Option<Box<InvokeStream>>,
    /// Writer of an event stream of InvokeModel, behind the exchange. `None` for clients of all other endpoints.
    pub(crate) writer: Option<Box<InvokeWriter>>,
}

impl ResponseInProgress {
    pub(crate) fn new(exchange: Exchange) -> Self {
        ResponseInProgress {
            exchange,
            buffered_bytes: 0,
            memory_permit: None,
            continued_content: None,
            invoked: None,
            writer: None,
        }
    }

    /// Feeds a piece of a stream, and finishes the exchange at the end. Returns the bytes to forward.
    ///
    /// # Errors
    /// Returns the fault if the response cannot continue, with the bytes before it that are still to be forwarded.
    pub(crate) fn feed(&mut self, piece: Bytes, end: bool) -> Result<Bytes, (StreamError, Bytes)> {
        match self.feed_exchange(piece, end) {
            Ok(out) => Ok(self.write(out)),
            Err((error, rest)) => Err((error, self.write(rest))),
        }
    }

    /// Puts output of the exchange into the framing that the client expects.
    pub(crate) fn write(&mut self, out: Bytes) -> Bytes {
        let ResponseInProgress { exchange, writer: Some(writer), .. } = self else { return out };
        if out.is_empty() {
            return out;
        }
        writer.feed(&out, &mut || {
            exchange.parse_deferred();
            *exchange.meter().usage()
        })
    }

    fn feed_exchange(&mut self, piece: Bytes, end: bool) -> Result<Bytes, (StreamError, Bytes)> {
        let (piece, fault) = match &mut self.invoked {
            None => (piece, None),
            Some(invoked) => match invoked.feed(&piece) {
                Ok(events) => (events, None),
                // The events before the fault are valid.
                Err(error) => (invoked.take_ready(), Some(error)),
            },
        };
        let mut out = Bytes::new();
        if !piece.is_empty() {
            out = match self.exchange.feed(piece) {
                Ok(out) => out,
                Err(error) => return Err((error, self.exchange.take_ready())),
            };
        }
        if let Some(error) = fault {
            return Err((error, out));
        }
        if !end {
            return Ok(out);
        }
        match self.exchange.finish() {
            Ok(tail) if tail.is_empty() => Ok(out),
            Ok(tail) if out.is_empty() => Ok(tail),
            Ok(tail) => Ok(Bytes::from([out, tail].concat())),
            Err(error) => {
                let ready = self.exchange.take_ready();
                Err((error, if out.is_empty() { ready } else { Bytes::from([out, ready].concat()) }))
            }
        }
    }
}
