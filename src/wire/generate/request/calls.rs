//! Ids of calls. In this format calls and results may have none and then belong together by name and order.

use std::sync::OnceLock;

use super::read::{Fault, wrong};
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
    open: Vec<Open<'a>>,
}

struct Open<'a> {
    id: JsonStr<'a>,
    name: JsonStr<'a>,
    made: bool,
}

impl<'a> Calls<'a> {
    /// Another turn of the model begins: what it calls is what is answered from here on.
    pub(super) fn turn(&mut self) {
        self.open.clear();
    }

    /// The id of a call: its own, or one that is made.
    pub(super) fn call(&mut self, id: JsonStr<'a>, name: JsonStr<'a>) -> Result<JsonStr<'a>, Fault> {
        let made = id.is_empty();
        let id = if made { self.make()? } else { id };
        self.open.push(Open { id, name, made });
        Ok(id)
    }

    /// The id and the name of the call that a result answers.
    pub(super) fn result(
        &mut self,
        id: JsonStr<'a>,
        name: JsonStr<'a>,
    ) -> Result<(JsonStr<'a>, JsonStr<'a>), Fault> {
        let by_id = || self.open.iter().position(|open| !id.is_empty() && open.id == id);
        // A client may give its results ids that the calls did not have.
        let fits = |open: &Open<'_>| open.name == name && (id.is_empty() || open.made);
        let found = by_id().or_else(|| self.open.iter().position(fits));
        match found {
            Some(at) => {
                let open = self.open.remove(at);
                Ok((open.id, if name.is_empty() { open.name } else { name }))
            }
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
