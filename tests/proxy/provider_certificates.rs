//! Certificates that the gateway presents to providers, and their renewal.

use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::tls::{Authority, Identity};
use crate::support::upstream::Upstream;

/// Starts a provider that requires a certificate of `clients`.
async fn provider(server: &Authority, clients: &Authority, protocol: &str) -> Upstream {
    let config = server.identity(&["localhost"]).server_for(&[protocol], clients);
    if protocol == "h2" {
        return Upstream::start_h2(Some(config), move |mut exchange| async move {
            exchange.whole(200, "application/json", Form::Chat.whole("gpt")).await;
        })
        .await;
    }
    Upstream::start_tls(config, |mut conn| async move {
        while conn.request().await.is_some() {
            conn.send(reply::json(200, Form::Chat.whole("gpt"))).await;
        }
    })
    .await
}

fn setup(upstream: &Upstream, server: &Authority, identity: Option<&Identity>) -> Setup {
    let base = format!("https://localhost:{}/v1", upstream.addr.port());
    let lines = if identity.is_some() { "client_cert = \"own.crt\"\nclient_key = \"own.key\"" } else { "" };
    let setup = Setup::new()
        .provider("openai", "openai", &base, &format!("ca = \"ca.pem\"\n{lines}"))
        .model("gpt", "openai", "gpt")
        .file("ca.pem", server.pem());
    match identity {
        Some(identity) => setup.file("own.crt", &identity.chain).file("own.key", &identity.key),
        None => setup,
    }
}

#[tokio::test]
async fn provider_gets_the_certificate_which_a_reload_renews() {
    let (server, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    for protocol in ["http/1.1", "h2"] {
        let upstream = provider(&server, &clients, protocol).await;
        // The same serial number: the connections of both must be told apart nevertheless.
        let (first, second) = (clients.numbered("gateway", 7), clients.numbered("gateway", 7));
        let gateway = Gateway::start(&setup(&upstream, &server, Some(&first))).await;
        let ask = async || {
            let status = gateway.ask(Form::Chat.request(false)).await.status();
            // Then the connection to the provider is in the pool again.
            gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
            status
        };
        assert_eq!((ask().await, ask().await, upstream.connections()), (200, 200, 1), "{protocol}");
        let printed = gateway.command(&["check", "--print"]);
        assert!(printed.contains("# client_cert: sha256:") && !printed.contains("PRIVATE"), "{printed}");

        gateway.replace("own.crt", &second.chain);
        gateway.replace("own.key", &second.key);
        gateway.reload("applied").await;
        assert_eq!((ask().await, ask().await, upstream.connections()), (200, 200, 2), "{protocol}");
        // A key that does not belong to the certificate is refused, and the pair in effect stays.
        gateway.replace("own.key", &first.key);
        gateway.reload("refused").await;
        assert_eq!((ask().await, upstream.connections()), (200, 2), "{protocol}");
        // The provider does not know this authority: nothing is sent over a connection that it has accepted before.
        let stranger = others.identity(&["gateway"]);
        gateway.replace("own.crt", &stranger.chain);
        gateway.replace("own.key", &stranger.key);
        gateway.reload("applied").await;
        let count = upstream.count();
        assert!(ask().await >= 500, "{protocol}");
        assert_eq!(upstream.count(), count, "{protocol}");
    }
}

#[tokio::test]
async fn provider_that_requires_a_certificate_refuses_a_gateway_without_one() {
    let (server, clients) = (Authority::new(), Authority::new());
    let upstream = provider(&server, &clients, "http/1.1").await;
    let gateway = Gateway::start(&setup(&upstream, &server, None)).await;
    assert!(gateway.ask(Form::Chat.request(false)).await.status() >= 500);
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn provider_certificate_is_checked_with_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Authority::new().identity(&["a"]), Authority::new().identity(&["a"]));
    for (name, text) in [("a.crt", &one.chain), ("a.key", &one.key), ("b.key", &other.key)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::write(folder.path().join("none"), "nothing").unwrap();
    let faults = |base: &str, lines: &str| {
        let routes = format!(
            "[[provider]]\nname = \"p\"\nkind = \"openai-compatible\"\nbase_url = \"{base}\"\n{lines}\n[[model]]\nid = \"m\"\n\
             targets = [{{ provider = \"p\", model = \"m\" }}]\n"
        );
        let texts = ["[server]\nlisten = [\"127.0.0.1:1\"]\n", &routes, ""];
        let environment = config::Environment;
        let loaded = config::load_texts(folder.path(), texts, &environment);
        loaded.err().map(|report| report.to_string()).unwrap_or_default()
    };
    let https = "https://localhost/v1";
    assert_eq!(faults(https, "client_cert = \"a.crt\"\nclient_key = \"a.key\""), "");
    for (base, lines, fault) in [
        (https, "client_cert = \"a.crt\"", "only one of client_cert and client_key"),
        (https, "client_cert = \"a.crt\"\nclient_key = \"b.key\"", "cannot be used with the certificate"),
        (https, "client_cert = \"a.key\"\nclient_key = \"a.key\"", "no valid certificate"),
        (https, "client_cert = \"a.crt\"\nclient_key = \"none\"", "no valid private key"),
        (https, "client_cert = \"a.crt\"\nclient_key = \"absent\"", "absent"),
        ("http://localhost/v1", "client_cert = \"a.crt\"\nclient_key = \"a.key\"", "over TLS only"),
    ] {
        let found = faults(base, lines);
        assert!(found.contains(fault), "{lines}: {found}");
    }
}
