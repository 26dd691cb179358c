//! Listeners, transfer of sockets to a new process, and shutdown.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::configuration::{Opt, ServerConf};
use pingora::server::{Fds, ListenFds, RunArgs, Server, ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use pingora::services::Service as _;
use pingora::services::listening::Service;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};

use super::support::soon;

/// Application that sends back what it reads.
struct Echo;

#[async_trait]
impl ServerApp for Echo {
    async fn process_new(self: &Arc<Self>, mut io: Stream, _: &ShutdownWatch) -> Option<Stream> {
        let mut byte = [0; 1];
        while let Ok(1) = io.read(&mut byte).await {
            io.write_all(&byte).await.ok()?;
            io.flush().await.ok()?;
        }
        None
    }
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

fn service(address: SocketAddr) -> Service<Echo> {
    let mut service = Service::new("echo".to_owned(), Echo);
    service.add_tcp(&address.to_string());
    service
}

/// A service adds each socket to the table when it is bound, by its configured address. `proxy::listener_service` waits
/// for that, and `proxy::upgrade` sends the table.
#[tokio::test]
async fn listening_socket_is_added_to_the_table() {
    let address = free_address().await;
    let fds: ListenFds = ListenFds::new(Fds::new().into());
    let (_stop, watch) = tokio::sync::watch::channel(false);
    let table = fds.clone();
    let serving = tokio::spawn(async move { service(address).start_service(Some(table), watch, 1).await });
    soon(async {
        while fds.lock().get(&address.to_string()).is_none() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    soon(TcpStream::connect(address)).await.unwrap();
    serving.abort();
}

/// A service whose port is taken tries for half a minute and then panics. `proxy::server` binds all ports once before,
/// and `proxy::listener_service` notices the panic.
#[tokio::test(start_paused = true)]
async fn listening_on_a_taken_port_panics() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let (_stop, watch) = tokio::sync::watch::channel(false);
    let begun = tokio::time::Instant::now();
    let serving = tokio::spawn(async move { service(address).start_service(None, watch, 1).await });
    assert!(serving.await.unwrap_err().is_panic());
    assert_eq!(begun.elapsed().as_secs(), 29);
}

/// Transfers a table of this many sockets with addresses of this length. Returns whether it arrives whole.
fn transfer(count: usize, length: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("upgrade.sock").display().to_string();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sent = Fds::new();
    for n in 0..count {
        sent.add(format!("{n:0length$}"), socket.as_raw_fd());
    }
    let (there, expected) = (path.clone(), sent.serialize().0);
    let receiving = std::thread::spawn(move || {
        let mut table = Fds::new();
        table.get_from_sock(there.as_str()).ok()?;
        let (names, fds) = table.serialize();
        fds.into_iter().for_each(|fd| nix::unistd::close(fd).unwrap());
        let whole = expected.iter().all(|name| names.contains(name));
        Some(whole && names.len() == expected.len())
    });
    // The sender tries again until the receiver listens.
    sent.send_to_sock(path.as_str()).is_ok() && matches!(receiving.join(), Ok(Some(true)))
}

/// A transfer carries at most 32 sockets, and at most 2048 bytes of addresses; more does not arrive whole.
/// `proxy::server::upgrade` sends all listeners in one transfer, so `config` permits no more.
#[cfg(target_os = "linux")]
#[test]
fn transfer_of_sockets_is_limited_to_32() {
    // The longest address of a listener: IPv6 with a scope id.
    assert!(transfer(32, "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".len()));
    assert!(!transfer(33, 21));
    assert!(!transfer(32, 64));
}

/// `close_unclaimed` closes the inherited sockets that are not named, and names them. `proxy::listener_service` calls
/// it at the start.
#[test]
fn unclaimed_sockets_are_closed() {
    let keep = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let close = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = close.local_addr().unwrap();
    let mut fds = Fds::new();
    fds.add("keep".to_owned(), keep.as_raw_fd());
    fds.add("close".to_owned(), close.into_raw_fd());
    assert_eq!(fds.close_unclaimed(&HashSet::from(["keep".to_owned()])), ["close"]);
    assert!(fds.get("close").is_none() && fds.get("keep").is_some());
    assert!(std::net::TcpStream::connect(address).is_err());
}

/// Signal that a test sends.
struct Signal(Arc<Notify>);

#[async_trait]
impl ShutdownSignalWatch for Signal {
    async fn recv(&self) -> ShutdownSignal {
        self.0.notified().await;
        ShutdownSignal::GracefulTerminate
    }
}

/// `GracefulTerminate` closes the listeners at once, leaves open connections alone, and returns only after the whole
/// grace period, whether or not anything is open. `proxy::signals` has a drain task that exits the process earlier, and
/// `proxy::server` sets the period as a last resort.
#[tokio::test]
async fn graceful_termination_takes_the_whole_grace_period() {
    const GRACE: Duration = Duration::from_secs(2);
    let address = free_address().await;
    let notify = Arc::new(Notify::new());
    let signal = Signal(notify.clone());
    let running = std::thread::spawn(move || {
        let conf = ServerConf {
            grace_period_seconds: Some(GRACE.as_secs()),
            graceful_shutdown_timeout_seconds: Some(1),
            ..ServerConf::default()
        };
        let mut server = Server::new_with_opt_and_conf(Some(Opt::default()), conf);
        server.bootstrap();
        server.add_service(service(address));
        server.run(RunArgs { shutdown_signal: Box::new(signal) });
        Instant::now()
    });
    let mut open = soon(async {
        loop {
            match TcpStream::connect(address).await {
                Ok(socket) => break socket,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    open.write_all(b"a").await.unwrap();
    assert_eq!(soon(open.read_u8()).await.unwrap(), b'a');
    let begun = Instant::now();
    notify.notify_one();
    soon(async {
        while TcpStream::connect(address).await.is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    open.write_all(b"b").await.unwrap();
    assert_eq!(soon(open.read_u8()).await.unwrap(), b'b');
    drop(open);
    let ended = tokio::task::spawn_blocking(|| running.join().unwrap()).await.unwrap();
    assert!(ended - begun >= GRACE);
}
