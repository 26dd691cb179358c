//! Plan of a response: the request and the response without any provider's format.

use serde_json::{Value, json};

use super::directive::Directives;
use super::ids::hash;
use super::scenario::PrescribedResponse;
use super::schema;
use super::text::{
    BYTES_PER_TOKEN, by_bytes, cut_at_stop, filler, floor, mentions, padding, shortened, tokens,
    without_reminders, words,
};

/// Tool that the model may call.
#[derive(Debug, Clone)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) schema: Value,
    /// The tool takes free text instead of JSON arguments.
    pub(super) custom: bool,
}

/// Tools that the model may or must call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Choice {
    /// No tool, although some are offered.
    None,
    /// Any tool, or none.
    #[default]
    Auto,
    /// At least one tool.
    Required,
    /// At least one of the named tools.
    Named(Vec<String>),
    /// Any of the named tools, or none.
    Allowed(Vec<String>),
}

/// Format of the response text.
#[derive(Debug, Clone, Default)]
pub(super) enum Format {
    #[default]
    Text,
    /// Any JSON object.
    Json,
    /// JSON that conforms to this schema.
    Schema(Value),
}

/// Numbers of media items in the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Media {
    pub(super) images: usize,
    pub(super) documents: usize,
    pub(super) recordings: usize,
    pub(super) videos: usize,
}

/// Request, without a provider's format.
#[derive(Debug, Clone, Default)]
pub(super) struct Ask {
    pub(super) model: String,
    pub(super) provider: &'static str,
    /// Last user text, without directives.
    pub(super) text: String,
    pub(super) directives: Directives,
    pub(super) system: String,
    pub(super) media: Media,
    /// Names and texts of the tool results in the last turn. Empty if the last turn has none.
    pub(super) results: Vec<(String, String)>,
    pub(super) tools: Vec<Tool>,
    pub(super) choice: Choice,
    pub(super) one_call: bool,
    pub(super) format: Format,
    pub(super) thinking: bool,
    pub(super) max_tokens: Option<u64>,
    pub(super) stop: Vec<String>,
    pub(super) prompt_tokens: u64,
    /// Response of a scenario. `None` if the response is generated.
    pub(super) prescribed: Option<PrescribedResponse>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolCall {
    pub(super) name: String,
    /// Compact JSON, unless truncated by the token limit or the tool is custom.
    pub(super) arguments: String,
    pub(super) custom: bool,
}

impl ToolCall {
    /// Returns the arguments as an object. `None` if they were truncated.
    pub(super) fn object(&self) -> Option<Value> {
        serde_json::from_str(&self.arguments).ok().filter(Value::is_object)
    }
}

/// Reason why the response ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finish {
    Done,
    Calls,
    Length,
    StopSequence(String),
    Refused,
    /// Prescribed by a directive, such as a word for a response that the provider broke off.
    Word(String),
}

/// Planned response.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) thinking: Option<String>,
    /// Text, in the pieces of a stream.
    pub(super) pieces: Vec<String>,
    pub(super) calls: Vec<ToolCall>,
    pub(super) finish: Finish,
    pub(super) thinking_tokens: u64,
    /// Tokens of text and calls, without thinking.
    pub(super) answer_tokens: u64,
}

impl Plan {
    pub(super) fn text(&self) -> String {
        self.pieces.concat()
    }

    pub(super) fn output_tokens(&self) -> u64 {
        self.thinking_tokens + self.answer_tokens
    }
}

impl Ask {
    /// Returns the number of prompt tokens to report as cached, by directive.
    pub(super) fn cached_tokens(&self) -> u64 {
        self.directives.cached.unwrap_or(0).min(self.prompt_tokens)
    }

    /// Returns what distinguishes the signatures of this response: the same for a whole and a streamed one.
    pub(super) fn nonce(&self) -> u64 {
        let about = (self.provider, &self.model, &self.text, &self.results, self.prompt_tokens);
        hash(format!("{about:?}").as_bytes())
    }

    /// Returns the plan of a choice. Choices after the first, number 0, state their number in the text.
    pub(super) fn plan(&self, choice: usize) -> Plan {
        let mut plan = Plan {
            thinking: self.thinking.then(|| self.thoughts()),
            pieces: Vec::new(),
            calls: Vec::new(),
            finish: Finish::Done,
            thinking_tokens: 0,
            answer_tokens: 0,
        };
        let mut text = String::new();
        if self.directives.refuse {
            plan.thinking = None;
            plan.finish = Finish::Refused;
            text.push_str("I'm sorry, but I can't help with that.");
        } else if let Some(prescribed) = &self.prescribed {
            text.push_str(&prescribed.text);
            plan.calls = prescribed.tool_calls(self);
            if !plan.calls.is_empty() {
                plan.finish = Finish::Calls;
            }
        } else {
            plan.calls = self.calls();
            if plan.calls.is_empty() {
                text = self.answer(choice);
                if let Some(found) = cut_at_stop(&mut text, &self.stop) {
                    plan.finish = Finish::StopSequence(found);
                }
            } else {
                plan.finish = Finish::Calls;
            }
        }
        self.limit(&mut plan, text);
        if let Some(word) = &self.directives.finish {
            plan.finish = Finish::Word(word.clone());
        }
        if let Some(output) = self.prescribed.as_ref().and_then(|prescribed| prescribed.output_tokens) {
            plan.answer_tokens = output.saturating_sub(plan.thinking_tokens);
        }
        plan
    }

    /// Counts the plan's tokens and truncates it at the token limit.
    fn limit(&self, plan: &mut Plan, mut text: String) {
        let limit = if self.directives.big.is_some() { None } else { self.max_tokens };
        let mut budget = Budget { left: limit.unwrap_or(u64::MAX), short: false };
        if let Some(thinking) = &mut plan.thinking {
            plan.thinking_tokens = budget.spend(thinking);
        }
        plan.answer_tokens = budget.spend(&mut text);
        let mut calls = Vec::new();
        for mut call in plan.calls.drain(..) {
            if budget.left == 0 {
                budget.short = true;
                break;
            }
            plan.answer_tokens += tokens(call.name.len());
            budget.left = budget.left.saturating_sub(tokens(call.name.len()));
            plan.answer_tokens += budget.spend(&mut call.arguments);
            calls.push(call);
        }
        plan.calls = calls;
        if budget.short {
            plan.finish = Finish::Length;
        }
        plan.pieces = match self.directives.big {
            Some(_) => by_bytes(&text),
            None => words(&text),
        };
    }

    fn thoughts(&self) -> String {
        let tools = match self.tools.len() {
            0 => String::new(),
            1 => " One tool is at hand.".to_owned(),
            n => format!(" {n} tools are at hand."),
        };
        format!(
            "The user wrote {} characters.{tools} I should show that I understood, and be brief.",
            self.text.chars().count()
        )
    }

    /// Returns the tool calls of this response.
    fn calls(&self) -> Vec<ToolCall> {
        if !self.results.is_empty() {
            return Vec::new();
        }
        let (offered, must): (Vec<&Tool>, bool) = match &self.choice {
            Choice::None => return Vec::new(),
            Choice::Auto => (self.tools.iter().collect(), false),
            Choice::Required => (self.tools.iter().collect(), true),
            Choice::Named(names) => (self.tools.iter().filter(|t| names.contains(&t.name)).collect(), true),
            Choice::Allowed(names) => {
                (self.tools.iter().filter(|t| names.contains(&t.name)).collect(), false)
            }
        };
        let typed = without_reminders(&self.text);
        let mut called: Vec<&Tool> =
            offered.iter().copied().filter(|tool| mentions(&typed, &tool.name)).collect();
        if called.is_empty() && must {
            called.extend(offered.first());
        }
        if self.one_call {
            called.truncate(1);
        }
        called.into_iter().map(call).collect()
    }

    fn answer(&self, choice: usize) -> String {
        match &self.format {
            Format::Schema(schema) => return schema::example(schema).to_string(),
            Format::Json => return json!({ "answer": self.greeting(choice) }).to_string(),
            Format::Text => {}
        }
        let greeting = self.greeting(choice);
        match (self.directives.big, self.directives.words) {
            (Some(bytes), _) => padding(bytes),
            (None, Some(count)) => {
                let mut words: Vec<&str> = greeting.split_whitespace().take(count).collect();
                words.extend(filler().take(count.saturating_sub(words.len())));
                words.join(" ")
            }
            (None, None) => greeting,
        }
    }

    fn greeting(&self, choice: usize) -> String {
        let mut said = match self.text.as_str() {
            "" => "You sent no text.".to_owned(),
            text => format!("You said: \"{}\".", shortened(text, 200)),
        };
        said.push_str(&format!(" I am {}, simulated by {}.", self.model, self.provider));
        if !self.system.is_empty() {
            said.push_str(&format!(" My instructions are: \"{}\".", shortened(&self.system, 100)));
        }
        let media = self.media;
        for (count, verb, noun) in [
            (media.images, "see", "image"),
            (media.documents, "see", "document"),
            (media.recordings, "hear", "recording"),
            (media.videos, "see", "video"),
        ] {
            if count > 0 {
                said.push_str(&format!(" I {verb} {count} {noun}{}.", if count == 1 { "" } else { "s" }));
            }
        }
        for (name, result) in &self.results {
            said.push_str(&format!(" The tool {name} answered: {}.", shortened(result, 200)));
        }
        if choice > 0 {
            said.push_str(&format!(" This is answer {}.", choice + 1));
        }
        said
    }
}

fn call(tool: &Tool) -> ToolCall {
    let arguments = match schema::example(&tool.schema) {
        _ if tool.custom => "example".to_owned(),
        object @ Value::Object(_) => object.to_string(),
        _ => "{}".to_owned(),
    };
    ToolCall { name: tool.name.clone(), arguments, custom: tool.custom }
}

/// Token budget: the rest of a limit.
struct Budget {
    left: u64,
    /// The budget was too small for some text.
    short: bool,
}

impl Budget {
    /// Counts the tokens of a text, and truncates the text to the budget.
    fn spend(&mut self, text: &mut String) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
        if text.len() > most {
            text.truncate(floor(text, most));
            self.short = true;
            return std::mem::take(&mut self.left);
        }
        let spent = tokens(text.len());
        self.left = self.left.saturating_sub(spent);
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Ask {
        let (directives, text) = super::super::directive::take(text);
        Ask { model: "m".into(), provider: "V", text, directives, ..Ask::default() }
    }

    fn tool(name: &str) -> Tool {
        Tool {
            name: name.into(),
            schema: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
            custom: false,
        }
    }

    #[test]
    fn plan_length_is_set_in_words_or_bytes() {
        let mut a = ask("[[words 30]] x");
        assert_eq!(a.plan(0).text().split_whitespace().count(), 30);
        a = ask("[[big 250001]]");
        a.max_tokens = Some(5);
        let plan = a.plan(0);
        assert_eq!((plan.text().len(), plan.pieces.len(), plan.finish), (250_001, 3, Finish::Done));
    }

    #[test]
    fn plan_is_cut_at_max_tokens() {
        let mut a = ask("héllo 🤖");
        a.max_tokens = Some(3);
        let plan = a.plan(0);
        assert_eq!((plan.finish.clone(), plan.output_tokens()), (Finish::Length, 3));
        assert!(plan.text().len() <= 12);
        a.thinking = true;
        let plan = a.plan(0);
        assert_eq!((plan.finish, plan.thinking_tokens, plan.answer_tokens), (Finish::Length, 3, 0));
        assert!(plan.pieces.is_empty());
    }

    #[test]
    fn plan_calls_tools_when_mentioned_or_forced() {
        let mut a = ask("Please use get_weather, not get_weather2.");
        a.tools = vec![tool("get_weather"), tool("add"), tool("weather")];
        let names = |a: &Ask| a.plan(0).calls.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&a), ["get_weather"]);
        assert_eq!(a.plan(0).finish, Finish::Calls);
        a.text = "add and GET_WEATHER".into();
        assert_eq!(names(&a), ["get_weather", "add"]);
        a.one_call = true;
        assert_eq!(names(&a), ["get_weather"]);
        a.text = "hello".into();
        assert!(names(&a).is_empty());
        a.choice = Choice::Required;
        assert_eq!(names(&a), ["get_weather"]);
        a.choice = Choice::Named(vec!["add".into()]);
        assert_eq!(names(&a), ["add"]);
        a.results = vec![("add".into(), "3".into())];
        assert!(a.plan(0).text().contains("The tool add answered: 3."));
    }

    #[test]
    fn plan_ends_at_the_first_stop_sequence() {
        let mut a = ask("hello");
        a.stop = vec!["simulated".into(), "said".into()];
        let plan = a.plan(0);
        assert_eq!((plan.text().as_str(), plan.finish), ("You ", Finish::StopSequence("said".into())));
    }
}
