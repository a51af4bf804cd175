//! The gate as a whole: the order of denials, and that everything comes back.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{Code, Reason};

use super::*;
use crate::config::{Admission, Rate};

const NOW: Moment = Moment::ZERO;
const EMPTY: GateView = GateView {
    in_flight: 0,
    queued: 0,
    held: 0,
    long_lived: 0,
    large_bodies: 0,
    quarantine: None,
    failing_clients: 0,
    at_their_share: 0,
};

fn gate() -> Arc<Gate> {
    Arc::default()
}

fn asker() -> Asker {
    let address = "192.0.2.1".parse().unwrap();
    Asker {
        address,
        client: Client::at(address),
        declared: None,
        shape: Shape::Exchange,
        holds: 0,
        room: u64::MAX,
    }
}

fn large() -> Asker {
    Asker {
        declared: Some(2 << 20),
        ..asker()
    }
}

fn neighbour() -> Asker {
    let address = "192.0.2.2".parse().unwrap();
    Asker {
        address,
        client: Client::at(address),
        ..asker()
    }
}

fn pipe() -> Asker {
    Asker {
        shape: Shape::Pipe,
        ..asker()
    }
}

fn poll(permit: &mut Permit) -> Poll<()> {
    permit.poll_place(&mut Context::from_waker(Waker::noop()))
}

/// One place of everything, everything switched on.
fn tight() -> Admission {
    Admission {
        in_flight: 1,
        queue: 1,
        long_lived: 1,
        large_body_slots: 1,
        quarantine: Some(Duration::from_secs(30)),
        error_loop: Some(2),
        ..Admission::default()
    }
}

#[test]
fn everything_a_permit_takes_comes_back_with_its_drop() {
    let gate = gate();
    let first = gate.enter(NOW, &tight(), &large()).unwrap();
    let second = gate.enter(NOW, &tight(), &pipe()).unwrap();
    let full = GateView {
        in_flight: 1,
        queued: 1,
        long_lived: 1,
        large_bodies: 1,
        at_their_share: 1,
        ..EMPTY
    };
    assert_eq!(gate.view(NOW), full);
    drop(first);
    drop(second);
    assert_eq!(gate.view(NOW), EMPTY);
}

#[test]
fn a_denial_takes_nothing() {
    let gate = gate();
    let _first = gate.enter(NOW, &tight(), &asker()).unwrap();
    let _second = gate.enter(NOW, &tight(), &asker()).unwrap();
    let before = gate.view(NOW);
    for asker in [large(), pipe()] {
        let denied = gate.enter(NOW, &tight(), &asker).unwrap_err();
        assert_eq!(denied.code(), Code::QueueOverflow);
        assert_eq!(gate.view(NOW), before);
    }
}

#[test]
fn the_first_denial_in_the_order_of_the_limits_wins() {
    let gate = gate();
    let mut limits = Admission {
        rate: Some(Rate {
            requests: 1,
            period: Duration::from_secs(3600),
            burst: 1,
        }),
        deny: vec!["192.0.2.1".parse().unwrap()],
        ..tight()
    };
    let open = Admission::default();
    let watched = Admission {
        quarantine: limits.quarantine,
        error_loop: limits.error_loop,
        ..open.clone()
    };
    let rated = Admission {
        rate: limits.rate,
        ..watched.clone()
    };
    let code = |limits: &Admission| gate.enter(NOW, limits, &large()).unwrap_err().code();
    let _slot = gate.enter(NOW, &open, &large()).unwrap();
    // The rate's only request, then ten timeouts of exchanges that run beside each other.
    drop(gate.enter(NOW, &rated, &asker()).unwrap());
    let enter = |_| gate.enter(NOW, &watched, &asker()).unwrap();
    for mut permit in (0..10).map(enter).collect::<Vec<_>>() {
        permit.ended(NOW, Ending::Failed(Code::BhAppTimeout, Reason::FirstFrame));
    }
    assert_eq!(code(&limits), Code::AppNotFound);
    limits.deny.clear();
    assert_eq!(code(&limits), Code::RateLimited);
    limits.rate = None;
    assert_eq!(code(&limits), Code::TimeoutQuarantine);
    limits.quarantine = None;
    assert_eq!(code(&limits), Code::ErrorLoopDetected);
    limits.error_loop = None;
    assert_eq!(code(&limits), Code::LargeBodyBackendBusy);
    limits.large_body_slots = 9;
    let _queued = gate.enter(NOW, &limits, &asker()).unwrap();
    assert_eq!(code(&limits), Code::QueueOverflow);
}

#[test]
fn a_held_exchange_is_not_in_flight_and_comes_back_before_those_who_came_later() {
    let gate = gate();
    let limits = Admission {
        queue: 5,
        ..tight()
    };
    let mut held = gate.enter(NOW, &limits, &asker()).unwrap();
    let mut second = gate.enter(NOW, &limits, &asker()).unwrap();
    let mut third = gate.enter(NOW, &limits, &asker()).unwrap();
    held.hold().unwrap();
    assert!(poll(&mut second).is_ready() && poll(&mut third).is_pending());
    assert_eq!((gate.view(NOW).in_flight, gate.view(NOW).held), (1, 1));
    held.rejoin();
    assert!(held.is_waiting());
    drop(second);
    assert!(poll(&mut third).is_pending() && poll(&mut held).is_ready());
    drop(held);
    assert!(poll(&mut third).is_ready());
}

#[test]
fn who_is_held_counts_in_the_line_until_its_hold_is_over() {
    let gate = gate();
    let limits = Admission {
        in_flight: 2,
        queue: 1,
        ..Admission::default()
    };
    let mut first = gate.enter(NOW, &limits, &asker()).unwrap();
    let mut second = gate.enter(NOW, &limits, &neighbour()).unwrap();
    first.hold().unwrap();
    assert_eq!(second.hold(), Err(Limit::All(1)));
    first.rejoin();
    assert!(!first.is_waiting() && !second.is_waiting());
    assert_eq!(second.hold(), Err(Limit::All(1)), "it only tries");
    first.end_hold();
    second.hold().unwrap();
    second.rejoin();
    assert!(second.become_long_lived());
    first.hold().unwrap();
    assert_eq!((gate.view(NOW).held, gate.view(NOW).in_flight), (1, 0));
    drop((first, second));
    assert_eq!(gate.view(NOW), EMPTY);
}

#[test]
fn an_upgrade_reserves_its_long_place_and_gives_the_other_one_away_at_the_head() {
    let gate = gate();
    let mut upgrade = gate.enter(NOW, &tight(), &pipe()).unwrap();
    assert_eq!(
        (gate.view(NOW).in_flight, gate.view(NOW).long_lived),
        (1, 1)
    );
    let denied = gate.enter(NOW, &tight(), &pipe()).unwrap_err();
    assert_eq!(denied.reason(), Reason::QueueFull);
    assert!(upgrade.become_long_lived());
    assert_eq!(
        (gate.view(NOW).in_flight, gate.view(NOW).long_lived),
        (0, 1)
    );
    drop(upgrade);
    assert_eq!(gate.view(NOW), EMPTY);
}

#[test]
fn one_client_gets_half_of_each_kind_of_place_and_a_neighbour_the_rest() {
    let gate = gate();
    let limits = Admission {
        in_flight: 4,
        queue: 4,
        long_lived: 4,
        large_body_slots: 4,
        ..Admission::default()
    };
    let enter = |asker: Asker| gate.enter(NOW, &limits, &asker);
    let mut mine: Vec<Permit> = (0..2).map(|_| enter(pipe()).unwrap()).collect();
    let share = |denied: Result<Permit, Denied>| denied.unwrap_err().share();
    assert_eq!(share(enter(pipe())), Some(Places::LongLived));
    assert!(mine.iter_mut().all(Permit::become_long_lived));
    mine.extend((0..2).map(|_| enter(large()).unwrap()));
    assert_eq!(share(enter(large())), Some(Places::LargeBodies));
    mine.extend((0..2).map(|_| enter(asker()).unwrap()));
    assert!(mine[4].waits_for_its_client());
    assert_eq!(mine[4].waited(NOW - NOW).share(), Some(Places::InFlight));
    assert_eq!(share(enter(asker())), Some(Places::Queue));
    // A key that the client chose makes it nobody else.
    let disguised = Asker {
        client: Client::Key([7; 16]),
        ..asker()
    };
    assert_eq!(share(enter(disguised)), Some(Places::Queue));
    let others = [
        Asker {
            declared: large().declared,
            ..neighbour()
        },
        Asker {
            shape: Shape::Pipe,
            ..neighbour()
        },
    ];
    let others = others.map(|other| enter(other).unwrap());
    assert!(others.iter().all(|permit| !permit.is_waiting()));
    drop((mine, others));
    assert_eq!(gate.view(NOW), EMPTY);
}

#[test]
fn a_stream_that_finds_no_long_place_keeps_the_one_it_has() {
    let gate = gate();
    let limits = Admission {
        in_flight: 2,
        ..tight()
    };
    let mut first = gate.enter(NOW, &limits, &asker()).unwrap();
    let mut second = gate.enter(NOW, &limits, &neighbour()).unwrap();
    assert!(first.become_long_lived() && !second.become_long_lived());
    assert_eq!(
        (gate.view(NOW).in_flight, gate.view(NOW).long_lived),
        (1, 1)
    );
    drop((first, second));
    assert_eq!(gate.view(NOW), EMPTY);
}

#[test]
fn a_large_body_for_which_no_memory_is_left_is_refused_and_a_small_one_passes() {
    let (gate, limits) = (gate(), Admission::default());
    let short = |asker: Asker| Asker {
        holds: 1 << 20,
        room: (1 << 20) - 1,
        ..asker
    };
    let denied = gate.enter(NOW, &limits, &short(large())).unwrap_err();
    assert_eq!(
        (denied, denied.code()),
        (Denied::LargeBodyMemory, Code::LargeBodyBackendBusy)
    );
    assert_eq!(gate.view(NOW), EMPTY);
    let small = gate.enter(NOW, &limits, &short(asker())).unwrap();
    assert!(!small.has_large_body());
    assert!(gate.enter(NOW, &limits, &large()).unwrap().has_large_body());
}

#[test]
fn large_bodies_of_unknown_length_and_of_streams_need_no_slot() {
    let gate = gate();
    let limits = Admission {
        large_body_slots: 1,
        ..Admission::default()
    };
    let _slot = gate.enter(NOW, &limits, &large()).unwrap();
    let stream = Asker {
        shape: Shape::Stream,
        ..large()
    };
    let small = Asker {
        declared: Some(1 << 20),
        ..asker()
    };
    for asker in [asker(), stream, small] {
        assert!(gate.enter(NOW, &limits, &asker).is_ok());
    }
    let denied = gate.enter(NOW, &limits, &large()).unwrap_err();
    assert_eq!(denied.code(), Code::LargeBodyBackendBusy);
}

#[test]
fn a_probe_that_is_denied_further_on_stays_to_be_made() {
    let gate = gate();
    let limits = Admission {
        large_body_slots: 1,
        ..tight()
    };
    for _ in 0..10 {
        let mut permit = gate
            .enter(
                NOW,
                &Admission {
                    in_flight: 9,
                    error_loop: None,
                    ..limits.clone()
                },
                &asker(),
            )
            .unwrap();
        permit.ended(NOW, Ending::Failed(Code::BhAppTimeout, Reason::Stall));
    }
    let limits = Admission {
        error_loop: None,
        queue: 0,
        ..limits
    };
    let then = NOW + Duration::from_secs(30);
    let busy = gate.enter(
        NOW,
        &Admission {
            quarantine: limits.quarantine,
            ..limits.clone()
        },
        &asker(),
    );
    assert_eq!(busy.unwrap_err().code(), Code::TimeoutQuarantine);
    let mut probe = gate.enter(then, &limits, &asker()).unwrap();
    let others = gate.enter(then, &limits, &asker());
    assert_eq!(others.unwrap_err().code(), Code::TimeoutQuarantine);
    probe.ended(then, Ending::Answered(200));
    drop(probe);
    assert_eq!(gate.view(then), EMPTY);
}

#[test]
fn a_tcp_client_is_long_lived_from_the_start() {
    let gate = gate();
    let address = "192.0.2.1".parse().unwrap();
    let first = gate.enter_long_lived(NOW, &tight(), address).unwrap();
    assert_eq!(gate.view(NOW).long_lived, 1);
    let denied = gate.enter_long_lived(NOW, &tight(), address).unwrap_err();
    assert_eq!(
        (denied.code(), denied.reason()),
        (Code::QueueOverflow, Reason::QueueFull)
    );
    drop(first);
    assert_eq!(gate.view(NOW), EMPTY);
}
