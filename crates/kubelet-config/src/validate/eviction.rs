//! Checks of eviction thresholds. Upstream: pkg/kubelet/eviction/helpers.go.

use std::collections::BTreeMap;

use super::Check;
use crate::go_duration::GoDuration;
use crate::quantity::Quantity;

const SIGNALS: [&str; 9] = [
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

impl Check<'_> {
    pub(super) fn eviction(&mut self) {
        let c = self.c;
        self.thresholds("evictionHard", c.eviction_hard.as_ref());
        self.thresholds("evictionSoft", c.eviction_soft.as_ref());
        for (signal, period) in c.eviction_soft_grace_period.iter().flatten() {
            let path = format!("evictionSoftGracePeriod[{signal}]");
            self.signal(&path, signal, period);
            match period.parse::<GoDuration>() {
                Err(error) => self.bad(path, format!("{period:?}"), error.to_string()),
                Ok(period) if period.is_negative() => {
                    self.bad(path, period, "must not be negative")
                }
                Ok(_) => {}
            }
        }
        self.soft_grace();
        for (signal, amount) in c.eviction_minimum_reclaim.iter().flatten() {
            let path = format!("evictionMinimumReclaim[{signal}]");
            self.signal(&path, signal, amount);
            let wrong = match Amount::parse(amount) {
                Err(wrong) => Some(wrong),
                Ok(Amount::Percent(percent)) if percent <= 0.0 => {
                    Some("a percentage must be more than 0%".to_owned())
                }
                Ok(Amount::Quantity(quantity)) if quantity.is_negative() => {
                    Some("must not be negative".to_owned())
                }
                Ok(_) => None,
            };
            if let Some(wrong) = wrong {
                self.bad(path, format!("{amount:?}"), wrong);
            }
        }
    }

    fn signal(&mut self, path: &str, signal: &str, value: &str) {
        if !SIGNALS.contains(&signal) {
            self.bad(path, value, format!("the signal must be one of {}", super::quoted(&SIGNALS)));
        }
    }

    fn thresholds(&mut self, field: &str, map: Option<&BTreeMap<String, String>>) {
        for (signal, amount) in map.into_iter().flatten() {
            let path = format!("{field}[{signal}]");
            self.signal(&path, signal, amount);
            if let Some(wrong) = threshold_problem(amount) {
                self.bad(path, format!("{amount:?}"), wrong);
            }
        }
    }

    fn soft_grace(&mut self) {
        let periods = self.c.eviction_soft_grace_period.clone().unwrap_or_default();
        for (signal, amount) in self.c.eviction_soft.iter().flatten() {
            // These two switch a threshold off, so there is nothing to wait for.
            let off = amount == "0%" || amount == "100%";
            if !off && !periods.contains_key(signal) {
                let path = format!("evictionSoft[{signal}]");
                self.bad(
                    path,
                    amount,
                    "needs a grace period for the same signal in evictionSoftGracePeriod",
                );
            }
        }
    }
}

enum Amount {
    Percent(f32),
    Quantity(Quantity),
}

impl Amount {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.ends_with('%') {
            return text
                .parse()
                .map(Self::Quantity)
                .map_err(|error: crate::quantity::QuantityError| error.to_string());
        }
        let number =
            text.trim_end_matches('%').parse::<f32>().ok().filter(|number| number.is_finite());
        number.map(Self::Percent).ok_or_else(|| "is not a percentage such as 10%".to_owned())
    }
}

fn threshold_problem(text: &str) -> Option<String> {
    match Amount::parse(text) {
        Err(wrong) => Some(wrong),
        Ok(Amount::Percent(percent)) if !(0.0..=100.0).contains(&percent) => {
            Some("a percentage must be from 0% to 100%".to_owned())
        }
        Ok(Amount::Quantity(quantity)) if quantity.is_negative() || quantity.is_zero() => {
            Some("must be more than zero".to_owned())
        }
        Ok(_) => None,
    }
}
