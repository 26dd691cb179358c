//! Message of a client that is being received, with the memory that it takes.

use driver::body_memory::{BodyMemory, MemoryPermit};
use json::Rope;

/// Message that is being received.
#[derive(Debug, Default)]
pub(super) struct IncomingMessage {
    pub(super) text: Rope,
    pub(super) permit: Option<MemoryPermit>,
}

impl IncomingMessage {
    /// Counts what has arrived. Returns false if there is no memory for it. A message that is not complete counts however
    /// short it is, because no limit of requests bounds it.
    pub(super) fn count(&mut self, memory: &BodyMemory, is_complete: bool) -> bool {
        match is_complete {
            true => memory.grow(&mut self.permit, self.text.len()),
            false => memory.set(&mut self.permit, self.text.held()),
        }
    }
}
