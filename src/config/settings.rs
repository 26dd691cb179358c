//! gateway.toml: listeners, logs and the store. Read once, at startup. The limits are in `limits`.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::admin::{self, AdminApiSettings};
use super::fleet::{self, FleetSettings};
use super::limits::{Limits, read_limits};
use super::listeners::{self, CorsRule, HttpListener, Listeners, TlsListener};
use super::node::{ConfigTable, TomlDocument};
use super::overrides::{Layer, Overrides, SettingOverride, file_of};
use super::report::{Problem, Report};
use super::sources::{self, ConfigSources, SnapshotSources};
use super::telemetry::{self, TelemetrySettings};
use super::values;
use super::{ReloadRules, Vault, folder, reload};
use routing::account::TrustedProxies;

/// Settings of gateway.toml, with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Plaintext listeners: HTTP/1.1 and h2c.
    pub listen: Vec<SocketAddr>,
    /// Plaintext listeners with settings of their own.
    pub http: Vec<HttpListener>,
    /// TLS listeners: ALPN h2 and http/1.1.
    pub tls: Vec<TlsListener>,
    /// Proxies whose statements about the client are believed.
    pub trusted_proxies: TrustedProxies,
    /// Rules for web pages of other origins.
    pub cors: Vec<CorsRule>,
    /// Address of the admin port (metrics and health).
    pub admin: SocketAddr,
    /// Files of routes, without the folder of the admin API.
    pub routes: ConfigSources,
    /// Files of keys, without the folder of the admin API.
    pub keys: ConfigSources,
    /// File that is laid over the embedded catalogue of models. `None` for the embedded one alone.
    pub catalogue: Option<PathBuf>,
    /// Worker threads; 0 for one per core.
    pub threads: usize,
    /// Socket over which a new process takes over the listeners (SIGQUIT).
    pub upgrade_socket: PathBuf,
    /// Whether the responses API is served over WebSocket too.
    pub websocket: bool,
    /// Lame duck time: how long a process that was told to stop goes on to accept, while it is not ready.
    pub lame_duck: Duration,
    /// Drain limit: how long a shutdown waits for requests in flight.
    pub drain: Duration,
    /// Resource limits and time-outs.
    pub limits: Limits,
    /// Rules of a reload.
    pub reload: ReloadRules,
    /// Log settings.
    pub log: LogSettings,
    /// Store backend.
    pub store: StoreSettings,
    /// Whether requests of keys with an account are refused for models without a price.
    pub refuse_unpriced: bool,
    /// Retention of stored responses and provider signatures.
    pub retention: RetentionSettings,
    /// Ledger settings.
    pub ledger: LedgerSettings,
    /// Settings of the admin API.
    pub admin_api: AdminApiSettings,
    /// Telemetry over OTLP.
    pub telemetry: TelemetrySettings,
    /// Warnings: what gateway.toml sets without effect, or what a later operation cannot carry out.
    pub warnings: Vec<Problem>,
    /// Settings that the environment overrides.
    pub overrides: Vec<SettingOverride>,
}

impl Settings {
    /// Returns the addresses of all listeners, those with plaintext first.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let http = self.http.iter().map(|http| http.listen);
        self.listen.iter().copied().chain(http).chain(self.tls.iter().map(|tls| tls.listen))
    }

    /// Returns the files of the snapshot, those of the admin API included.
    pub fn sources(&self) -> SnapshotSources {
        let sources = SnapshotSources::new(&self.routes, &self.keys, &self.admin_api.state);
        SnapshotSources { catalogue: self.catalogue.clone(), ..sources }
    }
}

/// Log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// JSON lines.
    #[default]
    Json,
    /// Human-readable text.
    Text,
}

/// Destination of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLogSettings {
    /// Disabled.
    Off,
    /// Standard output, which systemd forwards to the journal.
    #[default]
    Stdout,
    /// File, opened for appending, and reopened on SIGHUP.
    File(PathBuf),
}

/// Log settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Log filter in the syntax of `tracing-subscriber`'s `EnvFilter`: `info`, `model_gateway=debug,warn`.
    pub level: String,
    /// Format of log lines.
    pub format: LogFormat,
    /// Destination of the access log.
    pub access: AccessLogSettings,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            level: "info".to_owned(),
            format: LogFormat::default(),
            access: AccessLogSettings::default(),
        }
    }
}

/// Store backend for balances, usage, stored responses and tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    /// SQLite database file.
    Sqlite(PathBuf),
    /// Valkey or Redis server that a fleet of gateways shares.
    Valkey(FleetSettings),
}

/// Retention of stored responses and provider signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Lifetime of a stored response; zero disables storing.
    pub lifetime: Duration,
    /// Largest stored response including the conversation before it, bytes.
    pub response: usize,
    /// All stored responses together, bytes.
    pub total: usize,
    /// Lifetime of a stored provider signature; zero disables storing.
    pub seal_lifetime: Duration,
    /// All stored provider signatures together, bytes.
    pub seal_total: usize,
    /// Whether to refuse requests that continue a response or conversation whose owner the gateway does not know.
    pub refuse_foreign: bool,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        RetentionSettings {
            // Same as OpenAI's retention of responses.
            lifetime: Duration::from_secs(30 * 86_400),
            // Fits a context of a million tokens and some images.
            response: 16 << 20,
            // Fits on any disk; a conversation of 20 turns takes about 100 kB.
            total: 1 << 30,
            // Same as responses: the signatures are needed as long as the conversation continues.
            seal_lifetime: Duration::from_secs(30 * 86_400),
            // About a hundred thousand turns with signed reasoning.
            seal_total: 256 << 20,
            // Off, so that conversations from before an upgrade, or created directly at the provider, can be continued.
            refuse_foreign: false,
        }
    }
}

/// Ledger settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Interval at which charges are applied to the database and synced to disk.
    pub flush: Duration,
    /// Retention of usage records.
    pub records: Duration,
}

impl Default for LedgerSettings {
    fn default() -> Self {
        LedgerSettings {
            // Short enough for a balance to look current, long enough for a disk to complete a write.
            flush: Duration::from_millis(100),
            // A year, plus the month after it in which that year is reported.
            records: Duration::from_secs(400 * 86_400),
        }
    }
}

/// Range of `store.flush`. A shorter interval saturates the disk; a longer one loses too many charges on a power
/// failure.
const FLUSH: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(10);
/// Largest value of `server.threads`.
const MAX_THREADS: i64 = 1024;
/// Maximum number of listeners. An upgrade transfers all of them at once, and Pingora's transfer carries at most 32
/// sockets and 2,048 bytes of addresses. The longest address, IPv6 with a scope id, has 58 bytes and a separator.
const MAX_LISTENERS: usize = 32;
const _: () = assert!(MAX_LISTENERS * (58 + 1) <= 2_048);

/// Reads the text of gateway.toml, with the settings that the environment overrides.
pub(super) fn read(
    file: &Path,
    text: &str,
    overrides: &Overrides,
    vault: &dyn Vault,
) -> Result<Settings, Report> {
    let texts: Vec<TomlDocument<'_>> = overrides
        .iter()
        .map(|value| TomlDocument::new(&file_of(&value.origin.variable), &value.text))
        .collect();
    let layers: Vec<Layer<'_>> =
        texts.iter().zip(overrides.iter()).filter_map(|(text, value)| Layer::parse(text, value)).collect();
    let document = TomlDocument::new(file, text).with_layers(&layers);
    let folder = folder(file);
    let settings = document.read(|root| read_root(root, &folder, vault));
    let mut report = Report::default();
    let mut warnings = Vec::new();
    match document.into_warnings() {
        Ok(found) => warnings.extend(found),
        Err(faults) => report.merge(faults),
    }
    drop(layers);
    for text in texts {
        match text.into_warnings() {
            Ok(found) => warnings.extend(found),
            Err(faults) => report.merge(faults),
        }
    }
    report.into_result()?;
    let settings = settings.flatten().ok_or_else(|| Report::of_file(file, "is not valid"))?;
    Ok(Settings { warnings, overrides: overrides.origins(), ..settings })
}

fn read_root(root: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> Option<Settings> {
    let limits = root.table("limits", read_limits).unwrap_or_default();
    let reload = root.table("reload", reload::read).unwrap_or_default();
    let log = root.table("log", |table| read_log(table, folder)).unwrap_or_default();
    let store = root.table("store", |table| read_store(table, folder, vault)).unwrap_or_default();
    let (store, retention, ledger) = store;
    let refuse_unpriced = root.table("accounts", refuses_unpriced).flatten().unwrap_or(false);
    let store = store.unwrap_or_else(|| StoreSettings::Sqlite(folder.join("state.db")));
    let admin_api = admin::read(root, folder, &store, vault);
    let telemetry = telemetry::read(root, folder, vault);
    let catalogue = root.string("catalogue").map(|path| folder.join(path));
    root.require("server", "[server]")?;
    root.table("server", |server| {
        let mut listen = Vec::new();
        if let Some(list) = server.get("listen") {
            list.elements(|element| listen.extend(element.parsed(values::address)));
        }
        let Listeners { http, tls, trusted_proxies, cors } = listeners::read(server, folder, vault);
        let admin = server.get("admin").and_then(|value| value.parsed(values::address));
        if let Some(address) = admin {
            admin::check_reach(server, address, &admin_api);
        }
        let others = http.iter().map(|http| http.listen).chain(tls.iter().map(|tls| tls.listen));
        let addresses: Vec<SocketAddr> = listen.iter().copied().chain(others).collect();
        check_addresses(server, &addresses, admin);
        let path = |key, default: &str| folder.join(server.string(key).unwrap_or_else(|| default.to_owned()));
        let threads = server.integer("threads", &(0..=MAX_THREADS)).unwrap_or(0);
        Settings {
            routes: sources::read(server, "routes", "routes.toml", folder),
            keys: sources::read(server, "keys", "keys.toml", folder),
            catalogue,
            upgrade_socket: path("upgrade_socket", "model-gateway.upgrade.sock"),
            websocket: server.boolean("websocket").unwrap_or(true),
            // Only a balancer that reads /readyz makes use of it, and the interval of its checks decides how long it takes.
            // Without one, a stop would take longer for nothing.
            lame_duck: server.duration("lame_duck").unwrap_or(Duration::ZERO),
            drain: server.duration("drain").unwrap_or(Duration::from_secs(30)),
            threads: usize::try_from(threads).unwrap_or(0),
            admin: admin.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9090))),
            listen,
            http,
            tls,
            trusted_proxies,
            cors,
            limits,
            reload,
            log,
            store,
            refuse_unpriced,
            retention,
            ledger,
            admin_api,
            telemetry,
            warnings: Vec::new(),
            overrides: Vec::new(),
        }
    })
}

/// Checks the addresses of the listeners: there is one, and none is that of another or of the admin port.
fn check_addresses(server: &ConfigTable<'_>, addresses: &[SocketAddr], admin: Option<SocketAddr>) {
    if addresses.is_empty() && server.get("listen").is_none() {
        server.wrong("no listener is configured", "for example: listen = [\"127.0.0.1:8080\"]".to_owned());
    }
    let count = addresses.len();
    if count > MAX_LISTENERS {
        let message = format!("listen and tls have {count} listeners");
        let hint = format!("an upgrade can pass on at most {MAX_LISTENERS} listeners");
        server.warn(message, hint);
    }
    let mut seen: HashSet<SocketAddr> = admin.into_iter().collect();
    for address in addresses {
        if !seen.insert(*address) && address.port() != 0 {
            server.wrong(format!("{address} is listed twice"), None);
        }
    }
}

fn read_log(table: &ConfigTable<'_>, folder: &Path) -> LogSettings {
    let default = LogSettings::default();
    let level = table.get("level").and_then(|value| {
        value.parsed(|text| {
            // `EnvFilter` takes a misspelt level for a module name, and then nothing is logged.
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
        "off" => AccessLogSettings::Off,
        "stdout" => AccessLogSettings::Stdout,
        path => AccessLogSettings::File(folder.join(path)),
    });
    LogSettings {
        level: level.unwrap_or(default.level),
        format: format.unwrap_or_default(),
        access: access.unwrap_or_default(),
    }
}

fn is_level(word: &str) -> bool {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    levels.iter().any(|level| word.eq_ignore_ascii_case(level))
}

fn refuses_unpriced(table: &ConfigTable<'_>) -> Option<bool> {
    table.get("unpriced")?.parsed(|text| match text {
        "free" => Ok(false),
        "refuse" => Ok(true),
        _ => Err("write \"refuse\" or \"free\"".to_owned()),
    })
}

fn refuses_foreign(table: &ConfigTable<'_>) -> Option<bool> {
    table.get("foreign_responses").and_then(|value| {
        value.parsed(|text| match text {
            "allow" => Ok(false),
            "refuse" => Ok(true),
            _ => Err("write \"allow\" or \"refuse\"".to_owned()),
        })
    })
}

fn read_store(
    table: &ConfigTable<'_>,
    folder: &Path,
    vault: &dyn Vault,
) -> (Option<StoreSettings>, RetentionSettings, LedgerSettings) {
    let sqlite = table.string("sqlite").map(|path| StoreSettings::Sqlite(folder.join(path)));
    let valkey = fleet::read(table, folder, vault).map(StoreSettings::Valkey);
    if sqlite.is_some() && valkey.is_some() {
        table.wrong("both sqlite and valkey are set", "set only one of them".to_owned());
    }
    let default = RetentionSettings::default();
    let retention = RetentionSettings {
        lifetime: table.duration("response_lifetime").unwrap_or(default.lifetime),
        response: table.size("response_limit").unwrap_or(default.response),
        total: table.size("total_limit").unwrap_or(default.total),
        seal_lifetime: table.duration("seal_lifetime").unwrap_or(default.seal_lifetime),
        seal_total: table.size("seal_limit").unwrap_or(default.seal_total),
        refuse_foreign: refuses_foreign(table).unwrap_or(default.refuse_foreign),
    };
    if retention.response > retention.total {
        table.wrong(
            "response_limit is larger than total_limit",
            "total_limit must hold at least one response".to_owned(),
        );
    }
    let default = LedgerSettings::default();
    let ledger = LedgerSettings {
        flush: table.duration("flush").unwrap_or(default.flush),
        records: table.duration("record_lifetime").unwrap_or(default.records),
    };
    if !FLUSH.contains(&ledger.flush) {
        table.wrong("flush is out of range", "write a time from \"5ms\" to \"10s\"".to_owned());
    }
    (valkey.or(sqlite), retention, ledger)
}
