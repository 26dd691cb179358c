//! Azure OpenAI: paths, versions and credentials that differ from OpenAI's.
//!
//! Sources: Azure OpenAI, "API version lifecycle", "Azure OpenAI REST API reference"; error messages that its users quote.

use serde_json::json;

use super::super::http::{Reply, Request, percent_decode};

/// Place of a request in OpenAI's API.
pub(super) struct Placed {
    /// Path of OpenAI's API.
    pub(super) path: String,
    /// Deployment that the path names; `None` if the body names it as its model.
    pub(super) deployment: Option<String>,
}

/// Checks the credential and finds the place of a request.
///
/// # Errors
/// Returns Azure's response to a request with a wrong credential, path or version.
pub(super) fn place(request: &Request, credential: Option<&str>) -> Result<Placed, Reply> {
    authorize(request, credential)?;
    let path = request.path.trim_end_matches('/');
    if let Some(own) = path.strip_prefix("/openai/v1/") {
        return Ok(Placed { path: format!("/v1/{own}"), deployment: None });
    }
    // The older API has a version in each request, and for most methods the deployment in the path.
    let is_version = |version: &str| {
        let date = version.strip_suffix("-preview").unwrap_or(version);
        date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    let rest = path.strip_prefix("/openai/").filter(|_| request.query("api-version").is_some_and(is_version));
    let rest = rest.ok_or_else(not_found)?;
    match rest.strip_prefix("deployments/") {
        Some(rest) => {
            let (deployment, method) = rest.split_once('/').ok_or_else(not_found)?;
            Ok(Placed { path: format!("/v1/{method}"), deployment: Some(percent_decode(deployment)) })
        }
        None if rest.starts_with("responses") => Ok(Placed { path: format!("/v1/{rest}"), deployment: None }),
        None => Err(not_found()),
    }
}

fn authorize(request: &Request, credential: Option<&str>) -> Result<(), Reply> {
    let Some(expected) = credential else { return Ok(()) };
    match (request.header("api-key"), request.bearer()) {
        (Some(key), None) if key == expected => Ok(()),
        (None, Some(token)) if token == expected => Ok(()),
        (Some(_), Some(_)) => Err(error(401, "401", "Provide either an API key or a token, not both.")),
        _ => Err(error(
            401,
            "401",
            "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for \
             an active subscription and use a correct regional API endpoint for your resource.",
        )),
    }
}

fn not_found() -> Reply {
    error(404, "404", "Resource not found")
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    let body = json!({"error": {"code": code, "message": message}});
    Reply::new(status, "application/json", body.to_string())
}
