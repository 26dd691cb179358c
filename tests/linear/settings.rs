//! Requests with settings that have many of one element.

use codec::wire::Format;

use crate::requests::Build;
use crate::words::{asks, list, members, whole};

/// Name and builder of each shape of a request.
pub(crate) const SHAPES: [(&str, Build); 3] = [
    ("biased tokens", |format, n| {
        let tokens = list(n, |i| format!(r#""{i}":1"#));
        (format == Format::Chat)
            .then(|| whole(format, &asks(format), &format!(r#""logit_bias":{{{tokens}}}"#)))
    }),
    ("notes", |format, n| {
        let notes = list(n, |i| format!(r#""note{i}":"x""#));
        let member = match format {
            Format::Chat | Format::Responses | Format::Messages => format!(r#""metadata":{{{notes}}}"#),
            Format::Generate => format!(r#""labels":{{{notes}}}"#),
            Format::Converse => format!(r#""requestMetadata":{{{notes}}}"#),
        };
        Some(whole(format, &asks(format), &member))
    }),
    ("members of parameters", |format, n| {
        (format == Format::Chat)
            .then(|| whole(format, &asks(format), &format!(r#""parameters":{{{}}}"#, members(n))))
    }),
];
