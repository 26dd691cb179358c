//! Upstream connections: pooling, stale connections, TLS verification, name resolution and HTTP/2.

use std::sync::Arc;

use crate::bodies::body_of;
use crate::faults::scripts::closed_port;
use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;
use crate::support::{Gate, http2, reply, soon, tls, until};

fn chat() -> Vec<u8> {
    reply::json(200, Form::Chat.whole("gpt"))
}

/// Starts an upstream that closes each connection after one response, without a `connection: close` header.
async fn closing_after_each() -> Upstream {
    Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.send(chat()).await;
    })
    .await
}

#[tokio::test]
async fn pool_connection_is_reused_for_sequential_requests() {
    let upstream = Upstream::answering(chat()).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    for _ in 0..20 {
        assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 200);
    }
    assert_eq!((upstream.count(), upstream.connections()), (20, 1));
}

#[tokio::test]
async fn pool_has_as_many_connections_as_concurrent_requests() {
    let gate = Gate::new();
    let waiting = gate.clone();
    let upstream = Upstream::start(move |mut conn| {
        let gate = waiting.clone();
        async move {
            while conn.request().await.is_some() {
                gate.passed().await;
                conn.send(chat()).await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = gateway.connect().await;
        client.send(Form::Chat.request(false)).await;
        clients.push(client);
    }
    upstream.wait_for(20).await;
    gate.open();
    for client in &mut clients {
        assert_eq!(client.answer().await.status(), 200);
    }
    for client in &mut clients {
        client.send(Form::Chat.request(false)).await;
    }
    for client in &mut clients {
        assert_eq!(client.answer().await.status(), 200);
    }
    assert_eq!((upstream.count(), upstream.connections()), (40, 20));
}

/// Connections that the provider closed while they were idle cause no error.
#[tokio::test]
async fn pool_dead_connection_is_replaced() {
    let upstream = closing_after_each().await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    for n in 0..40 {
        let body = if n % 2 == 0 { body_of(200) } else { body_of(200_000) };
        let answer = client.ask(post("/v1/chat/completions", &body)).await;
        assert_eq!(answer.status(), 200, "{n}: {}", answer.text());
        assert!(upstream.last_request().body == body, "{n}");
    }
    assert_eq!(upstream.count(), 40);
    assert_eq!(gateway.metrics_after(40).await.sum("gateway_errors_total", &[]), 0.0);
}

/// The provider closes a pooled connection just as the next request arrives on it: the request is resent once, over a
/// new connection.
#[tokio::test]
async fn retry_stale_connection_is_resent_once() {
    let upstream = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.send(chat()).await;
        if conn.number == 0 {
            // Read the head of the second request, then close.
            conn.head().await;
            return;
        }
        conn.closed().await;
    })
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 200);
    let answer = client.ask(Form::Chat.request(false)).await;
    assert_eq!((answer.status(), answer.text()), (200, &*Form::Chat.whole("gpt")));
    assert_eq!((upstream.count(), upstream.connections()), (2, 2));
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_upstream_retries_total", &[("reason", "stale_connection")]), 1.0);
    assert_eq!(gateway.wait_for_log(2).await[1]["attempts"], 2);
}

/// A request is not resent after a byte of the response has arrived, or if its connection was new.
#[tokio::test]
async fn retry_never_after_a_response_byte_or_on_a_new_connection() {
    for broken in ["", "HTTP/1.1 200 OK\r\ncontent-le"] {
        let upstream = Upstream::start(move |mut conn| async move {
            // With an empty `broken` the new connection is closed; otherwise a reused one sends a part of a head.
            if !broken.is_empty() {
                conn.request().await;
                conn.send(chat()).await;
            }
            conn.request().await;
            conn.send(broken).await;
        })
        .await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut client = gateway.connect().await;
        if !broken.is_empty() {
            assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 200);
        }
        let answer = client.ask(Form::Chat.request(false)).await;
        assert_eq!(answer.status(), 500, "{broken:?}: {}", answer.text());
        Form::Chat.error(&answer);
        assert_eq!(upstream.connections(), 1, "{broken:?}");
    }
}

#[tokio::test]
async fn upstream_unreachable_is_an_error_in_every_format() {
    let reserved = closed_port();
    let addr = reserved.local_addr().unwrap();
    let gateway = Gateway::start(&Setup::providers(addr)).await;
    for form in Form::ALL {
        for stream in [false, true] {
            let answer = gateway.ask(form.request(stream)).await;
            assert_eq!(answer.status(), if form == Form::Messages { 500 } else { 503 }, "{form:?}");
            form.error(&answer);
            assert!(!answer.everything().contains(&addr.port().to_string()), "{}", answer.everything());
        }
    }
    let line = gateway.wait_for_log(8).await.remove(0);
    assert_eq!(line["error"], "upstream_unreachable", "{line}");
}

/// A provider that refuses a request without reading its body.
#[tokio::test]
async fn upstream_refusal_before_the_body_is_read_reaches_the_client() {
    let refused =
        "{\"error\":{\"message\":\"too large for us\",\"type\":\"t\",\"param\":null,\"code\":null}}";
    let upstream = Upstream::start(move |mut conn| async move {
        conn.head().await;
        conn.send(reply::whole(
            413,
            &[("content-type", "application/json"), ("connection", "close")],
            refused,
        ))
        .await;
        conn.closed().await;
    })
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let answer = gateway.ask(post("/v1/chat/completions", body_of(8 << 20))).await;
    assert_eq!((answer.status(), answer.text()), (413, refused));
}

#[tokio::test]
async fn upstream_unsolicited_response_is_discarded() {
    let upstream = Upstream::start(|mut conn| async move {
        while conn.request().await.is_some() {
            // An unsolicited second response.
            conn.send([chat(), reply::json(200, "{\"id\":\"smuggled\",\"choices\":[]}")].concat()).await;
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    for _ in 0..10 {
        let answer = client.ask(Form::Chat.request(false)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*Form::Chat.whole("gpt")));
    }
}

/// A provider over TLS, with its own CA file.
fn secured(upstream: &Upstream, host: &str, ca: &str, lines: &str) -> Setup {
    let base = format!("https://{host}:{}/v1", upstream.addr.port());
    Setup::new()
        .provider("openai", "openai", &base, &format!("ca = \"ca.pem\"\n{lines}"))
        .model("gpt", "openai", "gpt")
        .file("ca.pem", ca)
}

async fn tls_upstream(
    identity: &tls::Identity,
    names: Arc<std::sync::Mutex<Vec<Option<String>>>>,
) -> Upstream {
    Upstream::start_tls(identity.server(&["http/1.1"]), move |mut conn| {
        names.lock().unwrap().push(conn.sni.clone());
        async move {
            while conn.request().await.is_some() {
                conn.send(chat()).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn tls_upstream_certificate_is_verified_by_ca_and_name() {
    let (ours, theirs) = (tls::Authority::new(), tls::Authority::new());
    let right = ours.identity(&["localhost"]);
    for (what, identity, host, ca, reached) in [
        ("right", &right, "localhost", &ours, true),
        ("another authority", &theirs.identity(&["localhost"]), "localhost", &ours, false),
        ("another name", &ours.identity(&["elsewhere.test"]), "localhost", &ours, false),
        ("no name, an address", &right, "127.0.0.1", &ours, false),
        ("an address", &ours.identity(&["127.0.0.1"]), "127.0.0.1", &ours, true),
        ("past its time", &ours.expired("localhost"), "localhost", &ours, false),
    ] {
        let names = Arc::default();
        let upstream = tls_upstream(identity, Arc::clone(&names)).await;
        let gateway = Gateway::start(&secured(&upstream, host, ca.pem(), "")).await;
        let answer = gateway.ask(Form::Chat.request(false)).await;
        if reached {
            assert_eq!((answer.status(), answer.text()), (200, &*Form::Chat.whole("gpt")), "{what}");
            let name = (host == "localhost").then(|| host.to_owned());
            assert_eq!(*names.lock().unwrap(), [name], "{what}");
        } else {
            assert_eq!(answer.status(), 503, "{what}: {}", answer.text());
            let (_, message) = Form::Chat.error(&answer);
            assert!(!message.contains(host), "{message}");
            assert_eq!(upstream.count(), 0, "{what}: the request went to a stranger");
        }
    }
    // Without a configured CA the system's CAs are used, which do not know the certificate.
    let upstream = tls_upstream(&right, Arc::default()).await;
    let base = format!("https://localhost:{}/v1", upstream.addr.port());
    let setup = Setup::new().provider("openai", "openai", &base, "").model("gpt", "openai", "gpt");
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 503);
    assert_eq!(upstream.count(), 0);
}

/// Two providers at one address with different CAs do not share pooled connections.
#[tokio::test]
async fn tls_connection_is_not_shared_between_different_cas() {
    let (ours, theirs) = (tls::Authority::new(), tls::Authority::new());
    let upstream = tls_upstream(&ours.identity(&["localhost"]), Arc::default()).await;
    let base = format!("https://localhost:{}/v1", upstream.addr.port());
    let setup = Setup::new()
        .provider("trusting", "openai", &base, "ca = \"ours.pem\"")
        .provider("wary", "openai", &base, "ca = \"theirs.pem\"")
        .model("gpt", "trusting", "gpt")
        .model("fast-gpt", "wary", "gpt")
        .file("ours.pem", ours.pem())
        .file("theirs.pem", theirs.pem());
    let gateway = Gateway::start(&setup).await;
    for _ in 0..3 {
        assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
        assert_eq!(gateway.ask(Form::Chat.request_for("fast-gpt", false)).await.status(), 503);
    }
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn http2_upstream_is_negotiated_by_alpn_and_configuration() {
    let authority = tls::Authority::new();
    let identity = authority.identity(&["localhost"]);
    let frames = Form::Chat.frames("gpt");
    let sent = frames.concat();
    for (offered, lines, version) in [
        (&["h2", "http/1.1"][..], "", "HTTP/2"),
        (&["h2"], "http = \"2\"", "HTTP/2"),
        (&["http/1.1"], "", "HTTP/1.1"),
        (&["h2", "http/1.1"], "http = \"1.1\"", "HTTP/1.1"),
    ] {
        let config = identity.server(offered);
        let sent = sent.clone();
        let upstream = if version == "HTTP/2" {
            Upstream::start_h2(Some(config), move |mut exchange| {
                let sent = sent.clone();
                async move { exchange.whole(200, "text/event-stream", sent).await }
            })
            .await
        } else {
            let answer = reply::whole(200, &[("content-type", "text/event-stream")], sent);
            Upstream::start_tls(config, move |mut conn| {
                let answer = answer.clone();
                async move {
                    while conn.request().await.is_some() {
                        conn.send(&answer).await;
                    }
                }
            })
            .await
        };
        let gateway = Gateway::start(&secured(&upstream, "localhost", authority.pem(), lines)).await;
        let mut client = gateway.connect().await;
        for _ in 0..3 {
            let answer = client.ask(Form::Chat.request(true)).await;
            assert_eq!((answer.status(), answer.text()), (200, &*frames.concat()), "{offered:?} {lines}");
        }
        assert_eq!(upstream.connections(), 1, "{offered:?} {lines}");
        let head = upstream.last_request().head;
        assert!(head.line.ends_with(version), "{}", head.line);
        let host = format!("localhost:{}", upstream.addr.port());
        let name = if version == "HTTP/2" { ":authority" } else { "host" };
        assert_eq!(head.all(name), [host], "{offered:?} {lines}");
    }
}

#[tokio::test]
async fn http2_upstream_connection_is_shared_by_many_requests() {
    let gate = Gate::new();
    let waiting = gate.clone();
    let upstream = Upstream::start_h2(None, move |mut exchange| {
        let gate = waiting.clone();
        async move {
            gate.passed().await;
            exchange.whole(200, "application/json", Form::Chat.whole("gpt")).await;
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "http = \"2\"")).await;
    let gateway = Arc::new(gateway);
    let ask = || {
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.ask(Form::Chat.request(false)).await.status() })
    };
    let mut asked = Vec::new();
    // Requests are sent one after another, so that there is a connection to share; their responses arrive together.
    for n in 1..=60 {
        asked.push(ask());
        upstream.wait_for(n).await;
    }
    gate.open();
    for answer in asked {
        assert_eq!(soon(answer).await.unwrap(), 200);
    }
    assert_eq!(upstream.connections(), 1);
}

/// An HTTP/2 connection that the provider ends (GOAWAY) between requests fails no request.
#[tokio::test]
async fn http2_upstream_connection_is_replaced_after_goaway() {
    let upstream = Upstream::accept(|number, socket, seen| async move {
        let _ = number;
        let mut connection = h2::server::handshake(socket).await.unwrap();
        let Some(Ok((request, mut answer))) = connection.accept().await else { return };
        seen.note(crate::support::upstream::Request::default());
        drop(request);
        let head = http::Response::builder().header("content-type", "application/json").body(()).unwrap();
        let mut send = answer.send_response(head, false).unwrap();
        send.send_data(Form::Chat.whole("gpt").into(), true).unwrap();
        connection.graceful_shutdown();
        while connection.accept().await.is_some() {}
    })
    .await;
    let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "http = \"2\"")).await;
    for n in 0..10 {
        let answer = gateway.ask(Form::Chat.request(false)).await;
        assert_eq!(answer.status(), 200, "{n}: {}", answer.text());
        until(|| upstream.closed() == n + 1).await;
    }
    assert_eq!(upstream.count(), 10);
}

#[tokio::test]
async fn upstream_host_name_is_resolved() {
    let upstream = Upstream::answering(chat()).await;
    let port = upstream.addr.port();
    let setup = Setup::new()
        .provider("openai", "openai", &format!("http://LOCALHOST:{port}/v1/"), "")
        .provider("nowhere", "openai", "http://no-such-host.invalid/v1", "")
        .model("gpt", "openai", "gpt")
        .model("fast-gpt", "nowhere", "gpt");
    let gateway = Gateway::start(&setup).await;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 200);
    }
    assert_eq!(upstream.last_request().head.get("host"), Some(&*format!("localhost:{port}")));
    assert_eq!(upstream.connections(), 1);
    let answer = gateway.ask(Form::Chat.request_for("fast-gpt", false)).await;
    assert_eq!(answer.status(), 503);
    let (_, message) = Form::Chat.error(&answer);
    assert!(!message.contains("no-such-host"), "{message}");
}

/// A client over HTTP/2 and TLS, and a provider over HTTP/2 and TLS: documents and streams arrive unchanged.
#[tokio::test]
async fn http2_and_tls_on_both_sides_pass_documents_and_streams() {
    let authority = tls::Authority::new();
    let identity = authority.identity(&["localhost", "gateway.test"]);
    let upstream = Upstream::start_h2(Some(identity.server(&["h2"])), |mut exchange| async move {
        let text = exchange.request.text().to_owned();
        let stream = text.contains("\"stream\":true");
        let (kind, body) = match stream {
            true => ("text/event-stream", Form::Chat.frames("gpt").concat()),
            false => ("application/json", Form::Chat.whole("gpt")),
        };
        exchange.whole(200, kind, body).await;
    })
    .await;
    let setup = secured(&upstream, "localhost", authority.pem(), "").tls(&identity.chain, &identity.key);
    let gateway = Gateway::start(&setup).await;
    let mut client = http2::Client::connect_tls(gateway.tls, authority.client(&["h2"]), "gateway.test").await;
    for (stream, expected) in [(false, Form::Chat.whole("gpt")), (true, Form::Chat.frames("gpt").concat())] {
        let (head, body) = http2::answer(client.request(Form::Chat, stream).await).await;
        assert_eq!((head.status().as_u16(), String::from_utf8(body).unwrap()), (200, expected));
    }
}
