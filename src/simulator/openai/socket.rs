//! Responses over a WebSocket (`GET /v1/responses` with an upgrade): the events of the client, and the event of an error.
//!
//! Source: OpenAI's guide "WebSocket mode" and the event types of openai-python 3.54. A connection has one response in
//! progress; requests that arrive meanwhile wait for it. The latest response of a connection can be continued also
//! with `store: false`. Unlike the provider, lanes (`stream_id`) do not run in parallel.
//!
//! The transport is `server::socket`.

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

use super::super::envelope;
use super::super::http::{Content, Reply, Request};
use super::super::ids::Ids;
use super::super::server::Call;
use super::errors::{self, ApiError};
use super::store::{Store, StoreView};
use super::{Site, authorize, responses, with_headers};

/// Latest response of a connection.
#[derive(Debug, Default)]
pub(in super::super) struct ConnectionMemory(Store);

/// Event of a client.
#[derive(Debug)]
pub(in super::super) enum ClientEvent {
    /// `response.create`, with the body that the POST would have.
    Create(Box<Create>),
    /// `response.steer`.
    Steer(Value),
    /// An event of another type, which is ignored.
    Other,
}

/// Request for a response.
#[derive(Debug)]
pub(in super::super) struct Create {
    body: Value,
    generates: bool,
    /// `stream_id`, which each event of the response repeats.
    pub(in super::super) lane: Option<Value>,
}

impl Site {
    /// Checks the handshake of a WebSocket. `None` if the request is none.
    pub(in super::super) fn handshake(&self, request: &Request, credential: Option<&str>) -> Option<Reply> {
        let upgrades = request.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
        if request.method != Method::GET || request.path != "/v1/responses" || !upgrades {
            return None;
        }
        if let Err(error) = authorize(request, credential) {
            return Some(error.reply());
        }
        let Some(key) = request.header("sec-websocket-key") else {
            return Some(ApiError::invalid("Missing Sec-WebSocket-Key header.").reply());
        };
        let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
        Some(Reply {
            status: 101,
            headers: vec![
                ("upgrade", "websocket".to_owned()),
                ("connection", "Upgrade".to_owned()),
                ("sec-websocket-accept", accept),
            ],
            ..Reply::new(101, "", "")
        })
    }

    /// Answers a request of a connection, as the POST is answered.
    pub(in super::super) fn answer_create(
        &self,
        call: &Call<'_>,
        create: &Create,
        memory: &ConnectionMemory,
    ) -> Reply {
        let mut ids = Ids::new(call.serial, &call.request.body);
        let request_id = ids.hex("req_", 32);
        let store = StoreView { stored: &self.store, connection: Some(&memory.0) };
        let reply = match (envelope::refusal(&create.body), create.generates) {
            (Some(refusal), _) => Err(ApiError::invalid(refusal)),
            (None, true) => responses::answer(call, store, &create.body, ids),
            (None, false) => responses::prepare(store, &create.body, ids),
        };
        let reply = reply.unwrap_or_else(|error| error.reply());
        with_headers(reply.with_retry_after(), call.request, request_id)
    }
}

/// Reads a message. The error is the event that answers it.
pub(in super::super) fn read(text: &str) -> Result<ClientEvent, Value> {
    let Ok(Value::Object(mut event)) = serde_json::from_str(text) else {
        return Err(error_event(&errors::not_json().reply(), None));
    };
    match event.remove("type").as_ref().and_then(Value::as_str) {
        Some("response.create") => {
            let lane = event.remove("stream_id").filter(|lane| !lane.is_null());
            let generates = event.remove("generate") != Some(Value::Bool(false));
            if event.get("background") == Some(&Value::Bool(true)) {
                let error = ApiError::invalid("'background' is not supported over WebSocket.");
                return Err(error_event(&error.param("background").reply(), lane.as_ref()));
            }
            event.insert("stream".to_owned(), Value::Bool(true));
            Ok(ClientEvent::Create(Box::new(Create { body: Value::Object(event), generates, lane })))
        }
        Some("response.steer") => Ok(ClientEvent::Steer(Value::Object(event))),
        _ => Ok(ClientEvent::Other),
    }
}

/// Returns the event of an error response: its status, its error, and the headers that concern the client.
pub(in super::super) fn error_event(reply: &Reply, lane: Option<&Value>) -> Value {
    let body: Value = match &reply.content {
        Content::Whole(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
        Content::Claimed(..) | Content::Steps(_) => Value::Null,
    };
    let error = body.get("error").cloned().unwrap_or_else(|| errors::server_error(500).inner());
    let headers: Map<String, Value> =
        reply.headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let mut event = json!({"type": "error", "status": reply.status, "error": error, "headers": headers});
    mark(&mut event, lane);
    event
}

/// Returns the event of a connection that has reached its lifetime.
pub(in super::super) fn lifetime_error() -> Value {
    let error = ApiError::invalid(
        "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue.",
    );
    error_event(&error.code("websocket_connection_limit_reached").reply(), None)
}

/// Returns the answer to `response.steer`, and its input items if they are accepted: if it names the response in progress,
/// and has messages of the user alone.
pub(in super::super) fn steer(event: &Value, in_progress: Option<&str>) -> (Value, Vec<Value>) {
    let previous = event.get("previous_response_id").and_then(Value::as_str);
    let items = items(event.get("input"));
    let (code, message) = if previous.is_none() || previous != in_progress {
        ("response_not_active", "The response is not in progress.")
    } else if items.is_empty() || items.iter().any(|item| item.get("role") != Some(&json!("user"))) {
        ("invalid_input", "Steering accepts messages of the user.")
    } else {
        let steer = json!({"id": format!("steer_{}", previous.unwrap_or_default()), "previous_response_id": previous});
        return (json!({"type": "response.steer.accepted", "sequence_number": 0, "steer": steer}), items);
    };
    let error = json!({"type": "invalid_request_error", "code": code, "message": message});
    let steer = json!({"previous_response_id": previous, "input": event.get("input")});
    (
        json!({"type": "response.steer.failed", "sequence_number": 0, "steer": steer, "error": error}),
        Vec::new(),
    )
}

fn items(input: Option<&Value>) -> Vec<Value> {
    match input {
        Some(Value::String(text)) => vec![json!({"type": "message", "role": "user", "content": text})],
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    }
}

/// Makes the last event of a response that is steered of the one that it would have had.
pub(in super::super) fn end_steered(last: &mut Value) {
    let Some(event) = last.as_object_mut() else { return };
    event.insert("type".to_owned(), json!("response.incomplete"));
    if let Some(response) = event.get_mut("response").and_then(Value::as_object_mut) {
        response.insert("status".to_owned(), json!("incomplete"));
        response.insert("incomplete_details".to_owned(), json!({"reason": "steered"}));
    }
}

impl Create {
    /// Returns the request for the successor of a response that was steered with these items, and its text.
    pub(in super::super) fn successor(&self, steers: Vec<Value>) -> (Create, Bytes) {
        let mut body = self.body.clone();
        let mut input = items(body.get("input"));
        input.extend(steers);
        if let Some(members) = body.as_object_mut() {
            members.insert("input".to_owned(), Value::Array(input));
        }
        let text = Bytes::from(body.to_string());
        (Create { body, generates: true, lane: self.lane.clone() }, text)
    }
}

/// Adds the lane to an event.
pub(in super::super) fn mark(event: &mut Value, lane: Option<&Value>) {
    if let Some((lane, members)) = lane.zip(event.as_object_mut()) {
        members.insert("stream_id".to_owned(), lane.clone());
    }
}
