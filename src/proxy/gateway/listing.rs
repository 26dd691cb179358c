//! Model listing: which models a key sees, and which page of them a client gets.

use bytes::Bytes;
use http::header;
use pingora::http::RequestHeader;

use super::refusals::unknown_model;
use codec::canonical::Dialect;
use codec::canonical::dialect::ReasoningSupport;
use codec::canonical::request::Effort;
use codec::error::{ApiError, ErrorKind};
use codec::wire::models::{self, ListedModel, ListingPage, ListingShape};
use codec::wire::path::{self, Endpoint};
use codec::wire::{Api, Format};
use routing::account::Key;
use routing::route::alias::{Alias, Aliases};
use routing::route::{Model, RoutingTable, Target, upstream_api};

/// Maximum page size of the model listing (Anthropic and Gemini: 1000).
const MAX_PAGE: usize = 1000;

/// What a client asks of the listing.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListingRequest<'q> {
    pub(super) shape: ListingShape,
    pub(super) query: Option<&'q str>,
    /// Whether the client is Claude Code, which shows models by their names only: the others are listed under an alias too.
    /// Any other client would show these models twice.
    pub(super) shows_aliases: bool,
}

impl<'q> ListingRequest<'q> {
    /// Creates the request of a client with these headers.
    pub(super) fn new(shape: ListingShape, query: Option<&'q str>, head: &RequestHeader) -> Self {
        ListingRequest { shape, query, shows_aliases: is_claude_code(head) }
    }
}

/// Returns whether a request is one of Claude Code, which asks for its list of models as `claude-code/2.1.330` and for
/// messages as `claude-cli/2.1.330`.
fn is_claude_code(head: &RequestHeader) -> bool {
    let agent = head.headers.get(header::USER_AGENT).map(|agent| agent.as_bytes()).unwrap_or_default();
    agent.starts_with(b"claude-code/") || agent.starts_with(b"claude-cli/")
}

/// Builds the body of `GET /v1/models` and `GET /v1/models/{id}`: models that the key may use.
///
/// # Errors
/// Returns [`ErrorKind::UnknownModel`] for a model that does not exist or that the key may not use, and
/// [`ErrorKind::InvalidField`] for an invalid page.
pub(super) fn list_models(
    endpoint: &Endpoint,
    request: &ListingRequest<'_>,
    table: &RoutingTable,
    key: &Key,
) -> Result<Bytes, ApiError> {
    let ListingRequest { shape, query, shows_aliases } = *request;
    let permission = &key.rules.models;
    let mut out = bytes::BytesMut::with_capacity(128 + table.models().len() * 96);
    if let Endpoint::Model { id } = endpoint {
        // Every name that requests can use: `claude-x`, `anthropic/claude-x`, `claude-x-thinking-low`.
        let named = table.resolve(id).filter(|named| permission.permits(&named.model.id));
        let named = named.ok_or_else(|| unknown_model(id))?;
        let model = entry(named.model);
        let listed = named.alias.map_or(model.clone(), |alias| aliased(model, alias));
        models::encode_one(shape, &listed, &mut out);
    } else {
        let page = page(shape, query)?;
        let permitted = table.models().iter().filter(|model| permission.permits(&model.id));
        let entries: Vec<ListedModel<'_>> = match shape {
            ListingShape::Catalogue => permitted
                .filter(|model| is_conversational(model))
                .map(|model| ListedModel {
                    efforts: efforts(model),
                    image_input: all_targets(model, |dialect| dialect.image_input),
                    parallel_tool_calls: all_targets(model, |dialect| dialect.parallel_tool_calls),
                    gpt5_parameters: has_gpt5_parameters(model),
                    ..entry(model)
                })
                .collect(),
            ListingShape::Messages if shows_aliases => {
                permitted.flat_map(|model| with_alias(model, table.aliases())).collect()
            }
            _ => permitted.map(|model| entry(model)).collect(),
        };
        for (id, name) in [(&page.after, after_name(shape)), (&page.before, "before_id")] {
            // An unknown cursor must be an error: a client that got the first page instead would page forever.
            if id.as_ref().is_some_and(|id| !entries.iter().any(|entry| *entry.id == **id)) {
                let message = format!("'{name}' does not name a model in this list.");
                return Err(ApiError::new(ErrorKind::InvalidField, message).param(name));
            }
        }
        models::encode_list(shape, &entries, &page, &mut out);
    }
    Ok(out.freeze())
}

/// Returns the entry of a model, and that of its alias if it has one.
fn with_alias<'t>(model: &'t Model, aliases: &'t Aliases) -> impl Iterator<Item = ListedModel<'t>> + use<'t> {
    let alias = aliases.of(model).map(|alias| aliased(entry(model), alias));
    std::iter::once(entry(model)).chain(alias)
}

/// Returns the entry of the alias of a model.
fn aliased<'t>(model: ListedModel<'t>, alias: &'t Alias) -> ListedModel<'t> {
    ListedModel { id: &alias.id, alias_of: Some(model.id), ..model }
}

fn entry(model: &Model) -> ListedModel<'_> {
    ListedModel {
        id: &model.id,
        alias_of: None,
        owned_by: &model.owned_by,
        created: if model.created == 0 { models::release_time(&model.id) } else { model.created },
        conversational: is_conversational(model),
        methods: methods(model),
        context_window: model.context_window,
        input_limit: model.listed.input,
        max_output_tokens: model.abilities.max_output_tokens.or(model.listed.output),
        efforts: Vec::new(),
        image_input: true,
        parallel_tool_calls: true,
        gpt5_parameters: false,
    }
}

/// Returns whether a model serves conversations.
fn is_conversational(model: &Model) -> bool {
    model.enabled_targets().any(Target::is_conversational)
}

/// Returns whether all enabled targets of a model have an ability for a client of the responses format.
fn all_targets(model: &Model, has: fn(&Dialect<'_>) -> bool) -> bool {
    model
        .enabled_targets()
        .all(|target| upstream_api(target, Api::Responses).is_none_or(|api| has(&target.dialect(api))))
}

/// Returns whether all enabled targets of a model take the parameters of GPT-5 from a client of the responses format.
fn has_gpt5_parameters(model: &Model) -> bool {
    model.enabled_targets().all(|target| {
        let api = upstream_api(target, Api::Responses);
        api.is_none_or(|api| target.provider.has_gpt5_parameters(api, target.known_model()))
    })
}

/// Returns the reasoning efforts that all enabled targets of a model support for a client of the responses format.
fn efforts(model: &Model) -> Vec<Effort> {
    let supports = |target: &Target, effort: &Effort| {
        let api = upstream_api(target, Api::Responses);
        match api.map(|api| target.dialect(api).reasoning) {
            None | Some(ReasoningSupport::Fixed) => false,
            Some(ReasoningSupport::Budget { .. }) => true,
            Some(ReasoningSupport::Effort { efforts, .. } | ReasoningSupport::Adaptive { efforts, .. }) => {
                efforts.has(*effort)
            }
        }
    };
    let all = |effort: &Effort| model.enabled_targets().all(|target| supports(target, effort));
    Effort::ALL.into_iter().filter(all).collect()
}

/// Returns the methods of the generate API that a model serves.
fn methods(model: &Model) -> &'static [&'static str] {
    let chats = Format::ALL.into_iter().any(|format| model.offers(format.api()));
    let embeds = model.offers(Api::Embeddings) || model.offers(Api::EmbedContent);
    match (chats, embeds) {
        (true, true) => {
            &["generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents"]
        }
        (true, false) => &["generateContent", "streamGenerateContent", "countTokens"],
        (false, true) => &["embedContent", "batchEmbedContents"],
        (false, false) => &[],
    }
}

/// Returns the name of the query parameter with the cursor of the next page.
fn after_name(shape: ListingShape) -> &'static str {
    if shape == ListingShape::Generate { "pageToken" } else { "after_id" }
}

/// Parses the page parameters of a model listing. The default page size is 20 for Anthropic and 50 for Gemini.
fn page(shape: ListingShape, query: Option<&str>) -> Result<ListingPage, ApiError> {
    let text = |name| path::query_value(query, name).filter(|value| !value.is_empty());
    let limit = |name: &'static str, default| match text(name).map(|value| value.parse::<usize>()) {
        None => Ok(Some(default)),
        Some(Ok(n)) if (1..=MAX_PAGE).contains(&n) => Ok(Some(n)),
        Some(_) => {
            let message = format!("'{name}' must be a number from 1 to {MAX_PAGE}.");
            Err(ApiError::new(ErrorKind::InvalidField, message).param(name))
        }
    };
    Ok(match shape {
        ListingShape::List | ListingShape::Catalogue => ListingPage::default(),
        ListingShape::Messages => ListingPage {
            limit: limit("limit", 20)?,
            after: text("after_id").map(Into::into),
            before: text("before_id").map(Into::into),
        },
        ListingShape::Generate => {
            // Gemini treats 0 as the default and clamps larger values.
            let large = text("pageSize").and_then(|value| value.parse::<u64>().ok());
            let limit = match large {
                Some(0) => Some(50),
                Some(n) if n > MAX_PAGE as u64 => Some(MAX_PAGE),
                _ => limit("pageSize", 50)?,
            };
            ListingPage { limit, after: text("pageToken").map(Into::into), before: None }
        }
    })
}
