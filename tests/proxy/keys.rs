//! API keys in several places of a request, and keys in paths, where none belong.

use crate::support::client::{post_with, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, NARROW_KEY, Setup};
use crate::support::upstream::Upstream;

/// Places of a key: header names, and `query` for the parameter `key`.
const PLACES: [&str; 6] =
    ["authorization", "x-api-key", "x-goog-api-key", "x-vendor-api-key", "api-key", "query"];

/// Returns a request with keys in these places.
fn keyed(form: Form, keys: &[(&str, &str)]) -> Vec<u8> {
    let (mut path, body) = (form.path(form.model(), false), form.body(form.model(), false));
    let mut headers = Vec::new();
    for (place, key) in keys {
        match *place {
            "query" => path += &format!("{}key={key}", if path.contains('?') { '&' } else { '?' }),
            "authorization" => headers.push((*place, format!("Bearer {key}"))),
            header => headers.push((header, (*key).to_owned())),
        }
    }
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
    post_with(&path, &headers, body)
}

async fn providers() -> (Upstream, Gateway) {
    let upstream = Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let form =
                Form::ALL.into_iter().find(|form| request.head.target().contains(form.mark())).unwrap();
            conn.send(reply::json(200, form.whole(form.model()))).await;
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    (upstream, gateway)
}

#[tokio::test]
async fn key_in_two_places_is_accepted_if_equal_and_refused_if_different() {
    let (upstream, gateway) = providers().await;
    let mut client = gateway.connect().await;
    let mut served = 0;
    for form in Form::ALL {
        for one in PLACES {
            for other in PLACES {
                // An empty value counts as absent.
                let pairs: &[[&str; 2]] =
                    if one == other { &[[KEY, KEY]] } else { &[["", KEY], [KEY, ""], [KEY, KEY]] };
                for [first, second] in pairs {
                    let answer = client.ask(keyed(form, &[(one, first), (other, second)])).await;
                    let what = format!("{form:?}, {one} '{first}', {other} '{second}'");
                    assert_eq!(answer.status(), 200, "{what}: {}", answer.text());
                    served += 1;
                }
                // Two different keys are refused, even if both are valid.
                for second in [NARROW_KEY, "sk-wrong-key-of-somebody"] {
                    let answer = gateway.ask(keyed(form, &[(one, KEY), (other, second)])).await;
                    assert_eq!(answer.status(), 401, "{form:?}, {one} and {other}: {}", answer.text());
                    let (kind, message) = form.error(&answer);
                    let expected = match form {
                        Form::Messages => "authentication_error",
                        Form::Generate => "UNAUTHENTICATED",
                        Form::Chat | Form::Responses => "invalid_request_error",
                    };
                    assert_eq!(kind, expected, "{form:?}, {one} and {other}");
                    assert!(message.contains("Two different API keys"), "{one} and {other}: {message}");
                    assert!(!message.contains("key-of"), "{message}");
                }
            }
        }
        // Only empty values are treated as a missing key.
        let empty: Vec<(&str, &str)> = PLACES.iter().map(|place| (*place, "")).collect();
        let answer = gateway.ask(keyed(form, &empty)).await;
        assert_eq!(answer.status(), 401);
        assert!(form.error(&answer).1.contains("didn't provide an API key"), "{}", answer.text());
    }
    assert_eq!(upstream.count(), served);
}

#[tokio::test]
async fn key_in_the_path_is_redacted_in_logs() {
    let made = "mgw_4JkQabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSx1f0c3a9";
    let (_upstream, gateway) = providers().await;
    let escaped = KEY.replace('-', "%2D");
    let paths = [
        format!("/v1/{made}/chat/completions"),
        format!("/v1beta/models/{made}:generateContent"),
        format!("/{}", made.replace('_', "%5F")),
        // Keys without this gateway's own key format are redacted because they are configured.
        format!("/v1/{KEY}/chat/completions"),
        format!("/v1beta/models/{KEY}:generateContent"),
        format!("/{escaped}"),
    ];
    for path in &paths {
        let answer = gateway.ask(request("GET", path, &[("x-api-key", KEY)])).await;
        assert!(answer.status() >= 400, "{path}");
    }
    let lines = gateway.wait_for_log(paths.len()).await;
    for line in &lines {
        assert!(line["path"].as_str().unwrap().contains("***"), "{line}");
    }
    let written = gateway.everything_written();
    for secret in [made, &made[4..], KEY, &escaped] {
        assert!(!written.contains(secret), "{secret}: {written}");
    }
}
