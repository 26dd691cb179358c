//! Refusals whose head does not name the error, and token services whose clock is another one.

use super::*;

/// Returns a refusal that only its body names.
fn unnamed(status: u16, body: &str, date: Option<i64>) -> Vec<u8> {
    let date = date.map(http_date);
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(date.as_deref().map(|date| ("date", date)));
    reply::whole(status, &headers, body)
}

/// Refusals of an expired credential: of AWS, and of its endpoints in the formats of OpenAI and Anthropic.
const EXPIRED: [(u16, &str); 6] = [
    (403, r#"{"__type":"com.amazon.coral.service#ExpiredTokenException","message":"no"}"#),
    (400, r#"{"code":"UnrecognizedClientException","message":"no"}"#),
    (403, r#"{"error":{"code":"ExpiredToken","message":"no","type":"invalid_request_error"}}"#),
    (403, r#"{"message":"The security token included in the request is expired"}"#),
    (401, r#"{"error":{"code":"invalid_api_key","message":"no"}}"#),
    (401, r#"{"type":"error","error":{"type":"authentication_error","message":"no"}}"#),
];

#[tokio::test]
async fn aws_refusal_that_only_its_body_names_is_remedied() {
    let vectors = reply::json(200, json!({"embedding": [0.5], "inputTextTokenCount": 1}).to_string());
    let embed = || post("/v1/embeddings", json!({"model": "titan", "input": "Hi"}).to_string());
    for (status, body) in EXPIRED {
        // As a response that is forwarded, and as one of a job.
        for (request, answer) in [(chat(), converse_answer()), (embed(), vectors.clone())] {
            let tokens = token_server(3_600, Duration::ZERO).await;
            let bedrock = Upstream::answering_each(vec![unnamed(status, body, None), answer]).await;
            let setup =
                setup(&bedrock, &container(&tokens)).model("titan", "aws", "amazon.titan-embed-text-v2:0");
            let gateway = Gateway::start(&setup).await;
            let answer = gateway.ask(request).await;
            assert_eq!(answer.status(), 200, "{body}: {}", answer.text());
            let requests = bedrock.requests();
            let ids: Vec<String> = requests.iter().map(|request| verified(request, SECRET)).collect();
            assert_eq!(ids, ["AKID0", "AKID1"], "{body}");
            assert_eq!(requests[0].body, requests[1].body, "{body}");
        }
    }
}

#[tokio::test]
async fn aws_refusal_of_the_request_or_its_permission_is_not_repeated() {
    let embed = || post("/v1/embeddings", json!({"model": "titan", "input": "Hi"}).to_string());
    for (status, body) in [
        (403, r#"{"__type":"AccessDeniedException","message":"You don't have access to the model."}"#),
        (400, r#"{"__type":"ValidationException","message":"You don't have access to the model."}"#),
        (403, r#"{"message":"You don't have access to the model."}"#),
    ] {
        for request in [chat(), embed()] {
            let tokens = token_server(3_600, Duration::ZERO).await;
            let bedrock = Upstream::answering(unnamed(status, body, Some(unix_now()))).await;
            let setup =
                setup(&bedrock, &container(&tokens)).model("titan", "aws", "amazon.titan-embed-text-v2:0");
            let gateway = Gateway::start(&setup).await;
            let answer = gateway.ask(request).await;
            assert!(answer.status() >= 400, "{body}");
            assert_eq!((bedrock.count(), tokens.upstream.count()), (1, 1), "{body}");
            if status == 400 {
                assert!(answer.text().contains("have access to the model"), "{}", answer.text());
            }
        }
    }
}

#[tokio::test]
async fn aws_clock_error_that_only_its_body_names_is_remedied() {
    let tokens = token_server(7_200, Duration::ZERO).await;
    let body = r#"{"message":"Signature expired: 20261124T100000Z is now earlier than 20261124T105500Z"}"#;
    let skewed = unnamed(403, body, Some(unix_now() + 3_600));
    let bedrock = Upstream::answering_each(vec![skewed, converse_answer()]).await;
    let gateway = Gateway::start(&setup(&bedrock, &container(&tokens))).await;
    let answer = gateway.ask(chat()).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_upstream_retries_total", &[("reason", "clock_skew")]), 1.0);
    assert_eq!(tokens.upstream.count(), 1, "the credential was not at fault");
}

/// Token service whose clock is an hour ahead, and which refuses signatures of another time as AWS does.
async fn strict_sts() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let now = unix_now() + 3_600;
            let date = request.head.get("x-amz-date").unwrap();
            let signed = cloud::sigv4::SigningDate::parse(date).unwrap().unix();
            let (status, xml) = if (signed - now).abs() > 300 {
                let text = "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>Signature expired\
                            </Message></Error></ErrorResponse>";
                (403, text.to_owned())
            } else {
                let end = jiff::Timestamp::from_second(now + 3_600).unwrap();
                let text = format!(
                    "<R><Credentials><AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>\
                     <SessionToken>{TOKEN}</SessionToken><Expiration>{end}</Expiration></Credentials></R>"
                );
                (200, text)
            };
            let date = http_date(now);
            conn.send(reply::whole(status, &[("date", &date), ("content-type", "text/xml")], xml)).await;
        }
    })
    .await
}

#[tokio::test]
async fn aws_role_is_requested_with_the_time_of_the_token_service() {
    let (sts, bedrock) = (strict_sts().await, Upstream::answering(converse_answer()).await);
    let aws = format!(
        "credential = {{ value = \"the-static-secret\" }}\n\
         aws = {{ region = \"eu-west-1\", access_key_id = \"AKIDBASE\", \
         role_arn = \"arn:aws:iam::123456789012:role/gateway\", sts_url = \"http://{}\" }}",
        sts.addr
    );
    let gateway = Gateway::start(&setup(&bedrock, &aws)).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    assert_eq!(sts.count(), 2, "the refused request is repeated at once");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_credential_renewals_total", &[("outcome", "issued")]), 1.0);
    assert_eq!(metrics.sum("gateway_credential_renewals_total", &[]), 1.0, "no failure is counted");
    // What was learnt from one service of AWS dates the signatures for the other.
    let request = bedrock.only_request();
    let date = request.head.get("x-amz-date").unwrap();
    let signed = cloud::sigv4::SigningDate::parse(date).unwrap().unix();
    assert!((3_540..3_660).contains(&(signed - unix_now())), "{date}");
}

#[tokio::test]
async fn aws_static_session_token_is_sent_and_signed() {
    let bedrock = Upstream::answering(converse_answer()).await;
    let aws = "credential = { value = \"the-static-secret\" }\naws = { region = \"eu-west-1\", \
               access_key_id = \"ASIASTATIC\", session_token = { file = \"session\" } }";
    let mut setup = setup(&bedrock, aws);
    setup.files.push(("session".to_owned(), format!("{TOKEN}\n")));
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(chat()).await.status(), 200);
    let request = bedrock.only_request();
    assert_eq!(verified(&request, "the-static-secret"), "ASIASTATIC");
    assert_eq!(request.head.get("x-amz-security-token"), Some(TOKEN));
    assert!(!gateway.everything_written().contains(TOKEN));
}
