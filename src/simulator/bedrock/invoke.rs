//! InvokeModel: Claude whole and streamed, embeddings, and reranking. Each model has its publisher's own format.

use base64_simd::STANDARD;
use serde_json::{Value, json};

use super::super::embedding::{numbers, vector};
use super::super::http::{Reply, stage};
use super::super::ids::Ids;
use super::super::script::Ask;
use super::super::search::ranked;
use super::super::server::Call;
use super::super::stream::{Kind, schedule};
use super::super::text::tokens;
use super::super::{anthropic, directive};
use super::errors::{ApiError, Fields, OVERLOADED, constraint, extraneous, for_status, missing};
use super::models::{Family, Model};
use super::{STREAM, frames};

/// Version that the body of a request for Claude must name.
const ANTHROPIC_VERSION: &str = "bedrock-2023-05-31";
/// Maximum number of texts of a request for Cohere's embeddings.
const TEXTS: usize = 96;

pub(super) fn invoke(
    site: &anthropic::Site,
    call: &Call<'_>,
    body: &Value,
    model: &Model,
    stream: bool,
    ids: Ids,
) -> Result<Reply, ApiError> {
    if model.family == Family::Claude {
        return claude(site, call, body, model, stream, ids);
    }
    if stream {
        return Err(ApiError::invalid("The model is unsupported for streaming"));
    }
    let fields = Fields::new(body, "")?;
    let (last, answer, count) = match model.name.as_str() {
        name if name.starts_with("amazon.titan-embed-text") => titan(&fields, name.contains("-v2"))?,
        name if name.starts_with("amazon.nova-2-multimodal-embeddings") => nova_embedding(&fields)?,
        name if name.starts_with("cohere.embed") => cohere_embedding(&fields, name.contains("-v4"))?,
        name if name.starts_with("cohere.rerank") => rerank(&fields, true)?,
        name if name.starts_with("amazon.rerank") => rerank(&fields, false)?,
        _ => return Err(ApiError::invalid("This model doesn't support this operation in the simulator.")),
    };
    let (directives, _) = directive::take(&last);
    let error = |status| for_status(status).reply();
    let reply = stage(&directives, OVERLOADED, error, || Reply::json(200, &answer));
    let reply = reply.with("x-amzn-bedrock-invocation-latency", "120");
    Ok(match count {
        Some(count) => reply.with("x-amzn-bedrock-input-token-count", count.to_string()),
        None => reply,
    })
}

/// Text with directives, response, and the number of input tokens. `None` if the model does not report it.
type Answered = Result<(String, Value, Option<u64>), ApiError>;

/// Returns the request in Anthropic's own form, and whether it names betas.
fn to_messages(body: &Value, model: &Model) -> Result<(Value, bool), ApiError> {
    let fields = Fields::new(body, "")?;
    if let Some(name) = ["model", "stream"].iter().find(|name| fields.get(name).is_some()) {
        return Err(extraneous("", name));
    }
    if fields.require("anthropic_version")? != ANTHROPIC_VERSION {
        return Err(ApiError::invalid("anthropic_version: Input should be 'bedrock-2023-05-31'"));
    }
    let mut body = fields.object.clone();
    body.shift_remove("anthropic_version");
    let betas = match body.shift_remove("anthropic_beta") {
        None => Vec::new(),
        Some(betas) => serde_json::from_value::<Vec<String>>(betas)
            .map_err(|_| constraint("anthropic_beta", "", "be a list of strings"))?,
    };
    if betas.iter().any(|beta| !BETAS.contains(&beta.as_str())) {
        return Err(ApiError::invalid("invalid beta flag"));
    }
    check_tools(body.get("tools"), &betas)?;
    for name in ["tools", "system", "messages"] {
        check_marks(body.get(name).unwrap_or(&Value::Null), name)?;
    }
    check_marks(&json!({"cache_control": body.get("cache_control")}), "")?;
    body.insert("model".to_owned(), json!(model.claude()));
    Ok((Value::Object(body), !betas.is_empty()))
}

/// Refuses the members of tools that the service does not know, or only with a beta.
fn check_tools(tools: Option<&Value>, betas: &[String]) -> Result<(), ApiError> {
    let members = [
        ("eager_input_streaming", None),
        ("allowed_callers", None),
        ("defer_loading", Some("tool-search-tool-2025-10-19")),
        ("input_examples", Some("tool-examples-2025-10-29")),
    ];
    for (at, tool) in tools.and_then(Value::as_array).into_iter().flatten().enumerate() {
        for (name, needed) in members {
            let is_known = needed.is_some_and(|needed| betas.iter().any(|beta| beta == needed));
            if tool.get(name).is_some() && !is_known {
                return Err(extra_input(&format!("tools.{at}.custom.{name}")));
            }
        }
    }
    Ok(())
}

/// Refuses cache marks with a scope, in tools, system prompt and turns. Schemas and inputs of tools may have anything.
fn check_marks(value: &Value, path: &str) -> Result<(), ApiError> {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(at, item)| check_marks(item, &format!("{path}.{at}")))
        }
        Value::Object(members) => {
            if members.get("cache_control").is_some_and(|mark| mark.get("scope").is_some()) {
                return Err(extra_input(&format!("{path}.cache_control.ephemeral.scope")));
            }
            let inner = members.iter().filter(|(name, _)| matches!(name.as_str(), "content" | "source"));
            inner.into_iter().try_for_each(|(name, value)| check_marks(value, &format!("{path}.{name}")))
        }
        _ => Ok(()),
    }
}

fn extra_input(path: &str) -> ApiError {
    ApiError::invalid(format!("{path}: Extra inputs are not permitted"))
}

/// Betas that the service knows, November 2026.
const BETAS: [&str; 14] = [
    "computer-use-2024-10-22",
    "computer-use-2025-01-24",
    "computer-use-2025-11-20",
    "token-efficient-tools-2025-02-19",
    "interleaved-thinking-2025-05-14",
    "output-128k-2025-02-19",
    "dev-full-thinking-2025-05-14",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "effort-2025-11-24",
    "tool-search-tool-2025-10-19",
    "tool-examples-2025-10-29",
    "compact-2026-01-12",
    "structured-outputs-2025-12-15",
];

fn claude(
    site: &anthropic::Site,
    call: &Call<'_>,
    body: &Value,
    model: &Model,
    stream: bool,
    mut ids: Ids,
) -> Result<Reply, ApiError> {
    let (body, beta) = to_messages(body, model)?;
    let asked = anthropic::read(&body, beta, Some(call)).map_err(ApiError::invalid)?;
    let error = |status| for_status(status).reply();
    let directives = asked.ask().directives.clone();
    let overload = directives.error_status.unwrap_or(OVERLOADED);
    let reply = || {
        if !stream {
            let message = site.message(&body, &asked, &mut ids);
            let count = |name: &str| {
                message.pointer(&format!("/usage/{name}")).map_or(0, |n| n.as_u64().unwrap_or(0))
            };
            let (input, output) = (count("input_tokens"), count("output_tokens"));
            return Reply::json(200, &message)
                .with("x-amzn-bedrock-input-token-count", input.to_string())
                .with("x-amzn-bedrock-output-token-count", output.to_string())
                .with(
                    "x-amzn-bedrock-cache-read-input-token-count",
                    count("cache_read_input_tokens").to_string(),
                )
                .with(
                    "x-amzn-bedrock-cache-write-input-token-count",
                    count("cache_creation_input_tokens").to_string(),
                )
                .with("x-amzn-bedrock-invocation-latency", "900");
        }
        let mut events = site.events(&body, &asked, &mut ids);
        // The service sends no pings.
        events.retain(|(_, event)| event.get("type") != Some(&json!("ping")));
        let output = asked.ask().plan(0).output_tokens();
        if let Some((_, Value::Object(last))) = events.last_mut() {
            let metrics = json!({"inputTokenCount": asked.ask().prompt_tokens, "outputTokenCount": output,
                                 "invocationLatency": 900, "firstByteLatency": 300});
            last.insert("amazon-bedrock-invocationMetrics".to_owned(), metrics);
        }
        let frames = events.into_iter().map(|(kind, event)| chunk(kind, &event, &mut ids)).collect();
        let steps = schedule(frames, call.pacing, &directives, |_| vec![for_status(overload).exception()]);
        Reply::stream(STREAM, steps).with("x-amzn-bedrock-content-type", "application/json")
    };
    Ok(stage(&directives, overload, error, reply))
}

fn chunk(kind: Kind, event: &Value, ids: &mut Ids) -> super::super::stream::Frame {
    let bytes = STANDARD.encode_to_string(event.to_string());
    frames::event(kind, "chunk", json!({"bytes": bytes}), ids)
}

/// Returns the parsed request of a token count. Its `max_tokens` is required, as in InvokeModel.
pub(super) fn count(bytes: &[u8], model: &Model) -> Result<Ask, ApiError> {
    let body: Value = serde_json::from_slice(bytes).map_err(|_| {
        ApiError::invalid("Malformed input request, please reformat your input and try again.")
    })?;
    let (body, beta) = to_messages(&body, model)?;
    let asked = anthropic::read(&body, beta, None).map_err(ApiError::invalid)?;
    Ok(asked.ask().clone())
}

fn titan(body: &Fields<'_>, newer: bool) -> Answered {
    body.only(if newer {
        &["inputText", "dimensions", "normalize", "embeddingTypes"]
    } else {
        &["inputText"]
    })?;
    let text = body.require("inputText")?;
    if text.is_empty() {
        return Err(constraint("inputText", "", "have length greater than or equal to 1"));
    }
    let dimensions = dimensions(body, "dimensions", &[256, 512, 1_024])?;
    let size = dimensions.unwrap_or(if newer { 1_024 } else { 1_536 });
    let embedding = numbers(&vector(directive::take(text).1.as_bytes(), size));
    let count = tokens(text.len());
    let answer = if newer {
        json!({"embedding": embedding, "embeddingsByType": {"float": embedding}, "inputTextTokenCount": count})
    } else {
        json!({"embedding": embedding, "inputTextTokenCount": count})
    };
    Ok((text.to_owned(), answer, Some(count)))
}

fn nova_embedding(body: &Fields<'_>) -> Answered {
    body.only(&["schemaVersion", "taskType", "singleEmbeddingParams"])?;
    if body.require("taskType")? != "SINGLE_EMBEDDING" {
        return Err(constraint("taskType", "", "satisfy enum value set: [SINGLE_EMBEDDING]"));
    }
    let params = body.object("singleEmbeddingParams")?.ok_or_else(|| missing("singleEmbeddingParams"))?;
    params.only(&["embeddingPurpose", "embeddingDimension", "text"])?;
    params.require("embeddingPurpose")?;
    let text = params.object("text")?.ok_or_else(|| missing("singleEmbeddingParams.text"))?;
    text.only(&["truncationMode", "value"])?;
    text.require("truncationMode")?;
    let value = text.require("value")?;
    let size = dimensions(&params, "embeddingDimension", &[256, 384, 1_024, 3_072])?.unwrap_or(3_072);
    let embedding = numbers(&vector(directive::take(value).1.as_bytes(), size));
    let answer = json!({"embeddings": [{"embedding": embedding, "embeddingType": "TEXT"}]});
    Ok((value.to_owned(), answer, Some(tokens(value.len()))))
}

fn cohere_embedding(body: &Fields<'_>, newer: bool) -> Answered {
    let newest =
        ["texts", "input_type", "truncate", "embedding_types", "images", "output_dimension", "max_tokens"];
    body.only(newest.get(..if newer { 7 } else { 5 }).unwrap_or_default())?;
    let purpose = body.require("input_type")?;
    if !["search_document", "search_query", "classification", "clustering", "image"].contains(&purpose) {
        return Err(ApiError::invalid("Malformed input request: input_type is not valid"));
    }
    if let Some(truncate) = body.string("truncate")?
        && !["NONE", "START", "END", "LEFT", "RIGHT"].contains(&truncate)
    {
        return Err(constraint("truncate", truncate, "satisfy enum value set: [NONE, START, END]"));
    }
    let texts = texts(body, "texts", TEXTS)?;
    let dimensions = dimensions(body, "output_dimension", &[256, 512, 1_024, 1_536])?;
    let size = dimensions.unwrap_or(if newer { 1_536 } else { 1_024 });
    let vectors: Vec<Value> = texts
        .iter()
        .map(|text| numbers(&vector((directive::take(text).1 + purpose).as_bytes(), size)))
        .collect();
    let by_type = newer || body.get("embedding_types").is_some();
    let shown: Vec<String> =
        texts.iter().map(|text| if newer { (*text).to_owned() } else { text.to_lowercase() }).collect();
    let (embeddings, kind) = if by_type {
        (json!({"float": vectors}), "embeddings_by_type")
    } else {
        (json!(vectors), "embeddings_floats")
    };
    let answer = json!({"embeddings": embeddings, "id": "5eed0f5e-a15e-4a1e-8d00-000000000001",
                        "response_type": kind, "texts": shown});
    let count = texts.iter().map(|text| tokens(text.len())).sum();
    Ok((texts.last().map_or_else(String::new, |text| (*text).to_owned()), answer, Some(count)))
}

/// Reranks with the publisher's own format. Cohere's needs its API version.
fn rerank(body: &Fields<'_>, versioned: bool) -> Answered {
    body.only(&["query", "documents", "top_n", "api_version", "max_tokens_per_doc"])?;
    if versioned && body.get("api_version").and_then(Value::as_u64) != Some(2) {
        return Err(ApiError::invalid("Malformed input request: #: required key [api_version] not found"));
    }
    let query = body.require("query")?;
    let documents = texts(body, "documents", 1_000)?;
    let top = body.get("top_n").and_then(Value::as_u64).and_then(|top| usize::try_from(top).ok());
    let results: Vec<Value> = ranked(query, &documents, top)
        .into_iter()
        .map(|(index, score)| json!({"index": index, "relevance_score": score}))
        .collect();
    Ok((query.to_owned(), json!({"results": results}), None))
}

/// Reranks with the API of the agent runtime.
pub(super) fn rerank_documents(body: &Value) -> Result<Reply, ApiError> {
    let body = Fields::new(body, "")?;
    body.only(&["queries", "sources", "rerankingConfiguration", "nextToken"])?;
    let text = |value: &Value, path: &str, object: &str| -> Result<String, ApiError> {
        match value.pointer(object).and_then(Value::as_str) {
            Some(text) if value.get("type").is_some() => Ok(text.to_owned()),
            _ => Err(missing(path)),
        }
    };
    let queries = body.array("queries")?.ok_or_else(|| missing("queries"))?;
    let [query] = queries.as_slice() else {
        return Err(constraint("queries", "", "have length less than or equal to 1"));
    };
    let query = text(query, "queries.0.textQuery.text", "/textQuery/text")?;
    let sources = body.array("sources")?.ok_or_else(|| missing("sources"))?;
    let sources = sources.iter().enumerate().map(|(at, source)| {
        let path = format!("sources.{at}.inlineDocumentSource.textDocument.text");
        text(source, &path, "/inlineDocumentSource/textDocument/text")
    });
    let documents = sources.collect::<Result<Vec<String>, ApiError>>()?;
    if !(1..=1_000).contains(&documents.len()) {
        return Err(constraint("sources", "", "have length between 1 and 1000"));
    }
    let config = body.object("rerankingConfiguration")?.ok_or_else(|| missing("rerankingConfiguration"))?;
    if config.require("type")? != "BEDROCK_RERANKING_MODEL" {
        return Err(constraint("rerankingConfiguration.type", "", "satisfy enum value set"));
    }
    let inner = config.object("bedrockRerankingConfiguration")?;
    let inner = inner.ok_or_else(|| missing("rerankingConfiguration.bedrockRerankingConfiguration"))?;
    let model =
        inner.object("modelConfiguration")?.ok_or_else(|| missing(&inner.at("modelConfiguration")))?;
    let arn = model.require("modelArn")?;
    if !arn.starts_with("arn:aws:bedrock:") || !arn.contains("rerank") {
        return Err(ApiError::invalid("The provided model identifier is invalid."));
    }
    let top = inner.get("numberOfResults").and_then(Value::as_u64).and_then(|top| usize::try_from(top).ok());
    let (directives, _) = directive::take(&query);
    let texts: Vec<&str> = documents.iter().map(String::as_str).collect();
    let results: Vec<Value> = ranked(&query, &texts, top)
        .into_iter()
        .map(|(index, score)| json!({"index": index, "relevanceScore": score}))
        .collect();
    let error = |status| for_status(status).reply();
    Ok(stage(&directives, OVERLOADED, error, || Reply::json(200, &json!({"results": results}))))
}

fn texts<'a>(body: &Fields<'a>, name: &str, most: usize) -> Result<Vec<&'a str>, ApiError> {
    let items = body.array(name)?.ok_or_else(|| missing(name))?;
    let texts: Option<Vec<&str>> =
        items.iter().map(|item| item.as_str().filter(|text| !text.is_empty())).collect();
    match texts {
        Some(texts) if (1..=most).contains(&texts.len()) => Ok(texts),
        _ => Err(ApiError::invalid(format!(
            "Malformed input request: #/{name}: expected 1 to {most} strings, please reformat your input and try again."
        ))),
    }
}

fn dimensions(body: &Fields<'_>, name: &str, known: &[u64]) -> Result<Option<usize>, ApiError> {
    match body.get(name) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|size| known.contains(size)) {
            Some(size) => Ok(usize::try_from(size).ok()),
            None => Err(constraint(&body.at(name), &value.to_string(), &format!("be one of {known:?}"))),
        },
    }
}
