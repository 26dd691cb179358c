//! Target health as shown to operators: on the admin port and as metrics.

use std::time::Instant;

use crate::Gateway;
use json::Writer;
use routing::account::KeyState;
use routing::route::target_status::TargetStatus;
use routing::route::{Nanos, Target};

impl Gateway {
    fn each_target(&self, mut each: impl FnMut(&str, &Target, Nanos)) {
        let live = self.live.load();
        let now = live.billing.nanos(Instant::now());
        for model in live.snapshot.routes.models() {
            for target in &model.targets {
                each(&model.id, target, now);
            }
        }
    }

    /// Updates the metrics of the targets.
    pub(crate) fn refresh_health(&self) {
        let metrics = &self.metrics;
        // Remove the series of targets that are no longer configured.
        metrics.target_available.reset();
        metrics.target_in_flight.reset();
        metrics.target_reason.reset();
        let mut drained = 0;
        self.each_target(|_, target, now| {
            let labels = [&*target.provider.name, &*target.model];
            let status = TargetStatus::of(target, now);
            if status != TargetStatus::Closed {
                let [provider, model] = labels;
                metrics.target_reason.with_label_values(&[provider, model, status.name()]).set(1);
            }
            drained += i64::from(status == TargetStatus::Drained);
            let available = status.is_available();
            metrics.target_available.with_label_values(&labels).set(i64::from(available));
            let in_flight = i64::from(target.handle.state.in_flight.get());
            metrics.target_in_flight.with_label_values(&labels).set(in_flight);
        });
        metrics.targets_drained.set(drained);
        self.refresh_keys();
    }

    /// Counts the keys by state: those that expire do so without a reload.
    fn refresh_keys(&self) {
        let now = super::signals::unix_now();
        let live = self.live.load();
        let [mut usable, mut disabled, mut expired] = [0; 3];
        for key in live.snapshot.keys.iter() {
            match key.state(now) {
                KeyState::Usable => usable += 1,
                KeyState::Disabled => disabled += 1,
                KeyState::Expired => expired += 1,
            }
        }
        for (state, count) in [("usable", usable), ("disabled", disabled), ("expired", expired)] {
            self.metrics.keys.with_label_values(&[state]).set(count);
        }
    }

    /// Writes the health of all targets of all models as JSON.
    pub(crate) fn write_health(&self, json: &mut Writer<'_, Vec<u8>>) {
        json.begin_array();
        self.each_target(|model, target, now| {
            let status = TargetStatus::of(target, now);
            json.begin_object();
            json.key("model").string(model);
            json.key("provider").string(&target.provider.name);
            json.key("target").string(&target.model);
            json.key("tier").number(u64::from(target.handle.tier));
            json.key("state").string(status.name());
            if let Some(left) = status.remaining() {
                json.key("for_ms").number(u64::try_from(left / 1_000_000).unwrap_or(0));
            }
            json.key("in_flight").number(u64::from(target.handle.state.in_flight.get()));
            // The cast cannot overflow: a latency of some seconds is far below the range of 64 bits.
            let micros = (target.handle.state.latency.mean(now) / 1_000.0) as u64;
            json.key("latency_us").number(micros);
            json.end_object();
        });
        json.end_array();
    }
}
