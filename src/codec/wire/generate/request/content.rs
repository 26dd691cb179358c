//! Decoder of `contents`: turns and their parts.

use super::calls::ConversationCalls;
use super::read::{ReadFault, list, object, string, wrong};
use super::turns::is_video_page;
use crate::canonical::content::TYPICAL_TURNS;
use crate::canonical::{Block, Input, MediaSource, ProviderSignature, ResultObject, Role, ToolKind, Turn};
use crate::wire::generate::signature;
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Conversation decoder.
#[derive(Default)]
pub(super) struct Reader<'a> {
    pub(super) turns: Vec<Turn<'a>>,
    calls: ConversationCalls<'a>,
    /// The `videoMetadata` of each video; `None` for a video without it.
    pub(super) videos: Vec<Option<RawJson<'a>>>,
    /// Current position, for errors: index of the content and of the part.
    at: (usize, usize),
    /// Number of tool results around the part that is being read.
    depth: u32,
}

/// Tool results within each other that are read: their parts are files, so real ones have one level. A part of an
/// unknown kind is scanned once more at each level.
const MAX_DEPTH: u32 = 4;

impl<'a> Reader<'a> {
    /// Reads `contents`: an array, or one content.
    pub(super) fn contents(&mut self, json: &mut Cursor<'a>) -> Result<(), ReadFault> {
        self.turns.reserve(TYPICAL_TURNS);
        list(
            json,
            || "contents".to_owned(),
            |number, json| {
                self.at = (number, 0);
                self.content(json)
            },
        )
    }

    fn path(&self, member: &str) -> String {
        path(self.at, member)
    }

    fn content(&mut self, json: &mut Cursor<'a>) -> Result<(), ReadFault> {
        let number = self.at.0;
        let role = role_ahead(json.clone(), number)?;
        let goes_on = self.turns.last().is_some_and(|turn| turn.role == Role::Assistant);
        // Consecutive model contents are one turn: results may answer the calls of all of them.
        if role == Role::Assistant && !goes_on {
            self.calls.start_turn();
        }
        let mut blocks = Vec::new();
        object(
            json,
            || format!("contents[{number}]"),
            |key, _, json| match key {
                "parts" => list(
                    json,
                    || format!("contents[{number}].parts"),
                    |part, json| {
                        self.at.1 = part;
                        self.part(json, &mut blocks)
                    },
                ),
                // Some client libraries send a part in place of a content.
                "text" => {
                    blocks.extend(text_blocks(string(json, || format!("contents[{number}].text"))?));
                    Ok(())
                }
                _ => Ok(json.skip()?),
            },
        )?;
        if role == Role::User && blocks.is_empty() {
            return Err(wrong(format!("contents[{number}].parts"), "must not be empty"));
        }
        if role == Role::Assistant && goes_on {
            self.join_thoughts(&mut blocks);
            // All of its thoughts belong to the preceding turn.
            if blocks.is_empty() {
                return Ok(());
            }
        }
        self.turns.push(Turn::new(role, blocks));
        Ok(())
    }

    /// Joins thoughts with those of the preceding turn. Clients that store each frame of a stream as a content
    /// separate a thought from its signature.
    fn join_thoughts(&mut self, blocks: &mut Vec<Block<'a>>) {
        let Some(before) = self.turns.last_mut() else { return };
        let is_thought = |block: Option<&Block<'_>>| matches!(block, Some(Block::Reasoning { .. }));
        while is_thought(blocks.first()) && is_thought(before.blocks.last()) {
            let thought = blocks.remove(0);
            if let Some(thought) = join(&mut before.blocks, thought) {
                blocks.insert(0, thought);
                return;
            }
        }
    }

    /// Reads a part and appends its block to `blocks`.
    pub(super) fn part(
        &mut self,
        json: &mut Cursor<'a>,
        blocks: &mut Vec<Block<'a>>,
    ) -> Result<(), ReadFault> {
        let mut whole = json.clone();
        let mut part = Part::default();
        let at = self.at;
        object(
            json,
            || path(at, ""),
            |key, name, json| {
                match key {
                    "text" => part.text = Some(string(json, || self.path(".text"))?),
                    "thought" => {
                        let said = json.raw()?.as_bool();
                        let must = || wrong(self.path(".thought"), "must be true or false");
                        part.thought = said.ok_or_else(must)?;
                    }
                    "thoughtSignature" => {
                        let read = signature::read(string(json, || self.path(".thoughtSignature"))?);
                        (part.seal, part.hidden) =
                            read.map_or((None, false), |(seal, hidden)| (Some(seal), hidden));
                    }
                    "inlineData" => part.block = Some(self.media(json, ".inlineData")?),
                    "fileData" => part.block = Some(self.media(json, ".fileData")?),
                    "functionCall" => part.block = Some(self.call(json)?),
                    "functionResponse" => part.block = Some(self.response(json)?),
                    "videoMetadata" => part.video = Some(json.raw()?),
                    "mediaResolution" => part.detail = detail_of(json.raw()?)?,
                    "partMetadata" => json.skip()?,
                    _ => {
                        if json.kind()? == ValueKind::Object {
                            part.block = Some(Block::Opaque { name, raw: RawJson::NULL });
                        }
                        json.skip()?;
                    }
                }
                Ok(())
            },
        )?;
        if let Some(Block::Opaque { raw, .. }) = &mut part.block {
            *raw = whole.raw()?;
        }
        self.add(part, blocks);
        Ok(())
    }

    fn add(&mut self, part: Part<'a>, blocks: &mut Vec<Block<'a>>) {
        let Part { text, thought, hidden, seal, block, video, detail } = part;
        let mut block = match (block, text) {
            (Some(block), _) => block,
            (None, text) if thought => {
                if text.is_none() && seal.is_none() {
                    return;
                }
                // A thought without a text is hidden as well.
                let hidden = text.is_none() || (hidden && text.is_some_and(JsonStr::is_empty));
                let text = text.into_iter().filter(|text| !text.is_empty()).collect();
                let thought = Block::Reasoning { text, signature: seal, hidden };
                let thought = join(blocks, thought);
                blocks.extend(thought);
                return;
            }
            (None, text) => {
                if text.is_some() || seal.is_some() {
                    blocks.push(Block::Text { text: text.unwrap_or_default(), cache: None, signature: seal });
                }
                return;
            }
        };
        match &mut block {
            Block::ToolUse { signature: slot, .. } => *slot = seal,
            Block::Image { signature: slot, detail: closeness, .. } => (*slot, *closeness) = (seal, detail),
            // One entry per video, also without metadata: the encoder matches them by order.
            Block::Video { .. } => self.videos.push(video),
            _ => {}
        }
        blocks.push(block);
    }

    /// Reads `inlineData` or `fileData`.
    fn media(&self, json: &mut Cursor<'a>, member: &str) -> Result<Block<'a>, ReadFault> {
        let (mut mime, mut name) = (JsonStr::default(), JsonStr::default());
        let (mut data, mut uri) = (None, None);
        object(
            json,
            || self.path(member),
            |key, _, json| {
                match key {
                    "mimeType" => mime = string(json, || self.path(&format!("{member}.mimeType")))?,
                    "data" => data = Some(string(json, || self.path(&format!("{member}.data")))?),
                    "fileUri" => uri = Some(string(json, || self.path(&format!("{member}.fileUri")))?),
                    "displayName" => name = string(json, || self.path(&format!("{member}.displayName")))?,
                    _ => json.skip()?,
                }
                Ok(())
            },
        )?;
        let source = match (data, uri) {
            (Some(data), _) => MediaSource::Base64 { mime, data },
            (None, Some(uri)) => file_source(uri, mime),
            (None, None) if member == ".inlineData" => {
                return Err(wrong(self.path(".inlineData.data"), "is missing"));
            }
            (None, None) => return Err(wrong(self.path(".fileData.fileUri"), "is missing")),
        };
        Ok(media_block(source, mime, name))
    }

    fn call(&mut self, json: &mut Cursor<'a>) -> Result<Block<'a>, ReadFault> {
        let (mut id, mut name) = (JsonStr::default(), JsonStr::default());
        let mut input = Input::Object(RawJson::from_text("{}"));
        let at = self.at;
        let path = |member: &str| path(at, &format!(".functionCall{member}"));
        object(
            json,
            || path(""),
            |key, _, json| {
                match key {
                    "id" => id = string(json, || path(".id"))?,
                    "name" => name = string(json, || path(".name"))?,
                    "args" => {
                        let args = json.raw()?;
                        input = match (args.text().as_bytes().first(), args.as_str()) {
                            (Some(b'{'), _) => Input::Object(args),
                            (_, Some(text)) => Input::Text(text),
                            _ => return Err(wrong(path(".args"), "must be an object")),
                        };
                    }
                    _ => json.skip()?,
                }
                Ok(())
            },
        )?;
        if name.is_empty() {
            return Err(wrong(path(".name"), "is missing"));
        }
        let id = self.calls.call(id, name)?;
        let kind = ToolKind::Function;
        Ok(Block::ToolUse {
            id,
            name,
            input,
            kind,
            namespace: JsonStr::default(),
            signature: None,
            cache: None,
        })
    }

    fn response(&mut self, json: &mut Cursor<'a>) -> Result<Block<'a>, ReadFault> {
        let (mut id, mut name) = (JsonStr::default(), JsonStr::default());
        let (mut text, mut content) = (None, Vec::new());
        let (mut object_value, mut error) = (None, false);
        let at = self.at;
        let path = |member: &str| path(at, &format!(".functionResponse{member}"));
        object(
            json,
            || path(""),
            |key, _, json| {
                match key {
                    "id" => id = string(json, || path(".id"))?,
                    "name" => name = string(json, || path(".name"))?,
                    "response" if json.kind()? == ValueKind::String => text = text_blocks(json.string()?),
                    "response" => {
                        let response = ResultObject::read(json)?;
                        (object_value, error) = (Some(response), response.reports_error());
                    }
                    "parts" => {
                        if self.depth >= MAX_DEPTH {
                            return Err(wrong(path(".parts"), "is nested too deeply"));
                        }
                        self.depth += 1;
                        list(json, || path(".parts"), |_, json| self.part(json, &mut content))?;
                        self.depth -= 1;
                    }
                    _ => json.skip()?,
                }
                Ok(())
            },
        )?;
        // `parts` may precede `response`; the text comes first nevertheless.
        content.splice(0..0, text).for_each(drop);
        let (id, name) = self.calls.result(id, name)?;
        if name.is_empty() {
            return Err(wrong(path(".name"), "is missing"));
        }
        let kind = ToolKind::Function;
        Ok(Block::ToolResult { id, name, content, object: object_value, error, kind, cache: None })
    }
}

/// Part that is being read.
#[derive(Default)]
struct Part<'a> {
    text: Option<JsonStr<'a>>,
    thought: bool,
    /// Whether its signature is that of hidden reasoning.
    hidden: bool,
    seal: Option<ProviderSignature<'a>>,
    block: Option<Block<'a>>,
    video: Option<RawJson<'a>>,
    detail: JsonStr<'a>,
}

/// Joins a thought with the preceding one, which continues until it is signed. Returns the thought if it is a
/// separate one.
fn join<'a>(blocks: &mut [Block<'a>], thought: Block<'a>) -> Option<Block<'a>> {
    match (blocks.last_mut(), thought) {
        (
            Some(Block::Reasoning { text, signature: slot @ None, hidden: false }),
            Block::Reasoning { text: more, signature: seal, hidden: false },
        ) => {
            text.extend(more);
            *slot = seal;
            None
        }
        (_, thought) => Some(thought),
    }
}

/// Returns the path of a field, for errors: index of the content, index of the part, member.
fn path((content, part): (usize, usize), member: &str) -> String {
    format!("contents[{content}].parts[{part}]{member}")
}

/// Reads the role of a content ahead of its other members: its parts need it, and may precede it.
fn role_ahead(mut json: Cursor<'_>, number: usize) -> Result<Role, ReadFault> {
    if json.kind()? != ValueKind::Object {
        return Err(wrong(format!("contents[{number}]"), "must be an object"));
    }
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if key.escaped() != "role" || json.kind()? == ValueKind::Null {
            json.skip()?;
            continue;
        }
        let must = || wrong(format!("contents[{number}].role"), "must be \"user\" or \"model\"");
        return role_of(json.raw()?).ok_or_else(must);
    }
    Ok(Role::User)
}

fn text_blocks(text: JsonStr<'_>) -> Option<Block<'_>> {
    (!text.is_empty()).then(|| Block::text(text))
}

fn role_of(value: RawJson<'_>) -> Option<Role> {
    Some(match value.as_str()?.escaped() {
        // Some clients send an absent role as an empty string.
        "user" | "" => Role::User,
        "model" | "assistant" => Role::Assistant,
        "function" | "tool" => Role::User,
        "system" => Role::System,
        _ => return None,
    })
}

/// Reads the resolution of an image: `{"level":"MEDIA_RESOLUTION_LOW"}`.
fn detail_of(value: RawJson<'_>) -> Result<JsonStr<'_>, ReadFault> {
    let mut level = value.as_str().unwrap_or_default();
    if value.text().starts_with('{') {
        object(&mut Cursor::new(value.text()), String::new, |key, _, json| {
            match key {
                "level" => level = json.raw()?.as_str().unwrap_or_default(),
                _ => json.skip()?,
            }
            Ok(())
        })?;
    }
    Ok(JsonStr::from_escaped(match level.escaped() {
        "MEDIA_RESOLUTION_LOW" => "low",
        "MEDIA_RESOLUTION_HIGH" => "high",
        "MEDIA_RESOLUTION_ULTRA_HIGH" => "original",
        _ => "",
    }))
}

/// Returns the source of a file. A file that was uploaded to the provider has a URI that only this provider can read.
fn file_source<'a>(uri: JsonStr<'a>, mime: JsonStr<'a>) -> MediaSource<'a> {
    let plain = uri.decode();
    if plain.starts_with("files/") || plain.contains("generativelanguage.googleapis.com/") {
        MediaSource::Id { id: uri }
    } else {
        MediaSource::Url { url: uri, mime }
    }
}

fn media_block<'a>(source: MediaSource<'a>, mime: JsonStr<'a>, name: JsonStr<'a>) -> Block<'a> {
    let plain = mime.decode();
    let kind = match source {
        // The provider fetches these videos itself, and clients need not give their type.
        MediaSource::Url { url, .. } if plain.is_empty() && is_video_page(url) => "video",
        _ => plain.split('/').next().unwrap_or_default(),
    };
    match kind {
        "image" => Block::Image { source, detail: JsonStr::default(), cache: None, signature: None },
        "audio" => Block::Audio { source },
        "video" => Block::Video { source },
        _ => Block::File { source, name, cache: None },
    }
}
