//! Settings of requests for images and videos that a model has no place for: counted, told to the client, or refused,
//! as its key says.

use http::HeaderValue;

use super::Gateway;
use super::context::Context;
use crate::account::Losses;
use crate::canonical::ElementLoss;
use crate::error::{ApiError, Kind};
use crate::wire::loss::LossPolicy;

/// Settings that are told.
const MOST: usize = 8;
/// Characters of a setting that are told.
const LONGEST: usize = 64;

impl Gateway {
    /// Counts what is lost of a request; gives the header that tells it.
    ///
    /// # Errors
    /// The key wants no losses.
    pub(super) fn weigh_lost(
        &self,
        ctx: &Context,
        of: &str,
        lost: &[ElementLoss],
    ) -> Result<Option<HeaderValue>, ApiError> {
        let Some(first) = lost.first() else { return Ok(None) };
        let losses = ctx.key.as_ref().map(|key| key.rules.losses).unwrap_or_default();
        let policy = if losses == Losses::Refuse { LossPolicy::Refuse } else { LossPolicy::Warn };
        let series = self.metrics.losses.with_label_values(&[of, of, "other", policy.name()]);
        series.inc_by(lost.len() as u64);
        match losses {
            Losses::Refuse => {
                let field = &first.field;
                let message =
                    format!("'{field}' is not taken by this model, and this API key wants no losses.");
                Err(ApiError::new(Kind::Unsupported, message).param(field.clone()))
            }
            Losses::Allow => Ok(None),
            Losses::Warn => Ok(warning(lost)),
        }
    }

    /// The same for a request whose plan is made.
    ///
    /// # Errors
    /// The key wants no losses.
    pub(super) fn tell_lost(
        &self,
        ctx: &mut Context,
        of: &str,
        lost: &[ElementLoss],
    ) -> Result<(), ApiError> {
        let warning = self.weigh_lost(ctx, of, lost)?;
        if let Some(plan) = &mut ctx.plan {
            plan.warning = warning;
        }
        Ok(())
    }
}

/// The header that tells what is lost.
fn warning(lost: &[ElementLoss]) -> Option<HeaderValue> {
    let one = |lost: &ElementLoss| {
        let plain = lost.field.chars().filter(|c| c.is_ascii_graphic() && *c != ',').take(LONGEST);
        format!("{} {}", plain.collect::<String>(), lost.instead.as_deref().unwrap_or("dropped"))
    };
    let text = lost.iter().take(MOST).map(one).collect::<Vec<_>>().join(", ");
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_fits_into_a_header() {
        let lost = [
            ElementLoss::dropped("seed"),
            ElementLoss::dropped("x\r\ny, ü"),
            ElementLoss::instead("image_size", "made as 4K"),
        ];
        assert_eq!(warning(&lost).unwrap(), "seed dropped, xy dropped, image_size made as 4K");
        let many: Vec<ElementLoss> = (0..99).map(|_| ElementLoss::dropped("n".repeat(1_000))).collect();
        assert!(warning(&many).unwrap().len() < 1_000);
    }
}
