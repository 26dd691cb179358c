//! OpenAPI 3.1 document, generated from the table of routes and the types of its bodies and answers.

use serde_json::{Map, Value, json};

use super::PREFIX;
use super::error::ErrorCode;
use super::route_table::{AdminRoute, AnswerType, ROUTES};
use super::schema::{BodyType, MemberType, entry_name, reference};
use config::reference::ConfigFile;
use config::{self, EntryKind};
use routing::account::AdminRole;

/// Returns the OpenAPI document.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let entry = paths.entry(format!("{PREFIX}{}", route.path)).or_insert_with(|| json!({}));
        if let Some(methods) = entry.as_object_mut() {
            methods.insert(route.method.to_ascii_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "model-gateway admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "State and administration of a running gateway, on its admin port. Members may be added to \
                            answers; clients ignore those that they do not know.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:9090" }],
        "security": [{ "token": [] }, { "session": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Token of admin.toml. Without one, requests from the same machine may read.",
                },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "mgw_session",
                    "description": "Cookie of POST /session; over TLS `__Host-mgw_session`. Requests that change something \
                                    need the header x-csrf-token.",
                },
            },
            "responses": { "Error": {
                "description": "The request is refused.",
                "content": { "application/json": { "schema": reference("Error") } },
            } },
        },
    })
}

fn operation(route: &AdminRoute) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    for name in route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        parameters
            .push(json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    }
    for parameter in route.query {
        let mut schema = json!({ "type": "string" });
        if let (Some(schema), false) = (schema.as_object_mut(), parameter.values.is_empty()) {
            schema.insert("enum".to_owned(), json!(parameter.values));
        }
        parameters.push(json!({
            "name": parameter.name,
            "in": "query",
            "description": parameter.text,
            "schema": schema,
        }));
    }
    let changes_file =
        matches!(route.body, BodyType::Entry(_)) || route.query.iter().any(|p| p.name == "dry_run");
    if changes_file && !route.path.starts_with("/targets") {
        parameters.push(json!({
            "name": "if-match",
            "in": "header",
            "description": "Version that the file must have (`etag`); without it, any.",
            "schema": { "type": "string" },
        }));
    }
    if ["createKey", "rotateKey", "creditAccount"].contains(&route.id) {
        parameters.push(json!({
            "name": "idempotency-key",
            "in": "header",
            "description": "Text by which a repeated request is known: it has no effect a second time.",
            "schema": { "type": "string" },
        }));
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.text,
        "x-role": role_of(route),
        "parameters": parameters,
        "responses": {
            "200": { "description": "Success.", "content": content(route.answers) },
            "default": { "$ref": "#/components/responses/Error" },
        },
    });
    if let Some(operation) = operation.as_object_mut() {
        let body = match route.body {
            BodyType::None => None,
            BodyType::Object(record) => {
                Some((reference(record.name), record.members.iter().any(|member| member.required)))
            }
            BodyType::Entry(kind) => Some((reference(entry_name(kind)), true)),
        };
        if let Some((schema, required)) = body {
            let body =
                json!({ "required": required, "content": { "application/json": { "schema": schema } } });
            operation.insert("requestBody".to_owned(), body);
        }
        if route.is_open {
            operation.insert("security".to_owned(), json!([]));
            return Value::Object(std::mem::take(operation));
        }
        if route.role == AdminRole::Read {
            return Value::Object(std::mem::take(operation));
        }
        operation.insert("security".to_owned(), json!([{ "token": [] }, { "session": [] }]));
    }
    operation
}

/// Returns the name of the role that an operation needs, `"none"` if anyone may use it.
fn role_of(route: &AdminRoute) -> &'static str {
    if route.is_open { "none" } else { route.role.name() }
}

fn content(answers: AnswerType) -> Value {
    let text = json!({ "schema": { "type": "string" } });
    match answers {
        AnswerType::Json(record) => json!({ "application/json": { "schema": reference(record.name) } }),
        AnswerType::Export(record) => json!({
            "application/json": { "schema": reference(record.name) },
            "text/csv": text,
            "application/x-ndjson": text,
        }),
        AnswerType::Text(of) => json!({ of: text }),
        AnswerType::Page => json!({ "text/html": text }),
        AnswerType::OpenApi => json!({ "application/json": { "schema": { "type": "object" } } }),
        AnswerType::Events => json!({ "text/event-stream": text }),
    }
}

/// Returns the schemas of all bodies and answers, ordered by name.
fn schemas() -> Value {
    let mut schemas: Map<String, Value> = Map::new();
    let mut add = |of: MemberType| match of {
        MemberType::Object(record) => {
            schemas.insert(record.name.to_owned(), record.schema());
        }
        MemberType::Entry(kind) => {
            schemas.insert(entry_name(kind).to_owned(), entry(kind));
        }
        _ => {}
    };
    for route in ROUTES {
        match route.body {
            BodyType::None => {}
            BodyType::Object(record) => record.visit(&mut add),
            BodyType::Entry(kind) => add(MemberType::Entry(kind)),
        }
        if let AnswerType::Json(record) | AnswerType::Export(record) = route.answers {
            record.visit(&mut add);
        }
    }
    schemas.insert("Error".to_owned(), error());
    schemas.sort_keys();
    Value::Object(schemas)
}

/// Returns the schema of an entry: that of its configuration file, without required members, because a change has only
/// some.
fn entry(kind: EntryKind) -> Value {
    let file = match kind {
        EntryKind::Key | EntryKind::Account => ConfigFile::Keys,
        EntryKind::Provider | EntryKind::Model => ConfigFile::Routes,
    };
    let schema: Value = serde_json::from_str(&config::schema(file)).unwrap_or_default();
    let mut entry =
        schema.pointer(&format!("/properties/{}/items", kind.name())).cloned().unwrap_or_default();
    if let Some(members) = entry.as_object_mut() {
        members.remove("required");
        let text =
            format!("Entry `[[{}]]` of a configuration file. Amounts may be decimal strings.", kind.name());
        members.insert("description".to_owned(), text.into());
    }
    entry
}

fn error() -> Value {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.row().0).collect();
    json!({
        "type": "object",
        "description": "Error.",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message", "request_id"],
            "properties": {
                "code": { "type": "string", "enum": codes, "description": "What programs read." },
                "message": { "type": "string", "description": "What people read." },
                "field": { "type": "string", "description": "Path of the member or parameter that is wrong." },
                "faults": {
                    "type": "array",
                    "items": reference("Fault"),
                    "description": "Faults of the configuration.",
                },
                "request_id": { "type": "string", "description": "Id of the request, also in `x-request-id`." },
            },
        } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                let target = members.get("$ref").and_then(Value::as_str);
                found.extend(
                    target.and_then(|target| target.strip_prefix("#/components/schemas/")).map(str::to_owned),
                );
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn openapi_document_describes_every_route_once_and_has_every_schema() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut used = BTreeSet::new();
        references(&document, &mut used);
        assert_eq!(used, schemas.keys().cloned().collect::<BTreeSet<_>>());
        let mut ids = BTreeSet::new();
        for route in ROUTES {
            let operation =
                &document["paths"][format!("{PREFIX}{}", route.path)][route.method.to_ascii_lowercase()];
            assert_eq!(operation["operationId"], route.id);
            assert_eq!(operation["x-role"], role_of(route));
            assert!(ids.insert(route.id), "{} twice", route.id);
            let harmless = ["validateConfig", "explainRequest", "signIn", "signOut"].contains(&route.id);
            assert!(route.method == "GET" || route.role > AdminRole::Read || harmless);
        }
        let statuses: BTreeSet<&str> = ErrorCode::ALL.iter().map(|code| code.row().0).collect();
        assert_eq!(statuses.len(), ErrorCode::ALL.len());
    }
}
