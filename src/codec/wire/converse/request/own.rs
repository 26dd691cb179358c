//! What a request of this format has beyond the canonical model: copied from the client's text into a request that is
//! encoded again in this format.

use json::{Cursor, RawJson};

/// Blocks that the decoder splits, or reads in part.
const SPLIT: [&str; 4] = ["document", "citationsContent", "searchResult", "guardContent"];

/// Returns the name of an element that the decoder splits into several blocks; `None` for all others.
pub fn split_element(_kind: &str, element: RawJson<'_>) -> Option<&'static str> {
    let mut json = Cursor::new(element.text());
    json.begin_object().ok()?;
    let key = json.next_key().ok()??;
    SPLIT.into_iter().find(|name| key.is(name))
}
