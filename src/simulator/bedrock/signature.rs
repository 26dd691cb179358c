//! Authentication: Bedrock API keys as bearer tokens, and AWS Signature Version 4.
//!
//! Sources: the signing process (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>), and the
//! messages of the service as its users quote them.

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};

use super::super::AwsAccessKey;
use super::super::http::Request;
use super::errors::ApiError;

/// Difference between the time of a signature and the present that is tolerated, in seconds.
const TOLERANCE: i64 = 300;
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// Checks the credential of a request. `bearer` is the accepted API key. Without API key and access keys, every request
/// is accepted. Returns the region that the client signed for, if it signed.
pub(super) fn authorize<'r>(
    request: &'r Request,
    bearer: Option<&str>,
    keys: &[AwsAccessKey],
    service: &str,
    now: i64,
) -> Result<Option<&'r str>, ApiError> {
    let Some(authorization) = request.header("authorization") else {
        let open = bearer.is_none() && keys.is_empty();
        return if open { Ok(None) } else { Err(missing_token()) };
    };
    if let Some(rest) = authorization.strip_prefix("AWS4-HMAC-SHA256 ") {
        let signature = Signature::parse(rest).ok_or_else(|| {
            ApiError::forbidden(
                "IncompleteSignatureException",
                format!("Authorization header requires 'Credential', 'Signature' and 'SignedHeaders'. Authorization={rest}"),
            )
        })?;
        if bearer.is_some() || !keys.is_empty() {
            signature.check(request, keys, service, now)?;
        }
        return Ok(Some(signature.region));
    }
    match (request.bearer(), bearer) {
        (Some(_), None) if keys.is_empty() => Ok(None),
        (Some(token), Some(expected)) if token == expected => Ok(None),
        (Some(_), _) => Err(ApiError::forbidden(
            "AccessDeniedException",
            "Authentication failed: Please make sure your API Key is valid.",
        )),
        (None, _) => Err(missing_token()),
    }
}

fn missing_token() -> ApiError {
    ApiError::forbidden("MissingAuthenticationTokenException", "Missing Authentication Token")
}

fn refused(message: impl Into<String>) -> ApiError {
    ApiError::forbidden("InvalidSignatureException", message)
}

/// Parsed signature.
struct Signature<'a> {
    id: &'a str,
    day: &'a str,
    region: &'a str,
    service: &'a str,
    names: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Signature<'a> {
    fn parse(text: &'a str) -> Option<Signature<'a>> {
        let part =
            |name: &str| text.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
        let scope: Vec<&str> = part("Credential")?.split('/').collect();
        let [id, day, region, service, "aws4_request"] = scope.as_slice() else { return None };
        let names = part("SignedHeaders")?.split(';').collect();
        Some(Signature { id, day, region, service, names, signature: part("Signature")? })
    }

    fn check(
        &self,
        request: &Request,
        keys: &[AwsAccessKey],
        service: &str,
        now: i64,
    ) -> Result<(), ApiError> {
        let unknown = || {
            ApiError::forbidden(
                "UnrecognizedClientException",
                "The security token included in the request is invalid.",
            )
        };
        let key = keys.iter().find(|key| key.id == self.id).ok_or_else(unknown)?;
        if request.header("x-amz-security-token") != key.session_token.as_deref() {
            return Err(unknown());
        }
        if key.expired {
            let message = "The security token included in the request is expired";
            return Err(ApiError::forbidden("ExpiredTokenException", message));
        }
        if self.service != service {
            return Err(refused(format!("Credential should be scoped to correct service: '{service}'.")));
        }
        if key.region.as_deref().is_some_and(|region| region != self.region) {
            return Err(refused("Credential should be scoped to a valid region."));
        }
        let date = request.header("x-amz-date").ok_or_else(missing_token)?;
        self.check_time(date, now)?;
        for name in request.headers.keys().map(http::HeaderName::as_str) {
            if (name == "host" || name.starts_with("x-amz-")) && !self.names.contains(&name) {
                return Err(refused(format!("'{name}' must be a 'SignedHeader' in the AWS Authorization.")));
            }
        }
        let payload = hex(&Sha256::digest(&request.body));
        let declared = request.header("x-amz-content-sha256").is_none_or(|declared| declared == payload);
        let canonical = self.canonical(request, &payload);
        let wanted = self.signature(&key.secret, date, &canonical);
        if declared && wanted == self.signature {
            return Ok(());
        }
        Err(refused(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret \
             Access Key and signing method. Consult the service documentation for details.",
        ))
    }

    fn check_time(&self, date: &str, now: i64) -> Result<(), ApiError> {
        let text = |seconds| {
            Timestamp::from_second(seconds).map(|time| time.strftime(TIME).to_string()).unwrap_or_default()
        };
        let parsed = DateTime::strptime(TIME, date).ok().and_then(|time| time.to_zoned(TimeZone::UTC).ok());
        let Some(time) = parsed.map(|time| time.timestamp().as_second()) else {
            return Err(refused(format!("Date must be in ISO-8601 'basic format'. Got '{date}'.")));
        };
        if !date.starts_with(self.day) {
            return Err(refused(format!(
                "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{}' != '{}'.",
                self.day,
                date.get(..8).unwrap_or_default()
            )));
        }
        if time < now - TOLERANCE {
            return Err(refused(format!(
                "Signature expired: {date} is now earlier than {} ({} - 5 min.)",
                text(now - TOLERANCE),
                text(now)
            )));
        }
        if time > now + TOLERANCE {
            return Err(refused(format!(
                "Signature not yet current: {date} is still later than {} ({} + 5 min.)",
                text(now + TOLERANCE),
                text(now)
            )));
        }
        Ok(())
    }

    /// Returns the canonical request. The path is encoded once more than it was sent.
    fn canonical(&self, request: &Request, payload: &str) -> String {
        let mut segments: Vec<&str> = Vec::new();
        for segment in request.path.split('/') {
            match segment {
                "" | "." => {}
                ".." => drop(segments.pop()),
                other => segments.push(other),
            }
        }
        let mut path: String = segments.iter().map(|segment| format!("/{}", encoded(segment))).collect();
        if path.is_empty() || request.path.ends_with('/') {
            path.push('/');
        }
        let mut query: Vec<String> = request
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
            .collect();
        query.sort();
        let headers: String = self
            .names
            .iter()
            .map(|name| {
                let values = request.headers.get_all(*name).iter().filter_map(|value| value.to_str().ok());
                let values: Vec<String> =
                    values.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
                format!("{name}:{}\n", values.join(","))
            })
            .collect();
        let names = self.names.join(";");
        format!("{}\n{path}\n{}\n{headers}\n{names}\n{payload}", request.method, query.join("&"))
    }

    fn signature(&self, secret: &str, date: &str, canonical: &str) -> String {
        let scope = format!("{}/{}/{}/aws4_request", self.day, self.region, self.service);
        let hash = hex(&Sha256::digest(canonical));
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}");
        let mut key = mac(format!("AWS4{secret}").as_bytes(), self.day);
        for part in [self.region, self.service, "aws4_request", &text] {
            key = mac(&key, part);
        }
        hex(&key)
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length is valid.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Percent-encodes everything but unreserved characters.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::Value;

    use super::super::super::http::parse_query;
    use super::*;

    /// Requests to Bedrock with the signatures that botocore makes.
    const VECTORS: &str = include_str!("../../../tests/vectors/sigv4.json");

    /// Returns the requests of the vectors for Bedrock.
    fn requests() -> Vec<Request> {
        let file: Value = serde_json::from_str(VECTORS).unwrap();
        let own = |vector: &Value| {
            let service = &vector["context"]["service"];
            *service == "bedrock" && vector["authorization"].is_string() && vector["target"].is_string()
        };
        let vectors = file["vectors"].as_array().unwrap().iter().filter(|vector| own(vector));
        let requests = vectors.map(|vector| {
            let (path, query) = vector["target"]
                .as_str()
                .unwrap()
                .split_once('?')
                .map_or_else(|| (vector["target"].as_str().unwrap(), ""), |(path, query)| (path, query));
            let mut headers = http::HeaderMap::new();
            let mut add = |name: &str, value: &str| {
                headers
                    .append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            };
            for pair in vector["headers"].as_array().unwrap() {
                add(pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
            }
            add("x-amz-date", "20261121T101112Z");
            if let Some(token) = vector["context"]["credentials"]["token"].as_str() {
                add("x-amz-security-token", token);
            }
            add("authorization", vector["authorization"].as_str().unwrap());
            Request {
                method: vector["method"].as_str().unwrap().parse().unwrap(),
                path: path.to_owned(),
                query: parse_query(query),
                headers,
                body: Bytes::from(vector["body"].as_str().unwrap().to_owned()),
                too_large: false,
            }
        });
        requests.collect()
    }

    fn key(request: &Request) -> AwsAccessKey {
        AwsAccessKey {
            session_token: request.header("x-amz-security-token").map(str::to_owned),
            ..AwsAccessKey::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
        }
    }

    /// 2026-11-21T10:11:12Z.
    const NOW: i64 = 1_795_255_872;

    #[test]
    fn signature_of_another_implementation_is_accepted() {
        let requests = requests();
        assert!(requests.len() >= 6, "{}", requests.len());
        for request in &requests {
            let region = authorize(request, None, &[key(request)], "bedrock", NOW);
            let region = region.map_err(|error| error.message).unwrap().unwrap_or_default();
            // The SDK signs for the region of the host.
            let host = request.header("host").unwrap_or_default();
            assert_eq!(host.split('.').nth(1), Some(region), "{}", request.path);
        }
    }

    #[test]
    fn signature_is_refused_if_anything_differs() {
        let mut request = requests().remove(0);
        let key = key(&request);
        let check = |request: &Request, key: &AwsAccessKey, service: &str, now| {
            let keys = [key.clone()];
            authorize(request, Some("api-key"), &keys, service, now).map(|_| ()).unwrap_err().kind
        };
        let signature = "InvalidSignatureException";
        assert_eq!(check(&request, &key, "sts", NOW), signature);
        assert_eq!(check(&request, &key, "bedrock", NOW + 301), signature);
        assert_eq!(check(&request, &key, "bedrock", NOW - 301), signature);
        let other = AwsAccessKey { id: "AKIDOTHER".into(), ..key.clone() };
        assert_eq!(check(&request, &other, "bedrock", NOW), "UnrecognizedClientException");
        let other = AwsAccessKey { session_token: Some("t".into()), ..key.clone() };
        assert_eq!(check(&request, &other, "bedrock", NOW), "UnrecognizedClientException");
        let other = AwsAccessKey { expired: true, ..key.clone() };
        assert_eq!(check(&request, &other, "bedrock", NOW), "ExpiredTokenException");
        let other = AwsAccessKey { region: Some("eu-west-1".into()), ..key.clone() };
        assert_eq!(check(&request, &other, "bedrock", NOW), signature);
        request.body = Bytes::from_static(b"{}");
        assert_eq!(check(&request, &key, "bedrock", NOW), signature);
        request.headers.remove("authorization");
        assert_eq!(check(&request, &key, "bedrock", NOW), "MissingAuthenticationTokenException");
        request.headers.insert("authorization", "Bearer wrong".parse().unwrap());
        assert_eq!(check(&request, &key, "bedrock", NOW), "AccessDeniedException");
        request.headers.insert("authorization", "Bearer api-key".parse().unwrap());
        assert!(authorize(&request, Some("api-key"), &[], "bedrock", NOW).is_ok());
    }
}
