//! Connections to the admin port: silent ones, callers that leave, and operations that wait for another machine.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::{Ask, READER, get, post, with_tokens};
use crate::support::client::Client;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::soon;

/// Time within which an answer must come while others hold the port.
const PROMPT: Duration = Duration::from_secs(4);

async fn promptly<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PROMPT, work).await.expect("no answer in time")
}

#[tokio::test]
async fn admin_silent_connections_lock_nobody_out() {
    let mut setup = with_tokens(Setup::new());
    setup.log += "[admin]\nsocket = \"admin.sock\"\n";
    let gateway = Gateway::start(&setup).await;
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(gateway.admin).await.unwrap();
        // Some have begun the preface of HTTP/2, or a head.
        let begun: &[u8] = [&b""[..], b"PRI * HTTP", b"GET /readyz HT"][number % 3];
        stream.write_all(begun).await.unwrap();
        silent.push(stream);
    }
    for path in ["/readyz", "/healthz", "/metrics", "/status"] {
        assert_eq!(promptly(gateway.admin(path)).await.status(), 200, "{path}");
    }
    promptly(get("/instance").expect(&gateway, 200)).await;
    // The Unix socket has places of its own.
    let socket = gateway.folder().join("admin.sock");
    let mut silent_here = Vec::new();
    for _ in 0..100 {
        silent_here.push(promptly(UnixStream::connect(&socket)).await.unwrap());
    }
    let mut client = Client::over(promptly(UnixStream::connect(&socket)).await.unwrap());
    let answer = promptly(client.ask(Ask::new("GET", "/instance").bytes())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

#[tokio::test]
async fn admin_silent_connection_is_closed() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    for begun in [&b""[..], b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n"] {
        let mut stream = TcpStream::connect(gateway.admin).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "the connection is still open after {begun:?}");
    }
}

/// Gateway whose issuer of identities takes connections and never answers.
async fn with_hanging_issuer() -> (Gateway, TcpListener) {
    let issuer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut setup = with_tokens(Setup::new());
    let (_, tokens) = setup.files.iter_mut().find(|(name, _)| name == "admin.toml").unwrap();
    *tokens += &format!(
        "[oidc]\nissuer = \"http://{}\"\nclient_id = \"x\"\n\
         redirect_uri = \"http://127.0.0.1:9090/admin/v1/session/oidc/callback\"\n\
         [[oidc.role]]\nvalue = \"staff\"\nrole = \"read\"\n",
        issuer.local_addr().unwrap()
    );
    (Gateway::start(&setup).await, issuer)
}

#[tokio::test]
async fn admin_sign_in_at_a_hanging_issuer_stops_no_operation() {
    let (gateway, _issuer) = with_hanging_issuer().await;
    let mut waiting = Vec::new();
    for _ in 0..12 {
        let mut client = Client::connect(gateway.admin).await;
        client.send(Ask::new("GET", "/session/oidc").bytes()).await;
        waiting.push(client);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    for path in ["/keys", "/usage", "/audit"] {
        promptly(get(path).expect(&gateway, 200)).await;
    }
}

/// A caller that leaves does not free the place of an operation that goes on, and what has not begun is not done.
#[tokio::test]
async fn admin_operations_are_bounded_also_when_their_callers_leave() {
    let gateway = Arc::new(Gateway::start(&with_tokens(Setup::new())).await);
    let reload = post("/config/reload");
    reload.expect(&gateway, 200).await;
    // Reloads wait for the log, which another process holds.
    let log = std::fs::File::open(gateway.folder().join("admin/audit.jsonl")).unwrap();
    log.lock().unwrap();
    for _ in 0..40 {
        let mut client = Client::connect(gateway.admin).await;
        client.send(reload.bytes()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let waiting: Vec<_> = (0..40)
        .map(|_| {
            let (gateway, reload) = (gateway.clone(), reload.clone());
            tokio::spawn(async move { reload.send(&gateway).await.status() })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let refused = waiting.iter().filter(|task| task.is_finished()).count();
    log.unlock().unwrap();
    let mut statuses = Vec::new();
    for task in waiting {
        statuses.push(soon(task).await.unwrap());
    }
    // Four operations have a thread and go on although their callers have left; 28 more have places.
    assert_eq!(refused, 12);
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 12, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 28, "{statuses:?}");
    assert_eq!(gateway.read("admin/audit.jsonl").lines().count(), 2 * (1 + 4 + 28));
}

#[tokio::test]
async fn admin_page_by_a_foreign_name_reads_nothing_of_the_port() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let send = async |path: &str, headers: &[(&str, &str)]| {
        let mut head = format!("GET {path} HTTP/1.1\r\n");
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        crate::support::client::ask(gateway.admin, format!("{head}\r\n")).await.status()
    };
    for path in ["/status", "/metrics", "/readyz", "/healthz", "/console/"] {
        // By DNS rebinding, a page reads its own origin: without `origin` and, over HTTP, without Fetch metadata.
        for mark in [
            ("accept-language", "en"),
            ("origin", "http://rebound.test"),
            ("sec-fetch-site", "same-origin"),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"),
        ] {
            assert_eq!(send(path, &[("host", "rebound.test:9090"), mark]).await, 403, "{path} {mark:?}");
            let known = send(path, &[("host", "127.0.0.1:9090"), mark]).await;
            assert_eq!(known, 200, "{path} {mark:?}");
        }
        // A scraper may use any name.
        let scraper =
            [("host", "gateway.internal:9090"), ("user-agent", "Prometheus/3.5.0"), ("accept", "*/*")];
        if path != "/console/" {
            assert_eq!(send(path, &scraper).await, 200, "{path}");
        }
    }
    let shown = Ask::new("GET", "/session").token(READER).expect(&gateway, 200).await;
    assert_eq!(shown["via"], json!("token"));
}
