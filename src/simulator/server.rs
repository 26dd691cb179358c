//! Server of a simulator: accepts connections, reads, counts and records requests, and plays responses. `socket` serves
//! connections that were upgraded to a WebSocket.

mod socket;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::body::Playback;
use super::http::{Content, Reply, Request, Start, parse_query};
use super::scenario::Scenario;
use super::stream::Pacing;
use super::{Options, Recorded, SimulatedProvider, anthropic, bedrock, google, image, openai, search, video};

/// Maximum request body in bytes, which is the largest limit of the simulated providers.
const MAX_BODY: usize = 100 * 1024 * 1024;
/// Initial HTTP/2 flow-control window in bytes, large enough for large bodies at full speed.
const H2_WINDOW: u32 = 1024 * 1024;
/// Pause after a failed `accept`, usually for lack of file descriptors, to prevent a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Server {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// State that all connections share.
#[derive(Debug)]
struct Shared {
    site: Site,
    provider: SimulatedProvider,
    addr: SocketAddr,
    film: video::Film,
    credential: Option<String>,
    pacing: Pacing,
    websocket_lifetime: Duration,
    counts: Arc<Counts>,
    scenario: Scenario,
    last: Mutex<Option<Recorded>>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    aborted: AtomicU64,
}

/// Provider implementation, with its state.
#[derive(Debug)]
enum Site {
    OpenAi(openai::Site),
    Anthropic(anthropic::Site),
    Bedrock(bedrock::Site),
    Google(google::Site),
    Search(search::Site),
    Ark(image::Ark),
}

/// Request with its context, as passed to a provider implementation.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) request: &'a Request,
    /// API key that the request must have. `None` accepts any.
    pub(super) credential: Option<&'a str>,
    pub(super) pacing: Pacing,
    /// Number of this request at the server, from which identifiers derive.
    pub(super) serial: u64,
    pub(super) scenario: &'a Scenario,
}

impl Server {
    /// Binds the address and starts to accept.
    pub(super) async fn start(provider: SimulatedProvider, options: Options) -> io::Result<Server> {
        let listener = TcpListener::bind(options.addr).await?;
        let addr = listener.local_addr()?;
        let site = match provider {
            SimulatedProvider::OpenAi => Site::OpenAi(openai::Site::default()),
            SimulatedProvider::Anthropic => Site::Anthropic(anthropic::Site::default()),
            SimulatedProvider::Bedrock => Site::Bedrock(bedrock::Site::new(options.access_keys)),
            SimulatedProvider::ClaudeFoundry => {
                Site::Anthropic(anthropic::Site::at(anthropic::Platform::Foundry))
            }
            SimulatedProvider::ClaudeVertex => {
                Site::Anthropic(anthropic::Site::at(anthropic::Platform::Vertex))
            }
            SimulatedProvider::AzureOpenAi => Site::OpenAi(openai::Site::azure()),
            SimulatedProvider::GeminiVertex => Site::Google(google::Site { is_vertex: true }),
            SimulatedProvider::Google => Site::Google(google::Site { is_vertex: false }),
            SimulatedProvider::Ark => Site::Ark(image::Ark),
            SimulatedProvider::Cohere => Site::Search(search::Site::Cohere),
            SimulatedProvider::DashScope => Site::Search(search::Site::DashScope),
            SimulatedProvider::Jina => Site::Search(search::Site::Jina),
            SimulatedProvider::Tei => Site::Search(search::Site::Tei),
            SimulatedProvider::Vllm => Site::Search(search::Site::Vllm),
            SimulatedProvider::Voyage => Site::Search(search::Site::Voyage),
        };
        let shared = Arc::new(Shared {
            site,
            provider,
            addr,
            film: video::Film::default(),
            credential: options.credential,
            pacing: Pacing { first_token: options.first_token, per_token: options.per_token },
            websocket_lifetime: options.websocket_lifetime,
            counts: Arc::default(),
            scenario: Scenario::default(),
            last: Mutex::new(None),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Server { addr, shared, accepting })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn requests(&self) -> u64 {
        self.shared.counts.requests.load(Ordering::SeqCst)
    }

    pub(super) fn aborted(&self) -> u64 {
        self.shared.counts.aborted.load(Ordering::SeqCst)
    }

    /// Returns the state of a simulated Bedrock. `None` for other providers.
    pub(super) fn bedrock(&self) -> Option<&bedrock::Site> {
        match &self.shared.site {
            Site::Bedrock(site) => Some(site),
            _ => None,
        }
    }

    pub(super) fn scenario(&self) -> &Scenario {
        &self.shared.scenario
    }

    pub(super) fn last_request(&self) -> Option<Recorded> {
        self.shared.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The task owns the listener and its connections; aborting it closes both.
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(connection(socket, Arc::clone(&shared)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            // Reap finished connections: a `JoinSet` keeps their results until they are joined.
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(socket: TcpStream, shared: Arc<Shared>) {
    // Without `TCP_NODELAY`, Nagle's algorithm delays small frames until the previous ones are acknowledged. The result
    // of the call is ignored, since a failure only means that delay.
    let _ = socket.set_nodelay(true);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(H2_WINDOW)
        .initial_connection_window_size(2 * H2_WINDOW)
        .max_frame_size(Some(64 * 1024));
    let upgraded = Arc::new(Mutex::new(None));
    let service = {
        let (shared, upgraded) = (Arc::clone(&shared), Arc::clone(&upgraded));
        service_fn(move |request| serve(Arc::clone(&shared), Arc::clone(&upgraded), request))
    };
    // The requests of a connection record how it ended, so its result is ignored.
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(socket), service).await;
    let upgraded = upgraded.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Some(Upgrade { connection, handshake }), Site::OpenAi(site)) = (upgraded, &shared.site)
        && let Ok(connection) = connection.await
    {
        socket::Session::new(&shared, site, connection, handshake).await.run().await;
    }
}

/// Connection that is to be upgraded to a WebSocket, with the request for it.
#[derive(Debug)]
struct Upgrade {
    connection: OnUpgrade,
    handshake: Request,
}

/// Error for a client that disconnected before its request was complete. There is no client to respond to.
#[derive(Debug, thiserror::Error)]
#[error("the client went away in the middle of its request")]
struct Gone;

async fn serve(
    shared: Arc<Shared>,
    upgraded: Arc<Mutex<Option<Upgrade>>>,
    mut incoming: http::Request<Incoming>,
) -> Result<Response<Playback>, Gone> {
    let mut in_flight = InFlight::new(Arc::clone(&shared.counts));
    let connection = hyper::upgrade::on(&mut incoming);
    let Some((request, record)) = read(incoming).await else {
        return Err(Gone);
    };
    if let Site::OpenAi(site) = &shared.site
        && let Some(reply) = site.handshake(&request, shared.credential.as_deref())
    {
        in_flight.complete();
        if reply.status == 101 {
            let upgrade = Upgrade { connection, handshake: request };
            *upgraded.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
        }
        return Ok(respond(reply, in_flight));
    }
    *shared.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
    let serial = shared.counts.requests.fetch_add(1, Ordering::SeqCst) + 1;
    let reply = {
        let call = Call {
            request: &request,
            credential: shared.credential.as_deref(),
            pacing: shared.pacing,
            serial,
            scenario: &shared.scenario,
        };
        match (shared.film.answer(shared.provider, &call, &shared.addr.to_string()), &shared.site) {
            (Some(reply), _) => reply,
            (None, Site::OpenAi(site)) => site.answer(&call),
            (None, Site::Anthropic(site)) => site.answer(&call),
            (None, Site::Bedrock(site)) => site.answer(&call),
            (None, Site::Google(site)) => site.answer(&call),
            (None, Site::Search(site)) => site.answer(&call),
            (None, Site::Ark(site)) => site.answer(&call),
        }
    };
    match reply.start {
        Start::Now => {}
        Start::After(delay) => tokio::time::sleep(delay).await,
        Start::Never => std::future::pending().await,
    }
    if request.method == Method::HEAD || matches!(reply.status, 204 | 304) {
        // hyper drops the body of such a response without polling it.
        in_flight.complete();
    }
    Ok(respond(reply, in_flight))
}

/// Reads a request completely. Returns `None` if the connection ends before.
async fn read(incoming: http::Request<Incoming>) -> Option<(Request, Recorded)> {
    let (mut parts, body) = incoming.into_parts();
    // A request over HTTP/2 has its host in the target; signatures cover it as a header.
    if let Some(authority) = parts.uri.authority().filter(|_| !parts.headers.contains_key("host"))
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert("host", host);
    }
    let (body, too_large) = match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => (collected.to_bytes(), false),
        Err(error) if error.is::<LengthLimitError>() => (Bytes::new(), true),
        Err(_) => return None,
    };
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let record = Recorded {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path_and_query().map_or_else(|| parts.uri.path().to_owned(), ToString::to_string),
        headers,
        body: body.clone(),
        version: parts.version,
    };
    let request = Request {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(parse_query).unwrap_or_default(),
        headers: parts.headers,
        body,
        too_large,
    };
    Some((request, record))
}

fn respond(reply: Reply, in_flight: InFlight) -> Response<Playback> {
    let claimed = match &reply.content {
        Content::Claimed(_, length) => Some(*length),
        _ => None,
    };
    let playback = match reply.content {
        Content::Whole(bytes) => Playback::whole(&bytes, in_flight),
        Content::Claimed(steps, _) | Content::Steps(steps) => Playback::steps(steps, in_flight),
    };
    let mut response = Response::new(playback);
    if let Ok(status) = http::StatusCode::from_u16(reply.status) {
        *response.status_mut() = status;
    }
    let length = claimed.map(|length| ("content-length", length.to_string()));
    for (name, value) in reply.headers.into_iter().chain(length) {
        // A value may come from the request. Values that are not valid in a header are left out.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().append(HeaderName::from_static(name), value);
        }
    }
    response
}

/// Guard of a request in progress. If it is dropped before [`InFlight::complete`], the request counts as aborted: hyper
/// drops the future or the body of a request whose client has disconnected.
#[derive(Debug)]
pub(super) struct InFlight {
    counts: Arc<Counts>,
    completed: bool,
}

impl InFlight {
    fn new(counts: Arc<Counts>) -> InFlight {
        InFlight { counts, completed: false }
    }

    /// Marks the response as complete, or as broken off intentionally.
    pub(super) fn complete(&mut self) {
        self.completed = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.completed {
            self.counts.aborted.fetch_add(1, Ordering::SeqCst);
        }
    }
}
