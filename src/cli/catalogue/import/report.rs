//! Proposals beside the catalogue: same, new, different or refused, and the text of those that are to be reviewed.

use std::fmt::Write as _;

use jiff::civil::Date;

use super::compare::differences;
use super::proposal::{Kinds, Proposal, ProposedRow};
use codec::catalogue::{Catalogue, CatalogueFault, ListedPrice, ModelKind};

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
    /// Models with rows to be reviewed.
    models: Vec<ReviewedModel>,
}

/// Model with rows to be reviewed.
#[derive(Debug)]
struct ReviewedModel {
    /// Name as names are compared.
    name: Box<str>,
    id: String,
    text: String,
    /// Offers, with whether their price differs from that of the catalogue.
    offers: Vec<ReviewedOffer>,
}

#[derive(Debug)]
struct ReviewedOffer {
    provider: &'static str,
    name: String,
    differs: bool,
    rows: Vec<RowText>,
}

/// Lines of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RowText {
    from: Option<Date>,
    lines: String,
    /// What the row of the catalogue has and this one not.
    lost: Vec<String>,
}

/// How a proposal compares with the catalogue.
enum Verdict {
    Same,
    New,
    Differs(String),
}

impl Review {
    /// Compares proposals with a catalogue.
    ///
    /// # Errors
    /// Returns the faults if the proposals cannot be laid over the catalogue, and no model is to blame.
    pub(super) fn of(
        catalogue: &Catalogue,
        day: Date,
        proposals: Vec<Proposal>,
        permissions: &Permissions<'_>,
        source: &str,
    ) -> Result<Review, Vec<CatalogueFault>> {
        let mut review = Review::default();
        for mut proposal in proposals {
            let head = format!("{} at {}", proposal.id, proposal.provider);
            let Some((family, _)) = catalogue.family_of(&proposal.id) else {
                review.foreign += 1;
                continue;
            };
            let current = catalogue
                .offer(proposal.provider, &proposal.id)
                .and_then(|offer| offer.price_on(day).or(offer.prices.last()));
            let written = match judge(&mut proposal, current, family.facts.kind_or_chat(), day, permissions) {
                Err(reason) => Err(reason),
                Ok((Verdict::Same, _)) => {
                    review.same += 1;
                    Ok(())
                }
                Ok((Verdict::New, rows)) => {
                    review.write(catalogue, &family.id, &proposal, rows, (day, None)).map(|()| {
                        review.new += 1;
                        review.lines.push(format!("new      {head}"));
                    })
                }
                Ok((Verdict::Differs(what), rows)) => {
                    review.write(catalogue, &family.id, &proposal, rows, (day, Some(&what))).map(|()| {
                        review.differs += 1;
                        review.lines.push(format!("differs  {head}: {what}"));
                    })
                }
            };
            if let Err(reason) = written {
                review.refused += 1;
                review.lines.push(format!("refused  {head}: {reason}"));
            }
        }
        review.finish(day, source)?;
        Ok(review)
    }

    /// Makes the file. A model whose rows the catalogue refuses is left out.
    fn finish(&mut self, day: Date, source: &str) -> Result<(), Vec<CatalogueFault>> {
        let head = format!(
            "# Proposal from {source}, made on {day}. Review each row against the page of the provider, and correct its source.\n\
             schema = 1\n\n[sources]\n\"import of {day}\" = \"{source}, imported on {day}\"\n"
        );
        loop {
            self.text.clone_from(&head);
            let mut starts = Vec::new();
            for model in &self.models {
                starts.push(self.text.lines().count());
                self.text.push_str(&model.text);
            }
            let Err(faults) = Catalogue::overlaid(&[("proposal", &self.text)]) else { return Ok(()) };
            let before = self.models.len();
            for fault in faults.iter().rev() {
                let at = starts.partition_point(|start| *start < fault.line).checked_sub(1);
                let blamed = at.filter(|at| fault.line > 0 && *at < self.models.len());
                let Some(at) = blamed else { continue };
                // Several faults of one model.
                starts.truncate(at);
                let rest = self.models.split_off(at.saturating_add(1));
                if let Some(model) = self.models.pop() {
                    self.refuse(&model, fault);
                }
                self.models.extend(rest);
            }
            if self.models.len() == before {
                return Err(faults);
            }
        }
    }

    /// Counts the offers of a model as refused.
    fn refuse(&mut self, model: &ReviewedModel, fault: &CatalogueFault) {
        for offer in &model.offers {
            let head = format!("{} at {}", offer.name, offer.provider);
            let count = if offer.differs { &mut self.differs } else { &mut self.new };
            *count = count.saturating_sub(1);
            self.refused += 1;
            self.lines
                .retain(|line| !line.ends_with(&format!(" {head}")) && !line.contains(&format!(" {head}:")));
            self.lines.push(format!("refused  {head}: {}", fault.message));
        }
    }

    /// Adds the rows of a proposal.
    ///
    /// # Errors
    /// Returns the reason if the model has other rows at the provider, under another name.
    fn write(
        &mut self,
        catalogue: &Catalogue,
        family: &str,
        proposal: &Proposal,
        rows: Vec<RowText>,
        (day, what): (Date, Option<&str>),
    ) -> Result<(), String> {
        // A dated snapshot with a price of its own is a model of its own.
        let plain = catalogue.plain_name(&proposal.id);
        let known = catalogue.model(&proposal.id).filter(|model| {
            let named = |name: &str| catalogue.plain_name(name) == plain;
            named(&model.id) || model.offers.iter().any(|offer| named(&offer.name))
        });
        let id = known.map_or(&*proposal.id, |model| &model.id).to_owned();
        let key = catalogue.plain_name(&id);
        let place = self.models.iter().position(|model| model.name == key);
        let place = place.unwrap_or_else(|| {
            let mut text = format!("\n[[model]]\nid = {id:?}\n");
            if known.is_none() {
                let _ = writeln!(text, "family = {family:?}");
                let limits = [
                    ("context", proposal.context),
                    ("input_limit", proposal.input_limit),
                    ("output", proposal.output),
                ];
                for (key, count) in limits {
                    if let Some(count) = count.filter(|count| *count > 0) {
                        let _ = writeln!(text, "{key} = {count}");
                    }
                }
            }
            self.models.push(ReviewedModel { name: key, id: id.clone(), text, offers: Vec::new() });
            self.models.len().saturating_sub(1)
        });
        let Some(model) = self.models.get_mut(place) else { return Ok(()) };
        if let Some(offer) = model.offers.iter().find(|offer| offer.provider == proposal.provider) {
            return Err(if offer.rows == rows {
                format!("it is {} under another name", offer.name)
            } else {
                format!("it is {} under another name, with other prices", offer.name)
            });
        }
        let mark = what.map_or_else(|| "new".to_owned(), |what| format!("differs: {what}"));
        let out = &mut model.text;
        let _ = write!(out, "\n# {mark}\n[[model.at]]\nprovider = {:?}\n", proposal.provider);
        if !proposal.id.eq_ignore_ascii_case(&model.id) {
            let _ = writeln!(out, "name = {:?}", proposal.id);
        }
        if let Some(day) = proposal.retires {
            let _ = writeln!(out, "retires = {day}");
        }
        if let Some(successor) = proposal.successor.as_deref().filter(|id| catalogue.model(id).is_some()) {
            let successor = catalogue.model(successor).map_or(successor, |model| &model.id);
            let _ = writeln!(out, "successor = {successor:?}");
        }
        for (at, row) in rows.iter().enumerate() {
            if !row.lost.is_empty() {
                let _ = writeln!(
                    out,
                    "# The catalogue has these beside, which the source does not state: {}",
                    row.lost.join(", ")
                );
            }
            let _ = write!(out, "[[model.at.price]]\n{}", row.lines);
            // The row before the next one ends on the day before.
            let next = rows.get(at.saturating_add(1)).and_then(|next| next.from);
            if let Some(until) = next.and_then(|next| next.yesterday().ok()) {
                let _ = writeln!(out, "until = {until}");
            }
            let _ = writeln!(out, "source = [\"import of {day}\"]\nstatus = \"unverified\"");
        }
        let name = proposal.id.clone();
        model.offers.push(ReviewedOffer { provider: proposal.provider, name, differs: what.is_some(), rows });
        Ok(())
    }
}

/// Compares a proposal with the price in effect, and returns the lines of its rows.
///
/// # Errors
/// Returns the reason why it is refused.
fn judge(
    proposal: &mut Proposal,
    current: Option<&ListedPrice>,
    kind: ModelKind,
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
    for row in &mut proposal.rows {
        check_zero(row, kind, named(permissions.free))?;
    }
    let Some(first) =
        proposal.rows.first().filter(|row| row.free || !row.base.is_empty() || row.search.is_some())
    else {
        return Err("it has no price".to_owned());
    };
    let what = match current {
        None => String::new(),
        Some(current) if first.free != current.free => {
            format!("free {} -> {}", current.free, first.free)
        }
        Some(current) => differences(first, current).join(", "),
    };
    if let Some(current) = current {
        if what.is_empty() {
            return Ok((Verdict::Same, Vec::new()));
        }
        if !first.free && !named(permissions.accept) && jumps(&first.base, current) {
            return Err(format!(
                "more than three times as high or as low ({what}); to import it: --accept {}",
                proposal.id
            ));
        }
    }
    let mut rows = Vec::new();
    for row in &mut proposal.rows {
        let lost = current.filter(|_| !row.free).map(|current| row.keep(current)).unwrap_or_default();
        row.simplify();
        rows.push(RowText { from: row.from, lines: row.lines()?, lost });
    }
    Ok((if current.is_some() { Verdict::Differs(what) } else { Verdict::New }, rows))
}

/// A price of 0 means free, unknown, or charged elsewhere; it is imported only if the operator says that it is free. One of a kind
/// that has the price of another kind if it has none is left out beside prices above 0: that price is not lower.
fn check_zero(row: &mut ProposedRow, kind: ModelKind, is_free: bool) -> Result<(), String> {
    let zero: Vec<&'static str> =
        row.base.iter().filter(|(_, price)| **price == 0).map(|(kind, _)| *kind).collect();
    if zero.is_empty() {
        return Ok(());
    }
    if is_free {
        row.free = zero.len() == row.base.len();
        return Ok(());
    }
    let is_paid = row.base.len() > zero.len();
    let is_none = |zero: &&str| match *zero {
        "input" => false,
        "output" => matches!(kind, ModelKind::Embedding | ModelKind::Rerank | ModelKind::Moderation),
        _ => true,
    };
    if !is_paid || !zero.iter().all(is_none) {
        return Err(format!("a price of 0 ({}); if it is free: --free MODEL", zero.join(", ")));
    }
    let tiers = row.tiers.values_mut();
    let all = tiers.chain(row.long.values_mut()).chain(row.long_tiers.values_mut());
    all.for_each(|kinds| kinds.retain(|kind, _| !zero.contains(kind)));
    row.base.retain(|_, price| *price > 0);
    Ok(())
}

/// Returns whether input or output costs more than three times as much as before, or less than a third.
fn jumps(base: &Kinds, current: &ListedPrice) -> bool {
    ["input", "output"].into_iter().any(|kind| {
        let (Some(after), Some(before)) = (base.get(kind), current.rate(kind)) else { return false };
        *after > before.saturating_mul(3) || before > after.saturating_mul(3)
    })
}
