//! Many writers and hand editors of the files at once: no change is lost, comments stay, the audit log is complete.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{ADMIN, Ask, OPERATOR, get, with_tokens};
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;

/// Concurrent writers. Each creates a key.
const WRITERS: usize = 1_000;
/// Every so many writers one changes its key, too.
const CHANGES_EVERY: usize = 20;
/// Changes of an editor, which renames its file over the present one.
const EDITS: usize = 10;
/// Requests of writers at a time: the gateway answers more with a 503, and the writer tries again.
const AT_A_TIME: usize = 24;

/// Sends a request until it is applied. Other writers and editors may come first.
async fn insist(gateway: &Gateway, request: &Ask, refusals: &AtomicUsize) -> Value {
    loop {
        let answer = request.send(gateway).await;
        match answer.status() {
            200 => return answer.json(),
            503 => {}
            409 => {
                let error = answer.json();
                assert_eq!(error["error"]["code"], "changed_on_disk", "{error}");
                refusals.fetch_add(1, Ordering::Relaxed);
                let reload = Ask::new("POST", "/config/reload").token(OPERATOR);
                let reloaded = reload.send(gateway).await;
                assert!([200, 503].contains(&reloaded.status()), "{}", reloaded.text());
            }
            _ => panic!("{request:?}: {}", answer.text()),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Edits the file as an editor does that notices when its file has changed: it loads the file again. Returns the number
/// of edits.
async fn edit(gateway: Arc<Gateway>, done: Arc<AtomicBool>) -> usize {
    const HEAD: &str = "# Keys of the team.\n";
    for number in 0..EDITS {
        loop {
            let before = gateway.read("keys.toml");
            let after = before.replacen(HEAD, &format!("{HEAD}# Edit {number}.\n"), 1);
            let beside = gateway.folder().join("editor.tmp");
            std::fs::write(&beside, &after).unwrap();
            if gateway.read("keys.toml") == before {
                std::fs::rename(&beside, gateway.folder().join("keys.toml")).unwrap();
                break;
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        if done.load(Ordering::Relaxed) {
            return number + 1;
        }
    }
    EDITS
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_many_writers_and_editors_lose_no_change() {
    let mut setup = with_tokens(Setup::new());
    setup.keys = format!("# Keys of the team.\n\n{}# Not the last line any more.\n", setup.keys);
    setup.log += "[reload]\nsettle = \"0s\"\n";
    let gateway = Arc::new(Gateway::start(&setup).await);
    let (places, refusals) =
        (Arc::new(tokio::sync::Semaphore::new(AT_A_TIME)), Arc::new(AtomicUsize::new(0)));
    let done = Arc::new(AtomicBool::new(false));

    let editor = tokio::spawn(edit(gateway.clone(), done.clone()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (gateway, places, refusals) = (gateway.clone(), places.clone(), refusals.clone());
            tokio::spawn(async move {
                let _place = places.acquire_owned().await.unwrap();
                let name = format!("writer-{number}");
                let create = Ask::new("POST", "/keys").token(ADMIN).body(json!({ "name": name }));
                let created = insist(&gateway, &create, &refusals).await;
                let mut numbers = vec![created["audit"].as_u64().unwrap()];
                if number % CHANGES_EVERY == 0 {
                    let change = Ask::new("PATCH", &format!("/keys/{name}")).token(ADMIN);
                    let change = change.body(json!({ "limits": { "concurrent": number + 1 } }));
                    numbers.push(insist(&gateway, &change, &refusals).await["audit"].as_u64().unwrap());
                }
                numbers
            })
        })
        .collect();
    let mut recorded = BTreeSet::new();
    for writer in writers {
        for number in writer.await.unwrap() {
            assert!(recorded.insert(number), "two changes have the number {number}");
        }
    }
    done.store(true, Ordering::Relaxed);
    let edits = editor.await.unwrap();
    Ask::new("POST", "/config/reload").token(OPERATOR).expect(&gateway, 200).await;

    let text = gateway.read("keys.toml");
    for comment in ["# Keys of the team.", "# Not the last line any more."] {
        assert!(text.contains(comment), "{comment}");
    }
    for number in 0..edits {
        assert!(text.contains(&format!("# Edit {number}.\n")), "edit {number} of {edits} is lost");
    }
    let parsed: toml::Table = text.parse().unwrap();
    let keys = parsed["key"].as_array().unwrap();
    for number in 0..WRITERS {
        let key = keys.iter().find(|key| key["name"].as_str() == Some(&format!("writer-{number}"))).unwrap();
        let limit = key.get("limits").and_then(|limits| limits["concurrent"].as_integer());
        assert_eq!(limit, (number % CHANGES_EVERY == 0).then_some(number as i64 + 1));
    }
    assert_eq!(get("/keys?limit=1").expect(&gateway, 200).await["total"], WRITERS + 4);

    // The log has a line for each change, in an unbroken chain.
    let log = gateway.read("admin/audit.jsonl");
    let mut before = String::new();
    for (index, line) in log.lines().enumerate() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&value["seq"], &value["prev"]), (&json!(index + 1), &json!(before)));
        before = model_gateway::config::FileHash::of(line).to_hex();
        if value["outcome"] == "applied" && value["action"].as_str().unwrap().starts_with("key.") {
            recorded.remove(&value["seq"].as_u64().unwrap());
        }
    }
    assert!(recorded.is_empty(), "changes without a line: {recorded:?}");
    let left: Vec<_> =
        std::fs::read_dir(gateway.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}
