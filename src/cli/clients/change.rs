//! Changes of a settings file, computed before anything is written: what `configure` and `unconfigure` will do to it.

use std::collections::BTreeSet;

use super::edit::{FileSyntax, SyntaxFault, UndoStep, apply, undo};
use super::error::ClientSetupError;
use super::file::SettingsFile;
use super::plan::{FilePlan, KeyRole};
use super::receipt::{FileReceipt, KeyReceipt, fingerprint};

/// Text with the changes of a plan, and how to undo them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChangedText {
    pub(super) text: String,
    pub(super) undo: Vec<UndoStep>,
    pub(super) keys: Vec<KeyReceipt>,
    /// Tables that were created, innermost first.
    pub(super) created_tables: Vec<Vec<String>>,
}

/// Applies the changes of a plan to a text.
///
/// # Errors
/// Returns a fault if the text is not valid, or cannot be changed without rewriting more of it.
pub(super) fn change(text: &str, plan: &FilePlan) -> Result<ChangedText, SyntaxFault> {
    let syntax = plan.syntax;
    syntax.check(text)?;
    let mut changed =
        ChangedText { text: text.to_owned(), undo: Vec::new(), keys: Vec::new(), created_tables: Vec::new() };
    for key in &plan.changes {
        let previous = syntax.get(&changed.text, &key.path)?;
        if key.is_default && previous.is_some() {
            continue;
        }
        let edits = match &key.value {
            Some(value) => {
                for parent in syntax.absent_parents(&changed.text, &key.path)? {
                    if !changed.created_tables.contains(&parent) {
                        changed.created_tables.push(parent);
                    }
                }
                syntax.set(&changed.text, &key.path, value)?
            }
            None => syntax.remove(&changed.text, &key.path)?,
        };
        // A key that has its value already stays the user's.
        if edits.is_empty() {
            continue;
        }
        let steps = apply(&mut changed.text, edits);
        changed.undo.extend(steps);
        let written = syntax.get(&changed.text, &key.path)?;
        let written = written.map(|source| fingerprint(&syntax.comparable(&source)));
        changed.keys.push(KeyReceipt { path: key.path.clone(), role: key.role, previous, written });
    }
    changed.created_tables.sort_by_key(|path| std::cmp::Reverse(path.len()));
    syntax.check(&changed.text)?;
    Ok(changed)
}

/// Text with the previous values of the keys of a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RestoredText {
    pub(super) text: String,
    /// Whether the text is, byte for byte, the one before `configure`.
    pub(super) exact: bool,
    /// Keys that were not restored, because the user changed them later.
    pub(super) kept: Vec<Vec<String>>,
}

/// Returns the keys that the user changed after `configure`.
///
/// # Errors
/// Returns a fault if the text is not valid.
pub(super) fn changed_keys(text: &str, receipt: &FileReceipt) -> Result<Vec<KeyReceipt>, SyntaxFault> {
    let mut changed = Vec::new();
    for key in &receipt.keys {
        if !is_as_written(text, receipt.syntax, key)? {
            changed.push(key.clone());
        }
    }
    Ok(changed)
}

/// Whether a key has the value that was written, or its previous value again.
fn is_as_written(text: &str, syntax: FileSyntax, key: &KeyReceipt) -> Result<bool, SyntaxFault> {
    let now = syntax.get(text, &key.path)?;
    let is_previous = match (&now, &key.previous) {
        (Some(now), Some(previous)) => syntax.comparable(now) == syntax.comparable(previous),
        (None, None) => true,
        _ => false,
    };
    Ok(is_previous || now.map(|source| fingerprint(&syntax.comparable(&source))) == key.written)
}

/// Restores a text: exactly if it is as `configure` left it, otherwise key by key.
///
/// `keep_group` says that a key that belongs to the endpoint or the credential was changed, in this file or another one
/// of the client: then none of them is restored. `force` restores all keys.
///
/// # Errors
/// Returns a fault if the text is not valid, or a key cannot be restored.
pub(super) fn restore(
    text: &str,
    receipt: &FileReceipt,
    keep_group: bool,
    force: bool,
) -> Result<RestoredText, SyntaxFault> {
    if fingerprint(text) == receipt.after
        && (force || !keep_group)
        && let Some(text) = undo(text, &receipt.undo)
        && fingerprint(&text) == receipt.before
    {
        return Ok(RestoredText { text, exact: true, kept: Vec::new() });
    }
    let syntax = receipt.syntax;
    let changed: BTreeSet<Vec<String>> =
        changed_keys(text, receipt)?.into_iter().map(|key| key.path).collect();
    let mut restored = RestoredText { text: text.to_owned(), exact: false, kept: Vec::new() };
    // The last change first, so that a table is empty when its turn comes.
    for key in receipt.keys.iter().rev() {
        let grouped = keep_group && key.role != KeyRole::Plain;
        if !force && (grouped || changed.contains(&key.path)) {
            restored.kept.push(key.path.clone());
            continue;
        }
        let edits = syntax.restore(&restored.text, &key.path, key.previous.as_deref())?;
        apply(&mut restored.text, edits);
    }
    for table in &receipt.created_tables {
        let edits = syntax.remove_empty(&restored.text, table)?;
        apply(&mut restored.text, edits);
    }
    syntax.check(&restored.text)?;
    restored.kept.reverse();
    Ok(restored)
}

/// Returns the text before an earlier `configure`, from which a new one starts: the first previous values stay.
///
/// # Errors
/// Returns an error that names the file and line if it cannot be restored.
pub(super) fn text_before(
    file: &SettingsFile,
    receipt: Option<&FileReceipt>,
) -> Result<String, ClientSetupError> {
    match receipt {
        None => Ok(file.text.clone()),
        Some(receipt) => restore(&file.text, receipt, false, true)
            .map(|restored| restored.text)
            .map_err(|fault| ClientSetupError::Syntax { path: file.path.clone(), fault }),
    }
}
