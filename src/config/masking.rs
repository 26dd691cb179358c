//! Secrets of entries, by the types of their keys: masked where an entry is shown, found where one is to be written.

use serde_json::{Map, Value as Json};
use toml_edit::{Item, TableLike, Value};

use super::entries::{EntryKind, join};
use super::key_types::{Secrecy, secrecy};

/// What is shown in place of a secret.
pub(super) const MASK: &str = "***";
/// Digits of a key's hash that are shown.
const HASH_DIGITS: usize = 12;

/// Returns a table as JSON with secrets masked. `path` is that of the table, without indexes.
pub(super) fn masked(table: &dyn TableLike, path: &str) -> Json {
    let members = table.iter().map(|(key, item)| (key.to_owned(), masked_item(item, &join(path, key))));
    Json::Object(members.collect())
}

fn masked_item(item: &Item, path: &str) -> Json {
    match item {
        Item::None => Json::Null,
        Item::Value(value) => masked_value(value, path),
        Item::Table(table) => masked(table, path),
        Item::ArrayOfTables(list) => list.iter().map(|table| masked(table, path)).collect(),
    }
}

fn masked_value(value: &Value, path: &str) -> Json {
    match value {
        Value::Array(list) => list.iter().map(|element| masked_value(element, path)).collect(),
        Value::InlineTable(table) => masked(table, path),
        Value::String(text) => masked_text(text.value(), secrecy(path)).into(),
        // A secret is a text. What is none at its place is not valid, and may be one that was misspelt.
        _ if !matches!(secrecy(path), Secrecy::Shown) => MASK.into(),
        Value::Integer(number) => Json::from(*number.value()),
        Value::Float(number) => Json::from(*number.value()),
        Value::Boolean(flag) => Json::from(*flag.value()),
        Value::Datetime(time) => Json::from(time.value().to_string()),
    }
}

fn masked_text(text: &str, secrecy: Secrecy) -> String {
    match secrecy {
        Secrecy::Shown => text.to_owned(),
        Secrecy::Hidden | Secrecy::Unknown => MASK.to_owned(),
        Secrecy::Url => masked_url(text),
        Secrecy::Digest => text.chars().take(HASH_DIGITS).collect(),
    }
}

/// Masks the user information, the values of the query and the fragment of a URL or a path: tokens may be there.
pub(super) fn masked_url(url: &str) -> String {
    let (begin, rest) = match url.split_once("//") {
        // A path, in whose later parts two slashes are no authority.
        Some((scheme, _)) if scheme.contains(['/', '?', '#', '@']) => ("", url),
        Some((scheme, rest)) => (url.get(..scheme.len().saturating_add(2)).unwrap_or_default(), rest),
        None => ("", url),
    };
    // A password may have any of the characters that end an authority.
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) if !begin.is_empty() => (true, rest),
        _ => (false, rest),
    };
    let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(rest, after)| (rest, Some(after)));
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let mut shown = format!("{begin}{}{rest}", if user { "***@" } else { "" });
    if let Some(query) = query {
        let pair = |pair: &str| match pair.split_once('=') {
            Some((name, _)) => format!("{name}={MASK}"),
            None => MASK.to_owned(),
        };
        shown.push('?');
        shown.push_str(&query.split('&').map(pair).collect::<Vec<_>>().join("&"));
    }
    if fragment.is_some() {
        shown.push('#');
        shown.push_str(MASK);
    }
    shown
}

/// Masks the secrets of an entry as JSON that was masked when it was written, perhaps by a version that knew fewer secrets. Members
/// that are none of an entry stay.
pub fn mask_entry(entry: &mut Json) {
    for kind in EntryKind::ALL {
        mask(entry, kind.name());
    }
}

fn mask(value: &mut Json, path: &str) {
    match value {
        Json::Object(members) => {
            members.iter_mut().for_each(|(key, value)| mask(value, &join(path, key)));
        }
        Json::Array(list) => list.iter_mut().for_each(|element| mask(element, path)),
        Json::Null => {}
        value => match secrecy(path) {
            Secrecy::Hidden => *value = MASK.into(),
            Secrecy::Url => {
                if let Some(text) = value.as_str() {
                    *value = masked_url(text).into();
                }
            }
            _ => {}
        },
    }
}

/// Returns the path of the first secret in the members of an entry of this kind, from the entry on. `None` if it has none: the
/// sources of secrets (`env`, `file`) are none, and a null removes one.
pub fn secret_member(kind: EntryKind, members: &Map<String, Json>) -> Option<String> {
    let begin = kind.name().len().saturating_add(1);
    let found = members.iter().find_map(|(key, value)| find_secret(value, &join(kind.name(), key)))?;
    found.get(begin..).map(str::to_owned)
}

fn find_secret(value: &Json, path: &str) -> Option<String> {
    match value {
        Json::Null => None,
        Json::Object(members) => members.iter().find_map(|(key, value)| find_secret(value, &join(path, key))),
        Json::Array(list) => list.iter().find_map(|element| find_secret(element, path)),
        Json::String(text) if secrecy(path) == Secrecy::Url => {
            has_user_information(text).then(|| path.to_owned())
        }
        _ => (secrecy(path) == Secrecy::Hidden).then(|| path.to_owned()),
    }
}

/// Returns whether a URL has user information, which the configuration has a place of its own for.
fn has_user_information(url: &str) -> bool {
    url.split_once("//").is_some_and(|(_, rest)| rest.split('/').next().unwrap_or_default().contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_masked_at_its_user_and_its_query() {
        for (url, shown) in [
            ("https://a.example/v1", "https://a.example/v1"),
            ("https://user:pw@a.example:8/v1?x=1", "https://***@a.example:8/v1?x=***"),
            ("redis://:p@ss/wo?rd@h:1", "redis://***@h:1"),
            ("redis://h:1/0?password=pw&x", "redis://h:1/0?password=***&***"),
            ("/v1/models?key=pw&api-version=2", "/v1/models?key=***&api-version=***"),
            ("/v1/models/m@001", "/v1/models/m@001"),
            ("/v1//a@b?x=http://u:p@h", "/v1//a@b?x=***"),
            ("//user:pw@h/x", "//***@h/x"),
            ("/v1/models#pw", "/v1/models#***"),
            ("/v1/models?pw", "/v1/models?***"),
            ("", ""),
        ] {
            assert_eq!(masked_url(url), shown, "{url}");
        }
    }
}
