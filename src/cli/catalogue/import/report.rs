//! Proposals beside the catalogue: same, new, different or refused, and the text of those that are to be reviewed.

use std::fmt::Write as _;

use jiff::civil::Date;

use super::proposal::{Kinds, Proposal, ProposedRow, falls_back_to};
use crate::catalogue::{Catalogue, ListedPrice, price_text};

/// What the operator permits by name.
pub(super) struct Permissions<'p> {
    pub(super) free: &'p [String],
    pub(super) accept: &'p [String],
}

/// Result of an import.
#[derive(Debug, Default)]
pub(super) struct Review {
    pub(super) same: usize,
    pub(super) new: usize,
    pub(super) differs: usize,
    pub(super) refused: usize,
    /// Models that resemble none of the catalogue.
    pub(super) foreign: usize,
    /// One line for each row that is new, differs or is refused.
    pub(super) lines: Vec<String>,
    /// File of the rows.
    pub(super) text: String,
    /// Models with rows to be reviewed: name as it is compared, id, and text.
    models: Vec<(Box<str>, String, String)>,
}

/// First day of a row, with its lines.
type RowText = (Option<Date>, String);

/// How a proposal compares with the catalogue.
enum Verdict {
    Same,
    New,
    Differs(String),
}

impl Review {
    pub(super) fn of(
        catalogue: &Catalogue,
        day: Date,
        proposals: Vec<Proposal>,
        permissions: &Permissions<'_>,
        source: &str,
    ) -> Review {
        let mut review = Review::default();
        let _ = write!(
            review.text,
            "# Proposal from {source}, made on {day}. Review each row against the page of the provider, and correct its source.\n\
             schema = 1\n\n[sources]\n\"import of {day}\" = \"{source}, imported on {day}\"\n"
        );
        for mut proposal in proposals {
            let head = format!("{} at {}", proposal.id, proposal.provider);
            let Some((family, _)) = catalogue.family_of(&proposal.id) else {
                review.foreign += 1;
                continue;
            };
            let current = catalogue
                .offer(proposal.provider, &proposal.id)
                .and_then(|offer| offer.price_on(day).or(offer.prices.last()));
            match judge(&mut proposal, current, day, permissions) {
                Err(reason) => {
                    review.refused += 1;
                    review.lines.push(format!("refused  {head}: {reason}"));
                }
                Ok((Verdict::Same, _)) => review.same += 1,
                Ok((Verdict::New, rows)) => {
                    review.new += 1;
                    review.lines.push(format!("new      {head}"));
                    review.write(catalogue, &family.id, &proposal, &rows, (day, "new"));
                }
                Ok((Verdict::Differs(what), rows)) => {
                    review.differs += 1;
                    review.lines.push(format!("differs  {head}: {what}"));
                    review.write(catalogue, &family.id, &proposal, &rows, (day, &format!("differs: {what}")));
                }
            }
        }
        let models = std::mem::take(&mut review.models);
        review.text.extend(models.into_iter().map(|(.., text)| text));
        review
    }

    fn write(
        &mut self,
        catalogue: &Catalogue,
        family: &str,
        proposal: &Proposal,
        rows: &[RowText],
        (day, mark): (Date, &str),
    ) {
        // A dated snapshot with a price of its own is a model of its own.
        let plain = catalogue.plain_name(&proposal.id);
        let known = catalogue.model(&proposal.id).filter(|model| {
            let named = |name: &str| catalogue.plain_name(name) == plain;
            named(&model.id) || model.offers.iter().any(|offer| named(&offer.name))
        });
        let id = known.map_or(&*proposal.id, |model| &model.id).to_owned();
        let place = self.models.iter().position(|(name, ..)| *name == plain);
        let place = place.unwrap_or_else(|| {
            let mut head = format!("\n[[model]]\nid = {id:?}\n");
            if known.is_none() {
                let _ = writeln!(head, "family = {family:?}");
                let limits = [
                    ("context", proposal.context),
                    ("input_limit", proposal.input_limit),
                    ("output", proposal.output),
                ];
                for (key, count) in limits {
                    if let Some(count) = count {
                        let _ = writeln!(head, "{key} = {count}");
                    }
                }
            }
            self.models.push((plain, id.clone(), head));
            self.models.len().saturating_sub(1)
        });
        let Some((_, id, out)) = self.models.get_mut(place) else { return };
        let _ = write!(out, "\n# {mark}\n[[model.at]]\nprovider = {:?}\n", proposal.provider);
        if !proposal.id.eq_ignore_ascii_case(id) {
            let _ = writeln!(out, "name = {:?}", proposal.id);
        }
        if let Some(day) = proposal.retires {
            let _ = writeln!(out, "retires = {day}");
        }
        if let Some(successor) = proposal.successor.as_deref().filter(|id| catalogue.model(id).is_some()) {
            let successor = catalogue.model(successor).map_or(successor, |model| &model.id);
            let _ = writeln!(out, "successor = {successor:?}");
        }
        for (at, (_, lines)) in rows.iter().enumerate() {
            let _ = write!(out, "[[model.at.price]]\n{lines}");
            // The row before the next one ends on the day before.
            let next = rows.get(at.saturating_add(1)).and_then(|(from, _)| *from);
            if let Some(until) = next.and_then(|next| next.yesterday().ok()) {
                let _ = writeln!(out, "until = {until}");
            }
            let _ = writeln!(out, "source = [\"import of {day}\"]\nstatus = \"unverified\"");
        }
    }
}

/// Compares a proposal with the price in effect, and returns the lines of its rows.
///
/// # Errors
/// Returns the reason why it is refused.
fn judge(
    proposal: &mut Proposal,
    current: Option<&ListedPrice>,
    day: Date,
    permissions: &Permissions<'_>,
) -> Result<(Verdict, Vec<RowText>), String> {
    if let Some(reason) = proposal.refused.take() {
        return Err(reason);
    }
    proposal.rows.sort_by_key(|row| row.from.unwrap_or(Date::MIN));
    // Rows that have ended do not matter: what is charged is not charged again.
    let begun = proposal.rows.iter().rposition(|row| row.from.is_none_or(|from| from <= day)).unwrap_or(0);
    proposal.rows.drain(..begun);
    if let Some(row) = proposal.rows.first_mut() {
        row.from = None;
    }
    let named = |list: &[String]| list.iter().any(|name| name.eq_ignore_ascii_case(&proposal.id));
    let mut rows = Vec::new();
    for row in &mut proposal.rows {
        check_zero(row, named(permissions.free))?;
        row.simplify();
        rows.push((row.from, row.lines()?));
    }
    let Some(row) =
        proposal.rows.first().filter(|row| row.free || !row.base.is_empty() || row.search.is_some())
    else {
        return Err("it has no price".to_owned());
    };
    let Some(current) = current else { return Ok((Verdict::New, rows)) };
    let what = difference(&row.base, current);
    if what.is_empty() {
        return Ok((Verdict::Same, rows));
    }
    if !row.free && !named(permissions.accept) && jumps(&row.base, current) {
        return Err(format!(
            "more than three times as high or as low ({what}); to import it: --accept {}",
            proposal.id
        ));
    }
    Ok((Verdict::Differs(what), rows))
}

/// A price of 0 means free, unknown, or charged elsewhere; it is imported only if the operator says that it is free.
fn check_zero(row: &mut ProposedRow, is_free: bool) -> Result<(), String> {
    let zero: Vec<&str> = row.base.iter().filter(|(_, price)| **price == 0).map(|(kind, _)| *kind).collect();
    if zero.is_empty() {
        return Ok(());
    }
    if !is_free {
        return Err(format!("a price of 0 ({}); if it is free: --free MODEL", zero.join(", ")));
    }
    row.free = zero.len() == row.base.len();
    Ok(())
}

/// Returns the kinds whose prices differ, with both.
fn difference(base: &Kinds, current: &ListedPrice) -> String {
    let kinds = base.iter().filter_map(|(kind, price)| {
        // A price that the catalogue leaves out is that of another kind.
        let chain = std::iter::successors(Some(*kind), |kind| falls_back_to(kind));
        let before = chain.into_iter().find_map(|kind| current.rate(kind));
        (before != Some(*price)).then(|| {
            format!(
                "{kind} {} -> {}",
                before.map_or_else(|| "none".to_owned(), price_text),
                price_text(*price)
            )
        })
    });
    kinds.collect::<Vec<_>>().join(", ")
}

/// Returns whether input or output costs more than three times as much as before, or less than a third.
fn jumps(base: &Kinds, current: &ListedPrice) -> bool {
    ["input", "output"].into_iter().any(|kind| {
        let (Some(after), Some(before)) = (base.get(kind), current.rate(kind)) else { return false };
        *after > before.saturating_mul(3) || before > after.saturating_mul(3)
    })
}
