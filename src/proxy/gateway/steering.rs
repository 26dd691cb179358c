//! Input during a response (`response.steer`): which responses take it, and who pays for it.

use super::context::Context;
use super::phase::UpstreamResponse;
use crate::Gateway;
use codec::translate::Exchange;
use driver::provider_socket::steering::Payer;
use storage::ledger::AccountId;

impl Gateway {
    /// Lets the client send input during a response that it gets as the provider sends it. A translated one has no place
    /// for a successor.
    pub(crate) fn permit_steering(&self, ctx: &Context) {
        let Some(inbox) = ctx.origin.inbox() else { return };
        let Some(UpstreamResponse::Stream(passing)) = ctx.phase.response() else { return };
        if !matches!(passing.exchange, Exchange::Verbatim(_)) {
            return;
        }
        let account = ctx.key().and_then(|key| key.account.as_deref());
        let account = account.and_then(|account| AccountId::shared(&account.name));
        let ledger = ctx.active.billing.ledger.clone();
        inbox.open(account.zip(ledger).map(|(account, ledger)| Payer { ledger, account }));
    }
}
