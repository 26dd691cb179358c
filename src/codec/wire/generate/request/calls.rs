//! Ids of calls. In this format calls and results may omit them; they are then matched by name and order.

use std::sync::OnceLock;

use super::read::{ReadFault, wrong};
use crate::canonical::{IndexKey, Queues};
use crate::wire::codec::make_id;
use json::JsonStr;

/// Generated ids are shared by all requests and created in chunks: a request borrows its ids, and its text has none
/// for these calls. `CHUNK` × `CHUNKS` is the maximum number per request. A chunk is small, because the request that
/// needs it first waits for all of its ids.
const CHUNK: usize = 64;
const CHUNKS: usize = 1024;

/// Returns the id of the call with this number. It depends on the number only, so that the calls of earlier turns
/// keep their ids as the conversation grows. Returns `None` if the number is too large.
fn made(number: usize) -> Option<JsonStr<'static>> {
    static IDS: [OnceLock<Box<[String]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
    let chunk = number / CHUNK;
    let ids = IDS.get(chunk)?.get_or_init(|| {
        (chunk * CHUNK..).take(CHUNK).map(|number| make_id("call_", "", number as u64)).collect()
    });
    ids.get(number % CHUNK).map(|id| JsonStr::from_escaped(id))
}

/// Calls of a conversation that is being decoded.
#[derive(Default)]
pub(super) struct ConversationCalls<'a> {
    made: usize,
    /// Calls since the start of the last model turn; `None` for a call that has its result.
    open: Vec<Option<Open<'a>>>,
    /// Index of `open`, built when it has more than `FEW` calls.
    places: Option<Box<Places>>,
}

/// Number of calls up to which a linear scan is used.
const FEW: usize = 16;

struct Open<'a> {
    id: JsonStr<'a>,
    name: JsonStr<'a>,
    made: bool,
}

/// Indexes in `open`: by id, by name, and by name for calls with a generated id.
#[derive(Default)]
struct Places {
    by_id: Queues,
    by_name: Queues,
    made_by_name: Queues,
}

impl Places {
    fn push(&mut self, open: &Open<'_>, at: usize) {
        self.by_id.push(IndexKey::of(open.id), at);
        self.by_name.push(IndexKey::of(open.name), at);
        if open.made {
            self.made_by_name.push(IndexKey::of(open.name), at);
        }
    }
}

impl<'a> ConversationCalls<'a> {
    /// Starts a new model turn: later results answer its calls only.
    pub(super) fn start_turn(&mut self) {
        self.open.clear();
        self.places = None;
    }

    /// Registers a call and returns its id: its own, or a generated one.
    pub(super) fn call(&mut self, id: JsonStr<'a>, name: JsonStr<'a>) -> Result<JsonStr<'a>, ReadFault> {
        let made = id.is_empty();
        let id = if made { self.make()? } else { id };
        let open = Open { id, name, made };
        if let Some(places) = &mut self.places {
            places.push(&open, self.open.len());
        }
        self.open.push(Some(open));
        if self.places.is_none() && self.open.len() > FEW {
            let mut places = Box::<Places>::default();
            let known = self.open.iter().enumerate();
            known
                .filter_map(|(at, open)| Some((open.as_ref()?, at)))
                .for_each(|(open, at)| places.push(open, at));
            self.places = Some(places);
        }
        Ok(id)
    }

    /// Returns the id and the name of the call that a result answers, and marks the call as answered.
    pub(super) fn result(
        &mut self,
        id: JsonStr<'a>,
        name: JsonStr<'a>,
    ) -> Result<(JsonStr<'a>, JsonStr<'a>), ReadFault> {
        let ConversationCalls { open, places, .. } = self;
        // Clients may send an id with the result of a call that had none: match such a result by name.
        let found = match places {
            None => {
                let find = |fits: &dyn Fn(&Open<'_>) -> bool| {
                    open.iter().position(|open| open.as_ref().is_some_and(fits))
                };
                let by_id = find(&|open| !id.is_empty() && open.id == id);
                by_id.or_else(|| find(&|open| open.name == name && (id.is_empty() || open.made)))
            }
            Some(places) => {
                let waits = |at: usize| open.get(at).is_some_and(Option::is_some);
                let Places { by_id, by_name, made_by_name } = &mut **places;
                if id.is_empty() {
                    by_name.earliest(IndexKey::of(name), waits)
                } else {
                    let found = by_id.earliest(IndexKey::of(id), waits);
                    found.or_else(|| made_by_name.earliest(IndexKey::of(name), waits))
                }
            }
        };
        match found.and_then(|at| open.get_mut(at)?.take()) {
            // Use the call's id, so that the call and its result have the same one.
            Some(open) => Ok((open.id, if name.is_empty() { open.name } else { name })),
            None if id.is_empty() => Ok((self.make()?, name)),
            None => Ok((id, name)),
        }
    }

    fn make(&mut self) -> Result<JsonStr<'a>, ReadFault> {
        let id = made(self.made).ok_or_else(|| wrong("contents", "has too many calls without ids"))?;
        self.made += 1;
        Ok(id)
    }
}
