//! Turns that are known by what was said before them: calls without ids, and words that were said more than once. Clients
//! of the generate format may send back nothing of a turn but its calls' names and arguments (LangChain does), and agents
//! make the same call many times. Such a turn is known by its own content and by all that was said before it, which its
//! client repeats as it had it.

use sha2::{Digest as _, Sha256};

use super::keepsake::{Key, add_words, key};
use crate::canonical::{Block, Input, Role, Turn};
use crate::json::{Cursor, JsonError, Kind};

/// What stands for the turns of a conversation up to some point.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryHash {
    hash: Sha256,
    role: Option<Role>,
}

impl HistoryHash {
    /// What stands for these turns, all of them.
    pub(super) fn of(turns: &[Turn<'_>]) -> [u8; 32] {
        let mut before = HistoryHash::default();
        before.hear(turns);
        before.here()
    }

    /// Takes the next turns.
    pub(super) fn hear(&mut self, turns: &[Turn<'_>]) {
        // Instructions may hold the time.
        for turn in turns.iter().filter(|turn| !turn.role.is_system()) {
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
                    add_json(&mut self.hash, object.text());
                }
                content.iter().for_each(|block| self.block(block));
            }
            // Reasoning may not come back, and media are many bytes.
            _ => {}
        }
    }

    /// What stands for the turns so far.
    pub(super) fn here(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

/// The key of a turn with these calls, in their order.
pub(super) fn key_of_calls<'t>(
    issuer: &str,
    before: &[u8; 32],
    arguments: impl Iterator<Item = Arguments<'t>>,
) -> Key {
    key(issuer, "bare", |hash| {
        hash.update(before);
        for arguments in arguments {
            hash.update(b"\0call");
            match arguments {
                Arguments::Plain(text) => add_json(hash, text),
                Arguments::Said(input) => add_input(hash, input),
            }
        }
    })
}

/// The key of a turn without calls, given its words: several turns may say the same.
pub(super) fn key_of_text(issuer: &str, before: &[u8; 32], words: Sha256) -> Key {
    key(issuer, "said", |hash| {
        hash.update(before);
        hash.update(words.finalize());
    })
}

/// The arguments of a call.
pub(super) enum Arguments<'t> {
    /// As JSON text.
    Plain(&'t str),
    /// As a client says them.
    Said(&'t Input<'t>),
}

fn add_input(hash: &mut Sha256, input: &Input<'_>) {
    match input {
        Input::Object(object) => add_json(hash, object.text()),
        Input::Text(text) => add_json(hash, &text.decode()),
    }
}

/// Takes a document by its meaning: members in the order of their names, numbers as numbers. Clients write anew what they
/// have read.
fn add_json(hash: &mut Sha256, text: &str) {
    let text = if text.trim().is_empty() { "{}" } else { text };
    match meaning(&mut Cursor::new(text)) {
        Ok(meaning) => hash.update(meaning),
        Err(_) => hash.update(text.as_bytes()),
    }
}

fn meaning(json: &mut Cursor<'_>) -> Result<[u8; 32], JsonError> {
    let mut hash = Sha256::new();
    match json.kind()? {
        Kind::Object => {
            let mut members = Vec::new();
            json.begin_object()?;
            while let Some(key) = json.next_key()? {
                members.push((key.decode(), meaning(json)?));
            }
            members.sort();
            hash.update(b"{");
            for (name, value) in members {
                hash.update((name.len() as u64).to_le_bytes());
                hash.update(name.as_bytes());
                hash.update(value);
            }
        }
        Kind::Array => {
            hash.update(b"[");
            json.begin_array()?;
            while json.next_element()? {
                hash.update(meaning(json)?);
            }
        }
        Kind::String => {
            hash.update(b"\"");
            hash.update(json.string()?.decode().as_bytes());
        }
        Kind::Number => {
            let number = json.raw()?;
            hash.update(b"0");
            match number.text().parse::<f64>() {
                // Protocol buffers know one kind of number.
                Ok(number) => hash.update((number + 0.0).to_bits().to_le_bytes()),
                Err(_) => hash.update(number.text().as_bytes()),
            }
        }
        Kind::Bool | Kind::Null => hash.update(json.raw()?.text().as_bytes()),
    }
    Ok(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{JsonStr, RawJson};

    fn of(arguments: &str) -> Key {
        key_of_calls("p", &[0; 32], std::iter::once(Arguments::Plain(arguments)))
    }

    #[test]
    fn arguments_are_known_by_their_meaning() {
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
        let key = |input| key_of_calls("p", &[0; 32], std::iter::once(Arguments::Said(input)));
        assert_eq!(key(&said), key(&object));
        assert_eq!(key(&said), of(r#"{"a":1}"#));
    }
}
