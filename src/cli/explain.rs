//! `model-gateway explain`: translation of one request, with its losses, without sending it.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::out::{self, say};
use super::{complain, fail, style};
use codec::canonical::{CachePolicy, Thinking};
use codec::provider::{BaseUrl, Preset, Provider, ProviderKind, Setup};
use codec::translate::{PromptCaching, StoreOptions, TranslateRequest, outgoing_stored};
use codec::wire::Format;
use codec::wire::codec::Loss;
use codec::wire::loss::{self, LossPolicy};
use json::{EscapedString, JsonText};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The client's format.
    #[arg(long, value_name = "FORMAT", value_parser = format_of, required_unless_present = "table")]
    from: Option<Format>,
    /// The provider's format.
    #[arg(long, value_name = "FORMAT", value_parser = format_of, required_unless_present = "table")]
    to: Option<Format>,
    /// Model at the provider; its family determines the supported settings.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Kind of provider, as in routes.toml; by default the provider that defined the format.
    #[arg(long, value_name = "KIND", value_parser = kind_of)]
    kind: Option<ProviderKind>,
    /// Dialect of the provider, a row of docs/providers.md, for providers with quirks of chat completions.
    #[arg(long, value_name = "NAME", value_parser = row_of)]
    dialect: Option<Preset>,
    /// Prompt-cache policy, as in routes.toml: off, auto or 1h.
    #[arg(long, value_name = "POLICY", value_parser = policy_of, default_value = "off")]
    prompt_cache: CachePolicy,
    /// The client requests a stream (only the generate format does so outside of the body).
    #[arg(long)]
    stream: bool,
    /// Print the policy for each element that a format cannot carry, and nothing else.
    #[arg(long)]
    table: bool,
    /// File with the request; by default standard input.
    file: Option<PathBuf>,
}

pub(super) fn format_of(name: &str) -> Result<Format, String> {
    let format = Format::ALL.into_iter().find(|format| format.name() == name);
    format.ok_or_else(|| "one of chat, messages, responses, generate, converse".to_owned())
}

fn kind_of(name: &str) -> Result<ProviderKind, String> {
    let names = || ProviderKind::ALL.map(ProviderKind::name).join(", ");
    ProviderKind::from_name(name).ok_or_else(|| format!("one of {}", names()))
}

fn policy_of(name: &str) -> Result<CachePolicy, String> {
    let names = || CachePolicy::ALL.map(CachePolicy::name).join(", ");
    CachePolicy::from_name(name).ok_or_else(|| format!("one of {}", names()))
}

fn row_of(name: &str) -> Result<Preset, String> {
    Preset::from_name(name).ok_or_else(|| format!("one of {}", Preset::ALL.map(Preset::name).join(", ")))
}

/// Returns the provider that defined a format, and a recent model of it.
fn provider_of(format: Format) -> (ProviderKind, &'static str) {
    match format {
        Format::Chat => (ProviderKind::OpenAi, "gpt-4.1"),
        Format::Messages => (ProviderKind::Anthropic, "claude-sonnet-4-5"),
        Format::Responses => (ProviderKind::OpenAi, "gpt-5.2"),
        Format::Generate => (ProviderKind::Gemini, "gemini-2.5-flash"),
        Format::Converse => (ProviderKind::Bedrock, "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    }
}

pub(super) fn run(options: &ExplainArgs) -> ExitCode {
    if options.table {
        out::write(loss::table().as_bytes());
        return ExitCode::SUCCESS;
    }
    let (Some(from), Some(to)) = (options.from, options.to) else {
        return fail("--from and --to are required");
    };
    let body = match read(options.file.as_ref()) {
        Ok(body) => body,
        Err(error) => return fail(error),
    };
    let (kind, model) = provider_of(to);
    let kind = options.kind.unwrap_or(kind);
    let model = options.model.as_deref().unwrap_or(model);
    let Ok(base) = BaseUrl::parse(kind.default_base_url().unwrap_or("http://localhost/v1")) else {
        return fail("this kind of provider has no default URL");
    };
    let mut provider =
        Provider::new(Setup { name: kind.name().to_owned(), kind, apis: vec![to.api()], base });
    provider.preset = options.dialect.unwrap_or(provider.preset);
    let stream = options.stream || requests_stream(&body);
    let api = to.api();
    let support = provider.breakpoints(api, model);
    let breakpoints = support.and_then(|support| options.prompt_cache.rule(support, false));
    let caching = PromptCaching { breakpoints, key: None };
    let translated = outgoing_stored(
        &JsonText::from(body),
        &TranslateRequest {
            client: from,
            provider: to,
            stream,
            array: false,
            thinking: Thinking::Unset,
            dialect: &provider.dialect(to.api(), model),
            model: &EscapedString::from(model),
            id: "req_explained",
            seed: "req_explained",
            now: 0,
        },
        StoreOptions { caching, ..StoreOptions::default() },
    );
    match translated {
        Ok(outgoing) => {
            say!("{}", String::from_utf8_lossy(&outgoing.text()));
            print_losses(&outgoing.losses);
            if options.prompt_cache != CachePolicy::Off {
                complain(format_args!(
                    "{} {} automatic cache breakpoints",
                    style::title("cache"),
                    outgoing.breakpoints
                ));
            }
            ExitCode::SUCCESS
        }
        Err(refused) => {
            if !refused.losses.is_empty() {
                print_losses(&refused.losses);
            }
            fail(refused.error)
        }
    }
}

fn requests_stream(body: &str) -> bool {
    let mut json = json::Cursor::new(body);
    if json.begin_object().is_err() {
        return false;
    }
    while let Ok(Some(key)) = json.next_key() {
        let Ok(value) = json.raw() else { return false };
        if key.is("stream") {
            return value.as_bool() == Some(true);
        }
    }
    false
}

fn read(file: Option<&PathBuf>) -> Result<String, String> {
    match file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display())),
        None => {
            let mut body = String::new();
            std::io::stdin().read_to_string(&mut body).map_err(|error| error.to_string())?;
            Ok(body)
        }
    }
}

/// Prints losses to standard error, so that standard output has the request only.
fn print_losses(losses: &[Loss]) {
    if losses.is_empty() {
        complain(format_args!("{} no losses", style::good("ok")));
    }
    for Loss { element, policy, .. } in losses {
        let what = match policy {
            LossPolicy::Silent => "dropped silently",
            LossPolicy::Warn => "dropped with a warning",
            LossPolicy::Refuse => "rejected with a 400",
        };
        complain(format_args!("{} {element}: {what}", style::title("lost")));
    }
}
