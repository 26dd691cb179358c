//! Types of the routes of the admin API.

use super::api::AdminApi;
use super::request::ApiRequest;
use super::response::ApiResult;
use super::schema::{BodyType, Record};
use routing::account::AdminRole;

/// Function that answers a request, on a thread that may block.
pub(super) type OperationFn = fn(&AdminApi, &ApiRequest) -> ApiResult;

/// Parameter of a query.
#[derive(Debug)]
pub(super) struct Parameter {
    /// Name.
    pub(super) name: &'static str,
    /// Permitted values; empty for any text.
    pub(super) values: &'static [&'static str],
    /// Meaning.
    pub(super) text: &'static str,
}

/// Content of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnswerType {
    /// JSON document.
    Json(&'static Record),
    /// JSON document, or a file in the form of the parameter `format`.
    Export(&'static Record),
    /// Text of a type.
    Text(&'static str),
    /// Document of the API.
    OpenApi,
    /// Server-sent events.
    Events,
    /// Page for a browser that navigates to it.
    Page,
}

/// Route.
#[derive(Debug)]
pub(super) struct AdminRoute {
    /// Method.
    pub(super) method: &'static str,
    /// Path below the prefix, with parameters in braces.
    pub(super) path: &'static str,
    /// Role that the caller needs.
    pub(super) role: AdminRole,
    /// Whether callers who have not signed in may use it.
    pub(super) is_open: bool,
    /// Name of the operation.
    pub(super) id: &'static str,
    /// What it does.
    pub(super) text: &'static str,
    /// Parameters of the query.
    pub(super) query: &'static [Parameter],
    /// Body.
    pub(super) body: BodyType,
    /// Answer.
    pub(super) answers: AnswerType,
    /// Function that answers. `None` for events, which have a task of their own.
    pub(super) answer: Option<OperationFn>,
}

impl AdminRoute {
    /// Returns whether a browser navigates to it, from pages of any origin.
    pub(super) const fn is_page(&self) -> bool {
        matches!(self.answers, AnswerType::Page)
    }

    /// Returns whether it checks a whole configuration, which takes long with large files.
    pub(super) fn is_check(&self) -> bool {
        matches!(self.id, "validateConfig" | "pendingConfig")
    }
}

/// Cursor of a page.
pub(super) const CURSOR: Parameter =
    parameter("cursor", "Cursor of the page, from `next_cursor` of the page before.");
/// Size of a page.
pub(super) const LIMIT: Parameter = parameter("limit", "Size of the page, at most 1000.");
const DRY_RUN: Parameter = Parameter {
    name: "dry_run",
    values: &["true", "false"],
    text: "Checks the change and does not apply it.",
};
const PAGE: &[Parameter] = &[LIMIT, CURSOR];
const CHANGE: &[Parameter] = &[DRY_RUN];
/// No parameters.
pub(super) const NONE: &[Parameter] = &[];

/// Describes a parameter of any text.
pub(super) const fn parameter(name: &'static str, text: &'static str) -> Parameter {
    Parameter { name, values: &[], text }
}

/// Describes a route that reads a document.
pub(super) const fn get(
    path: &'static str,
    id: &'static str,
    text: &'static str,
    of: &'static Record,
    answer: OperationFn,
) -> AdminRoute {
    let answers = AnswerType::Json(of);
    let (method, role, body) = ("GET", AdminRole::Read, BodyType::None);
    AdminRoute {
        method,
        path,
        role,
        is_open: false,
        id,
        text,
        query: NONE,
        body,
        answers,
        answer: Some(answer),
    }
}

/// Gives a route the parameters of pages.
pub(super) const fn page(route: AdminRoute) -> AdminRoute {
    AdminRoute { query: PAGE, ..route }
}

/// Describes a route that changes something.
pub(super) const fn act(
    method: &'static str,
    path: &'static str,
    role: AdminRole,
    (id, text): (&'static str, &'static str),
    (body, of): (BodyType, &'static Record),
    answer: OperationFn,
) -> AdminRoute {
    let answers = AnswerType::Json(of);
    AdminRoute {
        method,
        path,
        role,
        is_open: false,
        id,
        text,
        query: CHANGE,
        body,
        answers,
        answer: Some(answer),
    }
}
