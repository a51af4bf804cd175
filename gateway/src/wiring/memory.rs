//! The hand that moves the memory pressure: measures, sets the level, gives the largest streams up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::knobs::Budget;
use crate::pressure::Level;
use crate::request::Shared;

/// How often memory is measured. What comes between two looks is beyond the budget before anybody
/// knows; a look costs some microseconds.
const EVERY: Duration = Duration::from_millis(25);
/// After streams were given up, freed memory needs this long to show.
const SETTLE: Duration = Duration::from_millis(500);
/// Giving streams up aims below the level at which new work is refused, in percent of the budget.
const AIM: u64 = 88;

/// Measures what the process has, in bytes; nothing where the system does not say.
pub(super) type Meter = fn() -> Option<u64>;

/// Watches for ever; to be dropped with the gateway.
pub(super) async fn watch(shared: Arc<Shared>, budget: Arc<Budget>, meter: Meter) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut settled = Instant::now();
    loop {
        ticks.tick().await;
        // Where the system does not say what the process has, what its exchanges hold is the most of it.
        let used = meter().unwrap_or_else(|| shared.loads.held());
        // Without one nothing is short.
        let budget = budget.bytes().unwrap_or(u64::MAX);
        shared.pressure.measured(used, budget);
        let before = shared.pressure.level();
        let level = before.after(used, budget);
        if shared.pressure.set(level) {
            tracing::warn!(?level, bytes = used, "memory pressure changed");
        }
        if level == Level::Over && Instant::now() >= settled {
            let excess = used.saturating_sub(budget / 100 * AIM);
            let count = shared.loads.give_up(excess);
            // Where nobody held enough to be worth it, the next look may find somebody who does.
            if count > 0 {
                settled = Instant::now() + SETTLE;
                tracing::warn!(count, bytes = used, "streams given up, memory is short");
            }
        }
    }
}
