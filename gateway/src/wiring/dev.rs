//! `dev`: a gateway, an agent and a demo app in one process. The agent dials the tunnel listener
//! through a real socket with the code of `bh-agent run`.

use std::num::NonZeroU8;

use bridgehead_agent::app::Target;
use bridgehead_agent::app::table::AppSpec;
use bridgehead_agent::carrier::address::{GatewayAddress, Plain};
use bridgehead_agent::config::{RunOptions, TokenSource};
use bridgehead_agent::control::{Stop, control};
use bridgehead_agent::telemetry::Readiness;

use super::WiringError;
use super::bound::Bound;
use super::end::Signals;
use super::gateway::{AccessTo, Addresses, Gateway};
use crate::cli::DevRun;
use crate::dev::DemoApp;

/// Runs until told to end.
pub(super) async fn run(run: DevRun) -> Result<(), WiringError> {
    let bound = Bound::bind(run.config.clone())?;
    let gateway = Gateway::start(bound, AccessTo::Stderr(run.log.format), None)?;
    let (target, demo) = match &run.target {
        Some(target) => (target.clone(), None),
        None => {
            let demo = DemoApp::bind().await.map_err(|error| WiringError::System {
                what: "demo app",
                error,
            })?;
            (parse_target(&demo.url())?, Some(demo))
        }
    };
    let options = agent_options(&run, gateway.addresses(), target)?;
    let readiness = Readiness::default();
    let (handle, stop) = control();
    let agent = tokio::spawn(bridgehead_agent::wiring::run(
        options,
        stop,
        readiness.clone(),
    ));
    let demo = demo.map(|demo| tokio::spawn(demo.run(std::future::pending())));
    readiness.reached(1).await;
    // Whoever reads the ready line may ask for the end at once.
    let end = Signals::listen()?;
    announce(&run, gateway.addresses());
    // The agent leaves in order with its gateway, instead of missing it.
    let mut draining = gateway.signal();
    let leave = async {
        draining.draining().await;
        handle.stop(Stop::Drain);
    };
    let (ended, ()) = tokio::join!(gateway.run(end), leave);
    handle.stop(Stop::Now);
    if let Ok(Err(error)) = agent.await {
        return Err(WiringError::Agent(error.to_string()));
    }
    drop(demo);
    ended
}

fn parse_target(url: &str) -> Result<Target, WiringError> {
    Target::parse(url).map_err(WiringError::Agent)
}

fn agent_options(
    run: &DevRun,
    addresses: &Addresses,
    target: Target,
) -> Result<RunOptions, WiringError> {
    let address = GatewayAddress::parse(&addresses.tunnel_url(), Plain::LoopbackOnly)
        .map_err(|error| WiringError::Agent(error.to_string()))?;
    let mut options = RunOptions::new(address, TokenSource::Given(run.token.clone()))
        .with_app(AppSpec::new(run.name.as_str(), target));
    options.tunnels = NonZeroU8::MIN.saturating_add(1);
    Ok(options)
}

/// The `ready` line for programs, the hints for people.
fn announce(run: &DevRun, addresses: &Addresses) {
    let name = run.name.as_str();
    let port = addresses
        .public
        .first()
        .map_or(0, |(address, _)| address.port());
    if run.json {
        let ready = serde_json::json!({
            "ready": true,
            "public": addresses.public_url(),
            "admin": format!("http://{}", addresses.admin),
            "tunnel": addresses.tunnel.first().map(ToString::to_string),
            "app": name,
            "token": run.token.reveal(),
        });
        println!("{ready}");
    } else {
        println!("ready {}", addresses.line(Some(&run.name)));
    }
    let app = match &run.target {
        Some(target) => format!("your app at {target}"),
        None => "a built-in demo app with a page for each verdict".to_owned(),
    };
    eprintln!(
        "
  The tunnel is open to {app}.

  Try it:              curl -i {public}/
  In a browser:        http://{name}.localhost:{port}/
  What the codes say:  curl -s http://gateway.localhost:{port}/.well-known/bridgehead/codes.json
  What runs now:       curl -s http://{admin}/v1/tunnels
  Another agent:       BH_TOKEN={token} bh-agent http 3000 --name other --gateway {tunnel}
  Stop:                Ctrl-C
",
        public = addresses.public_url(),
        admin = addresses.admin,
        token = run.token.reveal(),
        tunnel = addresses.tunnel_url(),
    );
}
