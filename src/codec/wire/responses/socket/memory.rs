//! Conversations that a connection remembers, so that the next request may continue one by the id of its last response
//! although it is stored nowhere (`store: false`).
//!
//! A turn holds the input and the output of one response and shares the turns before it, so that a conversation that
//! forks is held once, and a turn adds to the memory only what it adds to the conversation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Bookkeeping of a turn, in bytes: the turn itself, its id, and the two pieces of text.
const TURN: usize = 256;
/// Turns that can be continued, at most. Clients continue the latest one; a fork goes a few turns back.
const MAX_TURNS: usize = 256;

/// What a turn continues.
#[derive(Debug, Default)]
pub enum ContinuedFrom {
    /// Nothing: the conversation begins.
    #[default]
    Nothing,
    /// A response that is not in the memory: the gateway or a provider stores it under this id.
    Stored(Box<str>),
    /// A turn of the memory.
    ConversationTurn(Arc<ConversationTurn>),
}

/// Where the conversation up to a response is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the memory of the connection.
    Memory,
    /// At the provider: the turn stands for the id of its response only.
    Provider,
}

/// One response with its input. Text is held as it was sent, as elements of a JSON array without its brackets.
#[derive(Debug)]
pub struct ConversationTurn {
    id: Box<str>,
    before: ContinuedFrom,
    input: Bytes,
    output: Bytes,
    held: Arc<AtomicUsize>,
    size: usize,
}

impl ConversationTurn {
    /// Returns the id of the response.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the items of the conversation, oldest first, in pieces that may be empty.
    pub fn items(&self) -> Vec<Bytes> {
        let mut items = Vec::new();
        let mut turn = Some(self);
        while let Some(current) = turn {
            items.push(current.output.clone());
            items.push(current.input.clone());
            turn = match &current.before {
                ContinuedFrom::ConversationTurn(before) => Some(before),
                _ => None,
            };
        }
        items.reverse();
        items
    }

    /// Returns the id of the stored response that the conversation begins with; `None` if the memory holds all of it.
    pub fn stored(&self) -> Option<&str> {
        let mut turn = self;
        loop {
            match &turn.before {
                ContinuedFrom::ConversationTurn(before) => turn = before,
                ContinuedFrom::Stored(id) => return Some(id),
                ContinuedFrom::Nothing => return None,
            }
        }
    }
}

impl Drop for ConversationTurn {
    fn drop(&mut self) {
        self.held.fetch_sub(self.size, Ordering::Relaxed);
        // One after the other: a chain of a hundred thousand turns would overflow the stack of nested drops.
        let mut before = std::mem::take(&mut self.before);
        while let ContinuedFrom::ConversationTurn(turn) = before {
            match Arc::into_inner(turn) {
                Some(mut turn) => before = std::mem::take(&mut turn.before),
                None => return,
            }
        }
    }
}

/// Turns of one connection that can be continued.
#[derive(Debug)]
pub struct ConversationMemory {
    /// Turns with their lanes, oldest first.
    turns: VecDeque<(Arc<ConversationTurn>, Option<Box<str>>)>,
    /// Bytes of all turns that live: also of those that only a later turn refers to.
    held: Arc<AtomicUsize>,
    limit: usize,
}

impl ConversationMemory {
    /// Creates a memory of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        ConversationMemory { turns: VecDeque::new(), held: Arc::default(), limit }
    }

    /// Returns the bytes held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the turn with this response id; `None` if it is unknown or was evicted.
    pub fn find(&self, id: &str) -> Option<Arc<ConversationTurn>> {
        self.turns.iter().rev().find(|(turn, _)| *turn.id == *id).map(|(turn, _)| turn.clone())
    }

    /// Adds a response of a lane. Evicts the oldest turns beyond the limits: first those that are not the latest of
    /// their lane. A conversation that alone exceeds the limit is not kept.
    pub fn insert(
        &mut self,
        lane: Option<&str>,
        id: Box<str>,
        origin: Origin,
        before: ContinuedFrom,
        [input, output]: [Bytes; 2],
    ) {
        let (before, input, output) = match origin {
            Origin::Memory => (before, input, output),
            Origin::Provider => (ContinuedFrom::Stored(id.clone()), Bytes::new(), Bytes::new()),
        };
        let size = TURN + id.len() + input.len() + output.len();
        self.held.fetch_add(size, Ordering::Relaxed);
        let turn = ConversationTurn { id, before, input, output, held: self.held.clone(), size };
        self.turns.push_back((Arc::new(turn), lane.map(Into::into)));
        // The usual case of a long conversation: the oldest turn has successors in its lane.
        if self.turns.len() > MAX_TURNS
            && let Some((_, oldest)) = self.turns.front()
            && self.turns.iter().skip(1).any(|(_, lane)| lane == oldest)
        {
            self.turns.pop_front();
        }
        self.shrink(self.limit);
    }

    /// Evicts turns until at most `limit` bytes are held, or none is left.
    pub fn shrink(&mut self, limit: usize) {
        if self.turns.len() <= MAX_TURNS && self.held() <= limit {
            return;
        }
        // The latest turn of each lane goes last, because its client will continue it.
        let mut lanes: Vec<&Option<Box<str>>> = Vec::new();
        let mut is_latest = |lane| {
            let is_new = !lanes.contains(&lane);
            if is_new {
                lanes.push(lane);
            }
            is_new
        };
        let latest: Vec<bool> = self.turns.iter().rev().map(|(_, lane)| is_latest(lane)).collect();
        for protects in [true, false] {
            let mut at = 0;
            for is_latest in latest.iter().rev().take(self.turns.len()) {
                if self.turns.len() <= MAX_TURNS && self.held() <= limit {
                    return;
                }
                if protects && *is_latest {
                    at += 1;
                } else {
                    self.turns.remove(at);
                }
            }
        }
    }

    /// Forgets all turns.
    pub fn clear(&mut self) {
        self.turns.clear();
    }
}
