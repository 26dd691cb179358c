//! Models: identifiers, inference profiles, and what each family accepts.
//!
//! Any model name of a known publisher is accepted. Source: the model and profile tables of the service's user guide,
//! November 2026, and recorded refusals.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::errors::ApiError;

/// Prefixes of inference profiles with the regions that they can be called from. Empty for every region.
const GEOGRAPHIES: [(&str, &str); 8] = [
    ("us", "us-"),
    ("us-gov", "us-gov-"),
    ("eu", "eu-"),
    ("apac", "ap-"),
    ("jp", "ap-northeast-"),
    ("au", "ap-southeast-"),
    ("ca", "ca-"),
    ("global", ""),
];

/// Publishers of models.
const PUBLISHERS: [&str; 17] = [
    "ai21",
    "amazon",
    "anthropic",
    "cohere",
    "deepseek",
    "google",
    "luma",
    "meta",
    "minimax",
    "mistral",
    "moonshot",
    "nvidia",
    "openai",
    "qwen",
    "stability",
    "writer",
    "zai",
];

/// Family of models with common rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Claude,
    Nova,
    /// Mistral's models, which can be forced to call a tool.
    Mistral,
    /// Models that always reason.
    DeepSeek,
    /// Models with `reasoning_effort`.
    GptOss,
    Other,
}

/// Model that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    /// Identifier as requested, decoded.
    pub(super) requested: String,
    /// Identifier of the foundation model, without profile. The requested one for resources whose model is unknown.
    pub(super) name: String,
    pub(super) family: Family,
    /// The request names an inference profile or another resource instead of the model.
    pub(super) by_profile: bool,
}

impl Model {
    /// Resolves the label of a path, after percent-decoding. `region` is the one that the client signed for.
    pub(super) fn resolve(label: &str, region: Option<&str>) -> Result<Model, ApiError> {
        let invalid = || ApiError::invalid("The provided model identifier is invalid.");
        let (resource, label_region) = match label.strip_prefix("arn:") {
            Some(arn) => {
                let parts: Vec<&str> = arn.splitn(5, ':').collect();
                let [_, "bedrock", at, account, resource] = parts.as_slice() else { return Err(invalid()) };
                if !account.is_empty()
                    && (account.len() != 12 || !account.bytes().all(|b| b.is_ascii_digit()))
                {
                    return Err(invalid());
                }
                (*resource, Some(*at))
            }
            None => (label, None),
        };
        if label_region.zip(region).is_some_and(|(one, other)| one != other) {
            return Err(invalid());
        }
        let name = match resource.split_once('/') {
            None if label_region.is_none() => resource,
            Some(("inference-profile" | "foundation-model", id)) => id,
            Some(("application-inference-profile" | "provisioned-model", id)) if id.len() == 12 => {
                let requested = label.to_owned();
                return Ok(Model {
                    name: requested.clone(),
                    requested,
                    family: Family::Claude,
                    by_profile: true,
                });
            }
            _ => return Err(invalid()),
        };
        let (by_profile, bare) = match name.split_once('.') {
            Some((prefix, rest)) => match GEOGRAPHIES.iter().find(|(geography, _)| *geography == prefix) {
                Some((_, from)) if region.is_none_or(|region| region.starts_with(from)) => (true, rest),
                Some(_) => return Err(invalid()),
                None => (false, name),
            },
            None => return Err(invalid()),
        };
        let (publisher, version) = bare.split_once('.').ok_or_else(invalid)?;
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | ':');
        if !PUBLISHERS.contains(&publisher) || version.is_empty() || !version.chars().all(legal) {
            return Err(invalid());
        }
        if version.starts_with("missing-") {
            return Err(super::errors::for_status(404));
        }
        let model =
            Model { requested: label.to_owned(), name: bare.to_owned(), family: family(bare), by_profile };
        Ok(model)
    }

    /// Refuses a foundation model that can be called through an inference profile only.
    pub(super) fn check_throughput(&self) -> Result<(), ApiError> {
        if self.by_profile || !self.needs_profile() {
            return Ok(());
        }
        Err(ApiError::invalid(format!(
            "Invocation of model ID {} with on-demand throughput isn\u{2019}t supported. Retry your request with the \
             ID or ARN of an inference profile that contains this model.",
            self.requested
        )))
    }

    fn needs_profile(&self) -> bool {
        match self.family {
            Family::Claude => self.generation() >= Some((3, 7)),
            Family::Nova => self.name.contains("nova-2-lite") || self.name.contains("nova-premier"),
            Family::DeepSeek => self.name.contains(".r1"),
            _ => self.name.starts_with("meta.llama3-2") || self.name.starts_with("meta.llama4"),
        }
    }

    /// Returns the publisher's own name of a Claude model: `claude-sonnet-4-5-20250929`.
    pub(super) fn claude(&self) -> &str {
        let name = self.name.strip_prefix("anthropic.").unwrap_or(&self.name);
        name.rsplit_once("-v")
            .filter(|(_, version)| version.starts_with(['1', '2']))
            .map_or(name, |(name, _)| name)
    }

    /// Returns the generation of a Claude model. `None` for other names.
    pub(super) fn generation(&self) -> Option<(u32, u32)> {
        let parts = self.claude().strip_prefix("claude-")?;
        let mut parts = parts.split('-').map(|part| part.parse::<u32>().ok());
        let major = parts.find_map(|number| number.filter(|n| *n < 100))?;
        Some((major, parts.next().flatten().filter(|n| *n < 100).unwrap_or(0)))
    }

    /// Returns whether a request may force the model to call a tool.
    pub(super) fn forces_tools(&self) -> bool {
        matches!(self.family, Family::Claude | Family::Nova | Family::Mistral)
    }

    /// Returns whether the model takes videos and files in S3.
    pub(super) fn takes_video(&self) -> bool {
        self.family == Family::Nova
    }

    pub(super) fn takes_audio(&self) -> bool {
        self.name.contains("voxtral") || self.name.contains("sonic")
    }
}

fn family(name: &str) -> Family {
    let (publisher, version) = name.split_once('.').unwrap_or((name, ""));
    match publisher {
        "anthropic" => Family::Claude,
        "amazon" if version.starts_with("nova") => Family::Nova,
        "mistral" => Family::Mistral,
        "deepseek" => Family::DeepSeek,
        "openai" => Family::GptOss,
        _ => Family::Other,
    }
}

/// Foundation models in the list: identifier, name, publisher, whether on-demand throughput is supported.
const LISTED: [(&str, &str, &str, bool); 5] = [
    ("anthropic.claude-sonnet-4-5-20250929-v1:0", "Claude Sonnet 4.5", "Anthropic", false),
    ("anthropic.claude-3-haiku-20240307-v1:0", "Claude 3 Haiku", "Anthropic", true),
    ("amazon.nova-lite-v1:0", "Nova Lite", "Amazon", true),
    ("amazon.titan-embed-text-v2:0", "Titan Text Embeddings V2", "Amazon", true),
    ("openai.gpt-oss-120b-1:0", "gpt-oss-120b", "OpenAI", true),
];

/// Returns the list of foundation models.
pub(super) fn foundation_models(region: &str) -> Reply {
    let models = LISTED.iter().map(|(id, name, publisher, on_demand)| {
        let modality = if id.contains("embed") { "EMBEDDING" } else { "TEXT" };
        let types: &[&str] = if *on_demand { &["ON_DEMAND"] } else { &["INFERENCE_PROFILE"] };
        json!({"modelArn": format!("arn:aws:bedrock:{region}::foundation-model/{id}"), "modelId": id,
               "modelName": name, "providerName": publisher, "inputModalities": ["TEXT"],
               "outputModalities": [modality], "responseStreamingSupported": modality == "TEXT",
               "customizationsSupported": [], "inferenceTypesSupported": types,
               "modelLifecycle": {"status": "ACTIVE"}})
    });
    Reply::json(200, &json!({"modelSummaries": models.collect::<Vec<Value>>()}))
}

/// Returns the list of the system's inference profiles.
pub(super) fn inference_profiles(region: &str) -> Reply {
    let geography = GEOGRAPHIES.iter().find(|(_, from)| !from.is_empty() && region.starts_with(from));
    let geography = geography.map_or("us", |(geography, _)| geography);
    let profiles = LISTED.iter().filter(|(id, ..)| !id.contains("embed")).map(|(id, name, ..)| {
        let profile = format!("{geography}.{id}");
        json!({"inferenceProfileName": name, "status": "ACTIVE", "type": "SYSTEM_DEFINED",
               "inferenceProfileArn": format!("arn:aws:bedrock:{region}:000000000000:inference-profile/{profile}"),
               "inferenceProfileId": profile,
               "models": [{"modelArn": format!("arn:aws:bedrock:{region}::foundation-model/{id}")}]})
    });
    Reply::json(200, &json!({"inferenceProfileSummaries": profiles.collect::<Vec<Value>>()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_resolved_from_every_form_of_identifier() {
        for (label, name, by_profile) in [
            ("amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0", false),
            ("us.amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0", true),
            ("global.anthropic.claude-opus-4-8", "anthropic.claude-opus-4-8", true),
            (
                "arn:aws:bedrock:us-east-1:000000000000:inference-profile/us.amazon.nova-lite-v1:0",
                "amazon.nova-lite-v1:0",
                true,
            ),
        ] {
            let model = Model::resolve(label, Some("us-east-1")).unwrap();
            assert_eq!((model.name.as_str(), model.by_profile), (name, by_profile), "{label}");
        }
        for label in ["nova", "eu.amazon.nova-lite-v1:0", "arn:aws:s3:::x", "unknown.model", "us.claude"] {
            assert!(Model::resolve(label, Some("us-east-1")).is_err(), "{label}");
        }
    }

    #[test]
    fn model_of_a_newer_generation_needs_a_profile() {
        let check = |label| Model::resolve(label, None).unwrap().check_throughput().is_ok();
        assert!(check("anthropic.claude-3-haiku-20240307-v1:0") && check("us.deepseek.r1-v1:0"));
        assert!(!check("anthropic.claude-sonnet-4-5-20250929-v1:0") && !check("deepseek.r1-v1:0"));
        let model = Model::resolve("us.anthropic.claude-sonnet-4-5-20250929-v1:0", None).unwrap();
        assert_eq!((model.claude(), model.generation()), ("claude-sonnet-4-5-20250929", Some((4, 5))));
    }
}
