//! Requests with JSON schemas that have many of one element.

use crate::requests::Build;
use crate::words::{answered, asks, list, members, tool, with_tools};

/// Name and builder of each shape of a request.
pub(crate) const SHAPES: [(&str, Build); 8] = [
    ("properties of a tool's schema", |format, n| {
        let properties =
            list(n, |i| format!(r#""p{i}":{{"type":"string","description":"number {i}","format":"uuid"}}"#));
        let required = list(n, |i| format!("\"p{i}\""));
        let schema = format!(
            r#"{{"type":"object","properties":{{{properties}}},"required":[{required}],"additionalProperties":false}}"#
        );
        Some(with_tools(format, &asks(format), &tool(format, "get", &schema, ""), ""))
    }),
    ("references of a tool's schema", |format, n| {
        let properties = list(n, |i| format!(r##""p{i}":{{"$ref":"#/$defs/d{i}"}}"##));
        let defs = list(n, |i| format!(r#""d{i}":{{"type":"integer"}}"#));
        let schema = format!(r#"{{"type":"object","properties":{{{properties}}},"$defs":{{{defs}}}}}"#);
        Some(with_tools(format, &asks(format), &tool(format, "get", &schema, ""), ""))
    }),
    ("a tool's schema of many kinds", |format, n| {
        let branches = list(n, |i| {
            format!(r#"{{"type":"object","properties":{{"k{i}":{{"const":"v{i}"}}}},"required":["k{i}"]}}"#)
        });
        let kinds =
            list(n, |i| format!(r#"{{"type":"object","properties":{{"a{i}":{{"type":"string"}}}}}}"#));
        let schema = format!(
            r#"{{"type":"object","properties":{{"any":{{"anyOf":[{branches}]}},"all":{{"allOf":[{kinds}]}}}}}}"#
        );
        Some(with_tools(format, &asks(format), &tool(format, "get", &schema, ""), ""))
    }),
    ("words of a tool's schema", |format, n| {
        let words = list(n, |i| format!("\"word {i}\""));
        let numbers = list(n, |i| i.to_string());
        let schema = format!(
            r#"{{"type":"object","properties":{{"word":{{"type":"string","enum":[{words}]}},"n":{{"enum":[{numbers}]}}}}}}"#
        );
        Some(with_tools(format, &asks(format), &tool(format, "get", &schema, ""), ""))
    }),
    ("unknown keywords of a tool's schema", |format, n| {
        let schema =
            format!(r#"{{"type":"object","properties":{{"x":{{"type":"string"}}}},{}}}"#, members(n));
        Some(with_tools(format, &asks(format), &tool(format, "get", &schema, ""), ""))
    }),
    ("properties of the answer's schema", |format, n| {
        let properties = list(n, |i| format!(r#""p{i}":{{"type":["string","null"],"minLength":1}}"#));
        let required = list(n, |i| format!("\"p{i}\""));
        let schema = format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#);
        Some(answered(format, &schema))
    }),
    ("definitions of the answer's schema", |format, n| {
        let items = list(n, |i| format!(r##"{{"$ref":"#/definitions/d{i}"}}"##));
        let defs =
            list(n, |i| format!(r#""d{i}":{{"type":"object","properties":{{"x":{{"type":"string"}}}}}}"#));
        let schema = format!(
            r#"{{"type":"object","properties":{{"x":{{"oneOf":[{items}]}}}},"definitions":{{{defs}}}}}"#
        );
        Some(answered(format, &schema))
    }),
    ("types of a schema", |format, n| {
        let types = list(n, |i| format!("\"type{i}\""));
        let properties = list(n, |i| format!(r#""p{i}":{{"type":["object","object"]}}"#));
        let schema = format!(r#"{{"type":[{types}],"properties":{{{properties}}}}}"#);
        Some(answered(format, &schema))
    }),
];
