//! routes.toml: providers, and the whole of the file.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::catalogue::CataloguePrices;
use super::node::{ConfigTable, TomlDocument, Value};
use super::report::{Report, closest};
use super::secret::{self, Vault};
use super::sources::SourceText;
use super::work_limit::given_up;
use super::{Secret, aws, client_identity, cloud, folder, guardrail, models, prices, routing_rules, tokens};
use codec::catalogue::Catalogue;
use codec::provider::{BaseUrl, Check, HttpVersion, Preset, Provider, ProviderKind, Setup, Timeouts};
use codec::wire::Api;
use routing::account::Tokens;
use routing::route::{Policy, RetryRules, RoutingRules, RoutingTable as Routes, alias};

/// Maximum number of models. Each takes some 5 KB while a configuration is checked.
const MAX_MODELS: usize = 100_000;
/// Smallest `check.every`.
const CHECK_LEAST: Duration = Duration::from_millis(100);

/// Reads a file that routes.toml names.
pub(super) type ReadFile<'b> = &'b dyn Fn(&Path) -> std::io::Result<String>;

/// Contents of routes.toml.
pub(super) struct Routed {
    pub(super) routes: Routes,
    pub(super) tokens: Option<Tokens>,
}

/// Settings that only the main file may have.
const MAIN_ONLY: [&str; 5] = ["prices", "claude_alias", "breaker", "retry", "tokens"];

/// Reads the files of routes: the main file with the settings, and further files with providers and models.
pub(super) fn read_files(
    files: &[SourceText<'_>],
    catalogue: &Arc<Catalogue>,
    vault: &dyn Vault,
    beside: ReadFile<'_>,
) -> Result<Routed, Report> {
    let documents: Vec<TomlDocument<'_>> =
        files.iter().map(|file| TomlDocument::new(file.path, file.text)).collect();
    let mut price_faults = Report::default();
    let routed = {
        let parsed: Vec<_> = documents.iter().map(TomlDocument::parse).collect();
        // With a file missing, references to its providers would be reported as faults.
        let complete = parsed.iter().all(Option::is_some);
        let mut roots: Vec<ConfigTable<'_>> = Vec::new();
        if complete {
            roots.extend(
                documents.iter().zip(&parsed).filter_map(|(file, root)| Some(file.root(root.as_ref()?))),
            );
        }
        let folders: Vec<PathBuf> = files.iter().map(|file| folder(file.path)).collect();
        let routed = read_tables(&roots, &folders, catalogue, (vault, beside), &mut price_faults);
        roots.into_iter().for_each(ConfigTable::finish);
        routed
    };
    // Faults of the price file follow those of the files of routes.
    let mut report = Report::default();
    documents.into_iter().for_each(|document| report.merge(document.into_report()));
    report.merge(price_faults);
    let main = files.first().map_or(Path::new(""), |file| file.path);
    if vault.is_over() {
        return Err(given_up(main));
    }
    report.into_result()?;
    routed.ok_or_else(|| Report::of_file(main, "is not valid"))
}

/// What a provider's table is read with.
#[derive(Clone, Copy)]
struct Surroundings<'s> {
    folder: &'s Path,
    vault: &'s dyn Vault,
    catalogue: &'s Arc<Catalogue>,
}

/// Providers of all files.
#[derive(Default)]
struct KnownProviders {
    providers: Vec<Arc<Provider>>,
    /// Names of all providers, including those with faults.
    names: Vec<String>,
    /// Providers by their names; `None` for one with faults.
    by_name: HashMap<String, Option<Arc<Provider>>>,
}

impl KnownProviders {
    fn read(&mut self, root: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault, catalogue: &Arc<Catalogue>) {
        root.tables("provider", |table| {
            if vault.is_over() {
                return;
            }
            let name = table.require("name", "name = \"openai\"").and_then(|name| {
                let text = name.as_str()?.to_owned();
                if self.by_name.contains_key(&text) {
                    name.wrong(format!("the provider \"{text}\" is defined twice"), None);
                } else if text.is_empty() || text.len() > 64 {
                    name.wrong("a name must have 1 to 64 bytes", None);
                }
                Some(text)
            });
            let at = Surroundings { folder, vault, catalogue };
            let provider = read_provider(table, name.clone().unwrap_or_default(), &at);
            if let Some(name) = name.filter(|name| !name.is_empty() && !self.by_name.contains_key(name)) {
                // The name is known even if the provider has faults, so that models do not report it as unknown.
                let provider = provider.map(Arc::new);
                self.providers.extend(provider.clone());
                self.names.push(name.clone());
                self.by_name.insert(name, provider);
            }
        });
    }
}

/// Reads the root tables of all files. `None` if there is none.
fn read_tables(
    roots: &[ConfigTable<'_>],
    folders: &[PathBuf],
    catalogue: &Arc<Catalogue>,
    (vault, beside): (&dyn Vault, ReadFile<'_>),
    price_faults: &mut Report,
) -> Option<Routed> {
    let (root, included) = roots.split_first()?;
    let main_folder = folders.first()?;
    for root in included {
        for key in MAIN_ONLY {
            if let Some(value) = root.get(key) {
                value.wrong(format!("{key} may be set in the first file only"), None);
            }
        }
    }
    let prices = root.get("prices").and_then(|value| {
        let path = main_folder.join(value.as_str()?);
        match beside(&path) {
            Ok(text) => prices::read(&path, &text).map_err(|report| *price_faults = report).ok(),
            Err(error) => {
                value.wrong(format!("{}: {error}", path.display()), None);
                None
            }
        }
    });
    let prices = prices.unwrap_or_default();
    let alias = root.get("claude_alias").and_then(|value| value.parsed(alias_prefix));
    let mut known = KnownProviders::default();
    roots.iter().zip(folders).for_each(|(root, folder)| known.read(root, folder, vault, catalogue));
    let breaker = routing_rules::read_breaker(root);
    let mut resumes = None;
    let retry = root.table("retry", |table| {
        resumes = table.get("continue").map(|value| value.position());
        routing_rules::read_retry(table, RetryRules::default())
    });
    let usual = RoutingRules { policy: Policy::default(), retry: retry.unwrap_or_default(), breaker };
    let context = models::ModelContext {
        providers: &known.by_name,
        names: &known.names,
        prices: &prices,
        catalogue: CataloguePrices::new(catalogue),
        defaults: usual,
        resumes,
    };
    let (mut drafts, mut ids, mut count) = (Vec::new(), HashSet::new(), 0);
    for (file, root) in roots.iter().enumerate() {
        root.tables("model", |table| {
            count += 1;
            if !vault.is_over() && count <= MAX_MODELS {
                drafts.extend(models::read(table, &context, &mut ids, file));
            }
        });
    }
    if count > MAX_MODELS {
        root.wrong(format!("{count} models are defined; the maximum is {MAX_MODELS}"), None);
        drafts.clear();
    }
    let tokens = root.table("tokens", |table| tokens::read(table, main_folder, vault)).flatten();
    if vault.is_over() {
        return None;
    }
    let models = models::join(roots, drafts);
    let routes = Routes::new(models, known.providers);
    Some(Routed { routes: routes.with_aliases(alias.as_deref().unwrap_or(alias::DEFAULT_PREFIX)), tokens })
}

/// Reads the prefix of the aliases for Claude Code.
fn alias_prefix(text: &str) -> Result<String, String> {
    let shown = ["claude", "anthropic"].iter().any(|word| text.to_ascii_lowercase().contains(word));
    let sound = text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    if text.is_empty() || (shown && sound) {
        return Ok(text.to_owned());
    }
    Err("write up to 64 visible ASCII characters with \"claude\" or \"anthropic\" among them, or \"\" for no aliases".to_owned())
}

/// Reads whether streams go over WebSockets. A provider where they could not is an error.
fn read_websocket(value: &Value<'_>, kind: ProviderKind, apis: &[Api], http: HttpVersion) -> bool {
    let wanted = value.as_bool().unwrap_or(false);
    let missing = if kind != ProviderKind::OpenAi {
        "only providers of the kind \"openai\" have WebSockets"
    } else if !apis.contains(&Api::Responses) {
        "only the API \"responses\" has WebSockets, and `apis` does not list it"
    } else if http == HttpVersion::Http2 {
        "a WebSocket needs HTTP/1.1, and `http` is \"2\""
    } else {
        return wanted;
    };
    if wanted {
        value.wrong(missing, "remove `websocket`".to_owned());
    }
    false
}

#[expect(clippy::too_many_lines, reason = "one line for each setting")]
fn read_provider(table: &ConfigTable<'_>, name: String, at: &Surroundings<'_>) -> Option<Provider> {
    let Surroundings { folder, vault, catalogue } = *at;
    let kind = table.require("kind", "kind = \"openai\"").and_then(|value| {
        value.parsed(|text| {
            ProviderKind::from_name(text).ok_or_else(|| {
                let known = ProviderKind::ALL.map(ProviderKind::name);
                one_of(text, &known)
            })
        })
    });
    let configured = table.get("base_url").map(|value| {
        // A rejected URL may contain a password.
        let value = value.hidden_where(|text| text.contains('@'));
        value.parsed(|text| BaseUrl::parse(text).map_err(|error| error.to_string()))
    });
    let host = configured.as_ref().and_then(|base| Some(base.as_ref()?.host()));
    let has_aws = table.get("aws").is_some();
    let cloud = cloud::read(table, kind, folder, vault);
    let credential = if has_aws && table.get("credential").is_none() {
        None
    } else {
        read_credential(table, kind, cloud.is_set, folder, vault)
    };
    let aws = table.table("aws", |aws| aws::read(aws, kind, host, credential.as_ref(), (folder, vault)));
    let aws = aws.flatten();
    let base = match (configured, kind.and_then(ProviderKind::default_base_url)) {
        (Some(base), _) => base,
        (None, Some(default)) => BaseUrl::parse(default).ok(),
        // A fault of `aws` is reported already.
        (None, None) if kind == Some(ProviderKind::Bedrock) && has_aws => {
            aws.as_ref().and_then(|aws| BaseUrl::parse(&aws::bedrock_url(&aws.region)).ok())
        }
        (None, None) => {
            if kind.is_some() {
                table.require("base_url", "base_url = \"http://127.0.0.1:8000/v1\"");
            }
            None
        }
    };
    let apis = table.get("apis").map(|value| read_apis(&value));
    let row = table.get("dialect").and_then(|value| {
        value.parsed(|text| {
            Preset::from_name(text).ok_or_else(|| one_of(text, &Preset::ALL.map(Preset::name)))
        })
    });
    let api_version = table.string("api_version");
    let http = table.get("http").and_then(|value| {
        value.parsed(|text| match text {
            "auto" => Ok(HttpVersion::Auto),
            "1.1" => Ok(HttpVersion::Http1),
            "2" => Ok(HttpVersion::Http2),
            other => Err(one_of(other, &["auto", "1.1", "2"])),
        })
    });
    let timeouts = table.table("timeouts", |table| {
        let default = Timeouts::default();
        Timeouts {
            connect: table.duration("connect").unwrap_or(default.connect),
            first_byte: table.duration("first_byte").unwrap_or(default.first_byte),
            idle: table.duration("idle").unwrap_or(default.idle),
            total: table.duration("total").unwrap_or(default.total),
            min_rate: table.size("min_rate").map_or(default.min_rate, |rate| rate as u64),
            rate_window: table.duration("rate_window").unwrap_or(default.rate_window),
        }
    });
    let check = table.table("check", read_check);
    let roots = table.get("ca").and_then(|value| read_roots(&value, folder, vault));
    let identity = client_identity::read(table, base.as_ref(), folder, vault);
    let headers = table.table("headers", read_headers).unwrap_or_default();
    let ask_usage = table.boolean("ask_usage");
    let forward_client = table.boolean("forward_client");
    let think_tags = table.boolean("think_tags");
    let errors = table.get("errors").and_then(|value| {
        value.parsed(|text| match text {
            "standard" => Ok(true),
            "own" => Ok(false),
            other => Err(one_of(other, &["standard", "own"])),
        })
    });
    let prefill = table.boolean("prefill");
    let served_tier = table.get("served_tier").and_then(|value| {
        value.parsed(|text| match text {
            "answer" => Ok(true),
            "request" => Ok(false),
            other => Err(one_of(other, &["answer", "request"])),
        })
    });
    let websocket = table.get("websocket");
    let guardrail = table.get("guardrail").and_then(|value| guardrail::read(&value, kind));
    let kind = kind?;
    let apis = match apis {
        Some(apis) => apis?,
        None => kind.default_apis().to_vec(),
    };
    let websocket =
        websocket.is_some_and(|value| read_websocket(&value, kind, &apis, http.unwrap_or_default()));
    let mut provider = Provider::new(Setup { name, kind, apis, base: base? });
    let (access, bearer) = aws.map_or((None, None), |aws| (aws.access, aws.bearer));
    // A secret access key only signs: it is never sent.
    if let Some(secret) = credential.or(bearer).filter(|_| access.is_none()) {
        provider.set_credential(secret.expose()).ok()?;
    }
    provider.cloud = access;
    provider.preset = row.unwrap_or(provider.preset);
    provider.api_version = api_version.map(String::into_boxed_str);
    provider.http = http.unwrap_or_default();
    provider.timeouts = timeouts.unwrap_or_default();
    provider.check = check;
    provider.roots = roots;
    provider.client_identity = identity;
    provider.headers = headers;
    provider.catalogue = catalogue.clone();
    cloud.apply(&mut provider);
    provider.ask_usage = ask_usage.unwrap_or_else(|| provider.takes_stream_options());
    provider.think_tags = think_tags.unwrap_or(false);
    provider.prefill = prefill;
    provider.states_tier = served_tier.unwrap_or(true);
    provider.standard_errors = errors.unwrap_or(true);
    provider.forward_client = forward_client.unwrap_or(false);
    provider.websocket = websocket;
    provider.guardrail = guardrail;
    Some(provider)
}

pub(super) fn one_of(text: &str, known: &[&str]) -> String {
    match closest(text, known.iter().copied()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("write one of {}", known.join(", ")),
    }
}

fn read_apis(value: &Value<'_>) -> Option<Vec<Api>> {
    let mut apis = Vec::new();
    let count = value.elements(|element| {
        let api = element.parsed(|text| {
            Api::from_name(text).ok_or_else(|| {
                let known = Api::ALL.map(Api::name);
                one_of(text, &known)
            })
        });
        if let Some(api) = api {
            if apis.contains(&api) {
                element.wrong(format!("{api} is listed twice"), None);
            } else {
                apis.push(api);
            }
        }
    });
    if count == Some(0) {
        value.wrong("a provider must have at least one API", "omit `apis` to enable all of them".to_owned());
    }
    (!apis.is_empty()).then_some(apis)
}

fn read_credential(
    table: &ConfigTable<'_>,
    kind: Option<ProviderKind>,
    is_cloud: bool,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<Secret> {
    const EXAMPLE: &str =
        "credential = { env = \"OPENAI_API_KEY\" }, or { file = \"%d/openai\" }, or { value = \"...\" }";
    let Some(value) = table.get("credential").map(Value::hidden) else {
        if !is_cloud && kind.is_some_and(ProviderKind::needs_credential) {
            table.require("credential", EXAMPLE);
        }
        return None;
    };
    if is_cloud {
        value.wrong("a provider has either credential or the tokens of a cloud platform", None);
    }
    secret::read(&value, "credential", EXAMPLE, folder, vault)
}

/// Reads the health check of a provider.
fn read_check(table: &ConfigTable<'_>) -> Check {
    let default = Check::default();
    let span = |key: &'static str, default: Duration, least: Duration| {
        let span = table.duration(key).unwrap_or(default);
        if span < least {
            table.wrong(format!("{key} is less than {}ms", least.as_millis()), None);
        }
        span
    };
    let path = table.get("path").and_then(|value| {
        value.parsed(|text| {
            let sound =
                text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
            sound.then(|| text.into()).ok_or_else(|| {
                "write a path that starts with a slash and has no spaces, such as \"/v1/models\"".to_owned()
            })
        })
    });
    Check {
        path,
        every: span("every", default.every, CHECK_LEAST),
        timeout: span("timeout", default.timeout, Duration::from_millis(1)),
    }
}

fn read_roots(value: &Value<'_>, folder: &Path, vault: &dyn Vault) -> Option<Vec<Vec<u8>>> {
    let written = Path::new(value.as_str()?);
    if !vault.reads() {
        return None;
    }
    let read = secret::expand(written, folder, vault).and_then(|path| {
        let text = vault.file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok((path, text))
    });
    let (path, text) = read.map_err(|reason| value.wrong(reason, None)).ok()?;
    let roots: Option<Vec<Vec<u8>>> = pem_certificates(&text);
    let sound = |der: &Vec<u8>| x509_parser::parse_x509_certificate(der).is_ok();
    if roots.as_ref().is_none_or(|roots| roots.is_empty() || !roots.iter().all(sound)) {
        value.wrong(format!("{} has no valid certificate", path.display()), "give a PEM file".to_owned());
        return None;
    }
    roots
}

/// Returns the DER bytes of every certificate in a PEM text, or `None` if a block is malformed.
fn pem_certificates(text: &str) -> Option<Vec<Vec<u8>>> {
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes());
    certificates.map(|certificate| Some(certificate.ok()?.to_vec())).collect()
}

fn read_headers(table: &ConfigTable<'_>) -> Vec<(http::HeaderName, http::HeaderValue)> {
    let mut headers = Vec::new();
    table.entries(|name, value| {
        let header = http::HeaderName::from_bytes(name.as_bytes()).ok();
        let managed = ["host", "content-length", "transfer-encoding", "connection", "content-type"];
        if header.is_none() || managed.contains(&name.to_ascii_lowercase().as_str()) {
            value.wrong(
                format!("{name} cannot be set"),
                "choose a header that the gateway does not manage itself".to_owned(),
            );
            return;
        }
        let text = value.parsed(|text| {
            http::HeaderValue::from_str(text).map_err(|_| "use visible ASCII characters only".to_owned())
        });
        let text = text.map(|mut text| {
            text.set_sensitive(true);
            text
        });
        headers.extend(header.zip(text));
    });
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_certificates_are_read_between_other_text() {
        let block =
            |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        let certificate = |body: &str| block("CERTIFICATE", body);
        let two = format!("# first\n{}\r\n# second\n{}", certificate("AQID"), certificate("AQ\nID\nBA=="));
        assert_eq!(pem_certificates(&two), Some(vec![vec![1, 2, 3], vec![1, 2, 3, 4]]));
        for none in ["", "AQID", &block("PRIVATE KEY", "AQID"), &block("UNKNOWN", "AQID")] {
            assert_eq!(pem_certificates(none), Some(Vec::new()), "{none}");
        }
        let unfinished = certificate("AQID").replace("END", "");
        for malformed in [certificate("A"), certificate("?"), certificate("AQID") + &unfinished] {
            assert_eq!(pem_certificates(&malformed), None, "{malformed}");
        }
    }
}
