//! OpenAPI document of the admin API in docs/openapi.json, and the page docs/admin-api.md.

use serde_json::Value;

use super::{gateway, golden, text};

#[test]
fn openapi_document_is_up_to_date_and_printed_by_the_program() {
    let document = admin::openapi_document();
    let expected = format!("{document:#}\n");
    golden("docs/openapi.json", &expected);
    let output = gateway(&["admin", "openapi"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn admin_api_page_lists_every_operation_with_its_role() {
    let page = text("docs/admin-api.md");
    let document: Value = serde_json::from_str(&text("docs/openapi.json")).unwrap();
    let mut missing = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let below = path.strip_prefix("/admin/v1").unwrap();
        for (method, operation) in methods.as_object().unwrap() {
            let below = if below.is_empty() { "/" } else { below };
            let row = format!(
                "| {} `{below}` | {} |",
                method.to_uppercase(),
                operation["x-role"].as_str().unwrap()
            );
            if !page.contains(&row) {
                missing.push(row);
            }
        }
    }
    assert!(missing.is_empty(), "docs/admin-api.md lacks these rows:\n{}", missing.join("\n"));
}

/// Rules of OpenAPI 3.1 and of JSON Schema (Draft 2020-12) for what the document uses; everything else is a fault.
struct Rules<'d> {
    document: &'d Value,
    faults: Vec<String>,
}

impl Rules<'_> {
    fn must(&mut self, holds: bool, at: &str, rule: &str) {
        if !holds {
            self.faults.push(format!("{at}: {rule}"));
        }
    }

    /// Checks that an object has these members, of which the first `required` must be there, and no others.
    fn members(&mut self, value: &Value, at: &str, (required, known): (usize, &[&str])) {
        let Some(members) = value.as_object() else { return self.must(false, at, "must be an object") };
        for name in members.keys() {
            self.must(
                known.contains(&name.as_str()) || name.starts_with("x-"),
                at,
                &format!("unknown {name}"),
            );
        }
        for name in &known[..required] {
            self.must(members.contains_key(*name), at, &format!("lacks {name}"));
        }
    }

    fn reference(&mut self, value: &Value, at: &str, parent: &str) -> bool {
        let Some(target) = value.get("$ref") else { return false };
        let target = target.as_str().unwrap_or_default();
        let found = target.strip_prefix('#').and_then(|pointer| self.document.pointer(pointer)).is_some();
        self.must(found && target.starts_with(parent), at, &format!("{target} leads nowhere"));
        true
    }

    fn schema(&mut self, schema: &Value, at: &str) {
        let known = [
            "$ref",
            "type",
            "description",
            "properties",
            "required",
            "items",
            "enum",
            "pattern",
            "format",
            "minimum",
            "maximum",
            "additionalProperties",
            "anyOf",
            "oneOf",
            "title",
            "default",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minLength",
            "maxLength",
            "not",
        ];
        self.members(schema, at, (0, &known));
        self.reference(schema, at, "#/components/schemas/");
        let types: Vec<&Value> = match &schema["type"] {
            Value::Null => Vec::new(),
            Value::Array(types) => types.iter().collect(),
            of => vec![of],
        };
        let names = ["string", "integer", "number", "boolean", "object", "array", "null"];
        let are_types = types.iter().all(|of| of.as_str().is_some_and(|of| names.contains(&of)));
        self.must(are_types, at, "unknown type");
        let is = |name: &str| types.iter().any(|of| *of == name);
        self.must(
            !is("array") || schema.get("items").is_some(),
            at,
            "a list without the type of its elements",
        );
        if let Some(pattern) = schema["pattern"].as_str() {
            self.must(regex::Regex::new(pattern).is_ok(), at, "the pattern is none");
        }
        if let Some(values) = schema["enum"].as_array() {
            let distinct = values.iter().enumerate().all(|(index, value)| !values[..index].contains(value));
            self.must(!values.is_empty() && distinct, at, "enum must have distinct values");
        }
        let properties = schema["properties"].as_object();
        for name in schema["required"].as_array().into_iter().flatten() {
            let has = properties.is_some_and(|all| name.as_str().is_some_and(|name| all.contains_key(name)));
            self.must(has, at, &format!("required {name} is no property"));
        }
        for (name, property) in properties.into_iter().flatten() {
            self.schema(property, &format!("{at}.{name}"));
        }
        for (name, below) in
            [("items", 0), ("additionalProperties", 0), ("not", 0), ("anyOf", 1), ("oneOf", 1)]
        {
            match schema.get(name) {
                Some(Value::Array(list)) if below == 1 => {
                    list.iter().for_each(|one| self.schema(one, &format!("{at}/{name}")));
                }
                Some(one @ Value::Object(_)) => self.schema(one, &format!("{at}/{name}")),
                _ => {}
            }
        }
    }

    fn content(&mut self, content: &Value, at: &str) {
        for (media, of) in content.as_object().into_iter().flatten() {
            self.must(media.split('/').count() == 2, at, &format!("{media} is no media type"));
            self.members(of, at, (1, &["schema"]));
            self.schema(&of["schema"], at);
        }
    }

    fn responses(&mut self, responses: &Value, at: &str) {
        for (status, response) in responses.as_object().into_iter().flatten() {
            let is_status =
                status == "default" || status.parse::<u16>().is_ok_and(|code| (100..600).contains(&code));
            self.must(is_status || at == "components", at, &format!("{status} is no status"));
            if !self.reference(response, at, "#/components/responses/") {
                self.members(response, at, (1, &["description", "content", "headers"]));
                self.content(&response["content"], at);
            }
        }
        self.must(responses.as_object().is_some_and(|all| !all.is_empty()), at, "no response");
    }

    fn operation(&mut self, path: &str, operation: &Value, at: &str) {
        let known =
            ["operationId", "responses", "summary", "parameters", "requestBody", "security", "description"];
        self.members(operation, at, (2, &known));
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let mut seen: Vec<(String, String)> = Vec::new();
        for parameter in &parameters {
            self.members(parameter, at, (3, &["name", "in", "schema", "required", "description"]));
            let text = |name: &str| parameter[name].as_str().unwrap_or_default().to_owned();
            let (name, place) = (text("name"), text("in"));
            self.must(["path", "query", "header", "cookie"].contains(&&*place), at, "a parameter is nowhere");
            self.must(
                place != "path" || parameter["required"] == true,
                at,
                "a parameter of a path is required",
            );
            self.must(
                place != "path" || path.contains(&format!("{{{name}}}")),
                at,
                "the path lacks a parameter",
            );
            self.must(!seen.contains(&(name.clone(), place.clone())), at, &format!("{name} twice"));
            self.schema(&parameter["schema"], at);
            seen.push((name, place));
        }
        let in_path = seen.iter().filter(|(_, place)| place == "path").count();
        self.must(in_path == path.matches('{').count(), at, "a parameter of the path is not described");
        if let Some(body) = operation.get("requestBody") {
            self.members(body, at, (1, &["content", "required", "description"]));
            self.content(&body["content"], at);
        }
        let schemes = &self.document["components"]["securitySchemes"];
        for scheme in operation["security"].as_array().into_iter().flatten() {
            let known = scheme.as_object().unwrap().keys().all(|name| schemes.get(name).is_some());
            self.must(known, at, "unknown security scheme");
        }
        self.responses(&operation["responses"], at);
    }
}

#[test]
fn openapi_document_follows_the_rules_of_openapi_3_1() {
    let document = admin::openapi_document();
    let mut rules = Rules { document: &document, faults: Vec::new() };
    rules.members(&document, "", (3, &["openapi", "info", "paths", "servers", "security", "components"]));
    let version = document["openapi"].as_str().unwrap_or_default();
    rules.must(version.starts_with("3.1."), "openapi", "the version is another one");
    rules.members(&document["info"], "info", (2, &["title", "version", "description", "license"]));
    rules.members(&document["info"]["license"], "info.license", (1, &["name", "identifier"]));
    rules.members(&document["components"], "components", (0, &["schemas", "securitySchemes", "responses"]));
    rules.responses(&document["components"]["responses"], "components");
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        rules.must(plain, name, "the name of a component has other characters");
        rules.schema(schema, name);
    }
    let parameter = regex::Regex::new("\\{[^}]*\\}").unwrap();
    let mut ids: Vec<String> = Vec::new();
    let mut shapes: Vec<String> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        rules.must(path.starts_with('/') && !path.contains('?'), path, "is no path");
        // Two paths that differ in the names of parameters only are the same.
        let shape = parameter.replace_all(path, "{}").into_owned();
        rules.must(!shapes.contains(&shape), path, "is there twice");
        shapes.push(shape);
        for (method, operation) in methods.as_object().unwrap() {
            let at = format!("{method} {path}");
            let known = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
            rules.must(known.contains(&method.as_str()), &at, "unknown method");
            let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
            rules.must(!id.is_empty() && !ids.contains(&id), &at, "operationId is not unique");
            ids.push(id);
            rules.operation(path, operation, &at);
        }
    }
    assert!(rules.faults.is_empty(), "{:#?}", rules.faults);
    // The rules find what they are for.
    let broken = serde_json::json!({ "type": ["text"], "required": ["a"], "items": { "$ref": "#/components/schemas/No" } });
    let mut rules = Rules { document: &document, faults: Vec::new() };
    rules.schema(&broken, "broken");
    assert_eq!(rules.faults.len(), 3, "{:?}", rules.faults);
}
