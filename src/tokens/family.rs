//! Families of models: which tokenizer stands behind them, and what they add to the words of a request.

use super::text::Table;

/// A family of models that count alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// GPT-4o and later, the o series, gpt-oss.
    OpenAi,
    /// GPT-4, GPT-3.5 and the embedding models of their time.
    OpenAiOld,
    /// Claude up to 4.6.
    Claude,
    /// Claude since 4.7.
    ClaudeNew,
    /// Gemini and Gemma.
    Gemini,
    /// Qwen.
    Qwen,
    /// DeepSeek.
    DeepSeek,
    /// Llama.
    Llama,
    /// Mistral and its siblings.
    Mistral,
    /// Grok.
    Grok,
    /// GLM.
    Glm,
    /// Any other.
    Other,
}

/// What a family adds, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The vocabulary that its texts are counted with.
    pub(super) table: Table,
    /// Its tokens for each thousand of that vocabulary, in what is said.
    pub(super) words: u64,
    /// Likewise in the definitions of tools, which models are shown in shorter words than JSON.
    pub(super) definitions: u64,
    /// Likewise in the form of an answer.
    pub(super) form: u64,
    /// For each request.
    pub(super) request: u64,
    /// For each turn.
    pub(super) turn: u64,
    /// For each turn of instructions.
    pub(super) instructions: u64,
    /// Once, where there are tools.
    pub(super) toolbox: u64,
    /// For each tool.
    pub(super) tool: u64,
    /// For each call of a tool.
    pub(super) call: u64,
    /// For each result of a tool.
    pub(super) result: u64,
    /// For a form that the answer must have.
    pub(super) formed: u64,
}

impl Rule {
    /// Tokens of this family for tokens of its vocabulary.
    pub(super) fn scaled(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.words).div_ceil(1_000)
    }
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 12] = [
        Family::OpenAi,
        Family::OpenAiOld,
        Family::Claude,
        Family::ClaudeNew,
        Family::Gemini,
        Family::Qwen,
        Family::DeepSeek,
        Family::Llama,
        Family::Mistral,
        Family::Grok,
        Family::Glm,
        Family::Other,
    ];

    /// The name in docs.
    pub const fn name(self) -> &'static str {
        match self {
            Family::OpenAi => "OpenAI since GPT-4o",
            Family::OpenAiOld => "GPT-4, GPT-3.5",
            Family::Claude => "Claude up to 4.6",
            Family::ClaudeNew => "Claude since 4.7",
            Family::Gemini => "Gemini",
            Family::Qwen => "Qwen",
            Family::DeepSeek => "DeepSeek",
            Family::Llama => "Llama",
            Family::Mistral => "Mistral",
            Family::Grok => "Grok",
            Family::Glm => "GLM",
            Family::Other => "others",
        }
    }

    /// The family of a model, by its name at a provider.
    pub fn of(model: &str) -> Family {
        let name = model.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        // The last part of names such as `openai/gpt-4o`, and the o series, whose names are too short to be found
        // inside of others.
        let last = name.rsplit('/').next().unwrap_or_default();
        let reasons = ["o1", "o3", "o4"].iter().any(|o| last == *o || last.starts_with(&format!("{o}-")));
        if has(&["claude"]) {
            if is_new_claude(&name) { Family::ClaudeNew } else { Family::Claude }
        } else if has(&["gpt-4o", "gpt-4.", "gpt-5", "gpt-oss", "chatgpt", "codex", "gpt-image", "gpt-6"])
            || reasons
        {
            Family::OpenAi
        } else if has(&["gpt-4", "gpt-3.5", "gpt-35", "text-embedding-3", "text-embedding-ada"]) {
            Family::OpenAiOld
        } else if has(&["gemini", "gemma", "text-embedding-004"]) {
            Family::Gemini
        } else if has(&["qwen", "qwq", "qvq"]) {
            Family::Qwen
        } else if has(&["deepseek"]) {
            Family::DeepSeek
        } else if has(&["llama"]) {
            Family::Llama
        } else if has(&["mistral", "mixtral", "codestral", "ministral", "magistral", "devstral", "pixtral"]) {
            Family::Mistral
        } else if has(&["grok"]) {
            Family::Grok
        } else if has(&["glm"]) {
            Family::Glm
        } else {
            Family::Other
        }
    }

    /// What it adds. The figures were fitted to recorded requests and the providers' own counts of them
    /// (docs/token-counting.md); where no recording was found, those of the most similar family stand.
    #[rustfmt::skip] // a table reads as a table
    pub(super) const fn rule(self) -> Rule {
        use Table::{Cl100k, O200k};
        #[allow(clippy::too_many_arguments, reason = "the columns of the table")]
        const fn rule(
            table: Table, words: u64, definitions: u64, form: u64, request: u64, turn: u64, instructions: u64,
            toolbox: u64, tool: u64, call: u64, result: u64, formed: u64,
        ) -> Rule {
            Rule { table, words, definitions, form, request, turn, instructions, toolbox, tool, call, result, formed }
        }
        match self {
            //                        vocabulary  words  definitions   form  request  turn  instructions  toolbox  tool  call  result  formed
            Family::OpenAi    => rule(     O200k, 1_000,         630,   950,       1,    5,            5,      19,    0,    4,      4,      0),
            Family::OpenAiOld => rule(    Cl100k, 1_000,         940, 1_000,       3,    4,            4,      10,    0,   13,      7,      0),
            Family::Claude    => rule(     O200k, 1_020,       1_070, 2_800,       3,    3,            1,     506,   17,   26,     36,     54),
            Family::ClaudeNew => rule(     O200k, 1_340,       1_590, 2_800,       0,    4,           40,     289,   50,   13,     29,     54),
            Family::Gemini    => rule(     O200k, 1_000,       1_200,     0,       0,    1,            1,       1,    0,   40,     20,      0),
            Family::Qwen      => rule(     O200k, 1_000,       1_010, 1_000,       3,    7,            3,      24,   80,   19,     11,      0),
            Family::DeepSeek  => rule(     O200k,   950,       1_270, 1_000,       0,    4,            6,     203,   29,   14,     19,      0),
            Family::Llama     => rule(     O200k,   960,       1_390, 1_000,      27,    8,           19,      98,    0,    7,      0,      0),
            Family::Mistral   => rule(     O200k, 1_000,       1_600, 1_000,       0,    3,            0,       0,   17,    0,      0,      0),
            Family::Grok      => rule(     O200k,   960,       1_430, 1_000,     192,    0,            0,      65,    0,    3,      2,     17),
            Family::Glm       => rule(     O200k, 1_100,       1_260, 1_000,       0,   11,            1,      95,   11,   22,     15,      0),
            Family::Other     => rule(     O200k, 1_080,       1_600, 1_000,       0,    5,           10,       3,    9,   15,      4,      0),
        }
    }
}

/// Whether a Claude model has the tokenizer of 4.7: `claude-opus-4-7`, `claude-sonnet-5`; not `claude-3-5-sonnet`, nor
/// `claude-sonnet-4-20250514`, whose last number is a day.
fn is_new_claude(name: &str) -> bool {
    let (_, rest) = name.split_once("claude").unwrap_or_default();
    let mut numbers = rest
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse::<u64>().ok())
        .take_while(|number| *number < 1_000);
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (4, 7)
}
