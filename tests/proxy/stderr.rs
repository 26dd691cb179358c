//! Standard error that cannot be written: lines are lost and counted, and that is all.

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

/// Standard error is a pipe.
const PIPE: &str = "dir=$(dirname \"$0\")\nmkfifo \"$dir/pipe\"\nexec \"$@\" 2>\"$dir/pipe\"\n";

/// A gateway whose standard error is a pipe, and the end of it that nobody has read from yet.
async fn piped(mut setup: Setup) -> (Gateway, File) {
    setup.log += "level = \"info\"\n";
    let mut gateway = Gateway::spawn(&setup.file("start.sh", PIPE), free_ports());
    let pipe = gateway.folder().join("pipe");
    let reader = soon(tokio::task::spawn_blocking(move || {
        loop {
            // It opens when the other side does.
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

/// Whoever read the log has gone, and a reload has something to say.
#[tokio::test]
async fn a_pipe_without_a_reader_ends_neither_a_stream_nor_the_process() {
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

/// Somebody holds the pipe and does not read: nobody waits for it, and the end does not wait long.
#[tokio::test]
async fn a_pipe_that_nobody_reads_stops_nobody() {
    let gate = Gate::new();
    gate.open();
    let upstream = halting(Form::Chat, &gate).await;
    let setup = Setup::providers(upstream.addr);
    let (mut gateway, reader) = piped(setup.clone()).await;
    // Each of these says more than a hundred lines.
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
async fn a_full_device_is_no_reason_not_to_start() {
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

/// The disk is full for the log, the database and the journal alike. When there is room again, all goes on, and
/// everything is charged that was answered.
#[tokio::test]
async fn a_full_disk_stops_no_thread() {
    if !Command::new("prlimit").arg("--version").output().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("GATEWAY_REQUIRE_ALL").is_none(), "no prlimit");
        eprintln!("SKIPPED: there is no prlimit on this machine");
        return;
    }
    let upstream = providers().await;
    // Files of more than a megabyte or two cannot grow; standard error is larger already.
    let mut setup = paying(&upstream, "1000")
        .file("start.sh", "trap '' XFSZ\nulimit -S -f 2000\nexec \"$@\"\n")
        .file("stderr", &"a line\n".repeat(600_000));
    setup.log += "level = \"error\"\n[store]\nflush = \"5ms\"\n";
    let gateway = Gateway::start(&setup).await;
    let chat = || asking(Form::Chat, provider_of(Form::Chat), false, PAYING);
    let mut answered = 0;
    soon(async {
        // The ledger says that its database takes nothing: that is the line that is lost.
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
