//! `model-gateway explain`

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{fail, style};
use crate::canonical::Thinking;
use crate::json::EscapedString;
use crate::provider::{BaseUrl, Kind, Preset, Provider, Setup};
use crate::translate::{TranslateRequest, outgoing};
use crate::wire::Format;
use crate::wire::codec::Loss;
use crate::wire::loss::{self, LossPolicy};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The client's format.
    #[arg(long, value_name = "FORMAT", value_parser = format_of, required_unless_present = "table")]
    from: Option<Format>,
    /// The provider's format.
    #[arg(long, value_name = "FORMAT", value_parser = format_of, required_unless_present = "table")]
    to: Option<Format>,
    /// The model at the provider: what can be asked of it depends on its family.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The kind of provider, as in routes.toml; by default the one whose own format it is.
    #[arg(long, value_name = "KIND", value_parser = kind_of)]
    kind: Option<Kind>,
    /// The provider's row of docs/providers.md, for providers that speak chat completions in their own manner.
    #[arg(long, value_name = "NAME", value_parser = row_of)]
    dialect: Option<Preset>,
    /// The client wants a stream (only generate says so outside of the body).
    #[arg(long)]
    stream: bool,
    /// Print the table of what is done about each element that a format cannot say, and nothing else.
    #[arg(long)]
    table: bool,
    /// The request; standard input if none is named.
    file: Option<PathBuf>,
}

pub(super) fn format_of(name: &str) -> Result<Format, String> {
    let format = Format::ALL.into_iter().find(|format| format.name() == name);
    format.ok_or_else(|| "one of chat, messages, responses, generate".to_owned())
}

fn kind_of(name: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    Kind::from_name(name).ok_or_else(|| format!("one of {}", names()))
}

fn row_of(name: &str) -> Result<Preset, String> {
    Preset::from_name(name).ok_or_else(|| format!("one of {}", Preset::ALL.map(Preset::name).join(", ")))
}

/// The provider whose own format it is, and a recent model of theirs.
fn provider_of(format: Format) -> (Kind, &'static str) {
    match format {
        Format::Chat => (Kind::OpenAi, "gpt-4.1"),
        Format::Messages => (Kind::Anthropic, "claude-sonnet-4-5"),
        Format::Responses => (Kind::OpenAi, "gpt-5.2"),
        Format::Generate => (Kind::Gemini, "gemini-2.5-flash"),
    }
}

pub(super) fn run(options: &Options) -> ExitCode {
    if options.table {
        print!("{}", loss::table());
        return ExitCode::SUCCESS;
    }
    let (Some(from), Some(to)) = (options.from, options.to) else {
        return fail("--from and --to are needed");
    };
    let body = match read(options.file.as_ref()) {
        Ok(body) => body,
        Err(error) => return fail(error),
    };
    let (kind, model) = provider_of(to);
    let kind = options.kind.unwrap_or(kind);
    let model = options.model.as_deref().unwrap_or(model);
    let Ok(base) = BaseUrl::parse(kind.default_base_url().unwrap_or("http://localhost/v1")) else {
        return fail("the kind has no address");
    };
    let mut provider =
        Provider::new(Setup { name: kind.name().to_owned(), kind, apis: vec![to.api()], base });
    provider.row = options.dialect.unwrap_or(provider.row);
    let stream = options.stream || asks_stream(&body);
    let asked = outgoing(
        &body,
        &TranslateRequest {
            client: from,
            provider: to,
            stream,
            array: false,
            thinking: Thinking::Unsaid,
            dialect: &provider.dialect(to.api(), model),
            model: &EscapedString::from(model),
            id: "req_explained",
            seed: "req_explained",
            now: 0,
        },
    );
    match asked {
        Ok(outgoing) => {
            println!("{}", String::from_utf8_lossy(&outgoing.body));
            print_losses(&outgoing.losses);
            ExitCode::SUCCESS
        }
        Err(refused) => {
            print_losses(&refused.losses);
            fail(refused.error)
        }
    }
}

fn asks_stream(body: &str) -> bool {
    let mut json = crate::json::Cursor::new(body);
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

/// To standard error, so that standard output is the request alone.
fn print_losses(losses: &[Loss]) {
    if losses.is_empty() {
        eprintln!("{} nothing is lost", style::good("ok"));
    }
    for Loss { element, policy, .. } in losses {
        let what = match policy {
            LossPolicy::Silent => "dropped in silence",
            LossPolicy::Warn => "dropped with a warning",
            LossPolicy::Refuse => "refused with a 400",
        };
        eprintln!("{} {element}: {what}", style::title("lost"));
    }
}
