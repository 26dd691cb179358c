use serde_json::Value;

use super::sign::string_to_sign;
use super::*;

/// AWS's test suite, two requests of smithy-rs with encoded paths, and requests to Bedrock, each with its source.
const VECTORS: &str = include_str!("../../../tests/vectors/sigv4.json");
/// Scenarios of clocks that differ, of aws-runtime.
const CLOCKS: &str = include_str!("../../../tests/vectors/clock-skew.json");

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// Request of a vector, as it is sent.
struct Sent {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Sent {
    fn read(vector: &Value) -> Sent {
        let own = |name: &str| vector[name].as_str().unwrap().to_owned();
        let Some(text) = vector["request"].as_str() else {
            let headers = vector["headers"].as_array().unwrap().iter();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let headers = headers.map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
            return Sent { method: own("method"), target: own("target"), headers, body: own("body") };
        };
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let line = lines.next().unwrap().strip_suffix(" HTTP/1.1").unwrap();
        let (method, target) = line.split_once(' ').unwrap();
        let mut headers: Vec<(String, String)> = Vec::new();
        for line in lines {
            match line.split_once(':') {
                Some((name, value)) if !line.starts_with(' ') => headers.push((name.into(), value.into())),
                // A header that goes on in the next line.
                _ => {
                    let last = &mut headers.last_mut().unwrap().1;
                    *last = format!("{last} {line}");
                }
            }
        }
        Sent { method: method.into(), target: target.into(), headers, body: body.into() }
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    fn payload(&self) -> PayloadHash {
        PayloadHash::of([self.body.as_bytes()])
    }
}

fn vectors() -> Vec<Value> {
    let file: Value = serde_json::from_str(VECTORS).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

/// The vectors with a signature.
fn signed() -> Vec<(String, Value)> {
    // An API key is a presigned URL, which is read and not made.
    let is_signed = |vector: &Value| vector.get("context").is_some() && vector.get("presigned").is_none();
    let all = vectors().into_iter().filter(is_signed);
    all.map(|vector| (vector["name"].as_str().unwrap().to_owned(), vector)).collect()
}

fn signer(context: &Value) -> Signer {
    let text = |value: &Value| value.as_str().map(Box::from);
    let omits = context["omit_session_token"] == true;
    let credentials = Credentials {
        access_key_id: text(&context["credentials"]["access_key_id"]).unwrap(),
        secret_access_key: text(&context["credentials"]["secret_access_key"]).unwrap(),
        session_token: text(&context["credentials"]["token"]).filter(|_| !omits),
    };
    let part = |name: &str| context[name].as_str().unwrap();
    Signer::new(credentials, CredentialScope { region: part("region"), service: part("service") })
}

fn seconds(text: &Value) -> i64 {
    text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
}

#[test]
fn suite_has_the_published_canonical_requests_and_signatures() {
    let all = signed();
    assert_eq!(all.len(), 46);
    for (name, vector) in all {
        let (context, sent) = (&vector["context"], Sent::read(&vector));
        let payload = sent.payload();
        let mut headers = sent.headers();
        if context["sign_body"] == true {
            headers.push(("X-Amz-Content-Sha256", payload.as_str()));
        }
        let normalized = context["normalize"] == true;
        let request = CanonicalRequest {
            method: &sent.method,
            target: &sent.target,
            headers: &headers,
            payload: &payload,
            path_encoding: if normalized { PathEncoding::Normalized } else { PathEncoding::Segments },
        };
        let signer = signer(context);
        let token = context["credentials"]["token"].as_str();
        let date = SigningDate::from_unix(seconds(&context["timestamp"]));
        let canonical = request.build(&date, token.filter(|_| context["omit_session_token"] != true));
        let text = String::from_utf8(canonical.text.clone()).unwrap();
        assert_eq!(Some(&*text), vector["canonical_request"].as_str(), "{name}");
        let to_sign = String::from_utf8(string_to_sign(&canonical, &date, signer.scope())).unwrap();
        assert_eq!(Some(&*to_sign), vector["string_to_sign"].as_str().map(str::trim_end), "{name}");
        let made = signer.sign(&request, seconds(&context["timestamp"]));
        let signature = vector["signature"].as_str().unwrap();
        assert!(made.authorization.ends_with(&format!("Signature={signature}")), "{name}: {made:?}");
        if let Some(whole) = vector["authorization"].as_str() {
            assert_eq!(made.authorization, whole, "{name}");
        }
        // A second signature takes the key of the day from the cache.
        assert_eq!(signer.sign(&request, seconds(&context["timestamp"])), made, "{name}");
    }
}

#[test]
fn encoded_path_is_encoded_once_more() {
    for vector in vectors().into_iter().filter(|vector| vector.get("context").is_none()) {
        let sent = Sent::read(&vector);
        let headers: Vec<_> =
            sent.headers().into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("x-amz-date")).collect();
        let payload = sent.payload();
        let request = CanonicalRequest {
            method: &sent.method,
            target: &sent.target,
            headers: &headers,
            payload: &payload,
            path_encoding: PathEncoding::Normalized,
        };
        let date = SigningDate::parse("20210511T154045Z").unwrap();
        let text = String::from_utf8(request.build(&date, None).text).unwrap();
        assert_eq!(Some(&*text), vector["canonical_request"].as_str());
    }
}

/// What a server receives of a signed request.
fn received(vector: &Value) -> (Sent, String, i64) {
    let mut sent = Sent::read(vector);
    let context = &vector["context"];
    let payload = sent.payload();
    if context["sign_body"] == true {
        sent.headers.push(("x-amz-content-sha256".into(), payload.as_str().into()));
    }
    let now = seconds(&context["timestamp"]);
    let made = {
        let headers = sent.headers();
        let request = CanonicalRequest {
            method: &sent.method,
            target: &sent.target,
            headers: &headers,
            payload: &payload,
            path_encoding: PathEncoding::Normalized,
        };
        signer(context).sign(&request, now)
    };
    sent.headers.push(("X-Amz-Date".into(), made.date.as_str().into()));
    if let Some(token) = made.session_token {
        sent.headers.push(("X-Amz-Security-Token".into(), token.into()));
    }
    // Headers that proxies add are not signed.
    sent.headers.push(("user-agent".into(), "sdk".into()));
    (sent, made.authorization, now)
}

fn verify(sent: &Sent, authorization: &str, secret: &str, now: i64) -> Result<(), SignatureError> {
    let target = (&*sent.method, &*sent.target);
    Presented::parse(authorization)?.verify(secret, target, &sent.headers(), &sent.payload(), now)
}

#[test]
fn signature_is_accepted_for_its_request_only() {
    for (name, vector) in signed() {
        let (sent, authorization, now) = received(&vector);
        let check = |sent: &Sent, secret: &str, now| verify(sent, &authorization, secret, now);
        assert_eq!(check(&sent, SECRET, now), Ok(()), "{name}");
        assert_eq!(check(&sent, SECRET, now + MAX_SKEW_SECONDS), Ok(()), "{name}");
        for late in [MAX_SKEW_SECONDS + 1, -MAX_SKEW_SECONDS - 1, i64::MAX - now, i64::MIN] {
            assert_eq!(
                check(&sent, SECRET, now.saturating_add(late)),
                Err(SignatureError::Expired),
                "{name}"
            );
        }
        assert_eq!(check(&sent, "another secret", now), Err(SignatureError::Mismatch), "{name}");
        let change = |change: &dyn Fn(&mut Sent)| {
            let (mut sent, ..) = received(&vector);
            change(&mut sent);
            check(&sent, SECRET, now)
        };
        let body = change(&|sent| sent.body.push(' '));
        assert!(matches!(body, Err(SignatureError::Mismatch | SignatureError::Payload)), "{name}");
        assert_eq!(change(&|sent| sent.method.push('X')), Err(SignatureError::Mismatch), "{name}");
        assert_eq!(change(&|sent| sent.target.push_str("/x")), Err(SignatureError::Mismatch), "{name}");
        let host = change(&|sent| {
            let host = sent.headers.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case("host")).unwrap();
            host.1.push('x');
        });
        assert_eq!(host, Err(SignatureError::Mismatch), "{name}");
        let added = change(&|sent| sent.headers.push(("x-amz-target".into(), "other".into())));
        assert_eq!(added, Err(SignatureError::SignedHeaders), "{name}");
        let dated = change(&|sent| sent.headers.push(("x-amz-date".into(), "20260101T000000Z".into())));
        assert_eq!(dated, Err(SignatureError::Date), "{name}");
        let dateless = change(&|sent| sent.headers.retain(|(name, _)| name != "X-Amz-Date"));
        assert_eq!(dateless, Err(SignatureError::Date), "{name}");
        let hostless = change(&|sent| sent.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("host")));
        assert_eq!(hostless, Err(SignatureError::SignedHeaders), "{name}");
        let unsigned =
            change(&|sent| sent.headers.push(("x-amz-content-sha256".into(), "UNSIGNED-PAYLOAD".into())));
        assert!(unsigned.is_err(), "{name}");
    }
}

#[test]
fn malformed_authorization_is_refused() {
    let good = "AWS4-HMAC-SHA256 Credential=AKID/20261121/us-east-1/bedrock/aws4_request, \
                SignedHeaders=host;x-amz-date, \
                Signature=c3a2ab2c0508de32da0e46b4f8a95dd4f11e8603ff9cae4f2dc4f8de3d5cec38";
    let parsed = Presented::parse(good).unwrap();
    assert_eq!(
        (parsed.access_key_id, parsed.scope.region, parsed.scope.service),
        ("AKID", "us-east-1", "bedrock")
    );
    // Some clients write no space behind the commas.
    assert_eq!(Presented::parse(&good.replace(", ", ",")), Ok(parsed));
    for (from, to) in [
        ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256"),
        ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"),
        ("/aws4_request", ""),
        ("aws4_request", "aws5_request"),
        ("AKID/", "/"),
        ("SignedHeaders=host;x-amz-date, ", ""),
        ("SignedHeaders", "Signedheaders"),
        ("c3a2", "C3A2"),
        ("c3a2", "c3a"),
        ("c3a2", "c3a2c3a2"),
        ("c3a2", "é"),
        (", SignedHeaders", ", Signature=00, SignedHeaders"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        assert_eq!(Presented::parse(&bad), Err(SignatureError::Malformed), "{bad}");
    }
    for bad in ["", "Bearer x", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 ,,,"] {
        assert_eq!(Presented::parse(bad), Err(SignatureError::Malformed), "{bad}");
    }
}

#[test]
fn date_is_written_and_parsed() {
    for (seconds, text) in [
        (0, "19700101T000000Z"),
        (1_440_938_160, "20150830T123600Z"),
        (1_709_210_096, "20240229T123456Z"),
        (i64::MIN, "00000101T000000Z"),
        (i64::MAX, "99991231T235959Z"),
    ] {
        let date = SigningDate::from_unix(seconds);
        assert_eq!((date.as_str(), date.day()), (text, &text[..8]));
        let parsed = SigningDate::parse(text).unwrap();
        assert_eq!((parsed, SigningDate::from_unix(parsed.unix())), (date, date));
    }
    for bad in [
        "",
        "20150230T000000Z",
        "20150830T240000Z",
        "20150830 123600Z",
        "20150830T123600",
        "2015083+T123600Z",
    ] {
        assert_eq!(SigningDate::parse(bad), None, "{bad}");
    }
}

#[test]
fn clock_skew_is_learnt_from_responses() {
    let file: Value = serde_json::from_str(CLOCKS).unwrap();
    for test in file["tests"].as_array().unwrap() {
        let name = &test["description"];
        let skew = ClockSkew::default();
        for operation in test["operations"].as_array().unwrap() {
            // A skew that an earlier response left.
            let initial = operation["initialClientSkew"].as_i64().unwrap();
            skew.observe(Some(initial), false, 0, 0);
            let attempts = operation["attempts"].as_array().unwrap();
            for (index, attempt) in attempts.iter().enumerate() {
                let (sent, arrived) =
                    (seconds(&attempt["clientTimeAtSend"]), seconds(&attempt["clientTimeAtReceive"]));
                let signed_with = skew.seconds();
                assert_eq!(skew.signing_time(sent), seconds(&attempt["expectedSigningTime"]), "{name}");
                let headers = &attempt["response"]["headers"];
                let date = headers["Date"].as_str().map(http_date);
                skew.observe(date, headers.get("Age").is_some(), sent, arrived);
                let error = attempt["response"]["errorCode"].as_str().unwrap_or_default();
                let retries = skew.explains(error, signed_with) && operation.get("maxAttempts").is_none();
                assert_eq!(retries, index + 1 < attempts.len(), "{name}");
            }
            assert_eq!(Some(skew.seconds()), operation["expectedClientSkew"].as_i64(), "{name}");
        }
    }
}

/// `Thu, 01 Jan 2026 00:05:01 GMT` of the vectors, which are all of one day.
fn http_date(text: &str) -> i64 {
    let time = text.strip_prefix("Thu, 01 Jan 2026 ").unwrap().strip_suffix(" GMT").unwrap();
    seconds(&format!("2026-01-01T{time}Z").into())
}

#[test]
fn secrets_are_not_printed() {
    let (_, vector) = signed()
        .into_iter()
        .find(|(_, vector)| vector["context"]["credentials"]["token"].is_string())
        .unwrap();
    let signer = signer(&vector["context"]);
    let sent = Sent::read(&vector);
    let (headers, payload) = (sent.headers(), sent.payload());
    let request = CanonicalRequest {
        method: "POST",
        target: "/",
        headers: &headers,
        payload: &payload,
        path_encoding: PathEncoding::Normalized,
    };
    let made = signer.sign(&request, 0);
    let printed = format!("{signer:?} {made:?}");
    let token = vector["context"]["credentials"]["token"].as_str().unwrap();
    assert!(!printed.contains(SECRET) && !printed.contains(token), "{printed}");
    assert!(!printed.contains(made.authorization.rsplit('=').next().unwrap()), "{printed}");
}

#[test]
fn path_with_empty_or_dot_segments_is_not_normalized() {
    for target in ["/", "/a", "/a/", "/a/b?x=//", "/a%2Fb/.c/..d", "/model/arn%3Aaws/converse"] {
        assert!(is_normalized(target), "{target}");
    }
    for target in ["//", "//a", "/a//b", "/a//", "/./a", "/a/.", "/a/./b", "/a/../b", "/..", "/.", "//a?x"] {
        assert!(!is_normalized(target), "{target}");
    }
}
