//! Sign-in at an issuer of identities: a stub issuer, the test as the browser, and attacks on both.

use std::sync::{Arc, Mutex};

use base64_simd::{STANDARD as BASE64_STANDARD, URL_SAFE_NO_PAD as BASE64};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::sessions::cookie_of;
use super::{ADMIN, Ask, with_tokens};
use crate::support::client::Answer;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::{Request, Upstream};

const CLIENT: &str = "gateway";
const SECRET: &str = "client secret";
const PATH: &str = "/session/oidc";

/// Issuer of identities.
#[derive(Default)]
struct Issuer {
    /// Key that signs, with its id; a new one for each entry.
    keys: Vec<(String, Vec<u8>)>,
    /// What the person at the authorization page has got a code for: nonce and code challenge.
    asked: Option<(String, String)>,
    /// Claims that differ from the good ones; a null removes one.
    claims: Vec<(&'static str, Value)>,
    /// Members of the token's header that differ.
    header: Vec<(&'static str, Value)>,
    /// Name that the description gives itself, if it is another one.
    named: Option<String>,
    /// Number of requests for the keys.
    fetched: usize,
}

impl Issuer {
    fn change(&mut self, claims: Vec<(&'static str, Value)>, header: Vec<(&'static str, Value)>) {
        (self.claims, self.header) = (claims, header);
    }

    fn add_key(&mut self, id: &str) {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        self.keys.push((id.to_owned(), key.unwrap().as_ref().to_vec()));
    }

    fn pair(bytes: &[u8]) -> EcdsaKeyPair {
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes, &SystemRandom::new()).unwrap()
    }

    fn answer(&mut self, request: &Request) -> (u16, Value) {
        let base = format!("http://{}", request.head.get("host").unwrap());
        let path = request.head.line.split(' ').nth(1).unwrap();
        match path {
            "/.well-known/openid-configuration" => (
                200,
                json!({
                    "issuer": self.named.clone().unwrap_or(base.clone()),
                    "authorization_endpoint": format!("{base}/authorize?tenant=a"),
                    "token_endpoint": format!("{base}/token"),
                    "jwks_uri": format!("{base}/jwks"),
                    "id_token_signing_alg_values_supported": ["ES256", "none", "HS256"],
                }),
            ),
            "/jwks" => {
                self.fetched += 1;
                // Only the latest key is published.
                let (id, bytes) = self.keys.last().unwrap();
                let point = Self::pair(bytes).public_key().as_ref().to_vec();
                let part = |range: std::ops::Range<usize>| BASE64.encode_to_string(&point[range]);
                let key = json!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": part(1..33), "y": part(33..65) });
                (200, json!({ "keys": [{ "kty": "oct", "k": "AAAA", "kid": "hmac" }, key] }))
            }
            "/token" => self.token(&base, request),
            _ => (404, json!({})),
        }
    }

    fn token(&mut self, base: &str, request: &Request) -> (u16, Value) {
        let form: Vec<(String, String)> = url::form_urlencoded::parse(&request.body).into_owned().collect();
        let of = |name: &str| form.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let basic = format!("Basic {}", BASE64_STANDARD.encode_to_string("gateway:client+secret"));
        let (nonce, challenge) = match self.asked.take() {
            Some(asked) if of("code") == Some("good code") => asked,
            _ => return (400, json!({ "error": "invalid_grant" })),
        };
        let verifier = of("code_verifier").unwrap_or_default();
        if BASE64.encode_to_string(Sha256::digest(verifier)) != challenge
            || request.head.get("authorization") != Some(basic.as_str())
            || !of("redirect_uri").unwrap_or_default().ends_with("/admin/v1/session/oidc/callback")
            || of("client_secret").is_some()
        {
            return (400, json!({ "error": "invalid_request" }));
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": base, "aud": CLIENT, "sub": "u-1", "email": "vera@example.test", "email_verified": true,
            "groups": ["staff", "gateway-operators"], "nonce": nonce, "iat": now, "exp": now + 300,
        });
        let (id, bytes) = self.keys.last().unwrap();
        let mut header = json!({ "alg": "ES256", "kid": id, "typ": "JWT" });
        for (object, changes) in [(&mut claims, &self.claims), (&mut header, &self.header)] {
            let members = object.as_object_mut().unwrap();
            for (name, value) in changes {
                if value.is_null() {
                    members.remove(*name)
                } else {
                    members.insert((*name).to_owned(), value.clone())
                };
            }
        }
        let part = |value: &Value| BASE64.encode_to_string(value.to_string());
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = Self::pair(bytes).sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        let token = format!("{message}.{}", BASE64.encode_to_string(signature.as_ref()));
        (200, json!({ "id_token": token, "access_token": "access", "token_type": "Bearer" }))
    }
}

/// Browser that has begun to sign in.
struct Begun {
    cookie: String,
    state: String,
    nonce: String,
    challenge: String,
}

struct World {
    issuer: Arc<Mutex<Issuer>>,
    _upstream: Upstream,
    gateway: Gateway,
}

impl World {
    async fn start() -> World {
        let issuer = Arc::new(Mutex::new(Issuer::default()));
        issuer.lock().unwrap().add_key("first");
        let shared = issuer.clone();
        let upstream = Upstream::start(move |mut conn| {
            let issuer = shared.clone();
            async move {
                while let Some(request) = conn.request().await {
                    let (status, body) = issuer.lock().unwrap().answer(&request);
                    conn.send(&reply::json(status, body.to_string())).await;
                }
            }
        })
        .await;
        let mut setup = with_tokens(Setup::new()).file("oidc-secret", SECRET);
        let (_, tokens) = setup.files.iter_mut().find(|(name, _)| name == "admin.toml").unwrap();
        *tokens += &format!(
            "[oidc]\nissuer = \"http://{}\"\nclient_id = \"{CLIENT}\"\nclient_secret = {{ file = \"oidc-secret\" }}\n\
             redirect_uri = \"http://127.0.0.1:9090/admin/v1/session/oidc/callback\"\nscopes = [\"openid\", \"email\"]\n\
             name_claim = \"email\"\n[[oidc.role]]\nvalue = \"staff\"\nrole = \"read\"\n\
             [[oidc.role]]\nvalue = \"gateway-operators\"\nrole = \"operate\"\n",
            upstream.addr
        );
        let gateway = Gateway::start(&setup).await;
        World { issuer, _upstream: upstream, gateway }
    }

    fn issuer(&self) -> std::sync::MutexGuard<'_, Issuer> {
        self.issuer.lock().unwrap()
    }

    async fn begin(&self) -> Begun {
        let answer = Ask::new("GET", PATH).send(&self.gateway).await;
        assert_eq!(answer.status(), 302, "{}", answer.text());
        let location = url::Url::parse(answer.get("location").unwrap()).unwrap();
        let of = |name: &str| {
            let mut pairs = location.query_pairs();
            pairs
                .find(|(known, _)| known == name)
                .unwrap_or_else(|| panic!("no {name}: {location}"))
                .1
                .into_owned()
        };
        assert_eq!((location.path(), of("tenant")), ("/authorize", "a".to_owned()));
        assert_eq!(
            (of("response_type"), of("client_id"), of("scope"), of("code_challenge_method")),
            ("code".to_owned(), CLIENT.to_owned(), "openid email".to_owned(), "S256".to_owned())
        );
        let set = answer.get("set-cookie").unwrap();
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Lax"), "{set}");
        Begun {
            cookie: cookie_of(&answer),
            state: of("state"),
            nonce: of("nonce"),
            challenge: of("code_challenge"),
        }
    }

    /// The person agrees, and the issuer sends the browser back.
    async fn come_back(&self, begun: &Begun, query: &str) -> Answer {
        self.issuer().asked = Some((begun.nonce.clone(), begun.challenge.clone()));
        let ask = Ask::new("GET", &format!("{PATH}/callback?{query}")).header("cookie", &begun.cookie);
        ask.header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", "navigate")
            .send(&self.gateway)
            .await
    }

    async fn sign_in(&self) -> Answer {
        let begun = self.begin().await;
        self.come_back(&begun, &format!("code=good+code&state={}&session_state=x", begun.state)).await
    }
}

fn is_signed_in(answer: &Answer) -> bool {
    answer.head.fields.iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("set-cookie")
            && value.starts_with("mgw_session=")
            && !value.contains("Max-Age=0")
    })
}

#[tokio::test]
async fn admin_oidc_sign_in_begins_a_session_with_the_role_of_the_claims() {
    let world = World::start().await;
    let state = Ask::new("GET", "/session").expect(&world.gateway, 200).await;
    assert_eq!(
        (&state["methods"], &state["oidc_start"]),
        (&json!(["token", "oidc"]), &json!("/admin/v1/session/oidc"))
    );
    let answer = world.sign_in().await;
    assert!(answer.status() == 200 && is_signed_in(&answer), "{}", answer.everything());
    assert!(answer.get("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert!(answer.get("content-type").unwrap().starts_with("text/html"));
    let cookie = cookie_of(&answer);
    let state = Ask::new("GET", "/session").header("cookie", &cookie).expect(&world.gateway, 200).await;
    assert_eq!(
        (&state["via"], &state["caller"], &state["role"]),
        (&json!("session"), &json!("oidc:vera@example.test"), &json!("operate"))
    );
    let csrf = state["csrf"].as_str().unwrap();
    let page = |path| {
        let ask = Ask::new("POST", path).header("cookie", &cookie).header("x-csrf-token", csrf);
        ask.header("sec-fetch-site", "same-origin").body(json!({}))
    };
    page("/config/reload").expect(&world.gateway, 200).await;
    page("/keys").expect(&world.gateway, 403).await;
    let lines = Ask::new("GET", "/audit").token(ADMIN).expect(&world.gateway, 200).await;
    assert_eq!(lines["items"][0]["actor"], "oidc:vera@example.test", "{lines}");
    let written = world.gateway.everything_written();
    assert!(!written.contains(SECRET) && !written.contains("good code"));
    // The token stays a way in while the issuer is away.
    world.issuer().keys.clear();
    let body = json!({ "token": ADMIN });
    Ask::new("POST", "/session").body(body).expect(&world.gateway, 200).await;
}

#[tokio::test]
async fn admin_oidc_follows_a_change_of_the_issuers_keys() {
    let world = World::start().await;
    for _ in 0..2 {
        assert!(is_signed_in(&world.sign_in().await));
    }
    assert_eq!(world.issuer().fetched, 1, "the keys are cached");
    world.issuer().add_key("second");
    assert!(is_signed_in(&world.sign_in().await));
    assert_eq!(world.issuer().fetched, 2);
    // An unknown key is looked for once.
    world.issuer().header = vec![("kid", json!("third"))];
    assert!(!is_signed_in(&world.sign_in().await));
    assert_eq!(world.issuer().fetched, 3);
}

#[tokio::test]
async fn admin_oidc_answers_that_are_not_of_this_sign_in_are_refused() {
    let world = World::start().await;
    let good = world.begin().await;
    let other = world.begin().await;
    let attempt = |cookie: &str, query: String| {
        let begun = Begun {
            cookie: cookie.to_owned(),
            state: good.state.clone(),
            nonce: good.nonce.clone(),
            challenge: good.challenge.clone(),
        };
        let world = &world;
        async move { world.come_back(&begun, &query).await }
    };
    let with_state = |state: &str| format!("code=good+code&state={state}");
    let forged = good.cookie.replacen(&good.nonce, &other.nonce, 1);
    for (attack, cookie, query) in [
        ("no cookie", "", with_state(&good.state)),
        ("cookie of another window", &*other.cookie, with_state(&good.state)),
        ("forged cookie", &*forged, with_state(&good.state)),
        ("state of another sign-in", &*good.cookie, with_state(&other.state)),
        ("no state", &*good.cookie, "code=good+code".to_owned()),
        ("state twice", &*good.cookie, format!("{}&state=x", with_state(&good.state))),
        ("no code", &*good.cookie, format!("state={}", good.state)),
        ("another issuer", &*good.cookie, format!("{}&iss=https://hostile.test", with_state(&good.state))),
        ("wrong code", &*good.cookie, format!("code=bad&state={}", good.state)),
        ("refusal", &*good.cookie, format!("error=access_denied&state={}", good.state)),
    ] {
        let answer = attempt(cookie, query).await;
        assert!(answer.status() == 403 && !is_signed_in(&answer), "{attack}: {}", answer.everything());
        assert!(!answer.text().contains("hostile") && !answer.text().contains("access_denied"), "{attack}");
    }
    // Ten failures within a minute are all that an address has.
    let limited = attempt(&good.cookie, with_state(&good.state)).await;
    assert_eq!(limited.status(), 429);
}

#[tokio::test]
async fn admin_oidc_frames_and_fetches_of_other_pages_are_refused() {
    let world = World::start().await;
    let begun = world.begin().await;
    let query = format!("{PATH}/callback?code=good+code&state={}", begun.state);
    for (name, value) in [("sec-fetch-mode", "no-cors"), ("sec-fetch-mode", "cors"), ("host", "rebound.test")]
    {
        let ask =
            Ask::new("GET", &query).header("cookie", &begun.cookie).header("sec-fetch-site", "cross-site");
        let answer = ask.header("sec-fetch-mode", "navigate").header(name, value).send(&world.gateway).await;
        assert!(answer.status() == 403 && !is_signed_in(&answer), "{name}: {value}");
    }
    let posted = Ask::new("POST", &query).header("cookie", &begun.cookie).send(&world.gateway).await;
    assert_eq!(posted.status(), 405);
}

#[tokio::test]
async fn admin_oidc_tokens_that_are_not_for_this_person_and_gateway_are_refused() {
    let claim = |name, value| (vec![(name, value)], vec![]);
    let header = |name, value| (vec![], vec![(name, value)]);
    // Each in a gateway of its own would take long; an address has ten failures within a minute.
    for attacks in [
        vec![
            ("issuer", claim("iss", json!("https://hostile.test"))),
            ("audience", claim("aud", json!("other"))),
            ("party", claim("azp", json!("other"))),
            ("expired", claim("exp", json!(1))),
            ("nonce", claim("nonce", json!("n"))),
            ("no nonce", claim("nonce", Value::Null)),
            ("access token", claim("at_hash", json!("AAAAAAAAAAAAAAAAAAAAAA"))),
        ],
        vec![
            ("none", header("alg", json!("none"))),
            ("HMAC", header("alg", json!("HS256"))),
            ("HMAC with the set's key", (vec![], vec![("alg", json!("HS256")), ("kid", json!("hmac"))])),
            ("key id", header("kid", json!("../first"))),
            ("critical", header("crit", json!(["exp"]))),
            ("no role", claim("groups", json!(["guests"]))),
            ("role as a text of others", claim("groups", json!("gateway-operators-x"))),
            ("address not verified", claim("email_verified", json!(false))),
            ("name with a line break", claim("email", json!("a\nb"))),
        ],
    ] {
        let world = World::start().await;
        for (attack, (claims, header)) in attacks {
            world.issuer().change(claims, header);
            let answer = world.sign_in().await;
            assert!(answer.status() == 403 && !is_signed_in(&answer), "{attack}: {}", answer.everything());
        }
        world.issuer().change(vec![], vec![]);
        assert!(is_signed_in(&world.sign_in().await), "without an attack");
    }
}

#[tokio::test]
async fn admin_oidc_description_of_another_issuer_is_refused() {
    let world = World::start().await;
    world.issuer().named = Some("https://hostile.test".to_owned());
    let answer = Ask::new("GET", PATH).send(&world.gateway).await;
    assert_eq!((answer.status(), answer.get("location")), (503, None));
    // Nothing of it is remembered.
    world.issuer().named = None;
    assert!(is_signed_in(&world.sign_in().await));
}

#[tokio::test]
async fn admin_oidc_faults_of_the_file_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admin.toml");
    let good = "[oidc]\nissuer = \"https://login.test\"\nclient_id = \"g\"\n\
                redirect_uri = \"https://gateway.test/admin/v1/session/oidc/callback\"\n\
                [[oidc.role]]\nvalue = \"x\"\nrole = \"read\"\n";
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        config::load_admin_access(&file, &config::Environment)
    };
    assert_eq!(load(good).unwrap().oidc.unwrap().scopes, ["openid"]);
    for (from, to, key) in [
        ("https://login.test", "http://login.test", "oidc.issuer"),
        ("https://gateway.test/", "http://gateway.test/", "oidc.redirect_uri"),
        ("/callback", "/elsewhere", "oidc.redirect_uri"),
        ("role = \"read\"", "role = \"root\"", "oidc.role[0].role"),
        ("[[oidc.role]]\nvalue = \"x\"\nrole = \"read\"\n", "", "oidc"),
        ("client_id = \"g\"\n", "", "oidc.client_id"),
        (
            "client_id = \"g\"\n",
            "client_id = \"g\"\nclient_secret = { env = \"MGW_NO_SUCH\" }\n",
            "oidc.client_secret",
        ),
        ("client_id = \"g\"\n", "client_id = \"g\"\ncolour = 1\n", "oidc.colour"),
    ] {
        let report = load(&good.replacen(from, to, 1)).unwrap_err();
        let keys: Vec<&str> = report.problems.iter().map(|problem| &*problem.key).collect();
        assert!(keys.contains(&key), "{to}: {keys:?}");
    }
}
