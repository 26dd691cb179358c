//! The ledger's database file: it is removed while the gateway runs, and another gateway would use it.

use nix::sys::signal::Signal;

use crate::accounts::{PAYING, asking, paying, providers};
use crate::support::form::Form;
use crate::support::gateway::{Gateway, free_ports};
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

#[tokio::test]
async fn second_gateway_on_the_file_of_another_is_refused() {
    let upstream = providers().await;
    let folder = tempfile::tempdir().unwrap();
    let mut setup = paying(&upstream, "1");
    setup.log += &format!("[store]\nsqlite = \"{}\"\n", folder.path().join("shared.db").display());
    let mut first = Gateway::start(&setup).await;
    let mut other = setup.clone();
    other.accounts.clear();
    // A link to the file is the same file.
    std::os::unix::fs::symlink(folder.path().join("shared.db"), folder.path().join("link.db")).unwrap();
    other.log = other.log.replace("shared.db", "link.db");
    for setup in [&setup, &other] {
        let mut setup = setup.clone();
        setup.accounts.clear();
        let mut second = Gateway::spawn(&setup, free_ports());
        assert_ne!(second.ended().await.code(), Some(0));
        let log = second.log();
        let holder = format!("is in use: another gateway, process {}, holds its lock", first.pid());
        assert!(log.contains(&holder) && log.contains("--upgrade"), "{log}");
    }
    // The commands work meanwhile, and the first one goes on.
    assert_eq!(first.account("acme")["enabled"], true);
    let chat = asking(Form::Chat, provider_of(Form::Chat), false, PAYING);
    assert_eq!(first.ask(chat).await.status(), 200);
    first.signal(Signal::SIGKILL);
    first.ended().await;
    let mut third = Gateway::spawn(&other, free_ports());
    third.wait_until_ready().await;
    assert!(third.runs());
}
