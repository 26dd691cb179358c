//! Reference of the configuration files: docs/configuration.md as data.
//!
//! The page is the one table of all keys with their defaults and meanings; tests hold it to the reader. The manual pages
//! and the JSON Schemas are made from it, so that neither repeats it.

/// Pages with the tables of keys. The first one has the introduction.
const PAGES: [&str; 2] = [include_str!("../../docs/configuration.md"), include_str!("../../docs/prices.md")];

/// Configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFile {
    /// gateway.toml: settings of the process.
    Gateway,
    /// routes.toml: providers and models.
    Routes,
    /// keys.toml: keys and accounts.
    Keys,
}

impl ConfigFile {
    /// All files.
    pub const ALL: [ConfigFile; 3] = [ConfigFile::Gateway, ConfigFile::Routes, ConfigFile::Keys];

    /// Returns the name without its ending.
    pub fn name(self) -> &'static str {
        match self {
            ConfigFile::Gateway => "gateway",
            ConfigFile::Routes => "routes",
            ConfigFile::Keys => "keys",
        }
    }

    /// Returns the file of a name without its ending, or `None` for any other name.
    pub fn from_name(name: &str) -> Option<Self> {
        ConfigFile::ALL.into_iter().find(|file| file.name() == name)
    }
}

/// Section of the reference, under one heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceSection {
    /// Heading without marks; empty for the text before the first one.
    pub heading: String,
    /// Paragraphs and tables, in the order of the page.
    pub blocks: Vec<ReferenceBlock>,
}

/// Block of a section. Texts are Markdown in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceBlock {
    /// Paragraph.
    Paragraph(String),
    /// Rows of a table of keys.
    Keys(Vec<ReferenceKey>),
    /// Rows of any other table; the first one has the names of the columns.
    Table(Vec<Vec<String>>),
}

/// Row of a table of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceKey {
    /// Path without indexes, such as `model.targets.weight`.
    pub path: String,
    /// Default as the page has it; `required` for a key without one.
    pub default: String,
    /// Meaning; may be empty for a key that repeats one above.
    pub meaning: String,
}

/// Returns the introduction of the page, which holds for all files.
pub fn introduction() -> Vec<ReferenceSection> {
    let [page, _] = PAGES;
    let start = page.find("\n## ").unwrap_or(page.len());
    sections(page.get(..start).unwrap_or_default())
}

/// Returns the sections of a file's chapter.
pub fn reference(file: ConfigFile) -> Vec<ReferenceSection> {
    let heading = format!("\n## {}.toml\n", file.name());
    let chapter = |page: &'static str| {
        let rest = page.split_once(&heading).map_or("", |(_, rest)| rest);
        sections(rest.split("\n## ").next().unwrap_or_default())
    };
    PAGES.into_iter().flat_map(chapter).collect()
}

/// Returns the keys of a file, in the order of the page.
pub fn keys(file: ConfigFile) -> Vec<ReferenceKey> {
    let blocks = reference(file).into_iter().flat_map(|section| section.blocks);
    let tables = blocks.filter_map(|block| match block {
        ReferenceBlock::Keys(keys) => Some(keys),
        _ => None,
    });
    tables.flatten().collect()
}

fn sections(text: &str) -> Vec<ReferenceSection> {
    let mut sections = vec![ReferenceSection::default()];
    for block in text.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        // A heading may stand directly above its text.
        let (first, rest) = block.split_once('\n').unwrap_or((block, ""));
        let block = if let Some(heading) = first.strip_prefix("### ") {
            sections.push(ReferenceSection { heading: plain(heading), blocks: Vec::new() });
            rest.trim()
        } else if first.starts_with("# ") {
            rest.trim()
        } else {
            block
        };
        if let Some(section) = sections.last_mut() {
            section.blocks.extend(parse_block(block));
        }
    }
    sections.retain(|section| !section.blocks.is_empty());
    sections
}

/// Parses a table, the items of a list, or a paragraph.
fn parse_block(block: &str) -> Vec<ReferenceBlock> {
    if block.starts_with('|') {
        return vec![parse_table(block)];
    }
    let mut paragraphs: Vec<String> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("- "), paragraphs.last_mut()) {
            (None, Some(paragraph)) => {
                paragraph.push(' ');
                paragraph.push_str(line.trim());
            }
            (item, _) => paragraphs.push(item.unwrap_or(line).trim().to_owned()),
        }
    }
    paragraphs.into_iter().map(ReferenceBlock::Paragraph).collect()
}

fn parse_table(block: &str) -> ReferenceBlock {
    let mut rows = block.lines().map(|line| {
        let inner = line.strip_prefix('|').unwrap_or(line);
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        inner.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<String>>()
    });
    let head = rows.next().unwrap_or_default();
    // The line of dashes.
    rows.next();
    if head.first().is_none_or(|name| name != "Key") {
        return ReferenceBlock::Table(std::iter::once(head).chain(rows).collect());
    }
    let keys = rows.filter_map(|row| {
        let [path, default, meaning] = <[String; 3]>::try_from(row).ok()?;
        Some(ReferenceKey { path: plain(&path), default, meaning })
    });
    ReferenceBlock::Keys(keys.collect())
}

/// Part of a Markdown text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceSpan {
    /// Plain text.
    Plain(String),
    /// Code, or text that is emphasized.
    Code(String),
}

/// Splits a Markdown text into plain and marked parts. A link becomes its text.
pub fn spans(text: &str) -> Vec<ReferenceSpan> {
    let mut spans = Vec::new();
    for (index, part) in text.split('`').enumerate() {
        if part.is_empty() {
            continue;
        }
        spans.push(if index % 2 == 1 {
            ReferenceSpan::Code(part.to_owned())
        } else {
            ReferenceSpan::Plain(part.to_owned())
        });
    }
    // The text of a link may have code in it, so brackets are matched over all parts.
    let mut joined = String::new();
    for span in &mut spans {
        if let ReferenceSpan::Plain(part) = span {
            *part = part.replace("**", "");
            joined.clear();
            let mut rest = part.as_str();
            while let Some((before, after)) = rest.split_once("](") {
                joined.push_str(before);
                rest = after.split_once(')').map_or("", |(_, after)| after);
            }
            joined.push_str(rest);
            *part = without_link_starts(&joined);
        }
    }
    spans
}

/// Removes the brackets that open a link. Outside of code, the page has no others.
fn without_link_starts(text: &str) -> String {
    text.replace('[', "")
}

/// Returns a Markdown text without its marks.
pub fn plain(text: &str) -> String {
    let parts = spans(text).into_iter().map(|span| match span {
        ReferenceSpan::Plain(part) | ReferenceSpan::Code(part) => part,
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_has_the_keys_of_each_file() {
        let count = |file| keys(file).len();
        assert!(count(ConfigFile::Gateway) > 50 && count(ConfigFile::Routes) > 90);
        let keys = keys(ConfigFile::Keys);
        assert!(keys.iter().any(|key| key.path == "account.limits.spend_per_month"), "{keys:?}");
        assert!(keys.iter().all(|key| key.path != "provider.name"));
        let name = keys.iter().find(|key| key.path == "key.name").unwrap();
        assert_eq!(name.default, "required");
        assert!(name.meaning.starts_with("Name for lists and logs"));
        assert!(!introduction().is_empty());
    }

    #[test]
    fn plain_text_has_no_marks() {
        for (marked, expected) in [
            ("a `b` c", "a b c"),
            ("see [the page](x.md#y), `z`", "see the page, z"),
            ("as [`[retry]`](routing.md) says", "as [retry] says"),
            ("**bold** ([a](b))", "bold (a)"),
            ("an [open", "an open"),
            ("`[[model]]`", "[[model]]"),
            ("", ""),
        ] {
            assert_eq!(plain(marked), expected, "{marked}");
        }
        for file in ConfigFile::ALL {
            for key in keys(file) {
                let text = plain(&key.meaning);
                assert!(!text.contains("](") && !text.contains('`') && !text.contains("**"), "{text}");
            }
        }
    }
}
