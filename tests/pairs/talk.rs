//! A request without a format: what a client asks for, and the five bodies that say it.

use model_gateway::wire::Format;
use serde_json::{Map, Value, json};

/// Envelope around what another provider has signed.
pub(crate) const FOREIGN: &str = "gw1.elsewhere.Z0FBQUFBQm8";
/// One pixel.
pub(crate) const PIXEL: &str = "iVBORw0KGgo=";

/// Reasoning in the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reasoned {
    /// Signed by another provider.
    Foreign,
    /// Not signed.
    Unsigned,
}

/// Turns before the question.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum History {
    #[default]
    None,
    /// A question and its answer.
    Texts,
    /// A call and its result.
    Calls,
}

/// Request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Talk {
    pub(crate) history: History,
    /// The last turn has the result, and nothing of the user.
    pub(crate) ends_with_result: bool,
    /// The model called two tools at once.
    pub(crate) two_calls: bool,
    pub(crate) failed: bool,
    /// The calls have no results.
    pub(crate) interrupted: bool,
    pub(crate) reasoned: Option<Reasoned>,
    /// Another host has answered, and added members of its own to the format.
    pub(crate) hosted: bool,
    pub(crate) system: bool,
    /// Role of instructions behind the first turn.
    pub(crate) middle: Option<&'static str>,
    pub(crate) image: bool,
    pub(crate) image_in_result: bool,
    pub(crate) document: bool,
    pub(crate) audio: bool,
    pub(crate) tools: bool,
    pub(crate) custom_tool: bool,
    pub(crate) strict_tool: bool,
    pub(crate) root_union: bool,
    pub(crate) choice: Option<&'static str>,
    pub(crate) several: Option<bool>,
    pub(crate) effort: Option<&'static str>,
    /// `off`, `on`, `adaptive`, or a budget.
    pub(crate) thinking: Option<&'static str>,
    pub(crate) budget: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) top_k: Option<u64>,
    pub(crate) penalties: bool,
    pub(crate) seed: bool,
    pub(crate) stop: bool,
    pub(crate) logprobs: bool,
    pub(crate) bias: bool,
    pub(crate) choices: Option<u64>,
    pub(crate) user: bool,
    pub(crate) name: bool,
    pub(crate) metadata: bool,
    pub(crate) tier: bool,
    pub(crate) verbosity: bool,
    pub(crate) store: bool,
    pub(crate) cache_key: bool,
    pub(crate) marks: bool,
    pub(crate) search: bool,
    /// `json`, `schema` or `strict`.
    pub(crate) output: Option<&'static str>,
    pub(crate) prefill: bool,
    /// Id of the first call.
    pub(crate) id: Option<&'static str>,
    /// Members that another provider has added to the format.
    pub(crate) added: bool,
}

pub(crate) fn put(body: &mut Map<String, Value>, name: &str, value: Value) {
    body.insert(name.to_owned(), value);
}

impl Talk {
    /// Returns the body in a format.
    pub(crate) fn body(&self, format: Format, model: &str, stream: bool) -> Value {
        match format {
            Format::Chat => self.chat(model, stream),
            Format::Messages => self.messages(model, stream),
            Format::Responses => self.responses(model, stream),
            Format::Generate => self.generate(),
            Format::Converse => self.converse(),
        }
    }

    pub(crate) fn id(&self) -> &'static str {
        self.id.unwrap_or("call_1")
    }

    pub(crate) fn ids(&self) -> Vec<&'static str> {
        if self.two_calls { vec![self.id(), "call_2"] } else { vec![self.id()] }
    }

    pub(crate) fn called(&self) -> bool {
        self.history == History::Calls
    }

    pub(crate) fn schema(&self) -> Value {
        let object = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
        if !self.root_union {
            return object;
        }
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    }

    pub(crate) fn form() -> Value {
        json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": false})
    }

    pub(crate) fn has_tools(&self) -> bool {
        self.tools || self.called()
    }

    pub(crate) fn common(&self, body: &mut Map<String, Value>, [temperature, top_p]: [&str; 2]) {
        if let Some(number) = self.temperature {
            put(body, temperature, number.into());
        }
        if let Some(number) = self.top_p {
            put(body, top_p, number.into());
        }
    }
}
