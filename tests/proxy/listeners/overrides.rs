//! Environment variables that override settings.

use std::process::{Command, Output, Stdio};

use super::setup;
use crate::support::client::request;
use crate::support::gateway::{Gateway, free_ports};
use crate::support::ports::free_port;

fn check(conf: &std::path::Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_model-gateway"))
        .args(["check", "--conf"])
        .arg(conf)
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn overrides_are_shown_with_their_variables() {
    let folder = tempfile::tempdir().unwrap();
    let conf = setup().write(folder.path(), &free_ports());
    let variables = [
        ("MODEL_GATEWAY__SERVER__THREADS", "3"),
        ("MODEL_GATEWAY__LIMITS__BODY", "8MiB"),
        ("MODEL_GATEWAY__RELOAD__ALLOW_EMPTY", "true"),
        ("MODEL_GATEWAY__SERVER__TRUSTED_PROXIES", "[\"10.0.0.0/8\"]"),
        ("MODEL_GATEWAY__SERVER__CORS", "[{ origins = [\"https://a.example\"] }]"),
        ("MODEL_GATEWAY__STORE__VALKEY", "redis://user:hunter2@127.0.0.1:1"),
    ];
    let output = check(&conf, &variables, &["--print"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "threads        = 3  # from the environment: MODEL_GATEWAY__SERVER__THREADS",
        "body           = \"8MiB\"  # from the environment: MODEL_GATEWAY__LIMITS__BODY",
        "allow_empty = true  # from the environment: MODEL_GATEWAY__RELOAD__ALLOW_EMPTY",
        "trusted_proxies = [\"10.0.0.0/8\"]  # from the environment: MODEL_GATEWAY__SERVER__TRUSTED_PROXIES",
        "[[server.cors]]  # from the environment: MODEL_GATEWAY__SERVER__CORS",
        "valkey = \"redis://***@127.0.0.1:1\"  # from the environment: MODEL_GATEWAY__STORE__VALKEY",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(text.matches("# from the environment").count(), variables.len(), "{text}");
    assert!(!text.contains("hunter2"));
}

#[test]
fn overrides_that_are_wrong_are_faults_with_their_variables() {
    let folder = tempfile::tempdir().unwrap();
    let conf = setup().write(folder.path(), &free_ports());
    for (variable, value, says) in [
        ("MODEL_GATEWAY__SERVER__THREADS", "many", "server.threads"),
        ("MODEL_GATEWAY__SERVER__THREADS", "1000000", "1000000 is out of range"),
        ("MODEL_GATEWAY__SERVER__THREADS", "\"4\"", "expected a whole number"),
        ("MODEL_GATEWAY__SERVER__LISTEN", "0.0.0.0:80", "server.listen"),
        ("MODEL_GATEWAY__LIMITS__BODY", "8 apples", "limits.body"),
        ("MODEL_GATEWAY__SERVER__THREDS", "4", "did you mean MODEL_GATEWAY__SERVER__THREADS?"),
        ("MODEL_GATEWAY__NO__SUCH", "4", "no setting has this name"),
        ("MODEL_GATEWAY__STORE__VALKEY", "{ file = \"nowhere\" }", "nowhere"),
    ] {
        let output = check(&conf, &[(variable, value)], &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(variable) && said.contains(says),
            "{variable}={value}: {said}"
        );
    }
    // Other variables of the gateway are none of its settings.
    assert!(check(&conf, &[("MODEL_GATEWAY_TEST", "1")], &[]).status.success());
}

#[tokio::test]
async fn overrides_apply_to_the_gateway() {
    let addr = free_port();
    let script = format!("export MODEL_GATEWAY__SERVER__LISTEN='[\"{addr}\"]'\nexec \"$@\"\n");
    let ports = free_ports();
    let mut gateway = Gateway::spawn(&setup().file("start.sh", &script), ports);
    gateway.addr = addr;
    gateway.wait_until_ready().await;
    assert_eq!(gateway.ask(request("GET", "/", &[])).await.status(), 200);
    assert!(tokio::net::TcpStream::connect(ports.plain).await.is_err());
}
