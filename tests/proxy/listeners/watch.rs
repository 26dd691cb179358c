//! `serve --watch`: a changed file is applied without a signal.

use crate::support::client::request;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, key};
use crate::support::until;

fn models(key: &str) -> Vec<u8> {
    request("GET", "/v1/models", &[("authorization", &format!("Bearer {key}"))])
}

#[tokio::test]
async fn watched_files_are_reloaded_when_they_change() {
    let mut setup = super::setup().file("start.sh", "export MODEL_GATEWAY_WATCH=true\nexec \"$@\"\n");
    setup = setup.server("keys = [\"keys.toml\", \"keys.d/*.toml\"]").file("secret", "first-secret");
    setup.routes =
        setup.routes.replacen("{ value = \"upstream-secret-of-the-gateway\" }", "{ file = \"secret\" }", 1);
    let gateway = Gateway::start(&setup).await;
    let applied = async || gateway.metrics().await.sum("gateway_reloads_total", &[("result", "applied")]);
    let wait_for = async |count: f64| {
        gateway.wait_for_metric("gateway_reloads_total", &[("result", "applied")], count).await;
    };
    assert_eq!(gateway.ask(models("client-key-of-bob-0005")).await.status(), 401);
    // A rename, as editors and the gateway's own commands save.
    let with_bob = gateway.read("keys.toml") + &key("bob", "client-key-of-bob-0005", "");
    gateway.replace("keys.toml", &with_bob);
    wait_for(1.0).await;
    assert_eq!(gateway.ask(models("client-key-of-bob-0005")).await.status(), 200);
    // A new file in an included folder.
    std::fs::create_dir(gateway.folder().join("keys.d")).unwrap();
    let carol = key("carol", "client-key-of-carol-0006", "");
    std::fs::write(gateway.folder().join("keys.d/carol.toml"), carol).unwrap();
    wait_for(2.0).await;
    assert_eq!(gateway.ask(models("client-key-of-carol-0006")).await.status(), 200);
    // A secret.
    gateway.replace("secret", "second-secret");
    wait_for(3.0).await;
    // An invalid file is rejected once, and not again until it changes.
    gateway.replace("routes.toml", "[[provider]");
    gateway.wait_for_metric("gateway_reloads_total", &[("result", "refused")], 1.0).await;
    assert_eq!(gateway.ask(models(KEY)).await.status(), 200);
    gateway.replace("routes.toml", &setup.routes);
    wait_for(4.0).await;
    // gateway.toml is read at the start only, and that is said.
    let text = gateway.read("gateway.toml") + "\n";
    gateway.replace("gateway.toml", &text);
    until(|| gateway.log().contains("gateway.toml has changed")).await;
    assert_eq!(applied().await, 4.0);
    assert_eq!(gateway.metrics().await.sum("gateway_reloads_total", &[("result", "refused")]), 1.0);
}
