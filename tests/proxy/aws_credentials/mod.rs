//! Credentials of AWS: token servers that are slow, away or wrong, and providers that refuse a credential.

mod outages;
mod refusals;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model_gateway::cloud::sigv4::{PayloadHash, Presented};
use serde_json::json;

use crate::support::client::post;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::{Request, Upstream, a_moment};
use crate::support::{reply, until};

const SECRET: &str = "secret-of-a-role-0001";
const TOKEN: &str = "session-token-of-a-role-0001";
/// Id of an inference profile, which has a colon.
const MODEL: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

fn http_date(seconds: i64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds as u64))
}

/// Service of container credentials, whose behaviour the test sets.
struct TokenServer {
    upstream: Upstream,
    /// Life of the credentials in seconds; the sign is that of the difference to the present time.
    life: Arc<AtomicU64>,
    is_away: Arc<AtomicBool>,
}

async fn token_server(life: u64, delay: Duration) -> TokenServer {
    let (lives, away) = (Arc::new(AtomicU64::new(life)), Arc::new(AtomicBool::new(false)));
    let (life, is_away, number) = (lives.clone(), away.clone(), Arc::new(AtomicUsize::new(0)));
    let upstream = Upstream::start(move |mut conn| {
        let (life, is_away, number) = (life.clone(), is_away.clone(), number.clone());
        async move {
            while conn.request().await.is_some() {
                tokio::time::sleep(delay).await;
                if is_away.load(Ordering::SeqCst) {
                    conn.send(reply::json(500, "{}")).await;
                    continue;
                }
                let number = number.fetch_add(1, Ordering::SeqCst);
                let end = unix_now() + life.load(Ordering::SeqCst) as i64;
                let end = jiff::Timestamp::from_second(end).unwrap().to_string();
                let body = json!({
                    "AccessKeyId": format!("AKID{number}"), "SecretAccessKey": SECRET, "Token": TOKEN, "Expiration": end
                });
                conn.send(reply::json(200, body.to_string())).await;
            }
        }
    })
    .await;
    TokenServer { upstream, life: lives, is_away: away }
}

fn converse_answer() -> Vec<u8> {
    let body = json!({
        "output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}},
        "stopReason": "end_turn", "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5},
        "metrics": {"latencyMs": 7},
    });
    reply::json(200, body.to_string())
}

fn setup(bedrock: &Upstream, aws: &str) -> Setup {
    let mut setup = Setup::new();
    setup.routes += &format!(
        "[[provider]]\nname = \"aws\"\nkind = \"bedrock\"\nbase_url = \"http://{}\"\n{aws}\n\n",
        bedrock.addr
    );
    setup.model("claude", "aws", MODEL)
}

fn container(server: &TokenServer) -> String {
    let url = format!("http://{}/v2/credentials/id", server.upstream.addr);
    format!("aws = {{ region = \"eu-west-1\", source = \"container\", endpoint = \"{url}\" }}")
}

fn chat() -> Vec<u8> {
    let body = json!({"model": "claude", "messages": [{"role": "user", "content": "Hi"}]});
    post("/v1/chat/completions", body.to_string())
}

/// Verifies the signature of a request as AWS does, and returns the access key id.
fn verified(request: &Request, secret: &str) -> String {
    let authorization = request.head.get("authorization").unwrap();
    let presented = Presented::parse(authorization).unwrap();
    assert_eq!((presented.scope.region, presented.scope.service), ("eu-west-1", "bedrock"));
    assert!(authorization.contains("SignedHeaders=content-type;host;x-amz-date"), "{authorization}");
    let headers: Vec<(&str, &str)> =
        request.head.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let payload = PayloadHash::of([request.body.as_slice()]);
    let method = request.head.line.split(' ').next().unwrap();
    presented.verify(secret, (method, request.head.target()), &headers, &payload, unix_now()).unwrap();
    presented.access_key_id.to_owned()
}

#[tokio::test]
async fn aws_requests_are_signed_with_the_credentials_of_the_container() {
    let (tokens, bedrock) =
        (token_server(3_600, Duration::ZERO).await, Upstream::answering(converse_answer()).await);
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    for _ in 0..3 {
        let answer = gateway.ask(chat()).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    for request in bedrock.requests() {
        assert_eq!(verified(&request, SECRET), "AKID0");
        assert_eq!(request.head.get("x-amz-security-token"), Some(TOKEN));
        assert!(request.head.target().ends_with("v1%3A0/converse"), "{}", request.head.line);
    }
    assert_eq!(tokens.upstream.count(), 1, "one exchange serves all requests");
    let metrics = gateway.metrics().await;
    let issued = [("provider", "aws"), ("outcome", "issued")];
    assert_eq!(metrics.sum("gateway_credential_renewals_total", &issued), 1.0);
    assert!(metrics.sum("gateway_credential_end_timestamp_seconds", &[]) > unix_now() as f64 + 3_000.0);
    let written = gateway.everything_written();
    assert!(!written.contains(SECRET) && !written.contains(TOKEN));
}

#[tokio::test]
async fn aws_requests_that_come_first_wait_for_one_exchange() {
    let (tokens, bedrock) =
        (token_server(3_600, Duration::from_secs(1)).await, Upstream::answering(converse_answer()).await);
    let gateway = Arc::new(Gateway::start(&setup(&bedrock, &container(&tokens))).await);
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let gateway = gateway.clone();
        asked.spawn(async move { gateway.ask(chat()).await.status() });
    }
    let statuses = asked.join_all().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let renewals = gateway.metrics().await.sum("gateway_credential_renewals_total", &[]);
    eprintln!("{} requests, {renewals} renewals, {} exchanges", statuses.len(), tokens.upstream.count());
    assert_eq!((tokens.upstream.count(), renewals), (1, 1.0));
}

#[tokio::test]
async fn aws_credentials_of_one_second_serve_every_request() {
    let (tokens, bedrock) =
        (token_server(1, Duration::ZERO).await, Upstream::answering(converse_answer()).await);
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    let begun = std::time::Instant::now();
    let mut asked = 0;
    while tokens.upstream.count() < 6 || asked < 20 {
        let answer = gateway.ask(chat()).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        asked += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // At most two exchanges a second, however short the life.
    let most = begun.elapsed().as_millis() / 500 + 3;
    assert!(
        (tokens.upstream.count() as u128) <= most,
        "{} in {:?}",
        tokens.upstream.count(),
        begun.elapsed()
    );
}

#[tokio::test]
async fn aws_token_server_that_goes_away_is_not_noticed() {
    // 20 s of life: the first renewal after 10 s fails for this test's whole time.
    let (tokens, bedrock) =
        (token_server(4, Duration::ZERO).await, Upstream::answering(converse_answer()).await);
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    let before = tokens.upstream.count();
    tokens.is_away.store(true, Ordering::SeqCst);
    // Away during at least one renewal.
    until(|| tokens.upstream.count() > before).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    tokens.is_away.store(false, Ordering::SeqCst);
    let known = bedrock.count();
    until(|| tokens.upstream.count() > before + 1).await;
    a_moment().await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    assert_eq!(bedrock.count(), known + 1);
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("gateway_credential_renewals_total", &[("outcome", "refused")]) >= 1.0);
}

#[tokio::test]
async fn aws_credentials_that_have_expired_already_are_refused() {
    let (tokens, bedrock) =
        (token_server(0, Duration::ZERO).await, Upstream::answering(converse_answer()).await);
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    until(|| tokens.upstream.count() >= 1).await;
    let answer = gateway.ask(chat()).await;
    assert!(answer.status() >= 500, "{}", answer.text());
    assert!(answer.text().contains("no valid credential"), "{}", answer.text());
    assert_eq!(bedrock.count(), 0, "nothing is sent without a credential");
    // The server is mended: the next exchange serves.
    tokens.life.store(3_600, Ordering::SeqCst);
    let served = async {
        while gateway.ask(chat()).await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.unwrap();
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("gateway_credential_renewals_total", &[("outcome", "expired")]) >= 1.0);
}

/// Returns an error response of Bedrock.
fn refusal(code: &str, date: Option<i64>) -> Vec<u8> {
    let date = date.map(http_date);
    let kind = format!("{code}:http://internal.amazon.com/coral/com.amazon.coral.service/");
    let mut headers = vec![("content-type", "application/json"), ("x-amzn-errortype", &*kind)];
    headers.extend(date.as_deref().map(|date| ("date", date)));
    reply::whole(403, &headers, json!({"message": "no"}).to_string())
}

#[tokio::test]
async fn aws_credential_that_is_refused_is_replaced_and_the_request_sent_again() {
    let tokens = token_server(3_600, Duration::ZERO).await;
    let expired = refusal("ExpiredTokenException", Some(unix_now()));
    let bedrock = Upstream::answering_each(vec![expired, converse_answer()]).await;
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    let answer = gateway.ask(chat()).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let requests = bedrock.requests();
    let ids: Vec<String> = requests.iter().map(|request| verified(request, SECRET)).collect();
    assert_eq!(ids, ["AKID0", "AKID1"]);
    assert_eq!(requests[0].body, requests[1].body);
    let retried = [("provider", "aws"), ("reason", "credential")];
    assert_eq!(gateway.metrics().await.sum("gateway_upstream_retries_total", &retried), 1.0);
}

#[tokio::test]
async fn aws_credential_that_is_refused_for_good_is_replaced_once() {
    let tokens = token_server(3_600, Duration::ZERO).await;
    let bedrock = Upstream::answering(refusal("ExpiredTokenException", Some(unix_now()))).await;
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    for _ in 0..5 {
        assert!(gateway.ask(chat()).await.status() >= 400);
    }
    assert_eq!(tokens.upstream.count(), 2, "a refusal renews a credential at most every 30 s");
}

#[tokio::test]
async fn aws_clock_that_differs_is_mended_from_the_date_of_the_response() {
    let tokens = token_server(7_200, Duration::ZERO).await;
    // The provider is an hour ahead.
    let skewed = refusal("InvalidSignatureException", Some(unix_now() + 3_600));
    let bedrock = Upstream::answering_each(vec![skewed, converse_answer()]).await;
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    for _ in 0..2 {
        let answer = gateway.ask(chat()).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    let dates: Vec<i64> = bedrock
        .requests()
        .iter()
        .map(|request| {
            let date = request.head.get("x-amz-date").unwrap();
            let date = cloud::sigv4::SigningDate::parse(date).unwrap();
            date.unix() - unix_now()
        })
        .collect();
    assert_eq!(dates.len(), 3, "one request is sent again, and the next one is right at once");
    assert!(dates[0].abs() < 60 && (3_540..3_660).contains(&dates[1]) && (3_540..3_660).contains(&dates[2]));
    assert_eq!(tokens.upstream.count(), 1, "the credential was not at fault");
}

#[tokio::test]
async fn aws_static_credentials_sign_without_a_token_server() {
    let bedrock = Upstream::answering(converse_answer()).await;
    let aws = "credential = { value = \"the-static-secret\" }\naws = { region = \"eu-west-1\", access_key_id = \"AKIDSTATIC\" }";
    let gateway = Gateway::start(&setup(&bedrock, aws)).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    let request = bedrock.only_request();
    assert_eq!(verified(&request, "the-static-secret"), "AKIDSTATIC");
    assert_eq!(request.head.get("x-amz-security-token"), None);
    assert!(!gateway.everything_written().contains("the-static-secret"));
}

#[tokio::test]
async fn aws_web_identity_is_exchanged_at_the_token_service() {
    let bedrock = Upstream::answering(converse_answer()).await;
    let end = jiff::Timestamp::from_second(unix_now() + 3_600).unwrap();
    let xml = format!(
        "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleWithWebIdentityResult>\
         <Credentials><AccessKeyId>AKIDWEB</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>\
         <SessionToken>{TOKEN}</SessionToken><Expiration>{end}</Expiration></Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    );
    let sts = Upstream::answering(reply::whole(200, &[("content-type", "text/xml")], xml)).await;
    let aws = format!(
        "aws = {{ region = \"eu-west-1\", source = \"web-identity\", token_file = \"token\", \
         role_arn = \"arn:aws:iam::123456789012:role/gateway\", sts_url = \"http://{}\" }}",
        sts.addr
    );
    let mut setup = setup(&bedrock, &aws);
    setup.files.push(("token".to_owned(), "the.web.token+/=\n".to_owned()));
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    assert_eq!(verified(&bedrock.only_request(), SECRET), "AKIDWEB");
    let request = sts.only_request();
    assert_eq!(
        request.text(),
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fgateway\
         &RoleSessionName=model-gateway&WebIdentityToken=the.web.token%2B%2F%3D"
    );
    assert_eq!(request.head.get("authorization"), None);
}

#[tokio::test]
async fn aws_reload_keeps_the_credential() {
    let (tokens, bedrock) =
        (token_server(3_600, Duration::ZERO).await, Upstream::answering(converse_answer()).await);
    let setup = setup(&bedrock, &container(&tokens));
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    gateway.replace("routes.toml", &format!("{}\n# changed\n", setup.routes));
    gateway.reload("applied").await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    assert_eq!(tokens.upstream.count(), 1);
}
