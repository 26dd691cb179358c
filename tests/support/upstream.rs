//! Scripted upstreams: a listener, and a script that runs for every connection.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::http1::{Body, Head, Wire};
use super::until;

/// Request as an upstream received it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// Index of the connection at the upstream, from 0.
    pub(crate) connection: usize,
}

impl Request {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns request line, headers and body as one text, to be searched.
    pub(crate) fn everything(&self) -> String {
        let fields = self.head.fields.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let head: String = fields.collect();
        format!("{}\n{head}\n{}", self.head.line, String::from_utf8_lossy(&self.body))
    }
}

/// Record of the requests and connections of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
}

impl Seen {
    /// Records a complete request.
    pub(crate) fn note(&self, request: Request) {
        self.requests.lock().unwrap().push(request);
    }
}

/// Listening upstream. It stops accepting when it is dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    seen: Arc<Seen>,
    accepting: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Upstream {
    /// Starts a plaintext upstream; the script runs for every connection.
    pub(crate) async fn start<S, F>(script: S) -> Upstream
    where
        S: Fn(Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Upstream::listen(None, script).await
    }

    /// Starts a TLS upstream; the script runs for every connection.
    pub(crate) async fn start_tls<S, F>(config: Arc<rustls::ServerConfig>, script: S) -> Upstream
    where
        S: Fn(Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Upstream::listen(Some(TlsAcceptor::from(config)), script).await
    }

    async fn listen<S, F>(tls: Option<TlsAcceptor>, script: S) -> Upstream
    where
        S: Fn(Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let script = Arc::new(script);
        Upstream::accept(move |number, socket, seen| {
            let (tls, script) = (tls.clone(), script.clone());
            async move {
                let conn = match tls {
                    None => Some(Conn::plain(number, socket, seen)),
                    Some(tls) => Conn::encrypted(number, socket, seen, &tls).await,
                };
                if let Some(conn) = conn {
                    script(conn).await;
                }
            }
        })
        .await
    }

    /// Starts an upstream that passes every accepted socket to `serve`.
    pub(crate) async fn accept<S, F>(serve: S) -> Upstream
    where
        S: Fn(usize, TcpStream, Arc<Seen>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Upstream::accept_at(SocketAddr::from(([127, 0, 0, 1], 0)), serve).await
    }

    /// Like `accept`, at a given address.
    pub(crate) async fn accept_at<S, F>(addr: SocketAddr, serve: S) -> Upstream
    where
        S: Fn(usize, TcpStream, Arc<Seen>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let noted = seen.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                let number = noted.connections.fetch_add(1, Ordering::SeqCst);
                let (served, noted) = (serve(number, socket, noted.clone()), noted.clone());
                connections.spawn(async move {
                    served.await;
                    noted.closed.fetch_add(1, Ordering::SeqCst);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Upstream { addr, seen, accepting }
    }

    /// Starts an upstream that sends the same response to every request and keeps its connections open.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Upstream {
        let answer: Arc<[u8]> = answer.into().into();
        Upstream::start(move |mut conn| {
            let answer = answer.clone();
            async move {
                while conn.request().await.is_some() {
                    conn.send(&answer).await;
                }
            }
        })
        .await
    }

    /// Starts an upstream that sends the responses in order, one for each request, and repeats the last one.
    pub(crate) async fn answering_each(answers: Vec<Vec<u8>>) -> Upstream {
        let answers = Arc::new(answers);
        let turn = Arc::new(AtomicUsize::new(0));
        Upstream::start(move |mut conn| {
            let (answers, turn) = (answers.clone(), turn.clone());
            async move {
                while conn.request().await.is_some() {
                    let turn = turn.fetch_add(1, Ordering::SeqCst);
                    conn.send(&answers[turn.min(answers.len() - 1)]).await;
                }
            }
        })
        .await
    }

    /// Returns the complete requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Returns the number of complete requests so far.
    pub(crate) fn count(&self) -> usize {
        self.seen.requests.lock().unwrap().len()
    }

    /// Returns the only request. Panics if there is not exactly one.
    pub(crate) fn only_request(&self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    /// Returns the last request.
    pub(crate) fn last_request(&self) -> Request {
        self.requests().pop().unwrap()
    }

    /// Waits until `count` requests are complete.
    pub(crate) async fn wait_for(&self, count: usize) {
        until(|| self.count() >= count).await;
    }

    /// Returns the number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of connections whose script has ended.
    pub(crate) fn closed(&self) -> usize {
        self.seen.closed.load(Ordering::SeqCst)
    }
}

/// Connection of a scripted upstream.
pub(crate) struct Conn {
    /// Index of the connection, from 0.
    pub(crate) number: usize,
    /// Server name of the TLS handshake (SNI).
    pub(crate) sni: Option<String>,
    wire: Wire,
    seen: Arc<Seen>,
    /// Second descriptor of the socket, for `reset`.
    socket: Option<std::net::TcpStream>,
}

impl Conn {
    pub(crate) fn plain(number: usize, socket: TcpStream, seen: Arc<Seen>) -> Conn {
        let socket = socket.into_std().unwrap();
        let copy = socket.try_clone().unwrap();
        let io = TcpStream::from_std(socket).unwrap();
        Conn { number, sni: None, wire: Wire::new(Box::new(io)), seen, socket: Some(copy) }
    }

    async fn encrypted(number: usize, socket: TcpStream, seen: Arc<Seen>, tls: &TlsAcceptor) -> Option<Conn> {
        let stream = tls.accept(socket).await.ok()?;
        let sni = stream.get_ref().1.server_name().map(str::to_owned);
        Some(Conn { number, sni, wire: Wire::new(Box::new(stream)), seen, socket: None })
    }

    /// Reads a request head without its body.
    pub(crate) async fn head(&mut self) -> Option<Head> {
        self.wire.head(true).await
    }

    /// Reads the body after a head.
    pub(crate) async fn body(&mut self) -> Body {
        self.wire.body().await
    }

    /// Reads and records a complete request. Returns `None` if the connection ends before.
    pub(crate) async fn request(&mut self) -> Option<Request> {
        let head = self.head().await?;
        let body = self.body().await;
        if !body.complete {
            return None;
        }
        let request = Request { head, body: body.bytes, connection: self.number };
        self.seen.note(request.clone());
        Some(request)
    }

    /// Sends bytes and ignores the error if the gateway has closed the connection.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.try_send(bytes).await;
    }

    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.wire.send(bytes).await
    }

    /// Waits until the gateway closes the connection.
    pub(crate) async fn closed(&mut self) {
        self.wire.closed().await;
    }

    /// Ends the connection with a TCP reset.
    pub(crate) fn reset(self) {
        let socket = TcpStream::from_std(self.socket.expect("a plain connection")).unwrap();
        socket.set_zero_linger().unwrap();
        // The reset is sent when the last of both descriptors is closed.
        drop(self.wire);
        drop(socket);
    }
}

/// Waits 300 ms. Only for assertions that nothing happens, where there is no event to wait for.
pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}
