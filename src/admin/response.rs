//! Answer of the admin API, before it becomes HTTP.

use std::io;

use http::StatusCode;
use serde_json::Value;

use super::error::AdminApiError;

/// Writes an answer in pieces on a thread that may block.
pub(super) type WritePieces = Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>;

/// Content of an answer.
pub(super) enum AnswerContent {
    /// JSON document.
    Json(Value),
    /// Text of a type.
    Text(&'static str, String),
    /// Page for a browser, with its status.
    Page(StatusCode, String),
    /// Redirect of a browser to an address.
    Redirect(String),
    /// Pieces of a type, with the name of the file that a browser stores.
    Pieces(&'static str, String, WritePieces),
}

/// Answer of the admin API.
pub(super) struct ApiResponse {
    /// Content.
    pub(super) content: AnswerContent,
    /// Version of the file that has the entry, for `if-match` of a later request.
    pub(super) etag: Option<String>,
    /// Values of `set-cookie` headers.
    pub(super) cookies: Vec<String>,
}

/// Result of an operation.
pub(super) type ApiResult = Result<ApiResponse, AdminApiError>;

impl ApiResponse {
    /// Creates an answer with a JSON document.
    pub(super) fn json(value: Value) -> Self {
        ApiResponse::of(AnswerContent::Json(value))
    }

    /// Creates an answer.
    pub(super) fn of(content: AnswerContent) -> Self {
        ApiResponse { content, etag: None, cookies: Vec::new() }
    }

    /// Returns the answer with a cookie, as [`set_cookie`](super::session::set_cookie) writes it.
    pub(super) fn with_cookie(mut self, cookie: String) -> Self {
        self.cookies.push(cookie);
        self
    }

    /// Returns the answer with the version of a file.
    pub(super) fn with_etag(self, etag: Option<String>) -> Self {
        ApiResponse { etag, ..self }
    }
}
