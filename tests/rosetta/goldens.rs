//! Golden files, compared with the output of the translation.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use model_gateway::translate::verbatim::Arrival;
use model_gateway::wire::Format;
use model_gateway::wire::error::{ProviderError, body as error_body, from_provider};
use serde_json::Value;

use crate::difference::lines;
use crate::route::{Way, pairs, request, translated_pairs};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.is_dir());
    cases.sort();
    assert!(cases.len() >= 10, "cases have gone missing");
    cases
}

/// Returns the text of a file of a case, or `None` if the case does not have it.
fn text(case: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(case.join(name)).ok()
}

fn json(text: &str, place: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}: {text}"))
}

/// Compares the output with a golden file, or writes the file if `UPDATE_GOLDEN` is set.
fn assert_golden(file: &Path, found: &str, faults: &mut Vec<String>) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        if found.is_empty() {
            let _ = std::fs::remove_file(file);
            return;
        }
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    if expected != found {
        let at = expected.lines().zip(found.lines()).take_while(|(one, other)| one == other).count();
        faults.push(format!(
            "{}, line {}:\n    expected {}\n    found    {}",
            file.display(),
            at + 1,
            expected.lines().nth(at).unwrap_or("nothing"),
            found.lines().nth(at).unwrap_or("nothing"),
        ));
    }
}

/// Writes a section of `losses`, unless it is empty.
fn section(out: &mut String, title: &str, found: Vec<String>) {
    if !found.is_empty() {
        writeln!(out, "# {title}").unwrap();
        found.iter().for_each(|line| writeln!(out, "{line}").unwrap());
        out.push('\n');
    }
}

/// Lists how translated requests differ from the files of their formats, and the losses that the translation reports.
fn requests(case: &Path, out: &mut String) {
    for (from, to) in pairs() {
        let (Some(body), Some(expected)) =
            (text(case, &format!("{from}.json")), text(case, &format!("{to}.json")))
        else {
            continue;
        };
        let title = format!("request {from} to {to}");
        let mut found = Vec::new();
        let losses = match request(from, to, &body) {
            Ok(outgoing) => {
                let written = &String::from_utf8(outgoing.text().into()).unwrap();
                let place = format!("{}: {title}", case.display());
                found.extend(lines(&json(written, &place), &json(&expected, &place)));
                outgoing.losses
            }
            Err(refused) => {
                found.push(format!("refused: {}", refused.error));
                refused.losses
            }
        };
        found.extend(losses.iter().map(|loss| format!("lost: {} ({})", loss.element, loss.policy.name())));
        section(out, &title, found);
    }
}

/// Lists how translated responses differ from the files of their formats.
fn answers(case: &Path, out: &mut String) {
    for (provider, client) in translated_pairs() {
        let file = |format: Format| text(case, &format!("answer.{format}.json"));
        let (Some(body), Some(expected)) = (file(provider), file(client)) else { continue };
        let title = format!("answer {provider} to {client}");
        let place = format!("{}: {title}", case.display());
        let (written, ended) = Way::whole(provider, client).pass(&[body.as_bytes()]);
        let found = match ended {
            Ok(()) => lines(&json(&written, &place), &json(&expected, &place)),
            Err(error) => vec![format!("ends in an error: {error}")],
        };
        section(out, &title, found);
    }
}

/// Lists how translated errors differ from the files of their formats.
fn errors(case: &Path, out: &mut String) {
    for (provider, client) in pairs() {
        let file = |format: Format| text(case, &format!("error.{format}.json"));
        let (Some(body), Some(expected)) = (file(provider), file(client)) else { continue };
        let status = text(case, "status").unwrap().trim().parse().unwrap();
        let title = format!("error {provider} to {client}");
        let error = from_provider(status, ProviderError::decode(body.as_bytes()), None);
        let written = error_body(client, &error, "req_1");
        let written = std::str::from_utf8(&written).unwrap();
        section(out, &title, lines(&json(written, &title), &json(&expected, &title)));
    }
}

/// A pair of formats without a section in `losses` neither loses nor adds anything.
#[test]
fn golden_documents_differ_only_by_declared_losses() {
    let mut faults = Vec::new();
    for case in cases() {
        let mut found = String::new();
        requests(&case, &mut found);
        answers(&case, &mut found);
        errors(&case, &mut found);
        assert_golden(&case.join("losses"), &found, &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn golden_streams_are_translated_to_every_format() {
    let mut faults = Vec::new();
    for case in cases() {
        for (provider, client) in translated_pairs() {
            let Some(stream) = text(&case, &format!("answer.{provider}.sse")) else { continue };
            let (mut written, ended) = Way::streamed(provider, client).pass(&[stream.as_bytes()]);
            if let Err(error) = ended {
                writeln!(written, ": the provider's stream: {error}").unwrap();
            }
            assert_golden(&case.join(format!("streams/{provider}-{client}.sse")), &written, &mut faults);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A stream that is collected into a document equals the provider's document.
#[test]
fn golden_stream_collected_equals_the_document() {
    let mut seen = 0;
    for case in cases() {
        for (provider, client) in translated_pairs() {
            let file = |end: &str| text(&case, &format!("answer.{provider}.{end}"));
            let (Some(stream), Some(body)) = (file("sse"), file("json")) else { continue };
            let place = format!("{}: {provider} to {client}", case.display());
            let whole = Way::whole(provider, client).pass(&[body.as_bytes()]);
            let way = Way { arrival: Arrival::Events, ..Way::whole(provider, client) };
            let collected = way.pass(&[stream.as_bytes()]);
            assert_eq!((&whole.1, &collected.1), (&Ok(()), &Ok(())), "{place}");
            let found = lines(&json(&collected.0, &place), &json(&whole.0, &place));
            assert!(found.is_empty(), "{place}:\n{}", found.join("\n"));
            // A document that is sent as a stream has the content of the provider's stream.
            let way = Way { arrival: Arrival::Whole, ..Way::streamed(provider, client) };
            let (streamed, ended) = way.pass(&[body.as_bytes()]);
            assert_eq!(ended, Ok(()), "{place}");
            let back = |stream: &str| {
                // The stream is read back through a third format, because a format is never translated to itself.
                let third = Format::ALL.into_iter().find(|format| *format != client).unwrap();
                let way = Way { arrival: Arrival::Events, ..Way::whole(client, third) };
                let (text, ended) = way.pass(&[stream.as_bytes()]);
                assert_eq!(ended, Ok(()), "{place}: {stream}");
                json(&text, &place)
            };
            let (direct, _) = Way::streamed(provider, client).pass(&[stream.as_bytes()]);
            let found = lines(&back(&streamed), &back(&direct));
            assert!(found.is_empty(), "{place}, streamed:\n{}", found.join("\n"));
            seen += 1;
        }
    }
    assert!(seen >= 48, "only {seen} answers");
}
