//! Sessions of browsers, and TLS on the admin port.

use serde_json::{Value, json};

use super::{ADMIN, Ask, OPERATOR, get, post, with_tokens};
use crate::support::client::{Answer, Client, request};
use crate::support::gateway::{Gateway, free_ports};
use crate::support::setup::Setup;
use crate::support::tls::{Authority, Identity};
use crate::support::{soon, until};

const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");

/// Returns `name=value` of the first cookie that an answer sets.
pub(super) fn cookie_of(answer: &Answer) -> String {
    let cookie = answer.get("set-cookie").unwrap_or_else(|| panic!("no cookie: {}", answer.text()));
    cookie.split(';').next().unwrap().to_owned()
}

fn sign_in(token: &str) -> Ask {
    Ask::new("POST", "/session").header(SAME.0, SAME.1).body(json!({ "token": token }))
}

/// Request of a page that has a session.
fn of_page(method: &'static str, path: &str, cookie: &str, csrf: &str) -> Ask {
    let ask = Ask::new(method, path).header("cookie", cookie).header(SAME.0, SAME.1);
    if csrf.is_empty() { ask } else { ask.header("x-csrf-token", csrf) }
}

#[tokio::test]
async fn admin_session_stands_for_its_token_until_it_ends() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let before = Ask::new("GET", "/session").expect(&gateway, 200).await;
    assert_eq!((&before["via"], &before["methods"]), (&json!("local"), &json!(["token"])));
    assert_eq!((&before["csrf"], &before["oidc_start"]), (&Value::Null, &Value::Null));

    let answer = sign_in(ADMIN).send(&gateway).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let header = answer.get("set-cookie").unwrap();
    for part in ["mgw_session=", "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(header.contains(part), "{part}: {header}");
    }
    assert!(!header.contains("Secure") && !header.contains("Domain"), "{header}");
    let (cookie, csrf) = (cookie_of(&answer), answer.json()["csrf"].as_str().unwrap().to_owned());
    let state = of_page("GET", "/session", &cookie, "").expect(&gateway, 200).await;
    assert_eq!(
        (&state["via"], &state["caller"], &state["role"], &state["csrf"]),
        (&json!("session"), &json!("token:anna"), &json!("admin"), &json!(csrf))
    );

    let body = json!({ "name": "made-by-a-page" });
    of_page("POST", "/keys", &cookie, &csrf).body(body).expect(&gateway, 200).await;
    let lines = get("/audit").expect(&gateway, 200).await;
    let actions: Vec<&str> =
        lines["items"].as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["key.create", "session.begin"]);
    assert_eq!(lines["items"][0]["actor"], "token:anna");
    assert_eq!(lines["items"][1]["object"], "session/token:anna");

    let refused = of_page("DELETE", "/session", &cookie, "").expect(&gateway, 403).await;
    assert_eq!(refused["error"]["code"], "forbidden");
    let ended = of_page("DELETE", "/session", &cookie, &csrf).send(&gateway).await;
    assert_eq!(ended.json()["ended"], true);
    assert!(ended.get("set-cookie").unwrap().contains("Max-Age=0"));
    let after = of_page("GET", "/session", &cookie, "").expect(&gateway, 200).await;
    assert_eq!(after["via"], "local");
    of_page("POST", "/keys", &cookie, &csrf).body(json!({ "name": "x" })).expect(&gateway, 403).await;
    gateway
        .wait_for_metric("gateway_admin_logins_total", &[("method", "token"), ("result", "accepted")], 1.0)
        .await;
    // Neither the token nor the cookie is written anywhere.
    let written = gateway.everything_written();
    assert!(!written.contains(ADMIN) && !written.contains(cookie.split('=').nth(1).unwrap()));
}

#[tokio::test]
async fn admin_session_requests_of_hostile_pages_change_nothing() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let answer = sign_in(ADMIN).send(&gateway).await;
    let (cookie, csrf) = (cookie_of(&answer), answer.json()["csrf"].as_str().unwrap().to_owned());
    let other = sign_in(OPERATOR).send(&gateway).await.json()["csrf"].as_str().unwrap().to_owned();
    let keys = gateway.read("keys.toml");
    // The browser sends the cookie along, and the page may set what a page can set.
    let create = || Ask::new("POST", "/keys").header("cookie", &cookie).body(json!({ "name": "x" }));
    for (what, ask) in [
        ("without a CSRF value", create().header(SAME.0, SAME.1)),
        ("with a wrong one", create().header(SAME.0, SAME.1).header("x-csrf-token", "x")),
        ("with that of another session", create().header(SAME.0, SAME.1).header("x-csrf-token", &other)),
        ("from another site", create().header("sec-fetch-site", "cross-site").header("x-csrf-token", &csrf)),
        ("from another host", create().header("sec-fetch-site", "same-site").header("x-csrf-token", &csrf)),
        (
            "from another origin",
            create().header("origin", "https://hostile.test").header("x-csrf-token", &csrf),
        ),
        ("from nowhere", create().header("x-csrf-token", &csrf)),
        (
            "typed into the address bar",
            create().header("sec-fetch-site", "none").header("x-csrf-token", &csrf),
        ),
        (
            "rebound",
            create().header(SAME.0, SAME.1).header("x-csrf-token", &csrf).header("host", "rebound.test"),
        ),
        (
            "as a form",
            create()
                .header(SAME.0, SAME.1)
                .header("x-csrf-token", &csrf)
                .header("content-type", "text/plain"),
        ),
    ] {
        let status = ask.send(&gateway).await.status();
        assert!([403, 415].contains(&status), "{what}: {status}");
    }
    // Another page cannot make the browser sign in as another person, nor read who is signed in.
    for ask in [sign_in(ADMIN), of_page("GET", "/session", &cookie, "")] {
        ask.header("sec-fetch-site", "cross-site").expect(&gateway, 403).await;
    }
    // A cookie that a page on another port has added: neither counts.
    let twice = format!("{cookie}; mgw_session=fixed");
    assert_eq!(of_page("GET", "/session", &twice, "").expect(&gateway, 200).await["via"], "local");
    assert_eq!(gateway.read("keys.toml"), keys);
    // The same request with everything that belongs to it.
    of_page("POST", "/keys", &cookie, &csrf).body(json!({ "name": "x" })).expect(&gateway, 200).await;
}

#[tokio::test]
async fn admin_session_ends_when_the_tokens_change() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let cookie = cookie_of(&sign_in(OPERATOR).send(&gateway).await);
    let via = || of_page("GET", "/session", &cookie, "");
    Ask::new("POST", "/config/reload").token(OPERATOR).expect(&gateway, 200).await;
    assert_eq!(via().expect(&gateway, 200).await["via"], "session", "nothing has changed");
    gateway.command(&["admin", "disable", "rita"]);
    Ask::new("POST", "/config/reload").token(OPERATOR).expect(&gateway, 200).await;
    assert_eq!(via().expect(&gateway, 200).await["via"], "local");
}

#[tokio::test]
async fn admin_sign_in_attempts_are_limited() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    for _ in 0..10 {
        sign_in("mga_wrong").expect(&gateway, 401).await;
    }
    let refused = sign_in("mga_wrong").send(&gateway).await;
    assert_eq!((refused.status(), refused.get("retry-after").is_some()), (429, true));
    // Who shares the address and has a right token is not locked out.
    sign_in(ADMIN).expect(&gateway, 200).await;
    let labels = [("method", "token"), ("result", "limited")];
    gateway.wait_for_metric("gateway_admin_logins_total", &labels, 1.0).await;
}

async fn over_tls(gateway: &Gateway, authority: &Authority, request: &[u8]) -> std::io::Result<Answer> {
    // The port may not be open yet.
    drop(tokio::net::TcpStream::connect(gateway.admin).await?);
    let connected = Client::connect_tls(gateway.admin, authority.client(&["http/1.1"]), "localhost").await;
    let (mut client, _) = connected?;
    client.send(request).await;
    Ok(client.answer().await)
}

#[tokio::test]
async fn admin_port_has_tls_and_reads_its_certificate_again() {
    let (first, second) = (Authority::new(), Authority::new());
    let identity = first.identity(&["localhost"]);
    let mut setup =
        with_tokens(Setup::new()).file("admin.crt", &identity.chain).file("admin.key", &identity.key);
    setup.log += "[admin.tls]\ncert = \"admin.crt\"\nkey = \"admin.key\"\n";
    let mut gateway = Gateway::spawn(&setup, free_ports());
    let ready = request("GET", "/readyz", &[("connection", "close")]);
    soon(async {
        while !over_tls(&gateway, &first, &ready).await.is_ok_and(|answer| answer.status() == 200) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let answer = over_tls(&gateway, &first, &sign_in(ADMIN).bytes()).await.unwrap();
    let header = answer.get("set-cookie").unwrap();
    assert!(header.starts_with("__Host-mgw_session=") && header.contains("; Secure"), "{header}");
    let state = of_page("GET", "/session", &cookie_of(&answer), "").bytes();
    assert_eq!(over_tls(&gateway, &first, &state).await.unwrap().json()["via"], "session");
    // Plain HTTP is not answered, and the command for health checks knows of the certificate.
    let mut plain = Client::connect(gateway.admin).await;
    plain.send(&ready).await;
    assert!(!plain.closed().await.starts_with(b"HTTP/"));
    assert!(gateway.command(&["health"]).contains("ready"));

    let identity = second.identity(&["localhost"]);
    gateway.replace("admin.crt", &identity.chain);
    gateway.replace("admin.key", &identity.key);
    gateway.signal(nix::sys::signal::Signal::SIGHUP);
    soon(async {
        while over_tls(&gateway, &second, &ready).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let (_, pem) = x509_parser::pem::parse_x509_pem(identity.chain.as_bytes()).unwrap();
    let end = pem.parse_x509().unwrap().validity().not_after.timestamp();
    let name = "gateway_tls_certificate_not_after_timestamp_seconds";
    let metrics = over_tls(&gateway, &second, &request("GET", "/metrics", &[("connection", "close")])).await;
    let line = format!("{name}{{listen=\"{}\"}} {end}", gateway.admin);
    assert!(metrics.unwrap().text().contains(&line), "{line}");
    // A key that does not belong to it is refused, and the certificate stays.
    gateway.replace("admin.key", &first.identity(&["localhost"]).key);
    gateway.signal(nix::sys::signal::Signal::SIGHUP);
    until(|| gateway.log().contains("rejected")).await;
    assert_eq!(over_tls(&gateway, &second, &ready).await.unwrap().status(), 200);
    assert!(gateway.runs());
}

/// Returns the status of a request over TLS with this client certificate, or `None` if the connection is not accepted. With
/// TLS 1.3, a client learns of that after its handshake.
async fn status_as(gateway: &Gateway, server: &Authority, identity: Option<&Identity>) -> Option<u16> {
    drop(tokio::net::TcpStream::connect(gateway.admin).await.ok()?);
    let config = server.client_as(&["http/1.1"], identity);
    let mut client = Client::connect_tls(gateway.admin, config, "localhost").await.ok()?.0;
    client.try_send(Ask::new("GET", "/keys").bytes()).await.ok()?;
    Some(client.try_answer().await?.status())
}

#[tokio::test]
async fn admin_port_requires_client_certificates_which_a_reload_renews() {
    let (server, clients, later) = (Authority::new(), Authority::new(), Authority::new());
    let identity = server.identity(&["localhost"]);
    let mut setup = with_tokens(Setup::new())
        .file("admin.crt", &identity.chain)
        .file("admin.key", &identity.key)
        .file("clients.crt", clients.pem())
        .file("clients.crl", &clients.revocation_list(&[13]));
    setup.log += "[admin]\nsocket = \"admin.sock\"\n[admin.tls]\ncert = \"admin.crt\"\nkey = \"admin.key\"\n\
                  client_ca = \"clients.crt\"\nclient_crl = \"clients.crl\"\n";
    let gateway = Gateway::spawn(&setup, free_ports());
    let (alice, revoked) = (clients.numbered("alice", 12), clients.numbered("alice", 13));
    soon(async {
        while status_as(&gateway, &server, Some(&alice)).await.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let (foreign, expired, new) =
        (later.identity(&["alice"]), clients.expired("alice"), later.numbered("bob", 1));
    // A certificate gives its holder no role: on this machine, a caller without a token may read.
    for (who, status) in [
        (Some(&alice), Some(200)),
        (None, None),
        (Some(&foreign), None),
        (Some(&revoked), None),
        (Some(&expired), None),
    ] {
        assert_eq!(status_as(&gateway, &server, who).await, status, "{who:?}");
    }
    // The command for health checks has no certificate: it uses the socket.
    assert!(gateway.command(&["health"]).contains("ready"));
    let printed = gateway.command(&["check", "--print"]);
    assert!(printed.contains("client_ca = ") && printed.contains("client_crl = "), "{printed}");

    gateway.replace("clients.crt", later.pem());
    gateway.replace("clients.crl", &later.revocation_list(&[13]));
    gateway.signal(nix::sys::signal::Signal::SIGHUP);
    soon(async {
        while status_as(&gateway, &server, Some(&new)).await.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(status_as(&gateway, &server, Some(&alice)).await, None);
    // Authorities that cannot be read are refused, and those in effect stay.
    gateway.replace("clients.crt", "nothing");
    gateway.signal(nix::sys::signal::Signal::SIGHUP);
    until(|| gateway.log().contains("rejected")).await;
    assert_eq!(status_as(&gateway, &server, Some(&new)).await, Some(200));
}

#[tokio::test]
async fn admin_port_without_tls_is_for_this_machine_only() {
    let folder = tempfile::tempdir().unwrap();
    let check = |admin: &str| {
        let text = format!("[server]\nlisten = [\"127.0.0.1:1\"]\nadmin = \"0.0.0.0:2\"\n{admin}");
        let no_secrets = config::NoSecrets;
        config::load_texts(folder.path(), [text.as_str(), "", ""], &no_secrets).err().map(|report| {
            let texts: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
            texts.join("\n").contains("without TLS")
        })
    };
    let refuses = |admin: &str| check(admin).unwrap_or(false);
    assert!(refuses(""));
    assert!(refuses("[admin]\ninsecure = false\n"));
    assert!(!refuses("[admin]\ninsecure = true\n"));
    let tls = "[admin.tls]\ncert = \"x.crt\"\nkey = \"x.key\"\n";
    assert!(!refuses(tls));
    // Certificates of the port's clients are required or not requested: a setting of other listeners is unknown.
    assert_eq!(check(&format!("{tls}client_ca = \"x.crt\"\n")), None);
    assert!(check(&format!("{tls}client_ca = \"x.crt\"\nclient_certificate = \"optional\"\n")).is_some());
}

#[tokio::test]
async fn admin_audit_log_is_checked_by_the_command() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    for name in ["one", "two"] {
        post("/keys").body(json!({ "name": name })).expect(&gateway, 200).await;
    }
    let printed = gateway.command(&["audit", "verify"]);
    assert!(printed.starts_with("4 lines, 1 to 4, follow each other"), "{printed}");
    let path = gateway.folder().join("admin/audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"one\"", "\"eve\"", 2)).unwrap();
    let failed = admin::verify_audit(&gateway.folder().join("admin"), None);
    assert!(failed.unwrap_err().to_string().contains("line 1 was edited"));
}
