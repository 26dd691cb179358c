//! Configuration reload (SIGHUP): routes and keys are read again while requests run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::Signal;

use crate::bodies::body_of;
use crate::support::client::{post, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{KEY, Setup, key};
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;
use crate::support::{Gate, http2, reply, soon, until};

/// Starts a provider whose streams stop after the first frame until the gate opens.
pub(crate) async fn halting(form: Form, gate: &Gate) -> Upstream {
    let gate = gate.clone();
    let frames = form.frames(form.model());
    Upstream::start(move |mut conn| {
        let (gate, frames) = (gate.clone(), frames.clone());
        async move {
            while conn.request().await.is_some() {
                conn.send([reply::stream_head().into_bytes(), reply::chunk(&frames[0])].concat()).await;
                gate.passed().await;
                conn.send([reply::chunk(frames[1..].concat()), reply::LAST_CHUNK.to_vec()].concat()).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn reload_applies_to_new_requests_only() {
    let gate = Gate::new();
    let old = halting(Form::Chat, &gate).await;
    let new = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(old.addr)).await;
    let frames = Form::Chat.frames("gpt");
    let mut streaming = gateway.connect().await;
    streaming.send(Form::Chat.request(true)).await;
    streaming.head().await;
    let mut seen = Vec::new();
    read_until(&mut streaming, &mut seen, &frames[0]).await;
    let mut h2 = http2::Client::connect(gateway.addr).await;
    let h2_answer = soon(h2.request(Form::Chat, true).await).await.unwrap();
    // A request whose body is incomplete.
    let whole = post("/v1/chat/completions", body_of(5000));
    let mut half = gateway.connect().await;
    half.send(&whole[..3000]).await;
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 3.0).await;

    let setup = Setup::providers(new.addr);
    gateway.replace("routes.toml", &setup.routes);
    gateway.replace("keys.toml", &key("bob", "client-key-of-bob-0005", ""));
    gateway.reload("applied").await;

    // A request that started before the reload is served with the previous keys and routes.
    half.send(&whole[3000..]).await;
    old.wait_for(3).await;
    let ask = |key: &str| post_with("/v1/chat/completions", &[("x-api-key", key)], body_of(200));
    assert_eq!(gateway.ask(ask(KEY)).await.status(), 401);
    assert_eq!(gateway.ask(ask("client-key-of-bob-0005")).await.status(), 200);
    assert_eq!((old.count(), new.count()), (3, 1));
    gate.open();
    while let Piece::Data(piece) = streaming.piece().await {
        seen.extend_from_slice(&piece);
    }
    assert_eq!(String::from_utf8(seen).unwrap(), frames.concat());
    let (body, error) = http2::read_body(h2_answer.into_body()).await;
    assert!(error.is_none() && body == frames.concat().as_bytes(), "{error:?}");
    assert_eq!(half.answer().await.status(), 200);
    // A new request on an old connection is checked against the new keys.
    assert_eq!(streaming.ask(ask(KEY)).await.status(), 401);
    let status = gateway.status().await;
    assert_eq!(status["last_reload"]["result"], "applied", "{status}");
    assert_eq!((&status["keys"], &status["models"]), (&1.into(), &6.into()), "{status}");
}

#[tokio::test]
async fn reload_refuses_an_invalid_file_and_keeps_the_configuration() {
    let gate = Gate::new();
    let upstream = halting(Form::Chat, &gate).await;
    let setup = Setup::providers(upstream.addr);
    let gateway = Gateway::start(&setup).await;
    let frames = Form::Chat.frames("gpt");
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request(true)).await;
    client.head().await;
    let mut seen = Vec::new();
    read_until(&mut client, &mut seen, &frames[0]).await;
    let generation = gateway.status().await["generation"].clone();
    let unknown = setup.routes.clone()
        + "[[model]]\nid = \"x\"\ntargets = [{ provider = \"nobody\", model = \"x\" }]\n";
    for (n, (file, text, says)) in [
        ("routes.toml", "[[provider]\n".to_owned(), "routes.toml:1"),
        ("routes.toml", unknown, "nobody"),
        ("routes.toml", setup.routes.replace("kind = \"gemini\"", "kind = \"gemni\""), "gemini"),
        ("keys.toml", setup.keys.replace("enabled = false", "enabled = 0"), "keys.toml:"),
        ("keys.toml", setup.keys.clone() + &setup.keys, "alice"),
    ]
    .into_iter()
    .enumerate()
    {
        let before = if file == "routes.toml" { &setup.routes } else { &setup.keys };
        gateway.replace(file, &text);
        gateway.reload("refused").await;
        let status = gateway.status().await;
        assert_eq!(status["last_reload"]["result"], "refused", "{status}");
        assert_eq!(status["generation"], generation, "{status}");
        let problems = status["last_reload"]["problems"].to_string();
        assert!(problems.contains(says), "{says}: {problems}");
        until(|| gateway.log().contains(says) && gateway.log().contains("routes and keys are unchanged"))
            .await;
        assert_eq!(
            gateway.metrics().await.sum("gateway_reloads_total", &[("result", "refused")]),
            n as f64 + 1.0
        );
        assert_eq!(gateway.admin_status("/readyz").await, Some(200));
        assert_eq!(gateway.ask(post("/v1/chat/completions", "{")).await.status(), 400);
        gateway.replace(file, before);
    }
    gate.open();
    while let Piece::Data(piece) = client.piece().await {
        seen.extend_from_slice(&piece);
    }
    assert_eq!(String::from_utf8(seen).unwrap(), frames.concat());
    gateway.reload("applied").await;
    let status = gateway.status().await;
    assert_eq!(status["last_reload"]["problems"], serde_json::json!([]), "{status}");
    let written = gateway.everything_written();
    assert!(!written.contains(crate::support::setup::CREDENTIAL), "{written}");
}

#[tokio::test]
async fn reload_under_load_fails_no_request() {
    let upstream = crate::routing::every_provider().await;
    let gateway = Arc::new(Gateway::start(&Setup::providers(upstream.addr)).await);
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|n| {
            let (gateway, stop, served) = (gateway.clone(), stop.clone(), served.clone());
            tokio::spawn(async move {
                let mut client = gateway.connect().await;
                let form = Form::ALL[n];
                while !stop.load(Ordering::SeqCst) {
                    let answer = client.ask(form.request(false)).await;
                    assert_eq!(answer.text(), form.whole(form.model()));
                    let answer = client.ask(form.request(true)).await;
                    assert_eq!(answer.text(), form.frames(form.model()).concat());
                    served.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for n in 0..10 {
        // More keys each time, so that the key tables differ.
        let keys: String = (0..n * 100).map(|k| key(&format!("k{k}"), &format!("key-{k}"), "")).collect();
        gateway.replace("keys.toml", &(Setup::new().keys + &keys));
        gateway.reload("applied").await;
        let before = served.load(Ordering::SeqCst);
        until(|| served.load(Ordering::SeqCst) > before + 4).await;
    }
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        soon(client).await.unwrap();
    }
    let asked = 2 * served.load(Ordering::SeqCst);
    assert_eq!(gateway.metrics_after(asked).await.sum("gateway_errors_total", &[]), 0.0);
}

#[tokio::test]
async fn reload_refuses_empty_and_truncated_files() {
    let (_upstream, gateway) = crate::bodies::chat().await;
    let (routes, keys) = (gateway.read("routes.toml"), gateway.read("keys.toml"));
    let whole_line = routes.find("[[model]]").unwrap();
    let generation = gateway.status().await["generation"].clone();
    for (file, text, says) in [
        ("routes.toml", "", "has no model"),
        ("routes.toml", "# later\n", "has no model"),
        ("routes.toml", &routes[..whole_line], "has no model"),
        ("routes.toml", routes.trim_end(), "line break"),
        ("keys.toml", "", "has no key"),
        ("keys.toml", keys.trim_end(), "line break"),
    ] {
        let before = gateway.read(file);
        gateway.replace(file, text);
        gateway.reload("refused").await;
        let status = gateway.status().await;
        assert_eq!(status["generation"], generation, "{file} {text:?}: {status}");
        let problems = status["last_reload"]["problems"].to_string();
        assert!(problems.contains(file) && problems.contains(says), "{says}: {problems}");
        until(|| gateway.log().contains(says)).await;
        assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200, "{file} {text:?}");
        gateway.replace(file, &before);
    }
    gateway.reload("applied").await;
}

#[tokio::test]
async fn reload_refuses_every_cut_of_a_file_with_an_end_marker() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut setup = Setup::providers(upstream.addr).server("[reload]\nsettle = \"0s\"");
    setup.keys += "# end\n";
    let gateway = Gateway::start(&setup).await;
    let text = setup.keys.trim_end();
    for at in (0..text.len()).step_by(37).chain([text.rfind('#').unwrap()]) {
        // Written in place, as an editor may do.
        std::fs::write(gateway.folder().join("keys.toml"), &text[..at]).unwrap();
        gateway.reload("refused").await;
    }
    assert_eq!(gateway.status().await["generation"], 1);
    gateway.replace("keys.toml", &(key("bob", "client-key-of-bob-0005", "") + "# end\n"));
    gateway.reload("applied").await;
    assert_eq!(gateway.status().await["keys"], 1);
}

#[tokio::test]
async fn reload_accepts_empty_files_with_allow_empty() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::providers(upstream.addr).server("[reload]\nallow_empty = true\nsettle = \"0s\"");
    let gateway = Gateway::start(&setup).await;
    gateway.replace("routes.toml", "\n");
    gateway.reload("applied").await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 404);
    gateway.replace("keys.toml", "");
    gateway.reload("applied").await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 401);
    let status = gateway.status().await;
    assert_eq!((&status["keys"], &status["models"]), (&0.into(), &0.into()), "{status}");
    // An empty configuration file may always be replaced by one with entries.
    gateway.replace("keys.toml", &setup.keys);
    gateway.reload("applied").await;
}

#[tokio::test]
async fn reload_refuses_a_file_that_is_being_written() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::providers(upstream.addr).server("[reload]\nsettle = \"3s\"");
    let gateway = Gateway::start(&setup).await;
    let half = setup.keys[..setup.keys.rfind("[[key]]").unwrap()].to_owned();
    // Each prefix that the writer produces is a valid file.
    std::fs::write(gateway.folder().join("keys.toml"), &half).unwrap();
    let reloads = || async { gateway.metrics().await.sum("gateway_reloads_total", &[("result", "refused")]) };
    let before = reloads().await;
    gateway.signal(Signal::SIGHUP);
    let writing = async {
        for number in 0.. {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            let more = key(&format!("k{number}"), &format!("key-{number}"), "");
            let mut file =
                std::fs::File::options().append(true).open(gateway.folder().join("keys.toml")).unwrap();
            std::io::Write::write_all(&mut file, more.as_bytes()).unwrap();
        }
    };
    tokio::select! {
        () = writing => {}
        () = gateway.wait_for_metric("gateway_reloads_total", &[("result", "refused")], before + 1.0) => {}
    }
    let status = gateway.status().await;
    assert!(status["last_reload"]["problems"].to_string().contains("changed while it was read"), "{status}");
    assert_eq!(status["generation"], 1, "{status}");
    gateway.reload("applied").await;
}

#[tokio::test]
async fn keys_commands_replace_the_file_atomically_during_reloads() {
    let (_upstream, gateway) = crate::bodies::chat().await;
    let inode = || {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(gateway.folder().join("keys.toml")).unwrap())
    };
    for number in 0..5 {
        let before = inode();
        gateway.signal(Signal::SIGHUP);
        gateway.command(&["keys", "create", &format!("new-{number}")]);
        gateway.signal(Signal::SIGHUP);
        assert_ne!(inode(), before, "written in place");
    }
    soon(async {
        while gateway.status().await["keys"] != 9 {
            gateway.signal(Signal::SIGHUP);
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
    .await;
    let refused = gateway.status().await["last_reload"]["problems"].to_string();
    assert_eq!(refused, "[]");
}

#[test]
fn check_warns_of_files_without_models_or_keys() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::providers("127.0.0.1:9".parse().unwrap());
    let check = |setup: &Setup| {
        let conf = setup.write(folder.path(), &crate::support::gateway::free_ports());
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_model-gateway"));
        let output = command.args(["check", "--conf"]).arg(conf).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(check(&setup), "");
    setup.keys.clear();
    assert!(check(&setup).contains("has no key"));
    setup.routes.clear();
    let said = check(&setup);
    assert!(said.contains("has no key") && said.contains("has no model"), "{said}");
}

#[tokio::test]
async fn reload_reopens_the_access_log() {
    let (_upstream, gateway) = crate::bodies::chat().await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    gateway.wait_for_log(1).await;
    let moved = gateway.folder().join("access.log.1");
    std::fs::rename(gateway.folder().join("access.log"), &moved).unwrap();
    gateway.signal(Signal::SIGHUP);
    gateway.wait_for_metric("gateway_reloads_total", &[("result", "applied")], 1.0).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    gateway.wait_for_log(1).await;
    assert_eq!(std::fs::read_to_string(moved).unwrap().lines().count(), 1);
}
