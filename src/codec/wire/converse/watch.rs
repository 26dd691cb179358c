//! Facts for the usage meter, read from an event of a Converse stream or from a whole response.

use super::usage;
use crate::wire::watch::{FrameClass, FrameFacts, StreamEnd, members};
use json::{Cursor, JsonError};

/// Classifies a frame by its first bytes: content deltas need not be parsed.
#[inline]
pub fn classify(data: &[u8]) -> FrameClass {
    if data.starts_with(b"{\"contentBlockDelta\":") { FrameClass::Content } else { FrameClass::Read }
}

/// Reads the data of one frame: an object with one member, which is named like the event.
///
/// # Errors
/// Returns [`JsonError`] if the data is not a JSON object.
#[inline]
pub fn frame(data: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut facts = FrameFacts::default();
    let mut json = Cursor::new(data);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "contentBlockDelta" => {
                facts.content = true;
                facts.seen = 1;
                return Ok(facts);
            }
            "messageStop" => {
                members(&mut json, |key, json| stop_member(key.escaped(), json, &mut facts))?;
                facts.finished = 1;
                facts.seen = 1;
            }
            "metadata" => {
                members(&mut json, |key, json| stop_member(key.escaped(), json, &mut facts))?;
                facts.end = StreamEnd::Terminated;
            }
            "error" => {
                facts.error = Some(json.raw()?);
                facts.end = StreamEnd::Failed;
            }
            name if name.ends_with("Exception") => {
                facts.error = Some(json.raw()?);
                facts.end = StreamEnd::Failed;
            }
            _ => json.skip()?,
        }
    }
    json.end()?;
    Ok(facts)
}

/// Reads one whole response.
///
/// # Errors
/// Returns [`JsonError`] if the text is not a JSON object, or neither a response nor an error.
pub fn answer(body: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut facts = FrameFacts { content: true, ..FrameFacts::default() };
    let mut has_output = false;
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "output" => {
                has_output = true;
                json.skip()?;
            }
            // An error with status 200, as the front end of the service answers unknown operations.
            "message" | "__type" | "Output" => {
                let value = json.raw()?;
                facts.error = facts.error.or(Some(value)).filter(|error| !error.is_void());
            }
            name => stop_member(name, &mut json, &mut facts)?,
        }
    }
    json.end()?;
    if has_output || facts.finish.is_some() {
        facts.error = None;
    } else if facts.error.is_some() {
        facts.end = StreamEnd::Failed;
    } else if facts.usage.is_none() {
        return Err(JsonError { at: 0, what: "not a response of this format" });
    }
    Ok(facts)
}

fn stop_member<'a>(name: &str, json: &mut Cursor<'a>, facts: &mut FrameFacts<'a>) -> Result<(), JsonError> {
    match name {
        "stopReason" => facts.finish = json.raw()?.as_str(),
        "usage" => facts.usage = Some(usage::read(json.raw()?)?),
        "serviceTier" => facts.tier = usage::tier(json.raw()?)?,
        _ => json.skip()?,
    }
    Ok(())
}
