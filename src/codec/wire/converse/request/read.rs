//! Readers of unions and cache points, with errors that name the member.

use std::fmt::Display;

use crate::canonical::CacheBreakpoint;
use crate::error::ApiError;
pub(super) use crate::wire::read::{
    attempt, each, each_in, not_json, number, object, object_in, raw, text, wrong,
};
use json::{Cursor, RawJson};

/// What a union must be.
const ONE_MEMBER: &str = "an object with one member";

/// Calls `read` with the only member of the union at the cursor, such as `{"text":"..."}`, and returns its result. `read`
/// must consume the value. Unions of the service have exactly one member that is not null.
pub(super) fn union_in<'a, T>(
    json: &mut Cursor<'a>,
    path: impl Display + Copy,
    read: impl FnOnce(&'a str, &mut Cursor<'a>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let mut whole = json.clone();
    let (mut read, mut found) = (Some(read), None);
    let result = object_in(json, path, |key, json| match read.take() {
        Some(read) => {
            found = Some(read(key, json)?);
            Ok(())
        }
        None => Err(wrong(path, ONE_MEMBER)),
    });
    if result.is_err() {
        // A union with two members is reported before a fault in the first of them.
        union(path, raw(&mut whole)?)?;
    }
    result?;
    found.ok_or_else(|| wrong(path, ONE_MEMBER))
}

/// Reads the only member of a union, whose value is already delimited.
pub(super) fn union<'a>(
    path: impl Display + Copy,
    value: RawJson<'a>,
) -> Result<(&'a str, RawJson<'a>), ApiError> {
    let mut found = None;
    object(path, value, |key, value| match found.replace((key, value)) {
        None => Ok(()),
        Some(_) => Err(wrong(path, ONE_MEMBER)),
    })?;
    found.ok_or_else(|| wrong(path, ONE_MEMBER))
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
