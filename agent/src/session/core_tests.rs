//! Tests of the slot: every edge of the diagram, and that nothing but a stop ends it.

use bridgehead_protocol::wire::RefuseCode;
use proptest::prelude::*;

use super::*;

const PASSING: Event = Event::DialFailed(Fault::Passing);

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

fn refuse(permanent: bool, retry_after: u64) -> Refuse {
    Refuse {
        code: RefuseCode::Unauthorized,
        permanent,
        retry_after: Duration::from_secs(retry_after),
        text: "no".to_owned(),
    }
}

fn actions(session: &mut Session) -> Vec<Action> {
    std::iter::from_fn(|| session.poll_action()).collect()
}

fn feed(
    session: &mut Session,
    now: Moment,
    events: impl IntoIterator<Item = Event>,
) -> Vec<Action> {
    for event in events {
        session.handle(now, event);
    }
    actions(session)
}

fn up() -> Session {
    let mut session = Session::new(1);
    let done = feed(
        &mut session,
        at(0),
        [Event::Start, Event::Dialled, Event::Welcomed],
    );
    assert_eq!(done, [Action::Dial, Action::Shake, Action::Serve]);
    assert!(session.is_up());
    session
}

fn wait_of(now: Moment, actions: &[Action]) -> Duration {
    match actions {
        [Action::WaitUntil(until)] => until.since(now),
        other => panic!("not one wait: {other:?}"),
    }
}

#[test]
fn a_failed_dial_and_a_failed_handshake_wait_and_dial_again() {
    let mut session = Session::new(1);
    let done = feed(&mut session, at(0), [Event::Start, PASSING]);
    assert!(
        matches!(done[..], [Action::Dial, Action::WaitUntil(_)]),
        "{done:?}"
    );
    assert_eq!(feed(&mut session, at(1), [Event::Timer]), [Action::Dial]);
    let done = feed(&mut session, at(1), [Event::Dialled, Event::ShakeFailed]);
    assert!(
        matches!(done[..], [Action::Shake, Action::WaitUntil(_)]),
        "{done:?}"
    );
    assert_eq!(feed(&mut session, at(20), [Event::Timer]), [Action::Dial]);
}

#[test]
fn a_lost_tunnel_is_redialled_at_once() {
    let mut session = up();
    assert_eq!(feed(&mut session, at(10), [Event::Lost]), [Action::Dial]);
}

#[test]
fn a_draining_gateway_is_replaced_before_the_old_tunnel_ends() {
    let mut session = up();
    let done = feed(
        &mut session,
        at(10),
        [Event::GoAway(GoAwayReason::Draining)],
    );
    assert_eq!(done, [Action::Retire, Action::Dial]);
}

#[test]
fn a_replaced_instance_asks_again_only_now_and_then() {
    let mut session = up();
    let done = feed(
        &mut session,
        at(10),
        [Event::GoAway(GoAwayReason::Replaced)],
    );
    assert_eq!(done, [Action::Retire, Action::WaitUntil(at(10) + CEILING)]);
}

#[test]
fn a_mistake_in_the_set_up_is_tried_again_slowly() {
    let mut session = Session::new(1);
    feed(&mut session, at(0), [Event::Start]);
    let done = feed(&mut session, at(0), [Event::DialFailed(Fault::SetUp)]);
    assert!(wait_of(at(0), &done) >= CEILING);
}

#[test]
fn a_permanent_refusal_is_asked_again_slowly_but_for_ever() {
    let mut session = Session::new(1);
    feed(&mut session, at(0), [Event::Start]);
    for n in 0..100 {
        let now = at(n * 100);
        let done = feed(
            &mut session,
            now,
            [Event::Dialled, Event::Refused(refuse(true, 0))],
        );
        assert!(wait_of(now, &done[1..]) >= CEILING, "{done:?}");
        assert_eq!(feed(&mut session, now, [Event::Timer]), [Action::Dial]);
    }
}

#[test]
fn retry_after_is_obeyed() {
    let mut session = Session::new(1);
    feed(&mut session, at(0), [Event::Start, Event::Dialled]);
    let done = feed(&mut session, at(0), [Event::Refused(refuse(false, 30))]);
    assert!(wait_of(at(0), &done) >= Duration::from_secs(30));
}

#[test]
fn a_stop_drains_a_tunnel_that_is_up_and_ends_anything_else_at_once() {
    let mut session = up();
    assert_eq!(feed(&mut session, at(1), [Event::Stop]), [Action::Drain]);
    assert!(!session.is_up());
    assert_eq!(feed(&mut session, at(2), [Event::Closed]), [Action::End]);
    let starts: [&[Event]; 4] = [
        &[],
        &[Event::Start],
        &[Event::Start, Event::Dialled],
        &[Event::Start, PASSING],
    ];
    for start in starts {
        let mut session = Session::new(1);
        feed(&mut session, at(0), start.iter().cloned());
        assert_eq!(
            feed(&mut session, at(1), [Event::Stop]),
            [Action::End],
            "{start:?}"
        );
    }
}

#[test]
fn a_tunnel_lost_while_draining_ends_the_slot() {
    let mut session = up();
    feed(&mut session, at(1), [Event::Stop]);
    assert_eq!(feed(&mut session, at(2), [Event::Lost]), [Action::End]);
}

fn any_event() -> impl Strategy<Value = Event> {
    let reason = prop_oneof![
        Just(GoAwayReason::Draining),
        Just(GoAwayReason::Replaced),
        Just(GoAwayReason::Revoked),
        Just(GoAwayReason::IdsExhausted),
        Just(GoAwayReason::ProtocolError),
    ];
    prop_oneof![
        Just(Event::Start),
        Just(Event::Timer),
        Just(Event::Dialled),
        Just(PASSING),
        Just(Event::DialFailed(Fault::SetUp)),
        Just(Event::Welcomed),
        (any::<bool>(), 0..60_u64).prop_map(|(p, s)| Event::Refused(refuse(p, s))),
        Just(Event::ShakeFailed),
        Just(Event::Lost),
        reason.prop_map(Event::GoAway),
        Just(Event::Closed),
    ]
}

proptest! {
    #[test]
    fn without_a_stop_the_agent_never_gives_up(
        seed: u64,
        events in prop::collection::vec((any_event(), 0..120_u64), 1..200),
    ) {
        let mut session = Session::new(seed);
        session.handle(at(0), Event::Start);
        let mut now = 0;
        let mut pending = Vec::new();
        for (event, pause) in events {
            now += pause;
            session.handle(at(now), event);
            pending.extend(actions(&mut session));
            // There is always something that will report back: a dial, a handshake, a wait or a tunnel.
            prop_assert!(!session.is_ended());
            if let Some(Action::WaitUntil(until)) = pending.last() {
                prop_assert!(until.since(at(now)) <= Duration::from_secs(75));
            }
        }
        session.handle(at(now), Event::Stop);
        session.handle(at(now), Event::Closed);
        prop_assert!(session.is_ended());
        let last = actions(&mut session).pop();
        prop_assert_eq!(last, Some(Action::End));
    }
}
