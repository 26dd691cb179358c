//! AWS as a test client sees it: requests signed with Signature Version 4, and messages of event streams.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Access key of the tests.
pub(crate) const ACCESS_KEY_ID: &str = "MGWATESTTESTTESTTEST";
/// Secret of the access key.
pub(crate) const SECRET: &str = "secret-of-the-access-key-of-the-tests-00";

/// Request to be signed. Tests change single members.
#[derive(Clone, Debug)]
pub(crate) struct Signing<'a> {
    pub(crate) id: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) service: &'a str,
    pub(crate) host: &'a str,
    /// Headers in addition to host and date, in lower case.
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    /// Unix seconds.
    pub(crate) time: i64,
}

impl Default for Signing<'_> {
    /// Returns a request with the tests' access key, signed now.
    fn default() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Signing {
            id: ACCESS_KEY_ID,
            secret: SECRET,
            service: "bedrock",
            host: "gateway.test",
            headers: vec![("content-type", "application/json")],
            time: i64::try_from(now.as_secs()).unwrap(),
        }
    }
}

impl Signing<'_> {
    /// Returns the value of `x-amz-date`.
    pub(crate) fn date(&self) -> String {
        jiff::Timestamp::from_second(self.time).unwrap().strftime("%Y%m%dT%H%M%SZ").to_string()
    }

    /// Returns the value of `authorization` for a POST request whose target has no query.
    pub(crate) fn authorization(&self, path: &str, body: &[u8]) -> String {
        let date = self.date();
        let mut headers = self.headers.clone();
        headers.extend([("host", self.host), ("x-amz-date", &*date)]);
        headers.sort_unstable();
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical =
            format!("POST\n{}\n\n{lines}\n{names}\n{}", encoded(path), hex(&Sha256::digest(body)));
        let scope = format!("{}/eu-west-1/{}/aws4_request", &date[..8], self.service);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let mut key = mac(format!("AWS4{}", self.secret).as_bytes(), &date[..8]);
        for part in ["eu-west-1", self.service, "aws4_request", &text] {
            key = mac(&key, part);
        }
        let (id, signature) = (self.id, hex(&key));
        format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
    }

    /// Returns the bytes of the signed request.
    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Vec<u8> {
        self.post_as(path, body, &self.authorization(path, body), &[])
    }

    /// Returns the bytes of a request with this authorization, and with headers that are not signed.
    pub(crate) fn post_as(
        &self,
        path: &str,
        body: &[u8],
        authorization: &str,
        more: &[(&str, &str)],
    ) -> Vec<u8> {
        let mut head =
            format!("POST {path} HTTP/1.1\r\nhost: {}\r\nx-amz-date: {}\r\n", self.host, self.date());
        for (name, value) in self.headers.iter().chain(more) {
            head += &format!("{name}: {value}\r\n");
        }
        if !authorization.is_empty() {
            head += &format!("authorization: {authorization}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes the path once more than it is sent.
fn encoded(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// Message of an event stream.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Headers with text values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) payload: Value,
}

impl Message {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(header, _)| header == name).map_or("", |(_, value)| value)
    }

    /// Returns the type of an event or of an exception.
    pub(crate) fn name(&self) -> &str {
        match self.header(":message-type") {
            "event" => self.header(":event-type"),
            _ => self.header(":exception-type"),
        }
    }
}

/// Parses the messages of a stream, and asserts that their lengths and checksums are right. Returns them and the number
/// of bytes of a message that is not complete.
pub(crate) fn messages(mut stream: &[u8]) -> (Vec<Message>, usize) {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
    let mut all = Vec::new();
    while stream.len() >= 12 {
        let (total, headers) = (number(&stream[..4]), number(&stream[4..8]));
        assert_eq!(number(&stream[8..12]), crc32fast::hash(&stream[..8]) as usize, "checksum of the lengths");
        if stream.len() < total {
            break;
        }
        let (message, rest) = stream.split_at(total);
        stream = rest;
        let (content, checksum) = message.split_at(total - 4);
        assert_eq!(number(checksum), crc32fast::hash(content) as usize, "checksum of the message");
        let mut fields = &content[12..12 + headers];
        let mut parsed = Vec::new();
        while let Some((length, after)) = fields.split_first() {
            let (name, after) = after.split_at(usize::from(*length));
            assert_eq!(after[0], 7, "only texts");
            let length = usize::from(u16::from_be_bytes([after[1], after[2]]));
            let (value, after) = after[3..].split_at(length);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            parsed.push((text(name), text(value)));
            fields = after;
        }
        let payload = serde_json::from_slice(&content[12 + headers..]).unwrap();
        all.push(Message { headers: parsed, payload });
    }
    (all, stream.len())
}
