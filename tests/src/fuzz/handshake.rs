//! The first frames of a carrier: nobody is let in without a valid token and inside its scope, and no
//! refusal repeats a secret.

use std::time::Duration;

use bridgehead_protocol::handshake::{
    AppPattern, AwaitHello, Client, Denied, Grant, Introduction, Scope, Terms, Token,
    TokenVerifier, is_agent_id, is_app_name, is_host_header,
};
use bridgehead_protocol::wire::{
    AppHealth, AppKind, AppOffer, Frame, Hello, Limits, PeerLimits, Refuse, RefuseCode,
    ResumeTicket, Welcome, decode,
};
use bytes::BytesMut;

use super::feed::Feed;
use super::{signature, size, variant};

pub(super) const WORDS: &[&[u8]] = &[
    b"bh_key_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    b"bh_",
    b"_",
    b"demo",
    b"shop-1",
    b"agent-1",
    b"drain",
    b"demo.internal:8080",
    b"\r\n",
    b"\0",
];

/// Knows one token, for the apps `demo` and `shop-*`.
struct One(Token);

impl TokenVerifier for One {
    fn verify(&self, token: &Token) -> Result<Grant, Denied> {
        match self.0.hash().matches(token) {
            true => Ok(Grant {
                subject: "a1".into(),
                scope: scope(),
            }),
            false => Err(Denied::Unknown),
        }
    }
}

fn scope() -> Scope {
    let pattern = |text: &str| AppPattern::parse(text).expect("a pattern");
    Scope::new(vec![pattern("demo"), pattern("shop-*")])
}

fn limits(feed: &mut Feed<'_>) -> PeerLimits {
    PeerLimits {
        max_streams: feed.number() as u32,
        initial_credit: feed.number() as u32,
        linger: Duration::from_millis(feed.number()),
    }
}

fn offer(feed: &mut Feed<'_>) -> AppOffer {
    AppOffer {
        name: match feed.byte() % 4 {
            0 => "demo".into(),
            1 => "shop-1".into(),
            2 => "other".into(),
            _ => feed.text(50),
        },
        kind: feed.pick(AppKind::ALL),
        weight: feed.byte(),
        health: feed.pick(AppHealth::ALL),
        upstream_host: feed.text(20),
    }
}

fn ticket(feed: &mut Feed<'_>) -> ResumeTicket {
    ResumeTicket {
        tunnel: feed.number().into(),
        secret: feed.array(),
        epoch: feed.number() as u32,
    }
}

fn hello(feed: &mut Feed<'_>, good: &Token) -> Frame {
    Frame::Hello(Hello {
        versions: (0..feed.below(4)).map(|_| feed.number() as u16).collect(),
        features: (0..feed.below(3)).map(|_| feed.text(8)).collect(),
        agent: if feed.flag() {
            "agent-1".into()
        } else {
            feed.text(70)
        },
        instance: feed.number().into(),
        token: match feed.byte() % 3 {
            0 => good.reveal().to_owned(),
            1 => String::new(),
            _ => feed.text(80),
        },
        apps: (0..feed.below(4)).map(|_| offer(feed)).collect(),
        limits: limits(feed),
        resume: feed.flag().then(|| ticket(feed)),
    })
}

fn welcome(feed: &mut Feed<'_>) -> Frame {
    Frame::Welcome(Welcome {
        version: feed.number() as u16,
        features: (0..feed.below(3)).map(|_| feed.text(8)).collect(),
        node: feed.text(20),
        ticket: ticket(feed),
        ping_after: Duration::from_millis(feed.number()),
        resume_window: Duration::from_millis(feed.number()),
        limits: limits(feed),
        nodes: (0..feed.below(3)).map(|_| feed.text(20)).collect(),
    })
}

pub(super) fn run(data: &[u8]) -> u64 {
    let good = Token::generate("key", &[7; 32]).expect("a token");
    let mut feed = Feed::new(data);
    match feed.byte() % 4 {
        0 => {
            let mut raw = BytesMut::from(feed.rest());
            match decode(&mut raw, &Limits::default()) {
                Ok(Some(frame)) => server(frame, &good),
                Ok(None) => 1,
                Err(error) => variant(&error),
            }
        }
        1 | 2 => {
            let frame = hello(&mut feed, &good);
            server(frame, &good)
        }
        _ => client(&mut feed),
    }
}

fn server(frame: Frame, good: &Token) -> u64 {
    let said = match &frame {
        Frame::Hello(hello) => Some(hello.token.clone()),
        _ => None,
    };
    match AwaitHello::new().receive(frame, &One(good.clone())) {
        Ok(applicant) => {
            assert_eq!(
                said.as_deref(),
                Some(good.reveal()),
                "let in without the token"
            );
            assert_eq!(applicant.identity().subject, "a1");
            assert!(is_agent_id(&applicant.identity().agent));
            for app in applicant.apps() {
                assert!(
                    is_app_name(&app.name) && scope().covers(&app.name),
                    "{}",
                    app.name
                );
                assert!(is_host_header(&app.upstream_host));
                assert!((1..=100).contains(&app.weight));
            }
            let shown = format!("{applicant:?}");
            assert!(!shown.contains(&good.reveal()[10..]), "a token in a Debug");
            let offered = applicant.apps().len();
            let (welcome, admitted) = applicant.admit(&terms(), own_ticket());
            assert!(
                welcome
                    .features
                    .iter()
                    .all(|f| terms().features.contains(f))
            );
            assert_eq!(admitted.features, welcome.features);
            signature(&[2, size(offered), size(welcome.features.len())])
        }
        Err(refuse) => {
            if let Some(said) = said.filter(|said| said.len() > 20) {
                assert!(!refuse.text.contains(&said), "a refusal repeats the token");
            }
            signature(&[3, variant(&refuse.code), size(refuse.text.len())])
        }
    }
}

fn terms() -> Terms {
    Terms {
        node: "gw-1".into(),
        features: vec!["drain".into()],
        ping_after: Duration::from_secs(2),
        resume_window: Duration::ZERO,
        limits: PeerLimits {
            max_streams: 100,
            initial_credit: 65_536,
            linger: Duration::from_secs(60),
        },
        nodes: Vec::new(),
    }
}

fn own_ticket() -> ResumeTicket {
    ResumeTicket {
        tunnel: 1,
        secret: [0; 32],
        epoch: 0,
    }
}

/// An agent before a gateway that may say anything.
fn client(feed: &mut Feed<'_>) -> u64 {
    let introduction = Introduction {
        agent: "agent-1".into(),
        instance: 1,
        token: None,
        features: vec!["drain".into()],
        apps: vec![offer(feed)],
        limits: limits(feed),
        resume: None,
    };
    let Ok(client) = Client::new(introduction) else {
        return 4;
    };
    let (first, state) = client.hello();
    assert!(matches!(first, Frame::Hello(_)));
    let frame = match feed.byte() % 3 {
        0 => Frame::Ping(feed.array()),
        1 => Frame::Refuse(Refuse {
            code: feed.pick(RefuseCode::ALL),
            permanent: feed.flag(),
            retry_after: Duration::from_millis(feed.number()),
            text: feed.text(40),
        }),
        _ => welcome(feed),
    };
    match state.receive(frame) {
        Ok(welcome) => {
            assert!(welcome.features.iter().all(|f| f == "drain"));
            5
        }
        Err(error) => signature(&[6, size(error.to_string().len())]),
    }
}
