//! Provider signatures (thinking signatures, encrypted reasoning) and the envelope in which clients of another format
//! return them.
//!
//! Only the provider that issued a signature accepts it; every other provider refuses a request that contains it. A
//! translated response therefore carries it in an envelope, `gw1.<issuer>.<base64url of the signature>`, in an opaque
//! field that the client's format echoes. The next request returns the envelope, and the gateway sends the unchanged
//! signature to its issuer only. Apart from the two dots, an envelope has only characters that are valid in ids of
//! every format; inside an id the separators are `__` (see [`SignedCallId`]).

use std::borrow::Cow;

use base64_simd::URL_SAFE_NO_PAD;

use json::{JsonStr, Sink};

/// Provider signature in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSignature<'a> {
    /// Issuer; `None` if the signature came without an envelope, i.e. from the provider of the client's own format.
    pub issuer: Option<Cow<'a, str>>,
    /// Signature, as the inside of a JSON string.
    pub text: Cow<'a, str>,
}

impl<'a> ProviderSignature<'a> {
    /// Parses a field that holds a signature, in an envelope or bare. Returns `None` if the field is empty, or the
    /// envelope is ([`UNSIGNED`]).
    pub fn read(field: JsonStr<'a>) -> Option<Self> {
        if field.is_empty() || field.escaped() == UNSIGNED {
            return None;
        }
        match open(field.escaped()) {
            Some((issuer, text)) => {
                Some(ProviderSignature { issuer: Some(Cow::Borrowed(issuer)), text: Cow::Owned(text) })
            }
            // An envelope without a signature, or a broken one, has no issuer.
            None if field.escaped().starts_with(ENVELOPE) => {
                Some(ProviderSignature { issuer: Some(Cow::Borrowed("")), text: Cow::Borrowed("") })
            }
            None => Some(ProviderSignature { issuer: None, text: Cow::Borrowed(field.escaped()) }),
        }
    }

    /// Returns the signature if `issuer` issued it, and `None` otherwise (also if the issuer is unknown).
    pub fn for_issuer(&self, issuer: &str) -> Option<JsonStr<'_>> {
        (self.issuer.as_deref() == Some(issuer)).then(|| JsonStr::from_escaped(&self.text))
    }
}

/// Provider signature to be written into a client's field in an envelope.
#[derive(Clone, Copy, Debug)]
pub struct SealedSignature<'a> {
    /// Issuer: ASCII letters, digits, `-` and `_`.
    pub issuer: &'a str,
    /// Signature, as the inside of a JSON string.
    pub text: JsonStr<'a>,
}

const ENVELOPE: &str = "gw1.";

/// Envelope without a signature, for reasoning that its provider did not sign. Clients give reasoning back as it came only
/// if it has a signature; some write unsigned reasoning into the prompt as text. No provider has an issuer name with `_`.
pub const UNSIGNED: &str = "gw1.no_issuer.";

/// Beginning of the envelope of a call's signature, where the format has a place for signatures of reasoning only. Other
/// readers find no issuer in it. No provider has an issuer name with `_`.
const OF_CALL: &str = "gw1._call.";

impl<'a> ProviderSignature<'a> {
    /// Parses a field of reasoning that holds the signature of the call behind it. `None` if it holds another one.
    pub fn read_of_call(field: JsonStr<'a>) -> Option<Self> {
        let (issuer, seal) = field.escaped().strip_prefix(OF_CALL)?.split_once('.')?;
        let text = String::from_utf8(get_base64(seal.as_bytes())?).ok()?;
        is_inside_of_string(&text)
            .then_some(ProviderSignature { issuer: Some(Cow::Borrowed(issuer)), text: Cow::Owned(text) })
    }
}

impl SealedSignature<'_> {
    /// Writes the envelope of a call's signature for a field of reasoning. It needs no JSON escapes.
    pub fn write_of_call(&self, out: &mut impl Sink) {
        out.put_slice(OF_CALL.as_bytes());
        out.put_slice(self.issuer.as_bytes());
        out.put_u8(b'.');
        put_base64(out, self.text.escaped().as_bytes());
    }

    /// Writes the envelope, which needs no JSON escapes.
    pub fn write(&self, out: &mut impl Sink) {
        out.put_slice(ENVELOPE.as_bytes());
        out.put_slice(self.issuer.as_bytes());
        out.put_u8(b'.');
        put_base64(out, self.text.escaped().as_bytes());
    }
}

/// Parses an envelope into issuer and signature. Returns `None` if the text is not an envelope or its content is not
/// safe.
fn open(text: &str) -> Option<(&str, String)> {
    let (issuer, seal) = text.strip_prefix(ENVELOPE)?.split_once('.')?;
    let seal = String::from_utf8(get_base64(seal.as_bytes())?).ok()?;
    is_inside_of_string(&seal).then_some((issuer, seal))
}

/// Returns true if `text` can be inserted into a JSON string as it is. Clients send envelopes back, so their content is
/// untrusted: a raw quote would end the string (injection), and providers refuse control characters and invalid
/// escapes.
fn is_inside_of_string(text: &str) -> bool {
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return true,
            [b'"' | 0..0x20, ..] => return false,
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => rest,
            [b'\\', b'u', a, b, c, d, rest @ ..]
                if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) =>
            {
                rest
            }
            [b'\\', ..] => return false,
            [_, rest @ ..] => rest,
        };
    }
}

/// Tool-call id with an appended provider signature: `<id>__gw1__<issuer>__<base64url>`. Clients echo ids even if they
/// drop all unknown fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCallId<'a> {
    /// Id as the provider sent it.
    pub id: JsonStr<'a>,
    /// Appended signature; `None` if the id has none.
    pub signature: Option<ProviderSignature<'a>>,
}

const CARRIER: &str = "__gw1__";

impl<'a> SignedCallId<'a> {
    /// Splits an id from its appended signature. An id without a valid signature is returned unchanged.
    pub fn read(id: JsonStr<'a>) -> Self {
        // Each call and each result has an id. For such short texts, `split_once` takes longer to prepare than to search.
        let carrier = memchr::memmem::find(id.escaped().as_bytes(), CARRIER.as_bytes());
        let parts = carrier.and_then(|at| id.escaped().split_at_checked(at)).and_then(|(plain, rest)| {
            let (issuer, seal) = rest.strip_prefix(CARRIER)?.split_once("__")?;
            let seal = String::from_utf8(get_base64(seal.as_bytes())?).ok()?;
            is_inside_of_string(&seal).then_some((plain, issuer, seal))
        });
        match parts {
            Some((plain, issuer, seal)) => SignedCallId {
                id: JsonStr::from_escaped(plain),
                signature: Some(ProviderSignature {
                    issuer: Some(Cow::Borrowed(issuer)),
                    text: Cow::Owned(seal),
                }),
            },
            None => SignedCallId { id, signature: None },
        }
    }

    /// Writes the part that follows the id.
    pub fn write(sealed: SealedSignature<'_>, out: &mut impl Sink) {
        out.put_slice(CARRIER.as_bytes());
        out.put_slice(sealed.issuer.as_bytes());
        out.put_slice(b"__");
        put_base64(out, sealed.text.escaped().as_bytes());
    }
}

/// Id of a tool call that the client's format does not allow: `<legal characters>__gw1id__<issuer>__<base64url>`. Its
/// issuer gets the id back as it gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenamedCallId<'a> {
    issuer: &'a str,
    own: String,
}

const RENAMED: &str = "__gw1id__";
/// Beginning of everything that the gateway appends to an id.
const APPENDED: &str = "__gw1";

/// Returns whether an id has something that the gateway appended, which may have been altered; also an id that would seem to
/// once the characters that its target does not take are written as `_`.
pub fn is_marked(id: JsonStr<'_>) -> bool {
    let (gap, mark) = APPENDED.split_at(2);
    let bytes = id.escaped().as_bytes();
    let becomes_gap = |at: usize| {
        let before = at.checked_sub(gap.len()).and_then(|from| bytes.get(from..at));
        before.is_some_and(|before| before.iter().all(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-'))
    };
    memchr::memmem::find_iter(bytes, mark).any(becomes_gap)
}

impl<'a> RenamedCallId<'a> {
    /// Reads an id; `None` if it is none that was renamed.
    pub fn read(id: JsonStr<'a>) -> Option<Self> {
        let at = memchr::memmem::find(id.escaped().as_bytes(), RENAMED.as_bytes())?;
        let (issuer, own) = id.escaped().get(at + RENAMED.len()..)?.split_once("__")?;
        let own = String::from_utf8(get_base64(own.as_bytes())?).ok()?;
        is_inside_of_string(&own).then_some(RenamedCallId { issuer, own })
    }

    /// Returns the id as its issuer gave it, as the inside of a JSON string. `None` for another provider.
    pub fn for_issuer(&self, issuer: &str) -> Option<&str> {
        (self.issuer == issuer).then_some(&*self.own)
    }

    /// Writes an id, of which `legal` has the characters that the client's format allows. `own.text` is the whole id.
    pub fn write(legal: &str, own: SealedSignature<'_>, out: &mut impl Sink) {
        out.put_slice(legal.as_bytes());
        out.put_slice(RENAMED.as_bytes());
        out.put_slice(own.issuer.as_bytes());
        out.put_slice(b"__");
        put_base64(out, own.text.escaped().as_bytes());
    }
}

fn put_base64(out: &mut impl Sink, bytes: &[u8]) {
    out.put_slice(URL_SAFE_NO_PAD.encode_to_string(bytes).as_bytes());
}

fn get_base64(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode_to_vec(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_that_seems_to_carry_something_is_marked() {
        for (id, marked) in [
            ("call_1__gw1__other__Uw", true),
            ("call_[[gw1.x", true),
            ("call_1_gw1", false),
            ("a-_gw1", false),
            ("gw1", false),
            ("_gw1", false),
            ("call_gw1__gw1", true),
        ] {
            assert_eq!(is_marked(JsonStr::from_escaped(id)), marked, "{id}");
        }
    }

    #[test]
    fn envelope_without_a_signature_is_none() {
        assert_eq!(ProviderSignature::read(JsonStr::from_escaped(UNSIGNED)), None);
        let sealed = SealedSignature { issuer: "no_issuer", text: JsonStr::default() };
        let mut envelope = Vec::new();
        sealed.write(&mut envelope);
        assert_eq!(envelope, UNSIGNED.as_bytes());
    }

    #[test]
    fn signature_envelope_is_opened_only_for_its_issuer() {
        for seal in ["", "a", "ab", "abc", "EqQB\\/+==", "ünï\\n\\\"", &"x".repeat(1000)] {
            let sealed = SealedSignature { issuer: "anthropic", text: JsonStr::from_escaped(seal) };
            let mut envelope = Vec::new();
            sealed.write(&mut envelope);
            let envelope = String::from_utf8(envelope).unwrap();
            let read = ProviderSignature::read(JsonStr::from_escaped(&envelope)).unwrap();
            assert_eq!(read.for_issuer("anthropic").map(JsonStr::escaped), Some(seal));
            assert_eq!(read.for_issuer("google"), None);

            let mut id = b"call_1".to_vec();
            SignedCallId::write(sealed, &mut id);
            let id = String::from_utf8(id).unwrap();
            assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            let carried = SignedCallId::read(JsonStr::from_escaped(&id));
            assert_eq!(carried.id.escaped(), "call_1");
            assert_eq!(carried.signature.unwrap().for_issuer("anthropic").map(JsonStr::escaped), Some(seal));
        }
    }

    #[test]
    fn signature_of_a_call_is_none_of_reasoning() {
        let sealed = SealedSignature { issuer: "google", text: JsonStr::from_escaped("Cg\\/=") };
        let mut envelope = Vec::new();
        sealed.write_of_call(&mut envelope);
        let envelope = String::from_utf8(envelope).unwrap();
        let read = ProviderSignature::read_of_call(JsonStr::from_escaped(&envelope)).unwrap();
        assert_eq!((read.issuer.as_deref(), &*read.text), (Some("google"), "Cg\\/="));
        let other = ProviderSignature::read(JsonStr::from_escaped(&envelope)).unwrap();
        assert_eq!(other.issuer.as_deref(), Some(""));
        for field in ["", "gw1.google.Q2c", UNSIGNED, "gw1._call.google", "gw1._call.google.Ig"] {
            assert_eq!(ProviderSignature::read_of_call(JsonStr::from_escaped(field)), None, "{field}");
        }
    }

    #[test]
    fn renamed_call_id_returns_to_its_issuer_only() {
        for own in ["functions.f:0", "a b", "é\\n", ""] {
            let mut id = Vec::new();
            let sealed = SealedSignature { issuer: "kimi", text: JsonStr::from_escaped(own) };
            RenamedCallId::write("functions_f_0", sealed, &mut id);
            let id = String::from_utf8(id).unwrap();
            assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            // It may carry a signature behind it.
            SignedCallId::write(sealed, &mut id.clone().into_bytes());
            let read = RenamedCallId::read(JsonStr::from_escaped(&id)).unwrap();
            assert_eq!((read.for_issuer("kimi"), read.for_issuer("anthropic")), (Some(own), None));
        }
        for id in ["call_1", "a__gw1id__", "a__gw1id__kimi__***", "a__gw1id__kimi__Ig"] {
            assert_eq!(RenamedCallId::read(JsonStr::from_escaped(id)), None, "{id}");
        }
    }

    #[test]
    fn signature_in_an_id_of_any_length_is_found() {
        let sealed = SealedSignature { issuer: "p", text: JsonStr::from_escaped("seal") };
        for length in (0..70).chain([1_000]) {
            for plain in ["x".repeat(length), "_".repeat(length), "é".repeat(length)] {
                let mut id = plain.clone().into_bytes();
                SignedCallId::write(sealed, &mut id);
                let id = String::from_utf8(id).unwrap();
                let carried = SignedCallId::read(JsonStr::from_escaped(&id));
                assert_eq!(carried.id.escaped(), plain);
                assert_eq!(carried.signature.unwrap().for_issuer("p").map(JsonStr::escaped), Some("seal"));
            }
        }
    }

    #[test]
    fn signature_without_an_envelope_is_left_unchanged_and_a_broken_one_has_no_issuer() {
        let bare = ProviderSignature::read(JsonStr::from_escaped("EqQB/+==")).unwrap();
        assert_eq!((bare.issuer, &*bare.text), (None, "EqQB/+=="));
        for id in ["call_1", "call__gw1__", "toolu_01__gw1__x", "a__gw1__x__***"] {
            assert_eq!(
                SignedCallId::read(JsonStr::from_escaped(id)),
                SignedCallId { id: JsonStr::from_escaped(id), signature: None }
            );
        }
        // A quote that would end the string that the text is inserted into, and invalid escapes.
        for inside in ["a\",\"b\":\"", "\\A", "\\u12x4", "a\\", "\n"] {
            let mut forged = b"gw1.x.".to_vec();
            put_base64(&mut forged, inside.as_bytes());
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(
                ProviderSignature::read(JsonStr::from_escaped(&forged)).unwrap().issuer.as_deref(),
                Some(""),
                "{inside:?}"
            );
        }
    }
}
