//! Both ends over an in-memory pipe, time paused.

use bytes::BufMut;
use tokio::io::duplex;

use super::*;
use crate::handshake::{AppPattern, Denied, Grant, Introduction, Scope, Token, TokenHash};
use crate::wire::{AppHealth, AppKind, AppOffer, PeerLimits};

struct OneKey(TokenHash);

impl TokenVerifier for OneKey {
    fn verify(&self, token: &Token) -> Result<Grant, Denied> {
        if !self.0.matches(token) {
            return Err(Denied::Unknown);
        }
        let pattern = AppPattern::parse("demo").expect("a pattern");
        Ok(Grant {
            subject: "laptop".to_owned(),
            scope: Scope::new(vec![pattern]),
        })
    }
}

fn token(secret: u8) -> Token {
    Token::generate("k1", &[secret; 32]).expect("a token")
}

fn limits() -> PeerLimits {
    PeerLimits {
        max_streams: 10,
        initial_credit: 65_536,
        linger: Duration::from_secs(30),
    }
}

fn client(secret: u8) -> Client {
    let app = AppOffer {
        name: "demo".to_owned(),
        kind: AppKind::Http1,
        weight: 1,
        health: AppHealth::Ready,
        upstream_host: String::new(),
    };
    Client::new(Introduction {
        agent: "a1".to_owned(),
        instance: 1,
        token: Some(token(secret)),
        features: vec![],
        apps: vec![app],
        limits: limits(),
        resume: None,
    })
    .expect("an introduction")
}

fn terms() -> Terms {
    Terms {
        node: "gw".to_owned(),
        features: vec![],
        ping_after: Duration::from_secs(2),
        resume_window: Duration::ZERO,
        limits: limits(),
        nodes: vec![],
    }
}

async fn serve<C: AsyncRead + AsyncWrite + Unpin>(
    carrier: &mut C,
    buf: &mut BytesMut,
) -> Result<Admitted, ShakeError> {
    let until = deadline(LONGEST);
    let verifier = OneKey(token(7).hash());
    let applicant = receive(carrier, buf, AwaitHello::new(), &verifier, until).await?;
    let ticket = ResumeTicket {
        tunnel: 1,
        secret: [2; 32],
        epoch: 0,
    };
    admit(carrier, applicant, &terms(), ticket, until).await
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_welcomed_and_what_came_behind_the_welcome_is_kept() {
    // A pipe of 7 bytes cuts every frame.
    let (mut near, mut far) = duplex(7);
    let gateway = async {
        let admitted = serve(&mut far, &mut BytesMut::new()).await;
        far.write_all(b"OPEN").await.expect("room");
        admitted
    };
    let mut rest = BytesMut::new();
    let agent = async {
        let welcome = knock(&mut near, &mut rest, client(7), deadline(LONGEST)).await;
        while rest.len() < 4 {
            near.read_buf(&mut rest).await.expect("bytes");
        }
        welcome
    };
    let (admitted, welcome) = tokio::join!(gateway, agent);
    assert_eq!(
        welcome.expect("welcome").ticket,
        admitted.expect("admitted").ticket
    );
    assert_eq!(&rest[..], b"OPEN");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_refused_on_both_ends_and_the_carrier_is_closed() {
    let (mut near, mut far) = duplex(1024);
    let mut buf = BytesMut::new();
    let gateway = async {
        serve(&mut far, &mut BytesMut::new())
            .await
            .expect_err("refused")
    };
    let agent = async {
        let error = knock(&mut near, &mut buf, client(8), deadline(LONGEST)).await;
        (
            error.expect_err("refused"),
            near.read(&mut [0; 1]).await.expect("an end"),
        )
    };
    let (told, (heard, after)) = tokio::join!(gateway, agent);
    assert!(
        matches!(&told, ShakeError::Refused(refuse) if refuse.code == RefuseCode::Unauthorized)
    );
    assert!(matches!(&heard, ShakeError::Client(ClientError::Refused(refuse)) if refuse.permanent));
    assert_eq!(
        (told.result(), heard.result()),
        ("unauthorized", "unauthorized")
    );
    assert_eq!(after, 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_frame_are_answered_with_a_refusal() {
    let (mut near, mut far) = duplex(1024);
    near.write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("room");
    let error = serve(&mut far, &mut BytesMut::new())
        .await
        .expect_err("no frame");
    assert!(matches!(error, ShakeError::Wire(_)), "{error}");
    let mut said = BytesMut::new();
    while near.read_buf(&mut said).await.expect("bytes") > 0 {}
    let Ok(Some(Frame::Refuse(refuse))) = decode(&mut said, &Limits::default()) else {
        panic!("a refusal")
    };
    assert_eq!(refuse.code, RefuseCode::Malformed);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up_after_ten_seconds_whatever_was_asked() {
    let (_near, mut far) = duplex(1024);
    let verifier = OneKey(token(7).hash());
    let began = Instant::now();
    let until = deadline(Duration::from_secs(3600));
    let buf = &mut BytesMut::new();
    let error = receive(&mut far, buf, AwaitHello::new(), &verifier, until).await;
    assert!(matches!(error, Err(ShakeError::TimedOut)));
    assert_eq!(began.elapsed(), LONGEST);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_a_byte_now_and_then_does_not_move_the_deadline() {
    let (mut near, mut far) = duplex(1024);
    let dripping = async {
        let mut frame = BytesMut::new();
        encode(&client(7).hello().0, &mut frame);
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        for byte in frame {
            tick.tick().await;
            near.write_u8(byte).await.expect("room");
        }
    };
    let began = Instant::now();
    let mut buf = BytesMut::new();
    tokio::select! {
        biased;
        result = serve(&mut far, &mut buf) => {
            assert!(matches!(result, Err(ShakeError::TimedOut)));
        }
        () = dripping => panic!("the deadline holds"),
    }
    assert_eq!(began.elapsed(), LONGEST);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_its_refusal_is_given_up_too() {
    let (mut near, mut far) = duplex(16);
    let began = Instant::now();
    let mut hello = BytesMut::new();
    encode(&Frame::Ping([0; 8]), &mut hello);
    let gateway = serve(&mut far, &mut hello);
    let error = gateway.await.expect_err("refused");
    assert!(matches!(error, ShakeError::TimedOut), "{error}");
    assert_eq!(began.elapsed(), LONGEST);
    near.write_u8(0).await.expect("the pipe stood all the time");
}

#[tokio::test(start_paused = true)]
async fn a_carrier_that_ends_midway_is_told_apart_from_one_that_fails() {
    let (mut near, mut far) = duplex(1024);
    let mut part = BytesMut::new();
    part.put_uint(100, 3);
    near.write_all(&part).await.expect("room");
    drop(near);
    let error = serve(&mut far, &mut BytesMut::new())
        .await
        .expect_err("an end");
    assert!(matches!(error, ShakeError::Ended), "{error}");
    assert_eq!(error.result(), "closed");
}
