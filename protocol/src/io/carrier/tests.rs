//! A whole tunnel over each kind of carrier.

use std::future::poll_fn;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;
use crate::conn::{Settings, Side};
use crate::io::clock::Clock;
use crate::io::{AppStream, FailedWrite, Outgoing, Tunnel};
use crate::wire::{AppKind, FinalCause, Open, PeerLimits};

/// Many times what one message, one window and the pipe hold.
const LENGTH: usize = 3 * 1024 * 1024;

fn tunnel(side: Side, carrier: Carrier) -> (Tunnel, impl Future<Output = crate::io::CloseReason>) {
    let limits = PeerLimits {
        max_streams: 10,
        initial_credit: 65_536,
        linger: Duration::from_secs(1),
    };
    Tunnel::new(
        side,
        Settings::default(),
        limits,
        carrier,
        BytesMut::new(),
        Clock::start(),
    )
}

/// An app that sends back what it gets.
async fn echo(stream: AppStream) {
    stream.opened();
    loop {
        let mut taken = Vec::new();
        let next = poll_fn(|cx| stream.poll_outgoing(cx, &mut taken, FailedWrite::TookNothing))
            .await
            .expect("a Vec");
        match next {
            Outgoing::Wrote(_) => {}
            Outgoing::Fin => break,
            other => panic!("{other:?}"),
        }
        let mut taken = Bytes::from(taken);
        while !taken.is_empty() {
            let room = poll_fn(|cx| stream.poll_room(cx)).await;
            stream.pass_on(taken.split_to(room.min(taken.len())));
        }
    }
    stream.finish();
    stream.conclude(FinalCause::AppClosed);
}

async fn echoes_all(agent: Carrier, gateway: Carrier) {
    let (agent, agent_drives) = tunnel(Side::Agent, agent);
    let (gateway, gateway_drives) = tunnel(Side::Gateway, gateway);
    let app = async { echo(agent.accept().await.expect("a stream")).await };
    let client = async {
        let app = "demo".to_owned();
        let remaining = Duration::from_secs(30);
        let open = Open {
            app,
            kind: AppKind::Tcp,
            remaining,
            credit: 65_536,
            client: None,
        };
        let (mut reader, mut writer) = tokio::io::split(gateway.open(open).expect("a stream"));
        let sent: Vec<u8> = (0_u32..).flat_map(u32::to_be_bytes).take(LENGTH).collect();
        let write = async {
            writer.write_all(&sent).await.expect("room");
            writer.shutdown().await.expect("an end");
        };
        let mut read = Vec::new();
        let (result, ()) = tokio::join!(reader.read_to_end(&mut read), write);
        result.expect("an echo");
        assert!(read == sent, "{} bytes came back, not the same", read.len());
    };
    let work = async { tokio::join!(client, app) };
    let all = async {
        tokio::select! {
            biased;
            reason = agent_drives => panic!("the agent's tunnel ended: {reason}"),
            reason = gateway_drives => panic!("the gateway's tunnel ended: {reason}"),
            _ = work => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all)
        .await
        .expect("no stall");
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_over_a_plain_connection_echoes_all_bytes() {
    let (near, far) = duplex(20_000);
    echoes_all(Carrier::tcp(near), Carrier::tcp(far)).await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_over_a_web_socket_echoes_all_bytes() {
    let (near, far) = duplex(20_000);
    let agent = Carrier::ws_client(near, &[], CarrierKind::Ws).await;
    let gateway = Carrier::ws_server(far, &[], CarrierKind::Ws).await;
    echoes_all(agent, gateway).await;
}
