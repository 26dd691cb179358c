//! The admin API of a running gateway.

mod addresses;
mod audit;
mod bounded;
mod changes;
mod connections;
mod fleet;
mod guards;
mod killed;
mod live;
mod many;
mod oidc;
mod owners;
mod playground;
mod reads;
mod rotation;
mod secrets;
mod sessions;
mod targets;
mod usage;

use serde_json::Value;

use crate::support::client::{Answer, ask};
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;

/// Tokens of the three roles.
pub(crate) const READER: &str = "admin-token-that-reads-0001";
pub(crate) const OPERATOR: &str = "admin-token-that-operates-0002";
pub(crate) const ADMIN: &str = "admin-token-that-does-all-0003";

/// Adds tokens of all roles to a configuration.
pub(crate) fn with_tokens(setup: Setup) -> Setup {
    let token = |name: &str, role: &str, text: &str| {
        let hash = model_gateway::account::KeyHash::of(text).to_hex();
        format!("[[token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{hash}\"\n\n")
    };
    let tokens =
        token("rita", "read", READER) + &token("otto", "operate", OPERATOR) + &token("anna", "admin", ADMIN);
    setup.file("admin.toml", &tokens)
}

/// Request to the admin API.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

impl Ask {
    pub(crate) fn new(method: &'static str, path: &str) -> Ask {
        Ask { method, path: format!("/admin/v1{path}"), headers: Vec::new(), body: None }
            .header("host", "127.0.0.1")
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Ask {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn token(self, token: &str) -> Ask {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn body(self, body: Value) -> Ask {
        Ask { body: Some(body.to_string()), ..self.header("content-type", "application/json") }
    }

    /// Sets the text of the body.
    pub(crate) fn text(self, body: &str) -> Ask {
        Ask { body: Some(body.to_owned()), ..self.header("content-type", "application/json") }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body = self.body.as_deref().unwrap_or_default();
        if self.body.is_some() || self.method != "GET" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        format!("{head}\r\n{body}").into_bytes()
    }

    pub(crate) async fn send(&self, gateway: &Gateway) -> Answer {
        ask(gateway.admin, self.bytes()).await
    }

    /// Sends the request, and panics unless the answer has this status.
    pub(crate) async fn expect(&self, gateway: &Gateway, status: u16) -> Value {
        let answer = self.send(gateway).await;
        assert_eq!(answer.status(), status, "{} {}: {}", self.method, self.path, answer.text());
        let value = answer.json();
        check_schema(self, status, &value);
        value
    }
}

pub(crate) fn get(path: &str) -> Ask {
    Ask::new("GET", path).token(READER)
}

pub(crate) fn post(path: &str) -> Ask {
    Ask::new("POST", path).token(ADMIN)
}

/// Panics unless an answer has the members that the OpenAPI document describes, and no others.
fn check_schema(ask: &Ask, status: u16, value: &Value) {
    let document: Value = serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
    let path = ask.path.split('?').next().unwrap();
    let segments: Vec<&str> = path.split('/').collect();
    let fits = |pattern: &str| {
        let parts: Vec<&str> = pattern.split('/').collect();
        parts.len() == segments.len()
            && parts.iter().zip(&segments).all(|(a, b)| a == b || a.starts_with('{'))
    };
    let mut paths: Vec<(&String, &Value)> =
        document["paths"].as_object().unwrap().iter().filter(|(pattern, _)| fits(pattern)).collect();
    paths.sort_by_key(|(pattern, _)| pattern.matches('{').count());
    let Some((_, methods)) = paths.first() else { return };
    let operation = &methods[ask.method.to_ascii_lowercase()];
    let schema = match status {
        200 => &operation["responses"]["200"]["content"]["application/json"]["schema"],
        _ => &document["components"]["responses"]["Error"]["content"]["application/json"]["schema"],
    };
    conforms(&document, schema, value, path);
}

fn conforms(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return conforms(document, document.pointer(&reference[1..]).unwrap(), value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let described = any.iter().find(|one| one["type"] != "null" || value.is_null()).unwrap();
        if !value.is_null() {
            conforms(document, described, value, at);
        }
        return;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().map(|of| of.as_str().unwrap()).collect(),
        of => of.as_str().into_iter().collect(),
    };
    if value.is_null() {
        assert!(types.is_empty() || types.contains(&"null"), "{at} is null, and described as {types:?}");
        return;
    }
    match types.first().copied() {
        Some("object") => {
            let members = value.as_object().unwrap_or_else(|| panic!("{at}: {value} is no object"));
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(members.contains_key(name.as_str().unwrap()), "{at} lacks {name}: {value}");
            }
            let Some(properties) = schema["properties"].as_object() else { return };
            for (name, member) in members {
                // Lines of the audit log and usage have further members.
                let described = properties.get(name);
                assert!(
                    described.is_some() || properties.contains_key("prev"),
                    "{at}: {name} is not described"
                );
                if let Some(described) = described {
                    conforms(document, described, member, &format!("{at}.{name}"));
                }
            }
        }
        Some("array") => {
            let list = value.as_array().unwrap_or_else(|| panic!("{at}: {value} is no list"));
            list.iter().for_each(|element| conforms(document, &schema["items"], element, at));
        }
        Some("string") => assert!(value.is_string(), "{at}: {value} is no text"),
        Some("integer") => assert!(value.is_i64() || value.is_u64(), "{at}: {value} is no whole number"),
        Some("boolean") => assert!(value.is_boolean(), "{at}: {value} is no flag"),
        _ => {}
    }
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{at}: {value} is not one of {values:?}");
    }
}
