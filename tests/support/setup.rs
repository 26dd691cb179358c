//! The configuration of a gateway under test, as text, and its files.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use model_gateway::account::KeyHash;

use super::form::Form;

/// The key that tests use.
pub(crate) const KEY: &str = "client-key-of-alice-0001";
/// A key that is switched off.
pub(crate) const DISABLED_KEY: &str = "client-key-of-dora-0002";
/// A key whose time is over.
pub(crate) const EXPIRED_KEY: &str = "client-key-of-emil-0003";
/// A key that may use `gpt` and the models whose names begin with `fast-`.
pub(crate) const NARROW_KEY: &str = "client-key-of-nora-0004";

/// What the providers of [`Setup::providers`] are reached with.
pub(crate) const CREDENTIAL: &str = "upstream-secret-of-the-gateway";

/// A configuration.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Lines of `[server]`, beside the addresses.
    pub(crate) server: String,
    /// Lines of `[limits]`.
    pub(crate) limits: String,
    /// Lines of `[log]`, beside the access log.
    pub(crate) log: String,
    /// All of routes.toml.
    pub(crate) routes: String,
    /// All of keys.toml.
    pub(crate) keys: String,
    /// Certificate chain and key of a TLS listener, PEM.
    pub(crate) tls: Option<(String, String)>,
    /// Files beside the configuration, by name.
    pub(crate) files: Vec<(String, String)>,
    /// Accounts that are there from the beginning, and what they are credited.
    pub(crate) accounts: Vec<(&'static str, &'static str)>,
}

impl Setup {
    /// The usual keys and no route.
    pub(crate) fn new() -> Setup {
        let mut keys = String::new();
        keys += &key("alice", KEY, "");
        keys += &key("dora", DISABLED_KEY, "enabled = false");
        keys += &key("emil", EXPIRED_KEY, "expires = 2020-01-01T00:00:00Z");
        keys += &key("nora", NARROW_KEY, "models = [\"gpt\", \"fast-*\"]");
        Setup {
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

    /// A provider of each kind, all of them at one address, with the models that [`super::form::Form`] names.
    pub(crate) fn providers(addr: SocketAddr) -> Setup {
        Setup::providers_with(addr, "")
    }

    /// The same with more lines for each provider.
    pub(crate) fn providers_with(addr: SocketAddr, lines: &str) -> Setup {
        let base = format!("http://{addr}");
        Setup::new()
            .provider("openai", "openai", &format!("{base}/v1"), lines)
            .provider("anthropic", "anthropic", &format!("{base}/v1"), lines)
            .provider("gemini", "gemini", &format!("{base}/v1beta"), lines)
            .usual_models()
    }

    /// A provider of each format, which speaks no other, all of them at one address, with a model each:
    /// [`provider_of`].
    pub(crate) fn each_provider(addr: SocketAddr) -> Setup {
        Setup::each_provider_with(addr, "")
    }

    /// The same with more lines for each provider.
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

    /// The usual models at providers called openai, anthropic and gemini.
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

    /// Adds an account with its first credit.
    pub(crate) fn account(mut self, name: &'static str, credit: &'static str) -> Setup {
        self.accounts.push((name, credit));
        self
    }

    /// Gives every model this price.
    pub(crate) fn priced(mut self, price: &str) -> Setup {
        self.routes = format!("prices = \"prices.toml\"\n\n{}", self.routes);
        self.file("prices.toml", &format!("[[price]]\nmodels = [\"*\"]\n{price}\n"))
    }

    /// Adds a file beside the configuration.
    pub(crate) fn file(mut self, name: &str, text: &str) -> Setup {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Adds a TLS listener.
    pub(crate) fn tls(mut self, chain: &str, key: &str) -> Setup {
        self.tls = Some((chain.to_owned(), key.to_owned()));
        self
    }

    /// Writes all files; gives the path of gateway.toml.
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
        let text = format!(
            "[server]\nlisten = [\"{plain}\"]\nadmin = \"{admin}\"\n{}\n{tls}\n[limits]\n{}\n\
             [log]\naccess = \"access.log\"\n{}\n",
            self.server, self.limits, self.log
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

/// Where a gateway listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) plain: SocketAddr,
    pub(crate) tls: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// The model, and the provider, of [`Setup::each_provider`] that speaks a format.
pub(crate) fn provider_of(form: Form) -> &'static str {
    match form {
        Form::Chat => "at-chat",
        Form::Messages => "at-messages",
        Form::Responses => "at-responses",
        Form::Generate => "at-generate",
    }
}

/// An entry of keys.toml.
pub(crate) fn key(name: &str, text: &str, lines: &str) -> String {
    let hash = KeyHash::of(text).to_hex();
    format!("[[key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n{lines}\n\n")
}
