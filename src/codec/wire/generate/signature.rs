//! Thought signatures: provider signatures in the base64 that this format's clients validate
//! (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
//!
//! Clients decode a signature to bytes and encode it again, in either base64 alphabet. The `gw1.` envelope is
//! therefore encoded in base64 once more, and recognized in any of these spellings.
//!
//! A part must have data (<https://ai.google.dev/api/caching#Part>), so hidden reasoning is a thought with an empty text,
//! as is visible reasoning whose text has been sent before its signature. The envelope of hidden reasoning ends with
//! [`HIDDEN`], to tell the two apart when the client sends them back.

use std::borrow::Cow;

use base64_simd::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::canonical::{ProviderSignature, SealedSignature};
use json::{JsonStr, Sink};

/// First characters of a `gw1.` envelope in base64.
const WRAPPED: &str = "Z3cxL";

/// Documented value for a call that another model made and that has no signature: base64 of
/// `skip_thought_signature_validator`.
pub(in crate::wire) const SKIP: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// End of the envelope of hidden reasoning. The base64 before it has no dot.
const HIDDEN: &str = ".h";

/// Reads the `thoughtSignature` of a request. Returns `None` if it is empty. Returns also whether it is that of hidden
/// reasoning.
pub(in crate::wire) fn read(field: JsonStr<'_>) -> Option<(ProviderSignature<'_>, bool)> {
    let plain = ProviderSignature::read(field)?;
    if plain.issuer.is_some() || !field.escaped().starts_with(WRAPPED) {
        return Some((plain, false));
    }
    // An envelope without a signature, or a broken one, has no issuer.
    let unissued = ProviderSignature { issuer: Some(Cow::Borrowed("")), text: Cow::Borrowed("") };
    Some(unwrap(&field.decode()).unwrap_or((unissued, false)))
}

fn unwrap(text: &str) -> Option<(ProviderSignature<'static>, bool)> {
    let text = text.trim_end_matches('=');
    let alphabet = if text.contains(['-', '_']) { URL_SAFE_NO_PAD } else { STANDARD_NO_PAD };
    let envelope = String::from_utf8(alphabet.decode_to_vec(text).ok()?).ok()?;
    let bare = envelope.strip_suffix(HIDDEN);
    let seal = ProviderSignature::read(JsonStr::from_escaped(bare.unwrap_or(&envelope)))?;
    let seal = ProviderSignature {
        issuer: Some(Cow::Owned(seal.issuer?.into_owned())),
        text: Cow::Owned(seal.text.into_owned()),
    };
    Some((seal, bare.is_some()))
}

/// Writes a provider signature as the inside of the string `thoughtSignature`. `hidden` is whether it is that of hidden
/// reasoning.
pub(super) fn write(sealed: SealedSignature<'_>, hidden: bool, out: &mut impl Sink) {
    let mut envelope = Vec::new();
    sealed.write(&mut envelope);
    if hidden {
        envelope.extend_from_slice(HIDDEN.as_bytes());
    }
    out.put_slice(STANDARD.encode_to_string(envelope).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_4_signature_is_decoded_in_any_base64_spelling() {
        for seal in ["", "a", "EqQB\\/+==", "\u{fc}\u{e9}?>\\n\\\"", "~~~???"] {
            let mut field = Vec::new();
            let hidden = seal.len() % 2 == 0;
            let sealed = SealedSignature { issuer: "anthropic", text: JsonStr::from_escaped(seal) };
            write(sealed, hidden, &mut field);
            let standard = String::from_utf8(field).unwrap();
            assert!(standard.len().is_multiple_of(4) && standard.starts_with(WRAPPED));
            let url_safe = standard.replace('+', "-").replace('/', "_");
            for spelling in [
                &*standard,
                standard.trim_end_matches('='),
                &url_safe,
                url_safe.trim_end_matches('='),
                &standard.replace('/', "\\/"),
            ] {
                let (read, is_hidden) = read(JsonStr::from_escaped(spelling)).unwrap();
                assert_eq!(is_hidden, hidden, "{spelling}");
                assert_eq!(read.for_issuer("anthropic").map(JsonStr::escaped), Some(seal), "{spelling}");
            }
        }
    }

    #[test]
    fn signature_without_an_envelope_is_the_providers_own() {
        for broken in ["Z3cxL", "Z3cxLg=="] {
            assert_eq!(read(JsonStr::from_escaped(broken)).unwrap().0.issuer.as_deref(), Some(""));
        }
        for own in ["EqQB/+==", SKIP, "skip_thought_signature_validator"] {
            let (seal, hidden) = read(JsonStr::from_escaped(own)).unwrap();
            assert_eq!((seal.issuer, &*seal.text, hidden), (None, own, false));
        }
        assert_eq!(read(JsonStr::default()), None);
    }
}
