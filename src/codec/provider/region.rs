//! Regions with a price of their own: which one serves a model, from the address of the provider and the name of the model.

use super::{Provider, ProviderKind};
use crate::canonical::Region;

/// Hosts that serve one region, with the region. Source: OpenAI, "Your data", data residency (2026-11).
const HOSTS: [(&str, Region); 2] = [("eu.api.openai.com", Region::Eu), ("us.api.openai.com", Region::Us)];

/// Beginnings of the ids of inference profiles, with the region. A profile of the world (`global.`) and the id of a model
/// alone have the list price. Source: Amazon Bedrock, "Supported Regions and models for inference profiles" (2026-11).
const PROFILES: [(&str, Region); 7] = [
    ("us.", Region::Us),
    ("eu.", Region::Eu),
    ("apac.", Region::Apac),
    ("jp.", Region::Jp),
    ("au.", Region::Au),
    ("in.", Region::In),
    ("us-gov.", Region::UsGov),
];

impl Provider {
    /// Returns the region with a price of its own that serves a model. `None` if the list price applies.
    pub fn region(&self, model: &str) -> Option<Region> {
        match self.kind {
            ProviderKind::Bedrock => {
                // An ARN ends with the id of its profile.
                let id = model.rsplit('/').next().unwrap_or(model);
                PROFILES.iter().find(|(prefix, _)| id.starts_with(prefix)).map(|(_, region)| *region)
            }
            // Source: Vertex AI, "Pricing", regional endpoints (2026-11): those of one location cost more than the global one.
            ProviderKind::Vertex | ProviderKind::VertexAnthropic => {
                let (_, rest) = self.base.prefix().split_once("/locations/")?;
                let location = rest.split('/').next().unwrap_or(rest);
                (location != "global").then_some(Region::Regional)
            }
            _ => {
                let host = self.base.host();
                HOSTS.iter().find(|(known, _)| *known == host).map(|(_, region)| *region)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_is_that_of_host_profile_or_location() {
        use ProviderKind::*;
        for (kind, base, model, region) in [
            (OpenAi, "https://api.openai.com/v1", "us.m", None),
            (OpenAi, "https://eu.api.openai.com/v1", "m", Some(Region::Eu)),
            (OpenAi, "https://us.api.openai.com/v1", "m", Some(Region::Us)),
            (
                Bedrock,
                "https://bedrock-runtime.us-east-1.amazonaws.com",
                "us.anthropic.m-v1:0",
                Some(Region::Us),
            ),
            (Bedrock, "https://bedrock-runtime.us-east-1.amazonaws.com", "global.anthropic.m-v1:0", None),
            (Bedrock, "https://bedrock-runtime.us-east-1.amazonaws.com", "anthropic.m-v1:0", None),
            (
                Bedrock,
                "https://bedrock-runtime.us-east-1.amazonaws.com",
                "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.amazon.nova-2-lite-v1:0",
                Some(Region::Eu),
            ),
            (Vertex, "https://aiplatform.googleapis.com/v1/projects/p/locations/global", "m", None),
            (
                Vertex,
                "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/us-central1",
                "m",
                Some(Region::Regional),
            ),
            (Anthropic, "https://api.anthropic.com/v1", "eu.m", None),
        ] {
            assert_eq!(Provider::at(kind, base).region(model), region, "{base} {model}");
        }
    }
}
