//! Model listing in the shapes of the OpenAI, Anthropic and Gemini APIs, and of the catalogue of Codex.

use bytes::BytesMut;

use super::{Format, catalogue};
use crate::canonical::request::Effort;
use crate::canonical::time::{rfc3339, unix_seconds};
use json::{Sink, Writer};

/// Shape of the model listing that a client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingShape {
    /// OpenAI's list, the default.
    List,
    /// Anthropic's `ModelInfo` list.
    Messages,
    /// Gemini's `models` list.
    Generate,
    /// Model catalogue of Codex; a single model has OpenAI's shape.
    Catalogue,
}

impl ListingShape {
    /// Returns the format that errors of the listing have.
    pub fn format(self) -> Format {
        match self {
            ListingShape::List | ListingShape::Catalogue => Format::Chat,
            ListingShape::Messages => Format::Messages,
            ListingShape::Generate => Format::Generate,
        }
    }
}

/// Properties of a request that determine the listing shape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Whether the path lies under `/v1beta`.
    pub beta: bool,
    /// Whether the header `anthropic-version` is present, with any kind of key header: Anthropic's SDKs of 2026 send
    /// `Authorization: Bearer` instead of `x-api-key`. Also set for `x-api-key` with the version header of another
    /// provider.
    pub provider_version: bool,
    /// Whether the header `x-goog-api-key` or `x-vendor-api-key` or the query parameter `key` is present.
    pub google_key: bool,
    /// Whether the query parameter `client_version` is present, which only Codex sends.
    pub client_version: bool,
}

impl Hints {
    /// Returns the listing shape.
    pub fn shape(self) -> ListingShape {
        if self.beta {
            ListingShape::Generate
        } else if self.provider_version {
            ListingShape::Messages
        } else if self.google_key {
            ListingShape::Generate
        } else if self.client_version {
            ListingShape::Catalogue
        } else {
            ListingShape::List
        }
    }
}

/// Release time of a model whose name has no date: the start of 2025. Clients sort by it, and show no model of 1970.
const UNDATED: i64 = 1_735_689_600;

/// Returns the release time of a model without a configured one: the date in its name (`-20250929`, `-2024-08-06`).
pub fn release_time(id: &str) -> i64 {
    let date = (0..id.len()).find_map(|start| {
        let digits = |length: usize| id.get(start..start + length).filter(|text| is_date_like(text));
        let text = match (digits(10), digits(8)) {
            (Some(text), _) if text.as_bytes().get(4) == Some(&b'-') => text.to_owned(),
            (_, Some(text)) if !text.contains('-') => {
                let (year, rest) = text.split_at_checked(4)?;
                let (month, day) = rest.split_at_checked(2)?;
                format!("{year}-{month}-{day}")
            }
            _ => return None,
        };
        unix_seconds(&format!("{text}T00:00:00Z")).filter(|time| *time > 0)
    });
    date.unwrap_or(UNDATED)
}

fn is_date_like(text: &str) -> bool {
    text.starts_with("20") && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Entry of the model listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel<'a> {
    /// Model id, as requests name it.
    pub id: &'a str,
    /// Id of the model that this entry is an alias of. `None` if it is none.
    pub alias_of: Option<&'a str>,
    /// Organization that made the model.
    pub owned_by: &'a str,
    /// Release time (Unix seconds).
    pub created: i64,
    /// Whether the model serves conversations. Embedding, reranking, image and video models do not.
    pub conversational: bool,
    /// Native Gemini methods that the model supports (`generateContent` and so on).
    pub methods: &'a [&'a str],
    /// Context window (tokens). `None` if it is not known.
    pub context_window: Option<u32>,
    /// Most input of a request (tokens), if it is less than the context window. `None` if it is not, or not known.
    pub input_limit: Option<u32>,
    /// Maximum output of a response (tokens). `None` if it is not known.
    pub max_output_tokens: Option<u32>,
    /// Reasoning efforts that requests can name, in ascending order. Only the catalogue shows them.
    pub efforts: Vec<Effort>,
    /// Whether requests may have images. Only the catalogue shows it.
    pub image_input: bool,
    /// Whether the model can call several tools in one turn. For Codex's catalogue only.
    pub parallel_tool_calls: bool,
    /// Whether requests can have a verbosity, and tools whose input is free text, as GPT-5 introduced both. For Codex's
    /// catalogue only.
    pub gpt5_parameters: bool,
}

impl ListedModel<'_> {
    /// Returns the most input of a request: the input limit, or else the context window.
    fn most_input(&self) -> Option<u32> {
        self.input_limit.or(self.context_window)
    }
}

/// Page of the listing that a client requests. Each shape has its own query parameters for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingPage {
    /// Maximum number of entries. `None` for all.
    pub limit: Option<usize>,
    /// Id of the entry before the page. `None` to start at the beginning. An unknown id gives an empty page.
    pub after: Option<String>,
    /// Id of the entry behind the page. `None` to continue to the end. An unknown id gives an empty page.
    pub before: Option<String>,
}

/// Writes the listing. `entries` are in listing order.
pub fn encode_list(shape: ListingShape, entries: &[ListedModel<'_>], page: &ListingPage, out: &mut BytesMut) {
    let (entries, more) = cut(entries, page);
    let mut json = Writer::new(out);
    json.begin_object();
    match shape {
        ListingShape::List => {
            json.key("object").string("list").key("data").begin_array();
            entries.iter().for_each(|entry| list_entry(entry, &mut json));
            json.end_array();
        }
        ListingShape::Messages => {
            json.key("data").begin_array();
            entries.iter().for_each(|entry| messages_entry(entry, &mut json));
            json.end_array();
            json.key("has_more").boolean(more);
            super::error::nullable(&mut json, "first_id", entries.first().map(|entry| entry.id));
            super::error::nullable(&mut json, "last_id", entries.last().map(|entry| entry.id));
        }
        ListingShape::Generate => {
            json.key("models").begin_array();
            entries.iter().for_each(|entry| generate_entry(entry, &mut json));
            json.end_array();
            if let Some(last) = entries.last().filter(|_| more) {
                json.key("nextPageToken").string(last.id);
            }
        }
        ListingShape::Catalogue => {
            json.key("models").begin_array();
            for (rank, entry) in entries.iter().enumerate() {
                catalogue::entry(entry, rank, &mut json);
            }
            json.end_array();
        }
    }
    json.end_object();
}

/// Writes a single entry.
pub fn encode_one(shape: ListingShape, entry: &ListedModel<'_>, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    match shape {
        ListingShape::List | ListingShape::Catalogue => list_entry(entry, &mut json),
        ListingShape::Messages => messages_entry(entry, &mut json),
        ListingShape::Generate => generate_entry(entry, &mut json),
    }
}

fn cut<'s, 'a>(entries: &'s [ListedModel<'a>], page: &ListingPage) -> (&'s [ListedModel<'a>], bool) {
    let position = |id: &str| entries.iter().position(|entry| entry.id == id);
    // An unknown id gives an empty page: a client that gets the first page instead pages forever.
    let start = page.after.as_deref().map_or(0, |id| position(id).map_or(entries.len(), |at| at + 1));
    let end = page.before.as_deref().map_or(entries.len(), |id| position(id).unwrap_or(0));
    let entries = entries.get(start..end).unwrap_or_default();
    match page.limit {
        // A page that ends before an id holds the entries directly before it.
        Some(limit) if limit < entries.len() && page.before.is_some() => {
            (entries.get(entries.len() - limit..).unwrap_or_default(), true)
        }
        Some(limit) if limit < entries.len() => (entries.get(..limit).unwrap_or_default(), true),
        _ => (entries, false),
    }
}

/// Writes a member with a number of tokens, or nothing if it is not known.
fn optional<B: Sink>(json: &mut Writer<'_, B>, name: &str, tokens: Option<u32>) {
    if let Some(tokens) = tokens {
        json.key(name).number(tokens);
    }
}

fn list_entry<B: Sink>(entry: &ListedModel<'_>, json: &mut Writer<'_, B>) {
    json.begin_object();
    json.key("id").string(entry.id).key("object").string("model");
    json.key("created").number(entry.created).key("owned_by").string(entry.owned_by);
    // Beyond OpenAI's API: coding clients read these names.
    optional(json, "context_window", entry.context_window);
    optional(json, "max_input_tokens", entry.input_limit);
    optional(json, "max_output_tokens", entry.max_output_tokens);
    if !entry.conversational {
        json.key("conversational").boolean(false);
    }
    if let Some(model) = entry.alias_of {
        json.key("alias_of").string(model);
    }
    json.end_object();
}

fn messages_entry<B: Sink>(entry: &ListedModel<'_>, json: &mut Writer<'_, B>) {
    json.begin_object();
    let shown = entry.alias_of.unwrap_or(entry.id);
    json.key("type").string("model").key("id").string(entry.id).key("display_name").string(shown);
    if entry.alias_of.is_some() {
        // Claude Code shows it in its list of models. Anthropic's own entries have none.
        json.key("description").string(&format!("{shown} by {}", entry.owned_by));
    }
    json.key("created_at").string(&rfc3339(entry.created));
    // Unknown facts are null instead of absent: the SDKs' types require these members.
    json.key("lifecycle").string("active");
    for unknown in ["capabilities", "deprecated_at", "line", "retires_at"] {
        json.key(unknown).null();
    }
    for (name, tokens) in [("max_input_tokens", entry.most_input()), ("max_tokens", entry.max_output_tokens)]
    {
        match tokens {
            Some(tokens) => json.key(name).number(tokens),
            None => json.key(name).null(),
        };
    }
    json.end_object();
}

fn generate_entry<B: Sink>(entry: &ListedModel<'_>, json: &mut Writer<'_, B>) {
    json.begin_object();
    json.key("name").string(&format!("models/{}", entry.id));
    json.key("baseModelId")
        .string(entry.id)
        .key("version")
        .string(entry.id)
        .key("displayName")
        .string(entry.id);
    json.key("description").string(&format!("{} by {}", entry.id, entry.owned_by));
    optional(json, "inputTokenLimit", entry.most_input());
    optional(json, "outputTokenLimit", entry.max_output_tokens);
    json.key("supportedGenerationMethods").begin_array();
    for method in entry.methods {
        json.string(method);
    }
    json.end_array().end_object();
}
