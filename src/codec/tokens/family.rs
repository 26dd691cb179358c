//! Model families: tokenizer, and token overhead of a request.

use super::bpe::Vocabulary;
use crate::catalogue::Catalogue;

/// Family of models with the same token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenizerFamily {
    /// GPT-4o and later, the o series, gpt-oss.
    OpenAi,
    /// GPT-4, GPT-3.5 and the embedding models of that time.
    OpenAiOld,
    /// Claude up to 4.6.
    Claude,
    /// Claude from 4.7.
    ClaudeNew,
    /// Gemini and Gemma.
    Gemini,
    /// Qwen.
    Qwen,
    /// DeepSeek.
    DeepSeek,
    /// Llama.
    Llama,
    /// Mistral, including Mixtral, Codestral and others.
    Mistral,
    /// Grok.
    Grok,
    /// GLM.
    Glm,
    /// Any other.
    Other,
}

/// Counting rule of a family. Overheads in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct FamilyRule {
    /// Vocabulary for the texts.
    pub(super) table: Vocabulary,
    /// Tokens of the family per 1,000 tokens of that vocabulary, in messages.
    pub(super) words: u64,
    /// Same for tool definitions, which models get in another form than JSON.
    pub(super) definitions: u64,
    /// Same for the response schema.
    pub(super) form: u64,
    /// Per request.
    pub(super) request: u64,
    /// Per user or assistant turn.
    pub(super) turn: u64,
    /// Per system or developer turn.
    pub(super) instructions: u64,
    /// Once, if there are tools.
    pub(super) toolbox: u64,
    /// Per tool.
    pub(super) tool: u64,
    /// Per tool call.
    pub(super) call: u64,
    /// Per tool result.
    pub(super) result: u64,
    /// If there is a response schema.
    pub(super) formed: u64,
}

impl FamilyRule {
    /// Converts tokens of the vocabulary to tokens of this family.
    pub(super) fn scaled(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.words).div_ceil(1_000)
    }
}

impl TokenizerFamily {
    /// All families.
    pub const ALL: [TokenizerFamily; 12] = [
        TokenizerFamily::OpenAi,
        TokenizerFamily::OpenAiOld,
        TokenizerFamily::Claude,
        TokenizerFamily::ClaudeNew,
        TokenizerFamily::Gemini,
        TokenizerFamily::Qwen,
        TokenizerFamily::DeepSeek,
        TokenizerFamily::Llama,
        TokenizerFamily::Mistral,
        TokenizerFamily::Grok,
        TokenizerFamily::Glm,
        TokenizerFamily::Other,
    ];

    /// Returns the name in docs/token-counting.md.
    pub const fn name(self) -> &'static str {
        match self {
            TokenizerFamily::OpenAi => "OpenAI since GPT-4o",
            TokenizerFamily::OpenAiOld => "GPT-4, GPT-3.5",
            TokenizerFamily::Claude => "Claude up to 4.6",
            TokenizerFamily::ClaudeNew => "Claude since 4.7",
            TokenizerFamily::Gemini => "Gemini",
            TokenizerFamily::Qwen => "Qwen",
            TokenizerFamily::DeepSeek => "DeepSeek",
            TokenizerFamily::Llama => "Llama",
            TokenizerFamily::Mistral => "Mistral",
            TokenizerFamily::Grok => "Grok",
            TokenizerFamily::Glm => "GLM",
            TokenizerFamily::Other => "others",
        }
    }

    /// Returns the family of a model by its name at a provider, as the embedded catalogue knows its tokenizer.
    pub fn of(model: &str) -> TokenizerFamily {
        TokenizerFamily::listed(Catalogue::embedded(), model)
    }

    /// Returns the family of a model by its name at a provider: the catalogue knows its tokenizer.
    pub fn listed(catalogue: &Catalogue, model: &str) -> TokenizerFamily {
        let facts = catalogue.facts_of(model);
        let word = facts.and_then(|(facts, _)| facts.tokenizer.as_deref());
        let family = TokenizerFamily::ALL.into_iter().find(|family| Some(family.word()) == word);
        family.unwrap_or(TokenizerFamily::Other)
    }

    /// Returns the word in the catalogue.
    const fn word(self) -> &'static str {
        match self {
            TokenizerFamily::OpenAi => "o200k",
            TokenizerFamily::OpenAiOld => "cl100k",
            TokenizerFamily::Claude => "claude",
            TokenizerFamily::ClaudeNew => "claude-new",
            TokenizerFamily::Gemini => "gemini",
            TokenizerFamily::Qwen => "qwen",
            TokenizerFamily::DeepSeek => "deepseek",
            TokenizerFamily::Llama => "llama",
            TokenizerFamily::Mistral => "mistral",
            TokenizerFamily::Grok => "grok",
            TokenizerFamily::Glm => "glm",
            TokenizerFamily::Other => "",
        }
    }

    /// Returns whether the vocabulary of the counting rule is that of the family's models. Token ids of the other
    /// families mean other texts.
    pub(super) const fn has_own_vocabulary(self) -> bool {
        matches!(self, TokenizerFamily::OpenAi | TokenizerFamily::OpenAiOld)
    }

    /// Returns the counting rule. The figures were fitted to recorded requests and the providers' counts
    /// (docs/token-counting.md); families without recordings have those of the most similar one.
    #[rustfmt::skip] // a table reads as a table
    pub(super) const fn rule(self) -> FamilyRule {
        use Vocabulary::{Cl100k, O200k};
        #[allow(clippy::too_many_arguments, reason = "the columns of the table")]
        const fn rule(
            table: Vocabulary, words: u64, definitions: u64, form: u64, request: u64, turn: u64, instructions: u64,
            toolbox: u64, tool: u64, call: u64, result: u64, formed: u64,
        ) -> FamilyRule {
            FamilyRule { table, words, definitions, form, request, turn, instructions, toolbox, tool, call, result, formed }
        }
        match self {
            //                        vocabulary  words  definitions   form  request  turn  instructions  toolbox  tool
            // call  result  formed
            TokenizerFamily::OpenAi    => rule(     O200k, 1_000,         630,   950,       1,    5,            5,      19,    0,    4,      4,      0),
            TokenizerFamily::OpenAiOld => rule(    Cl100k, 1_000,         940, 1_000,       3,    4,            4,      10,    0,   13,      7,      0),
            TokenizerFamily::Claude    => rule(     O200k, 1_020,       1_070, 2_800,       3,    3,            1,     506,   17,   26,     36,     54),
            TokenizerFamily::ClaudeNew => rule(     O200k, 1_340,       1_590, 2_800,       0,    4,           40,     289,   50,   13,     29,     54),
            TokenizerFamily::Gemini    => rule(     O200k, 1_000,       1_200,     0,       0,    1,            1,       1,    0,   40,     20,      0),
            TokenizerFamily::Qwen      => rule(     O200k, 1_000,       1_010, 1_000,       3,    7,            3,      24,   80,   19,     11,      0),
            TokenizerFamily::DeepSeek  => rule(     O200k,   950,       1_270, 1_000,       0,    4,            6,     203,   29,   14,     19,      0),
            TokenizerFamily::Llama     => rule(     O200k,   960,       1_390, 1_000,      27,    8,           19,      98,    0,    7,      0,      0),
            TokenizerFamily::Mistral   => rule(     O200k, 1_000,       1_600, 1_000,       0,    3,            0,       0,   17,    0,      0,      0),
            TokenizerFamily::Grok      => rule(     O200k,   960,       1_430, 1_000,     192,    0,            0,      65,    0,    3,      2,     17),
            TokenizerFamily::Glm       => rule(     O200k, 1_100,       1_260, 1_000,       0,   11,            1,      95,   11,   22,     15,      0),
            TokenizerFamily::Other     => rule(     O200k, 1_080,       1_600, 1_000,       0,    5,           10,       3,    9,   15,      4,      0),
        }
    }
}
