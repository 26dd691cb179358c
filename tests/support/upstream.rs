//! Upstreams that do what a test says: a listener, and a script that runs for every connection.

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

/// A request as an upstream got it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// Which of the upstream's connections it came over, from 0.
    pub(crate) connection: usize,
}

impl Request {
    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Everything that was received, for a search.
    pub(crate) fn everything(&self) -> String {
        let fields = self.head.fields.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let head: String = fields.collect();
        format!("{}\n{head}\n{}", self.head.line, String::from_utf8_lossy(&self.body))
    }
}

/// What an upstream has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
}

impl Seen {
    /// Notes a request that is complete.
    pub(crate) fn note(&self, request: Request) {
        self.requests.lock().unwrap().push(request);
    }
}

/// A listening upstream; it ends with the value.
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
    /// Runs the script for every connection.
    pub(crate) async fn start<S, F>(script: S) -> Upstream
    where
        S: Fn(Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Upstream::listen(None, script).await
    }

    /// The same over TLS.
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

    /// Gives every connection to `serve` as it comes.
    pub(crate) async fn accept<S, F>(serve: S) -> Upstream
    where
        S: Fn(usize, TcpStream, Arc<Seen>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Upstream::accept_at(SocketAddr::from(([127, 0, 0, 1], 0)), serve).await
    }

    /// The same at an address of one's own.
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

    /// Gives every request the same answer and keeps its connections.
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

    /// Gives the first request the first answer and so on; the last one from then on.
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

    /// The requests that were complete so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// How many requests were complete so far.
    pub(crate) fn count(&self) -> usize {
        self.seen.requests.lock().unwrap().len()
    }

    /// The only request.
    pub(crate) fn only_request(&self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    /// The last request.
    pub(crate) fn last_request(&self) -> Request {
        self.requests().pop().unwrap()
    }

    /// Waits for so many complete requests.
    pub(crate) async fn wait_for(&self, count: usize) {
        until(|| self.count() >= count).await;
    }

    /// Connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Connections whose script has ended.
    pub(crate) fn closed(&self) -> usize {
        self.seen.closed.load(Ordering::SeqCst)
    }
}

/// One connection of a scripted upstream.
pub(crate) struct Conn {
    /// Which one, from 0.
    pub(crate) number: usize,
    /// The server name that the client asked for, over TLS.
    pub(crate) sni: Option<String>,
    wire: Wire,
    seen: Arc<Seen>,
    /// Kept for a reset.
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

    /// Reads a head only.
    pub(crate) async fn head(&mut self) -> Option<Head> {
        self.wire.head(true).await
    }

    /// Reads the body behind a head.
    pub(crate) async fn body(&mut self) -> Body {
        self.wire.body().await
    }

    /// Reads a whole request and notes it; nothing when the connection ends before.
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

    /// Sends bytes; a connection that the gateway has closed takes them to nowhere.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.try_send(bytes).await;
    }

    /// Sends bytes.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.wire.send(bytes).await
    }

    /// Waits until the gateway closes the connection.
    pub(crate) async fn closed(&mut self) {
        self.wire.closed().await;
    }

    /// Ends the connection with a reset instead of an orderly end.
    pub(crate) fn reset(self) {
        let socket = TcpStream::from_std(self.socket.expect("a plain connection")).unwrap();
        socket.set_zero_linger().unwrap();
        // The reset is sent when the last of both descriptors is closed.
        drop(self.wire);
        drop(socket);
    }
}

/// Waits for a moment in which nothing can be proven to happen; only for "and then nothing comes".
pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}
