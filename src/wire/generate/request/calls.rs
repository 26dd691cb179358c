//! Ids of calls. In this format calls and results may have none and then belong together by name and order.

use std::sync::OnceLock;

use super::read::{Fault, wrong};
use crate::canonical::{Key, Queues};
use crate::json::JsonStr;
use crate::wire::codec::make_id;

/// Ids that are made at most for one request, in chunks: a request borrows them, and its own text has none.
const CHUNK: usize = 1024;
const CHUNKS: usize = 64;

/// The id of a call without one. It depends on nothing but the call's place in the conversation, so that a
/// conversation that grows keeps the ids of its beginning.
fn made(number: usize) -> Option<JsonStr<'static>> {
    static IDS: [OnceLock<Box<[String]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
    let chunk = number / CHUNK;
    let ids = IDS.get(chunk)?.get_or_init(|| {
        (chunk * CHUNK..).take(CHUNK).map(|number| make_id("call_", "", number as u64)).collect()
    });
    ids.get(number % CHUNK).map(|id| JsonStr::from_escaped(id))
}

/// The calls of a conversation while it is read.
#[derive(Default)]
pub(super) struct Calls<'a> {
    made: usize,
    /// Calls since the model's last turn began; one that was answered is not there any more.
    open: Vec<Option<Open<'a>>>,
    /// Where they stand, once they are many.
    places: Option<Box<Places>>,
}

/// Calls among which one is found by a scan.
const FEW: usize = 16;

struct Open<'a> {
    id: JsonStr<'a>,
    name: JsonStr<'a>,
    made: bool,
}

/// Where calls stand: by their ids, by their names, and by their names if their ids were made.
#[derive(Default)]
struct Places {
    by_id: Queues,
    by_name: Queues,
    made_by_name: Queues,
}

impl Places {
    fn push(&mut self, open: &Open<'_>, at: usize) {
        self.by_id.push(Key::of(open.id), at);
        self.by_name.push(Key::of(open.name), at);
        if open.made {
            self.made_by_name.push(Key::of(open.name), at);
        }
    }
}

impl<'a> Calls<'a> {
    /// Another turn of the model begins: what it calls is what is answered from here on.
    pub(super) fn turn(&mut self) {
        self.open.clear();
        self.places = None;
    }

    /// The id of a call: its own, or one that is made.
    pub(super) fn call(&mut self, id: JsonStr<'a>, name: JsonStr<'a>) -> Result<JsonStr<'a>, Fault> {
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

    /// The id and the name of the call that a result answers.
    pub(super) fn result(
        &mut self,
        id: JsonStr<'a>,
        name: JsonStr<'a>,
    ) -> Result<(JsonStr<'a>, JsonStr<'a>), Fault> {
        let Calls { open, places, .. } = self;
        // A client may give its results ids that the calls did not have.
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
                    by_name.earliest(Key::of(name), waits)
                } else {
                    let found = by_id.earliest(Key::of(id), waits);
                    found.or_else(|| made_by_name.earliest(Key::of(name), waits))
                }
            }
        };
        match found.and_then(|at| open.get_mut(at)?.take()) {
            Some(open) => Ok((open.id, if name.is_empty() { open.name } else { name })),
            None if id.is_empty() => Ok((self.make()?, name)),
            None => Ok((id, name)),
        }
    }

    fn make(&mut self) -> Result<JsonStr<'a>, Fault> {
        let id = made(self.made).ok_or_else(|| wrong("contents", "has too many calls without ids"))?;
        self.made += 1;
        Ok(id)
    }
}
