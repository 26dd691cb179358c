//! Requests of web pages of other origins (CORS, <https://fetch.spec.whatwg.org/#http-cors-protocol>): preflight requests,
//! and the headers that let a page read a response.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use pingora::http::{RequestHeader, ResponseHeader};

use super::context::Context;
use super::reply::{add_own_headers, disconnect_error, new_head};
use crate::{Client, Gateway};
use codec::error::ApiError;
use config::CorsRule;
use routing::account::Pattern;

/// Headers of the gateway's responses that a page may read, besides those that every page may. Named one by one, because
/// older browsers do not know `*`.
const EXPOSED: &str = "x-request-id, request-id, x-amzn-requestid, retry-after, retry-after-ms, x-should-retry, \
    x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, \
    x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, x-ratelimit-reset-tokens, \
    anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, \
    anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, \
    anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset, \
    anthropic-ratelimit-unified-status, anthropic-ratelimit-unified-reset, \
    anthropic-ratelimit-unified-representative-claim, anthropic-ratelimit-unified-overage-status, \
    anthropic-ratelimit-unified-overage-utilization, anthropic-ratelimit-unified-overage-surpassed-threshold, \
    anthropic-ratelimit-unified-overage-period, anthropic-ratelimit-unified-overage-disabled-reason, \
    x-codex-primary-used-percent, x-codex-primary-window-minutes, x-codex-primary-reset-at, \
    x-codex-secondary-used-percent, x-codex-secondary-window-minutes, x-codex-secondary-reset-at, \
    x-codex-turn-state, x-gateway-websocket, openai-processing-ms, openai-version, anthropic-beta, x-ms-region, \
    x-amzn-errortype, \
    x-gateway-target, x-gateway-attempts, x-gateway-warning, x-gateway-cache, x-gateway-cache-usage";

/// Rules for pages of other origins; the first rule with a page's origin applies.
pub(crate) struct CorsPolicy(Vec<OriginRule>);

struct OriginRule {
    origins: Vec<Pattern>,
    methods: HeaderValue,
    /// `None` for those that the page requests.
    headers: Option<HeaderValue>,
    /// Seconds.
    max_age: HeaderValue,
}

/// What the rules say about a request.
pub(crate) enum CorsDecision {
    /// The page that sent it may read the response.
    Granted(Box<CorsGrant>),
    /// It names no page, or none of a rule.
    NotGranted,
}

/// Permission of one page.
pub(crate) struct CorsGrant {
    /// Origin of the page, or `*`.
    origin: HeaderValue,
    /// Index of its rule.
    rule: usize,
}

impl CorsPolicy {
    /// Creates the policy. `None` if there are no rules.
    pub(crate) fn new(rules: &[CorsRule]) -> Option<Self> {
        let value = |text: String| HeaderValue::try_from(text).ok();
        let rules: Vec<OriginRule> = rules
            .iter()
            .filter_map(|rule| {
                Some(OriginRule {
                    origins: rule.origins.clone(),
                    methods: value(rule.methods.join(", "))?,
                    headers: match &rule.headers {
                        None => None,
                        Some(headers) => Some(value(headers.join(", "))?),
                    },
                    max_age: HeaderValue::from(rule.max_age.as_secs()),
                })
            })
            .collect();
        (!rules.is_empty()).then_some(CorsPolicy(rules))
    }

    /// Decides whether the page that has sent a request may read the response.
    pub(crate) fn decide(&self, headers: &HeaderMap) -> CorsDecision {
        self.grant(headers).map_or(CorsDecision::NotGranted, |grant| CorsDecision::Granted(Box::new(grant)))
    }

    /// Returns the permission of the page that has sent a request. `None` if the request has no origin, or one that no rule
    /// has.
    fn grant(&self, headers: &HeaderMap) -> Option<CorsGrant> {
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        let matches = |rule: &OriginRule| rule.origins.iter().any(|pattern| pattern.matches(text));
        let (index, rule) = self.0.iter().enumerate().find(|(_, rule)| matches(rule))?;
        let any = rule.origins.iter().any(|pattern| pattern.text() == "*");
        let origin = if any { HeaderValue::from_static("*") } else { origin.clone() };
        Some(CorsGrant { origin, rule: index })
    }

    fn add_preflight_headers(&self, grant: &CorsGrant, request: &HeaderMap, head: &mut ResponseHeader) {
        let Some(rule) = self.0.get(grant.rule) else { return };
        let requested = || request.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let _ = head.insert_header(header::ACCESS_CONTROL_ALLOW_METHODS, rule.methods.clone());
        if let Some(headers) = rule.headers.clone().or_else(requested) {
            let _ = head.insert_header(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
        }
        let _ = head.insert_header(header::ACCESS_CONTROL_MAX_AGE, rule.max_age.clone());
    }
}

impl CorsDecision {
    /// Returns the permission. `None` without one.
    pub(crate) fn grant(&self) -> Option<&CorsGrant> {
        match self {
            CorsDecision::Granted(grant) => Some(grant),
            CorsDecision::NotGranted => None,
        }
    }

    /// Returns the headers of every response: those that let the page read it, and `vary`. A cache must not give the
    /// response to a page of another origin, nor one without permission to a page that has it.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let grant = self.grant();
        let vary = grant.is_none_or(|grant| grant.origin != "*");
        let vary = vary.then(|| (header::VARY, HeaderValue::from_static("origin")));
        let origin = grant.map(|grant| (header::ACCESS_CONTROL_ALLOW_ORIGIN, grant.origin.clone()));
        let exposed =
            grant.map(|_| (header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED)));
        [origin, exposed, vary].into_iter().flatten()
    }
}

/// Returns whether a request asks for the permission of another one.
pub(crate) fn is_preflight(head: &RequestHeader) -> bool {
    head.method == Method::OPTIONS && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

impl Gateway {
    /// Answers a preflight request, which has no key.
    pub(crate) async fn reply_preflight(
        &self,
        client: &mut Client,
        ctx: &mut Context,
    ) -> Result<bool, ApiError> {
        let mut head = new_head(204, 8);
        add_own_headers(&mut head, ctx);
        let grant = ctx.cors.as_ref().and_then(CorsDecision::grant);
        if let (Some(policy), Some(grant)) = (&self.cors, grant) {
            policy.add_preflight_headers(grant, &client.req_header().headers, &mut head);
        }
        self.write_empty(client, ctx, head).await.map(|()| true).map_err(|error| disconnect_error(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn policy() -> CorsPolicy {
        let rule = |origins: &[&str]| CorsRule {
            origins: origins.iter().map(|origin| Pattern::new(*origin)).collect(),
            methods: vec!["GET".to_owned(), "POST".to_owned()],
            headers: None,
            max_age: Duration::from_secs(600),
        };
        CorsPolicy::new(&[
            rule(&["https://app.example", "https://*.app.example"]),
            rule(&["http://localhost:*"]),
        ])
        .unwrap()
    }

    #[test]
    fn cors_grant_needs_an_origin_of_a_rule() {
        let policy = policy();
        let grant = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, HeaderValue::try_from(origin).unwrap());
            policy.grant(&headers).map(|grant| (grant.origin.to_str().unwrap().to_owned(), grant.rule))
        };
        for (origin, rule) in
            [("https://app.example", 0), ("https://a.b.app.example", 0), ("http://localhost:5173", 1)]
        {
            assert_eq!(grant(origin), Some((origin.to_owned(), rule)));
        }
        for origin in [
            "https://evil.example",
            "http://app.example",
            "https://app.example.evil.example",
            "https://app.example:8443",
            "https://evilapp.example",
            "http://localhost",
            "null",
        ] {
            assert_eq!(grant(origin), None, "{origin}");
        }
        assert!(policy.grant(&HeaderMap::new()).is_none());
        assert!(CorsPolicy::new(&[]).is_none());
    }
}
