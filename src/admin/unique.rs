//! Members that are twice in a body: which one counts is left open by RFC 8259 (section 4), so that what one program checks is
//! not what another one does.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// JSON value of which no object has a member twice. It holds nothing.
struct Unique;

/// Returns the name of the first member that is twice in an object of a JSON text. `None` if there is none.
pub(super) fn repeated_member(json: &[u8]) -> Option<String> {
    let error = serde_json::from_slice::<Unique>(json).err()?.to_string();
    let (_, named) = error.split_once(MARK)?;
    let (name, _) = named.rsplit_once(MARK)?;
    Some(name.to_owned())
}

/// Mark around a name in the text of an error, which no JSON text has.
const MARK: char = '\u{0}';

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Unique, A::Error> {
        while list.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if seen.contains(&name) {
                return Err(A::Error::custom(format!("{MARK}{name}{MARK}")));
            }
            seen.insert(name);
            members.next_value::<Unique>()?;
        }
        Ok(Unique)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_that_is_twice_in_an_object_is_found() {
        for (json, name) in [
            (r#"{"a":1,"b":{"a":2},"c":[{"a":1},{"a":2}]}"#, None),
            (r#"{"a":1,"a":1}"#, Some("a")),
            (r#"{"a":1,"\u0061":1}"#, Some("a")),
            (r#"{"x":[{"b":null,"c":1.5,"b":true}]}"#, Some("b")),
            (r#"{"":1,"":2}"#, Some("")),
            ("[]", None),
            ("{", None),
        ] {
            assert_eq!(repeated_member(json.as_bytes()).as_deref(), name, "{json}");
        }
    }
}
