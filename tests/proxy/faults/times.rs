//! Time-outs of a model override those of its providers, for connections and TLS handshakes too.

use tokio::net::{TcpSocket, TcpStream};

use super::provider;
use super::scripts::good;
use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

/// Adds a provider whose time-outs are longer than any test.
fn patient(setup: Setup, name: &str, base: &str) -> Setup {
    let lines = "timeouts = { connect = \"10m\", first_byte = \"10m\", idle = \"10m\" }";
    setup.provider(name, "openai-compatible", &format!("{base}/v1"), lines)
}

/// An address that does not answer: the listener's queue is full, so the kernel drops connection attempts.
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
        // Enough connections to fill the queue on any system.
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

/// Adds a model with this target and a fallback target at the provider `well`.
fn model(setup: &mut Setup, id: &str, provider: &str, lines: &str) {
    setup.routes += &format!(
        "[[model]]\nid = \"{id}\"\n{lines}\ntargets = [{{ provider = \"{provider}\", model = \"m\" }}, \
         {{ provider = \"well\", model = \"m\", tier = 1 }}]\n\n"
    );
}

/// Short, because the tests wait for it; the fallback target has to be connected to within the same time.
const SHORT: &str = "timeouts = { connect = \"1s\" }";

#[tokio::test]
async fn timeout_connect_of_the_model_overrides_its_provider() {
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
    // Calls of a job use the model's time-outs too.
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

/// Pooled connections belong to an address: models with different connect time-outs share them.
#[tokio::test]
async fn timeout_connect_of_the_model_does_not_split_the_pool() {
    let well = Upstream::answering(good(Form::Chat, false)).await;
    let mut setup = provider(Setup::new(), "well", Form::Chat, &format!("http://{}", well.addr));
    for (id, connect) in [("a", "1s"), ("b", "2s"), ("c", "3s")] {
        setup.routes += &format!(
            "[[model]]\nid = \"{id}\"\ntimeouts = {{ connect = \"{connect}\" }}\n\
             targets = [{{ provider = \"well\", model = \"m\" }}]\n\n"
        );
    }
    let gateway = Gateway::start(&setup).await;
    // One client, in sequence: with several clients a request could start before the connection of the previous one is
    // back in the pool.
    let mut client = gateway.connect().await;
    for id in ["a", "b", "c", "a"] {
        assert_eq!(client.ask(Form::Chat.request_for(id, false)).await.status(), 200);
    }
    assert_eq!((well.count(), well.connections()), (4, 1));
}
