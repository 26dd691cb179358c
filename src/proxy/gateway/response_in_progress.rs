//! Responses on their way to the client: of a provider, or made by the gateway.

use std::time::Instant;

use crate::canonical::{Product, Usage};
use crate::proxy::body_memory::MemoryPermit;
use crate::translate::Exchange;
use crate::translate::invoke_stream::InvokeStream;

/// Response that the gateway made itself, as far as accounting and logging need it.
#[derive(Debug)]
pub(in crate::proxy) struct SynthesizedResponse {
    pub(in crate::proxy) usage: Usage,
    /// Products that are charged besides tokens.
    pub(in crate::proxy) products: Vec<Product>,
    /// Whether the gateway counted some of the usage itself.
    pub(in crate::proxy) counted: bool,
}

/// Response in progress: the exchange that reads or translates it, and the memory that it holds.
pub(in crate::proxy) struct ResponseInProgress {
    pub(in crate::proxy) exchange: Exchange,
    /// Held bytes of the provider's response: all of a document; of a stream those received since its last output.
    pub(in crate::proxy) buffered_bytes: usize,
    /// Memory permit of these bytes.
    pub(in crate::proxy) memory_permit: Option<MemoryPermit>,
    /// When the client received the first content of a stream that this one continues. `None` if it continues none, or
    /// one without content.
    pub(in crate::proxy) continued_content: Option<Instant>,
    /// Reader of an event stream of InvokeModel, before the exchange. `None` for all other responses.
    pub(in crate::proxy) invoked: Option<Box<InvokeStream>>,
}

impl ResponseInProgress {
    pub(in crate::proxy) fn new(exchange: Exchange) -> Self {
        ResponseInProgress {
            exchange,
            buffered_bytes: 0,
            memory_permit: None,
            continued_content: None,
            invoked: None,
        }
    }
}
