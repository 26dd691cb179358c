//! Item references: elements of `input` that stand for an item which an earlier response had or was given.
//!
//! A client that relies on the storage of responses sends the id of an item in place of the item, without
//! `previous_response_id` (the AI SDK does so by default). Providers of this format resolve ids of their own. Here is what a
//! reference to an item of a response that the gateway stored means for the text of a body: such items have ids that name
//! their response, so that no index of items is needed.

use std::ops::Range;

use super::text::SEAL_OF_TEXT;
use crate::error::{ApiError, ErrorKind};
use crate::wire::codec::make_id;
use crate::wire::watch::{elements, members, named_members};
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

/// Name of the item.
pub const ITEM: &str = "item_reference";
/// Prefix of the gateway's response ids.
const RESPONSE: &str = "resp_";
/// Hexadecimal digits of a response id of the gateway.
const DIGITS: usize = 32;
/// Hexadecimal digits of the number of an item in an item's id.
const NUMBER: usize = 4;
/// Characters of an id that a message repeats.
const SHOWN: usize = 100;

/// Returns whether an id has the form of the gateway's own response ids. Some providers' ids have it too.
pub fn is_own_response(id: &str) -> bool {
    id.strip_prefix(RESPONSE).is_some_and(|digits| digits.len() == DIGITS && is_hex(digits))
}

fn is_hex(digits: &str) -> bool {
    digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the id of an item of a response: of one that is stored as `stored` it names the response, otherwise it is made
/// from `seed`. `number` is the place of the item, from 1.
pub(super) fn item_id(prefix: &str, stored: &str, seed: &str, number: usize) -> String {
    match stored.strip_prefix(RESPONSE).filter(|digits| digits.len() == DIGITS) {
        Some(digits) => format!("{prefix}{digits}{number:0NUMBER$x}"),
        None => make_id(prefix, seed, number as u64),
    }
}

/// Returns the id of the response that an item of the gateway belongs to. `None` for any other id.
pub fn response_of(item: &str) -> Option<String> {
    let rest = item.strip_prefix(SEAL_OF_TEXT).or_else(|| item.split_once('_').map(|(_, rest)| rest))?;
    let own = rest.get(..DIGITS + NUMBER).filter(|digits| is_hex(digits))?;
    // An image's id has its signature behind this. Ids of OpenAI have more digits.
    if rest.as_bytes().get(own.len()).is_some_and(u8::is_ascii_hexdigit) {
        return None;
    }
    own.get(..DIGITS).map(|digits| format!("{RESPONSE}{digits}"))
}

/// Reference of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemReference {
    /// Index in `input`.
    pub index: usize,
    /// Id of the item, unescaped. Empty if the reference does not have exactly one that is a text.
    pub id: String,
    /// Byte range in the text that was read.
    pub range: Range<usize>,
}

/// Reads the references of the value of `input`. A value that is no array has none.
///
/// # Errors
/// Returns [`JsonError`] if the text is not valid JSON.
pub fn references(input: &str) -> Result<Vec<ItemReference>, JsonError> {
    let mut found = Vec::new();
    let mut json = Cursor::new(input);
    if json.kind()? != ValueKind::Array {
        return Ok(found);
    }
    let mut index = 0;
    elements(&mut json, |json| {
        if json.kind()? != ValueKind::Object {
            json.skip()?;
        } else {
            let start = json.offset();
            if let Some(id) = referenced(json)? {
                found.push(ItemReference { index, id, range: start..json.offset() });
            }
        }
        index += 1;
        Ok(())
    })?;
    Ok(found)
}

/// Reads an item. Returns the id that it refers to, empty if it is not one text; `None` if the item is no reference. The
/// type may be absent or null. Of doubled members each counts, because readers disagree on which one does.
fn referenced(json: &mut Cursor<'_>) -> Result<Option<String>, JsonError> {
    let (mut is_named, mut is_other, mut has_role) = (false, false, false);
    let mut ids: Vec<Option<String>> = Vec::new();
    members(json, |key, json| {
        let name = key.decode();
        if name.eq_ignore_ascii_case("id") {
            ids.push(json.raw()?.as_str().map(|id| id.decode().into_owned()));
        } else if name.eq_ignore_ascii_case("type") {
            let kind = json.raw()?.as_str().map(JsonStr::decode).unwrap_or_default();
            let kind = kind.trim();
            is_named |= kind.eq_ignore_ascii_case(ITEM);
            is_other |= !kind.is_empty() && !kind.eq_ignore_ascii_case(ITEM);
        } else {
            has_role |= name.eq_ignore_ascii_case("role");
            json.skip()?;
        }
        Ok(())
    })?;
    let is_reference = is_named || (!is_other && !has_role && !ids.is_empty());
    Ok(is_reference.then(|| match <[Option<String>; 1]>::try_from(ids) {
        Ok([Some(id)]) => id,
        _ => String::new(),
    }))
}

/// Returns a text with these ranges replaced, which are in order.
pub fn replaced<'t>(text: &str, by: impl IntoIterator<Item = (Range<usize>, &'t str)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (range, item) in by {
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(item);
        at = range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

/// Calls `found` for the items of a stored response: the id and the text of each.
///
/// # Errors
/// Returns [`JsonError`] if the document is not valid JSON.
pub fn each_output_item<'d>(
    document: &'d str,
    mut found: impl FnMut(JsonStr<'d>, &'d str),
) -> Result<(), JsonError> {
    let [output] = named_members(RawJson::from_text(document), ["output"])?;
    let Some(output) = output.filter(|output| output.text().starts_with('[')) else { return Ok(()) };
    elements(&mut Cursor::new(output.text()), |json| {
        let item = json.raw()?;
        if let [Some(id)] = named_members(item, ["id"])?
            && let Some(id) = id.as_str()
        {
            found(id, item.text());
        }
        Ok(())
    })
    .map(drop)
}

/// Returns the error of an item that does not exist, or belongs to another account: that of the OpenAI API.
pub fn not_found(id: &str) -> ApiError {
    let shown: String = id.chars().take(SHOWN).collect();
    ApiError::new(ErrorKind::UnknownResponse, format!("Item with id '{shown}' not found.")).param("input")
}

/// Returns the error of an item that is no reference in a readable form.
pub fn unreadable(index: usize) -> ApiError {
    let param = format!("input[{index}].id");
    ApiError::new(ErrorKind::InvalidField, format!("'{param}' must name one item by its id.")).param(param)
}

/// Returns the error of a reference in an item's text, at a model whose provider resolves none.
pub fn unresolved(item: RawJson<'_>) -> ApiError {
    match referenced(&mut Cursor::new(item.text())) {
        Ok(Some(id)) if !id.is_empty() => not_found(&id),
        _ => ApiError::new(ErrorKind::InvalidField, format!("'{ITEM}' must name one item by its id."))
            .param("input"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str = "resp_00112233445566778899aabbccddeeff";

    #[test]
    fn item_id_of_a_stored_response_names_it() {
        for prefix in ["msg_", "rs_", SEAL_OF_TEXT, "fc_", "ctc_", "ig_", "ws_"] {
            let id = item_id(prefix, STORED, "seed", 1);
            assert_eq!(id, format!("{prefix}00112233445566778899aabbccddeeff0001"));
            assert!(id.len() <= 64, "the API's maximum");
            assert_eq!(response_of(&id).as_deref(), Some(STORED));
            assert_eq!(response_of(&format!("{id}.gw1.x")).as_deref(), Some(STORED), "with a signature");
        }
        assert_eq!(item_id("msg_", "", "seed", 1), make_id("msg_", "seed", 1));
        assert_eq!(item_id("msg_", "resp_lane_1", "seed", 2), make_id("msg_", "seed", 2));
        for other in [
            "",
            "msg",
            "msg_1",
            STORED,
            "msg_67ccd2bf17f0819081ff3bb2cf6508e60bb6a6b452d3795b",
            "msg_00112233445566778899aabbccddeeff",
            "msg_00112233445566778899AABBCCDDEEFF0001",
            "msg_é0112233445566778899aabbccddeeff0001",
        ] {
            assert_eq!(response_of(other), None, "{other}");
        }
    }

    #[test]
    fn references_are_found_in_any_spelling() {
        let ids = |input: &str| {
            references(input).unwrap().into_iter().map(|found| (found.index, found.id)).collect::<Vec<_>>()
        };
        let one = |id: &str| vec![(1, id.to_owned())];
        for item in [
            r#"{"type":"item_reference","id":"msg_1"}"#,
            r#"{ "id" : "msg_1" , "type" : "item_reference" }"#,
            r#"{"id":"msg_1"}"#,
            r#"{"id":"msg_1","type":null}"#,
            r#"{"\u0069d":"msg\u005f1","t\u0079pe":"item\u005freference"}"#,
            r#"{"ID":"msg_1","Type":" Item_Reference "}"#,
            r#"{"id":"msg_1","type":"message","type":"item_reference"}"#,
        ] {
            assert_eq!(
                ids(&format!(r#"["text",{item},{{"role":"user","id":"msg_2","content":"x"}}]"#)),
                one("msg_1")
            );
        }
        for item in [
            r#"{"type":"item_reference"}"#,
            r#"{"type":"item_reference","id":1}"#,
            r#"{"id":"msg_1","id":"msg_2"}"#,
            r#"{"id":{"id":"msg_1"}}"#,
        ] {
            assert_eq!(ids(&format!(r#"[{{"type":"input_text","text":""}},{item}]"#)), one(""), "{item}");
        }
        assert_eq!(
            ids(
                r#"[{"type":"message","id":"msg_1","role":"user","content":"x"},{"type":"reasoning","id":"rs_1"}]"#
            ),
            []
        );
        assert_eq!(ids(r#""text""#), []);
    }

    #[test]
    fn stored_items_replace_their_references() {
        let input = r#"[{"role":"user","content":"a"}, {"id":"msg_1"} ,{"id":"msg_2"}]"#;
        let found = references(input).unwrap();
        let document = r#"{"id":"resp_1","output":[{"id":"msg_1","n":1},{"n":2},{"n":3,"id":"msg_2"}]}"#;
        let mut items = Vec::new();
        each_output_item(document, |id, text| items.push((id.decode().into_owned(), text))).unwrap();
        let by = found
            .iter()
            .map(|one| (one.range.clone(), items.iter().find(|(id, _)| *id == one.id).unwrap().1));
        assert_eq!(
            replaced(input, by),
            r#"[{"role":"user","content":"a"}, {"id":"msg_1","n":1} ,{"n":3,"id":"msg_2"}]"#
        );
    }
}
