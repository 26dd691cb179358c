//! Envelopes around the signatures of a response that passes verbatim, and what a response is that is none of its format.

use std::ops::Range;

use bytes::Bytes;

use super::StreamError;
use super::output_slices::OutputSlices;
use crate::canonical::SealedSignature;
use crate::wire::error::ProviderError;
use crate::wire::messages::signatures;
use json::{JsonError, JsonStr, JsonText};

/// Passes a frame with an envelope around the signature in it, if it has one.
// Few providers need it; frames of the others pass without a call.
#[inline(never)]
pub(super) fn seal(
    run: &mut OutputSlices<'_>,
    source: &Bytes,
    range: Range<usize>,
    joined: bool,
    data: &[u8],
    issuer: &str,
) {
    let data = json::from_utf8(data).unwrap_or_default();
    match signatures::in_frame(data) {
        Some(at) => {
            let text = JsonStr::from_escaped(data.get(at.clone()).unwrap_or_default());
            run.edit(source, range, joined, (data, at), |out| SealedSignature { issuer, text }.write(out));
        }
        None => run.forward(source, range, joined),
    }
}

/// Returns a response with envelopes around its signatures.
pub(super) fn sealed(text: JsonText, issuer: &str) -> JsonText {
    let places = signatures::in_document(&text);
    if places.is_empty() {
        return text;
    }
    let mut out = Vec::with_capacity(text.len() + text.len() / 2);
    let mut from = 0;
    for at in places {
        let signature = JsonStr::from_escaped(text.get(at.clone()).unwrap_or_default());
        out.extend_from_slice(text.as_bytes().get(from..at.start).unwrap_or_default());
        SealedSignature { issuer, text: signature }.write(&mut out);
        from = at.end;
    }
    out.extend_from_slice(text.as_bytes().get(from..).unwrap_or_default());
    // Cannot fail: an envelope has only ASCII characters.
    String::from_utf8(out).unwrap_or_default().into()
}

/// Returns the fault of a document or frame that is none of its format: an error of the provider if it has the words of
/// one.
#[cold]
pub(super) fn no_answer(text: &str, error: &JsonError) -> StreamError {
    if ProviderError::is_in(text) {
        return StreamError::FirstFrame(Bytes::copy_from_slice(text.as_bytes()));
    }
    StreamError::Invalid(error.to_string())
}
