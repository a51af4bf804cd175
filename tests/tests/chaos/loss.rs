//! Packets lost between agent and gateway: TCP repeats them, and what it cannot hide a resumption does.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_tests::load::{Counts, Mix, Plan, Settings, Target, run, settle};
use bridgehead_tests::oracle::Oracle;

use crate::network::Network;
use crate::setup::{Missing, skip};
use crate::stage::{Account, MACHINE, deep, patient};

/// Shares in percent: a bad line, and one that is hardly to be used.
const LOSSES: [u32; 2] = [5, 10];

async fn load(network: &Network) -> Result<(), Missing> {
    let oracle = Oracle::start((network.host(), 0).into(), std::process::id()).await;
    let oracle = oracle.expect("the network's address is free");
    let world = patient().tunnel_at(network.host()).start().await;
    let mut command = world.agent_command("a1");
    command.args(["--app", &format!("demo=http://{}", oracle.addr())]);
    let _agent = world.run_agent("a1", network.inside(&command)).await;
    let settings = Settings {
        admin: Some(world.places.admin),
        ..Settings::new(Target::plain(world.places.public, &world.host("demo")))
    };
    for (nth, percent) in (0_u64..).zip(LOSSES) {
        network.lose(percent, world.places.tunnel.port())?;
        let plan = Plan {
            rate: 40.0,
            duration: Duration::from_secs(deep(3, 60)),
            seed: nth,
            first_id: 1 + nth * 1_000_000,
            upload: 30_000,
            download: 30_000,
            mix: Mix::parse("get=40,post=30,upload=10,download=10,sse=5,ws=5").expect("a mix"),
            ..Plan::default()
        };
        let mut finished = run(&plan, &settings, oracle.book(), &Arc::<Counts>::default()).await;
        settle(&mut finished, oracle.book());
        let (report, lost) = (finished.report, network.lost()?);
        let what = format!(
            "{percent} % of packets lost, {lost} of them, {} resumes",
            report.resumes()
        );
        assert!(lost > 0, "{what}: nothing was lost");
        assert_eq!(report.lies, 0, "{what}\n{}", report.render());
        assert_eq!(report.unasked(), 0, "{what}\n{}", report.render());
        let mut account = Account::default();
        account.add(1, &report);
        account.close(&what);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn packets_lost_between_agent_and_gateway_fail_nothing() {
    let _machine = MACHINE.read().await;
    let network = match Network::lay() {
        Ok(network) => network,
        Err(missing) => return skip("packet loss", &missing),
    };
    if let Err(missing) = load(&network).await {
        skip("packet loss", &missing);
    }
}
