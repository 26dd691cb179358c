//! Fingerprints of turns by their history: for calls without ids, and for texts that occur more than once. Clients of
//! the generate format may send back only the names and arguments of a turn's calls (LangChain does), and agents repeat
//! the same call. Such a turn is identified by its own content together with everything before it, which clients repeat
//! unchanged.

use sha2::{Digest as _, Sha256};

use super::keepsake::{SignatureKey, add_words, key};
use crate::canonical::{Block, Input, Role, Turn};
use json::{Cursor, JsonError, ValueKind};

/// Running hash of the turns of a conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryHash {
    hash: Sha256,
    role: Option<Role>,
}

impl HistoryHash {
    /// Returns the hash of these turns.
    pub(super) fn of(turns: &[Turn<'_>]) -> [u8; 32] {
        let mut before = HistoryHash::default();
        before.add_turns(turns);
        before.here()
    }

    /// Hashes the next turns.
    pub(super) fn add_turns(&mut self, turns: &[Turn<'_>]) {
        // Instructions are left out, because they may contain the current time.
        for turn in turns.iter().filter(|turn| !turn.role.is_system()) {
            // Only a change of role counts: clients split and merge adjacent turns of one role.
            if self.role.replace(turn.role) != Some(turn.role) {
                self.hash.update(if turn.role == Role::User { b"\0user" } else { b"\0mode" });
            }
            turn.blocks.iter().for_each(|block| self.block(block));
        }
    }

    fn block(&mut self, block: &Block<'_>) {
        match block {
            Block::Text { text, .. } | Block::Refusal { text } => {
                add_words(&mut self.hash, *text);
            }
            Block::ToolUse { name, input, .. } => {
                self.hash.update(b"\0call");
                self.hash.update(name.decode().as_bytes());
                add_input(&mut self.hash, input);
            }
            Block::ToolResult { content, object, .. } => {
                self.hash.update(b"\0resu");
                if let Some(object) = object {
                    add_json(&mut self.hash, object.raw().text());
                }
                content.iter().for_each(|block| self.block(block));
            }
            // Reasoning may not come back, and hashing media would be slow.
            _ => {}
        }
    }

    /// Returns the hash of the turns so far.
    pub(super) fn here(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

/// Returns the key of a turn with these calls, in order.
pub(super) fn key_of_calls<'t>(
    issuer: &str,
    before: &[u8; 32],
    arguments: impl Iterator<Item = HashedArguments<'t>>,
) -> SignatureKey {
    key(issuer, "bare", |hash| {
        hash.update(before);
        for arguments in arguments {
            hash.update(b"\0call");
            match arguments {
                HashedArguments::Plain(text) => add_json(hash, text),
                HashedArguments::Said(input) => add_input(hash, input),
            }
        }
    })
}

/// Returns the key of a turn without calls from the hash of its words; the history separates turns with the same text.
pub(super) fn key_of_text(issuer: &str, before: &[u8; 32], words: Sha256) -> SignatureKey {
    key(issuer, "said", |hash| {
        hash.update(before);
        hash.update(words.finalize());
    })
}

/// Arguments of a call.
pub(super) enum HashedArguments<'t> {
    /// JSON text.
    Plain(&'t str),
    /// Input as the client sent it.
    Said(&'t Input<'t>),
}

fn add_input(hash: &mut Sha256, input: &Input<'_>) {
    match input {
        Input::Object(object) => add_json(hash, object.text()),
        Input::Text(text) => add_json(hash, &text.decode()),
    }
}

/// Hashes a JSON document by meaning, with members sorted and numbers normalized, because clients parse and
/// re-serialize arguments.
fn add_json(hash: &mut Sha256, text: &str) {
    let text = if text.trim().is_empty() { "{}" } else { text };
    match meaning(&mut Cursor::new(text), 0) {
        Ok(meaning) => hash.update(meaning),
        Err(_) => hash.update(text.as_bytes()),
    }
}

/// Nesting depth that is read by meaning; a deeper value counts as its text. Arguments are text inside a JSON string,
/// so the scan of the body does not limit their depth, and each level takes stack.
const MAX_DEPTH: u32 = 64;

fn meaning(json: &mut Cursor<'_>, depth: u32) -> Result<[u8; 32], JsonError> {
    let mut hash = Sha256::new();
    match json.kind()? {
        ValueKind::Object | ValueKind::Array if depth > MAX_DEPTH => {
            hash.update(json.raw()?.text().as_bytes())
        }
        ValueKind::Object => {
            let mut members = Vec::new();
            json.begin_object()?;
            while let Some(key) = json.next_key()? {
                members.push((key.decode(), meaning(json, depth + 1)?));
            }
            members.sort();
            hash.update(b"{");
            for (name, value) in members {
                // The length separates name and value. Two different objects could otherwise have the same bytes.
                hash.update((name.len() as u64).to_le_bytes());
                hash.update(name.as_bytes());
                hash.update(value);
            }
        }
        ValueKind::Array => {
            hash.update(b"[");
            json.begin_array()?;
            while json.next_element()? {
                hash.update(meaning(json, depth + 1)?);
            }
        }
        ValueKind::String => {
            hash.update(b"\"");
            hash.update(json.string()?.decode().as_bytes());
        }
        ValueKind::Number => {
            let number = json.raw()?;
            hash.update(b"0");
            match number.text().parse::<f64>() {
                // Clients that use protocol buffers send all numbers as doubles.
                // `+ 0.0` makes a negative zero positive: the two are equal, but their bits differ.
                Ok(number) => hash.update((number + 0.0).to_bits().to_le_bytes()),
                Err(_) => hash.update(number.text().as_bytes()),
            }
        }
        ValueKind::Bool | ValueKind::Null => hash.update(json.raw()?.text().as_bytes()),
    }
    Ok(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use json::{JsonStr, RawJson};

    fn of(arguments: &str) -> SignatureKey {
        key_of_calls("p", &[0; 32], std::iter::once(HashedArguments::Plain(arguments)))
    }

    #[test]
    fn arguments_nested_deeply_are_known_by_their_text() {
        let endless = r#"{"a":"#.repeat(1_000_000);
        assert_eq!(of(&endless), of(&endless));
        assert_ne!(of(&endless), of("{}"));
        let nested = |inner: &str| format!("{}{inner}{}", r#"{"a":"#.repeat(300), "}".repeat(300));
        assert_eq!(of(&nested("1")), of(&nested("1")));
        assert_ne!(of(&nested("1")), of(&nested("2")));
    }

    #[test]
    fn fingerprint_depends_on_the_meaning_of_arguments() {
        let one = of(r#"{"a":1,"b":["x\u00e9",null,true],"c":{"d":-0.5}}"#);
        for same in [
            "{ \"c\": {\"d\": -5e-1}, \"b\": [\"x\u{e9}\", null, true], \"a\": 1.0 }",
            r#"{"b":["xé",null,true],"c":{"d":-0.50},"a":1}"#,
        ] {
            assert_eq!(of(same), one, "{same}");
        }
        for other in [r#"{"a":1}"#, r#"{"a":2,"b":["x\u00e9",null,true],"c":{"d":-0.5}}"#, "{}", "[]", "x"] {
            assert_ne!(of(other), one, "{other}");
        }
        assert_eq!(of(""), of("{}"));
        let said = Input::Text(JsonStr::from_escaped(r#"{\"a\": 1}"#));
        let object = Input::Object(RawJson::from_text(r#"{"a":1.0}"#));
        let key = |input| key_of_calls("p", &[0; 32], std::iter::once(HashedArguments::Said(input)));
        assert_eq!(key(&said), key(&object));
        assert_eq!(key(&said), of(r#"{"a":1}"#));
    }
}
