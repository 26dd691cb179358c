//! The tree of strategies of a config as tiers: the targets of a fallback follow each other, those of a load
//! balancer share a tier.

use super::{Import, MEMBERS};
use crate::import::document::{Field, FieldResult};

/// Most targets of a config.
const MAX_LEAVES: usize = 1_000;

/// Target of a config, with what it has from the strategies around it.
pub(super) struct Leaf<'n> {
    pub(super) field: Field<'n>,
    /// Position in the order of fallbacks, from 0.
    pub(super) tier: usize,
    /// Share of the requests of its tier.
    pub(super) weight: f64,
    /// `override_params.model`.
    pub(super) model: Option<Field<'n>>,
    /// `request_timeout`, in milliseconds.
    pub(super) timeout: Option<Field<'n>>,
    pub(super) custom_host: Option<Field<'n>>,
    /// `retry.attempts`.
    pub(super) retries: Option<u64>,
}

impl Leaf<'_> {
    /// Returns the path for people: the config itself has none.
    pub(super) fn shown(&self) -> &str {
        if self.field.path.is_empty() { "config" } else { &self.field.path }
    }
}

/// What targets have from the strategies around them.
#[derive(Clone, Default)]
struct Inherited<'n> {
    model: Option<Field<'n>>,
    timeout: Option<Field<'n>>,
    custom_host: Option<Field<'n>>,
    retries: Option<u64>,
}

/// Mode of a strategy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Single,
    LoadBalance,
    Fallback,
}

impl Import {
    /// Returns the targets of a config, in the order of the file.
    ///
    /// # Errors
    /// Returns a fault for a field of the wrong type, and for too many targets.
    pub(super) fn leaves<'n>(&mut self, root: &Field<'n>) -> FieldResult<Vec<Leaf<'n>>> {
        let mut leaves = Vec::new();
        self.place(root, &Inherited::default(), (0, 1.0), &mut leaves)?;
        Ok(leaves)
    }

    /// Adds the targets of a config or a part of it, from a tier on, with a share of its requests. Returns the tier after
    /// the last one.
    fn place<'n>(
        &mut self,
        field: &Field<'n>,
        around: &Inherited<'n>,
        (tier, weight): (usize, f64),
        leaves: &mut Vec<Leaf<'n>>,
    ) -> FieldResult<usize> {
        field.members()?;
        let inherited = self.inherit(field, around)?;
        let Some(targets) = field.set("targets") else {
            if leaves.len() >= MAX_LEAVES {
                return Err(field.fault(format!("a config has at most {MAX_LEAVES} targets")));
            }
            let Inherited { model, timeout, custom_host, retries } = inherited;
            leaves.push(Leaf { field: field.clone(), tier, weight, model, timeout, custom_host, retries });
            return Ok(tier.saturating_add(1));
        };
        for (member, reason) in MEMBERS {
            if let Some(field) = field.get(member) {
                self.report.impossible(&field, reason);
            }
        }
        let Some(mode) = self.mode(field)? else { return Ok(tier) };
        let targets = targets.elements()?;
        let mut weights = Vec::with_capacity(targets.len());
        for target in &targets {
            target.members()?;
            weights.push(self.weight(target, mode)?);
        }
        let sum: f64 = weights.iter().sum();
        let mut end = tier;
        for (at, (target, share)) in targets.iter().zip(weights).enumerate() {
            match mode {
                Mode::Single if at > 0 => {
                    self.report.impossible(target, "the strategy \"single\" uses the first target only");
                }
                Mode::Single | Mode::Fallback => {
                    end = self.place(target, &inherited, (end, weight), leaves)?;
                }
                Mode::LoadBalance => {
                    let part = if sum > 0.0 { weight * share / sum } else { 0.0 };
                    let after = self.place(target, &inherited, (tier, part), leaves)?;
                    if after > tier.saturating_add(1) {
                        let note = "fallbacks inside of a load balancer: a failed request goes to the next tier of the whole model";
                        let strategy = target.get("strategy").unwrap_or_else(|| target.clone());
                        self.report.changed(&strategy, "model.targets.tier", note);
                    }
                    end = end.max(after);
                }
            }
        }
        Ok(end)
    }

    /// Returns the mode of a strategy. `None` if it is reported as impossible.
    fn mode(&mut self, field: &Field<'_>) -> FieldResult<Option<Mode>> {
        let Some(strategy) = field.set("strategy") else { return Ok(Some(Mode::Single)) };
        strategy.members()?;
        if let Some(codes) = strategy.get("on_status_codes") {
            let note = "docs/routing.md lists after which failures another target is tried";
            self.report.changed(&codes, "retry", note);
        }
        let Some(mode) = strategy.set("mode") else { return Ok(Some(Mode::Single)) };
        Ok(match mode.text()? {
            "single" => {
                self.report.taken(&mode, "model.targets");
                Some(Mode::Single)
            }
            "loadbalance" => {
                self.report.taken(&mode, "model.targets.weight");
                Some(Mode::LoadBalance)
            }
            "fallback" => {
                self.report.taken(&mode, "model.targets.tier");
                Some(Mode::Fallback)
            }
            _ => {
                let reason = "a target is not chosen by the contents of a request: import each target as a model of its own, and let clients name it";
                self.report.impossible(field, reason);
                None
            }
        })
    }

    /// Returns the weight of a target, which counts in a load balancer only: 1 without one.
    fn weight(&mut self, target: &Field<'_>, mode: Mode) -> FieldResult<f64> {
        let Some(field) = target.set("weight") else { return Ok(1.0) };
        let weight = field.number()?.parse::<f64>().unwrap_or(1.0);
        if mode == Mode::LoadBalance {
            self.report.taken(&field, "model.targets.weight");
        } else {
            self.report.changed(&field, "", "weights count in a load balancer only");
        }
        Ok(weight.min(1e12))
    }

    /// Reads what a config or a target passes on to the targets in it.
    fn inherit<'n>(&mut self, field: &Field<'n>, around: &Inherited<'n>) -> FieldResult<Inherited<'n>> {
        let mut inherited = around.clone();
        if let Some(params) = field.set("override_params") {
            for (name, member) in params.members()? {
                if name == "model" {
                    inherited.model = Some(member);
                } else {
                    let reason =
                        "the gateway does not change what a request says; clients set this themselves";
                    self.report.impossible(&member, reason);
                }
            }
        }
        if let Some(timeout) = field.set("request_timeout") {
            timeout.integer()?;
            inherited.timeout = Some(timeout);
        }
        if let Some(host) = field.set("custom_host") {
            host.text()?;
            inherited.custom_host = Some(host);
        }
        if let Some(retry) = field.set("retry") {
            retry.members()?;
            if let Some(attempts) = retry.set("attempts") {
                inherited.retries = Some(attempts.integer()?.min(15));
                let note = "the number of targets of a request: a target is tried once";
                self.report.changed(&attempts, "retry.attempts", note);
            }
            for member in ["on_status_codes", "use_retry_after_header"] {
                if let Some(field) = retry.get(member) {
                    let note = "docs/routing.md lists after which failures another target is tried";
                    self.report.changed(&field, "retry", note);
                }
            }
        }
        Ok(inherited)
    }
}
