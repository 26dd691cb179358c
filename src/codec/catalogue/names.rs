//! Model names: as clients, routes and providers write them, reduced to the name that the catalogue lists.

use std::borrow::Cow;

/// Most suffixes that are cut off a name, so that a long name takes no longer.
const MAX_SUFFIXES: usize = 6;

/// Returns the name in lower case, without a path (`models/...`, `publishers/.../models/...`, an ARN).
pub(super) fn without_path(name: &str) -> Cow<'_, str> {
    let name = name.trim();
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(last.to_ascii_lowercase())
    } else {
        Cow::Borrowed(last)
    }
}

/// Cuts the prefixes of a cloud (`us.`, `anthropic.`) off a name, each at most once.
pub(super) fn without_prefixes<'n>(name: &'n str, prefixes: &[Box<str>]) -> &'n str {
    let mut rest = name;
    // A region, then the maker.
    for _ in 0..2 {
        let cut = prefixes.iter().find_map(|prefix| rest.strip_prefix(&**prefix));
        match cut.filter(|cut| !cut.is_empty()) {
            Some(cut) => rest = cut,
            None => break,
        }
    }
    rest
}

/// Returns the region that a name begins with (`us` of `us.anthropic.claude-...`), or `None` if it names none.
pub(super) fn region_prefix<'n>(name: &'n str, prefixes: &[Box<str>]) -> Option<&'n str> {
    let (region, rest) = name.split_once('.')?;
    let is_prefix = |text: &str| prefixes.iter().any(|prefix| prefix.strip_suffix('.') == Some(text));
    // The prefix of the maker alone is no region: `anthropic.claude-...`.
    let maker = rest.split_once('.').map(|(maker, _)| maker);
    (is_prefix(region) && maker.is_some_and(is_prefix)).then_some(region)
}

/// Iterates over a name and what is left of it when one date or version after another is cut off its end, the whole name first.
pub(super) fn continuations(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| without_suffix(name)).take(MAX_SUFFIXES)
}

/// Cuts one date, version or `-latest` off the end of a name. Returns `None` if it ends with none.
fn without_suffix(name: &str) -> Option<&str> {
    let some = |rest: &'_ str| !rest.is_empty();
    if let Some((rest, _)) = name.split_once('@') {
        return Some(rest).filter(|rest| some(rest));
    }
    if let Some((rest, tail)) = name.rsplit_once(':') {
        if tail.strip_suffix('k').is_some_and(is_number) {
            return Some(rest).filter(|rest| some(rest));
        }
        // `-v1:0`, `-1:0`
        let (rest, version) = rest.rsplit_once('-')?;
        let is_version = is_number(tail) && is_number(version.strip_prefix('v').unwrap_or(version));
        return is_version.then_some(rest).filter(|rest| some(rest));
    }
    let (rest, tail) = name.rsplit_once('-')?;
    if rest.is_empty() {
        return None;
    }
    if tail == "latest" || tail == "preview" || tail.strip_prefix('v').is_some_and(is_number) {
        return Some(rest);
    }
    if !is_number(tail) {
        return None;
    }
    match tail.len() {
        3 | 6 | 8 => Some(rest),
        // `-1106`, `-2512`; or `-08-2024`.
        4 => Some(
            rest.rsplit_once('-')
                .filter(|(_, month)| is_number(month) && month.len() == 2)
                .map_or(rest, |(rest, _)| rest),
        )
        .filter(|rest| some(rest)),
        2 => {
            let (rest, month) = rest.rsplit_once('-')?;
            if !is_number(month) || month.len() != 2 {
                return None;
            }
            // `-preview-05-20`, `-2025-08-07`.
            let (before, year) = rest.rsplit_once('-')?;
            if year == "preview" {
                return Some(rest);
            }
            (is_number(year) && year.len() == 4 && some(before)).then_some(before)
        }
        _ => None,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Cuts a variant of a reseller (`:free`, `:beta`) off a name: the model behaves alike, but is sold otherwise.
pub(super) fn without_variant(name: &str) -> Option<&str> {
    let (rest, variant) = name.split_once(':')?;
    (!rest.is_empty() && variant.bytes().all(|byte| byte.is_ascii_alphabetic())).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_is_a_date_or_a_version() {
        let last = |name| continuations(name).last().unwrap();
        for (name, short) in [
            ("gpt-4o-2024-11-20", "gpt-4o"),
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
            ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
            ("claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
            ("claude-3-sonnet-20240229-v1:0:28k", "claude-3-sonnet"),
            ("gpt-oss-120b-1:0", "gpt-oss-120b"),
            ("claude-opus-4-6-v1", "claude-opus-4-6"),
            ("gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"),
            ("gemini-2.0-flash-001", "gemini-2.0-flash"),
            ("command-r-08-2024", "command-r"),
            ("doubao-seed-2-0-pro-260215", "doubao-seed-2-0-pro"),
            ("kimi-k2-0905-preview", "kimi-k2"),
            ("claude-opus-5-5", "claude-opus-5-5"),
            ("gpt-5-mini", "gpt-5-mini"),
            ("claude-3-5-sonnet-latest", "claude-3-5-sonnet"),
            ("qwen3-32b", "qwen3-32b"),
            ("llama3:8b", "llama3:8b"),
            ("-latest", "-latest"),
            ("@", "@"),
            ("", ""),
        ] {
            assert_eq!(last(name), short, "{name}");
        }
    }

    #[test]
    fn region_is_a_prefix_before_that_of_the_maker() {
        let prefixes: Vec<Box<str>> = ["us.", "eu.", "global.", "anthropic."].map(Box::from).into();
        assert_eq!(region_prefix("us.anthropic.claude-opus-5", &prefixes), Some("us"));
        assert_eq!(region_prefix("anthropic.claude-opus-5", &prefixes), None);
        assert_eq!(region_prefix("gpt-4.1", &prefixes), None);
        assert_eq!(without_prefixes("us.anthropic.claude-opus-5", &prefixes), "claude-opus-5");
        assert_eq!(without_prefixes("gpt-4.1", &prefixes), "gpt-4.1");
    }
}
