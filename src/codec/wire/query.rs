//! Percent-encoding of paths, and queries of URLs.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Returns the decoded value of the first query parameter with this name. `None` if there is none.
pub fn query_value<'q>(query: Option<&'q str>, name: &str) -> Option<Cow<'q, str>> {
    query_values(query, name).next()
}

/// Returns the decoded values of all query parameters with this name.
pub fn query_values<'q>(query: Option<&'q str>, name: &str) -> impl Iterator<Item = Cow<'q, str>> {
    query.unwrap_or_default().split('&').filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decode(key) == name).then(|| percent_decode(value))
    })
}

/// Returns the query without the parameters with these names. All other bytes stay as they are.
pub fn query_without(query: &str, names: &[&str]) -> String {
    let mut out = String::with_capacity(query.len());
    for pair in query.split('&') {
        let key = percent_decode(pair.split_once('=').map_or(pair, |(key, _)| key));
        // Copy the pair as it is: decoding and encoding could change other bytes.
        if !pair.is_empty() && !names.contains(&&*key) {
            if !out.is_empty() {
                out.push('&');
            }
            out.push_str(pair);
        }
    }
    out
}

/// Decodes `%xx` (RFC 3986 section 2.1). An invalid escape stays as it is; so does the whole text if the result is not
/// UTF-8.
pub fn percent_decode(text: &str) -> Cow<'_, str> {
    // The decoder would check again that a text without escapes is UTF-8.
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    percent_encoding::percent_decode_str(text).decode_utf8().unwrap_or(Cow::Borrowed(text))
}

/// Bytes of a path segment that are percent-encoded: all but the unreserved ones (RFC 3986 section 2.3), `/`, `@` and
/// `:`.
const ENCODED_IN_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'@')
    .remove(b':');

/// Appends a path segment with percent-encoding of every byte that is not unreserved (RFC 3986 section 2.3), as AWS
/// SDKs encode the model.
pub fn push_path_label(out: &mut String, label: &str) {
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    out.extend(utf8_percent_encode(label, UNRESERVED));
}

/// Appends a path segment with percent-encoding. A slash is not encoded: providers whose model ids contain one expect
/// it unencoded.
pub fn push_path_segment(out: &mut String, segment: &str) {
    out.extend(utf8_percent_encode(segment, ENCODED_IN_SEGMENT));
}
