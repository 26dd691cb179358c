//! Limits that gateways share: what is set aside of them for this gateway, and what is done while nobody can be asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use redis::{Cmd, Value};
use tokio::sync::mpsc::WeakSender;
use tokio::sync::oneshot;

use super::account_lease;
use super::cluster_ledger::{ClusterCommand, OnOutage};
use super::connection::{number, parts, text};
use super::lease_manager::LeaseManager;
use super::{keys, script};
use crate::account::gcra::Nanos;
use crate::account::limit::Which;
use crate::account::quota_lease::{Denied, LeaseGrant, LeaseRequest, QuotaLease, SurplusListener};
use crate::account::{Calendar, Exceeded, LimitGrant, LimitState, UsageLimits, limit};
use crate::store::limiter::Whose;
use crate::store::millis;

/// How long the server keeps places for a gateway that it does not hear of.
const LIFE: Duration = Duration::from_secs(10);
/// How often what is lent is renewed, and asked what others have taken.
const RENEWED: Duration = Duration::from_secs(1);
/// Beyond what a request needs, so many times as much is set aside, for the requests that follow.
const AHEAD: i64 = 256;
/// How long it is waited for a place that another gateway may be giving back in this moment.
const MOMENT: Duration = Duration::from_millis(10);

/// A request that asks for its part.
#[derive(Debug)]
pub(super) struct LimitTxnRequest {
    pub(super) whose: Whose,
    pub(super) gauge: Arc<LimitState>,
    pub(super) limits: UsageLimits,
    pub(super) ask: limit::LimitRequest,
    /// When it asked.
    pub(super) at: Instant,
    /// It has waited a moment.
    pub(super) again: bool,
    pub(super) outcome: oneshot::Sender<Result<LimitGrant, Denied>>,
}

/// Limits of which something is in hand.
struct Watched {
    gauge: Arc<LimitState>,
    limits: UsageLimits,
    calendar: Calendar,
    /// When the server was asked last.
    heard: Option<Instant>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Watch {
    all: HashMap<Whose, Watched, RandomState>,
    /// When the time began that requests count by, as far as is known: a request knows what time it was when it came,
    /// and some time has passed since then. The one that waited least tells best; by one that waited long, the fleet's
    /// buckets would seem to fill too early.
    epoch: Option<Instant>,
    /// Most gateways that shared a limit when that was known last.
    gateways: u32,
}

/// Notifier of the lease manager: concurrency permits are free.
#[derive(Debug)]
struct SurplusNotifier {
    whose: Whose,
    asks: WeakSender<ClusterCommand>,
}

impl SurplusListener for SurplusNotifier {
    fn spare(&self) {
        if let Some(asks) = self.asks.upgrade() {
            // Where too many wait, the next round gives them back.
            let _ = asks.try_send(ClusterCommand::Spare { whose: self.whose.clone() });
        }
    }
}

/// Limit transaction: one script call for leased quotas.
struct LimitTxn {
    whose: Whose,
    requests: Vec<LimitTxnRequest>,
    report: LeaseRequest,
    number: u64,
    /// All that is not used is given back.
    all: bool,
}

impl Watch {
    /// What was charged up to now is about to be brought.
    pub(super) fn bringing(&self) {
        self.all.values().filter_map(Watched::share).for_each(QuotaLease::bringing);
    }

    /// All of it was brought.
    pub(super) fn brought(&self) {
        self.all.values().filter_map(Watched::share).for_each(QuotaLease::brought);
    }

    /// The server may not be the one that it was, or not know what it knew.
    pub(super) fn connected(&mut self) {
        self.all.values_mut().for_each(|watched| watched.heard = None);
    }

    fn now(&self) -> Nanos {
        let passed = self.epoch.map(|epoch| epoch.elapsed().as_nanos()).unwrap_or_default();
        Nanos::try_from(passed).unwrap_or(Nanos::MAX)
    }
}

impl Watched {
    fn share(&self) -> Option<&QuotaLease> {
        self.gauge.share()
    }
}

impl LeaseManager {
    /// Answers requests that ask for their part.
    pub(super) async fn limit(&mut self, requests: Vec<LimitTxnRequest>) {
        let mut sorted: HashMap<Whose, Vec<LimitTxnRequest>, RandomState> = HashMap::default();
        for request in requests {
            let passed = Duration::from_nanos(request.ask.now.unsigned_abs());
            if let Some(epoch) = request.at.checked_sub(passed) {
                let known = self.watch.epoch.get_or_insert(epoch);
                *known = epoch.min(*known);
            }
            let asks = self.asks.clone();
            let whose = request.whose.clone();
            if let Some(share) = request.gauge.share() {
                share.keeper(|| Box::new(SurplusNotifier { whose: whose.clone(), asks }));
            }
            let watched = self.watch.all.entry(whose.clone()).or_insert_with(|| Watched {
                gauge: request.gauge.clone(),
                limits: request.limits,
                calendar: request.ask.calendar,
                heard: None,
            });
            if !Arc::ptr_eq(&watched.gauge, &request.gauge) {
                // The one before was forgotten, and holds nothing.
                watched.gauge = request.gauge.clone();
            }
            watched.limits = request.limits;
            watched.calendar = request.ask.calendar;
            sorted.entry(whose).or_default().push(request);
        }
        let mut visits = Vec::with_capacity(sorted.len());
        for (whose, requests) in sorted {
            visits.extend(self.visit(whose, requests, false));
        }
        self.make(visits).await;
    }

    /// Gives places back that others may want.
    pub(super) async fn spare(&mut self, all: Vec<Whose>) {
        let visits = all.into_iter().filter_map(|whose| self.visit(whose, Vec::new(), false)).collect();
        self.make(visits).await;
    }

    /// Renews what is lent, gives back what is not used, forgets what has neither.
    pub(super) async fn see_to_limits(&mut self, end: bool) {
        let mut due = Vec::new();
        self.watch.all.retain(|whose, watched| {
            let Some(share) = watched.gauge.share() else { return false };
            let used = share.take_used();
            let age = watched.heard.map(|heard| heard.elapsed());
            if end || age.is_none() || share.has_to_tell() || (!used && share.has_anything()) {
                due.push((whose.clone(), end || !used));
            } else if age.is_some_and(|age| age > RENEWED) && (used || share.is_lent()) {
                due.push((whose.clone(), false));
            } else if !used && !share.has_anything() {
                share.forget();
                return false;
            }
            true
        });
        let visits = due.into_iter().filter_map(|(whose, all)| self.visit(whose, Vec::new(), all));
        let visits = visits.collect();
        self.make(visits).await;
    }

    /// What is set aside is not relied on for longer than it surely is.
    pub(super) fn age_limits(&mut self) {
        if self.link.is_none() {
            for watched in self.watch.all.values() {
                let age = watched.heard.map(|heard| heard.elapsed());
                if age.is_none_or(|age| age > LIFE / 2) {
                    self.go_away(watched);
                }
            }
        }
    }

    fn go_away(&self, watched: &Watched) {
        let allowance = match self.terms.away {
            OnOutage::Refuse => None,
            OnOutage::Allow(more) => Some(more),
        };
        let surely = watched.heard.is_some_and(|heard| heard.elapsed() < account_lease::LIFE / 2);
        if let Some(share) = watched.share() {
            share.go_away(self.watch.gateways, allowance, surely);
        }
    }

    fn visit(&mut self, whose: Whose, requests: Vec<LimitTxnRequest>, all: bool) -> Option<LimitTxn> {
        let number = self.number();
        let report = self.watch.all.get(&whose)?.share()?.report(all);
        Some(LimitTxn { whose, requests, report, number, all })
    }

    async fn make(&mut self, visits: Vec<LimitTxn>) {
        let gateway = self.shared.journal.id();
        let commands = visits.iter().filter_map(|visit| {
            let watched = self.watch.all.get(&visit.whose)?;
            Some(command(gateway, visit, watched))
        });
        let commands: Vec<Cmd> = commands.collect();
        if commands.is_empty() {
            return;
        }
        let asked = Instant::now();
        let answers = match self.link.clone() {
            None => Vec::new(),
            Some(link) => match link.all(commands).await {
                Ok(answers) => answers,
                Err(error) => {
                    self.lost(&error);
                    Vec::new()
                }
            },
        };
        let mut answers = answers.iter();
        for visit in visits {
            match answers.next().and_then(heard) {
                Some((granted, told)) => self.heard(visit, &granted, &told, asked),
                None => self.unheard(visit),
            }
        }
    }

    fn heard(&mut self, visit: LimitTxn, granted: &[&str], told: &LeaseGrant, asked: Instant) {
        let now = self.watch.now();
        self.watch.gateways = told.gateways;
        let Some(watched) = self.watch.all.get_mut(&visit.whose) else { return };
        watched.heard = Some(asked);
        let Some(share) = watched.gauge.share() else { return };
        let (mut places, mut held) = (0, 0i64);
        for (request, why) in visit.requests.iter().zip(granted) {
            if why.is_empty() {
                places += u32::from(request.limits.concurrent.is_some());
                let cost = if request.limits.has_spend() { request.ask.cost } else { 0 };
                held = held.saturating_add(cost);
            }
        }
        share.heard(now, &visit.report, told, places, held);
        for (at, request) in visit.requests.into_iter().enumerate() {
            let why = granted.get(at).copied().unwrap_or("places");
            let outcome = match refused(why, &request) {
                None => Ok(request.gauge.granted(&request.limits, &request.ask)),
                Some(exceeded) if exceeded.which == Which::Concurrent && !request.again => {
                    self.wait_a_moment(request);
                    continue;
                }
                Some(exceeded) => {
                    if let Some(share) = request.gauge.share() {
                        share.refuse(now, exceeded, request.ask.cost);
                    }
                    Err(Denied::LimitReached(exceeded))
                }
            };
            // Of whom nobody waits for any more, the ticket gives back what it took.
            let _ = request.outcome.send(outcome);
        }
    }

    fn wait_a_moment(&self, request: LimitTxnRequest) {
        let asks = self.asks.clone();
        tokio::spawn(async move {
            tokio::time::sleep(MOMENT).await;
            if let Some(asks) = asks.upgrade() {
                let _ = asks
                    .try_send(ClusterCommand::Limit(Box::new(LimitTxnRequest { again: true, ..request })));
            }
        });
    }

    /// Decides without the server.
    fn unheard(&self, visit: LimitTxn) {
        let Some(watched) = self.watch.all.get(&visit.whose) else { return };
        if let Some(share) = watched.share() {
            share.unheard(&visit.report);
        }
        if !visit.requests.is_empty() {
            self.go_away(watched);
        }
        for request in visit.requests {
            let outcome = request.gauge.admit(&request.limits, &request.ask);
            let outcome = outcome.map_err(|lack| {
                if lack == Denied::NeedsCoordinator { Denied::CoordinatorDown } else { lack }
            });
            let _ = request.outcome.send(outcome);
        }
    }
}

fn command(gateway: u64, visit: &LimitTxn, watched: &Watched) -> Cmd {
    let Watched { limits, calendar, .. } = watched;
    let Whose { account, key } = &visit.whose;
    let key = key.as_deref();
    let mut call = script::LIMIT.call(&[
        keys::gauge(account, key),
        keys::sums(account, calendar.day),
        keys::month(account, calendar.month),
    ]);
    call.arg(format!("{gateway:016x}")).arg(visit.number).arg(millis(LIFE)).arg(millis(account_lease::LIFE));
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
    let LeaseRequest { requests, tokens, places, money, .. } = visit.report;
    call.arg(requests).arg(tokens).arg(places).arg(money);
    let most = |of: fn(&LimitTxnRequest) -> i64| visit.requests.iter().map(of).max().unwrap_or(0);
    let tokens = most(|request| i64::try_from(request.ask.tokens).unwrap_or(i64::MAX));
    let cost = most(|request| request.ask.cost);
    let ahead = if visit.requests.is_empty() { 0 } else { AHEAD };
    call.arg(ahead).arg(tokens.saturating_mul(ahead));
    // Places are kept, as far as they may be, for as long as the limits are used.
    call.arg(if visit.all { 0 } else { AHEAD }).arg(cost.saturating_mul(ahead));
    for request in &visit.requests {
        call.arg(request.ask.tokens).arg(request.ask.cost);
    }
    call
}

/// Reads what came of a visit; nothing, if it was not made or cannot be understood.
fn heard(answer: &Value) -> Option<(Vec<&str>, LeaseGrant)> {
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
        places: small(places),
        spare: small(spare),
        money: number(money),
        gateways: small(gateways),
    };
    Some((text(granted).split(',').collect(), told))
}

/// Why a request was refused.
fn refused(why: &str, request: &LimitTxnRequest) -> Option<Exceeded> {
    let LimitTxnRequest { limits, ask, .. } = request;
    let (word, rest) = why.split_once(':').unwrap_or((why, ""));
    let micros = Duration::from_micros(rest.parse().unwrap_or(0));
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
