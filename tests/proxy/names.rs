//! DNS: a provider's host name that resolves to another address later, tested with a DNS server and the system's
//! resolver configuration.
//!
//! The resolver configuration belongs to the machine. Therefore the test program runs itself again in namespaces with a
//! network and an `/etc/resolv.conf` of their own, where the kernel permits it.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UdpSocket;

use super::faults::scripts::{good, wants_stream};
use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::soon;
use crate::support::upstream::{Conn, Upstream, a_moment};

/// Environment variable that is set inside the namespaces.
const INSIDE: &str = "GATEWAY_TEST_INSIDE";
const SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);
const PORT: u16 = 8080;

/// Runs the test of this name in new namespaces. Returns false if the system does not permit them.
fn run_inside(name: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let resolv = folder.path().join("resolv.conf");
    std::fs::write(&resolv, format!("nameserver {SERVER}\n")).unwrap();
    let enter = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--net", "sh", "-c", script]).arg(&resolv);
        command.stdin(Stdio::null());
        command
    };
    let prepare = "ip link set lo up && mount --bind \"$0\" /etc/resolv.conf";
    let may = enter(prepare).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let run = enter(&format!("{prepare} && exec \"$@\""))
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && told.contains("1 passed"), "{told}\n{errors}");
    eprint!("{errors}");
    true
}

/// Address that the DNS server answers with, with a TTL of zero.
type Said = Arc<Mutex<Ipv4Addr>>;

/// DNS server that answers every A query with the same address.
async fn serve_names(said: Said) {
    let socket = UdpSocket::bind(SocketAddr::from((SERVER, 53))).await.unwrap();
    let mut query = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut query).await {
        // The question section: labels up to an empty one, a type and a class.
        let labels = query[12..length].iter().position(|byte| *byte == 0).unwrap();
        let question = &query[12..12 + labels + 5];
        let is_a = question[labels + 1..labels + 3] == [0, 1];
        let counts = [0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0];
        let mut answer = [&query[..2], &counts, question].concat();
        if is_a {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
            answer.extend(said.lock().unwrap().octets());
        }
        socket.send_to(&answer, from).await.unwrap();
    }
}

/// Starts a provider at this address and port.
async fn at(ip: Ipv4Addr, port: u16) -> Upstream {
    Upstream::accept_at(SocketAddr::from((ip, port)), |number, socket, seen| async move {
        let mut conn = Conn::plain(number, socket, seen);
        while let Some(request) = conn.request().await {
            conn.send(good(Form::Chat, wants_stream(&request))).await;
        }
    })
    .await
}

/// Sends requests until the provider has received `count`. Every answer must be successful.
async fn ask_until(gateway: &Gateway, provider: &Upstream, count: usize) {
    soon(async {
        let mut stream = false;
        while provider.count() < count {
            stream = !stream;
            let ask = || gateway.ask(Form::Chat.request_for("gpt", stream));
            for answer in <[_; 3]>::from(tokio::join!(ask(), ask(), ask())) {
                assert_eq!(answer.status(), 200, "{}", answer.text());
                assert!(!stream || Form::Chat.looks_complete(answer.text()), "{}", answer.text());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn follow_the_name() {
    let addresses = [2, 3, 4].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let said: Said = Arc::new(Mutex::new(addresses[0]));
    let names = tokio::spawn(serve_names(said.clone()));
    let first = at(addresses[0], PORT).await;
    let second = at(addresses[1], PORT).await;
    let beside = at(Ipv4Addr::LOCALHOST, 0).await;
    let base = format!("http://provider.example:{PORT}/v1");
    let mut setup = Setup::new().provider("moving", "openai-compatible", &base, "");
    setup = setup.provider("beside", "openai-compatible", &format!("http://{}/v1", beside.addr), "");
    setup.routes = format!(
        "[breaker]\ncooldown = \"200ms\"\nlongest = \"400ms\"\n\n{}\
         [[model]]\nid = \"gpt\"\ntargets = [{{ provider = \"moving\", model = \"m\" }}, \
         {{ provider = \"beside\", model = \"m\", tier = 1 }}]\n",
        setup.routes
    );
    let gateway = Gateway::start(&setup).await;
    ask_until(&gateway, &first, 8).await;
    assert_eq!((second.count(), beside.count()), (0, 0));

    // The name moves while both addresses are reachable: no fallback target is used, and connections to the old address
    // are no longer used.
    *said.lock().unwrap() = addresses[1];
    ask_until(&gateway, &second, 8).await;
    let before = first.count();
    ask_until(&gateway, &second, second.count() + 8).await;
    assert_eq!((first.count(), beside.count()), (before, 0));

    // The name moves and the old address is unreachable: until the name is resolved again, the fallback target answers.
    *said.lock().unwrap() = addresses[2];
    drop(second);
    ask_until(&gateway, &beside, 8).await;
    let third = at(addresses[2], PORT).await;
    ask_until(&gateway, &third, 8).await;
    let before = beside.count();
    ask_until(&gateway, &third, third.count() + 8).await;
    assert_eq!(beside.count(), before);
    names.abort();
}

#[tokio::test]
async fn dns_address_change_is_followed_without_errors() {
    if std::env::var_os(INSIDE).is_some() {
        return follow_the_name().await;
    }
    inside("names::dns_address_change_is_followed_without_errors").await;
}

/// Concurrent requests while names cannot be resolved.
const WAITING: usize = 100;

/// DNS server that reads every query and never answers.
async fn swallow_names() {
    let socket = UdpSocket::bind(SocketAddr::from((SERVER, 53))).await.unwrap();
    let mut query = [0; 512];
    while socket.recv_from(&mut query).await.is_ok() {}
}

async fn wait_for_names() {
    let names = tokio::spawn(swallow_names());
    let beside = at(Ipv4Addr::LOCALHOST, 0).await;
    let base = format!("http://provider.example:{PORT}");
    let mut setup = Setup::new();
    for (name, connect) in [("hurried", "1s"), ("patient", "10m")] {
        let lines = format!("timeouts = {{ connect = \"{connect}\" }}");
        setup = setup.provider(name, "openai-compatible", &format!("{base}/v1"), &lines);
    }
    setup = setup.provider("cohere", "cohere", &format!("{base}/v2"), "timeouts = { connect = \"1s\" }");
    setup = setup.provider("beside", "openai-compatible", &format!("http://{}/v1", beside.addr), "");
    setup = setup.model("gpt", "hurried", "m").model("late", "patient", "m").model("v", "cohere", "m");
    setup.routes += "[[model]]\nid = \"both\"\ntargets = [{ provider = \"hurried\", model = \"m\" }, \
                     { provider = \"beside\", model = \"m\", tier = 1 }]\n";
    let gateway = Gateway::start(&setup).await;
    // All requests are concurrent: in sequence they would take a quarter of an hour.
    let begun = std::time::Instant::now();
    let mut clients = Vec::new();
    for n in 0..WAITING {
        let mut client = gateway.connect().await;
        client.send(Form::Chat.request_for("gpt", n % 2 == 0)).await;
        clients.push(client);
    }
    let mut waited = Vec::new();
    soon(async {
        for client in &mut clients {
            assert_eq!(client.answer().await.status(), 503);
            waited.push(begun.elapsed());
        }
    })
    .await;
    let slowest = waited.iter().max().unwrap();
    eprintln!("{WAITING} requests, connect = 1s: the last one has its error after {slowest:?}");
    // A job, and requests with a fallback target.
    let vectors = post("/v1/embeddings", "{\"model\":\"v\",\"input\":\"a\"}");
    assert_eq!(gateway.ask(vectors).await.status(), 503);
    for stream in [false, true] {
        assert_eq!(gateway.ask(Form::Chat.request_for("both", stream)).await.status(), 200);
    }
    // A client that disconnects is noticed while its provider's name is being resolved.
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request_for("late", false)).await;
    a_moment().await;
    drop(client);
    // The log lines of the requests above, in any order.
    let lines = gateway.wait_for_log(WAITING + 4).await;
    let line = lines.iter().find(|line| line["model"] == "late").unwrap();
    assert_eq!(line["error"], "client_gone", "{line}");
    names.abort();
}

#[tokio::test]
async fn dns_server_that_hangs_is_bounded_by_the_connect_timeout() {
    if std::env::var_os(INSIDE).is_some() {
        return wait_for_names().await;
    }
    inside("names::dns_server_that_hangs_is_bounded_by_the_connect_timeout").await;
}

/// Runs a test in new namespaces, or reports that it was skipped.
async fn inside(name: &'static str) {
    let ran = tokio::task::spawn_blocking(move || run_inside(name)).await.unwrap();
    if !ran {
        // The reason is a missing permission, not a program that could be installed: GATEWAY_REQUIRE_ALL does not
        // apply. The message bypasses eprintln, which the test harness shows for failed tests only.
        let _ = writeln!(std::io::stderr(), "SKIPPED: the system lets nobody have namespaces of his own");
    }
}
