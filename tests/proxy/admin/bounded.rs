//! Bounds of the admin API: expensive checks, reloads that do not end, sign-ins without end, and who may have the port.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{ADMIN, Ask, OPERATOR, READER, get, post, with_tokens};
use crate::support::gateway::{Gateway, free_ports};
use crate::support::setup::{Setup, key};
use crate::support::{soon, until};

const PROVIDER: &str =
    "[[provider]]\nname = \"p\"\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";

/// Layers of two models, each with both models of the next layer as its fallback.
fn lattice(layers: usize) -> String {
    let mut text = PROVIDER.to_owned();
    for layer in 0..layers {
        for side in ["a", "b"] {
            let _ = writeln!(text, "[[model]]\nid = \"l{layer}{side}\"");
            let _ = writeln!(text, "targets = [{{ provider = \"p\", model = \"m\" }}]");
            if layer + 1 < layers {
                let below = layer + 1;
                let _ = writeln!(text, "fallback = [\"l{below}a\", \"l{below}b\"]");
            }
        }
    }
    text
}

fn models(count: usize) -> String {
    let mut text = PROVIDER.to_owned();
    for number in 0..count {
        let _ = writeln!(
            text,
            "[[model]]\nid = \"m{number}\"\ntargets = [{{ provider = \"p\", model = \"m\" }}]"
        );
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_checks_hold_up_no_other_operation() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let start = Instant::now();
    let checked = post("/config/validate").body(json!({ "routes": lattice(40) })).expect(&gateway, 200).await;
    assert_eq!((&checked["ok"], &checked["models"]), (&json!(true), &json!(80)), "{checked}");
    eprintln!("40 layers: {:?}", start.elapsed());
    // Expensive checks whose callers leave.
    let large = post("/config/validate").body(json!({ "routes": models(20_000) })).bytes();
    let mut callers = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(gateway.admin).await.unwrap();
        stream.write_all(&large).await.unwrap();
        callers.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let busy = post("/config/validate").body(json!({ "routes": "" })).send(&gateway).await;
    assert!([200, 503].contains(&busy.status()), "{}", busy.text());
    for path in ["/instance", "/keys", "/providers", "/accounts", "/audit"] {
        let start = Instant::now();
        get(path).expect(&gateway, 200).await;
        assert!(start.elapsed() < Duration::from_secs(5), "{path}: {:?}", start.elapsed());
    }
    post("/keys").body(json!({ "name": "meanwhile" })).expect(&gateway, 200).await;
    drop(callers);
    // Their work ends with them.
    let checked = soon(async {
        loop {
            let answer = post("/config/validate").body(json!({ "routes": "x = 1" })).send(&gateway).await;
            if answer.status() == 200 {
                return answer.json();
            }
            assert_eq!(answer.status(), 503);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(checked["ok"], false);
}

/// A file that does not end: a reload that reads it keeps no later one from being applied.
#[tokio::test]
async fn reload_that_hangs_keeps_no_later_one_from_being_applied() {
    let setup = with_tokens(Setup::new()).server("keys = [\"keys.toml\", \"keys.d/*.toml\"]");
    let gateway = Gateway::start(&setup).await;
    let folder = gateway.folder().join("keys.d");
    std::fs::create_dir(&folder).unwrap();
    let pipe = folder.join("pipe.toml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    gateway.signal(Signal::SIGHUP);
    tokio::time::sleep(Duration::from_millis(300)).await;
    gateway.signal(Signal::SIGHUP);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(gateway.status().await["generation"], 1);
    std::fs::rename(&pipe, gateway.folder().join("pipe")).unwrap();
    gateway.replace("keys.toml", &(setup.keys.clone() + &key("new", "client-key-of-new-0009", "")));
    gateway.signal(Signal::SIGHUP);
    let status = soon(async {
        loop {
            let status = gateway.status().await;
            if status["generation"] != 1 {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!((&status["generation"], &status["keys"]), (&json!(2), &json!(5)), "{status}");
    // What has hung reads the file now, and counts no more.
    let opened = tokio::task::spawn_blocking({
        let pipe = gateway.folder().join("pipe");
        move || std::fs::write(pipe, key("late", "client-key-of-late-0010", "")).unwrap()
    });
    soon(opened).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(gateway.status().await["keys"], 5);
}

#[tokio::test]
async fn reload_with_unreadable_tokens_is_refused_and_recorded_so() {
    let setup = with_tokens(Setup::new());
    let gateway = Gateway::start(&setup).await;
    let tokens = gateway.folder().join("admin.toml");
    let text = std::fs::read_to_string(&tokens).unwrap();
    std::fs::remove_file(&tokens).unwrap();
    std::fs::create_dir(&tokens).unwrap();
    gateway.signal(Signal::SIGHUP);
    until(|| gateway.log().contains("the new tokens or the new certificate of the admin port were rejected"))
        .await;
    let status = gateway.status().await;
    assert_eq!(
        (&status["last_reload"]["result"], &status["generation"]),
        (&json!("refused"), &json!(2)),
        "{status}"
    );
    assert!(status["last_reload"]["problems"][0].as_str().unwrap().contains("admin.toml"), "{status}");
    let line = get("/audit?action=config.reload").expect(&gateway, 200).await["items"][0].clone();
    assert_eq!(line["outcome"], "refused", "{line}");
    let answer = post("/config/reload").expect(&gateway, 200).await;
    assert_eq!(answer["reload"]["result"], "refused", "{answer}");
    assert_eq!(answer["tokens"].as_array().unwrap().len(), 1, "{answer}");
    std::fs::remove_dir(&tokens).unwrap();
    std::fs::write(&tokens, text).unwrap();
    // A change of something else says nothing of the tokens.
    post("/keys").body(json!({ "name": "new" })).expect(&gateway, 200).await;
    assert_eq!(gateway.status().await["last_reload"]["result"], "refused");
    post("/config/reload").expect(&gateway, 200).await;
    assert_eq!(gateway.status().await["last_reload"]["result"], "applied");
}

#[tokio::test]
async fn reload_of_the_api_is_recorded_with_its_outcome() {
    let setup = with_tokens(Setup::new());
    let gateway = Gateway::start(&setup).await;
    gateway.replace("keys.toml", "[[key]\n");
    let refused = post("/config/reload").token(OPERATOR).expect(&gateway, 200).await;
    assert_eq!(refused["reload"]["result"], "refused");
    gateway.replace("keys.toml", &setup.keys);
    let applied = post("/config/reload").token(OPERATOR).expect(&gateway, 200).await;
    let lines = get("/audit?action=config.reload").expect(&gateway, 200).await["items"].clone();
    assert_eq!((&lines[0]["seq"], &lines[1]["seq"]), (&applied["audit"], &refused["audit"]));
    assert_eq!((&lines[0]["outcome"], &lines[1]["outcome"]), (&json!("applied"), &json!("refused")));
    assert!(lines[1]["faults"][0].as_str().unwrap().contains("keys.toml"), "{lines}");
    assert_eq!(lines[0]["faults"], json!([]));
    let begun = get("/audit?outcome=begun").expect(&gateway, 200).await["items"].clone();
    assert_eq!(begun.as_array().unwrap().len(), 2, "{begun}");
    get("/audit?outcome=aaa").expect(&gateway, 400).await;
}

#[tokio::test]
async fn admin_sign_ins_of_a_reader_end_no_session_of_others_and_fill_no_log() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let sign_in = |token: &str| Ask::new("POST", "/session").body(json!({ "token": token }));
    let signed = sign_in(ADMIN).send(&gateway).await;
    let cookie = signed.get("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    for _ in 0..100 {
        sign_in(READER).expect(&gateway, 200).await;
    }
    let own = Ask::new("GET", "/session").header("cookie", &cookie).expect(&gateway, 200).await;
    assert_eq!(own["caller"], "token:anna", "the session of an administrator goes on");
    let lines = get("/audit?action=session.begin&limit=1000").expect(&gateway, 200).await["items"].clone();
    let of = |actor: &str| lines.as_array().unwrap().iter().filter(|line| line["actor"] == actor).count();
    // The minute may have ended in between.
    assert!((20..=40).contains(&of("token:rita")) && of("token:anna") == 1, "{lines}");
}

#[tokio::test]
async fn admin_bodies_that_mean_two_things_are_refused() {
    let gateway = Gateway::start(&with_tokens(Setup::new().account("acme", "1"))).await;
    for amount in ["1e3", "+5", " 5", "5 ", "0", "-0", "0.0", "1_0", ".5", "5.", "", "0x5", "1,5", "NaN"] {
        let credit = post("/accounts/acme/credits").body(json!({ "amount": amount }));
        let error = credit.expect(&gateway, 400).await;
        assert_eq!(error["error"]["field"], "amount", "{amount}: {error}");
        let limits = json!({ "limits": { "spend_per_day": amount } });
        if !["0", "0.0"].contains(&amount) {
            Ask::new("PATCH", "/accounts/acme").token(ADMIN).body(limits).expect(&gateway, 400).await;
        }
    }
    assert_eq!(gateway.account("acme")["credited"], "1.00");
    for (path, body, field) in [
        ("/accounts/acme/credits", "{\"amount\":\"1\",\"amount\":\"100\"}", "amount"),
        ("/keys", "{\"name\":\"a\",\"limits\":{\"concurrent\":1,\"concurrent\":2}}", "concurrent"),
        ("/keys", "{\"name\":\"a\",\"n\\u0061me\":\"b\"}", "name"),
    ] {
        let error = post(path).text(body).expect(&gateway, 400).await;
        assert_eq!(error["error"]["field"], field, "{body}: {error}");
    }
    for host in ["[::1].evil", "127.0.0.1:9090.evil", "[127.0.0.1]", "localhost:9090.evil"] {
        Ask::new("GET", "/instance").header("host", host).expect(&gateway, 403).await;
    }
}

#[tokio::test]
async fn admin_port_is_that_of_one_gateway() {
    let setup = with_tokens(Setup::new());
    let gateway = Gateway::start(&setup).await;
    let mut ports = free_ports();
    ports.admin = gateway.admin;
    let mut other = Gateway::spawn(&setup, ports);
    let status = other.ended().await;
    assert!(!status.success());
    let log = other.log();
    assert!(log.contains(&format!("admin port {}: another process listens there", gateway.admin)), "{log}");
    for _ in 0..20 {
        get("/instance").expect(&gateway, 200).await;
    }
    assert_eq!(gateway.admin_status("/readyz").await, Some(200));
}

#[tokio::test]
async fn admin_socket_of_a_running_gateway_is_not_taken() {
    let mut setup = with_tokens(Setup::new());
    setup.log += "[admin]\nsocket = \"admin.sock\"\n";
    let gateway = Gateway::start(&setup).await;
    let socket = gateway.folder().join("admin.sock");
    let mut second = with_tokens(Setup::new());
    second.log += &format!("[admin]\nsocket = \"{}\"\n", socket.display());
    let mut other = Gateway::spawn(&second, free_ports());
    assert!(!other.ended().await.success());
    assert!(other.log().contains("another process listens there"), "{}", other.log());
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let _: Value = get("/instance").expect(&gateway, 200).await;
}
