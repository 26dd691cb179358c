//! Errors of the OpenAI API: their bodies, and the checks of single fields.
//!
//! Source of the texts: recorded responses of the API, and error messages that its users quote.

use serde_json::{Value, json};

use super::super::http::Reply;

/// Status of an overloaded provider.
pub(super) const OVERLOADED: u16 = 503;

/// Error response.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ApiError {
    status: u16,
    kind: &'static str,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    /// Returns an error for an invalid request: 400 `invalid_request_error`.
    pub(super) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "invalid_request_error", message)
    }

    pub(super) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, message: message.into(), param: None, code: None }
    }

    /// Sets the invalid parameter.
    pub(super) fn param(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(param.into());
        self
    }

    /// Sets the error code.
    pub(super) fn code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    /// Returns the body, `{"error": {...}}`.
    pub(super) fn body(&self) -> Value {
        json!({"error": self.inner()})
    }

    /// Returns the content of the body's `error`.
    pub(super) fn inner(&self) -> Value {
        json!({"message": self.message, "type": self.kind, "param": self.param, "code": self.code})
    }

    pub(super) fn reply(&self) -> Reply {
        Reply::json(self.status, &self.body())
    }
}

/// Returns the provider's error for a status.
pub(super) fn for_status(status: u16) -> ApiError {
    let new = |kind, message: &str| ApiError::new(status, kind, message);
    match status {
        401 => wrong_key("sk-simulated-wrong-key"),
        402 => new(
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details. For more information on \
             this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
        )
        .code("insufficient_quota"),
        403 => new("invalid_request_error", "Country, region, or territory not supported")
            .code("unsupported_country_region_territory"),
        404 => model_not_found("simulated"),
        408 => new("server_error", "Timed out generating response. Please try again with a shorter prompt or with \
             `max_tokens` set to a lower value.")
        .code("timeout"),
        409 => new("invalid_request_error", "The resource was changed by another request. Please try again.")
            .code("conflict"),
        413 => too_large(),
        422 => new("invalid_request_error", "The request could not be processed.").code("unprocessable_entity"),
        429 => new(
            "requests",
            "Rate limit reached for requests in organization org-simulated on requests per min (RPM): Limit 3, \
             Used 3, Requested 1. Please try again in 7s. Visit https://platform.openai.com/account/rate-limits to \
             learn more.",
        )
        .code("rate_limit_exceeded"),
        502..=504 => new(
            "service_unavailable_error",
            "Our servers are currently overloaded. Please try again later.",
        )
        .code("server_is_overloaded"),
        500..=599 => server_error(status),
        _ => new("invalid_request_error", "The request was staged to fail."),
    }
}

/// Returns the error within a stream.
pub(super) fn server_error(status: u16) -> ApiError {
    ApiError::new(
        status,
        "server_error",
        "The server had an error while processing your request. Sorry about that!",
    )
    .code("server_error")
}

pub(super) fn too_large() -> ApiError {
    ApiError::new(
        413,
        "invalid_request_error",
        "Request body is too large. Please reduce its size and try again.",
    )
    .code("request_too_large")
}

/// Returns the error for a wrong key, which shows its first eight and its last four characters.
pub(super) fn wrong_key(key: &str) -> ApiError {
    let chars: Vec<char> = key.chars().collect();
    let middle = 8..chars.len().saturating_sub(4).max(8);
    let masked: String =
        chars.iter().enumerate().map(|(at, c)| if middle.contains(&at) { '*' } else { *c }).collect();
    ApiError::new(
        401,
        "invalid_request_error",
        format!(
            "Incorrect API key provided: {masked}. You can find your API key at \
             https://platform.openai.com/account/api-keys."
        ),
    )
    .code("invalid_api_key")
}

pub(super) fn no_key() -> ApiError {
    ApiError::new(
        401,
        "invalid_request_error",
        "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer \
         auth (i.e. Authorization: Bearer YOUR_KEY), or as the password field (with blank username) if you're \
         accessing the API from your browser and are prompted for a username and password. You can obtain an API \
         key from https://platform.openai.com/account/api-keys.",
    )
}

pub(super) fn model_not_found(model: &str) -> ApiError {
    ApiError::new(
        404,
        "invalid_request_error",
        format!("The model `{model}` does not exist or you do not have access to it."),
    )
    .code("model_not_found")
}

pub(super) fn not_json() -> ApiError {
    ApiError::invalid(
        "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP \
         library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON. If you have \
         trouble figuring out how to fix this, please contact us through our help center at help.openai.com.)",
    )
}

pub(super) fn unknown_url(method: &str, path: &str) -> ApiError {
    ApiError::new(404, "invalid_request_error", format!("Invalid URL ({method} {path})"))
}

pub(super) fn wrong_method(method: &str, path: &str) -> ApiError {
    ApiError::new(
        405,
        "invalid_request_error",
        format!(
            "Not allowed to {method} on {path} (HINT: Perhaps you meant to use a different HTTP method?)"
        ),
    )
    .code("method_not_supported")
}

pub(super) fn missing(param: &str) -> ApiError {
    ApiError::invalid(format!("Missing required parameter: '{param}'."))
        .param(param)
        .code("missing_required_parameter")
}

pub(super) fn empty_array(param: &str) -> ApiError {
    ApiError::invalid(format!(
        "Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    ))
    .param(param)
    .code("empty_array")
}

/// Returns the error for a value of the wrong type. `expected` has an article.
pub(super) fn wrong_type(param: &str, expected: &str, got: &Value) -> ApiError {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    ApiError::invalid(format!("Invalid type for '{param}': expected {expected}, but got {got} instead."))
        .param(param)
        .code("invalid_type")
}

/// Returns the error for an unsupported value.
pub(super) fn wrong_value(param: &str, got: &str, supported: &[&str]) -> ApiError {
    let list = match supported {
        [] => String::new(),
        [one] => format!("'{one}'"),
        [one, other] => format!("'{one}' and '{other}'"),
        [others @ .., last] => {
            let others: Vec<String> = others.iter().map(|value| format!("'{value}'")).collect();
            format!("{}, and '{last}'", others.join(", "))
        }
    };
    ApiError::invalid(format!("Invalid value: '{got}'. Supported values are: {list}."))
        .param(param)
        .code("invalid_value")
}

/// Reader of request members that returns the provider's errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a Value);

impl<'a> Fields<'a> {
    /// Returns a member. `None` if it is absent or null.
    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn string(self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(super) fn boolean(self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "a boolean", Value::as_bool)
    }

    pub(super) fn array(self, name: &str) -> Result<Option<&'a Vec<Value>>, ApiError> {
        self.typed(name, "an array", Value::as_array)
    }

    pub(super) fn object(self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        self.typed(name, "an object", |value| value.is_object().then_some(Fields(value)))
    }

    fn typed<T>(
        self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| wrong_type(name, expected, value)),
        }
    }

    /// Returns an integer of at least `least`.
    pub(super) fn integer(self, name: &str, least: i64) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = value.as_i64().ok_or_else(|| wrong_type(name, "an integer", value))?;
        if number < least {
            return Err(ApiError::invalid(format!(
                "Invalid '{name}': integer below minimum value. Expected a value >= {least}, but got {number} instead."
            ))
            .param(name)
            .code("integer_below_min_value"));
        }
        Ok(u64::try_from(number).ok())
    }

    /// Returns a number between two limits.
    pub(super) fn decimal(self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = value.as_f64().ok_or_else(|| wrong_type(name, "a decimal", value))?;
        let (side, code, sign, limit) = if number < least {
            ("below minimum", "decimal_below_min_value", ">=", least)
        } else if number > most {
            ("above maximum", "decimal_above_max_value", "<=", most)
        } else {
            return Ok(Some(number));
        };
        Err(ApiError::invalid(format!(
            "Invalid '{name}': decimal {side} value. Expected a value {sign} {limit}, but got {number} instead."
        ))
        .param(name)
        .code(code))
    }

    /// Refuses the first unknown member, as the provider does.
    pub(super) fn only(self, known: &[&str]) -> Result<(), ApiError> {
        let members = self.0.as_object().into_iter().flatten();
        match members.map(|(name, _)| name).find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(ApiError::invalid(format!("Unknown parameter: '{name}'."))
                .param(name.as_str())
                .code("unknown_parameter")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_masks_the_key_as_the_provider_does() {
        let shown = |key| wrong_key(key).to_string().split_whitespace().nth(4).map(str::to_owned);
        assert_eq!(shown("<not-a-real-key>").as_deref(), Some("<not-a-r****key>."));
        assert_eq!(shown("test_openai_api_key").as_deref(), Some("test_ope*******_key."));
        assert_eq!(shown("invalid-key").as_deref(), Some("invalid-key."));
    }

    #[test]
    fn error_lists_the_supported_values() {
        assert_eq!(
            wrong_value("p", "x", &["a", "b", "c"]).to_string(),
            "Invalid value: 'x'. Supported values are: 'a', 'b', and 'c'."
        );
    }

    #[test]
    fn error_names_the_limit_and_the_expected_type() {
        let body = json!({"t": 2.5, "n": 0, "s": 1});
        let fields = Fields(&body);
        assert!(
            fields
                .decimal("t", 0.0, 2.0)
                .is_err_and(|e| e.to_string().contains("Expected a value <= 2, but got 2.5"))
        );
        assert!(fields.integer("n", 1).is_err());
        assert!(
            fields
                .string("s")
                .is_err_and(|e| e.to_string().contains("expected a string, but got an integer"))
        );
        assert_eq!(fields.integer("n", 0).ok(), Some(Some(0)));
    }
}
