//! An agent whose connection is cut: it brings the next one, or says what became of its streams.

use bridgehead_protocol::handshake::{Applicant, gone};
use bridgehead_protocol::io::TunnelStream;

use super::*;
use crate::telemetry::ready::Counts;

const WINDOW: Duration = Duration::from_secs(20);
const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\n\r\n";

fn terms() -> Terms {
    let settings = Settings::default();
    Terms {
        node: "gw".to_owned(),
        features: vec![],
        ping_after: settings.ping_after,
        resume_window: WINDOW,
        limits: PeerLimits {
            max_streams: 100,
            initial_credit: 65_536,
            linger: settings.linger,
        },
        nodes: vec![],
    }
}

fn ticket(tunnel: u128, epoch: u32) -> ResumeTicket {
    ResumeTicket {
        tunnel,
        secret: [2; 32],
        epoch,
    }
}

/// An agent that has said HELLO.
struct Knock {
    carrier: Carrier,
    leftover: BytesMut,
    applicant: Applicant,
}

impl Gateway {
    async fn knocked(&self) -> Knock {
        let mut carrier = self.accept().await;
        let mut leftover = BytesMut::new();
        let until = shake::deadline(shake::LONGEST);
        let waiting = AwaitHello::new();
        let heard = shake::receive(&mut carrier, &mut leftover, waiting, &Anybody, until).await;
        Knock {
            applicant: heard.expect("hello"),
            carrier,
            leftover,
        }
    }
}

impl Knock {
    async fn welcome(mut self, ticket: ResumeTicket) -> (Carrier, BytesMut) {
        let until = shake::deadline(shake::LONGEST);
        shake::admit(&mut self.carrier, self.applicant, &terms(), ticket, until)
            .await
            .expect("admitted");
        (self.carrier, self.leftover)
    }

    async fn begin(self, id: u128) -> Tunnel {
        let limits = terms().limits;
        let (carrier, leftover) = self.welcome(ticket(id, 1)).await;
        let settings = Settings {
            resume_window: WINDOW,
            ..Settings::default()
        };
        let (tunnel, driver) = Tunnel::new(
            Side::Gateway,
            settings,
            limits,
            carrier,
            leftover,
            Clock::start(),
        );
        tokio::spawn(driver);
        tunnel
    }
}

/// A request on its way, which the app has taken.
async fn asked(tunnel: &Tunnel) -> TunnelStream {
    let mut stream = tunnel
        .open(Open {
            app: "demo".to_owned(),
            kind: AppKind::Http1,
            remaining: SOON,
            credit: 65_536,
            client: None,
        })
        .expect("a stream");
    stream.control().begin(Begin {
        request: 1,
        remaining: SOON,
        expect_read: Some(0),
    });
    stream.write(&mut Bytes::from_static(REQUEST));
    let taken = REQUEST.len() as u64;
    let mut seen = 0;
    while seen < taken {
        let took = poll_fn(|cx| stream.control().poll_took(cx, seen));
        seen = timeout(SOON, took).await.expect("in time");
    }
    stream
}

/// An app that answers once it is told to.
async fn late_app() -> (u16, tokio::sync::watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let (tell, told) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut told = told.clone();
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let asked = stream.read(&mut request).await;
                if asked.is_ok_and(|count| count > 0) && told.wait_for(|t| *t).await.is_ok() {
                    drop(stream.write_all(b"late").await);
                }
            });
        }
    });
    (port, tell)
}

#[tokio::test]
async fn a_tunnel_goes_on_over_the_next_connection_and_readiness_follows() {
    let gateway = Gateway::start().await;
    let (port, tell) = late_app().await;
    let agent = start(gateway.options().with_app(spec(port)));
    let tunnel = gateway.knocked().await.begin(1).await;
    agent.readiness.reached(1).await;
    let mut stream = asked(&tunnel).await;
    for epoch in 2..5 {
        tunnel.suspend();
        let knock = gateway.knocked().await;
        assert_eq!(knock.applicant.resume(), Some(&ticket(1, epoch)));
        let waiting = Counts {
            up: 0,
            suspended: 1,
        };
        assert_eq!(agent.readiness.counts(), waiting);
        let (carrier, leftover) = knock.welcome(ticket(1, epoch)).await;
        tunnel.resume(carrier, leftover);
        agent.readiness.reached(1).await;
    }
    tell.send_replace(true);
    let read = poll_fn(|cx| stream.poll_read(cx, 100));
    let answer = timeout(SOON, read).await.expect("in time").expect("bytes");
    assert_eq!(answer.expect("bytes"), "late");
    agent.handle.stop(Stop::Now);
    agent.outcome().await.expect("stopped");
}

/// The next terminal that an agent tells of a lost tunnel; they come one by one here.
async fn reported(tunnel: &Tunnel) -> ReportEntry {
    let reported = async {
        loop {
            if let Notice::Report(entries) = tunnel.notice().await.expect("news") {
                return entries;
            }
        }
    };
    let entries = timeout(SOON, reported).await.expect("in time");
    let [entry] = entries[..] else {
        panic!("{entries:?}")
    };
    entry
}

#[tokio::test]
async fn what_became_of_streams_of_a_lost_tunnel_is_told_over_the_next_one() {
    let gateway = Gateway::start().await;
    let (port, tell) = late_app().await;
    let agent = start(gateway.options().with_app(spec(port)));
    let tunnel = gateway.knocked().await.begin(1).await;
    let _stream = asked(&tunnel).await;
    tunnel.close();
    let mut knock = gateway.knocked().await;
    assert!(knock.applicant.resume().is_some());
    let until = shake::deadline(shake::LONGEST);
    shake::refuse(&mut knock.carrier, gone(), until).await;
    // Anew, and at once.
    let anew = gateway.knocked().await;
    assert_eq!(anew.applicant.resume(), None);
    let second = anew.begin(2).await;
    let entry = reported(&second).await;
    assert_eq!((entry.tunnel, entry.stream.0), (1, 1));
    assert_eq!((entry.written, entry.read), (REQUEST.len() as u64, 0));
    // The app was left to its work, and its answer is told as well.
    tell.send_replace(true);
    let answered = reported(&second).await;
    assert_eq!((answered.tunnel, answered.stream.0), (1, 1));
    assert_eq!((answered.written, answered.read), (entry.written, 4));
    agent.handle.stop(Stop::Now);
    agent.outcome().await.expect("stopped");
}

#[tokio::test]
async fn a_handshake_that_breaks_is_tried_again_under_a_higher_epoch() {
    let gateway = Gateway::start().await;
    let agent = start(gateway.options().with_app(spec(1)));
    let tunnel = gateway.knocked().await.begin(1).await;
    agent.readiness.reached(1).await;
    tunnel.suspend();
    let first = gateway.knocked().await;
    assert_eq!(first.applicant.resume(), Some(&ticket(1, 2)));
    drop(first.carrier);
    let second = gateway.knocked().await;
    assert_eq!(second.applicant.resume(), Some(&ticket(1, 3)));
    let (carrier, leftover) = second.welcome(ticket(1, 3)).await;
    tunnel.resume(carrier, leftover);
    agent.readiness.reached(1).await;
    agent.handle.stop(Stop::Now);
    agent.outcome().await.expect("stopped");
}

#[tokio::test]
async fn a_retired_tunnel_is_brought_back_as_well_so_that_it_can_drain() {
    let gateway = Gateway::start().await;
    let (port, tell) = late_app().await;
    let agent = start(gateway.options().with_app(spec(port)));
    let old = gateway.knocked().await.begin(1).await;
    let mut stream = asked(&old).await;
    old.drain(GoAwayReason::Draining, SOON);
    let new = gateway.knocked().await.begin(2).await;
    agent.readiness.reached(1).await;
    old.suspend();
    let knock = gateway.knocked().await;
    assert_eq!(knock.applicant.resume(), Some(&ticket(1, 2)));
    let (carrier, leftover) = knock.welcome(ticket(1, 2)).await;
    old.resume(carrier, leftover);
    tell.send_replace(true);
    let read = poll_fn(|cx| stream.poll_read(cx, 100));
    let answer = timeout(SOON, read).await.expect("in time").expect("bytes");
    assert_eq!(answer.expect("bytes"), "late");
    assert_eq!(agent.readiness.tunnels(), 1, "the new one, all the time");
    drop(new);
    agent.handle.stop(Stop::Now);
    agent.outcome().await.expect("stopped");
}
