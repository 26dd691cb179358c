//! The client against a scripted server on the loopback interface.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pingora::ErrorType;
use pingora::connectors::ConnectorOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::body::{BodyError, OpenResponse};
use super::send::{CallLog, RequestDestination, SendError, UpstreamRequest};
use super::*;
use crate::gateway::provider_addresses::ProviderAddresses;
use codec::error::ErrorKind;
use codec::provider::{BaseUrl, Provider, ProviderKind, Setup, Timeouts};
use codec::wire::Api;
use driver::body_memory::RequestBudget;
use driver::peer::Upstream;
use driver::reader::MAX_ERROR_BODY;

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-request-id: abc\r\n\r\nhello";

/// Reaction of the scripted server to one request.
#[derive(Clone)]
enum Step {
    Respond(Vec<u8>),
    /// Responds, then closes the connection.
    RespondAndClose(Vec<u8>),
    /// Closes the connection without a response.
    Close,
}

/// Returns the step that responds with these bytes.
fn respond(bytes: impl AsRef<[u8]>) -> Step {
    Step::Respond(bytes.as_ref().to_vec())
}

/// Server whose connections each follow a script, and then stay open without a response.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    async fn start(scripts: &[&[Step]]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let server = Server { address, connections: connections.clone(), requests: requests.clone() };
        let mut scripts = scripts.iter().map(|script| script.to_vec()).collect::<Vec<_>>().into_iter();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(follow(stream, scripts.next().unwrap_or_default(), requests.clone()));
            }
        });
        server
    }

    /// Returns the numbers of connections and requests so far.
    fn counts(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }
}

async fn follow(mut stream: TcpStream, script: Vec<Step>, requests: Arc<AtomicUsize>) {
    for step in script {
        if !read_request(&mut stream).await {
            return;
        }
        requests.fetch_add(1, Ordering::SeqCst);
        // The client may close the connection before it has read everything, so a failed write is no fault.
        match step {
            Step::Respond(bytes) => _ = stream.write_all(&bytes).await,
            Step::RespondAndClose(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Step::Close => return,
        }
    }
    if read_request(&mut stream).await {
        requests.fetch_add(1, Ordering::SeqCst);
    }
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// Reads a request head. False at the end of the connection.
async fn read_request(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    true
}

/// Client with a provider at a scripted server.
struct Fixture {
    client: UpstreamClient,
    addresses: ProviderAddresses,
    server: Server,
}

impl Fixture {
    async fn start(scripts: &[&[Step]]) -> Fixture {
        let server = Server::start(scripts).await;
        let limits = Limits::default();
        let base = BaseUrl::parse(&format!("http://{}", server.address)).unwrap();
        let (name, kind) = ("p".to_owned(), ProviderKind::OpenAiCompatible);
        let provider = Provider::new(Setup { name, kind, apis: vec![Api::Chat], base });
        let addresses = ProviderAddresses::new(Arc::new(provider), &limits);
        let connections = Connections::new(ConnectorOptions::new(8), Duration::from_secs(60));
        let client = UpstreamClient::new(
            Arc::new(connections),
            Resolver::new().unwrap(),
            limits,
            BodyMemory::new(1 << 30),
            Arc::new(Metrics::new().unwrap()),
        );
        Fixture { client, addresses, server }
    }

    fn request(&self) -> UpstreamRequest<'_> {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.headers.insert(http::header::HOST, http::HeaderValue::from_static("p"));
        let timeout = Duration::from_secs(60);
        UpstreamRequest {
            destination: RequestDestination::Provider(&self.addresses),
            series: None,
            parts,
            body: None,
            timeouts: Timeouts { first_byte: timeout, idle: timeout, ..Timeouts::default() },
            until: Instant::now() + timeout,
            repeatable: true,
        }
    }

    async fn send(&self, request: &UpstreamRequest<'_>) -> (Result<OpenResponse, SendError>, CallLog) {
        let mut log = CallLog::default();
        (self.client.send(request, &mut log).await, log)
    }

    /// Sends the usual request and reads the response to its end.
    async fn get(&self) -> Vec<u8> {
        let mut response = self.send(&self.request()).await.0.unwrap();
        read_all(&mut response).await.unwrap()
    }

    fn stale_retries(&self) -> u64 {
        self.client.metrics.upstream_retries.with_label_values(&["p", "stale_connection"]).get()
    }
}

async fn read_all(response: &mut OpenResponse) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(piece) = response.next().await? {
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

#[tokio::test]
async fn connection_returns_to_the_pool_at_the_end_of_the_body() {
    let fixture = Fixture::start(&[&[respond(HELLO), respond(HELLO)]]).await;
    let mut response = fixture.send(&fixture.request()).await.0.unwrap();
    assert_eq!(read_all(&mut response).await.unwrap(), b"hello");
    // The head can be read although the connection serves the next request already.
    assert_eq!(fixture.get().await, b"hello");
    assert_eq!(response.text(&http::header::CONTENT_LENGTH), Some("5"));
    assert_eq!((response.status, response.length), (200, Some(5)));
    assert_eq!(fixture.server.counts(), (1, 2));
}

#[tokio::test]
async fn connection_is_closed_if_the_body_is_not_read_to_its_end() {
    let partial = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello";
    let fixture = Fixture::start(&[&[respond(partial)], &[respond(HELLO)]]).await;
    let mut response = fixture.send(&fixture.request()).await.0.unwrap();
    assert_eq!(response.next().await.unwrap().unwrap(), "hello");
    drop(response);
    assert_eq!(fixture.get().await, b"hello");
    assert_eq!(fixture.server.counts(), (2, 2));
}

#[tokio::test]
async fn connection_that_the_server_ends_is_not_pooled() {
    let last = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    let fixture = Fixture::start(&[&[respond(last)], &[respond(HELLO)]]).await;
    fixture.get().await;
    fixture.get().await;
    assert_eq!(fixture.server.counts(), (2, 2));
}

#[tokio::test]
async fn connection_to_an_address_is_not_pooled() {
    let fixture = Fixture::start(&[&[respond(HELLO)], &[respond(HELLO)]]).await;
    for _ in 0..2 {
        let peer = Upstream::for_remote_media(fixture.server.address, false, "p".to_owned());
        let destination = RequestDestination::Address(Arc::new(peer));
        let request = UpstreamRequest { destination, ..fixture.request() };
        let mut response = fixture.send(&request).await.0.unwrap();
        assert_eq!(read_all(&mut response).await.unwrap(), b"hello");
    }
    assert_eq!(fixture.server.counts(), (2, 2));
}

#[tokio::test]
async fn stale_connection_is_replaced_once() {
    let fixture = Fixture::start(&[&[respond(HELLO), Step::Close], &[respond(HELLO), Step::Close]]).await;
    fixture.get().await;
    let (response, log) = fixture.send(&fixture.request()).await;
    assert_eq!(read_all(&mut response.unwrap()).await.unwrap(), b"hello");
    assert_eq!((log.attempts, log.status, log.id.as_deref()), (2, Some(200), Some("abc")));
    assert_eq!((fixture.server.counts(), fixture.stale_retries()), ((2, 3), 1));
}

#[tokio::test]
async fn stale_connection_is_not_replaced_after_a_new_one_has_failed() {
    let fixture = Fixture::start(&[&[respond(HELLO), Step::Close], &[Step::Close], &[respond(HELLO)]]).await;
    fixture.get().await;
    let (response, log) = fixture.send(&fixture.request()).await;
    assert!(matches!(response, Err(SendError::Connection(_))));
    assert_eq!((log.attempts, fixture.server.counts()), (2, (2, 3)));
}

#[tokio::test]
async fn request_that_creates_something_uses_a_new_connection_and_is_sent_once() {
    let fixture = Fixture::start(&[&[respond(HELLO), respond(HELLO)], &[Step::Close]]).await;
    fixture.get().await;
    let request = UpstreamRequest { repeatable: false, ..fixture.request() };
    let (response, log) = fixture.send(&request).await;
    assert!(matches!(response, Err(SendError::Connection(_))));
    assert_eq!((log.attempts, log.outcome_unknown), (1, true));
    assert_eq!((fixture.server.counts(), fixture.stale_retries()), ((2, 2), 0));
}

#[tokio::test]
async fn response_head_that_does_not_arrive_is_a_time_out_with_unknown_outcome() {
    let fixture = Fixture::start(&[]).await;
    let first_byte = Duration::from_millis(200);
    let timeouts = Timeouts { first_byte, ..fixture.request().timeouts };
    let (response, log) = fixture.send(&UpstreamRequest { timeouts, ..fixture.request() }).await;
    assert!(matches!(response, Err(SendError::Timeout)));
    assert_eq!((log.attempts, log.request_sent, log.outcome_unknown, log.created), (1, true, true, false));
}

#[tokio::test]
async fn connect_failure_leaves_no_unknown_outcome() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let fixture = Fixture::start(&[]).await;
    let peer = Upstream::for_remote_media(address, false, "p".to_owned());
    let destination = RequestDestination::Address(Arc::new(peer));
    let (response, log) = fixture.send(&UpstreamRequest { destination, ..fixture.request() }).await;
    assert!(matches!(response, Err(SendError::Connect(_))));
    assert_eq!((log.attempts, log.request_sent, log.outcome_unknown), (1, false, false));
}

#[tokio::test]
async fn interim_responses_are_skipped_up_to_their_bound() {
    let hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let few = [&hints.repeat(8)[..], HELLO].concat();
    let fixture = Fixture::start(&[&[respond(few)], &[respond(hints.repeat(9))]]).await;
    assert_eq!(fixture.get().await, b"hello");
    let request = UpstreamRequest { repeatable: false, ..fixture.request() };
    let (response, log) = fixture.send(&request).await;
    let Err(SendError::Connection(error)) = response else { unreachable!("the flood is accepted") };
    assert_eq!(*error.etype(), ErrorType::InvalidHTTPHeader);
    // A byte of the response has arrived, so the request is not sent again.
    assert_eq!((log.attempts, fixture.server.counts()), (1, (2, 2)));
}

#[tokio::test]
async fn body_above_its_limit_is_an_error_and_closes_the_connection() {
    let large = [&b"HTTP/1.1 200 OK\r\ncontent-length: 4000000\r\n\r\n"[..], &[b'x'; 2_000_000]].concat();
    let fixture = Fixture::start(&[&[respond(&large)], &[respond(&large)], &[respond(HELLO)]]).await;
    let memory = &fixture.client.memory;
    for (limit, budget, message) in [
        (1_000_000, 2_000_000, "The upstream provider's response is larger than 1000000 bytes."),
        (2_000_000, 1_000_000, "The upstream provider's responses exceed 2000000 bytes in total."),
    ] {
        let response = fixture.send(&fixture.request()).await.0.unwrap();
        let tally = memory.tally(&RequestBudget::new(budget));
        let collected = response.collect_body(limit, Some(tally), &mut CallLog::default()).await;
        let error = collected.map(|response| response.body.len()).unwrap_err();
        assert_eq!((error.kind, &*error.message), (ErrorKind::UpstreamBroken, message));
    }
    assert_eq!(fixture.get().await, b"hello");
    assert_eq!(fixture.server.counts(), (3, 3));
}

#[tokio::test]
async fn error_body_is_cut_off_at_its_limit() {
    let large = [&b"HTTP/1.1 500 No\r\ncontent-length: 4000000\r\n\r\n"[..], &[b'x'; 2_000_000]].concat();
    let small = b"HTTP/1.1 500 No\r\ncontent-length: 5\r\n\r\nsorry";
    let fixture = Fixture::start(&[&[respond(large)], &[respond(small), respond(HELLO)]]).await;
    for length in [MAX_ERROR_BODY, 5] {
        let (response, log) = fixture.send(&fixture.request()).await;
        // The limit of a success body does not apply.
        let collected = response.unwrap().collect_body(0, None, &mut CallLog::default()).await.unwrap();
        assert_eq!((collected.status, collected.body.len(), log.created), (500, length, false));
    }
    assert_eq!(fixture.get().await, b"hello");
    assert_eq!(fixture.server.counts(), (2, 3));
}

#[tokio::test]
async fn body_that_stops_ends_at_the_idle_time_out_or_the_deadline() {
    let partial = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello";
    let fixture = Fixture::start(&[&[respond(partial)], &[respond(partial)]]).await;
    let brief = Duration::from_secs(1);
    let timeouts = Timeouts { idle: brief, ..fixture.request().timeouts };
    for by_idle in [true, false] {
        let request = match by_idle {
            true => UpstreamRequest { timeouts, ..fixture.request() },
            false => UpstreamRequest { until: Instant::now() + brief, ..fixture.request() },
        };
        let mut response = fixture.send(&request).await.0.unwrap();
        assert_eq!(response.next().await.unwrap().unwrap(), "hello");
        assert!(matches!(response.next().await, Err(BodyError::Timeout)));
    }
}

#[tokio::test]
async fn body_that_breaks_off_is_an_error() {
    let partial = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello";
    let fixture = Fixture::start(&[&[Step::RespondAndClose(partial.to_vec())]]).await;
    let mut response = fixture.send(&fixture.request()).await.0.unwrap();
    let Err(BodyError::Broken(_)) = read_all(&mut response).await else { unreachable!("the body is whole") };
}
