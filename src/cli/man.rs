//! `model-gateway man`: manual pages, as packages install them.
//!
//! Section 1 is made from the definition of the command line, section 5 from docs/configuration.md.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::{definition, fail};
use config::reference::{
    ConfigFile, ReferenceBlock, ReferenceSection, ReferenceSpan, introduction, reference, spans,
};

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Existing folder to which the pages are written.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(super) fn run(options: &ManArgs) -> ExitCode {
    match write_pages(&options.folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(format_args!("{}: {error}", options.folder.display())),
    }
}

fn write_pages(folder: &Path) -> std::io::Result<()> {
    clap_mangen::generate_to(definition(), folder)?;
    for file in ConfigFile::ALL {
        std::fs::write(folder.join(format!("{}.5", page_name(file))), file_page(file))?;
    }
    Ok(())
}

fn page_name(file: ConfigFile) -> String {
    format!("model-gateway-{}", file.name())
}

/// Returns the page of a configuration file.
fn file_page(file: ConfigFile) -> String {
    let subject = match file {
        ConfigFile::Gateway => "settings of the gateway",
        ConfigFile::Routes => "providers and models",
        ConfigFile::Keys => "keys and accounts",
    };
    let mut page = Roff::new();
    let version = concat!("model-gateway ", env!("CARGO_PKG_VERSION"));
    page.control("TH", [page_name(file).to_uppercase().as_str(), "5", "", version, "model-gateway"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{} - {subject} ({}.toml)", page_name(file), file.name()))]);
    page.control("SH", ["DESCRIPTION"]);
    for section in introduction() {
        write_section(&mut page, &section);
    }
    page.control("SH", ["KEYS"]);
    for section in reference(file) {
        write_section(&mut page, &section);
    }
    page.control("SH", ["FILES"]);
    page.text([bold(format!("/etc/model-gateway/{}.toml", file.name()))]);
    page.control("SH", ["SEE ALSO"]);
    let others = ConfigFile::ALL.into_iter().filter(|other| *other != file).map(page_name);
    let mut also = vec![bold("model-gateway-check"), roman("(1)")];
    for other in others {
        also.extend([roman(", "), bold(other), roman("(5)")]);
    }
    page.text(also);
    page.render()
}

fn write_section(page: &mut Roff, section: &ReferenceSection) {
    if !section.heading.is_empty() {
        page.control("SS", [section.heading.as_str()]);
    }
    for block in &section.blocks {
        match block {
            ReferenceBlock::Paragraph(text) => {
                page.control("PP", []);
                page.text(inlines(text));
            }
            ReferenceBlock::Keys(keys) => {
                for key in keys {
                    page.control("TP", []);
                    let mut title = vec![bold(key.path.as_str())];
                    if !key.default.is_empty() {
                        title.push(roman(" ("));
                        title.extend(inlines(&key.default));
                        title.push(roman(")"));
                    }
                    page.text(title);
                    page.text(inlines(if key.meaning.is_empty() { "As above." } else { &key.meaning }));
                }
            }
            ReferenceBlock::Table(rows) => {
                let (head, rows) = rows.split_first().map_or((&[][..], &[][..]), |(h, r)| (&h[..], r));
                for row in rows {
                    let (first, rest) = row.split_first().map_or(("", &[][..]), |(f, r)| (f.as_str(), r));
                    page.control("TP", []);
                    page.text([bold(first)]);
                    let named = head.iter().skip(1).zip(rest);
                    let cells: Vec<String> = named.map(|(name, cell)| format!("{name}: {cell}")).collect();
                    page.text(inlines(&cells.join("; ")));
                }
            }
        }
    }
}

/// Returns a Markdown text with its code in bold.
fn inlines(text: &str) -> Vec<Inline> {
    let parts = spans(text).into_iter().map(|span| match span {
        ReferenceSpan::Plain(part) => roman(part),
        ReferenceSpan::Code(part) => bold(part),
    });
    parts.collect()
}
