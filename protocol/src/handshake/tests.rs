//! Both machines against each other, and each against a peer that misbehaves.

use std::time::Duration;

use zeroize::Zeroizing;

use super::*;
use crate::wire::{
    AppHealth, AppKind, AppOffer, Frame, Kind, PeerLimits, RefuseCode, ResumeTicket,
};

struct OneKey {
    hash: TokenHash,
    expired: bool,
}

impl TokenVerifier for OneKey {
    fn verify(&self, token: &Token) -> Result<Grant, Denied> {
        if token.key_id() != "k1" || !self.hash.matches(token) {
            return Err(Denied::Unknown);
        }
        if self.expired {
            return Err(Denied::Expired);
        }
        let patterns = ["demo", "shop-*"].map(|text| AppPattern::parse(text).expect("a pattern"));
        Ok(Grant {
            subject: "laptop".to_owned(),
            scope: Scope::new(patterns.into()),
        })
    }
}

fn token() -> Token {
    Token::generate("k1", &[7; 32]).expect("a token")
}

fn gateway() -> OneKey {
    OneKey {
        hash: token().hash(),
        expired: false,
    }
}

fn offer(name: &str) -> AppOffer {
    AppOffer {
        name: name.to_owned(),
        kind: AppKind::Http1,
        weight: 10,
        health: AppHealth::Ready,
        upstream_host: String::new(),
    }
}

fn limits() -> PeerLimits {
    PeerLimits {
        max_streams: 100,
        initial_credit: 65_536,
        linger: Duration::from_secs(30),
    }
}

fn introduction() -> Introduction {
    Introduction {
        agent: "a1".to_owned(),
        instance: 5,
        token: Some(token()),
        features: vec!["report".to_owned(), "old".to_owned()],
        apps: vec![offer("demo"), offer("shop-1")],
        limits: limits(),
        resume: None,
    }
}

fn terms() -> Terms {
    Terms {
        node: "gw-1".to_owned(),
        features: vec!["new".to_owned(), "report".to_owned()],
        ping_after: Duration::from_secs(2),
        resume_window: Duration::ZERO,
        limits: limits(),
        nodes: vec![],
    }
}

pub(super) fn ticket(epoch: u32) -> ResumeTicket {
    ResumeTicket {
        tunnel: 9,
        secret: [3; 32],
        epoch,
    }
}

/// One with a valid token, whose HELLO was changed on the way.
pub(super) fn applicant(
    resume: Option<ResumeTicket>,
    change: impl FnOnce(&mut crate::wire::Hello),
) -> Applicant {
    let (frame, _) = hello(Introduction {
        resume,
        ..introduction()
    });
    let Frame::Hello(mut hello) = frame else {
        panic!("HELLO comes first")
    };
    change(&mut hello);
    AwaitHello::new()
        .receive(Frame::Hello(hello), &gateway())
        .expect("let in")
}

fn hello(introduction: Introduction) -> (Frame, AwaitAnswer) {
    Client::new(introduction).expect("an introduction").hello()
}

fn refused(change: impl FnOnce(&mut crate::wire::Hello)) -> crate::wire::Refuse {
    let (frame, _) = hello(introduction());
    let Frame::Hello(mut hello) = frame else {
        panic!("HELLO comes first")
    };
    change(&mut hello);
    AwaitHello::new()
        .receive(Frame::Hello(hello), &gateway())
        .expect_err("refused")
}

#[test]
fn an_agent_with_a_valid_token_is_let_in_and_both_agree() {
    let (frame, waiting) = hello(introduction());
    let applicant = AwaitHello::new()
        .receive(frame, &gateway())
        .expect("let in");
    let identity = Identity {
        subject: "laptop".to_owned(),
        agent: "a1".to_owned(),
    };
    assert_eq!(applicant.identity(), &identity);
    let (welcome, admitted) = applicant.admit(&terms(), ticket(0));
    let welcome = waiting.receive(Frame::Welcome(welcome)).expect("welcome");
    assert_eq!(welcome.features, ["report"]);
    assert_eq!(welcome.features, admitted.features);
    assert_eq!((welcome.version, admitted.version), (1, 1));
    assert_eq!(welcome.ticket, ticket(0));
    assert_eq!(admitted.key, "k1");
    assert!(admitted.scope.covers("shop-2") && !admitted.scope.covers("other"));
}

#[test]
fn a_token_in_the_request_is_as_good_as_one_in_hello() {
    let (frame, _) = hello(Introduction {
        token: None,
        ..introduction()
    });
    let header = Zeroizing::new(token().reveal().to_owned());
    AwaitHello::with_header_token(header)
        .receive(frame, &gateway())
        .expect("let in");
}

#[test]
fn a_token_in_both_places_is_refused() {
    let (frame, _) = hello(introduction());
    let header = Zeroizing::new(token().reveal().to_owned());
    let refuse = AwaitHello::with_header_token(header).receive(frame, &gateway());
    assert_eq!(refuse.expect_err("refused").code, RefuseCode::Malformed);
}

#[test]
fn a_missing_malformed_unknown_or_expired_token_is_refused_for_good() {
    let other = Token::generate("k1", &[8; 32]).expect("a token");
    for text in ["", "canary", other.reveal()] {
        let refuse = refused(|hello| text.clone_into(&mut hello.token));
        assert_eq!(
            (refuse.code, refuse.permanent),
            (RefuseCode::Unauthorized, true)
        );
        assert!(
            refuse.retry_after >= Duration::from_secs(1),
            "a refused agent must not hammer"
        );
        assert!(!refuse.text.contains("canary"));
    }
    let (frame, _) = hello(introduction());
    let expired = OneKey {
        expired: true,
        ..gateway()
    };
    let refuse = AwaitHello::new()
        .receive(frame, &expired)
        .expect_err("refused");
    assert_eq!(refuse.code, RefuseCode::Unauthorized);
    assert!(refuse.text.contains("expired"));
}

#[test]
fn an_app_outside_the_scope_is_refused_by_name() {
    let refuse = refused(|hello| hello.apps.push(offer("shop")));
    assert_eq!(
        (refuse.code, refuse.permanent),
        (RefuseCode::ScopeDenied, true)
    );
    assert!(refuse.text.contains("app shop"), "{}", refuse.text);
}

#[test]
fn nothing_is_said_about_apps_before_the_token_holds() {
    let refuse = refused(|hello| {
        hello.token = "bh_k1_wrong".to_owned();
        hello.apps = vec![offer("NOT A NAME"), offer("secret")];
    });
    assert_eq!(refuse.code, RefuseCode::Unauthorized);
}

#[test]
fn a_hello_that_breaks_a_rule_is_malformed() {
    let changes: [fn(&mut crate::wire::Hello); 7] = [
        |hello| hello.agent = String::new(),
        |hello| hello.agent = "a/b".to_owned(),
        |hello| hello.apps[0].name = "Demo".to_owned(),
        |hello| hello.apps[1] = hello.apps[0].clone(),
        |hello| hello.apps[0].weight = 0,
        |hello| hello.apps[0].upstream_host = "a b".to_owned(),
        |hello| hello.limits.initial_credit = 0,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        assert_eq!(
            refused(change).code,
            RefuseCode::Malformed,
            "change {index}"
        );
    }
    let refuse = AwaitHello::new()
        .receive(Frame::Ping([0; 8]), &gateway())
        .expect_err("refused");
    assert_eq!(refuse.code, RefuseCode::Malformed);
    assert!(refuse.text.contains("PING"), "{}", refuse.text);
}

#[test]
fn an_agent_of_another_age_is_refused_for_good() {
    for versions in [vec![], vec![0], vec![NEWEST + 1, NEWEST + 2]] {
        let refuse = refused(|hello| hello.versions = versions);
        assert_eq!(
            (refuse.code, refuse.permanent),
            (RefuseCode::VersionUnsupported, true)
        );
    }
}

#[test]
fn the_tunnel_to_resume_is_known_only_after_the_token_holds() {
    let resuming = applicant(Some(ticket(4)), |_| ());
    assert_eq!(resuming.resume(), Some(&ticket(4)));
    let refuse = refused(|hello| {
        hello.resume = Some(ticket(4));
        hello.token = Token::generate("k1", &[8; 32])
            .expect("a token")
            .reveal()
            .to_owned();
    });
    assert_eq!(refuse.code, RefuseCode::Unauthorized);
}

#[test]
fn an_answer_with_what_was_not_offered_is_no_admission() {
    let answer = |change: fn(&mut crate::wire::Welcome)| {
        let (frame, waiting) = hello(introduction());
        let applicant = AwaitHello::new()
            .receive(frame, &gateway())
            .expect("let in");
        let (mut welcome, _) = applicant.admit(&terms(), ticket(0));
        change(&mut welcome);
        waiting
            .receive(Frame::Welcome(welcome))
            .expect_err("no admission")
    };
    assert_eq!(
        answer(|welcome| welcome.version = 2),
        ClientError::Version(2)
    );
    let feature = ClientError::Feature("new".to_owned());
    assert_eq!(
        answer(|welcome| welcome.features.push("new".to_owned())),
        feature
    );

    let (_, waiting) = hello(introduction());
    let error = waiting
        .receive(Frame::Pong([0; 8]))
        .expect_err("no admission");
    assert_eq!(error, ClientError::Unexpected(Kind::Pong));
}

#[test]
fn an_introduction_no_gateway_would_take_is_found_before_dialling() {
    let with = |change: fn(&mut Introduction)| {
        let mut introduction = introduction();
        change(&mut introduction);
        Client::new(introduction).expect_err("a bad introduction")
    };
    assert!(matches!(
        with(|i| i.agent.push(' ')),
        IntroductionError::Agent(_)
    ));
    assert!(matches!(
        with(|i| i.apps[0].name.push('_')),
        IntroductionError::App(_)
    ));
    assert!(matches!(
        with(|i| i.apps[0].upstream_host.push('/')),
        IntroductionError::Host(_)
    ));
    assert!(matches!(
        with(|i| i.apps = vec![offer("a"); 129]),
        IntroductionError::Apps(_)
    ));
}

#[test]
fn no_state_of_the_handshake_prints_the_token() {
    let client = Client::new(introduction()).expect("an introduction");
    let shown = format!("{client:?}");
    let (frame, waiting) = client.hello();
    let header = AwaitHello::with_header_token(Zeroizing::new(token().reveal().to_owned()));
    let shown = format!("{shown} {frame:?} {waiting:?} {header:?}");
    assert!(!shown.contains(&token().reveal()[7..]), "{shown}");
}
