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
use crate::limits::quota_lease::{LeaseGrant, LeaseRequest, QuotaLease, SurplusListener};
use crate::limits::{
    Calendar, Denied, Exceeded, LimitGrant, LimitOwner, LimitRequest, LimitState, Nanos, UsageLimits, Which,
};
use crate::store::millis;
use crate::store::valkey::connection::{number, parts, text};
use crate::store::valkey::{keys, script};

/// Lifetime of leased concurrency permits: the server reclaims those of a gateway that has not renewed them for this
/// long.
const PERMIT_TTL: Duration = Duration::from_secs(10);
/// Age up to which permits are relied on without contact to the server.
const RELIABLE_PERMIT_AGE: Duration = Duration::from_secs(PERMIT_TTL.as_secs() / 2);
/// Interval at which leases in use are renewed and the state of the fleet is refreshed.
const RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// Lease-ahead factor: a transaction asks for this multiple of the largest request, for requests that follow.
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
        if let Some(asks) = self.commands.upgrade() {
            // If the queue is full, the next lease maintenance returns them.
            let whose = self.owner.clone();
            let _ = asks.try_send(Command::Backend(ClusterCommand::ReturnSurplus { whose }));
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
        self.all.values_mut().for_each(|watched| watched.renewed_at = None);
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
        let mut sorted: HashMap<LimitOwner, Vec<LimitTxnRequest>, RandomState> = HashMap::default();
        for request in requests {
            let passed = Duration::from_nanos(request.amounts.now.unsigned_abs());
            if let Some(epoch) = request.sent_at.checked_sub(passed) {
                let known = self.limit_leases.epoch.get_or_insert(epoch);
                *known = epoch.min(*known);
            }
            let asks = self.commands.clone();
            let whose = request.owner.clone();
            if let Some(share) = request.state.quota_lease() {
                share.set_surplus_listener(|| {
                    Box::new(SurplusNotifier { owner: whose.clone(), commands: asks })
                });
            }
            let watched = self.limit_leases.all.entry(whose.clone()).or_insert_with(|| LeasedLimit {
                state: request.state.clone(),
                limits: request.limits,
                calendar: request.amounts.calendar,
                renewed_at: None,
            });
            if !Arc::ptr_eq(&watched.state, &request.state) {
                // The registry has dropped the previous state, which held no grants.
                watched.state = request.state.clone();
            }
            watched.limits = request.limits;
            watched.calendar = request.amounts.calendar;
            sorted.entry(whose).or_default().push(request);
        }
        let mut visits = Vec::with_capacity(sorted.len());
        for (whose, requests) in sorted {
            visits.extend(self.limit_txn(whose, requests, false));
        }
        self.run_limit_txns(visits).await;
    }

    /// Returns surplus concurrency permits, which other gateways may want.
    pub(super) async fn return_surplus(&mut self, all: Vec<LimitOwner>) {
        let visits = all.into_iter().filter_map(|whose| self.limit_txn(whose, Vec::new(), false)).collect();
        self.run_limit_txns(visits).await;
    }

    /// Renews leases, returns what is unused, and drops the state of limits that have neither. With `end`, returns
    /// everything.
    pub(super) async fn renew_limits(&mut self, end: bool) {
        let mut due = Vec::new();
        self.limit_leases.all.retain(|whose, watched| {
            let Some(share) = watched.state.quota_lease() else { return false };
            let used = share.take_used();
            let age = watched.renewed_at.map(|heard| heard.elapsed());
            // Due now: the end, a forced re-sync, a debt or surplus, or a lease that is not in use.
            if end || age.is_none() || share.is_renewal_urgent() || (!used && share.has_anything()) {
                due.push((whose.clone(), end || !used));
            } else if age.is_some_and(|age| age > RENEW_INTERVAL) && (used || share.has_leases()) {
                due.push((whose.clone(), false));
            } else if !used && !share.has_anything() {
                share.reset();
                return false;
            }
            true
        });
        let visits = due.into_iter().filter_map(|(whose, all)| self.limit_txn(whose, Vec::new(), all));
        let visits = visits.collect();
        self.run_limit_txns(visits).await;
    }

    /// Enters degraded mode for leases that have not been renewed for half their lifetime while there is no connection.
    pub(super) fn expire_limits(&mut self) {
        if self.connection.is_none() {
            for watched in self.limit_leases.all.values() {
                let age = watched.renewed_at.map(|heard| heard.elapsed());
                if age.is_none_or(|age| age > RELIABLE_PERMIT_AGE) {
                    self.enter_degraded(watched);
                }
            }
        }
    }

    fn enter_degraded(&self, watched: &LeasedLimit) {
        let allowance = match self.config.on_outage {
            OnOutage::Refuse => None,
            OnOutage::Allow(more) => Some(more),
        };
        // The server may reclaim leased money after its lifetime: rely on it for half of that only.
        let surely = watched.renewed_at.is_some_and(|heard| heard.elapsed() < account_lease::RELIABLE_AGE);
        if let Some(share) = watched.quota_lease() {
            share.enter_degraded(self.limit_leases.gateways, allowance, surely);
        }
    }

    fn limit_txn(
        &mut self,
        whose: LimitOwner,
        requests: Vec<LimitTxnRequest>,
        all: bool,
    ) -> Option<LimitTxn> {
        let number = self.next_txn();
        let report = self.limit_leases.all.get(&whose)?.quota_lease()?.renewal(all);
        Some(LimitTxn { owner: whose, requests, renewal: report, number, return_all: all })
    }

    async fn run_limit_txns(&mut self, visits: Vec<LimitTxn>) {
        let gateway = self.shared.journal.id();
        let commands = visits.iter().filter_map(|visit| {
            let watched = self.limit_leases.all.get(&visit.owner)?;
            Some(txn_command(gateway, visit, watched))
        });
        let commands: Vec<Cmd> = commands.collect();
        if commands.is_empty() {
            return;
        }
        let asked = Instant::now();
        let answers = match self.connection.clone() {
            None => Vec::new(),
            Some(link) => match link.run_all(commands).await {
                Ok(answers) => answers,
                Err(error) => {
                    self.on_disconnected(&error);
                    Vec::new()
                }
            },
        };
        let mut answers = answers.iter();
        for visit in visits {
            match answers.next().and_then(parse_grant) {
                Some((granted, told)) => self.on_grant(visit, &granted, &told, asked),
                None => self.decide_offline(visit),
            }
        }
    }

    fn on_grant(&mut self, visit: LimitTxn, granted: &[&str], told: &LeaseGrant, asked: Instant) {
        let now = self.limit_leases.now();
        self.limit_leases.gateways = told.gateways;
        let Some(watched) = self.limit_leases.all.get_mut(&visit.owner) else { return };
        watched.renewed_at = Some(asked);
        let Some(share) = watched.state.quota_lease() else { return };
        // Count what the server granted to these requests; the rest of the grant is the new local lease.
        let (mut places, mut held) = (0u32, 0i64);
        for (request, why) in visit.requests.iter().zip(granted) {
            if why.is_empty() {
                places = places.saturating_add(u32::from(request.limits.concurrent.is_some()));
                let cost = if request.limits.has_spend() { request.amounts.cost } else { 0 };
                held = held.saturating_add(cost);
            }
        }
        share.on_ack(now, &visit.renewal, told, places, held);
        for (at, request) in visit.requests.into_iter().enumerate() {
            let why = granted.get(at).copied().unwrap_or("places");
            let outcome = match parse_denial(why, &request) {
                None => Ok(request.state.grant(&request.limits, &request.amounts)),
                // A permit may be on its way back from another gateway: try once more after a moment.
                Some(exceeded) if exceeded.which == Which::Concurrent && !request.is_retry => {
                    self.retry_later(request);
                    continue;
                }
                Some(exceeded) => {
                    if let Some(share) = request.state.quota_lease() {
                        share.record_denial(now, exceeded, request.amounts.cost);
                    }
                    Err(Denied::LimitReached(exceeded))
                }
            };
            // If the receiver is gone, the grant is dropped and returns what it took.
            let _ = request.outcome.send(outcome);
        }
    }

    fn retry_later(&self, request: LimitTxnRequest) {
        let asks = self.commands.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RETRY_DELAY).await;
            if let Some(asks) = asks.upgrade() {
                let retry = Box::new(LimitTxnRequest { is_retry: true, ..request });
                let _ = asks.try_send(Command::Backend(ClusterCommand::Limit(retry)));
            }
        });
    }

    /// Decides without the server, in degraded mode.
    fn decide_offline(&self, visit: LimitTxn) {
        let Some(watched) = self.limit_leases.all.get(&visit.owner) else { return };
        if let Some(share) = watched.quota_lease() {
            share.on_timeout(&visit.renewal);
        }
        if !visit.requests.is_empty() {
            self.enter_degraded(watched);
        }
        for request in visit.requests {
            let outcome = request.state.admit(&request.limits, &request.amounts);
            let outcome = outcome.map_err(|lack| {
                if lack == Denied::NeedsCoordinator { Denied::CoordinatorDown } else { lack }
            });
            let _ = request.outcome.send(outcome);
        }
    }
}

fn txn_command(gateway: u64, visit: &LimitTxn, watched: &LeasedLimit) -> Cmd {
    let LeasedLimit { limits, calendar, .. } = watched;
    let LimitOwner { account, key } = &visit.owner;
    let key = key.as_deref();
    let mut call = script::LIMIT.call(&[
        keys::shared_limits(account, key),
        keys::sums(account, calendar.day),
        keys::month(account, calendar.month),
    ]);
    call.arg(format!("{gateway:016x}"))
        .arg(visit.number)
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
    let LeaseRequest { requests, tokens, permits: places, spend: money, .. } = visit.renewal;
    call.arg(requests).arg(tokens).arg(places).arg(money);
    let most = |of: fn(&LimitTxnRequest) -> i64| visit.requests.iter().map(of).max().unwrap_or(0);
    let tokens = most(|request| i64::try_from(request.amounts.tokens).unwrap_or(i64::MAX));
    let cost = most(|request| request.amounts.cost);
    let ahead = if visit.requests.is_empty() { 0 } else { LEASE_AHEAD };
    call.arg(ahead).arg(tokens.saturating_mul(ahead));
    // Ask for spare permits as long as the limits are in use, even without a waiting request.
    call.arg(if visit.return_all { 0 } else { LEASE_AHEAD }).arg(cost.saturating_mul(ahead));
    for request in &visit.requests {
        call.arg(request.amounts.tokens).arg(request.amounts.cost);
    }
    call
}

/// Parses the result of a limit transaction: a reason for each request (empty if granted), and the grant. Returns
/// `None` if the transaction was rejected or the result is malformed.
fn parse_grant(answer: &Value) -> Option<(Vec<&str>, LeaseGrant)> {
    let [granted, requests, tokens, ahead_requests, ahead_tokens, places, spare, money, gateways] =
        parts(answer)
    else {
        return None;
    };
    let small = |value: &Value| u32::try_from(number(value)).unwrap_or(0);
    let nanos = |value: &Value| number(value).saturating_mul(1_000);
    let told = LeaseGrant {
        full_in: (nanos(requests), nanos(tokens)),
        ahead: (number(ahead_requests), number(ahead_tokens)),
        permits: small(places),
        surplus: small(spare),
        spend: number(money),
        gateways: small(gateways),
    };
    Some((text(granted).split(',').collect(), told))
}

/// Converts the script's reason for a denial. Returns `None` if the request was granted.
fn parse_denial(why: &str, request: &LimitTxnRequest) -> Option<Exceeded> {
    let LimitTxnRequest { limits, amounts: ask, .. } = request;
    let (word, rest) = why.split_once(':').unwrap_or((why, ""));
    let micros = Duration::from_micros(rest.parse().unwrap_or(0));
    // `:soon` means that the money is only reserved, not spent: it may be free again in a second.
    let ends = |seconds: u64| Duration::from_secs(if rest.is_empty() { seconds } else { 1 });
    let money = |limit: Option<i64>| limit.unwrap_or(0).unsigned_abs();
    let calendar = &ask.calendar;
    let (which, limit, wait) = match word {
        "" => return None,
        "requests" => (Which::Requests, limits.requests_per_minute.unwrap_or(0), micros),
        "tokens" => (Which::Tokens, limits.tokens_per_minute.unwrap_or(0), micros),
        "month" => (Which::SpendPerMonth, money(limits.spend_per_month), ends(calendar.month_ends_in)),
        "day" => (Which::SpendPerDay, money(limits.spend_per_day), ends(calendar.day_ends_in)),
        _ => (Which::Concurrent, limits.concurrent.unwrap_or(0).into(), Duration::from_secs(1)),
    };
    Some(Exceeded { which, limit, wait: Some(wait) })
}
