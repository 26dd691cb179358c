//! Standard error that cannot be written: log lines are lost and counted, without any other effect.

use std::fs::File;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::accounts::{PAYING, asking, paying, providers};
use crate::reload::halting;
use crate::stop::{begun, rest};
use crate::support::form::Form;
use crate::support::gateway::{Gateway, free_ports};
use crate::support::http1::Piece;
use crate::support::setup::{Setup, provider_of};
use crate::support::{Gate, soon};

const LOST: &str = "gateway_log_lost_lines_total";

/// Start script that makes standard error a pipe.
const PIPE: &str = "dir=$(dirname \"$0\")\nmkfifo \"$dir/pipe\"\nexec \"$@\" 2>\"$dir/pipe\"\n";

/// Starts a gateway whose standard error is a pipe. Returns the unread end of it.
async fn piped(mut setup: Setup) -> (Gateway, File) {
    setup.log += "level = \"info\"\n";
    let mut gateway = Gateway::spawn(&setup.file("start.sh", PIPE), free_ports());
    let pipe = gateway.folder().join("pipe");
    let reader = soon(tokio::task::spawn_blocking(move || {
        loop {
            // Wait until the start script has created the pipe.
            match File::open(&pipe) {
                Ok(file) => return file,
                Err(_) => std::thread::park_timeout(std::time::Duration::from_millis(5)),
            }
        }
    }));
    let reader = reader.await.unwrap();
    gateway.wait_until_ready().await;
    (gateway, reader)
}

/// The log reader has gone, and a reload writes to the log.
#[tokio::test]
async fn stderr_pipe_without_a_reader_ends_no_stream_or_process() {
    let gate = Gate::new();
    let upstream = halting(Form::Chat, &gate).await;
    let (mut gateway, reader) = piped(Setup::providers(upstream.addr)).await;
    let (mut client, seen) = begun(&gateway, Form::Chat).await;
    drop(reader);
    for _ in 0..3 {
        gateway.reload("applied").await;
    }
    soon(async {
        while gateway.metrics().await.sum(LOST, &[]) < 1.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gate.open();
    assert_eq!(rest(&mut client, seen).await, (Form::Chat.frames("gpt").concat(), Piece::End));
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// The reader keeps the pipe open without reading: neither requests nor the end of the process wait for it.
#[tokio::test]
async fn stderr_unread_pipe_blocks_nothing() {
    let gate = Gate::new();
    gate.open();
    let upstream = halting(Form::Chat, &gate).await;
    let setup = Setup::providers(upstream.addr);
    let (mut gateway, reader) = piped(setup.clone()).await;
    // Each refused reload logs more than a hundred lines.
    gateway.replace("routes.toml", &(setup.routes + &"[[model]]\nid = 3\n\n".repeat(200)));
    for _ in 0..20 {
        gateway.reload("refused").await;
        assert_eq!(gateway.ask(Form::Chat.request(true)).await.status(), 200);
    }
    assert_eq!(gateway.admin_status("/readyz").await, Some(200));
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    drop(reader);
}

#[tokio::test]
async fn stderr_full_device_does_not_prevent_the_start() {
    let gate = Gate::new();
    gate.open();
    let upstream = halting(Form::Chat, &gate).await;
    let mut setup = Setup::providers(upstream.addr).file("start.sh", "exec \"$@\" 2>/dev/full\n");
    setup.log += "level = \"info\"\n";
    let mut gateway = Gateway::start(&setup).await;
    gateway.reload("applied").await;
    assert_eq!(gateway.ask(Form::Chat.request(true)).await.status(), 200);
    soon(async {
        while gateway.metrics().await.sum(LOST, &[]) < 1.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// The disk is full for log, database and journal. After space is available again everything works, and every answered
/// request is charged.
#[tokio::test]
async fn disk_full_stops_no_thread_and_loses_no_charge() {
    if !Command::new("prlimit").arg("--version").output().is_ok_and(|output| output.status.success()) {
        let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
        assert!(!required, "no prlimit, and GATEWAY_REQUIRE_ALL=1");
        eprintln!("SKIPPED: there is no prlimit on this machine");
        return;
    }
    let upstream = providers().await;
    // The limit on file size stops database and journal at one or two megabytes; standard error is larger from the
    // start.
    let mut setup = paying(&upstream, "1000")
        .file("start.sh", "trap '' XFSZ\nulimit -S -f 2000\nexec \"$@\"\n")
        .file("stderr", &"a line\n".repeat(600_000));
    setup.log += "level = \"error\"\n[store]\nflush = \"5ms\"\n";
    let gateway = Gateway::start(&setup).await;
    let chat = || asking(Form::Chat, provider_of(Form::Chat), false, PAYING);
    let mut answered = 0;
    soon(async {
        // The ledger logs that its database cannot be written: this line is lost.
        while gateway.metrics().await.sum(LOST, &[]) < 1.0 {
            assert_eq!(gateway.ask(chat()).await.status(), 200);
            answered += 1;
        }
    })
    .await;
    for _ in 0..10 {
        assert_eq!(gateway.ask(chat()).await.status(), 200);
        answered += 1;
    }
    assert_eq!(gateway.admin_status("/readyz").await, Some(200));
    let pid = gateway.pid().to_string();
    let raised = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:"]).status().unwrap();
    assert!(raised.success());
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    gateway.records(answered + 1).await;
    assert_eq!(gateway.metrics().await.sum("gateway_thread_restarts_total", &[]), 0.0);
}
