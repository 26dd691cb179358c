//! Binary upgrade: a new process takes over the listeners under load. No connection is refused and no stream is cut.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::Signal;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::reload::halting;
use crate::routing::every_provider;
use crate::support::client::{Client, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::Setup;
use crate::support::sse::read_until;
use crate::support::{Gate, http2, soon, until};

/// Clients that send requests until they are stopped; every request must be answered.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(addr: SocketAddr) -> Load {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = (0..6)
            .map(|n| {
                let (stop, served) = (stop.clone(), served.clone());
                tokio::spawn(async move {
                    match n {
                        0..2 => new_connections(addr, &stop, &served).await,
                        2..4 => kept_connections(addr, &stop, &served).await,
                        _ => http2_connections(addr, &stop, &served).await,
                    }
                })
            })
            .collect();
        Load { stop, served, clients }
    }

    /// Waits until 50 more requests are served.
    async fn go_on(&self) {
        let before = self.served.load(Ordering::SeqCst);
        until(|| self.served.load(Ordering::SeqCst) > before + 50).await;
    }

    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            soon(client).await.unwrap();
        }
        self.served.load(Ordering::SeqCst)
    }
}

async fn new_connections(addr: SocketAddr, stop: &AtomicBool, served: &AtomicUsize) {
    let mut turn = 0;
    while !stop.load(Ordering::SeqCst) {
        let form = Form::ALL[turn % 4];
        let stream = turn % 3 == 0;
        // The connection is neither refused nor closed without an answer.
        let socket = TcpStream::connect(addr).await.expect("a connection was refused");
        let answer = Client::over(socket).ask(form.request(stream)).await;
        check(form, stream, answer.status(), answer.text());
        turn += 1;
        served.fetch_add(1, Ordering::SeqCst);
    }
}

fn check(form: Form, stream: bool, status: u16, text: &str) {
    let model = form.model();
    let expected = if stream { form.frames(model).concat() } else { form.whole(model) };
    assert_eq!((status, text), (200, &*expected));
}

/// Keep-alive connections. The gateway may close one just as a request is sent on it; clients resend such a request.
async fn kept_connections(addr: SocketAddr, stop: &AtomicBool, served: &AtomicUsize) {
    let mut client: Option<Client> = None;
    while !stop.load(Ordering::SeqCst) {
        let (mut used, fresh) = match client.take() {
            Some(used) => (used, false),
            None => (Client::connect(addr).await, true),
        };
        let sent = used.try_send(Form::Chat.request(true)).await;
        let answer = if sent.is_ok() { used.try_answer().await } else { None };
        let Some(answer) = answer else {
            assert!(!fresh, "a new connection was closed without an answer");
            continue;
        };
        assert!(answer.complete, "a cut stream");
        check(Form::Chat, true, answer.status(), answer.text());
        served.fetch_add(1, Ordering::SeqCst);
        client = (answer.get("connection") != Some("close")).then_some(used);
    }
}

async fn http2_connections(addr: SocketAddr, stop: &AtomicBool, served: &AtomicUsize) {
    while !stop.load(Ordering::SeqCst) {
        let mut client = http2::Client::connect(addr).await;
        for stream in [false, true] {
            let Some((head, body)) = client.exchange(Form::Messages, stream).await else { break };
            check(Form::Messages, stream, head.status().as_u16(), std::str::from_utf8(&body).unwrap());
            served.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Opens a stream before the upgrade that ends after it.
async fn open_stream(addr: SocketAddr) -> (Client, Vec<u8>) {
    let mut client = Client::connect(addr).await;
    client.send(Form::Responses.request_for("slow", true)).await;
    assert_eq!(client.head().await.status(), 200);
    let mut seen = Vec::new();
    read_until(&mut client, &mut seen, "\n\n").await;
    (client, seen)
}

async fn close_stream((mut client, mut seen): (Client, Vec<u8>)) {
    loop {
        match client.piece().await {
            Piece::Data(piece) => seen.extend_from_slice(&piece),
            end => {
                assert_eq!(end, Piece::End);
                break;
            }
        }
    }
    let slow = Form::Responses.frames(Form::Responses.model()).concat();
    assert_eq!(String::from_utf8(seen).unwrap().replace("\"slow\"", "\"gpt\""), slow);
}

#[tokio::test]
async fn upgrade_by_signal_loses_no_request() {
    take_over(false).await;
}

#[tokio::test]
async fn upgrade_to_a_manually_started_process_loses_no_request() {
    take_over(true).await;
}

/// No connection is refused and no stream is cut, on any kind of connection.
async fn take_over(by_hand: bool) {
    let fast = every_provider().await;
    let gate = Gate::new();
    let slow = halting(Form::Responses, &gate).await;
    let setup = Setup::providers(fast.addr)
        .provider("slow", "openai", &format!("http://{}/v1", slow.addr), "")
        .model("slow", "slow", "gpt");
    let mut gateway = Gateway::start(&setup).await;
    let stream = open_stream(gateway.addr).await;
    let load = Load::start(gateway.addr);
    load.go_on().await;
    let successor = if by_hand {
        let successor = gateway.start_beside(&["--upgrade"]);
        let socket = gateway.folder().join("model-gateway.upgrade.sock");
        until(|| socket.exists()).await;
        gateway.signal(Signal::SIGQUIT);
        Some(successor)
    } else {
        gateway.signal(Signal::SIGUSR2);
        None
    };
    // The new process answers on the admin port once it serves.
    let old = gateway.pid();
    until(|| gateway.log().contains("handing over")).await;
    load.go_on().await;
    assert!(gateway.runs(), "the old process did not wait for its stream");
    let late = soon(async {
        while gateway.admin_status("/readyz").await != Some(200) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        open_stream(gateway.addr).await
    })
    .await;
    gate.open();
    close_stream(stream).await;
    assert_eq!(gateway.ended().await.code(), Some(0), "by hand: {by_hand}");
    // From here on only the new process runs.
    load.go_on().await;
    close_stream(late).await;
    let served = load.stop().await;
    assert!(served > 100, "{served}");
    assert_eq!(gateway.admin_status("/healthz").await, Some(200));
    let new = gateway.successors();
    assert_eq!(new.len(), 1, "{new:?}");
    assert_ne!(new[0], i32::try_from(old).unwrap());
    for line in gateway.access_log() {
        assert_eq!((&line["status"], line.get("error")), (&200.into(), None), "{line}");
    }
    // It has taken the lock of the store over.
    let mut third = gateway.start_beside(&[]);
    until(|| !third.runs()).await;
    assert!(gateway.log().contains(&format!("another gateway, process {}, holds its lock", new[0])));
    drop(successor);
}

/// A new process that cannot start does not end the running one.
#[tokio::test]
async fn upgrade_is_aborted_when_the_new_process_cannot_start() {
    let (_upstream, mut gateway) = crate::bodies::chat().await;
    gateway.replace("routes.toml", "[[provider]\n");
    gateway.signal(Signal::SIGUSR2);
    until(|| gateway.log().contains("this process continues")).await;
    assert!(gateway.runs());
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(gateway.admin_status("/readyz").await, Some(200));
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn upgrade_stops_accepting_when_the_new_process_serves() {
    let gate = Gate::new();
    let slow = halting(Form::Responses, &gate).await;
    let setup = Setup::new().provider("slow", "openai", &format!("http://{}/v1", slow.addr), "");
    let mut gateway = Gateway::start(&setup.model("slow", "slow", "gpt")).await;
    let stream = open_stream(gateway.addr).await;
    gateway.signal(Signal::SIGUSR2);
    until(|| gateway.log().contains("the new process accepts requests")).await;
    // This takes milliseconds. Pingora's own upgrade continues to accept for five seconds.
    let begun = std::time::Instant::now();
    until(|| gateway.log().contains("no more connections are accepted")).await;
    assert!(begun.elapsed() < std::time::Duration::from_millis(4_500), "{:?}", begun.elapsed());
    assert_ne!(gateway.status().await["pid"], gateway.pid(), "the new process answers on the admin port");
    let before = gateway.metrics().await.sum("gateway_requests_total", &[]);
    for _ in 0..40 {
        let answer = gateway.ask(request("GET", "/", &[("connection", "close")])).await;
        assert_eq!(answer.status(), 200);
    }
    gateway.wait_for_metric("gateway_requests_total", &[], before + 40.0).await;
    gate.open();
    close_stream(stream).await;
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// Fake of a new process: it receives the listeners, and the test decides whether it confirms.
struct FakeSuccessor {
    listeners: UnixListener,
    ready: Option<UnixListener>,
}

fn sockets(gateway: &Gateway) -> [PathBuf; 2] {
    ["model-gateway.upgrade.sock", "model-gateway.upgrade.sock.ready"].map(|name| gateway.folder().join(name))
}

impl FakeSuccessor {
    fn new(gateway: &Gateway, confirms: bool) -> FakeSuccessor {
        let [socket, ready] = sockets(gateway);
        let ready = confirms.then(|| UnixListener::bind(&ready).unwrap());
        FakeSuccessor { ready, listeners: UnixListener::bind(&socket).unwrap() }
    }

    /// Waits for the listeners. Returns the connection of the transfer and that of the readiness socket.
    async fn take(&self) -> (UnixStream, Option<UnixStream>) {
        let ready = match &self.ready {
            Some(ready) => Some(soon(ready.accept()).await.unwrap().0),
            None => None,
        };
        (soon(self.listeners.accept()).await.unwrap().0, ready)
    }
}

async fn serves(gateway: &mut Gateway) {
    assert!(gateway.runs());
    // The status must not wait for a reload.
    assert_eq!(gateway.status().await["draining"], false);
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(gateway.admin_status("/readyz").await, Some(200));
}

#[tokio::test]
async fn upgrade_continues_when_the_new_process_fails_after_the_transfer() {
    let (_upstream, mut gateway) = crate::bodies::chat().await;
    let stand = FakeSuccessor::new(&gateway, true);
    gateway.signal(Signal::SIGQUIT);
    let taken = stand.take().await;
    serves(&mut gateway).await;
    drop((taken, stand));
    until(|| gateway.log().contains("this process continues")).await;
    serves(&mut gateway).await;
    // The next upgrade succeeds.
    for socket in sockets(&gateway) {
        let _ = std::fs::remove_file(socket);
    }
    gateway.signal(Signal::SIGUSR2);
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
}

#[tokio::test]
async fn upgrade_to_a_version_without_a_readiness_socket() {
    let (_upstream, mut gateway) = crate::bodies::chat().await;
    let stand = FakeSuccessor::new(&gateway, false);
    gateway.signal(Signal::SIGQUIT);
    let (_sent, ready) = stand.take().await;
    assert!(ready.is_none());
    serves(&mut gateway).await;
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// Replaces a file by a pipe without a writer, so that a read blocks.
fn block_reads(gateway: &Gateway, name: &str) {
    let path = gateway.folder().join(name);
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn stop_does_not_wait_for_a_starting_process() {
    let (_upstream, mut gateway) = crate::bodies::chat().await;
    block_reads(&gateway, "routes.toml");
    gateway.signal(Signal::SIGUSR2);
    until(|| !gateway.successors().is_empty()).await;
    // A reload blocks on the same file.
    gateway.signal(Signal::SIGHUP);
    gateway.signal(Signal::SIGUSR2);
    serves(&mut gateway).await;
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    until(|| gateway.successors().is_empty()).await;
    assert!(!gateway.log().contains("second signal"), "{}", gateway.log());
}

#[tokio::test]
async fn stop_does_not_wait_for_a_process_that_takes_over() {
    let (_upstream, mut gateway) = crate::bodies::chat().await;
    let stand = FakeSuccessor::new(&gateway, true);
    gateway.signal(Signal::SIGQUIT);
    let _taken = stand.take().await;
    serves(&mut gateway).await;
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn stop_does_not_wait_for_a_reload() {
    let (_upstream, mut gateway) = crate::bodies::chat().await;
    block_reads(&gateway, "keys.toml");
    gateway.signal(Signal::SIGHUP);
    gateway.signal(Signal::SIGHUP);
    serves(&mut gateway).await;
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert!(!gateway.log().contains("second signal"), "{}", gateway.log());
}
