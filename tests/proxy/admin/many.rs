//! Many writers and hand editors of the files at once: no change is lost, comments stay, the audit log is complete.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{ADMIN, Ask, OPERATOR, get, with_tokens};
use crate::support::client::{Answer, Client};
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::soon;

/// Concurrent writers. Each creates a key.
const WRITERS: usize = 1_000;
/// Every so many writers one changes its key, too.
const CHANGES_EVERY: usize = 20;
/// Changes of an editor, which renames its file over the present one.
const EDITS: usize = 10;
/// Writers at a time: more than the gateway has places for connections. It answers most of them with a 503, or closes the
/// connection before it has read a request, and the writer tries again.
const AT_A_TIME: usize = 300;
/// Writers that change the same key, and know the same version of it.
const RIVALS: usize = 40;
/// Keys that the command creates beside the API.
const COMMANDS: usize = 5;

/// Sends a request. `None` if the connection ended without an answer.
async fn try_send(gateway: &Gateway, request: &Ask) -> Option<Answer> {
    let stream = TcpStream::connect(gateway.admin).await.ok()?;
    let mut client = Client::over(stream);
    client.try_send(request.bytes()).await.ok()?;
    client.try_answer().await
}

/// Sends a request until it is applied. Other writers and editors may come first.
async fn insist(gateway: &Gateway, request: &Ask, refusals: &AtomicUsize) -> Value {
    for attempt in 0u64.. {
        let pause = std::time::Duration::from_millis(100 + attempt * 37 % 400);
        let Some(answer) = try_send(gateway, request).await else {
            tokio::time::sleep(pause).await;
            continue;
        };
        match answer.status() {
            200 => return answer.json(),
            503 => {}
            409 => {
                let error = answer.json();
                assert_eq!(error["error"]["code"], "changed_on_disk", "{error}");
                refusals.fetch_add(1, Ordering::Relaxed);
                let reload = Ask::new("POST", "/config/reload").token(OPERATOR);
                if let Some(reloaded) = try_send(gateway, &reload).await {
                    assert!([200, 503].contains(&reloaded.status()), "{}", reloaded.text());
                }
            }
            _ => panic!("{request:?}: {}", answer.text()),
        }
        tokio::time::sleep(pause).await;
    }
    unreachable!()
}

/// Creates keys with the command, which says so if the file has changed meanwhile, and is called again then.
fn command_creates(conf: &std::path::Path) {
    for number in 0..COMMANDS {
        let create = || {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_model-gateway"));
            command.args(["keys", "create", &format!("command-{number}"), "--conf"]).arg(conf);
            command.output().unwrap()
        };
        loop {
            let output = create();
            if output.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("changed"), "{said}");
        }
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

/// Writers that all have read the same version of a key: exactly one of them changes it.
async fn rivals(gateway: &Arc<Gateway>) {
    let etag = get("/keys/writer-0").expect(gateway, 200).await["etag"].as_str().unwrap().to_owned();
    let rivals: Vec<_> = (0..RIVALS)
        .map(|number| {
            let (gateway, etag) = (gateway.clone(), format!("\"{etag}\""));
            tokio::spawn(async move {
                let change = Ask::new("PATCH", "/keys/writer-0").token(ADMIN).header("if-match", &etag);
                let change = change.body(json!({ "limits": { "concurrent": 10_000 + number } }));
                loop {
                    match try_send(&gateway, &change).await.map(|answer| answer.status()) {
                        None | Some(503) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                        Some(status) => return (number, status),
                    }
                }
            })
        })
        .collect();
    let mut winners = Vec::new();
    for rival in rivals {
        match rival.await.unwrap() {
            (number, 200) => winners.push(number),
            (_, status) => assert_eq!(status, 412),
        }
    }
    let limit = get("/keys/writer-0").expect(gateway, 200).await["limits"]["concurrent"].clone();
    assert_eq!((winners.len(), limit), (1, json!(10_000 + winners[0])), "{winners:?}");
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
    let conf = gateway.folder().join("gateway.toml");
    let commands = tokio::task::spawn_blocking(move || command_creates(&conf));
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
    commands.await.unwrap();
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
    for number in 0..COMMANDS {
        let name = format!("command-{number}");
        assert!(keys.iter().any(|key| key["name"].as_str() == Some(&name)), "{name} is lost");
    }
    assert_eq!(get("/keys?limit=1").expect(&gateway, 200).await["total"], WRITERS + COMMANDS + 4);
    rivals(&gateway).await;

    // The log has a line for each change, in an unbroken chain.
    let log = gateway.read("admin/audit.jsonl");
    let (mut before, mut by_command) = (String::new(), 0);
    for (index, line) in log.lines().enumerate() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&value["seq"], &value["prev"]), (&json!(index + 1), &json!(before)));
        before = config::FileHash::of(line).to_hex();
        by_command += usize::from(value["via"] == "command" && value["outcome"] == "applied");
        if value["outcome"] == "applied" && value["action"].as_str().unwrap().starts_with("key.") {
            recorded.remove(&value["seq"].as_u64().unwrap());
        }
    }
    assert!(recorded.is_empty(), "changes without a line: {recorded:?}");
    assert!(by_command >= COMMANDS, "{by_command}");
    let left: Vec<_> =
        std::fs::read_dir(gateway.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}

/// Kills of the process while it writes, each at another moment.
const KILLS: u64 = 8;

/// A change is whole or absent whenever the process ends; what was answered is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_change_is_whole_or_absent_after_a_kill() {
    let mut setup = with_tokens(Setup::new());
    setup.keys = format!("# Keys of the team.\n\n{}# The last line.\n", setup.keys);
    let gateway = Arc::new(Gateway::start(&setup).await);
    let (mut answered, mut next) = (BTreeSet::new(), None);
    for round in 0..KILLS {
        if round > 0 {
            next = Some(gateway.start_beside(&[]));
            soon(async {
                while gateway.admin_status("/readyz").await != Some(200) {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            })
            .await;
        }
        let pid = next.as_ref().map_or(gateway.pid(), |process| process.pid());
        let of_round = gateway.clone();
        let writer = tokio::spawn(async move {
            let mut names = Vec::new();
            for number in 0.. {
                let name = format!("round-{round}-{number}");
                let create = Ask::new("POST", "/keys").token(ADMIN).body(json!({ "name": name }));
                match try_send(&of_round, &create).await {
                    Some(answer) => assert_eq!(answer.status(), 200, "{}", answer.text()),
                    None => break,
                }
                names.push(name);
            }
            names
        });
        tokio::time::sleep(std::time::Duration::from_millis(150 + round * 41 % 230)).await;
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
        answered.extend(writer.await.unwrap());
        drop(next.take());
        let text = gateway.read("keys.toml");
        let parsed: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let keys = parsed["key"].as_array().unwrap();
        for name in &answered {
            assert!(keys.iter().any(|key| key["name"].as_str() == Some(name)), "{name} is lost");
        }
        assert!(text.starts_with("# Keys of the team.\n") && text.contains("# The last line.\n"), "{text}");
        gateway.command(&["check"]);
        gateway.command(&["audit", "verify"]);
        // Each key that is there has its line: it was written before.
        // A gateway that was killed before the first change has no log.
        let log = std::fs::read_to_string(gateway.folder().join("admin/audit.jsonl")).unwrap_or_default();
        let made =
            keys.iter().filter_map(|key| key["name"].as_str()).filter(|name| name.starts_with("round-"));
        for name in made {
            assert!(log.contains(&format!("\"object\":\"key/{name}\"")), "{name} has no line");
        }
    }
    assert!(!answered.is_empty());
}
