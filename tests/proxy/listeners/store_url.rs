//! URL of the store in a file: it is read by all commands, and again on SIGHUP.

use crate::bodies::body_of;
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{Setup, key};
use crate::support::soon;
use crate::support::upstream::Upstream;
use crate::support::valkey::Server;

#[tokio::test]
async fn store_password_is_renewed_on_sighup() {
    let Some(server) = Server::start() else { return };
    assert_eq!(server.ask("CONFIG SET requirepass one"), "+OK\r\n");
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}\n", server.port);
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut setup = Setup::providers(upstream.addr)
        .priced("input = 1000")
        .account("acme", "1000000")
        .file("store-url", &url("one"))
        .limits("\n[store]\nvalkey = { file = \"store-url\" }\nflush = \"10ms\"");
    setup.keys += &key("anna", "client-key-of-anna-0011", "account = \"acme\"");
    let gateway = Gateway::start(&setup).await;
    let ask = async || {
        let request =
            post_with("/v1/chat/completions", &[("x-api-key", "client-key-of-anna-0011")], body_of(200));
        gateway.ask(request).await.status()
    };
    assert_eq!(ask().await, 200);

    let rotate = "AUTH one\r\nCONFIG SET requirepass two\r\nCLIENT KILL TYPE normal SKIPME yes";
    assert!(server.ask(rotate).starts_with("+OK\r\n"));
    // Another server is not taken over while the gateway runs.
    gateway.replace("store-url", "redis://:two@127.0.0.1:1\n");
    gateway.reload("applied").await;
    assert!(gateway.log().contains("the new URL of the store was rejected"), "{}", gateway.log());
    gateway.replace("store-url", &url("two"));
    gateway.reload("applied").await;
    let balance = || gateway.account("acme")["balance"].to_string();
    let before = balance();
    // The gateway connects again by itself; what it has leased of the balance may serve requests before.
    soon(async {
        while ask().await != 200 || balance() == before {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    let written = gateway.everything_written();
    assert!(!written.contains(":one@") && !written.contains(":two@"), "{written}");
}
