//! Edit of one frame of a verbatim stream: the frame is metered, and what must change in it is decided.

use std::ops::Range;

use bytes::Bytes;

use super::Meter;
use super::verbatim::{Changes, StreamError};
use crate::canonical::Usage;
use crate::wire::chat::correct::Corrector;
use crate::wire::chat::usage::UsageChunk;
use crate::wire::error::ProviderError;
use crate::wire::finish_words;
use crate::wire::watch::{self, FrameClass, FrameFacts, StreamEnd};
use crate::wire::{Api, Format};
use json::{EscapedString, JsonError};

/// What separates two events with data.
const NEXT: &str = "\n\ndata: ";

/// Edit of one frame.
pub(super) enum FrameEdit<'f> {
    /// Forwarded unchanged.
    None,
    /// Removed.
    Drop,
    /// The usage chunk is inserted before the frame, whose data this is.
    InsertUsage(&'f str, &'f UsageChunk, Box<Usage>),
    /// A range of the data, the model's name, is replaced.
    Rename(&'f str, Range<usize>, &'f EscapedString),
    /// The data is replaced.
    Correct(&'f str, String),
}

/// Meters a frame and decides its edit. `data` is `None` for a frame without data, such as a comment.
///
/// # Errors
/// Returns [`StreamError::FirstFrame`] if the first frame is an error, and [`StreamError::Failed`] for a later error that
/// clients of the format do not know as one.
// Runs for every frame and has one caller. As a call, with the edit returned through memory, it costs a frame 3 % more
// instructions.
#[inline(always)]
pub(super) fn read<'f>(
    api: Api,
    changes: &'f Changes,
    corrector: &mut Corrector,
    meter: &mut Meter,
    unread: &mut Vec<u8>,
    data: Option<&'f [u8]>,
) -> Result<FrameEdit<'f>, StreamError> {
    // Performance: the first frames are parsed for the id and the number of choices, and so is every frame after a
    // choice has finished. Most other frames need only a substring search, which costs a tenth of parsing.
    if let Some(data) = data
        && meter.may_skim()
        && changes.model.is_none()
    {
        let glance = watch::classify(api.format().unwrap_or(Format::Chat), data);
        if glance != FrameClass::Read && !corrector.is_concerned(data) {
            // Usage is cumulative: only the last of these reports counts, so its parsing is deferred.
            meter.observe_content();
            if glance == FrameClass::ContentAndUsage {
                unread.clear();
                unread.extend_from_slice(data);
            }
            return Ok(FrameEdit::None);
        }
    }
    // Frames that are not JSON pass unchanged: keep-alives of some providers, and faults that the client is to see.
    let sight = data
        .and_then(|data| json::from_utf8(data).ok())
        .filter(|data| !data.is_empty())
        .and_then(|data| watch_frame(api, data).ok().map(|sight| (data, sight)));
    let Some((data, sight)) = sight else { return unread_frame(data, meter) };
    // Nothing has been forwarded yet, so the caller can still answer with an error status or try another target.
    if sight.end == StreamEnd::Failed && meter.frames() == 0 {
        return Err(StreamError::FirstFrame(Bytes::copy_from_slice(data.as_bytes())));
    }
    if sight.is_bare && matches!(api, Api::Chat | Api::Responses) {
        return Err(failed(Bytes::copy_from_slice(data.as_bytes()), meter));
    }
    if api == Api::Chat
        && sight.finish.is_some()
        && let Some(error) = broken_off(&sight, corrector.called())
    {
        return Err(failed(error, meter));
    }
    // The deferred frame is older than this one: merge its usage first, because this one may report fewer figures.
    settle(api, unread, meter);
    meter.observe(data, &sight);
    if changes.drop_usage && sight.usage_only {
        return Ok(FrameEdit::Drop);
    }
    if api == Api::Chat
        && let Some(text) = corrected(data, &sight, corrector)
    {
        return Ok(FrameEdit::Correct(data, renamed(text, changes.model.as_ref())));
    }
    // Last chance: SDKs stop reading at `[DONE]`, so missing usage is counted and inserted before it.
    if let Some(chunk) = changes.insert_usage.as_ref().filter(|_| sight.end == StreamEnd::Terminated)
        && !meter.usage().is_known()
        && let Some(usage) = meter.count_missing(true)
    {
        return Ok(FrameEdit::InsertUsage(data, chunk, Box::new(usage)));
    }
    Ok(match (&changes.model, sight.model_at) {
        (Some(model), Some(at)) => FrameEdit::Rename(data, at, model),
        _ => FrameEdit::None,
    })
}

/// Handles a frame that is no JSON object: an error of the provider in a list, as Google writes it, or anything else, which
/// passes.
#[cold]
fn unread_frame<'f>(data: Option<&[u8]>, meter: &Meter) -> Result<FrameEdit<'f>, StreamError> {
    let list = data.filter(|data| data.trim_ascii_start().starts_with(b"[{"));
    let Some(list) = list.and_then(|data| std::str::from_utf8(data).ok()) else { return Ok(FrameEdit::None) };
    if !ProviderError::is_in(list) {
        return Ok(FrameEdit::None);
    }
    Err(failed(Bytes::copy_from_slice(list.as_bytes()), meter))
}

fn failed(error: Bytes, meter: &Meter) -> StreamError {
    if meter.frames() == 0 { StreamError::FirstFrame(error) } else { StreamError::Failed(error) }
}

/// Returns the error of a completion whose finish reason means that it broke off.
pub(super) fn broken_off_document(api: Api, text: &str, sight: &FrameFacts<'_>) -> Option<Bytes> {
    if api != Api::Chat || sight.failure(Format::Chat).is_none() {
        return None;
    }
    let mut corrector = Corrector::new(true);
    corrector.document(text);
    broken_off(sight, corrector.called())
}

/// Returns the error of a chat response whose finish reason means that it broke off. `called` are the choices with a call.
#[inline(never)]
fn broken_off(sight: &FrameFacts<'_>, called: u64) -> Option<Bytes> {
    let word = sight.failure(Format::Chat)?;
    let is_whole =
        called & sight.finished != 0 && !finish_words::meaning(Format::Chat, word.escaped()).breaks_off(true);
    (!is_whole).then(|| Bytes::from(finish_words::error_of(Format::Chat, word.escaped())))
}

/// Returns a chat chunk as clients of the format understand it; `None` if it passes as it is.
#[inline]
fn corrected(data: &str, sight: &FrameFacts<'_>, corrector: &mut Corrector) -> Option<String> {
    let ends = sight.finish.is_some() && corrector.expects_calls();
    if sight.is_odd || ends || corrector.is_concerned(data.as_bytes()) {
        return match sight.end {
            StreamEnd::Terminated => corrector.rest().map(|rest| rest + data),
            StreamEnd::Open => corrector.chunk(data),
            StreamEnd::Failed => None,
        };
    }
    None
}

/// Returns events with the client's name of the model.
#[cold]
fn renamed(text: String, model: Option<&EscapedString>) -> String {
    let Some(model) = model else { return text };
    let mut out = String::with_capacity(text.len() + 64);
    for (number, data) in text.split(NEXT).enumerate() {
        out.push_str(if number == 0 { "" } else { NEXT });
        match watch::frame(Format::Chat, data).ok().and_then(|sight| sight.model_at) {
            Some(at) => {
                out.push_str(data.get(..at.start).unwrap_or_default());
                out.push('"');
                out.push_str(model.as_json_str().escaped());
                out.push('"');
                out.push_str(data.get(at.end..).unwrap_or_default());
            }
            None => out.push_str(data),
        }
    }
    out
}

/// Merges the usage of the frame whose parsing was deferred.
pub(super) fn settle(api: Api, unread: &mut Vec<u8>, meter: &mut Meter) {
    if unread.is_empty() {
        return;
    }
    let text = std::str::from_utf8(unread).unwrap_or_default();
    if let Some(usage) = watch_frame(api, text).ok().and_then(|sight| sight.usage) {
        meter.observe_usage(&usage);
    }
    unread.clear();
}

fn watch_frame(api: Api, data: &str) -> Result<FrameFacts<'_>, JsonError> {
    watch::frame(api.format().unwrap_or(Format::Chat), data)
}
