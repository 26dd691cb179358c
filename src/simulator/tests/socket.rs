//! Responses over a WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tungstenite::Message;
use tungstenite::client::IntoClientRequest as _;

use super::super::{Options, SimulatedProvider, Simulator};

struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn open(simulator: &Simulator, key: &str) -> Result<Socket, tungstenite::Error> {
        let stream = TcpStream::connect(simulator.addr()).await.unwrap();
        let mut request = format!("ws://{}/v1/responses", simulator.addr()).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        tokio_tungstenite::client_async(request, stream).await.map(|(socket, _)| Socket(socket))
    }

    async fn send(&mut self, event: Value) {
        self.0.send(Message::text(event.to_string())).await.unwrap();
    }

    async fn event(&mut self) -> Option<Value> {
        match self.0.next().await? {
            Ok(Message::Text(text)) => Some(serde_json::from_str(&text).unwrap()),
            _ => None,
        }
    }

    /// Returns the last event of one response.
    async fn end(&mut self) -> Value {
        loop {
            let event = self.event().await.unwrap();
            let kind = event["type"].as_str().unwrap();
            if matches!(kind, "response.completed" | "response.incomplete" | "response.failed" | "error") {
                return event;
            }
        }
    }

    async fn ask(&mut self, mut request: Value) -> Value {
        request["type"] = json!("response.create");
        self.send(request).await;
        self.end().await
    }
}

async fn simulator(options: Options) -> Simulator {
    Simulator::start(SimulatedProvider::OpenAi, Options { credential: Some("k".to_owned()), ..options })
        .await
        .unwrap()
}

#[tokio::test]
async fn socket_responses_continue_the_latest_one_of_their_connection() {
    let simulator = simulator(Options::default()).await;
    assert!(
        matches!(Socket::open(&simulator, "wrong").await, Err(tungstenite::Error::Http(answer)) if answer.status() == 401)
    );
    let mut socket = Socket::open(&simulator, "k").await.unwrap();
    let request = json!({"model": "m", "input": [], "generate": false, "store": false});
    let prepared = socket.ask(request).await;
    assert_eq!(prepared["response"]["output"], json!([]));
    assert_eq!(prepared["response"]["usage"]["total_tokens"], 0);
    let mut id = prepared["response"]["id"].clone();
    for _ in 0..2 {
        let request = json!({"model": "m", "input": "hi", "store": false, "previous_response_id": id, "stream_id": "s"});
        let end = socket.ask(request).await;
        assert_eq!((&end["type"], &end["stream_id"]), (&json!("response.completed"), &json!("s")));
        id = end["response"]["id"].clone();
    }
    let unknown = socket.ask(json!({"model": "m", "input": "hi", "previous_response_id": "resp_0"})).await;
    assert_eq!(
        (&unknown["status"], &unknown["error"]["code"]),
        (&json!(400), &json!("previous_response_not_found"))
    );
    // Another connection does not know what is not stored.
    let mut other = Socket::open(&simulator, "k").await.unwrap();
    let unknown = other.ask(json!({"model": "m", "input": "hi", "previous_response_id": id})).await;
    assert_eq!(unknown["error"]["code"], "previous_response_not_found");
}

#[tokio::test]
async fn socket_has_one_response_in_progress() {
    let simulator = simulator(Options { per_token: Duration::from_millis(1), ..Options::default() }).await;
    let mut socket = Socket::open(&simulator, "k").await.unwrap();
    for _ in 0..2 {
        socket
            .send(json!({"type": "response.create", "model": "m", "input": "one two three", "store": false}))
            .await;
    }
    let mut kinds = Vec::new();
    while kinds.iter().filter(|kind| *kind == "response.completed").count() < 2 {
        kinds.push(socket.event().await.unwrap()["type"].as_str().unwrap().to_owned());
    }
    let created: Vec<usize> = (0..kinds.len()).filter(|at| kinds[*at] == "response.created").collect();
    assert_eq!(created.len(), 2);
    assert!(kinds[..created[1]].iter().any(|kind| kind == "response.completed"), "{kinds:?}");
    assert_eq!(simulator.requests(), 2);
}

#[tokio::test]
async fn socket_errors_have_a_status_and_leave_it_open() {
    let simulator = simulator(Options::default()).await;
    let mut socket = Socket::open(&simulator, "k").await.unwrap();
    let limited = socket.ask(json!({"model": "m", "input": "[[status 429]]"})).await;
    assert_eq!((&limited["status"], &limited["headers"]["retry-after"]), (&json!(429), &json!("7")));
    socket.send(json!("no object")).await;
    assert_eq!(socket.end().await["status"], 400);
    assert_eq!(socket.ask(json!({"model": "m", "input": "hi"})).await["type"], "response.completed");
}

#[tokio::test]
async fn socket_is_closed_at_the_end_of_its_lifetime() {
    let options = Options { websocket_lifetime: Duration::from_millis(50), ..Options::default() };
    let simulator = simulator(options).await;
    let mut socket = Socket::open(&simulator, "k").await.unwrap();
    assert_eq!(socket.end().await["error"]["code"], "websocket_connection_limit_reached");
    assert!(matches!(socket.0.next().await, Some(Ok(Message::Close(Some(_))))));
}
