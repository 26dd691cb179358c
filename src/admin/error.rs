//! Errors of the admin API: a code that programs read, and a message that names what is wrong.

use http::StatusCode;
use serde_json::{Value, json};

use config::{ChangeError, FieldError, Problem};
use storage::ledger::admin::AdminError;

/// Code of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    /// The request has no valid token.
    Unauthenticated,
    /// The role of the caller does not suffice, or the request comes from a page of another origin.
    Forbidden,
    /// The path or the named thing does not exist.
    NotFound,
    /// The path does not have the method.
    MethodNotAllowed,
    /// The request is not valid.
    Invalid,
    /// The file has another version than the request expects.
    Stale,
    /// The file on disk is not the one that is in effect.
    ChangedOnDisk,
    /// The file cannot be written by the gateway.
    ReadOnly,
    /// The thing exists already.
    Exists,
    /// The body is too large.
    TooLarge,
    /// The body has another type than JSON.
    UnsupportedType,
    /// Too many attempts with wrong tokens.
    RateLimited,
    /// Too many requests at a time, or something that the request needs does not work.
    Unavailable,
    /// The operation took too long.
    TimedOut,
    /// A fault of the gateway.
    Internal,
}

impl ErrorCode {
    /// All codes.
    pub(crate) const ALL: [ErrorCode; 15] = [
        ErrorCode::Unauthenticated,
        ErrorCode::Forbidden,
        ErrorCode::NotFound,
        ErrorCode::MethodNotAllowed,
        ErrorCode::Invalid,
        ErrorCode::Stale,
        ErrorCode::ChangedOnDisk,
        ErrorCode::ReadOnly,
        ErrorCode::Exists,
        ErrorCode::TooLarge,
        ErrorCode::UnsupportedType,
        ErrorCode::RateLimited,
        ErrorCode::Unavailable,
        ErrorCode::TimedOut,
        ErrorCode::Internal,
    ];

    /// Returns the name and the HTTP status.
    pub(crate) const fn row(self) -> (&'static str, StatusCode) {
        match self {
            ErrorCode::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
            ErrorCode::Forbidden => ("forbidden", StatusCode::FORBIDDEN),
            ErrorCode::NotFound => ("not_found", StatusCode::NOT_FOUND),
            ErrorCode::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED),
            ErrorCode::Invalid => ("invalid", StatusCode::BAD_REQUEST),
            ErrorCode::Stale => ("stale", StatusCode::PRECONDITION_FAILED),
            ErrorCode::ChangedOnDisk => ("changed_on_disk", StatusCode::CONFLICT),
            ErrorCode::ReadOnly => ("read_only", StatusCode::CONFLICT),
            ErrorCode::Exists => ("exists", StatusCode::CONFLICT),
            ErrorCode::TooLarge => ("too_large", StatusCode::PAYLOAD_TOO_LARGE),
            ErrorCode::UnsupportedType => ("unsupported_type", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ErrorCode::RateLimited => ("rate_limited", StatusCode::TOO_MANY_REQUESTS),
            ErrorCode::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
            ErrorCode::TimedOut => ("timed_out", StatusCode::GATEWAY_TIMEOUT),
            ErrorCode::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// Error of the admin API.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct AdminApiError {
    /// Code.
    pub(crate) code: ErrorCode,
    /// Description for the caller.
    pub(crate) message: String,
    /// Path of the member or parameter that is wrong. `None` if it is none.
    pub(crate) field: Option<String>,
    /// Faults of the configuration.
    pub(crate) faults: Vec<Problem>,
    /// Seconds after which a retry may succeed. `None` if that is unknown.
    pub(crate) retry_after: Option<u64>,
    /// Methods of the path, for the header `allow`. Empty for other errors.
    pub(crate) allow: String,
}

impl AdminApiError {
    /// Creates an error.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let (message, allow) = (message.into(), String::new());
        AdminApiError { code, message, field: None, faults: Vec::new(), retry_after: None, allow }
    }

    /// Creates the error of a member or parameter.
    pub(crate) fn field(field: &str, message: impl Into<String>) -> Self {
        let error = AdminApiError::new(ErrorCode::Invalid, message);
        AdminApiError { field: Some(field.to_owned()), ..error }
    }

    /// Creates the error of a thing that does not exist.
    pub(crate) fn unknown(what: &str, name: &str) -> Self {
        AdminApiError::new(ErrorCode::NotFound, format!("no {what} is named {name:?}"))
    }

    /// Returns the error with the time of a retry in seconds.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        AdminApiError { retry_after: Some(seconds), ..self }
    }

    /// Returns the error as JSON.
    pub(crate) fn json(&self, request_id: &str) -> Value {
        let mut error =
            json!({ "code": self.code.row().0, "message": self.message, "request_id": request_id });
        if let Some(members) = error.as_object_mut() {
            if let Some(field) = &self.field {
                members.insert("field".to_owned(), field.as_str().into());
            }
            if !self.faults.is_empty() {
                members.insert("faults".to_owned(), self.faults.iter().map(fault).collect());
            }
        }
        json!({ "error": error })
    }
}

/// Returns a fault of the configuration as JSON.
pub(crate) fn fault(problem: &Problem) -> Value {
    json!({
        "file": problem.file.display().to_string(),
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "message": problem.message,
        "hint": problem.hint,
    })
}

impl From<FieldError> for AdminApiError {
    fn from(error: FieldError) -> Self {
        AdminApiError::field(&error.field, error.message)
    }
}

impl From<ChangeError> for AdminApiError {
    fn from(error: ChangeError) -> Self {
        let message = error.to_string();
        match error {
            ChangeError::Unknown { .. } => AdminApiError::new(ErrorCode::NotFound, message),
            ChangeError::Exists { .. } => AdminApiError::new(ErrorCode::Exists, message),
            ChangeError::Field(error) => error.into(),
            ChangeError::Invalid(report) => {
                // The faults of the entry name its members; their places in the files are in `faults`.
                let field = report.problems.first().map(|problem| problem.key.clone());
                let field = field.filter(|key| !key.is_empty());
                let message = report.problems.first().map_or(message, |problem| match &problem.hint {
                    Some(hint) => format!("{}; {hint}", problem.message),
                    None => problem.message.clone(),
                });
                let error = AdminApiError::new(ErrorCode::Invalid, message);
                AdminApiError { field, faults: report.problems, ..error }
            }
            ChangeError::Stale { .. } => AdminApiError::new(ErrorCode::Stale, message),
            ChangeError::ChangedOnDisk(_) => AdminApiError::new(ErrorCode::ChangedOnDisk, message),
            ChangeError::ReadOnly(_) | ChangeError::WritesOff | ChangeError::UnknownFile(_) => {
                AdminApiError::new(ErrorCode::ReadOnly, message)
            }
            ChangeError::Unrecorded(_) => AdminApiError::new(ErrorCode::Unavailable, message),
            ChangeError::Io { .. } => AdminApiError::new(ErrorCode::Internal, message),
        }
    }
}

impl From<AdminError> for AdminApiError {
    fn from(error: AdminError) -> Self {
        let message = error.to_string();
        match error {
            AdminError::Unknown(name) => AdminApiError::unknown("account", &name),
            AdminError::Exists(_) => AdminApiError::new(ErrorCode::Exists, message),
            AdminError::Reference { .. } => AdminApiError {
                field: Some("reference".to_owned()),
                ..AdminApiError::new(ErrorCode::Exists, message)
            },
            AdminError::TooLarge => AdminApiError::field("amount", message),
            AdminError::Cursor => AdminApiError::field("cursor", message),
            AdminError::Period(_) => AdminApiError::field("from", message),
            AdminError::Database(_) | AdminError::Server(_) => {
                AdminApiError::new(ErrorCode::Unavailable, message)
            }
            AdminError::Io { .. } | AdminError::Records(_) => {
                AdminApiError::new(ErrorCode::Internal, message)
            }
        }
    }
}
