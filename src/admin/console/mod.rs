//! Console: the page for operators, at `/console/` on the admin port. It is a client of the admin API like any other: here
//! live its files ([`assets`]) and how they are served, and no operation of its own.
//!
//! The files are served as they are in the repository: no build step makes them. Their address has a hash of them all, so
//! that browsers keep them for ever and never mix two versions.

mod assets;

use std::io::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use sha2::{Digest as _, Sha256};

use super::body::AnswerBody;
use assets::{ASSETS, INDEX};

/// Path of the page.
const PAGE: &str = "/console/";
/// Place of the hash in the page.
const HASH: &str = "{hash}";
/// Digits of the hash in addresses.
const HASH_DIGITS: usize = 16;
/// What the page may do: load its own files and talk to its own origin. Scripts and styles in the page itself, `eval`,
/// frames and other origins are refused, and so is the assignment of HTML as text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// File of the console, also compressed.
struct Served {
    path: &'static str,
    media: &'static str,
    plain: Bytes,
    gzip: Option<Bytes>,
}

impl Served {
    fn new(path: &'static str, media: &'static str, plain: Bytes) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let gzip = encoder.write_all(&plain).and_then(|()| encoder.finish()).ok().map(Bytes::from);
        Served { path, media, plain, gzip }
    }
}

/// All files, with the page as the first. They are compressed when the console is opened for the first time.
struct Console {
    hash: String,
    page: Served,
    files: Vec<Served>,
}

static CONSOLE: LazyLock<Console> = LazyLock::new(|| {
    let mut hasher = Sha256::new();
    hasher.update(INDEX);
    ASSETS.iter().for_each(|asset| hasher.update(asset.bytes));
    let hash: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let hash: String = hash.chars().take(HASH_DIGITS).collect();
    let page = Served::new("", "text/html; charset=utf-8", INDEX.replace(HASH, &hash).into());
    let files =
        ASSETS.iter().map(|asset| Served::new(asset.path, asset.media(), asset.bytes.into())).collect();
    Console { hash, page, files }
});

/// Answers a request for a file of the console. `None` if the path is none of the console's.
pub(super) fn answer<B>(request: &Request<B>) -> Option<Response<AnswerBody>> {
    let path = request.uri().path();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let wants_page = || {
        let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        accept.is_some_and(|accept| accept.contains("text/html"))
    };
    let mut response = match path {
        // Relative, so that it holds behind a proxy that adds a prefix.
        "/" if is_read && wants_page() => redirect("console/"),
        "/console" if is_read => redirect("console/"),
        _ => {
            let below = path.strip_prefix(PAGE)?;
            if !is_read {
                empty(StatusCode::METHOD_NOT_ALLOWED)
            } else if below.is_empty() {
                file(&CONSOLE.page, request.headers(), "no-cache")
            } else {
                find(below).map_or_else(
                    || empty(StatusCode::NOT_FOUND),
                    |found| file(found, request.headers(), "public, max-age=31536000, immutable"),
                )
            }
        }
    };
    if *request.method() == Method::HEAD {
        *response.body_mut() = AnswerBody::Whole(Bytes::new());
    }
    Some(response)
}

/// Returns the file at `a/{hash}/{path}`.
fn find(below: &str) -> Option<&'static Served> {
    let path = below.strip_prefix("a/")?.strip_prefix(CONSOLE.hash.as_str())?.strip_prefix('/')?;
    CONSOLE.files.iter().find(|file| file.path == path)
}

fn empty(status: StatusCode) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn redirect(to: &'static str) -> Response<AnswerBody> {
    let mut response = empty(StatusCode::SEE_OTHER);
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    response
}

fn file(served: &Served, request: &HeaderMap, cache: &'static str) -> Response<AnswerBody> {
    let compressed = served.gzip.as_ref().filter(|_| accepts_gzip(request));
    let mut response = Response::new(AnswerBody::Whole(compressed.unwrap_or(&served.plain).clone()));
    let headers = response.headers_mut();
    if compressed.is_some() {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    for (name, value) in [
        (header::CONTENT_TYPE, served.media),
        (header::CACHE_CONTROL, cache),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns whether gzip is accepted (RFC 9110, 12.5.3). A browser sends it without a weight.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("gzip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, headers: &[(&'static str, &'static str)]) -> Option<Response<AnswerBody>> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(&request.body(()).unwrap())
    }

    fn text(response: Response<AnswerBody>) -> String {
        let AnswerBody::Whole(bytes) = response.into_body() else { panic!() };
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn console_page_names_its_files_by_a_hash_and_browsers_keep_them() {
        let page = get("/console/", &[]).unwrap();
        assert_eq!(page.headers()["cache-control"], "no-cache");
        assert!(
            page.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'")
        );
        let page = text(page);
        let script = format!("/console/a/{}/app.js", CONSOLE.hash);
        assert!(page.contains(&script["/console/".len()..]), "{page}");
        let script = get(&script, &[]).unwrap();
        assert_eq!(script.headers()["content-type"], "text/javascript; charset=utf-8");
        assert!(script.headers()["cache-control"].to_str().unwrap().contains("immutable"));
        assert!(text(script).contains("import"));
        for path in ["/console/a/0000/app.js", "/console/app.js", "/console/a/../index.html", "/console/x"] {
            assert_eq!(get(path, &[]).unwrap().status(), 404, "{path}");
        }
        assert!(get("/metrics", &[]).is_none() && get("/consoles", &[]).is_none());
    }

    #[test]
    fn console_is_found_from_the_root_by_browsers_only() {
        assert!(get("/", &[("accept", "*/*")]).is_none());
        let found = get("/", &[("accept", "text/html,*/*")]).unwrap();
        assert_eq!(
            (found.status().as_u16(), &found.headers()["location"]),
            (303, &"console/".parse().unwrap())
        );
        assert_eq!(get("/console", &[]).unwrap().headers()["location"], "console/");
    }

    #[test]
    fn console_files_are_compressed_for_clients_that_accept_it() {
        let path = format!("/console/a/{}/app.css", CONSOLE.hash);
        let response = get(&path, &[("accept-encoding", "gzip, deflate, br")]).unwrap();
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let AnswerBody::Whole(bytes) = response.into_body() else { panic!() };
        let mut plain = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut plain).unwrap();
        assert_eq!(plain, text(get(&path, &[]).unwrap()));
    }

    /// Size of all files as a browser receives them, in bytes.
    #[test]
    fn console_is_smaller_than_its_budget() {
        let files = CONSOLE.files.iter().chain([&CONSOLE.page]);
        let size: usize = files.map(|file| file.gzip.as_ref().unwrap().len()).sum();
        assert!(size < 150_000, "{size} bytes compressed");
    }
}
