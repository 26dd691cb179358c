//! gateway.toml: addresses, limits, logs and the store. Read once, at start.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fleet::{self, FleetSettings};
use super::node::{Document, Table, Value};
use super::report::Report;
use super::secret::expand;
use super::values;
use super::{ReloadRules, Vault, folder, reload};
use crate::account::Network;

/// What gateway.toml says, with the defaults for what it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Plaintext listeners: HTTP/1.1 and h2c.
    pub listen: Vec<SocketAddr>,
    /// TLS listeners: ALPN h2 and http/1.1.
    pub tls: Vec<TlsListener>,
    /// Where metrics and health are.
    pub admin: SocketAddr,
    /// Path of routes.toml.
    pub routes: PathBuf,
    /// Path of keys.toml.
    pub keys: PathBuf,
    /// Worker threads; 0 for one per core.
    pub threads: usize,
    /// Socket over which a new process takes over the listeners (SIGQUIT).
    pub upgrade_socket: PathBuf,
    /// How long a stopping gateway waits for answers under way.
    pub drain: Duration,
    /// Bounds.
    pub limits: Limits,
    /// Rules of a reload.
    pub reload: ReloadRules,
    /// Logs.
    pub log: Log,
    /// Where what outlives a request is kept.
    pub store: Store,
    /// How long and how much of responses and seals is kept there.
    pub kept: Kept,
    /// How the ledger does its work there.
    pub ledger: Ledger,
}

/// A TLS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsListener {
    /// Its address.
    pub listen: SocketAddr,
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// Bounds that protect the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body, bytes.
    pub body: usize,
    /// Largest answer that is read whole, bytes.
    pub answer: usize,
    /// Largest frame of a stream, bytes.
    pub frame: usize,
    /// Connections from clients at a time.
    pub connections: usize,
    /// Requests under way at a time.
    pub requests: usize,
    /// What large request bodies take together at most, bytes.
    pub memory: usize,
    /// Largest head of a request, bytes.
    pub head: usize,
    /// From the first byte of a request to the end of its head, and for a TLS handshake.
    pub header_timeout: Duration,
    /// Between two pieces of a request body.
    pub body_timeout: Duration,
    /// How long a connection of a client may be idle between requests.
    pub keepalive: Duration,
    /// How long a stream may be silent until its client gets something without meaning; zero for as long as it likes.
    pub heartbeat: Duration,
    /// How long a client that wants a stream waits for the beginning of its answer until it gets a head without one;
    /// zero for as long as it likes.
    pub slow_start: Duration,
    /// How long a client may take to read a piece of the answer.
    pub write_timeout: Duration,
    /// Idle connections to providers that are kept.
    pub pool: usize,
    /// How long an idle connection to a provider is kept.
    pub pool_idle: Duration,
    /// Networks of one's own that links may lead into.
    pub fetch_allow: Vec<Network>,
    /// The most that is brought from behind a link, bytes.
    pub fetch: usize,
    /// How many links are followed at a time, of all requests together.
    pub fetches: usize,
    /// How long following one may take.
    pub fetch_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // Above Anthropic's 32 MB and OpenAI's 50 MB of files in base64.
            body: 64 << 20,
            answer: 256 << 20,
            frame: 64 << 20,
            connections: 16_384,
            // As many as connections: HTTP/2 carries more, but a process that has so many under way is late with all.
            requests: 16_384,
            // 64 of the largest bodies.
            memory: 4 << 30,
            // Twice what other servers take by default; SDKs send 1 KiB, and a session in a cookie is 16 KiB at most.
            head: 64 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            keepalive: Duration::from_secs(75),
            // A quarter of what proxies in between usually wait (60 s).
            heartbeat: Duration::from_secs(15),
            // A head is a status that cannot be changed any more, so it comes late: behind nearly all answers and
            // nearly all refusals, and before the first who give up on the way (30 s: some clouds' load balancers).
            slow_start: Duration::from_secs(25),
            write_timeout: Duration::from_secs(60),
            pool: 1_024,
            // Below the idle timeouts of the providers' load balancers (60 s and more), so that it is the gateway
            // that closes and not the provider, in the moment of a request.
            pool_idle: Duration::from_secs(50),
            fetch_allow: Vec::new(),
            // An uncompressed picture of 4096 by 4096 points.
            fetch: 64 << 20,
            // A descriptor and up to `fetch` bytes each, which count in `memory`.
            fetches: 256,
            // 10 Mbit a second for the largest.
            fetch_timeout: Duration::from_secs(60),
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For programs.
    #[default]
    Json,
    /// For people.
    Text,
}

/// Where the access log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// Standard output, which systemd takes into the journal.
    #[default]
    Stdout,
    /// A file, appended to; opened again on SIGHUP.
    File(PathBuf),
}

/// Logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// A filter in the form of `tracing-subscriber`'s `EnvFilter`: `info`, `model_gateway=debug,warn`.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
    /// Where one line per request goes.
    pub access: AccessLog,
}

impl Default for Log {
    fn default() -> Self {
        Log { level: "info".to_owned(), format: LogFormat::default(), access: AccessLog::default() }
    }
}

/// Where what outlives a request is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// An embedded database file.
    Sqlite(PathBuf),
    /// A Valkey or Redis server, shared by a fleet.
    Valkey(FleetSettings),
}

/// How long and how much of responses and seals is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// How long a response is kept; zero keeps none.
    pub lifetime: Duration,
    /// Largest response with the conversation before it, bytes.
    pub response: usize,
    /// All responses together, bytes.
    pub total: usize,
    /// How long a seal is kept; zero keeps none.
    pub seal_lifetime: Duration,
    /// All seals together, bytes.
    pub seal_total: usize,
    /// Nobody goes on from a response that was not made through the gateway.
    pub refuse_foreign: bool,
}

impl Default for Kept {
    fn default() -> Self {
        Kept {
            // As long as OpenAI keeps them.
            lifetime: Duration::from_secs(30 * 86_400),
            // A context of a million tokens and some images.
            response: 16 << 20,
            // Fits on any disk; a conversation of 20 turns takes about 100 kB.
            total: 1 << 30,
            // As long as responses: a conversation goes on for as long.
            seal_lifetime: Duration::from_secs(30 * 86_400),
            // A hundred thousand turns whose reasoning is sealed.
            seal_total: 256 << 20,
            // Conversations from before an upgrade go on, and those that are made at the provider itself.
            refuse_foreign: false,
        }
    }
}

/// How the ledger does its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// How often charges are brought into the database and written to the disk.
    pub flush: Duration,
    /// How long the record of a request is kept.
    pub records: Duration,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            // Below what anybody would notice in a balance, above what a disk needs for a write.
            flush: Duration::from_millis(100),
            // A year, and the month after it in which somebody asks about that year.
            records: Duration::from_secs(400 * 86_400),
        }
    }
}

/// Below it a disk does nothing else; above it a loss of power costs more than anybody expects.
const FLUSH: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(10);
/// Below it SDKs' own heads do not fit; above it Pingora does not read on.
const HEAD: RangeInclusive<usize> = 4 << 10..=1 << 20;
/// Most threads that can be asked for.
const MAX_THREADS: i64 = 1024;

pub(super) fn read(file: &Path, text: &str, vault: &dyn Vault) -> Result<Settings, Report> {
    let document = Document::new(file, text);
    let folder = folder(file);
    let settings = document.read(|root| read_root(root, &folder, vault));
    document.into_report().into_result()?;
    settings.flatten().ok_or_else(|| Report::of_file(file, "cannot be understood"))
}

fn read_root(root: &Table<'_>, folder: &Path, vault: &dyn Vault) -> Option<Settings> {
    let limits = root.table("limits", read_limits).unwrap_or_default();
    let reload = root.table("reload", reload::read).unwrap_or_default();
    let log = root.table("log", |table| read_log(table, folder)).unwrap_or_default();
    let store = root.table("store", |table| read_store(table, folder)).unwrap_or_default();
    let (store, kept, ledger) = store;
    let store = store.unwrap_or_else(|| Store::Sqlite(folder.join("state.db")));
    root.require("server", "[server]")?;
    root.table("server", |server| {
        let mut listen = Vec::new();
        if let Some(list) = server.get("listen") {
            list.elements(|element| listen.extend(element.parsed(values::address)));
        }
        let mut tls = Vec::new();
        server.tables("tls", |listener| tls.extend(read_tls(listener, folder, vault)));
        if listen.is_empty() && tls.is_empty() && server.get("listen").is_none() {
            server.wrong("nothing to listen on", "for example: listen = [\"127.0.0.1:8080\"]".to_owned());
        }
        let admin = server.get("admin").and_then(|value| value.parsed(values::address));
        for (index, address) in listen.iter().enumerate() {
            let taken = listen.iter().skip(index + 1).any(|other| other == address)
                || tls.iter().any(|other| other.listen == *address)
                || admin == Some(*address);
            if taken && address.port() != 0 {
                server.wrong(format!("{address} is given twice"), None);
            }
        }
        let path = |key, default: &str| folder.join(server.string(key).unwrap_or_else(|| default.to_owned()));
        let threads = server.integer("threads", &(0..=MAX_THREADS)).unwrap_or(0);
        Settings {
            routes: path("routes", "routes.toml"),
            keys: path("keys", "keys.toml"),
            upgrade_socket: path("upgrade_socket", "model-gateway.upgrade.sock"),
            drain: server.duration("drain").unwrap_or(Duration::from_secs(30)),
            threads: usize::try_from(threads).unwrap_or(0),
            admin: admin.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9090))),
            listen,
            tls,
            limits,
            reload,
            log,
            store,
            kept,
            ledger,
        }
    })
}

fn read_tls(listener: &Table<'_>, folder: &Path, vault: &dyn Vault) -> Option<TlsListener> {
    let listen = listener
        .require("listen", "listen = \"0.0.0.0:8443\"")
        .and_then(|value| value.parsed(values::address));
    let file = |key: &'static str, example: &str| {
        let value = listener.require(key, example)?;
        let written = Path::new(value.as_str()?);
        if !vault.reads() {
            return Some(folder.join(written));
        }
        let path = match expand(written, folder, vault) {
            Ok(path) => path,
            Err(reason) => {
                value.wrong(reason, None);
                return None;
            }
        };
        // A listener that cannot start is found here, not by the first client.
        match std::fs::read(&path) {
            Ok(text) if text.windows(11).any(|window| window == b"-----BEGIN ") => {}
            Ok(_) => value.wrong(format!("{} holds no PEM block", path.display()), None),
            Err(error) => value.wrong(format!("{}: {error}", path.display()), None),
        }
        Some(path)
    };
    let cert = file("cert", "cert = \"/etc/model-gateway/tls.crt\"");
    let key = file("key", "key = \"/etc/model-gateway/tls.key\"");
    Some(TlsListener { listen: listen?, cert: cert?, key: key? })
}

fn read_limits(table: &Table<'_>) -> Limits {
    let default = Limits::default();
    let count = |key, range, default: usize| {
        table.integer(key, &range).and_then(|n| usize::try_from(n).ok()).unwrap_or(default)
    };
    let limits = Limits {
        body: table.size("body").unwrap_or(default.body),
        answer: table.size("answer").unwrap_or(default.answer),
        frame: table.size("frame").unwrap_or(default.frame),
        connections: count("connections", 1..=10_000_000, default.connections),
        requests: count("requests", 1..=10_000_000, default.requests),
        memory: table.size("memory").unwrap_or(default.memory),
        head: table.size("head").unwrap_or(default.head),
        header_timeout: table.duration("header_timeout").unwrap_or(default.header_timeout),
        body_timeout: table.duration("body_timeout").unwrap_or(default.body_timeout),
        keepalive: table.duration("keepalive").unwrap_or(default.keepalive),
        heartbeat: table.duration("heartbeat").unwrap_or(default.heartbeat),
        slow_start: table.duration("slow_start").unwrap_or(default.slow_start),
        write_timeout: table.duration("write_timeout").unwrap_or(default.write_timeout),
        pool: count("pool", 0..=10_000_000, default.pool),
        pool_idle: table.duration("pool_idle").unwrap_or(default.pool_idle),
        fetch_allow: table.get("fetch_allow").map(|value| read_networks(&value)).unwrap_or_default(),
        fetch: table.size("fetch").unwrap_or(default.fetch),
        fetches: count("fetches", 1..=1_000_000, default.fetches),
        fetch_timeout: table.duration("fetch_timeout").unwrap_or(default.fetch_timeout),
    };
    if limits.memory < limits.body {
        table.wrong("memory is smaller than body", "the largest body must fit".to_owned());
    }
    if !HEAD.contains(&limits.head) {
        table.wrong("head must be from 4KiB to 1MiB", "for example: head = \"64KiB\"".to_owned());
    }
    if limits.body == 0 {
        table.wrong("a body limit of 0 refuses every request", "for example: body = \"64MiB\"".to_owned());
    }
    limits
}

fn read_networks(value: &Value<'_>) -> Vec<Network> {
    let mut networks = Vec::new();
    value.elements(|element| {
        let wanted = || "for example: \"10.0.0.0/8\" or \"192.0.2.7\"".to_owned();
        networks.extend(element.parsed(|text| Network::parse(text).ok_or_else(wanted)));
    });
    networks
}

fn read_log(table: &Table<'_>, folder: &Path) -> Log {
    let default = Log::default();
    let level = table.get("level").and_then(|value| {
        value.parsed(|text| {
            // The filter would take a misspelt level for the name of a module, and nothing would be logged.
            let words = text.split(',').map(str::trim).filter(|part| !part.contains(['=', '[']));
            let levels = words.filter(|word| !word.is_empty()).all(is_level);
            text.parse::<tracing_subscriber::filter::EnvFilter>()
                .ok()
                .filter(|_| levels)
                .map(|_| text.to_owned())
                .ok_or_else(|| "write error, warn, info, debug or trace".to_owned())
        })
    });
    let format = table.get("format").and_then(|value| {
        value.parsed(|text| match text {
            "json" => Ok(LogFormat::Json),
            "text" => Ok(LogFormat::Text),
            _ => Err("write \"json\" or \"text\"".to_owned()),
        })
    });
    let access = table.string("access").map(|text| match text.as_str() {
        "off" => AccessLog::Off,
        "stdout" => AccessLog::Stdout,
        path => AccessLog::File(folder.join(path)),
    });
    Log {
        level: level.unwrap_or(default.level),
        format: format.unwrap_or_default(),
        access: access.unwrap_or_default(),
    }
}

fn is_level(word: &str) -> bool {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    levels.iter().any(|level| word.eq_ignore_ascii_case(level))
}

fn refuses_foreign(table: &Table<'_>) -> Option<bool> {
    table.get("foreign_responses").and_then(|value| {
        value.parsed(|text| match text {
            "allow" => Ok(false),
            "refuse" => Ok(true),
            _ => Err("write \"allow\" or \"refuse\"".to_owned()),
        })
    })
}

fn read_store(table: &Table<'_>, folder: &Path) -> (Option<Store>, Kept, Ledger) {
    let sqlite = table.string("sqlite").map(|path| Store::Sqlite(folder.join(path)));
    let valkey = fleet::read(table, folder).map(Store::Valkey);
    if sqlite.is_some() && valkey.is_some() {
        table.wrong("both sqlite and valkey are given", "give one of them".to_owned());
    }
    let default = Kept::default();
    let kept = Kept {
        lifetime: table.duration("response_lifetime").unwrap_or(default.lifetime),
        response: table.size("response_limit").unwrap_or(default.response),
        total: table.size("total_limit").unwrap_or(default.total),
        seal_lifetime: table.duration("seal_lifetime").unwrap_or(default.seal_lifetime),
        seal_total: table.size("seal_limit").unwrap_or(default.seal_total),
        refuse_foreign: refuses_foreign(table).unwrap_or(default.refuse_foreign),
    };
    if kept.response > kept.total {
        table.wrong("response_limit is larger than total_limit", "one response must fit".to_owned());
    }
    let default = Ledger::default();
    let ledger = Ledger {
        flush: table.duration("flush").unwrap_or(default.flush),
        records: table.duration("record_lifetime").unwrap_or(default.records),
    };
    if !FLUSH.contains(&ledger.flush) {
        table.wrong("flush is out of range", "from \"5ms\" to \"10s\"".to_owned());
    }
    (valkey.or(sqlite), kept, ledger)
}
