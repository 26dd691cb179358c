//! Configuration of a gateway under test, as text and as files.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use model_gateway::account::KeyHash;

use super::form::Form;

/// Valid key.
pub(crate) const KEY: &str = "client-key-of-alice-0001";
/// Disabled key.
pub(crate) const DISABLED_KEY: &str = "client-key-of-dora-0002";
/// Expired key.
pub(crate) const EXPIRED_KEY: &str = "client-key-of-emil-0003";
/// Key that permits `gpt` and the models whose names begin with `fast-`.
pub(crate) const NARROW_KEY: &str = "client-key-of-nora-0004";

/// Credential of the providers in [`Setup::providers`].
pub(crate) const CREDENTIAL: &str = "upstream-secret-of-the-gateway";

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Lines of gateway.toml before its first table.
    pub(crate) top: String,
    /// Lines of `[server]`, in addition to the addresses.
    pub(crate) server: String,
    /// Lines of `[limits]`.
    pub(crate) limits: String,
    /// Lines of `[log]`, in addition to the access log.
    pub(crate) log: String,
    /// Text of routes.toml.
    pub(crate) routes: String,
    /// Text of keys.toml.
    pub(crate) keys: String,
    /// Certificate chain and key of the TLS listener, PEM.
    pub(crate) tls: Option<(String, String)>,
    /// Further files in the folder of the configuration, by name.
    pub(crate) files: Vec<(String, String)>,
    /// Accounts that exist from the start, with their credit.
    pub(crate) accounts: Vec<(&'static str, &'static str)>,
}

impl Setup {
    /// Returns a configuration with the usual keys and no routes.
    pub(crate) fn new() -> Setup {
        let mut keys = String::new();
        keys += &key("alice", KEY, "");
        keys += &key("dora", DISABLED_KEY, "enabled = false");
        keys += &key("emil", EXPIRED_KEY, "expires = 2020-01-01T00:00:00Z");
        keys += &key("nora", NARROW_KEY, "models = [\"gpt\", \"fast-*\"]");
        Setup {
            top: String::new(),
            server: "threads = 2\n".to_owned(),
            limits: String::new(),
            log: String::new(),
            routes: String::new(),
            keys,
            tls: None,
            files: Vec::new(),
            accounts: Vec::new(),
        }
    }

    /// Returns a configuration with a provider of each kind at one address, with the models that [`super::form::Form`]
    /// names.
    pub(crate) fn providers(addr: SocketAddr) -> Setup {
        Setup::providers_with(addr, "")
    }

    /// Like `providers`, with additional lines for each provider.
    pub(crate) fn providers_with(addr: SocketAddr, lines: &str) -> Setup {
        let base = format!("http://{addr}");
        Setup::new()
            .provider("openai", "openai", &format!("{base}/v1"), lines)
            .provider("anthropic", "anthropic", &format!("{base}/v1"), lines)
            .provider("gemini", "gemini", &format!("{base}/v1beta"), lines)
            .usual_models()
    }

    /// Returns a configuration with one provider for each format, all at one address. Each provider has only that
    /// format and one model: see [`provider_of`].
    pub(crate) fn each_provider(addr: SocketAddr) -> Setup {
        Setup::each_provider_with(addr, "")
    }

    /// Like `each_provider`, with additional lines for each provider.
    pub(crate) fn each_provider_with(addr: SocketAddr, lines: &str) -> Setup {
        Form::ALL.into_iter().fold(Setup::new(), |setup, form| {
            let (kind, version) = match form {
                Form::Chat | Form::Responses => ("openai", "v1"),
                Form::Messages => ("anthropic", "v1"),
                Form::Generate => ("gemini", "v1beta"),
            };
            let name = provider_of(form);
            let api = name.trim_start_matches("at-");
            let lines = format!("apis = [\"{api}\"]\n{lines}");
            setup.provider(name, kind, &format!("http://{addr}/{version}"), &lines).model(name, name, name)
        })
    }

    /// Adds the usual models at the providers openai, anthropic and gemini.
    pub(crate) fn usual_models(self) -> Setup {
        self.model("gpt", "openai", "gpt")
            .model("claude", "anthropic", "claude")
            .model("gemini", "gemini", "gemini")
            .model("fast-gpt", "openai", "gpt-2026-01-01")
            .model("fast-claude", "anthropic", "claude-2026-01-01")
            .model("fast-gemini", "gemini", "gemini-2026-01-01")
    }

    /// Adds a provider with a credential.
    pub(crate) fn provider(mut self, name: &str, kind: &str, base: &str, lines: &str) -> Setup {
        let _ = writeln!(
            self.routes,
            "[[provider]]\nname = \"{name}\"\nkind = \"{kind}\"\nbase_url = \"{base}\"\n\
             credential = {{ value = \"{CREDENTIAL}\" }}\n{lines}\n"
        );
        self
    }

    /// Adds a model with one target.
    pub(crate) fn model(mut self, id: &str, provider: &str, name: &str) -> Setup {
        let _ = writeln!(
            self.routes,
            "[[model]]\nid = \"{id}\"\nowned_by = \"{provider}\"\ncreated = 1715367049\n\
             targets = [{{ provider = \"{provider}\", model = \"{name}\" }}]\n"
        );
        self
    }

    /// Adds lines to gateway.toml, before its first table.
    pub(crate) fn top(mut self, lines: &str) -> Setup {
        let _ = writeln!(self.top, "{lines}");
        self
    }

    /// Adds lines to `[server]`.
    pub(crate) fn server(mut self, lines: &str) -> Setup {
        let _ = writeln!(self.server, "{lines}");
        self
    }

    /// Adds lines to `[limits]`.
    pub(crate) fn limits(mut self, lines: &str) -> Setup {
        let _ = writeln!(self.limits, "{lines}");
        self
    }

    /// Adds an account with an initial credit.
    pub(crate) fn account(mut self, name: &'static str, credit: &'static str) -> Setup {
        self.accounts.push((name, credit));
        self
    }

    /// Sets the same price for every model.
    pub(crate) fn priced(mut self, price: &str) -> Setup {
        self.routes = format!("prices = \"prices.toml\"\n\n{}", self.routes);
        self.file("prices.toml", &format!("[[price]]\nmodels = [\"*\"]\n{price}\n"))
    }

    /// Adds a file in the folder of the configuration.
    pub(crate) fn file(mut self, name: &str, text: &str) -> Setup {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Lays a file over the catalogue of models: `over.toml`.
    pub(crate) fn catalogue(self, text: &str) -> Setup {
        self.file("over.toml", text)
    }

    /// Adds a TLS listener.
    pub(crate) fn tls(mut self, chain: &str, key: &str) -> Setup {
        self.tls = Some((chain.to_owned(), key.to_owned()));
        self
    }

    /// Writes all files and returns the path of gateway.toml.
    pub(crate) fn write(&self, folder: &Path, ports: &Ports) -> PathBuf {
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let mut tls = String::new();
        if let Some((chain, key)) = &self.tls {
            put("tls.crt", chain);
            put("tls.key", key);
            tls = format!(
                "[[server.tls]]\nlisten = \"{}\"\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
                ports.tls
            );
        }
        let (plain, admin) = (ports.plain, ports.admin);
        let is_laid_over = self.files.iter().any(|(name, _)| name == "over.toml");
        let catalogue = if is_laid_over { "catalogue = \"over.toml\"\n" } else { "" };
        let text = format!(
            "{catalogue}{}[server]\nlisten = [\"{plain}\"]\nadmin = \"{admin}\"\n{}\n{tls}\n[limits]\n{}\n\
             [log]\naccess = \"access.log\"\n{}\n",
            self.top, self.server, self.limits, self.log
        );
        put("gateway.toml", &text);
        put("routes.toml", &self.routes);
        put("keys.toml", &self.keys);
        for (name, text) in &self.files {
            put(name, text);
        }
        folder.join("gateway.toml")
    }
}

/// Addresses that a gateway listens at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) plain: SocketAddr,
    pub(crate) tls: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// Returns the name of both the model and the provider of a format in [`Setup::each_provider`].
pub(crate) fn provider_of(form: Form) -> &'static str {
    match form {
        Form::Chat => "at-chat",
        Form::Messages => "at-messages",
        Form::Responses => "at-responses",
        Form::Generate => "at-generate",
    }
}

/// Returns an entry of keys.toml.
pub(crate) fn key(name: &str, text: &str, lines: &str) -> String {
    let hash = KeyHash::of(text).to_hex();
    format!("[[key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n{lines}\n\n")
}
