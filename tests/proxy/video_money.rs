//! Videos cost what they cost once they are there; nothing of a task is lost or charged twice, whoever ends in between.

use model_gateway::simulator::{Options, Simulator, Vendor};
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

async fn vendor() -> Simulator {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    Simulator::start(Vendor::OpenAi, options).await.unwrap()
}

/// A gateway whose videos cost 0.05 a second, and a key that pays with `acme`.
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
async fn what_a_video_may_cost_is_held_and_what_it_costs_is_charged_at_its_end() {
    let vendor = vendor().await;
    let gateway = Gateway::start(&paying(&vendor.base_url(), "1")).await;
    // One that the vendor refuses costs nothing and holds nothing.
    assert_eq!(submit(&gateway, "A cat [[status 500]]", 12).await.status(), 500);
    let good = begin(&gateway, "A cat", 8).await;
    let bad = begin(&gateway, "A cat [[film fail]]", 12).await;
    let refused = submit(&gateway, "A cat", 4).await;
    assert_eq!((refused.status(), &refused.json()["error"]["code"]), (429, &json!("insufficient_quota")));
    assert_eq!(gateway.account("acme")["balance"], "1.00", "nothing is charged before its end");
    assert_eq!(end(&gateway, &bad).await["status"], "failed");
    assert_eq!(end(&gateway, &good).await["status"], "succeeded");
    // What has ended is not charged again.
    end(&gateway, &good).await;
    until(|| gateway.account("acme")["balance"] == "0.60").await;
    let records = gateway.records(4).await;
    let of = |id: &str| {
        let wanted = if id == good { "0.40" } else { "0.00" };
        records.iter().filter(|record| record["cost"] == wanted).count()
    };
    assert_eq!((of(&good), of(&bad)), (1, 3), "{records:#?}");
    assert!(records.iter().all(|record| record["endpoint"] == "videos" && record["model"] == "sora-2"));
    // What was held for the one that failed can be spent.
    let answer = submit(&gateway, "A cat", 12).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

/// Another process in the place of one that is killed, when it is ready.
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
async fn a_task_outlives_the_process_that_began_it() {
    let vendor = vendor().await;
    let mut gateway = Gateway::start(&paying(&vendor.base_url(), "1")).await;
    let id = begin(&gateway, "A cat", 8).await;
    let _second = killed_and_begun_anew(&mut gateway).await;
    assert_eq!(end(&gateway, &id).await["status"], "succeeded");
    until(|| gateway.account("acme")["balance"] == "0.60").await;
    let download = get(&gateway, &format!("/v1/video/generations/download?id={id}")).await;
    assert_eq!((download.status(), &download.json()["size"]), (200, &json!(4_096)));
}

/// What a process held is gone with it, and the task runs on: whoever goes on with it holds it again.
#[tokio::test]
async fn what_a_running_task_may_cost_is_held_again_after_a_restart() {
    let vendor = vendor().await;
    let mut gateway = Gateway::start(&paying(&vendor.base_url(), "1")).await;
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
    // It is held for nobody any more.
    assert_eq!(submit(&gateway, "A dog", 8).await.status(), 200);
}

#[tokio::test]
async fn a_video_that_nobody_asks_for_is_charged_all_the_same() {
    let vendor = vendor().await;
    let gateway = Gateway::start(&paying(&vendor.base_url(), "1")).await;
    begin(&gateway, "A cat [[film looks 0]]", 4).await;
    until(|| gateway.account("acme")["balance"] == "0.80").await;
}

/// 30 MB, twice, in base64: what is held of it meanwhile is a fraction of one.
#[tokio::test]
async fn a_large_video_passes_without_being_held() {
    const SIZE: usize = 30_000_000;
    let vendor = vendor().await;
    let gateway = Gateway::start(&paying(&vendor.base_url(), "1")).await;
    let small = begin(&gateway, "A cat [[film looks 0]]", 4).await;
    let large = begin(&gateway, &format!("A cat [[film looks 0]] [[film bytes {SIZE}]]"), 4).await;
    end(&gateway, &small).await;
    end(&gateway, &large).await;
    get(&gateway, &format!("/v1/video/generations/download?id={small}")).await;
    let before = gateway.memory("VmHWM");
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
    let grown = gateway.memory("VmHWM") - before;
    assert!(grown < 12_000, "{grown} KiB more");
}

#[tokio::test]
async fn a_video_that_breaks_off_is_never_taken_for_a_whole_one() {
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
    let lines = gateway.wait_for_log(4).await;
    let broken = lines.iter().filter(|line| line["error"] == "upstream_broken").count();
    assert_eq!(broken, 2, "{lines:#?}");
}

/// A vendor's link to another host is handed to the client; the vendor's credential is not sent there.
#[tokio::test]
async fn a_credential_goes_nowhere_else() {
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
