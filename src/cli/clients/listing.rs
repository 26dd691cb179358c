//! Models of a gateway, as its listings have them.

use serde::Deserialize;
use serde_json::Value;

/// Number of models that an error names.
const NAMED: usize = 12;

/// Model of the listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayModel {
    /// Model id, as requests name it.
    pub(super) id: String,
    /// Context window (tokens). `None` if the gateway does not say it.
    pub(super) window: Option<u64>,
    /// Maximum output of a response (tokens). `None` if the gateway does not say it.
    pub(super) max_output: Option<u64>,
    /// Id of the model that `id` is an alias of. `None` if it is none.
    pub(super) alias_of: Option<String>,
}

impl GatewayModel {
    /// Returns the id of the model itself, also for an alias.
    pub(super) fn true_id(&self) -> &str {
        self.alias_of.as_deref().unwrap_or(&self.id)
    }

    /// Returns the output (tokens) that a client may request every time: the maximum, but at most half of the context
    /// window, because some providers refuse a request whose input and requested output do not fit together. `None` if
    /// the maximum is not known.
    pub(super) fn output_limit(&self) -> Option<u64> {
        let half = self.window.map_or(u64::MAX, |window| window / 2);
        self.max_output.map(|tokens| tokens.min(half)).filter(|tokens| *tokens > 0)
    }
}

/// Listing of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayModels {
    /// Models that serve conversations, in listing order.
    pub(super) models: Vec<GatewayModel>,
    /// Ids of the other models: those for embeddings, reranking, images and video.
    pub(super) others: Vec<String>,
    /// Whether the gateway also has the model catalogue of Codex.
    pub(super) codex_catalogue: bool,
    /// Whether the gateway says that it serves the responses API over WebSocket.
    pub(super) websockets: bool,
}

impl GatewayModels {
    /// Returns a model, or `None` if it is not listed.
    pub(super) fn get(&self, id: &str) -> Option<&GatewayModel> {
        self.models.iter().find(|model| model.id == id)
    }

    /// Returns the model that a name means: a listed id, or one with the prefix `<provider>/` or a suffix such as
    /// `-thinking-low`. `None` if it means none.
    pub(super) fn find(&self, name: &str) -> Option<&GatewayModel> {
        let without_suffix = |name| {
            ["-thinking", "-nothinking"].iter().find_map(|mark| {
                let at = str::rfind(name, mark)?;
                self.get(name.get(..at)?)
            })
        };
        let rest = name.split_once('/').map(|(_, rest)| rest);
        self.get(name)
            .or_else(|| without_suffix(name))
            .or_else(|| rest.and_then(|rest| self.get(rest).or_else(|| without_suffix(rest))))
    }

    /// Returns the ids for an error message, those that resemble `wanted` first.
    pub(super) fn named(&self, wanted: &str) -> String {
        if self.models.is_empty() {
            return "no model for this key".to_owned();
        }
        let mut ids: Vec<&str> = self.models.iter().map(|model| model.id.as_str()).collect();
        ids.sort_by_key(|id| std::cmp::Reverse(common_prefix(id, wanted)));
        let more = ids.len().saturating_sub(NAMED);
        ids.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", ids.join(", "))
    }
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// Listing in OpenAI's shape.
#[derive(Deserialize)]
struct Listing {
    data: Vec<Entry>,
}

/// Entry of a listing. Gateways have different names for the limits of a model; an entry can have several of them.
#[derive(Deserialize)]
struct Entry {
    id: String,
    alias_of: Option<Value>,
    /// False for a model that cannot converse. A listing that does not say it has none.
    conversational: Option<Value>,
    context_window: Option<Value>,
    context_length: Option<Value>,
    max_input_tokens: Option<Value>,
    max_output_tokens: Option<Value>,
    max_completion_tokens: Option<Value>,
    max_tokens: Option<Value>,
}

impl From<Entry> for GatewayModel {
    fn from(entry: Entry) -> Self {
        GatewayModel {
            window: first([entry.context_window, entry.context_length, entry.max_input_tokens]),
            max_output: first([entry.max_output_tokens, entry.max_completion_tokens, entry.max_tokens]),
            alias_of: entry
                .alias_of
                .and_then(|id| id.as_str().filter(|id| is_model_id(id)).map(str::to_owned)),
            id: entry.id,
        }
    }
}

/// Parses a listing in OpenAI's shape.
///
/// # Errors
/// Returns what is wrong with a body that is none.
pub(super) fn parse(body: &[u8]) -> Result<GatewayModels, String> {
    let listing: Listing = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let entries = listing.data.into_iter().filter(|entry| is_model_id(&entry.id));
    let (others, models): (Vec<Entry>, Vec<Entry>) =
        entries.partition(|entry| entry.conversational == Some(Value::Bool(false)));
    Ok(GatewayModels {
        models: models.into_iter().map(GatewayModel::from).collect(),
        others: others.into_iter().map(|entry| entry.id).collect(),
        ..GatewayModels::default()
    })
}

/// Parses a single entry in OpenAI's shape. `None` if it cannot converse.
///
/// # Errors
/// Returns what is wrong with a body that is none.
pub(super) fn parse_one(body: &[u8]) -> Result<Option<GatewayModel>, String> {
    let entry: Entry = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let converses = entry.conversational != Some(Value::Bool(false));
    Ok((converses && is_model_id(&entry.id)).then(|| entry.into()))
}

/// Model as the discovery of Claude Code gets it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Discovered {
    pub(super) id: String,
}

impl Discovered {
    /// Whether Claude Code 2.1.330 shows the model.
    pub(super) fn is_shown(&self) -> bool {
        let id = self.id.to_ascii_lowercase();
        id.contains("claude") || id.contains("anthropic")
    }
}

/// Parses a listing in Anthropic's shape.
///
/// # Errors
/// Returns what is wrong with a body that is none.
pub(super) fn parse_discovery(body: &[u8]) -> Result<Vec<Discovered>, String> {
    #[derive(Deserialize)]
    struct Page {
        data: Vec<Discovered>,
        /// OpenAI's shape has no such member.
        #[serde(rename = "has_more")]
        _has_more: bool,
    }
    serde_json::from_slice::<Page>(body).map(|page| page.data).map_err(|error| error.to_string())
}

/// Returns the first value that is a number of tokens.
fn first(values: [Option<Value>; 3]) -> Option<u64> {
    values.into_iter().flatten().find_map(|value| value.as_u64().filter(|tokens| *tokens > 0))
}

/// Whether a text can be a model id: it goes into settings files and command lines.
pub(super) fn is_model_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 256 && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Whether a body is the model catalogue of Codex: an object with the member `models`.
pub(super) fn is_catalogue(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Catalogue {
        models: Vec<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Catalogue>(body).is_ok_and(|catalogue| !catalogue.models.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{GatewayModel, GatewayModels, is_catalogue, parse, parse_discovery, parse_one};

    #[test]
    fn listing_limits_are_read_under_their_names() {
        let body = br#"{"object":"list","data":[
            {"id":"a","context_window":200000,"max_input_tokens":null,"max_output_tokens":32000},
            {"id":"b","context_length":128000,"max_completion_tokens":0},
            {"id":"c","max_input_tokens":null,"conversational":true},
            {"id":"text-embedding-3-small","conversational":false},
            {"id":"bad id"}, {"id":""}]}"#;
        let model = |id: &str, window, max_output| GatewayModel {
            id: id.to_owned(),
            window,
            max_output,
            alias_of: None,
        };
        let expected = vec![
            model("a", Some(200_000), Some(32_000)),
            model("b", Some(128_000), None),
            model("c", None, None),
        ];
        let listing = parse(body).unwrap();
        assert_eq!(listing.models, expected);
        assert_eq!(listing.others, ["text-embedding-3-small"]);
        assert!(parse(b"<html>").is_err());
        assert!(parse(br#"{"models":[]}"#).is_err());
    }

    #[test]
    fn entry_of_an_alias_has_the_model_that_it_stands_for() {
        let alias = parse_one(br#"{"id":"claude-gw-a","alias_of":"a","context_window":9}"#).unwrap().unwrap();
        assert_eq!((alias.id.as_str(), alias.true_id(), alias.window), ("claude-gw-a", "a", Some(9)));
        assert_eq!(parse_one(br#"{"id":"a","alias_of":null}"#).unwrap().unwrap().true_id(), "a");
        assert_eq!(parse_one(br#"{"id":"e","conversational":false}"#).unwrap(), None);
        assert!(parse_one(b"{}").is_err());
    }

    #[test]
    fn output_limit_leaves_half_of_the_window_to_the_input() {
        let model = |window, max_output| GatewayModel { window, max_output, ..GatewayModel::default() };
        assert_eq!(model(Some(200_000), Some(64_000)).output_limit(), Some(64_000));
        assert_eq!(model(Some(128_000), Some(128_000)).output_limit(), Some(64_000));
        assert_eq!(model(None, Some(8_000)).output_limit(), Some(8_000));
        assert_eq!(model(Some(128_000), None).output_limit(), None);
    }

    #[test]
    fn discovery_is_in_the_shape_of_anthropic() {
        let page = br#"{"data":[{"type":"model","id":"claude-gw-a","display_name":"a"},{"id":"a"}],"has_more":false}"#;
        let shown: Vec<bool> =
            parse_discovery(page).unwrap().iter().map(super::Discovered::is_shown).collect();
        assert_eq!(shown, [true, false]);
        assert!(parse_discovery(br#"{"object":"list","data":[{"id":"a"}]}"#).is_err());
    }

    #[test]
    fn listing_finds_models_and_names_similar_ones() {
        let models = ["gpt-4o", "claude-sonnet-4-6", "claude-haiku-4-5"];
        let models = models.map(|id| GatewayModel { id: id.to_owned(), ..GatewayModel::default() }).to_vec();
        let listing = GatewayModels { models, ..GatewayModels::default() };
        for (name, found) in [
            ("gpt-4o", Some("gpt-4o")),
            ("openai/gpt-4o", Some("gpt-4o")),
            ("claude-haiku-4-5-thinking-8192", Some("claude-haiku-4-5")),
            ("anthropic/claude-haiku-4-5-nothinking", Some("claude-haiku-4-5")),
            ("gpt-4o-mini", None),
            ("thinking", None),
        ] {
            assert_eq!(listing.find(name).map(|model| model.id.as_str()), found, "{name}");
        }
        assert_eq!(listing.named("claude-h"), "claude-haiku-4-5, claude-sonnet-4-6, gpt-4o");
    }

    #[test]
    fn catalogue_is_recognized_by_its_models() {
        assert!(is_catalogue(br#"{"models":[{"slug":"x"}]}"#));
        assert!(!is_catalogue(br#"{"models":[]}"#) && !is_catalogue(br#"{"object":"list","data":[]}"#));
    }
}
