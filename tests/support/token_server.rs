//! Scripted token server: grants numbered tokens, is slow, is dead, or lies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::upstream::{Request, Upstream};
use super::{Gate, reply};

/// Private key of the test's service account. It belongs to no account.
pub(crate) const RSA_KEY: &str = include_str!("cloud/rsa_key.pem");
/// Certificate of that key.
pub(crate) const CERTIFICATE: &str = include_str!("cloud/certificate.pem");

/// Beginning of each token; the number of the grant follows.
pub(crate) const TOKEN: &str = "ya29.granted-token-";

/// Behavior of a token server.
#[derive(Clone, Debug)]
pub(crate) enum Behavior {
    /// It grants tokens of this life in seconds.
    Grant(u64),
    /// It grants tokens of this life in seconds, after the gate has been opened.
    GrantAfter(Gate, u64),
    /// It closes each connection without an answer.
    Dead,
    /// It sends this status and body.
    Send(u16, String),
}

/// Running token server.
pub(crate) struct TokenServer {
    upstream: Upstream,
    behavior: Arc<Mutex<Behavior>>,
    granted: Arc<AtomicUsize>,
}

impl TokenServer {
    pub(crate) async fn start(behavior: Behavior) -> TokenServer {
        let behavior = Arc::new(Mutex::new(behavior));
        let granted = Arc::new(AtomicUsize::new(0));
        let (shown, counted) = (behavior.clone(), granted.clone());
        let upstream = Upstream::start(move |mut conn| {
            let (shown, counted) = (shown.clone(), counted.clone());
            async move {
                while conn.request().await.is_some() {
                    let behavior = shown.lock().unwrap().clone();
                    let life = match behavior {
                        Behavior::Grant(life) => life,
                        Behavior::GrantAfter(gate, life) => {
                            gate.passed().await;
                            life
                        }
                        Behavior::Dead => return conn.reset(),
                        Behavior::Send(status, body) => {
                            conn.send(reply::json(status, body)).await;
                            continue;
                        }
                    };
                    let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                    let token = json!({
                        "access_token": format!("{TOKEN}{number}"), "expires_in": life, "token_type": "Bearer",
                    });
                    conn.send(reply::json(200, token.to_string())).await;
                }
            }
        })
        .await;
        TokenServer { upstream, behavior, granted }
    }

    /// Changes the behavior from the next request on.
    pub(crate) fn set(&self, behavior: Behavior) {
        *self.behavior.lock().unwrap() = behavior;
    }

    /// Returns the address, for example `127.0.0.1:1234`.
    pub(crate) fn host(&self) -> String {
        self.upstream.addr.to_string()
    }

    /// Returns how many tokens were granted.
    pub(crate) fn granted(&self) -> usize {
        self.granted.load(Ordering::SeqCst)
    }

    /// Returns all requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.upstream.requests()
    }

    /// Returns the credential file of a service account whose token server this is.
    pub(crate) fn service_account(&self) -> String {
        json!({
            "type": "service_account", "project_id": "p", "private_key_id": "key-1", "private_key": RSA_KEY,
            "client_email": "gateway@p.iam.gserviceaccount.com",
            "token_uri": format!("http://{}/token", self.host()),
        })
        .to_string()
    }

    /// Returns the credential file of a user whose token server this is.
    pub(crate) fn authorized_user(&self, quota_project: &str) -> String {
        json!({
            "type": "authorized_user", "client_id": "client-id", "client_secret": "secret-of-the-client",
            "refresh_token": "refresh-token-of-the-user", "quota_project_id": quota_project,
            "token_uri": format!("http://{}/token", self.host()),
        })
        .to_string()
    }
}

/// Returns the value of a field of a form.
pub(crate) fn form_field(request: &Request, name: &str) -> Option<String> {
    let form = request.text();
    let value = form.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let digits = std::str::from_utf8(&rest[..2]).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &rest[2..];
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(*other),
        }
    }
    Some(String::from_utf8(bytes).unwrap())
}
