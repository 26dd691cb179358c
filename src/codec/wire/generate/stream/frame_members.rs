//! Members of a frame besides its candidates.

use crate::canonical::{Event, Usage};
use crate::wire::generate::watch;
use crate::wire::watch::members;
use json::{Cursor, JsonError, RawJson};

/// Emits the usage of a `usageMetadata` object, if it has any counts.
pub(super) fn emit_usage(usage: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
    let usage = watch::usage(usage)?;
    if usage != Usage::default() {
        sink(Event::Usage(usage));
    }
    Ok(())
}

/// Reads a `promptFeedback` object. Returns whether the prompt was blocked.
pub(super) fn is_blocked(json: &mut Cursor<'_>) -> Result<bool, JsonError> {
    let mut blocked = false;
    members(json, |key, json| {
        match key.escaped() {
            "blockReason" | "block_reason" => blocked = watch::reason(json.raw()?).is_some(),
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(blocked)
}
