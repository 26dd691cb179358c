//! Fingerprints of the sections of a prompt, of a body that is not decoded.
//!
//! Cache marks are no part of a prompt, and clients move them from turn to turn. A text that is a string in one request
//! and a list of one text block in the next is the same prompt. Neither changes a fingerprint.

use super::Api;
use super::fields::{CONTENT, chat, converse, generate, messages, responses};
use super::prompt::Fingerprint;
use super::request::Body;
use crate::canonical::prompt_sections::{MAX_TURNS, PromptSections};
use crate::wire::watch::named_members;
use json::{Cursor, JsonError, RawJson, ValueKind};

/// Deepest value that is read. Deeper ones are hashed as they are written.
const MAX_DEPTH: usize = 64;

impl Body {
    /// Returns the fingerprints of the prompt. Sections that the body does not have are 0.
    pub fn prompt_sections(&self, fingerprint: Fingerprint) -> PromptSections {
        let (tools, instructions): (&[usize], &[usize]) = match self.api {
            Api::Messages => (&[messages::TOOLS], &[messages::SYSTEM]),
            Api::Responses => (&[responses::TOOLS], &[responses::INSTRUCTIONS]),
            Api::Generate => (&[generate::TOOLS], &generate::SYSTEM_INSTRUCTION),
            Api::Converse => (&[converse::TOOL_CONFIG], &[converse::SYSTEM]),
            _ => (&[chat::TOOLS], &[]),
        };
        let hash = |indexes: &[usize]| {
            let members = indexes.iter().filter_map(|index| self.member(*index));
            members
                .fold(0, |hash, member| hash_text(&self.text.view(member.value.clone()), hash, fingerprint))
        };
        let mut sections =
            PromptSections { tools: hash(tools), instructions: hash(instructions), turns: Vec::new() };
        if let Some(content) = self.member(CONTENT) {
            let text = self.text.view(content.value.clone());
            // The body is valid JSON. What cannot be read leaves the turns before it.
            let _ = read_turns(&text, fingerprint, &mut sections);
        }
        sections
    }
}

fn read_turns(text: &str, fingerprint: Fingerprint, sections: &mut PromptSections) -> Result<(), JsonError> {
    let mut json = Cursor::new(text);
    let shorten = |hash: u64| u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(0);
    if json.kind()? != ValueKind::Array {
        sections.turns.push(shorten(hash_text(text, 0, fingerprint)));
        return Ok(());
    }
    json.begin_array()?;
    while json.next_element()? && sections.turns.len() < MAX_TURNS {
        let turn = json.raw()?;
        if sections.turns.is_empty() && is_instruction(turn) {
            sections.instructions = hash_text(turn.text(), sections.instructions, fingerprint);
        } else {
            sections.turns.push(shorten(hash_text(turn.text(), 0, fingerprint)));
        }
    }
    Ok(())
}

fn is_instruction(turn: RawJson<'_>) -> bool {
    let role = named_members(turn, ["role"]).ok().and_then(|[role]| role).and_then(RawJson::as_str);
    role.is_some_and(|role| role.is("system") || role.is("developer"))
}

fn hash_text(text: &str, seed: u64, fingerprint: Fingerprint) -> u64 {
    let mut hash = seed;
    match hash_value(&mut Cursor::new(text), fingerprint, &mut hash, 0) {
        Ok(()) => hash,
        Err(_) => fingerprint(seed, text.as_bytes()),
    }
}

/// Adds a value to a hash.
fn hash_value(
    json: &mut Cursor<'_>,
    fingerprint: Fingerprint,
    hash: &mut u64,
    depth: usize,
) -> Result<(), JsonError> {
    match json.kind()? {
        ValueKind::Object if depth < MAX_DEPTH => {
            json.begin_object()?;
            while let Some(name) = json.next_key()? {
                if name.is("cache_control") || name.is("cachePoint") {
                    json.skip()?;
                } else if name.is("type") {
                    let kind = json.raw()?;
                    // A string is the short form of a block of this type.
                    if !kind.as_str().is_some_and(|kind| kind.escaped().ends_with("text")) {
                        *hash = fingerprint(*hash, kind.text().as_bytes());
                    }
                } else {
                    if !name.is("text") {
                        *hash = fingerprint(*hash, name.escaped().as_bytes());
                    }
                    hash_value(json, fingerprint, hash, depth + 1)?;
                }
            }
        }
        ValueKind::Array if depth < MAX_DEPTH => {
            json.begin_array()?;
            while json.next_element()? {
                hash_value(json, fingerprint, hash, depth + 1)?;
            }
        }
        _ => *hash = fingerprint(*hash, json.raw()?.text().as_bytes()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::request::BodyReader;

    fn fingerprint(seed: u64, text: &[u8]) -> u64 {
        text.iter().fold(seed ^ 7, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }

    fn of(api: Api, members: &str) -> PromptSections {
        let text = format!(r#"{{"model":"m","max_tokens":9,{members}}}"#);
        let mut whole = None;
        for piece in [3, 1_000] {
            let mut reader = BodyReader::new(api, false);
            for piece in text.as_bytes().chunks(piece) {
                reader.push(Bytes::copy_from_slice(piece)).unwrap();
            }
            let sections = reader.finish().unwrap().prompt_sections(fingerprint);
            assert_eq!(*whole.get_or_insert(sections.clone()), sections);
        }
        whole.unwrap()
    }

    const CHANGES: [(&str, Option<&str>); 4] =
        [("", None), ("tools", Some("tools")), ("system", Some("instructions")), ("second", Some("turn 2"))];

    /// Checks that a change of each section of a body is found; `with` makes the members with three texts.
    fn finds_changes(api: Api, with: impl Fn(&str, &str, &str) -> String) {
        let before = of(api, &with("f", "Be brief.", "two"));
        for (changed, expected) in CHANGES {
            let pick = |name, text| if changed == name { "changed" } else { text };
            let now = of(api, &with(pick("tools", "f"), pick("system", "Be brief."), pick("second", "two")));
            let found = now.first_change(&before).map(|section| section.to_string());
            assert_eq!(found.as_deref(), expected, "{api} {changed}");
        }
    }

    #[test]
    fn prompt_section_that_changed_is_found_in_every_format() {
        finds_changes(Api::Messages, |tool, system, second| {
            format!(
                r#""tools":[{{"name":"{tool}"}}],"system":"{system}","messages":[{{"role":"user","content":"one"}},{{"role":"assistant","content":"{second}"}},{{"role":"user","content":"three"}}]"#
            )
        });
        finds_changes(Api::Chat, |tool, system, second| {
            format!(
                r#""tools":[{{"function":{{"name":"{tool}"}}}}],"messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"one"}},{{"role":"assistant","content":"{second}"}}]"#
            )
        });
        finds_changes(Api::Responses, |tool, system, second| {
            format!(
                r#""tools":[{{"name":"{tool}"}}],"instructions":"{system}","input":[{{"role":"user","content":"one"}},{{"type":"function_call","name":"{second}"}}]"#
            )
        });
        finds_changes(Api::Generate, |tool, system, second| {
            format!(
                r#""tools":[{{"name":"{tool}"}}],"systemInstruction":{{"parts":[{{"text":"{system}"}}]}},"contents":[{{"role":"user","parts":[{{"text":"one"}}]}},{{"role":"model","parts":[{{"text":"{second}"}}]}}]"#
            )
        });
        finds_changes(Api::Converse, |tool, system, second| {
            format!(
                r#""toolConfig":{{"tools":[{{"toolSpec":{{"name":"{tool}"}}}}]}},"system":[{{"text":"{system}"}}],"messages":[{{"role":"user","content":[{{"text":"one"}}]}},{{"role":"assistant","content":[{{"text":"{second}"}}]}}]"#
            )
        });
    }

    #[test]
    fn prompt_sections_ignore_cache_marks_and_short_forms() {
        let mark = r#","cache_control":{"type":"ephemeral"}"#;
        let messages = |first: &str, mark: &str| {
            format!(
                r#""system":[{{"type":"text","text":"s"{mark}}}],"messages":[{{"role":"user","content":{first}}}]"#
            )
        };
        let plain = of(Api::Messages, &messages(r#""one""#, ""));
        let marked = format!(r#"[{{"type":"text","text":"one"{mark}}}]"#);
        assert_eq!(of(Api::Messages, &messages(&marked, mark)), plain);
        assert_ne!(of(Api::Messages, &messages(r#""two""#, "")), plain);
        let converse = |point: &str| {
            format!(
                r#""system":[{{"text":"s"}}{point}],"messages":[{{"role":"user","content":[{{"text":"one"}}]}}]"#
            )
        };
        let point = r#",{"cachePoint":{"type":"default"}}"#;
        assert_eq!(of(Api::Converse, &converse(point)), of(Api::Converse, &converse("")));
    }

    #[test]
    fn prompt_sections_are_bounded() {
        let turns = vec![r#"{"role":"user","content":"x"}"#; 2 * MAX_TURNS].join(",");
        assert_eq!(of(Api::Messages, &format!(r#""messages":[{turns}]"#)).turns.len(), MAX_TURNS);
        let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
        assert_ne!(
            of(Api::Messages, &format!(r#""messages":[{{"x":{deep}}}]"#)),
            of(Api::Messages, r#""messages":[{"x":1}]"#)
        );
    }
}
