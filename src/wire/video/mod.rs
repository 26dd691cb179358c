//! Videos: what clients send and get (specification, sections 2.8 and 4.8 to 4.10), what providers are asked in, and
//! what they answer.
//!
//! Here live the reader of requests ([`ask`]) with the markers of prompts ([`markers`]) and how lengths, sizes and
//! ratios become those of a model ([`settle`]), the four forms that providers want ([`write`]), what they say of a task
//! ([`read`]) and what a client is told of it ([`answer`]). Which model takes what comes in a
//! [`VideoDialect`](crate::canonical::video::VideoDialect). Here must not live: when a provider is asked, and where its
//! addresses are.

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

/// An endpoint for videos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `POST /v1/video/generations`
    Submit,
    /// `GET /v1/video/generations/{id}`
    Query(String),
    /// `GET /v1/video/generations/download?id={id}`
    Download,
    /// `POST /v1/videos`: as OpenAI's clients ask.
    Create,
    /// `POST /v1/videos/{id}/remix`
    Remix(String),
    /// `GET /v1/videos/{id}`
    Retrieve(String),
    /// `GET /v1/videos/{id}/content`
    Content(String),
    /// `POST /v1beta/models/{model}:predictLongRunning`: as Google's clients ask.
    Predict {
        /// The model.
        model: String,
    },
    /// `GET /v1beta/models/{model}/operations/{id}`
    Operation(String),
    /// `POST /v1beta1/.../models/{model}:fetchPredictOperation`: as Google's clients of Vertex AI ask.
    Fetch,
    /// `GET /v1beta/files/{id}:download`
    File(String),
}

impl Place {
    /// The methods that it answers.
    pub const fn allow(&self) -> &'static str {
        match self {
            Place::Submit | Place::Create | Place::Remix(_) | Place::Predict { .. } | Place::Fetch => "POST",
            _ => "GET",
        }
    }
}

/// The place that the segments of a path name, without the version before them.
pub fn place(segments: &[&str]) -> Option<Place> {
    let id = |segment: &str| percent_decode(segment).into_owned();
    Some(match segments {
        ["video", "generations"] => Place::Submit,
        ["video", "generations", "download"] => Place::Download,
        ["video", "generations", task] => Place::Query(id(task)),
        ["videos"] => Place::Create,
        ["videos", task] => Place::Retrieve(id(task)),
        ["videos", task, "remix"] => Place::Remix(id(task)),
        ["videos", task, "content"] => Place::Content(id(task)),
        ["models", .., "operations", task] => Place::Operation(id(task)),
        ["files", file] => match percent_decode(file) {
            Cow::Borrowed(file) => Place::File(file.strip_suffix(":download")?.to_owned()),
            Cow::Owned(file) => Place::File(file.strip_suffix(":download")?.to_owned()),
        },
        _ => return None,
    })
}
