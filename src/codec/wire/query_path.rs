//! Resource paths inside a query: SDKs append the resource to a base address that ends in a query.
//!
//! Some put a slash between both: `/v1?api-version=2025-04-01/responses`. OpenAI's for Python puts the slash before the
//! query: `/v1/?api-version=2025-04-01responses`, and encodes the path if the resource has parameters of its own:
//! `api-version=2025-04-01responses%2Fresp_1&include%5B%5D=...` (openai 3.52.0 and 3.57.0, November 2026).

use std::borrow::Cow;

use super::path::RESOURCES;
use super::query::percent_decode;

/// Parameter with which base addresses end.
const VERSION: &str = "api-version=";

/// Versions that are no date (Azure OpenAI's v1 API).
const NAMED: [&str; 3] = ["preview", "latest", "v1"];

/// Returns the resource path, and the query behind it, inside the query of a base address that has one. `None` if the query
/// contains none.
pub(super) fn resource_in_query(query: &str) -> Option<(Cow<'_, str>, Option<&str>)> {
    behind_version(query).or_else(|| behind_slash(query))
}

/// Finds a path behind the first slash. `None` unless it is one of a known resource: a slash may be part of a value.
fn behind_slash(query: &str) -> Option<(Cow<'_, str>, Option<&str>)> {
    let (_, resource) = query.split_once('/')?;
    let (path, query) = split_query(resource);
    is_resource(path).then_some((Cow::Borrowed(path), query))
}

/// Returns whether a path begins with the name of a resource, behind versions.
fn is_resource(path: &str) -> bool {
    let (path, _) = split_query(path);
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let first = segments.find(|segment| !matches!(*segment, "v1" | "v1beta" | "v1beta1"));
    first.is_some_and(|first| RESOURCES.contains(&first))
}

/// Finds a path directly behind the version.
fn behind_version(query: &str) -> Option<(Cow<'_, str>, Option<&str>)> {
    let start = if query.starts_with(VERSION) { 0 } else { query.find(&format!("&{VERSION}"))? + 1 };
    let (value, rest) = query.get(start + VERSION.len()..)?.split_once('&').map_or_else(
        || (query.get(start + VERSION.len()..).unwrap_or_default(), None),
        |(value, rest)| (value, Some(rest)),
    );
    // The path of a request without parameters is not encoded; its own escapes belong to its segments.
    let value = if value.contains('/') { Cow::Borrowed(value) } else { percent_decode(value) };
    let at = value.len() - unversioned(&value)?.len();
    Some(match value {
        Cow::Borrowed(value) => {
            let (path, own) = split_query(value.get(at..)?);
            (Cow::Borrowed(path), own.or(rest))
        }
        Cow::Owned(value) => (Cow::Owned(value.get(at..)?.to_owned()), rest),
    })
}

/// Returns what stands behind a version. `None` if nothing does, or no path.
fn unversioned(value: &str) -> Option<&str> {
    if let Some(rest) = undated(value) {
        let rest = rest.strip_prefix("-preview").unwrap_or(rest);
        let is_path = rest.starts_with(|first: char| first.is_ascii_alphabetic());
        return (is_path || is_resource(rest)).then_some(rest);
    }
    NAMED.iter().find_map(|name| value.strip_prefix(name)).filter(|rest| is_resource(rest))
}

/// Returns what stands behind a date (`2025-04-01`).
fn undated(value: &str) -> Option<&str> {
    let (date, rest) = value.split_at_checked(10)?;
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    is_date.then_some(rest)
}

fn split_query(resource: &str) -> (&str, Option<&str>) {
    resource.split_once('?').map_or((resource, None), |(path, query)| (path, Some(query)))
}
