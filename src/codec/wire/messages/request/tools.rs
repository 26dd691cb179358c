//! Encoder of tools and tool choice.

use super::decode::TOOL_SEARCH;
use super::encode::RequestWriter;
use super::own;
use crate::canonical::dialect::Structured;
use crate::canonical::request::{Extra, Search};
use crate::canonical::{Index, IndexKey, Tool, ToolChoice};
use crate::wire::watch::members;
use crate::wire::{Format, strict_schema};
use json::{Cursor, JsonStr, RawJson};

/// Schema of a tool without parameters.
const NOTHING: &str = r#"{"type":"object","properties":{}}"#;

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

    /// Returns the web search to offer. `None` if a tool of the client has the name of the provider's search tool, which
    /// is fixed: names must be unique.
    pub(super) fn search_offered(&self) -> Option<&'r Search<'a>> {
        let request = self.request;
        request.search.as_ref().filter(|_| !request.tools.iter().any(|tool| tool.name.is("web_search")))
    }

    /// Writes `tool_choice` and `tools`. With `budget`, reasoning has a budget and no call can be forced.
    pub(super) fn tools(&mut self, budget: bool) {
        let is_server = |extra: &&Extra<'_>| matches!(extra.name, "server_tool" | TOOL_SEARCH);
        let server = || self.request.extra.iter().filter(is_server);
        let own = self.notes.from() == Format::Messages;
        if !own && server().next().is_some() {
            self.notes.lose("server_tool");
        }
        let search = self.search_offered();
        if self.request.search.is_some() && search.is_none() {
            self.notes.lose("web_search");
        }
        let any = self.offered().next().is_some() || search.is_some() || (own && server().next().is_some());
        if !any {
            return;
        }
        self.tool_choice(budget);
        self.begin_prompt();
        self.json.key("tools").begin_array();
        for tool in self.offered() {
            self.tool(tool);
        }
        match (search, self.own_search()) {
            (Some(_), Some(own)) => self.server_tool(own),
            (Some(search), None) => self.search(search),
            (None, _) => {}
        }
        if own {
            for tool in self.request.extra.iter().filter(is_server) {
                self.server_tool(tool.value);
            }
        }
        self.json.end_array();
    }

    /// Writes a tool that the provider defines or runs itself, without the members that this platform refuses.
    fn server_tool(&mut self, tool: RawJson<'_>) {
        let quirks = self.dialect.quirks;
        if quirks.lacks.is_empty() {
            self.json.raw(tool);
            return;
        }
        self.json.begin_object();
        // Cannot fail: the decoder has read the members.
        let _ = members(&mut Cursor::new(tool.text()), |key, json| {
            let value = json.raw()?;
            if !quirks.lacks(key.escaped()) {
                self.json.paste_key(key).raw(value);
            } else if value.as_bool() != Some(false) {
                self.notes.lose(key.escaped().to_owned());
            }
            Ok(())
        });
        self.json.end_object();
    }

    fn tool(&mut self, tool: &Tool<'_>) {
        self.json.begin_object().key("name").paste(tool.name);
        if !tool.description.is_empty() {
            self.json.key("description").paste(tool.description);
        }
        let own = self.notes.from() == Format::Messages;
        let native = matches!(self.dialect.structured, Structured::Native);
        let strict = tool.strict.filter(|strict| own || (*strict && native));
        if tool.strict == Some(true) && strict.is_none() {
            self.notes.lose("tool_strict");
        }
        self.json.key("input_schema");
        let rules = strict_schema::Rules { openapi: tool.openapi, strict: strict == Some(true) && !own };
        match tool.schema {
            Some(written) => strict_schema::write(written, rules, true, &mut self.json),
            None => {
                self.json.raw(RawJson::from_text(NOTHING));
            }
        }
        if let Some(strict) = strict {
            self.json.key("strict").boolean(strict);
        }
        for extra in tool.extra.iter().filter(|extra| own && !self.dialect.quirks.lacks(extra.name)) {
            self.json.key(extra.name).raw(extra.value);
        }
        let element = self.own_tool(tool.name).or_else(|| self.own_tool(tool.description));
        self.write_own_mark(tool.cache, self.automatic.of_tool(tool), element);
        self.rest(element, own::TOOL);
        self.json.end_object();
    }

    fn search(&mut self, search: &Search<'_>) {
        self.json.begin_object().key("type").string("web_search_20250305").key("name").string("web_search");
        // Approximate the search context size by the number of searches.
        let uses = search.max_uses.or(match search.context.escaped() {
            "low" => Some(1),
            "medium" => Some(5),
            "high" => Some(10),
            _ => None,
        });
        if let Some(uses) = uses {
            self.json.key("max_uses").number(uses);
        }
        match (search.allowed_domains, search.blocked_domains) {
            (Some(allowed), blocked) => {
                self.json.key("allowed_domains").raw(allowed);
                // The provider accepts only one of the two lists.
                if blocked.is_some() {
                    self.notes.lose("web_search_filters");
                }
            }
            (None, Some(blocked)) => {
                self.json.key("blocked_domains").raw(blocked);
            }
            (None, None) => {}
        }
        if let Some(location) = search.location {
            self.location(location);
        }
        self.write_mark(search.cache, self.automatic.of_search());
        self.json.end_object();
    }

    fn location(&mut self, location: RawJson<'_>) {
        const NAMES: [&str; 4] = ["city", "region", "country", "timezone"];
        let mut found: [Option<JsonStr<'_>>; 4] = [None; 4];
        let read = members(&mut Cursor::new(location.text()), |key, json| {
            let value = json.raw()?.as_str();
            for (name, slot) in NAMES.iter().zip(&mut found) {
                if key.escaped() == *name {
                    *slot = value;
                }
            }
            Ok(())
        });
        if read.is_err() || found.iter().all(Option::is_none) {
            self.notes.lose("web_search_location");
            return;
        }
        self.json.key("user_location").begin_object().key("type").string("approximate");
        for (name, value) in NAMES.iter().zip(found) {
            if let Some(value) = value {
                self.json.key(name).paste(value);
            }
        }
        self.json.end_object();
    }

    fn tool_choice(&mut self, budget: bool) {
        let parallel = self.request.parallel_tools;
        let (mut kind, mut name) = match &self.request.tool_choice {
            // `disable_parallel_tool_use` is a member of `tool_choice`, so write the default choice.
            None if parallel == Some(false) => ("auto", None),
            None => return,
            Some(ToolChoice::Auto | ToolChoice::Allowed { required: false, .. }) => ("auto", None),
            Some(ToolChoice::None) => ("none", None),
            Some(ToolChoice::Required) => ("any", None),
            Some(ToolChoice::Tool(name)) => ("tool", Some(*name)),
            Some(ToolChoice::Search) => ("tool", Some(JsonStr::from_escaped("web_search"))),
            Some(ToolChoice::Allowed { names, required: true }) => match names.as_slice() {
                [name] => ("tool", Some(*name)),
                _ => ("any", None),
            },
        };
        if budget && matches!(kind, "any" | "tool") {
            (kind, name) = ("auto", None);
            self.notes.warn("tool_choice");
        }
        self.json.key("tool_choice").begin_object().key("type").string(kind);
        if let Some(name) = name {
            self.json.key("name").paste(name);
        }
        if let Some(parallel) = parallel.filter(|_| kind != "none") {
            self.json.key("disable_parallel_tool_use").boolean(!parallel);
        }
        self.json.end_object();
    }
}
