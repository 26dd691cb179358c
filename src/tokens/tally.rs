//! What a request consists of, as far as it costs tokens.

use super::Family;
use super::media;
use super::text::{self, Piece};
use crate::canonical::{Block, Input, OutputFormat, Request, Role, Source};
use crate::json::{JsonStr, RawJson};

/// The parts of a request, counted by kind; texts are counted when it is known for which model.
#[derive(Clone, Debug, Default)]
pub struct Tally<'a> {
    /// What is said.
    words: Vec<Piece<'a>>,
    /// Tools as they are defined.
    definitions: Vec<Piece<'a>>,
    /// The form that the answer must have.
    form: Vec<Piece<'a>>,
    /// Turns that are no instructions.
    pub turns: u64,
    /// Turns of instructions.
    pub instructions: u64,
    /// Tools.
    pub tools: u64,
    /// Calls of tools.
    pub calls: u64,
    /// What tools answered.
    pub results: u64,
    /// Pictures.
    pub images: u64,
    /// Tokens of documents, sounds and videos.
    pub media: u64,
}

impl<'a> Tally<'a> {
    /// Walks over a request.
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

    /// The tokens of all of it for a model of a family.
    pub fn tokens(&self, family: Family) -> u64 {
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

    /// The tokens of the texts alone, in the family's vocabulary: what is said, the tools as they are defined, and the
    /// form of the answer.
    pub fn texts(&self, family: Family) -> [u64; 3] {
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
            Block::Audio { source } => self.media += media::audio(source),
            Block::Video { source } => self.media += media::video(source),
            // Reasoning of earlier turns is not counted by the providers.
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
                object.iter().for_each(|value| self.json(*value));
                content.iter().for_each(|block| self.block(block));
            }
            Block::Opaque { raw, .. } => self.json(*raw),
        }
    }

    fn file(&mut self, source: &Source<'a>) {
        match media::document(source) {
            Some(tokens) => self.media += tokens,
            None => {
                if let Source::Text { text } = source {
                    self.escaped(*text);
                }
            }
        }
    }
}

fn put<'a>(
    texts: &mut Vec<Piece<'a>>,
    words: impl IntoIterator<Item = JsonStr<'a>>,
    values: impl IntoIterator<Item = RawJson<'a>>,
) {
    texts.extend(words.into_iter().filter(|text| !text.is_empty()).map(Piece::Escaped));
    texts.extend(values.into_iter().map(Piece::Json));
}
