//! Open breakers: a failing target receives no further requests, and requests need no second attempt because of it.

use super::scripts::Fault;
use super::three;
use crate::support::form::Form;
use crate::support::upstream::Upstream;

/// A cooldown longer than any test.
const BREAKER: &str = "\n[breaker]\nfailures = 3\ncooldown = \"10m\"\nlongest = \"10m\"\n";

/// Maximum number of requests until the breaker opens; about one in three goes to the failing target.
const PATIENCE: usize = 60;

#[tokio::test]
async fn breaker_open_target_gets_no_requests_and_causes_no_retries() {
    for (fault, stream) in [
        (Fault::Status(500), false),
        (Fault::Reset, false),
        (Fault::Close, true),
        (Fault::NoTls, false),
        (Fault::Garbage, true),
        (Fault::HalfDocument, false),
        (Fault::ErrorInside, false),
        (Fault::ErrorLater, true),
        (Fault::Cut, true),
    ] {
        let three = three(fault, [Form::Chat; 3], "").await;
        let gateway = &three.gateway;
        let routes = std::fs::read_to_string(gateway.folder().join("routes.toml")).unwrap();
        gateway.replace("routes.toml", &(routes + BREAKER));
        gateway.reload("applied").await;
        let opened = async || {
            gateway.metrics().await.sum("gateway_targets_opened_total", &[("provider", "failing")]) > 0.0
        };
        let mut detours = 0;
        for _ in 0..PATIENCE {
            let answer = gateway.ask(Form::Chat.request(stream)).await;
            assert_eq!(answer.status(), 200, "{fault:?}: {}", answer.text());
            detours += usize::from(answer.get("x-gateway-attempts") == Some("2"));
            if opened().await {
                break;
            }
        }
        assert!(opened().await, "{fault:?}: it was never left alone");
        assert_eq!(detours, 3, "{fault:?}: as many as it may fail in a row");
        let upstream = three.failing.upstream.as_ref().unwrap();
        let calls = |upstream: &Upstream| (upstream.connections(), upstream.count());
        let before = calls(upstream);
        for _ in 0..24 {
            let answer = gateway.ask(Form::Chat.request(stream)).await;
            assert_eq!(answer.status(), 200, "{fault:?}: {}", answer.text());
            assert_eq!(answer.get("x-gateway-attempts"), Some("1"), "{fault:?}");
            assert_ne!(answer.get("x-gateway-target"), Some("failing/m"), "{fault:?}");
        }
        assert_eq!(calls(upstream), before, "{fault:?}: it was asked again");
    }
}
