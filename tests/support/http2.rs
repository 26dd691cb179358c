//! HTTP/2 on both sides: a client of the gateway, and upstreams whose script runs for every request.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::form::Form;
use super::http1::{Head, Io};
use super::setup::KEY;
use super::soon;
use super::upstream::{self, Seen, Upstream};

/// Client connection to the gateway.
pub(crate) struct Client {
    requests: SendRequest<Bytes>,
    scheme: &'static str,
    /// Resolves when the connection has ended, with the error that ended it.
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    /// Connects without TLS, with prior knowledge.
    pub(crate) async fn connect(addr: SocketAddr) -> Client {
        let socket = soon(TcpStream::connect(addr)).await.unwrap();
        Client::over(socket, "http").await
    }

    /// Connects over TLS.
    pub(crate) async fn connect_tls(
        addr: SocketAddr,
        config: Arc<rustls::ClientConfig>,
        name: &'static str,
    ) -> Client {
        let socket = soon(TcpStream::connect(addr)).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        let stream = soon(TlsConnector::from(config).connect(name, socket)).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        Client::over(stream, "https").await
    }

    /// Speaks HTTP/2 over a connection that is open already.
    pub(crate) async fn over(io: impl Io + 'static, scheme: &'static str) -> Client {
        let (requests, connection) =
            soon(h2::client::Builder::new().initial_window_size(1 << 20).handshake(io)).await.unwrap();
        let connection = tokio::spawn(connection);
        let requests = soon(requests.ready()).await.unwrap();
        Client { requests, scheme, connection }
    }

    /// Returns the maximum number of concurrent streams that the gateway permits.
    pub(crate) fn max_streams(&self) -> usize {
        self.requests.current_max_send_streams()
    }

    /// Starts a request whose body is sent later, with the tests' key.
    pub(crate) async fn begin(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let bearer = format!("Bearer {KEY}");
        self.begin_with(path, &[&[("authorization", &*bearer)], headers].concat()).await
    }

    /// Starts a request whose body is sent later, without a key.
    pub(crate) async fn begin_with(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}://gateway.test{path}", self.scheme))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut ready = soon(self.requests.clone().ready()).await.unwrap();
        ready.send_request(request.body(()).unwrap(), false).unwrap()
    }

    /// Sends a request without a body, and returns its response.
    pub(crate) async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> (Response<()>, Vec<u8>) {
        let uri = format!("{}://gateway.test{path}", self.scheme);
        let mut request = Request::builder().method(Method::GET).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut ready = soon(self.requests.clone().ready()).await.unwrap();
        let (response, _) = ready.send_request(request.body(()).unwrap(), true).unwrap();
        answer(response).await
    }

    /// Asks for a tunnel to a host (RFC 9113, section 8.5), and returns the response.
    pub(crate) async fn tunnel(&mut self, host: &str) -> (Response<()>, Vec<u8>) {
        let request = Request::builder().method(Method::CONNECT).uri(host).body(()).unwrap();
        let mut ready = soon(self.requests.clone().ready()).await.unwrap();
        let (response, _tunnel) = ready.send_request(request, false).unwrap();
        answer(response).await
    }

    /// Sends a request.
    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> ResponseFuture {
        let (answer, mut send) = self.begin(path, &[]).await;
        send_all(&mut send, body.into(), true).await.unwrap();
        answer
    }

    /// Sends a request of a format.
    pub(crate) async fn request(&mut self, form: Form, stream: bool) -> ResponseFuture {
        let path = form.path(form.model(), stream);
        self.post(&path, form.body(form.model(), stream)).await
    }

    /// Sends a request of a format and reads its response. Returns `None` if the gateway closes the connection (GOAWAY
    /// with NO_ERROR) without processing the request; a client then sends it over another connection.
    pub(crate) async fn exchange(&mut self, form: Form, stream: bool) -> Option<(Response<()>, Vec<u8>)> {
        let refused = |error: &h2::Error| error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
        let path = format!("{}://gateway.test{}", self.scheme, form.path(form.model(), stream));
        let head = Request::post(path).header("authorization", format!("Bearer {KEY}")).body(()).unwrap();
        let ready = soon(self.requests.clone().ready()).await;
        let (head, mut send) = match ready.and_then(|mut ready| ready.send_request(head, false)) {
            Ok(sent) => sent,
            Err(error) if refused(&error) => return None,
            Err(error) => panic!("{error:?}"),
        };
        let sent = send_all(&mut send, form.body(form.model(), stream).into(), true).await;
        match soon(head).await {
            Err(error) if refused(&error) => None,
            head => {
                sent.unwrap();
                let (head, body) = head.unwrap().into_parts();
                let (body, error) = read_body(body).await;
                assert!(error.is_none(), "{error:?}");
                Some((Response::from_parts(head, ()), body))
            }
        }
    }

    /// Waits until the gateway ends the connection.
    pub(crate) async fn closed(&mut self) -> Result<(), h2::Error> {
        soon(&mut self.connection).await.unwrap()
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_finished()
    }
}

/// Sends bytes as far as the peer's flow-control windows permit, until all are sent.
pub(crate) async fn send_all(
    send: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    end: bool,
) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        send.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| send.poll_capacity(cx)).await;
        let Some(room) = room.transpose()? else { return Err(Reason::CANCEL.into()) };
        let piece = bytes.split_to(room.min(bytes.len()));
        send.send_data(piece, end && bytes.is_empty())?;
        if bytes.is_empty() {
            return Ok(());
        }
    }
    send.send_data(Bytes::new(), end)
}

/// Reads a body to its end. Returns the bytes, and the error if the body was cut.
pub(crate) async fn read_body(mut body: RecvStream) -> (Vec<u8>, Option<h2::Error>) {
    let mut bytes = Vec::new();
    while let Some(piece) = soon(body.data()).await {
        match piece {
            Ok(piece) => {
                let _ = body.flow_control().release_capacity(piece.len());
                bytes.extend_from_slice(&piece);
            }
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

/// Reads a complete response.
pub(crate) async fn answer(answer: ResponseFuture) -> (Response<()>, Vec<u8>) {
    let (head, body) = soon(answer).await.unwrap().into_parts();
    let (bytes, error) = read_body(body).await;
    assert!(error.is_none(), "{error:?}");
    (Response::from_parts(head, ()), bytes)
}

/// Request to an HTTP/2 upstream, with the handle for its response.
pub(crate) struct Exchange {
    pub(crate) request: upstream::Request,
    pub(crate) answer: h2::server::SendResponse<Bytes>,
}

impl Exchange {
    /// Sends a response with a complete body.
    pub(crate) async fn whole(&mut self, status: u16, kind: &str, body: impl Into<Bytes>) {
        let mut send = self.head(status, kind);
        let _ = send_all(&mut send, body.into(), true).await;
    }

    /// Sends a response head; the body follows.
    pub(crate) fn head(&mut self, status: u16, kind: &str) -> SendStream<Bytes> {
        let head = Response::builder().status(status).header("content-type", kind).body(()).unwrap();
        self.answer.send_response(head, false).unwrap()
    }
}

impl Upstream {
    /// Starts an HTTP/2 upstream; the script runs for every request whose body is complete.
    pub(crate) async fn start_h2<S, F>(tls: Option<Arc<rustls::ServerConfig>>, script: S) -> Upstream
    where
        S: Fn(Exchange) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let script = Arc::new(script);
        let tls = tls.map(TlsAcceptor::from);
        Upstream::accept(move |number, socket, seen| {
            let (script, tls) = (script.clone(), tls.clone());
            async move {
                match tls {
                    None => serve(number, socket, seen, script).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(socket).await {
                            serve(number, stream, seen, script).await;
                        }
                    }
                }
            }
        })
        .await
    }
}

async fn serve<S, F>(number: usize, io: impl Io, seen: Arc<Seen>, script: Arc<S>)
where
    S: Fn(Exchange) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let handshake = h2::server::Builder::new().initial_window_size(1 << 20).handshake(io).await;
    let Ok(mut connection) = handshake else { return };
    let mut running = JoinSet::new();
    while let Some(Ok((request, answer))) = connection.accept().await {
        let (seen, script) = (seen.clone(), script.clone());
        running.spawn(async move {
            let (head, body) = request.into_parts();
            let (body, error) = read_body(body).await;
            if error.is_some() {
                return;
            }
            let target = head.uri.path_and_query().map_or("", |target| target.as_str());
            let mut fields = vec![(
                ":authority".to_owned(),
                head.uri.authority().map(ToString::to_string).unwrap_or_default(),
            )];
            for (name, value) in &head.headers {
                fields.push((name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
            }
            let head = Head { line: format!("{} {target} HTTP/2", head.method), fields };
            let request = upstream::Request { head, body, connection: number };
            seen.note(request.clone());
            script(Exchange { request, answer }).await;
        });
    }
}
