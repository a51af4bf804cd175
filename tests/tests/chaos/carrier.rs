//! The chaos carrier itself, between two plain sockets: what it says it does is what the peers see.

use std::time::{Duration, Instant};

use bridgehead_protocol::wire::{Frame, encode};
use bridgehead_tests::chaos::{Carrier, FaultKind, carrier, parse};
use bridgehead_tests::wait;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Between {
    carrier: Carrier,
    listener: TcpListener,
}

async fn between(script: &str) -> Between {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let setup = carrier::Setup {
        listen: "127.0.0.1:0".parse().expect("an address"),
        to: listener.local_addr().expect("an address").to_string(),
        script: parse(script).expect("a script"),
        seed: 1,
        tls: None,
    };
    let carrier = Carrier::start(setup).await.expect("a free port");
    Between { carrier, listener }
}

impl Between {
    /// The agent's end and the gateway's.
    async fn pair(&self) -> (TcpStream, TcpStream) {
        let agent = TcpStream::connect(self.carrier.addr())
            .await
            .expect("it listens");
        let (gateway, _) = wait::within(wait::SOON, "the onward dial", self.listener.accept())
            .await
            .expect("accepted");
        (agent, gateway)
    }
}

fn pings(count: u8) -> BytesMut {
    let mut bytes = BytesMut::new();
    (0..count).for_each(|n| encode(&Frame::Ping([n; 8]), &mut bytes));
    bytes
}

/// Everything until the end, and whether the end was a reset.
async fn to_end(stream: &mut TcpStream) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let end = wait::within(wait::SOON, "an end", stream.read_to_end(&mut bytes)).await;
    (bytes, end.is_err())
}

#[tokio::test]
async fn without_faults_bytes_and_ends_pass() {
    let between = between("").await;
    let (mut agent, mut gateway) = between.pair().await;
    agent.write_all(&pings(3)).await.expect("sent");
    agent.shutdown().await.expect("shut");
    assert_eq!(to_end(&mut gateway).await, (pings(3).to_vec(), false));
    gateway
        .write_all(b"\x16 no frame")
        .await
        .expect("a half-closed connection carries the other way");
    drop(gateway);
    assert_eq!(to_end(&mut agent).await, (b"\x16 no frame".to_vec(), false));
    let tally = between.carrier.tally();
    assert_eq!(tally.to_gateway.frames["PING"], 3);
    assert_eq!(tally.to_agent.bytes_without_frames, 10);
}

#[tokio::test]
async fn a_cut_lets_earlier_frames_arrive_and_is_a_fin_on_both_sides() {
    let between = between("at frame 3 to-gateway: cut").await;
    let (mut agent, mut gateway) = between.pair().await;
    agent.write_all(&pings(5)).await.expect("sent");
    assert_eq!(to_end(&mut gateway).await, (pings(2).to_vec(), false));
    assert_eq!(to_end(&mut agent).await, (Vec::new(), false));
    assert_eq!(between.carrier.tally().effects(FaultKind::Cut), 1);
}

#[tokio::test]
async fn a_reset_is_a_reset_on_both_sides() {
    let between = between("on PING: reset").await;
    let (mut agent, mut gateway) = between.pair().await;
    agent.write_all(&pings(1)).await.expect("sent");
    assert_eq!(to_end(&mut gateway).await, (Vec::new(), true));
    assert!(to_end(&mut agent).await.1);
}

#[tokio::test]
async fn a_reset_of_a_peer_is_passed_on_as_one() {
    let between = between("").await;
    let (agent, mut gateway) = between.pair().await;
    socket2::SockRef::from(&agent)
        .set_linger(Some(Duration::ZERO))
        .expect("a linger");
    drop(agent);
    assert!(to_end(&mut gateway).await.1);
}

#[tokio::test]
async fn a_half_close_ends_one_way_only() {
    let between = between("at byte 5 to-gateway: half-close to-gateway").await;
    let (mut agent, mut gateway) = between.pair().await;
    agent
        .write_all(b"\xff\xff\xff\xff\xff more")
        .await
        .expect("sent");
    assert_eq!(to_end(&mut gateway).await, (vec![0xff; 5], false));
    gateway.write_all(b"\xff still heard").await.expect("sent");
    let mut heard = [0; 12];
    wait::within(wait::SOON, "the other way", agent.read_exact(&mut heard))
        .await
        .expect("read");
}

#[tokio::test]
async fn a_black_hole_keeps_bytes_and_even_the_end_back_until_it_is_over() {
    let between = between("at connection 1: blackhole to-gateway for 700ms").await;
    let begun = Instant::now();
    let mut agent = TcpStream::connect(between.carrier.addr())
        .await
        .expect("it listens");
    agent.write_all(&pings(2)).await.expect("sent");
    agent.shutdown().await.expect("shut");
    let (mut gateway, _) = wait::within(wait::SOON, "the onward dial", between.listener.accept())
        .await
        .expect("accepted");
    assert!(
        begun.elapsed() >= Duration::from_millis(600),
        "a handshake does not pass a black hole"
    );
    assert_eq!(to_end(&mut gateway).await, (pings(2).to_vec(), false));
}

#[tokio::test]
async fn a_black_hole_hides_a_reset() {
    let between = between("at byte 1: blackhole").await;
    let (mut agent, mut gateway) = between.pair().await;
    agent.write_all(b"\xffxx").await.expect("sent");
    wait::within(
        wait::SOON,
        "what was awaited",
        between.carrier.until(|tally| tally.to_gateway.bytes == 3),
    )
    .await;
    socket2::SockRef::from(&agent)
        .set_linger(Some(Duration::ZERO))
        .expect("a linger");
    drop(agent);
    let mut one = [0; 8];
    assert_eq!(
        wait::within(wait::SOON, "the byte before", gateway.read(&mut one))
            .await
            .expect("read"),
        1
    );
    assert!(wait::nothing_for(Duration::from_millis(300), gateway.read(&mut one)).await);
}

#[tokio::test]
async fn a_rate_and_a_delay_take_their_time() {
    let between = between("always: delay 100ms, rate 10KiB/s to-gateway, slice 512").await;
    let (mut agent, mut gateway) = between.pair().await;
    let begun = Instant::now();
    agent.write_all(&[0xff; 5 * 1024]).await.expect("sent");
    agent.shutdown().await.expect("shut");
    let (bytes, _) = to_end(&mut gateway).await;
    assert_eq!(bytes.len(), 5 * 1024);
    assert!(
        begun.elapsed() >= Duration::from_millis(500),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_refusal_resets_and_a_port_that_is_down_refuses() {
    let between = between("at connection 1: refuse\nat connection 2: down for 300ms").await;
    let mut first = TcpStream::connect(between.carrier.addr())
        .await
        .expect("accepted");
    assert!(to_end(&mut first).await.1, "the first is reset");
    let mut second = TcpStream::connect(between.carrier.addr())
        .await
        .expect("accepted");
    wait::within(
        wait::SOON,
        "what was awaited",
        between.carrier.until(|tally| tally.connections == 2),
    )
    .await;
    let refused = || async {
        TcpStream::connect(between.carrier.addr())
            .await
            .is_err()
            .then_some(())
    };
    wait::until(wait::SOON, "a refused connection", refused).await;
    let (mut gateway, _) = between.listener.accept().await.expect("the second goes on");
    second.write_all(&pings(1)).await.expect("sent");
    let mut one = [0; 17];
    wait::within(wait::SOON, "its frame", gateway.read_exact(&mut one))
        .await
        .expect("read");
    let back = || async { TcpStream::connect(between.carrier.addr()).await.ok() };
    wait::until(wait::SOON, "the port coming back", back).await;
}

#[tokio::test]
async fn a_periodic_reset_finds_a_connection_that_is_idle() {
    let between = between("every 200ms: reset").await;
    let (mut agent, _gateway) = between.pair().await;
    assert!(to_end(&mut agent).await.1);
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_a_reset_and_counted() {
    let Between { carrier, listener } = between("").await;
    drop(listener);
    let mut agent = TcpStream::connect(carrier.addr())
        .await
        .expect("it listens");
    assert!(to_end(&mut agent).await.1);
    wait::within(
        wait::SOON,
        "what was awaited",
        carrier.until(|tally| tally.undialled == 1),
    )
    .await;
}
