//! Readers of unions and cache points, with errors that name the member.

use std::fmt::Display;

use crate::canonical::CacheBreakpoint;
use crate::error::ApiError;
use crate::json::RawJson;
pub(super) use crate::wire::read::{each, not_json, number, object, text, wrong};

/// Reads the only member of a union, such as `{"text":"..."}`. Unions of the service have exactly one member that is
/// not null.
pub(super) fn union<'a>(
    path: impl Display + Copy,
    value: RawJson<'a>,
) -> Result<(&'a str, RawJson<'a>), ApiError> {
    let mut found = None;
    object(path, value, |key, value| match found.replace((key, value)) {
        None => Ok(()),
        Some(_) => Err(wrong(path, "an object with one member")),
    })?;
    found.ok_or_else(|| wrong(path, "an object with one member"))
}

/// Reads the lifetime of a cache point.
pub(super) fn cache_point(path: impl Display, value: RawJson<'_>) -> Result<CacheBreakpoint, ApiError> {
    let mut lifetime = CacheBreakpoint::Short;
    object(path, value, |key, value| {
        if key == "ttl" && value.as_str().is_some_and(|ttl| ttl.is("1h")) {
            lifetime = CacheBreakpoint::Long;
        }
        Ok(())
    })?;
    Ok(lifetime)
}
