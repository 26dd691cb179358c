//! Metadata services and token services of AWS that go away, lie, or answer what is no credential.

use std::sync::Mutex;

use super::*;
use crate::support::soon;

/// Behaviour of a scripted service.
#[derive(Clone, Debug)]
enum Script {
    /// It grants credentials of this life in seconds.
    Grant(i64),
    /// It closes each connection without an answer.
    Away,
    /// It sends this status and body in place of the credentials.
    Send(u16, String),
}

/// Scripted service: an instance metadata service, or the security token service.
struct Service {
    upstream: Upstream,
    script: Arc<Mutex<Script>>,
}

impl Service {
    fn set(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }
}

fn end_of(life: i64) -> String {
    jiff::Timestamp::from_second(unix_now() + life).unwrap().to_string()
}

async fn service(script: Script, grant: fn(usize, i64) -> Vec<u8>) -> Service {
    let script = Arc::new(Mutex::new(script));
    let (shown, number) = (script.clone(), Arc::new(AtomicUsize::new(0)));
    let upstream = Upstream::start(move |mut conn| {
        let (shown, number) = (shown.clone(), number.clone());
        async move {
            while let Some(request) = conn.request().await {
                let script = shown.lock().unwrap().clone();
                let target = request.head.target().to_owned();
                let answer = match script {
                    Script::Away => return conn.reset(),
                    _ if target.ends_with("/api/token") => reply::whole(200, &[], "session-of-imds"),
                    _ if target.ends_with("/security-credentials/") => reply::whole(200, &[], "gateway-role"),
                    Script::Send(status, body) => reply::whole(status, &[], body),
                    Script::Grant(life) => grant(number.fetch_add(1, Ordering::SeqCst), life),
                };
                conn.send(answer).await;
            }
        }
    })
    .await;
    Service { upstream, script }
}

async fn imds(life: i64) -> Service {
    service(Script::Grant(life), |number, life| {
        let body = json!({
            "Code": "Success", "AccessKeyId": format!("AKID{number}"), "SecretAccessKey": SECRET, "Token": TOKEN,
            "Expiration": end_of(life),
        });
        reply::json(200, body.to_string())
    })
    .await
}

async fn sts(life: i64) -> Service {
    service(Script::Grant(life), |number, life| {
        let xml = format!(
            "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>AKID{number}</AccessKeyId>\
             <SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{TOKEN}</SessionToken>\
             <Expiration>{}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>",
            end_of(life)
        );
        reply::whole(200, &[("content-type", "text/xml")], xml)
    })
    .await
}

fn instance(imds: &Service) -> String {
    let url = format!("http://{}", imds.upstream.addr);
    format!("aws = {{ region = \"eu-west-1\", source = \"instance\", endpoint = \"{url}\" }}")
}

fn role(sts: &Service) -> String {
    format!(
        "credential = {{ value = \"the-static-secret\" }}\n\
         aws = {{ region = \"eu-west-1\", access_key_id = \"AKIDBASE\", \
         role_arn = \"arn:aws:iam::123456789012:role/gateway\", sts_url = \"http://{}\" }}",
        sts.upstream.addr
    )
}

async fn renewals(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metrics().await.sum("gateway_credential_renewals_total", &[("outcome", outcome)])
}

#[tokio::test]
async fn aws_instance_credential_is_used_beyond_its_end_while_the_service_is_away() {
    let (imds, bedrock) = (imds(2).await, Upstream::answering(converse_answer()).await);
    let gateway = Gateway::start(&setup(&bedrock, &instance(&imds))).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    let first = verified(&bedrock.last_request(), SECRET);
    imds.set(Script::Away);
    // Twice its life, in which AWS accepts it as long as it has no other one for the instance.
    let begun = std::time::Instant::now();
    let mut last = first;
    while begun.elapsed() < Duration::from_secs(4) {
        let answer = gateway.ask(chat()).await;
        assert_eq!(answer.status(), 200, "{:?}: {}", begun.elapsed(), answer.text());
        last = verified(&bedrock.last_request(), SECRET);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(renewals(&gateway, "unreachable").await >= 2.0);
    until(|| gateway.log().contains("the credential has expired and is used on")).await;
    // The end in the metrics stays the true one, so that the alert fires.
    let end = gateway.metrics().await.sum("gateway_credential_end_timestamp_seconds", &[]);
    assert!(end <= unix_now() as f64, "{end}");
    // The service is back: its next credential follows.
    imds.set(Script::Grant(3_600));
    soon(async {
        while verified(&bedrock.last_request(), SECRET) == last {
            assert_eq!(gateway.ask(chat()).await.status(), 200);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn aws_credential_of_a_container_is_not_used_beyond_its_end() {
    let tokens = token_server(2, Duration::ZERO).await;
    let bedrock = Upstream::answering(converse_answer()).await;
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    tokens.is_away.store(true, Ordering::SeqCst);
    soon(async {
        while gateway.ask(chat()).await.status() == 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let sent = bedrock.count();
    let answer = gateway.ask(chat()).await;
    assert!(answer.text().contains("no valid credential"), "{}", answer.text());
    assert_eq!(bedrock.count(), sent);
}

#[tokio::test]
async fn aws_lying_services_are_not_believed() {
    let key = |id: &str, life: i64| {
        json!({"Code": "Success", "AccessKeyId": id, "SecretAccessKey": "lie", "Token": "lie", "Expiration": end_of(life)})
            .to_string()
    };
    let xml = |inner: &str| format!("<R><Credentials>{inner}</Credentials></R>");
    let bedrock = Upstream::answering(converse_answer()).await;
    let (imds, sts) = (imds(8).await, sts(8).await);
    let of_imds = vec![
        (200, "<html>lie</html>".to_owned(), "invalid"),
        (200, r#"{"Code":"AssumeRoleUnauthorizedAccess"}"#.to_owned(), "invalid"),
        (200, key("lie\r\nx: y", 60), "invalid"),
        (500, "lie".to_owned(), "refused"),
    ];
    let expired = format!(
        "<AccessKeyId>lie</AccessKeyId><SecretAccessKey>lie</SecretAccessKey><SessionToken>lie</SessionToken>\
         <Expiration>{}</Expiration>",
        end_of(-60)
    );
    let of_sts = vec![
        (200, "lie".to_owned(), "invalid"),
        (200, xml("<AccessKeyId>lie</AccessKeyId>"), "invalid"),
        (200, xml(&expired), "expired"),
        (200, xml(&expired.replace("lie", "")), "invalid"),
        (
            403,
            "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>".to_owned(),
            "refused",
        ),
    ];
    for (service, lines, lies) in [(&imds, instance(&imds), of_imds), (&sts, role(&sts), of_sts)] {
        let gateway = Gateway::start(&setup(&bedrock, &lines)).await;
        assert_eq!(gateway.ask(chat()).await.status(), 200);
        for (status, body, outcome) in lies {
            let before = renewals(&gateway, outcome).await;
            service.set(Script::Send(status, body.clone()));
            soon(async {
                while renewals(&gateway, outcome).await == before {
                    let answer = gateway.ask(chat()).await;
                    assert_eq!(answer.status(), 200, "{body}: {}", answer.text());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
            // A true credential in between, so that the next lie meets a valid one.
            let issued = renewals(&gateway, "issued").await;
            service.set(Script::Grant(8));
            soon(async {
                while renewals(&gateway, "issued").await == issued {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
        }
    }
    for request in bedrock.requests() {
        assert!(verified(&request, SECRET).starts_with("AKID"));
    }
}

#[tokio::test]
async fn aws_region_and_credentials_of_an_instance_need_no_setting() {
    let bedrock = Upstream::answering(converse_answer()).await;
    let imds = Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let body = match request.head.target() {
                "/latest/api/token" => "session-of-imds".to_owned(),
                "/latest/meta-data/placement/region" => {
                    assert_eq!(request.head.get("x-aws-ec2-metadata-token"), Some("session-of-imds"));
                    "eu-west-1".to_owned()
                }
                target if target.ends_with("/security-credentials/") => "gateway-role".to_owned(),
                _ => json!({"Code": "Success", "AccessKeyId": "AKIDINSTANCE", "SecretAccessKey": SECRET,
                    "Token": TOKEN, "Expiration": end_of(3_600)})
                .to_string(),
            };
            conn.send(reply::whole(200, &[], body)).await;
        }
    })
    .await;
    let exports = format!(
        "unset AWS_REGION AWS_DEFAULT_REGION AWS_PROFILE AWS_ACCESS_KEY_ID\n\
         export HOME=/nonexistent AWS_EC2_METADATA_SERVICE_ENDPOINT=http://{}\nexec \"$@\"\n",
        imds.addr
    );
    let mut setup = setup(&bedrock, "aws = {}");
    setup.files.push(("start.sh".to_owned(), exports));
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    assert_eq!(verified(&bedrock.last_request(), SECRET), "AKIDINSTANCE");
}
