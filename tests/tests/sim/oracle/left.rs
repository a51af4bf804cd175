//! What the programs themselves say after a schedule: their record, and what they still hold.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_tests::metrics::Snapshot;
use tokio::time::sleep;

use crate::journal::Class;
use crate::programs::Programs;

const SECOND: Duration = Duration::from_secs(1);

/// What the gateway wrote into its metrics: `outcome/delivery/code`, once per exchange.
pub(crate) fn recorded(programs: &Programs) -> Vec<String> {
    let Some(gateway) = programs.gateway() else {
        return Vec::new();
    };
    let text = gateway
        .shared()
        .sinks
        .metrics()
        .render()
        .unwrap_or_default();
    let exchanges =
        Snapshot::parse(&text).by_labels("exchanges_total", ["outcome", "delivery", "code"]);
    let times = |(labels, count): ([String; 3], f64)| vec![labels.join("/"); count as usize];
    exchanges.into_iter().flat_map(times).collect()
}

/// True while a process stands still, a tunnel waits for its next carrier, or finishes what it has.
pub(crate) fn unsettled(programs: &Programs) -> bool {
    let waits = programs
        .net
        .with(|world| world.is_somebody_held() || world.ends_of(Class::App, 0) > 0);
    let Some(gateway) = programs.gateway().filter(|_| !waits) else {
        return true;
    };
    let tunnels = gateway.shared().tunnels.snapshot();
    tunnels.tunnels().any(|(_, live)| {
        live.tunnel.is_suspended()
            || !live.is_accepting()
            || live.tunnel.stats().streams.total() > 0
    })
}

/// True while an exchange waits for its late answer.
pub(crate) fn lingers(programs: &Programs) -> bool {
    let gateway = programs.gateway();
    gateway.is_some_and(|gateway| gateway.shared().lingering.total() > 0)
}

/// What is left of the exchange once everything has ended: nothing, or it is named.
pub(crate) async fn left(programs: &Programs) -> Vec<String> {
    let mut left = Vec::new();
    let Some(gateway) = programs.gateway() else {
        return left;
    };
    let shared = Arc::clone(gateway.shared());
    for (_, live) in shared.tunnels.snapshot().tunnels() {
        if live.in_flight() > 0 {
            left.push(format!("{} places on a tunnel", live.in_flight()));
        }
        live.pool.close_tunnel(live.number);
    }
    sleep(SECOND).await;
    for (_, live) in shared.tunnels.snapshot().tunnels() {
        let streams = live.tunnel.stats().streams.total();
        if streams > 0 {
            left.push(format!("{streams} streams at the gateway"));
        }
    }
    let app = shared.apps.state("demo");
    let permits = app.metrics.in_flight_now() + app.metrics.long_lived_now();
    if permits > 0 {
        left.push(format!("{permits} permits"));
    }
    let lingering = shared.lingering.total();
    if lingering > 0 {
        left.push(format!("{lingering} lingering exchanges"));
    }
    let tasks = shared.tasks.live();
    if !tasks.is_empty() {
        left.push(format!("tasks {tasks:?}"));
    }
    let sockets = programs.net.with(|world| world.ends_of(Class::App, 0));
    if sockets > 0 {
        left.push(format!("{sockets} app sockets at the agent"));
    }
    left
}
