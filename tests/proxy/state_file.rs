//! The ledger's database file is removed while the gateway runs.

use nix::sys::signal::Signal;

use crate::accounts::{PAYING, asking, paying, providers};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, provider_of};
use crate::support::{soon, until};

#[tokio::test]
async fn ledger_file_removed_refuses_accounts_and_is_reported() {
    let upstream = providers().await;
    let mut gateway = Gateway::start(&paying(&upstream, "1")).await;
    let chat = |key| asking(Form::Chat, provider_of(Form::Chat), false, key);
    assert_eq!(gateway.ask(chat(PAYING)).await.status(), 200);
    let (file, away) = (gateway.folder().join("state.db"), gateway.folder().join("away.db"));
    std::fs::rename(&file, &away).unwrap();
    let status = async |wanted| {
        soon(async {
            while gateway.admin_status("/readyz").await != Some(wanted) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    status(503).await;
    let ready = gateway.admin("/readyz").await;
    assert!(ready.text().contains("accounts cannot be charged: "), "{}", ready.text());
    assert!(ready.text().contains("state.db was removed"), "{}", ready.text());
    until(|| gateway.log().contains("state.db was removed")).await;
    let refused = gateway.ask(chat(PAYING)).await;
    assert_eq!((refused.status(), refused.get("retry-after")), (503, Some("1")), "{}", refused.text());
    assert_eq!(gateway.ask(chat(KEY)).await.status(), 200, "a key without an account pays nothing");
    std::fs::rename(&away, &file).unwrap();
    status(200).await;
    assert_eq!(gateway.ask(chat(PAYING)).await.status(), 200);

    // The next process does not start with an empty ledger.
    std::fs::remove_file(&file).unwrap();
    status(503).await;
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    let mut next = gateway.start_beside(&[]);
    until(|| !next.runs()).await;
    let log = gateway.log();
    assert!(log.contains("is missing or empty, but its journal exists"), "{log}");
}

/// A journal whose records are all applied is removed; its folder stays.
#[tokio::test]
async fn ledger_file_removed_after_an_orderly_stop_is_not_made_anew_silently() {
    let upstream = providers().await;
    let mut gateway = Gateway::start(&paying(&upstream, "1")).await;
    let chat = asking(Form::Chat, provider_of(Form::Chat), false, PAYING);
    assert_eq!(gateway.ask(chat).await.status(), 200);
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(gateway.folder().join(name));
    }
    let folder = gateway.folder().join("state.db-ledger");
    // What the journal still holds has been applied.
    for left in std::fs::read_dir(&folder).unwrap() {
        std::fs::remove_file(left.unwrap().path()).unwrap();
    }
    let mut next = gateway.start_beside(&[]);
    until(|| !next.runs()).await;
    let log = gateway.log();
    assert!(log.contains("is missing or empty, but its journal exists"), "{log}");
    // The message says how to begin anew.
    std::fs::remove_dir(&folder).unwrap();
    let _next = gateway.start_beside(&[]);
    soon(async {
        while gateway.admin_status("/readyz").await != Some(200) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}
