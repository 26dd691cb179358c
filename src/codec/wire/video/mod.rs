//! Video generation: client requests and responses (docs/specification.md, 2.8 and 4.8 to 4.10), and the upstream
//! formats.
//!
//! This module has the request reader ([`ask`]) with the markers in prompts ([`markers`]) and the normalization of
//! lengths, sizes and ratios to those of a model ([`settle`]), the writers of the four upstream request shapes
//! ([`write`]), the reader of upstream task states ([`read`]), and the writers of client responses ([`answer`]). The
//! capabilities of a model come in a [`VideoDialect`](crate::canonical::video::VideoDialect). Polling and upstream
//! addresses live elsewhere.

pub mod answer;
pub mod ask;
pub mod markers;
pub mod members;
pub mod read;
pub mod settle;
#[cfg(test)]
mod tests;
pub mod write;

pub use ask::decode;

use std::borrow::Cow;

use super::path::percent_decode;

/// Video endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VideoEndpoint {
    /// `POST /v1/video/generations`: submits a task.
    Submit,
    /// `GET /v1/video/generations/{id}`: state of a task.
    Query(String),
    /// `GET /v1/video/generations/download?id={id}`: video of a task.
    Download,
    /// `POST /v1/videos` (OpenAI's format).
    Create,
    /// `POST /v1/videos/{id}/remix` (OpenAI's format).
    Remix(String),
    /// `GET /v1/videos/{id}` (OpenAI's format).
    Retrieve(String),
    /// `GET /v1/videos/{id}/content` (OpenAI's format).
    Content(String),
    /// `POST /v1beta/models/{model}:predictLongRunning` (Google's format).
    Predict {
        /// Model name from the path.
        model: String,
    },
    /// `GET /v1beta/models/{model}/operations/{id}` (Google's format).
    Operation(String),
    /// `POST /v1beta1/.../models/{model}:fetchPredictOperation` (Vertex AI's format).
    Fetch,
    /// `GET /v1beta/files/{id}:download` (Google's format).
    File(String),
}

impl VideoEndpoint {
    /// Returns the allowed method, for the `Allow` header.
    pub const fn allow(&self) -> &'static str {
        match self {
            VideoEndpoint::Submit
            | VideoEndpoint::Create
            | VideoEndpoint::Remix(_)
            | VideoEndpoint::Predict { .. }
            | VideoEndpoint::Fetch => "POST",
            _ => "GET",
        }
    }
}

/// Parses path segments behind the version. Returns `None` if the path is not a video endpoint.
pub fn place(segments: &[&str]) -> Option<VideoEndpoint> {
    let id = |segment: &str| percent_decode(segment).into_owned();
    Some(match segments {
        ["video", "generations"] => VideoEndpoint::Submit,
        ["video", "generations", "download"] => VideoEndpoint::Download,
        ["video", "generations", task] => VideoEndpoint::Query(id(task)),
        ["videos"] => VideoEndpoint::Create,
        ["videos", task] => VideoEndpoint::Retrieve(id(task)),
        ["videos", task, "remix"] => VideoEndpoint::Remix(id(task)),
        ["videos", task, "content"] => VideoEndpoint::Content(id(task)),
        ["models", .., "operations", task] => VideoEndpoint::Operation(id(task)),
        ["files", file] => match percent_decode(file) {
            Cow::Borrowed(file) => VideoEndpoint::File(file.strip_suffix(":download")?.to_owned()),
            Cow::Owned(file) => VideoEndpoint::File(file.strip_suffix(":download")?.to_owned()),
        },
        _ => return None,
    })
}
