//! Shared limits on the side of the lease manager: quota leases are renewed and used, and requests are decided while
//! the server is unreachable.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use redis::{Cmd, Value};
use tokio::sync::mpsc::WeakSender;
use tokio::sync::oneshot;

use super::account_lease;
use super::cluster_ledger::{ClusterCommand, OnOutage};
use super::lease_manager::LeaseManager;
use crate::ledger::worker::Command;
use crate::store::millis;
use crate::store::valkey::connection::{number, parts, text};
use crate::store::valkey::{keys, script};
use routing::limits::quota_lease::{LeaseGrant, LeaseRequest, QuotaLease, SurplusListener};
use routing::limits::{
    Calendar, Denied, Exceeded, LimitGrant, LimitOwner, LimitRequest, LimitState, Nanos, UsageLimits, Which,
};

/// Lifetime of leased concurrency permits: the server reclaims those of a gateway that has not renewed them for this
/// long.
const PERMIT_TTL: Duration = Duration::from_secs(10);
/// Age up to which permits are relied on without contact to the server.
const RELIABLE_PERMIT_AGE: Duration = Duration::from_secs(PERMIT_TTL.as_secs() / 2);
/// Interval at which leases in use are renewed and the state of the fleet is refreshed.
const RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// Lease-ahead factor: a transaction requests this multiple of the largest request, for requests that follow.
const LEASE_AHEAD: i64 = 256;
/// Pause before the one retry for a concurrency permit, which another gateway may be returning at this moment.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Request that needs a grant from the server.
#[derive(Debug)]
pub(super) struct LimitTxnRequest {
    pub(super) owner: LimitOwner,
    pub(super) state: Arc<LimitState>,
    pub(super) limits: UsageLimits,
    pub(super) amounts: LimitRequest,
    /// Time at which it was sent to this thread.
    pub(super) sent_at: Instant,
    /// True for the retry after [`RETRY_DELAY`].
    pub(super) is_retry: bool,
    pub(super) outcome: oneshot::Sender<Result<LimitGrant, Denied>>,
}

/// Shared limits of one key or account of which this gateway has a lease.
struct LeasedLimit {
    state: Arc<LimitState>,
    limits: UsageLimits,
    calendar: Calendar,
    /// Time of the last successful transaction; `None` forces one.
    renewed_at: Option<Instant>,
}

/// All shared limits that are in use.
#[derive(Default)]
pub(super) struct LimitLeases {
    all: HashMap<LimitOwner, LeasedLimit, RandomState>,
    /// Epoch of the clock that requests use ([`LimitRequest::now`]), as far as known. It is estimated as arrival
    /// at this thread less the request's time, which is too late by the time that the request has waited. So the
    /// earliest estimate is the best one; with a later one, the fleet's buckets would seem to fill too early.
    epoch: Option<Instant>,
    /// Number of gateways that shared a limit, as last reported. Used in degraded mode.
    gateways: u32,
}

/// Notifier of the lease manager: concurrency permits are free.
#[derive(Debug)]
struct SurplusNotifier {
    owner: LimitOwner,
    commands: WeakSender<Command<ClusterCommand>>,
}

impl SurplusListener for SurplusNotifier {
    fn on_surplus(&self) {
        if let Some(commands) = self.commands.upgrade() {
            // If the queue is full, the next lease maintenance returns them.
            let owner = self.owner.clone();
            let _ = commands.try_send(Command::Backend(ClusterCommand::ReturnSurplus { owner }));
        }
    }
}

/// Limit transaction: one script call for leased quotas.
struct LimitTxn {
    owner: LimitOwner,
    requests: Vec<LimitTxnRequest>,
    renewal: LeaseRequest,
    number: u64,
    /// True if everything unused is to be returned.
    return_all: bool,
}

impl LimitLeases {
    /// Marks all charges so far as in flight to the server.
    pub(super) fn mark_in_flight(&self) {
        self.all.values().filter_map(LeasedLimit::quota_lease).for_each(QuotaLease::mark_in_flight);
    }

    /// Clears the charges in flight: the server has them.
    pub(super) fn clear_in_flight(&self) {
        self.all.values().filter_map(LeasedLimit::quota_lease).for_each(QuotaLease::clear_in_flight);
    }

    /// Force a re-sync of all leases: after failover the server may have lost state.
    pub(super) fn force_resync(&mut self) {
        self.all.values_mut().for_each(|leased_limit| leased_limit.renewed_at = None);
    }

    fn now(&self) -> Nanos {
        let passed = self.epoch.map(|epoch| epoch.elapsed().as_nanos()).unwrap_or_default();
        Nanos::try_from(passed).unwrap_or(Nanos::MAX)
    }
}

impl LeasedLimit {
    fn quota_lease(&self) -> Option<&QuotaLease> {
        self.state.quota_lease()
    }
}

impl LeaseManager {
    /// Grants or denies requests, in one transaction for each key or account.
    pub(super) async fn limit(&mut self, requests: Vec<LimitTxnRequest>) {
        let mut by_owner: HashMap<LimitOwner, Vec<LimitTxnRequest>, RandomState> = HashMap::default();
        for request in requests {
            let passed = Duration::from_nanos(request.amounts.now.unsigned_abs());
            if let Some(epoch) = request.sent_at.checked_sub(passed) {
                let known = self.limit_leases.epoch.get_or_insert(epoch);
                *known = epoch.min(*known);
            }
            let commands = self.commands.clone();
            let owner = request.owner.clone();
            if let Some(quota_lease) = request.state.quota_lease() {
                quota_lease
                    .set_surplus_listener(|| Box::new(SurplusNotifier { owner: owner.clone(), commands }));
            }
            let leased_limit = self.limit_leases.all.entry(owner.clone()).or_insert_with(|| LeasedLimit {
                state: request.state.clone(),
                limits: request.limits,
                calendar: request.amounts.calendar,
                renewed_at: None,
            });
            if !Arc::ptr_eq(&leased_limit.state, &request.state) {
                // The registry has dropped the previous state, which held no grants.
                leased_limit.state = request.state.clone();
            }
            // A reload may have changed the limits since the lease was taken.
            leased_limit.limits = request.limits;
            leased_limit.calendar = request.amounts.calendar;
            by_owner.entry(owner).or_default().push(request);
        }
        let mut txns = Vec::with_capacity(by_owner.len());
        for (owner, requests) in by_owner {
            txns.extend(self.limit_txn(owner, requests, false));
        }
        self.run_limit_txns(txns).await;
    }

    /// Returns surplus concurrency permits, which other gateways may need.
    pub(super) async fn return_surplus(&mut self, all: Vec<LimitOwner>) {
        let txns = all.into_iter().filter_map(|owner| self.limit_txn(owner, Vec::new(), false)).collect();
        self.run_limit_txns(txns).await;
    }

    /// Renews leases, returns what is unused, and drops the state of limits that have neither. With `end`, returns
    /// everything.
    pub(super) async fn renew_limits(&mut self, end: bool) {
        let mut due = Vec::new();
        self.limit_leases.all.retain(|owner, leased_limit| {
            let Some(quota_lease) = leased_limit.state.quota_lease() else { return false };
            let used = quota_lease.take_used();
            let age = leased_limit.renewed_at.map(|renewed_at| renewed_at.elapsed());
            // Due now: the end, a forced re-sync, a debt or surplus, or a lease that is not in use.
            if end
                || age.is_none()
                || quota_lease.is_renewal_urgent()
                || (!used && quota_lease.has_anything())
            {
                due.push((owner.clone(), end || !used));
            } else if age.is_some_and(|age| age > RENEW_INTERVAL) && (used || quota_lease.has_leases()) {
                due.push((owner.clone(), false));
            } else if !used && !quota_lease.has_anything() {
                quota_lease.reset();
                return false;
            }
            true
        });
        let txns = due.into_iter().filter_map(|(owner, all)| self.limit_txn(owner, Vec::new(), all));
        let txns = txns.collect();
        self.run_limit_txns(txns).await;
    }

    /// Enters degraded mode for leases that have not been renewed for half their lifetime while there is no connection.
    pub(super) fn expire_limits(&mut self) {
        if self.connection.is_none() {
            for leased_limit in self.limit_leases.all.values() {
                let age = leased_limit.renewed_at.map(|renewed_at| renewed_at.elapsed());
                if age.is_none_or(|age| age > RELIABLE_PERMIT_AGE) {
                    self.enter_degraded(leased_limit);
                }
            }
        }
    }

    fn enter_degraded(&self, leased_limit: &LeasedLimit) {
        let allowance = match self.config.on_outage {
            OnOutage::Refuse => None,
            OnOutage::Allow(more) => Some(more),
        };
        // The server may reclaim leased money after its lifetime: rely on it for half of that only.
        let is_reliable = leased_limit
            .renewed_at
            .is_some_and(|renewed_at| renewed_at.elapsed() < account_lease::RELIABLE_AGE);
        if let Some(quota_lease) = leased_limit.quota_lease() {
            quota_lease.enter_degraded(self.limit_leases.gateways, allowance, is_reliable);
        }
    }

    fn limit_txn(
        &mut self,
        owner: LimitOwner,
        requests: Vec<LimitTxnRequest>,
        all: bool,
    ) -> Option<LimitTxn> {
        let number = self.next_txn();
        let renewal = self.limit_leases.all.get(&owner)?.quota_lease()?.renewal(all);
        Some(LimitTxn { owner, requests, renewal, number, return_all: all })
    }

    async fn run_limit_txns(&mut self, txns: Vec<LimitTxn>) {
        let gateway = self.shared.journal.id();
        let commands = txns.iter().filter_map(|txn| {
            let leased_limit = self.limit_leases.all.get(&txn.owner)?;
            Some(txn_command(gateway, txn, leased_limit))
        });
        let commands: Vec<Cmd> = commands.collect();
        if commands.is_empty() {
            return;
        }
        let sent_at = Instant::now();
        let answers = match self.connection.clone() {
            None => Vec::new(),
            Some(connection) => match connection.run_all(commands).await {
                Ok(answers) => answers,
                Err(error) => {
                    self.on_disconnected(&error);
                    Vec::new()
                }
            },
        };
        let mut answers = answers.iter();
        for txn in txns {
            match answers.next().and_then(parse_grant) {
                Some((granted, grant)) => self.on_grant(txn, &granted, &grant, sent_at),
                None => self.decide_offline(txn),
            }
        }
    }

    fn on_grant(&mut self, txn: LimitTxn, granted: &[&str], grant: &LeaseGrant, sent_at: Instant) {
        let now = self.limit_leases.now();
        self.limit_leases.gateways = grant.gateways;
        let Some(leased_limit) = self.limit_leases.all.get_mut(&txn.owner) else { return };
        // The time of sending, before the server's own: the lease must never seem younger than it is there.
        leased_limit.renewed_at = Some(sent_at);
        let Some(quota_lease) = leased_limit.state.quota_lease() else { return };
        // Count what the server granted to these requests; the rest of the grant is the new local lease.
        let (mut permits, mut held) = (0u32, 0i64);
        for (request, reason) in txn.requests.iter().zip(granted) {
            if reason.is_empty() {
                permits = permits.saturating_add(u32::from(request.limits.concurrent.is_some()));
                let cost = if request.limits.has_spend() { request.amounts.cost } else { 0 };
                held = held.saturating_add(cost);
            }
        }
        quota_lease.on_ack(now, &txn.renewal, grant, permits, held);
        quota_lease.record_ledger_spend(&leased_limit.calendar, grant.ledger_spend);
        for (at, request) in txn.requests.into_iter().enumerate() {
            let reason = granted.get(at).copied().unwrap_or("places");
            let outcome = match parse_denial(reason, &request) {
                None => Ok(request.state.grant(&request.limits, &request.amounts)),
                // A permit may be on its way back from another gateway: try once more after a moment.
                Some(exceeded) if exceeded.which == Which::Concurrent && !request.is_retry => {
                    self.retry_later(request);
                    continue;
                }
                Some(exceeded) => {
                    if let Some(quota_lease) = request.state.quota_lease() {
                        quota_lease.record_denial(now, exceeded, request.amounts.cost);
                    }
                    let exceeded = request.state.exceeded(exceeded, &request.limits, &request.amounts);
                    Err(Denied::LimitReached(exceeded))
                }
            };
            // If the receiver is gone, the grant is dropped and returns what it took.
            let _ = request.outcome.send(outcome);
        }
    }

    fn retry_later(&self, request: LimitTxnRequest) {
        let commands = self.commands.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RETRY_DELAY).await;
            if let Some(commands) = commands.upgrade() {
                let retry = Box::new(LimitTxnRequest { is_retry: true, ..request });
                // If the queue is full, the request is dropped, and its receiver takes that for an outage.
                let _ = commands.try_send(Command::Backend(ClusterCommand::Limit(retry)));
            }
        });
    }

    /// Decides without the server, in degraded mode.
    fn decide_offline(&self, txn: LimitTxn) {
        let Some(leased_limit) = self.limit_leases.all.get(&txn.owner) else { return };
        if let Some(quota_lease) = leased_limit.quota_lease() {
            quota_lease.on_timeout(&txn.renewal);
        }
        if !txn.requests.is_empty() {
            self.enter_degraded(leased_limit);
        }
        for request in txn.requests {
            let outcome = request.state.admit(&request.limits, &request.amounts);
            let outcome = outcome.map_err(|denied| {
                if denied == Denied::NeedsCoordinator { Denied::CoordinatorDown } else { denied }
            });
            let _ = request.outcome.send(outcome);
        }
    }
}

fn txn_command(gateway: u64, txn: &LimitTxn, leased_limit: &LeasedLimit) -> Cmd {
    let LeasedLimit { limits, calendar, .. } = leased_limit;
    let LimitOwner { account, key } = &txn.owner;
    let key = key.as_deref();
    let mut call = script::LIMIT.call(&[
        keys::shared_limits(account, key),
        keys::sums(account, calendar.day),
        keys::month(account, calendar.month),
    ]);
    call.arg(format!("{gateway:016x}"))
        .arg(txn.number)
        .arg(millis(PERMIT_TTL))
        .arg(millis(account_lease::LEASE_TTL));
    call.arg(keys::spent(key));
    let mut limit = |limit: Option<u64>| match limit {
        Some(limit) => drop(call.arg(limit)),
        None => drop(call.arg("")),
    };
    limit(limits.requests_per_minute);
    limit(limits.tokens_per_minute);
    limit(limits.concurrent.map(u64::from));
    limit(limits.spend_per_day.map(i64::unsigned_abs));
    limit(limits.spend_per_month.map(i64::unsigned_abs));
    let LeaseRequest { requests, tokens, permits, idle, spend, .. } = txn.renewal;
    call.arg(requests).arg(tokens).arg(permits).arg(spend);
    let most = |of: fn(&LimitTxnRequest) -> i64| txn.requests.iter().map(of).max().unwrap_or(0);
    let tokens = most(|request| i64::try_from(request.amounts.tokens).unwrap_or(i64::MAX));
    let cost = most(|request| request.amounts.cost);
    let ahead = if txn.requests.is_empty() { 0 } else { LEASE_AHEAD };
    call.arg(ahead).arg(tokens.saturating_mul(ahead));
    // Request surplus permits as long as the limits are in use, even without a waiting request.
    call.arg(if txn.return_all { 0 } else { LEASE_AHEAD }).arg(cost.saturating_mul(ahead)).arg(idle);
    for request in &txn.requests {
        call.arg(request.amounts.tokens).arg(request.amounts.cost);
    }
    call
}

/// Parses the result of a limit transaction: a reason for each request (empty if granted), and the grant. Returns
/// `None` if the transaction was rejected or the result is malformed.
fn parse_grant(answer: &Value) -> Option<(Vec<&str>, LeaseGrant)> {
    let [
        granted,
        requests,
        tokens,
        ahead_requests,
        ahead_tokens,
        permits,
        surplus,
        spend,
        gateways,
        of_day,
        of_month,
    ] = parts(answer)
    else {
        return None;
    };
    let small = |value: &Value| u32::try_from(number(value)).unwrap_or(0);
    let nanos = |value: &Value| number(value).saturating_mul(1_000);
    let grant = LeaseGrant {
        full_in: (nanos(requests), nanos(tokens)),
        ahead: (number(ahead_requests), number(ahead_tokens)),
        permits: small(permits),
        surplus: small(surplus),
        spend: number(spend),
        gateways: small(gateways),
        ledger_spend: (number(of_day), number(of_month)),
    };
    Some((text(granted).split(',').collect(), grant))
}

/// Converts the script's reason for a denial. Returns `None` if the request was granted.
fn parse_denial(reason: &str, request: &LimitTxnRequest) -> Option<Exceeded> {
    let LimitTxnRequest { limits, amounts, .. } = request;
    let (word, rest) = reason.split_once(':').unwrap_or((reason, ""));
    let micros = Duration::from_micros(rest.parse().unwrap_or(0));
    // `:soon` means that the spend is only reserved, not spent: it may be free again in a second.
    let ends = |seconds: u64| Duration::from_secs(if rest.is_empty() { seconds } else { 1 });
    let nanos = |limit: Option<i64>| limit.unwrap_or(0).unsigned_abs();
    let calendar = &amounts.calendar;
    let (which, limit, wait) = match word {
        "" => return None,
        "requests" => (Which::Requests, limits.requests_per_minute.unwrap_or(0), micros),
        "tokens" => (Which::Tokens, limits.tokens_per_minute.unwrap_or(0), micros),
        "month" => (Which::SpendPerMonth, nanos(limits.spend_per_month), ends(calendar.month_ends_in)),
        "day" => (Which::SpendPerDay, nanos(limits.spend_per_day), ends(calendar.day_ends_in)),
        _ => (Which::Concurrent, limits.concurrent.unwrap_or(0).into(), Duration::from_secs(1)),
    };
    Some(Exceeded { which, limit, wait: Some(wait) })
}
