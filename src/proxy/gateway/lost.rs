//! Element loss of image and video requests: settings that the model does not support are counted, reported to the
//! client or refused, as the key's rules say.

use http::HeaderValue;

use super::context::Context;
use crate::Gateway;
use codec::canonical::ElementLoss;
use codec::error::{ApiError, ErrorKind};
use codec::wire::loss::LossPolicy;
use routing::account::Losses;

/// Settings that the warning header lists.
const MAX_LISTED: usize = 8;
/// Characters of a setting's name in the warning header.
const LONGEST: usize = 64;

impl Gateway {
    /// Counts the lost settings of a request. Returns the `x-gateway-warning` header if the key's policy is to warn,
    /// else `None`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`] if a setting is lost and the key refuses losses.
    pub(crate) fn count_lost_settings(
        &self,
        ctx: &Context,
        of: &str,
        lost: &[ElementLoss],
    ) -> Result<Option<HeaderValue>, ApiError> {
        let Some(first) = lost.first() else { return Ok(None) };
        let losses = ctx.key().map(|key| key.rules.losses).unwrap_or_default();
        let policy = if losses == Losses::Refuse { LossPolicy::Refuse } else { LossPolicy::Warn };
        let series = self.metrics.losses.with_label_values(&[of, of, "other", policy.name()]);
        series.inc_by(lost.len() as u64);
        match losses {
            Losses::Refuse => {
                let field = &first.field;
                let message =
                    format!("This model does not accept '{field}', and this API key refuses losses.");
                Err(ApiError::new(ErrorKind::Unsupported, message).param(field.clone()))
            }
            Losses::Allow => Ok(None),
            Losses::Warn => Ok(warning(lost)),
        }
    }

    /// Applies [`count_lost_settings`](Self::count_lost_settings) to a request that has an attempt, and sets the
    /// attempt's warning.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`] if a setting is lost and the key refuses losses.
    pub(crate) fn warn_lost_settings(
        &self,
        ctx: &mut Context,
        of: &str,
        lost: &[ElementLoss],
    ) -> Result<(), ApiError> {
        let warning = self.count_lost_settings(ctx, of, lost)?;
        if let Some(plan) = ctx.attempt_mut() {
            plan.warning = warning;
        }
        Ok(())
    }
}

/// Returns the value of the warning header: at most [`MAX_LISTED`] settings, with names cut to [`LONGEST`] characters.
fn warning(lost: &[ElementLoss]) -> Option<HeaderValue> {
    let one = |lost: &ElementLoss| {
        let plain = lost.field.chars().filter(|c| c.is_ascii_graphic() && *c != ',').take(LONGEST);
        format!("{} {}", plain.collect::<String>(), lost.instead.as_deref().unwrap_or("dropped"))
    };
    let text = lost.iter().take(MAX_LISTED).map(one).collect::<Vec<_>>().join(", ");
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_header_lists_lost_elements_and_is_bounded() {
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
