//! Encoder of tools and tool choice.

use super::decode::GROUNDING;
use super::encode::RequestWriter;
use super::plan::Plan;
use crate::canonical::dialect::Structured;
use crate::canonical::{Index, IndexKey, Tool, ToolChoice};
use crate::wire::Format;
use crate::wire::strict_schema::{self, Rules};
use json::{JsonStr, RawJson};

/// Schema of a tool without parameters.
const NOTHING: &str = r#"{"type":"object","properties":{}}"#;

/// Tool of a request that offers none, but whose conversation has calls: the service requires tools then.
const PLACEHOLDER: &str = r#"{"toolSpec":{"name":"unavailable","description":"This tool is not available. Do not call it.","inputSchema":{"json":{"type":"object","properties":{}}}}}"#;

impl<'r, 'a> RequestWriter<'_, 'r, 'a> {
    /// Returns the tools to offer. A tool choice that allows only some tools restricts the list.
    pub(super) fn offered(&self) -> impl Iterator<Item = &'r Tool<'a>> + use<'r, 'a> {
        let names: Option<Index> = match &self.request.tool_choice {
            Some(ToolChoice::Allowed { names, .. }) => {
                Some(names.iter().map(|name| IndexKey::of(*name)).collect())
            }
            _ => None,
        };
        let allowed =
            move |tool: &&Tool<'a>| names.as_ref().is_none_or(|names| names.has(IndexKey::of(tool.name)));
        self.request.tools.iter().filter(allowed)
    }

    /// Returns whether tools that the service runs follow the client's.
    pub(super) fn offers_provider_tool(&self) -> bool {
        let own = self.notes.from() == Format::Converse;
        let grounding = self.request.search.is_some() && (own || self.dialect.supports(GROUNDING));
        grounding || (own && self.request.extra.iter().any(|extra| extra.name == "server_tool"))
    }

    /// Returns whether the request forbids several calls in a turn by a member of the model's own. That member has a tool
    /// choice too, so that another one than the default cannot be stated beside it.
    pub(super) fn forbids_parallel_calls(&self) -> bool {
        let has_default_choice = matches!(
            self.request.tool_choice,
            None | Some(ToolChoice::Auto | ToolChoice::Allowed { required: false, .. })
        );
        self.request.parallel_tools == Some(false)
            && has_default_choice
            && self.dialect.supports("disable_parallel_tool_use")
            && self.notes.from() != Format::Converse
            && self.offered().next().is_some()
    }

    /// Writes `toolConfig`. With `budget`, reasoning has a budget and no call can be forced.
    pub(super) fn tools(&mut self, plan: &Plan<'_, '_>, budget: bool) {
        let own = self.notes.from() == Format::Converse;
        let server: Vec<RawJson<'_>> = self
            .request
            .extra
            .iter()
            .filter(|extra| extra.name == "server_tool")
            .map(|extra| extra.value)
            .collect();
        if !own && !server.is_empty() {
            self.notes.lose("server_tool");
        }
        let search = self.request.search.is_some();
        let grounding = search && (own || self.dialect.supports(GROUNDING));
        if search && !grounding {
            self.notes.lose("web_search");
        }
        let server = if own { server } else { Vec::new() };
        let any = self.offered().next().is_some() || grounding || !server.is_empty();
        let forbidden = self.request.tool_choice == Some(ToolChoice::None);
        // Without a choice "none", the tools themselves are left out.
        let offers = any && (!forbidden || plan.has_tools());
        if !offers && !plan.has_tools() {
            return;
        }
        if offers && forbidden {
            self.notes.lose("tool_choice");
        }
        self.begin_prompt();
        self.json.key("toolConfig").begin_object().key("tools").begin_array();
        if offers {
            for tool in self.offered() {
                self.tool(tool);
            }
            if grounding {
                self.json.begin_object().key("systemTool").begin_object();
                self.json.key("name").string(GROUNDING).end_object().end_object();
            }
            for tool in server {
                self.json.begin_object().key("systemTool").raw(tool).end_object();
            }
            self.cache_point(None, self.automatic.of_search());
        } else {
            self.json.raw(RawJson::from_text(PLACEHOLDER));
        }
        self.json.end_array();
        if offers {
            self.tool_choice(budget);
        }
        self.json.end_object();
        // Several calls in a turn are the default; only a member of the model's own can forbid them.
        if self.request.parallel_tools == Some(false) && offers && !own && !self.forbids_parallel_calls() {
            self.notes.lose("parallel_tool_calls");
        }
    }

    fn tool(&mut self, tool: &Tool<'_>) {
        self.json.begin_object().key("toolSpec").begin_object().key("name").paste(tool.name);
        if !tool.description.is_empty() {
            self.json.key("description").paste(tool.description);
        }
        let own = self.notes.from() == Format::Converse;
        let native = matches!(self.dialect.structured, Structured::Native);
        let strict = tool.strict.filter(|strict| own || (*strict && native));
        if tool.strict == Some(true) && strict.is_none() {
            self.notes.lose("tool_strict");
        }
        self.json.key("inputSchema").begin_object().key("json");
        let rules = Rules { openapi: tool.openapi, strict: strict == Some(true) && !own };
        match tool.schema {
            Some(written) => strict_schema::write(written, rules, true, &mut self.json),
            None => {
                self.json.raw(RawJson::from_text(NOTHING));
            }
        }
        self.json.end_object();
        if let Some(strict) = strict {
            self.json.key("strict").boolean(strict);
        }
        self.json.end_object().end_object();
        match tool.cache {
            // Some models take no cache point behind tools, but behind what follows them.
            Some(_) if !own && self.dialect.breakpoints.is_some_and(|support| !support.tools) => {
                self.surplus_marks = self.surplus_marks.saturating_sub(1);
                self.notes.lose("cache_control");
            }
            mark => self.cache_point(mark, self.automatic.of_tool(tool)),
        }
    }

    fn tool_choice(&mut self, budget: bool) {
        let (mut kind, mut name): (&str, Option<JsonStr<'_>>) = match &self.request.tool_choice {
            None | Some(ToolChoice::None) => return,
            _ if self.forbids_parallel_calls() => return,
            Some(ToolChoice::Auto | ToolChoice::Allowed { required: false, .. }) => ("auto", None),
            // A client of this format; for others the adaptation has replaced the choice.
            Some(ToolChoice::Search) => ("tool", Some(JsonStr::from_escaped(GROUNDING))),
            Some(ToolChoice::Required) => ("any", None),
            Some(ToolChoice::Tool(name)) => ("tool", Some(*name)),
            Some(ToolChoice::Allowed { names, required: true }) => match names.as_slice() {
                [name] => ("tool", Some(*name)),
                _ => ("any", None),
            },
        };
        if budget && kind != "auto" {
            (kind, name) = ("auto", None);
            self.notes.warn("tool_choice");
        }
        self.json.key("toolChoice").begin_object().key(kind).begin_object();
        if let Some(name) = name {
            self.json.key("name").paste(name);
        }
        self.json.end_object().end_object();
    }
}
