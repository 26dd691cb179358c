//! Service tiers of the simulated OpenAI.

use super::errors::{ApiError, Fields, wrong_value};

/// Returns the service tier in which a request is served: the one that it asks for, by the name that answers have.
pub(super) fn served_tier(fields: Fields<'_>, more: &[&'static str]) -> Result<&'static str, ApiError> {
    match fields.string("service_tier")? {
        None | Some("auto" | "default") => Ok("default"),
        Some("flex") => Ok("flex"),
        Some("scale") => Ok("scale"),
        Some("priority" | "fast") => Ok("priority"),
        Some(other) => more.iter().find(|known| **known == other).copied().ok_or_else(|| {
            let supported = ["auto", "default", "flex", "scale", "priority", "fast"];
            wrong_value("service_tier", other, &[&supported[..], more].concat())
        }),
    }
}
