//! What a provider wants to see again: signatures and encrypted reasoning, on their way through clients of another
//! format.
//!
//! A provider's seal means nothing to any other provider, which refuses a request that has it. In a translated answer
//! it is therefore put into an envelope, `gw1.<issuer>.<base64url of the seal>`, in whatever opaque field of the
//! client's format is echoed; in the next request the envelope is opened and the seal goes back to its issuer,
//! unaltered, and to nobody else. An envelope holds no character that any format's ids refuse but the two dots; in an
//! id these are `__` (see [`Carried`]).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::json::JsonStr;

/// A seal in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal<'a> {
    /// Who issued it; nothing for one that came without an envelope, which is the provider of the client's own format.
    pub issuer: Option<Cow<'a, str>>,
    /// The seal, as the inside of a JSON string.
    pub text: Cow<'a, str>,
}

impl<'a> Seal<'a> {
    /// Reads a field that holds a seal, in an envelope or bare.
    pub fn read(field: JsonStr<'a>) -> Option<Self> {
        if field.is_empty() {
            return None;
        }
        match open(field.escaped()) {
            Some((issuer, text)) => {
                Some(Seal { issuer: Some(Cow::Borrowed(issuer)), text: Cow::Owned(text) })
            }
            None => Some(Seal { issuer: None, text: Cow::Borrowed(field.escaped()) }),
        }
    }

    /// The seal, if this issuer made it.
    pub fn for_issuer(&self, issuer: &str) -> Option<JsonStr<'_>> {
        (self.issuer.as_deref() == Some(issuer)).then(|| JsonStr::from_escaped(&self.text))
    }
}

/// A seal in an envelope, to be written into a client's field.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    /// Who issued it: ASCII letters, digits, `-` and `_`.
    pub issuer: &'a str,
    /// The seal, as the inside of a JSON string.
    pub text: JsonStr<'a>,
}

const ENVELOPE: &str = "gw1.";

impl Sealed<'_> {
    /// Writes the envelope, which needs no escapes.
    pub fn write(&self, out: &mut impl bytes::BufMut) {
        out.put_slice(ENVELOPE.as_bytes());
        out.put_slice(self.issuer.as_bytes());
        out.put_u8(b'.');
        put_base64(out, self.text.escaped().as_bytes());
    }
}

/// Opens an envelope: the issuer and the seal.
fn open(text: &str) -> Option<(&str, String)> {
    let (issuer, seal) = text.strip_prefix(ENVELOPE)?.split_once('.')?;
    let seal = String::from_utf8(get_base64(seal.as_bytes())?).ok()?;
    is_inside_of_string(&seal).then_some((issuer, seal))
}

/// Envelopes come back from clients, so what is in them is not to be trusted to be pasted: no quote that would end the
/// string, and no escape that a provider would refuse.
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

/// A call's id that carries a seal: `<id>__gw1__<issuer>__<base64url>`. Clients echo ids, whatever else they drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried<'a> {
    /// The id as the provider gave it.
    pub id: JsonStr<'a>,
    /// What it carried.
    pub seal: Option<Seal<'a>>,
}

const CARRIER: &str = "__gw1__";

impl<'a> Carried<'a> {
    /// Takes an id apart.
    pub fn read(id: JsonStr<'a>) -> Self {
        let parts = id.escaped().split_once(CARRIER).and_then(|(plain, rest)| {
            let (issuer, seal) = rest.split_once("__")?;
            let seal = String::from_utf8(get_base64(seal.as_bytes())?).ok()?;
            is_inside_of_string(&seal).then_some((plain, issuer, seal))
        });
        match parts {
            Some((plain, issuer, seal)) => Carried {
                id: JsonStr::from_escaped(plain),
                seal: Some(Seal { issuer: Some(Cow::Borrowed(issuer)), text: Cow::Owned(seal) }),
            },
            None => Carried { id, seal: None },
        }
    }

    /// Writes what follows the id.
    pub fn write(sealed: Sealed<'_>, out: &mut impl bytes::BufMut) {
        out.put_slice(CARRIER.as_bytes());
        out.put_slice(sealed.issuer.as_bytes());
        out.put_slice(b"__");
        put_base64(out, sealed.text.escaped().as_bytes());
    }
}

fn put_base64(out: &mut impl bytes::BufMut, bytes: &[u8]) {
    out.put_slice(URL_SAFE_NO_PAD.encode(bytes).as_bytes());
}

fn get_base64(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_comes_back_to_its_issuer_and_to_nobody_else() {
        for seal in ["", "a", "ab", "abc", "EqQB\\/+==", "ünï\\n\\\"", &"x".repeat(1000)] {
            let sealed = Sealed { issuer: "anthropic", text: JsonStr::from_escaped(seal) };
            let mut envelope = Vec::new();
            sealed.write(&mut envelope);
            let envelope = String::from_utf8(envelope).unwrap();
            let read = Seal::read(JsonStr::from_escaped(&envelope)).unwrap();
            assert_eq!(read.for_issuer("anthropic").map(JsonStr::escaped), Some(seal));
            assert_eq!(read.for_issuer("google"), None);

            let mut id = b"call_1".to_vec();
            Carried::write(sealed, &mut id);
            let id = String::from_utf8(id).unwrap();
            assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            let carried = Carried::read(JsonStr::from_escaped(&id));
            assert_eq!(carried.id.escaped(), "call_1");
            assert_eq!(carried.seal.unwrap().for_issuer("anthropic").map(JsonStr::escaped), Some(seal));
        }
    }

    #[test]
    fn what_is_no_envelope_is_left_alone() {
        let bare = Seal::read(JsonStr::from_escaped("EqQB/+==")).unwrap();
        assert_eq!((bare.issuer, &*bare.text), (None, "EqQB/+=="));
        for id in ["call_1", "call__gw1__", "toolu_01__gw1__x", "a__gw1__x__***"] {
            assert_eq!(
                Carried::read(JsonStr::from_escaped(id)),
                Carried { id: JsonStr::from_escaped(id), seal: None }
            );
        }
        // A quote that would end the string it is pasted into, and escapes that there are not.
        for inside in ["a\",\"b\":\"", "\\A", "\\u12x4", "a\\", "\n"] {
            let mut forged = b"gw1.x.".to_vec();
            put_base64(&mut forged, inside.as_bytes());
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(Seal::read(JsonStr::from_escaped(&forged)).unwrap().issuer, None, "{inside:?}");
        }
    }
}
