//! Token-relevant parts of a request.

use super::TokenizerFamily;
use super::media;
use super::text::{self, TextPiece};
use crate::canonical::{Block, Input, MediaSource, OutputFormat, Request, Role};
use json::{JsonStr, RawJson};

/// Parts of a request by kind. Texts are tokenized later, when the model family is known.
#[derive(Clone, Debug, Default)]
pub struct Tally<'a> {
    /// Message texts, names, tool calls and results.
    words: Vec<TextPiece<'a>>,
    /// Tool definitions.
    definitions: Vec<TextPiece<'a>>,
    /// Response schema.
    form: Vec<TextPiece<'a>>,
    /// User and assistant turns.
    pub turns: u64,
    /// System and developer turns.
    pub instructions: u64,
    /// Tools.
    pub tools: u64,
    /// Tool calls.
    pub calls: u64,
    /// Tool results.
    pub results: u64,
    /// Images.
    pub images: u64,
    /// Tokens of documents, audio and video.
    pub media: u64,
}

impl<'a> Tally<'a> {
    /// Collects the parts of a request.
    pub fn of(request: &Request<'a>) -> Self {
        let mut tally = Tally::default();
        for turn in &request.turns {
            match turn.role {
                Role::System | Role::Developer => tally.instructions += 1,
                Role::User | Role::Assistant => tally.turns += 1,
            }
            tally.escaped(turn.name);
            turn.blocks.iter().for_each(|block| tally.block(block));
        }
        for tool in &request.tools {
            tally.tools += 1;
            put(
                &mut tally.definitions,
                [tool.name, tool.description],
                tool.schema.into_iter().chain(tool.format),
            );
        }
        if let OutputFormat::Schema { name, description, schema, .. } = request.output {
            put(&mut tally.form, [name, description], [schema]);
        }
        tally
    }

    /// Returns the input tokens for a model of `family`.
    pub fn tokens(&self, family: TokenizerFamily) -> u64 {
        let rule = family.rule();
        let [words, definitions, form] = self.texts(family);
        let part = |tokens: u64, per_mille: u64| tokens.saturating_mul(per_mille).div_ceil(1_000);
        let around = [
            (1, rule.request),
            (self.turns, rule.turn),
            (self.instructions, rule.instructions),
            (self.tools.min(1), rule.toolbox),
            (self.tools, rule.tool),
            (self.calls, rule.call),
            (self.results, rule.result),
            (u64::from(form > 0), rule.formed),
            (self.images, media::IMAGE),
        ];
        let around: u64 = around.iter().map(|(number, each)| number * each).sum();
        part(words, rule.words)
            + part(definitions, rule.definitions)
            + part(form, rule.form)
            + around
            + self.media
    }

    /// Returns the tokens of the texts only, unscaled, in the family's vocabulary: messages, tool definitions, response
    /// schema.
    pub fn texts(&self, family: TokenizerFamily) -> [u64; 3] {
        [&self.words, &self.definitions, &self.form].map(|texts| text::count(family.rule().table, texts))
    }

    fn escaped(&mut self, text: JsonStr<'a>) {
        put(&mut self.words, [text], []);
    }

    fn json(&mut self, value: RawJson<'a>) {
        put(&mut self.words, [], [value]);
    }

    fn block(&mut self, block: &Block<'a>) {
        match block {
            Block::Text { text, .. } | Block::Refusal { text } => self.escaped(*text),
            Block::Image { .. } => self.images += 1,
            Block::File { source, name, .. } => {
                self.escaped(*name);
                self.file(source);
            }
            Block::SearchResult(result) => {
                [result.title, result.source].into_iter().for_each(|text| self.escaped(text));
                result.texts.iter().for_each(|text| self.escaped(*text));
            }
            Block::Audio { source } => self.media += media::audio(source),
            Block::Video { source } => self.media += media::video(source),
            // Providers do not count reasoning of earlier turns.
            Block::Reasoning { .. } => {}
            Block::ToolUse { name, input, .. } => {
                self.calls += 1;
                self.escaped(*name);
                match input {
                    Input::Text(text) => self.escaped(*text),
                    Input::Object(object) => self.json(*object),
                }
            }
            Block::ToolResult { content, object, .. } => {
                self.results += 1;
                object.iter().for_each(|value| self.json(value.raw()));
                content.iter().for_each(|block| self.block(block));
            }
            Block::Opaque { raw, .. } => self.json(*raw),
        }
    }

    fn file(&mut self, source: &MediaSource<'a>) {
        match media::document(source) {
            Some(tokens) => self.media += tokens,
            None => {
                if let MediaSource::Text { text } = source {
                    self.escaped(*text);
                }
            }
        }
    }
}

fn put<'a>(
    texts: &mut Vec<TextPiece<'a>>,
    words: impl IntoIterator<Item = JsonStr<'a>>,
    values: impl IntoIterator<Item = RawJson<'a>>,
) {
    texts.extend(words.into_iter().filter(|text| !text.is_empty()).map(TextPiece::Escaped));
    texts.extend(values.into_iter().map(TextPiece::Json));
}
