//! The times of a model hold in the place of its providers', whatever is waited for.

use tokio::net::{TcpSocket, TcpStream};

use super::provider;
use super::scripts::good;
use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

/// A provider that waits longer than a test does.
fn patient(setup: Setup, name: &str, base: &str) -> Setup {
    let lines = "timeouts = { connect = \"10m\", first_byte = \"10m\", idle = \"10m\" }";
    setup.provider(name, "openai-compatible", &format!("{base}/v1"), lines)
}

/// An address at which nobody answers: its queue is full, and so the system lets what comes fall.
struct BlackHole {
    base: String,
    _listener: tokio::net::TcpListener,
    _waiting: Vec<TcpStream>,
}

impl BlackHole {
    async fn dig() -> BlackHole {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        let moment = std::time::Duration::from_millis(500);
        // So many are enough for any system.
        for _ in 0..64 {
            match tokio::time::timeout(moment, TcpStream::connect(addr)).await {
                Ok(connected) => waiting.push(connected.unwrap()),
                Err(_) => {
                    return BlackHole {
                        base: format!("http://{addr}"),
                        _listener: listener,
                        _waiting: waiting,
                    };
                }
            }
        }
        panic!("a queue of one has no end");
    }
}

/// A model with this target, and another one behind it.
fn model(setup: &mut Setup, id: &str, provider: &str, lines: &str) {
    setup.routes += &format!(
        "[[model]]\nid = \"{id}\"\n{lines}\ntargets = [{{ provider = \"{provider}\", model = \"m\" }}, \
         {{ provider = \"well\", model = \"m\", tier = 1 }}]\n\n"
    );
}

const SHORT: &str = "timeouts = { connect = \"200ms\" }";

#[tokio::test]
async fn a_model_waits_for_a_connection_as_long_as_it_says() {
    let hole = BlackHole::dig().await;
    let silent = Upstream::start(|mut conn| async move { conn.closed().await }).await;
    let well = Upstream::answering(good(Form::Chat, false)).await;
    let mut setup = patient(Setup::new(), "hole", &hole.base);
    setup = patient(setup, "silent", &format!("https://{}", silent.addr));
    setup = patient(setup, "well", &format!("http://{}", well.addr));
    model(&mut setup, "over-tcp", "hole", SHORT);
    model(&mut setup, "over-tls", "silent", SHORT);
    let gateway = Gateway::start(&setup).await;
    for (number, (id, failed)) in [("over-tcp", "hole/m"), ("over-tls", "silent/m")].into_iter().enumerate() {
        let answer = gateway.ask(Form::Chat.request_for(id, false)).await;
        assert_eq!((answer.status(), answer.get("x-gateway-target")), (200, Some("well/m")), "{id}");
        let log = gateway.wait_for_log(number + 1).await.pop().unwrap();
        let tried = log["tried"].as_str().unwrap();
        assert!(tried.starts_with(failed) && tried.contains("upstream_unreachable"), "{id}: {tried}");
    }
    // What is made of several calls heeds them too.
    let order = post("/v1/rerank", "{\"model\":\"over-tls\",\"query\":\"a\",\"documents\":[\"b\"]}");
    let answer = gateway.ask(order).await;
    assert!(answer.status() >= 500, "{}", answer.text());
    let metrics = gateway.metrics().await;
    let unreachable = |provider| {
        let labels = [("provider", provider), ("reason", "upstream_unreachable")];
        metrics.sum("gateway_upstream_retries_total", &labels)
    };
    assert_eq!((unreachable("hole"), unreachable("silent")), (1.0, 2.0));
}

/// Connections belong to the address: whoever waits longer or shorter for new ones uses those that are there.
#[tokio::test]
async fn models_with_times_of_their_own_share_connections() {
    let well = Upstream::answering(good(Form::Chat, false)).await;
    let mut setup = provider(Setup::new(), "well", Form::Chat, &format!("http://{}", well.addr));
    for (id, connect) in [("a", "1s"), ("b", "2s"), ("c", "3s")] {
        setup.routes += &format!(
            "[[model]]\nid = \"{id}\"\ntimeouts = {{ connect = \"{connect}\" }}\n\
             targets = [{{ provider = \"well\", model = \"m\" }}]\n\n"
        );
    }
    let gateway = Gateway::start(&setup).await;
    // One after the other: who has an answer may ask again before its provider's connection lies in the pool.
    let mut client = gateway.connect().await;
    for id in ["a", "b", "c", "a"] {
        assert_eq!(client.ask(Form::Chat.request_for(id, false)).await.status(), 200);
    }
    assert_eq!((well.count(), well.connections()), (4, 1));
}
