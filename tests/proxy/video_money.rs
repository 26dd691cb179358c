//! Accounting of videos: the reservation at submission, one charge at the end, restarts in between, and prices by
//! resolution.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::accounts::PAYING;
use super::support::client::{Answer, post_with, request};
use super::support::gateway::{Gateway, Successor};
use super::support::http1::Piece;
use super::support::reply;
use super::support::setup::{CREDENTIAL, Setup, key};
use super::support::upstream::Upstream;
use super::support::{soon, until};

async fn provider() -> Simulator {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    Simulator::start(SimulatedProvider::OpenAi, options).await.unwrap()
}

/// A gateway whose videos cost 0.05 a second, and a key of the account `acme`.
fn paying(base: &str, credit: &'static str) -> Setup {
    let mut setup = Setup::new()
        .provider("openai", "openai", base, "")
        .model("sora-2", "openai", "sora-2")
        .priced("video_second = 0.05")
        .account("acme", credit);
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    setup
}

async fn submit(gateway: &Gateway, prompt: &str, seconds: u64) -> Answer {
    let bearer = format!("Bearer {PAYING}");
    let body = json!({"model": "sora-2", "prompt": prompt, "seconds": seconds}).to_string();
    gateway.ask(post_with("/v1/video/generations", &[("authorization", &bearer)], body)).await
}

async fn begin(gateway: &Gateway, prompt: &str, seconds: u64) -> String {
    let answer = submit(gateway, prompt, seconds).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.json()["task_id"].as_str().unwrap().to_owned()
}

async fn get(gateway: &Gateway, path: &str) -> Answer {
    gateway.ask(request("GET", path, &[("authorization", &format!("Bearer {PAYING}"))])).await
}

async fn end(gateway: &Gateway, id: &str) -> Value {
    let path = format!("/v1/video/generations/{id}");
    soon(async {
        loop {
            let answer = get(gateway, &path).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            let answer = answer.json();
            if matches!(answer["status"].as_str().unwrap(), "succeeded" | "failed") {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
    .await
}

#[tokio::test]
async fn video_cost_is_reserved_at_submission_and_charged_at_the_end() {
    let provider = provider().await;
    let gateway = Gateway::start(&paying(&provider.base_url(), "1")).await;
    // A submission that the provider refuses costs nothing and leaves no reservation.
    assert_eq!(submit(&gateway, "A cat [[status 500]]", 12).await.status(), 500);
    let good = begin(&gateway, "A cat", 8).await;
    let bad = begin(&gateway, "A cat [[film fail]]", 12).await;
    let refused = submit(&gateway, "A cat", 4).await;
    assert_eq!((refused.status(), &refused.json()["error"]["code"]), (429, &json!("insufficient_quota")));
    assert_eq!(gateway.account("acme")["balance"], "1.00", "nothing is charged before its end");
    assert_eq!(end(&gateway, &bad).await["status"], "failed");
    assert_eq!(end(&gateway, &good).await["status"], "succeeded");
    // Polling an ended task again charges nothing.
    end(&gateway, &good).await;
    until(|| gateway.account("acme")["balance"] == "0.60").await;
    let records = gateway.records(4).await;
    let of = |id: &str| {
        let wanted = if id == good { "0.40" } else { "0.00" };
        records.iter().filter(|record| record["cost"] == wanted).count()
    };
    assert_eq!((of(&good), of(&bad)), (1, 3), "{records:#?}");
    assert!(records.iter().all(|record| record["endpoint"] == "videos" && record["model"] == "sora-2"));
    // The reservation of the failed task is released.
    let answer = submit(&gateway, "A cat", 12).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

/// Kills the gateway and starts another process in its place. Returns it once it is ready.
async fn killed_and_begun_anew(gateway: &mut Gateway) -> Successor {
    gateway.signal(Signal::SIGKILL);
    gateway.ended().await;
    let second = gateway.start_beside(&[]);
    soon(async {
        while gateway.admin_status("/readyz").await != Some(200) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    second
}

#[tokio::test]
async fn video_task_survives_a_killed_process() {
    let provider = provider().await;
    let mut gateway = Gateway::start(&paying(&provider.base_url(), "1")).await;
    let id = begin(&gateway, "A cat", 8).await;
    let _second = killed_and_begun_anew(&mut gateway).await;
    assert_eq!(end(&gateway, &id).await["status"], "succeeded");
    until(|| gateway.account("acme")["balance"] == "0.60").await;
    let download = get(&gateway, &format!("/v1/video/generations/download?id={id}")).await;
    assert_eq!((download.status(), &download.json()["size"]), (200, &json!(4_096)));
}

/// Sets a member of the stored state of a task whose process has ended, and makes the task due.
fn stored_as(gateway: &Gateway, id: &str, change: &[(&str, Value)]) {
    let connection = rusqlite::Connection::open(gateway.folder().join("state.db")).unwrap();
    let state: Vec<u8> =
        connection.query_row("SELECT state FROM task WHERE id = ?1", [id], |row| row.get(0)).unwrap();
    let mut state: Value = serde_json::from_slice(&state).unwrap();
    change.iter().for_each(|(name, value)| state[*name] = value.clone());
    let state = serde_json::to_vec(&state).unwrap();
    let changed =
        connection.execute("UPDATE task SET state = ?2, due = 0 WHERE id = ?1", rusqlite::params![id, state]);
    assert_eq!(changed.unwrap(), 1);
}

/// Waits until the stored state of a task says that it is charged.
async fn charged(gateway: &Gateway, id: &str) {
    until(|| {
        let connection = rusqlite::Connection::open(gateway.folder().join("state.db")).unwrap();
        let state: Vec<u8> =
            connection.query_row("SELECT state FROM task WHERE id = ?1", [id], |row| row.get(0)).unwrap();
        let state: Value = serde_json::from_slice(&state).unwrap();
        state["uncharged"] == false
    })
    .await;
}

/// A process is killed after it has stored the end of a task and before it has charged it: the next one charges it. The
/// same after the charge and before its confirmation is stored: the next one does not charge it again.
#[tokio::test]
async fn video_end_without_its_charge_is_charged_once_by_the_next_process() {
    let provider = provider().await;
    let mut gateway = Gateway::start(&paying(&provider.base_url(), "1")).await;
    let charged_id = begin(&gateway, "A cat", 8).await;
    assert_eq!(end(&gateway, &charged_id).await["status"], "succeeded");
    charged(&gateway, &charged_id).await;
    until(|| gateway.account("acme")["balance"] == "0.60").await;
    let id = begin(&gateway, "A cat", 4).await;
    gateway.signal(Signal::SIGKILL);
    gateway.ended().await;
    let done = [("stage", json!("Done")), ("ended", json!(1)), ("uncharged", json!(true))];
    stored_as(&gateway, &id, &done);
    stored_as(&gateway, &charged_id, &done);
    let _second = gateway.start_beside(&[]);
    charged(&gateway, &id).await;
    charged(&gateway, &charged_id).await;
    until(|| gateway.account("acme")["balance"] == "0.40").await;
    assert_eq!(gateway.records(2).await.len(), 2);
}

/// The reservation of a running task is lost with its process. The next process that handles the task reserves its cost
/// again.
#[tokio::test]
async fn video_reservation_is_restored_after_a_restart() {
    let provider = provider().await;
    let mut gateway = Gateway::start(&paying(&provider.base_url(), "1")).await;
    let id = begin(&gateway, "A cat [[film looks 6]]", 12).await;
    let _second = killed_and_begun_anew(&mut gateway).await;
    let path = format!("/v1/video/generations/{id}");
    assert_eq!(get(&gateway, &path).await.status(), 200);
    let refused = submit(&gateway, "A dog", 12).await;
    assert_eq!(refused.status(), 429, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "insufficient_quota");
    assert_eq!(gateway.account("acme")["balance"], "1.00", "nothing is charged before its end");
    assert_eq!(end(&gateway, &id).await["status"], "succeeded");
    until(|| gateway.account("acme")["balance"] == "0.40").await;
    // The reservation is settled.
    assert_eq!(submit(&gateway, "A dog", 8).await.status(), 200);
}

#[tokio::test]
async fn video_charge_does_not_need_polling() {
    let provider = provider().await;
    let gateway = Gateway::start(&paying(&provider.base_url(), "1")).await;
    begin(&gateway, "A cat [[film looks 0]]", 4).await;
    until(|| gateway.account("acme")["balance"] == "0.80").await;
}

/// Two downloads of 30 MB in one Base64 response: the gateway holds only a fraction of one.
#[tokio::test]
async fn video_download_is_streamed_with_bounded_memory() {
    const SIZE: usize = 30_000_000;
    let provider = provider().await;
    let gateway = Gateway::start(&paying(&provider.base_url(), "1")).await;
    let small = begin(&gateway, "A cat [[film looks 0]]", 4).await;
    let large = begin(&gateway, &format!("A cat [[film looks 0]] [[film bytes {SIZE}]]"), 4).await;
    end(&gateway, &small).await;
    end(&gateway, &large).await;
    get(&gateway, &format!("/v1/video/generations/download?id={small}")).await;
    let before = gateway.start_of_peak();
    let path = format!("/v1/video/generations/download?id={large}");
    let mut client = gateway.connect().await;
    client.send(request("GET", &path, &[("authorization", &format!("Bearer {PAYING}"))])).await;
    let head = client.head().await;
    assert_eq!(head.status(), 200);
    let mut length = 0;
    while let Piece::Data(piece) = client.piece().await {
        length += piece.len();
    }
    assert!(length > SIZE.div_ceil(3) * 8, "{length}");
    let grown = gateway.peak_memory().saturating_sub(before);
    assert!(grown < 12_000, "{grown} KiB more");
}

#[tokio::test]
async fn video_download_cut_is_incomplete_for_the_client() {
    let upstream = Upstream::start(|mut conn| async move {
        while let Some(asked) = conn.request().await {
            let line = asked.head.line.clone();
            let video = |status| json!({"id": "video_up", "object": "video", "status": status}).to_string();
            if line.starts_with("POST") {
                conn.send(reply::json(200, video("queued"))).await;
            } else if !line.contains("/content") {
                conn.send(reply::json(200, video("completed"))).await;
            } else {
                let head = reply::head(200, &[("content-type", "video/mp4"), ("content-length", "100000")]);
                conn.send(head + &"x".repeat(50_000)).await;
                return;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&paying(&format!("http://{}/v1", upstream.addr), "1")).await;
    let id = begin(&gateway, "A cat", 4).await;
    end(&gateway, &id).await;
    for path in [format!("/v1/video/generations/download?id={id}"), format!("/v1/videos/{id}/content")] {
        let answer = get(&gateway, &path).await;
        assert_eq!((answer.status(), answer.complete), (200, false), "{path}");
    }
    // The number of lines before those of the downloads depends on how often the task was polled.
    let broken = || gateway.access_log().iter().filter(|line| line["error"] == "upstream_broken").count();
    until(|| broken() >= 2).await;
    assert_eq!(broken(), 2, "{:#?}", gateway.access_log());
}

/// A video link to another host is neither followed nor passed on, so that the provider's credential is not sent there.
#[tokio::test]
async fn video_link_to_another_host_is_not_followed() {
    let elsewhere = Upstream::answering(reply::json(200, "{}")).await;
    let uri = format!("http://{}/secret.mp4", elsewhere.addr);
    let upstream = Upstream::start(move |mut conn| {
        let uri = uri.clone();
        async move {
            while let Some(asked) = conn.request().await {
                let name = "models/veo-3.1-fast/operations/o";
                conn.send(if asked.head.line.starts_with("POST") {
                    reply::json(200, json!({"name": name}).to_string())
                } else {
                    let sample = json!([{"video": {"uri": uri}}]);
                    let response = json!({"generateVideoResponse": {"generatedSamples": sample}});
                    reply::json(200, json!({"name": name, "done": true, "response": response}).to_string())
                })
                .await;
            }
        }
    })
    .await;
    let mut setup = Setup::new()
        .provider("google", "gemini", &format!("http://{}/v1beta", upstream.addr), "")
        .model("sora-2", "google", "veo-3.1-fast");
    setup.keys += &key("pia", PAYING, "");
    let gateway = Gateway::start(&setup).await;
    let answer = submit(&gateway, "A cat", 4).await.json();
    let id = answer["task_id"].as_str().unwrap();
    let path = format!("/v1/video/generations/{id}");
    soon(async {
        while upstream.count() < 2 {
            get(&gateway, &path).await;
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
    .await;
    let answer = get(&gateway, &format!("/v1/videos/{id}/content")).await;
    assert_eq!((answer.status(), elsewhere.count()), (500, 0), "{}", answer.text());
    assert!(!answer.everything().contains("secret.mp4"));
}

/// Price of a second by resolution.
const SECOND: &str = "video_second = [{ size = \"480p\", each = 0.01 }, { size = \"720p\", each = 0.02 }, { size = \"1080p\", each = 0.05 }]";
const PRO: &str = "doubao-seedance-1-0-pro-250528";
const PRO_15: &str = "doubao-seedance-1-5-pro-251215";

/// Starts a gateway with several kinds of providers, whose videos are priced by resolution.
async fn by_resolution() -> (Gateway, Vec<Simulator>) {
    let mut setup = Setup::new();
    let mut providers = Vec::new();
    for (model, provider, kind, path) in [
        ("sora-2", SimulatedProvider::OpenAi, "openai", "v1"),
        ("sora-2-pro", SimulatedProvider::OpenAi, "openai", "v1"),
        ("veo-3.1-fast-generate-preview", SimulatedProvider::Google, "gemini", "v1beta"),
        ("wan2.5-t2v-preview", SimulatedProvider::DashScope, "dashscope", "api/v1"),
        (PRO, SimulatedProvider::Ark, "ark", "api/v3"),
        (PRO_15, SimulatedProvider::Ark, "ark", "api/v3"),
    ] {
        let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
        let simulator = Simulator::start(provider, options).await.unwrap();
        setup = setup.provider(model, kind, &format!("http://{}/{path}", simulator.addr()), "");
        setup = setup.model(model, model, model);
        providers.push(simulator);
    }
    let mut setup = setup.priced(SECOND).account("acme", "100");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    (Gateway::start(&setup).await, providers)
}

async fn submit_body(gateway: &Gateway, body: &Value) -> Answer {
    let bearer = format!("Bearer {PAYING}");
    gateway.ask(post_with("/v1/video/generations", &[("authorization", &bearer)], body.to_string())).await
}

/// Submits a video, waits for its end, and returns what it cost, in cents.
async fn costs(gateway: &Gateway, body: &Value) -> String {
    costs_and(gateway, body, || Value::Null).await.0
}

/// Like [`costs`], and also returns what `see` returns after the submission.
async fn costs_and(gateway: &Gateway, body: &Value, see: impl Fn() -> Value) -> (String, Value) {
    // Read before the submission: the charge does not need polling, so it may come at any time after it.
    let before = gateway.account("acme")["balance"].as_str().unwrap().to_owned();
    let answer = submit_body(gateway, body).await;
    assert_eq!(answer.status(), 200, "{body}: {}", answer.text());
    let seen = see();
    let ended = end(gateway, answer.json()["task_id"].as_str().unwrap()).await;
    assert_eq!(ended["status"], "succeeded", "{body}");
    until(|| gateway.account("acme")["balance"] != before.as_str()).await;
    let cents = |text: &str| (text.parse::<f64>().unwrap() * 100.0).round() as i64;
    let after = gateway.account("acme")["balance"].as_str().unwrap().to_owned();
    (format!("{}", cents(&before) - cents(&after)), seen)
}

/// Charged size, resolution and duration are those that the provider was sent; requests for which they cannot be known
/// are refused.
#[tokio::test]
async fn video_charge_equals_what_the_provider_is_sent() {
    let (gateway, providers) = by_resolution().await;
    let told =
        |at: usize| -> Value { serde_json::from_slice(&providers[at].last_request().unwrap().body).unwrap() };
    let prompt = "A cat [[film looks 0]]";
    for body in [
        json!({"model": PRO, "prompt": prompt, "size": "1x1"}),
        json!({"model": PRO, "prompt": prompt, "size": "4294967296x4294967296"}),
        json!({"model": PRO, "prompt": prompt, "size": "640x360"}),
        json!({"model": PRO, "prompt": prompt, "size": "1280x720", "resolution": "480p"}),
        json!({"model": PRO_15, "prompt": prompt, "size": "1920x1080"}),
        json!({"model": PRO, "prompt": format!("{prompt} --rs 1p")}),
        json!({"model": PRO, "prompt": format!("{prompt} --dur 0")}),
        json!({"model": PRO, "prompt": format!("{prompt} --frames 1")}),
        json!({"model": PRO, "prompt": format!("{prompt}--resolution 1p")}),
        json!({"model": PRO, "prompt": prompt, "frames": 1}),
        json!({"model": "wan2.5-t2v-preview", "prompt": prompt, "size": "1x1"}),
        json!({"model": "veo-3.1-fast-generate-preview", "prompt": prompt, "size": "1x1"}),
        json!({"model": "sora-2", "prompt": prompt, "resolution": "1080p"}),
    ] {
        let before: u64 = providers.iter().map(Simulator::requests).sum();
        let answer = submit_body(&gateway, &body).await;
        assert_eq!(answer.status(), 400, "{body}: {}", answer.text());
        assert_eq!(before, providers.iter().map(Simulator::requests).sum::<u64>(), "{body}");
    }
    // A size of the model is sent as its resolution and ratio.
    for (body, at, cost, pointer, value) in [
        (
            json!({"model": PRO, "prompt": prompt, "size": "1920x1080"}),
            4,
            "25",
            "/resolution",
            json!("1080p"),
        ),
        (json!({"model": PRO, "prompt": prompt, "size": "480x864"}), 4, "5", "/ratio", json!("9:16")),
        (json!({"model": PRO, "prompt": prompt}), 4, "10", "/resolution", json!("720p")),
        (json!({"model": PRO, "prompt": prompt, "frames": 241}), 4, "10", "/frames", json!(241)),
        (
            json!({"model": "sora-2-pro", "prompt": prompt, "resolution": "1080p"}),
            1,
            "20",
            "/size",
            json!("1080x1920"),
        ),
        (
            json!({"model": "wan2.5-t2v-preview", "prompt": prompt, "size": "1080x1920"}),
            3,
            "25",
            "/parameters/size",
            json!("1080*1920"),
        ),
        (
            json!({"model": "veo-3.1-fast-generate-preview", "prompt": prompt, "size": "1920x1080"}),
            2,
            "40",
            "/parameters/durationSeconds",
            json!(8),
        ),
    ] {
        let (found, told) = costs_and(&gateway, &body, || told(at)).await;
        assert_eq!((found.as_str(), told.pointer(pointer)), (cost, Some(&value)), "{body}: {told}");
    }
}

/// The charge follows the provider's report of what it made.
#[tokio::test]
async fn video_charge_follows_the_report_of_the_provider() {
    let (gateway, _providers) = by_resolution().await;
    for (body, cost) in [
        (json!({"model": PRO, "prompt": "A cat [[film looks 0]] [[film makes 1080p]]"}), "25"),
        (
            json!({"model": PRO, "prompt": "A cat [[film looks 0]] [[film makes 480p]] [[film lasts 10]]"}),
            "10",
        ),
        // A reported resolution without a price: the requested one is charged.
        (json!({"model": PRO, "prompt": "A cat [[film looks 0]] [[film makes 704p]]"}), "10"),
        (json!({"model": "sora-2", "prompt": "A cat [[film looks 0]] [[film makes 1080x1920]]"}), "20"),
        (
            json!({"model": "wan2.5-t2v-preview", "prompt": "A cat [[film looks 0]] [[film makes 1080]]"}),
            "25",
        ),
        // Of two contradictory resolutions the more expensive one is reserved.
        (json!({"model": PRO, "prompt": "A cat [[film looks 0]] --rs 480p", "resolution": "1080p"}), "25"),
    ] {
        assert_eq!(costs(&gateway, &body).await, cost, "{body}");
    }
}

/// A remix costs the same as its original, whatever duration the request names.
#[tokio::test]
async fn video_remix_is_reserved_like_its_original() {
    let provider = provider().await;
    let gateway = Gateway::start(&paying(&provider.base_url(), "1")).await;
    let first = begin(&gateway, "A cat [[film looks 0]]", 8).await;
    end(&gateway, &first).await;
    until(|| gateway.account("acme")["balance"] == "0.60").await;
    let remix = json!({"model": "sora-2", "prompt": "A dog [[film looks 9]]", "seconds": 4, "remix_from_video_id": first});
    let answer = submit_body(&gateway, &remix).await;
    assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, Some("seconds dropped")));
    // 0.40 is reserved; 0.20 is left.
    assert_eq!(submit(&gateway, "A cat", 8).await.status(), 429);
    assert_eq!(submit(&gateway, "A cat", 4).await.status(), 200);
}

/// The provider may run and bill such a task. The client is not charged, because it cannot get the video.
#[tokio::test]
async fn video_submission_of_unknown_outcome_is_logged() {
    let upstream = Upstream::start(|mut conn| async move {
        while let Some(asked) = conn.request().await {
            let body = asked.text().to_owned();
            if body.contains("vanish") {
                return;
            }
            let error = json!({"error": {"message": "No.", "code": "no"}}).to_string();
            let answer = if body.contains("garbled") { "{}".to_owned() } else { error };
            conn.send(reply::json(if body.contains("status") { 500 } else { 200 }, answer)).await;
        }
    })
    .await;
    let gateway = Gateway::start(&paying(&format!("http://{}/v1", upstream.addr), "1")).await;
    let said = || gateway.log().matches("did not confirm a submission").count();
    for (prompt, expected) in [("vanish", 1), ("garbled", 2), ("refused", 2), ("status", 2)] {
        let answer = submit(&gateway, prompt, 4).await;
        assert!(answer.status() >= 400, "{prompt}: {}", answer.text());
        until(|| said() >= expected).await;
        assert_eq!(said(), expected, "{prompt}: {}", gateway.log());
    }
    assert_eq!(gateway.account("acme")["balance"], "1.00");
}
