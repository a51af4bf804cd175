//! The decisions, without a socket or a clock.

use std::time::Duration;

use bridgehead_protocol::wire::Kind;

use super::decision::{Admission, Held, LinkId, Shape, Step};
use super::engine::Engine;
use super::parse;
use super::scan::FrameFacts;
use super::script::{Direction, End, FaultKind};

const UP: Direction = Direction::ToGateway;
const DOWN: Direction = Direction::ToAgent;
const SIZE: usize = 20;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn engine(script: &str) -> Engine {
    Engine::new(parse(script).expect("a script"), 7)
}

fn open(engine: &mut Engine, now: Duration) -> LinkId {
    match engine.open(now) {
        Admission::Carry(id) => id,
        Admission::Refuse => panic!("refused"),
    }
}

fn frame(engine: &mut Engine, id: LinkId, way: Direction, kind: Kind, stream: u32) -> Vec<Step> {
    engine.piece(
        id,
        way,
        Some(FrameFacts { kind, stream }),
        SIZE,
        Duration::ZERO,
    )
}

fn passes(steps: &[Step]) -> bool {
    matches!(steps, [Step::Pass { from: 0, to: SIZE, shape, .. }] if *shape == Shape::default())
}

#[test]
fn without_a_rule_everything_passes_unchanged() {
    let mut engine = engine("");
    let id = open(&mut engine, ms(0));
    assert!(passes(&frame(&mut engine, id, UP, Kind::Hello, 0)));
    assert!(engine.next_tick().is_none() && engine.listens());
}

#[test]
fn a_cut_at_a_frame_lets_those_before_it_pass_and_fires_once() {
    let mut engine = engine("at frame 2 of stream 1: cut");
    let id = open(&mut engine, ms(0));
    assert!(passes(&frame(&mut engine, id, DOWN, Kind::Open, 1)));
    assert!(
        passes(&frame(&mut engine, id, DOWN, Kind::Open, 3)),
        "another stream does not count"
    );
    assert_eq!(
        frame(&mut engine, id, UP, Kind::Opened, 1),
        [Step::End(End::Cut)]
    );
    engine.close(id);
    let next = open(&mut engine, ms(1));
    for _ in 0..3 {
        assert!(passes(&frame(&mut engine, next, DOWN, Kind::Data, 1)));
    }
    assert_eq!(engine.tally().effects(FaultKind::Cut), 1);
}

#[test]
fn a_rule_for_each_connection_counts_on_each() {
    let mut engine = engine("after frame 1 of type OPEN of each connection: reset");
    for _ in 0..3 {
        let id = open(&mut engine, ms(0));
        let steps = frame(&mut engine, id, DOWN, Kind::Open, 1);
        assert!(matches!(
            steps[..],
            [Step::Pass { to: SIZE, .. }, Step::End(End::Reset)]
        ));
    }
    assert_eq!(engine.tally().effects(FaultKind::Reset), 3);
}

#[test]
fn a_cut_at_a_byte_splits_the_piece() {
    let mut engine = engine("at byte 25 to-agent: cut");
    let id = open(&mut engine, ms(0));
    assert!(passes(&engine.piece(id, UP, None, SIZE, ms(0))));
    assert!(
        passes(&engine.piece(id, UP, None, SIZE, ms(0))),
        "the other way does not count"
    );
    assert!(passes(&engine.piece(id, DOWN, None, SIZE, ms(0))));
    let steps = engine.piece(id, DOWN, None, SIZE, ms(0));
    assert!(
        matches!(
            steps[..],
            [
                Step::Pass {
                    from: 0,
                    to: 5,
                    offset: 20,
                    ..
                },
                Step::End(End::Cut)
            ]
        ),
        "{steps:?}"
    );
}

#[test]
fn a_rule_that_lost_to_an_earlier_end_has_its_turn_later() {
    let mut engine = engine("at byte 15 to-agent: reset\nat byte 5 to-agent: cut");
    let id = open(&mut engine, ms(0));
    let steps = engine.piece(id, DOWN, None, SIZE, ms(0));
    assert!(
        matches!(steps[..], [Step::Pass { to: 5, .. }, Step::End(End::Cut)]),
        "{steps:?}"
    );
    engine.close(id);
    let id = open(&mut engine, ms(0));
    let steps = engine.piece(id, DOWN, None, SIZE, ms(0));
    assert!(
        matches!(
            steps[..],
            [Step::Pass { to: 15, .. }, Step::End(End::Reset)]
        ),
        "{steps:?}"
    );
}

#[test]
fn a_periodic_cut_ends_all_that_stand_and_a_late_tick_fires_once() {
    let mut engine = engine("every 1s: cut");
    assert_eq!(engine.next_tick(), Some(ms(1000)));
    let (a, b) = (open(&mut engine, ms(0)), open(&mut engine, ms(0)));
    engine.tick(ms(999));
    assert_eq!(engine.ending(a), None);
    engine.tick(ms(5500));
    assert_eq!(
        (engine.ending(a), engine.ending(b)),
        (Some(End::Cut), Some(End::Cut))
    );
    assert_eq!(
        (
            engine.tally().rules[0].fired,
            engine.tally().effects(FaultKind::Cut)
        ),
        (1, 2)
    );
    assert_eq!(engine.next_tick(), Some(ms(6500)));
}

#[test]
fn a_cut_that_finds_nobody_is_without_effect() {
    let mut engine = engine("every 1s: cut");
    engine.tick(ms(1000));
    assert_eq!(
        (
            engine.tally().rules[0].fired,
            engine.tally().rules[0].effects
        ),
        (1, 0)
    );
    assert_eq!(engine.tally().idle().count(), 1);
    assert!(
        engine
            .tally()
            .render()
            .contains("fired 1 times WITHOUT EFFECT")
    );
}

#[test]
fn a_black_hole_keeps_one_way_back_for_its_time() {
    let mut engine = engine("after 5s for 4s: blackhole to-agent");
    let id = open(&mut engine, ms(0));
    assert_eq!(engine.held(id, DOWN, 0, ms(4999)), None);
    engine.tick(ms(5000));
    assert_eq!(
        engine.held(id, DOWN, 0, ms(5000)),
        Some(Held::Until(ms(9000)))
    );
    assert_eq!(engine.held(id, UP, 0, ms(5000)), None);
    engine.piece(id, DOWN, None, SIZE, ms(6000));
    assert_eq!(engine.tally().effects(FaultKind::BlackHole), 1);
    engine.tick(ms(9000));
    assert_eq!(
        (engine.held(id, DOWN, 0, ms(9000)), engine.next_tick()),
        (None, None)
    );
}

#[test]
fn a_black_hole_behind_a_frame_lets_the_frame_itself_through() {
    let mut engine = engine("after frame 1: blackhole to-agent");
    let (id, other) = (open(&mut engine, ms(0)), open(&mut engine, ms(0)));
    frame(&mut engine, id, DOWN, Kind::Welcome, 0);
    assert_eq!(
        engine.held(id, DOWN, 0, ms(1)),
        None,
        "the frame was passed before"
    );
    assert_eq!(
        engine.held(id, DOWN, SIZE as u64, ms(1)),
        Some(Held::ForGood)
    );
    assert_eq!(
        engine.held(other, DOWN, SIZE as u64, ms(1)),
        None,
        "another connection is not met"
    );
}

#[test]
fn shapes_add_up_and_end_with_their_span() {
    let mut engine = engine(
        "always: delay 20ms, slice 7, rate 1KiB/s to-agent\nafter 1s for 1s: delay 5ms, slice 3",
    );
    let id = open(&mut engine, ms(0));
    let shape = |engine: &mut Engine, way, now| match engine.piece(id, way, None, SIZE, now)[..] {
        [Step::Pass { shape, .. }] => shape,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(
        shape(&mut engine, UP, ms(0)),
        Shape {
            late: ms(20),
            rate: None,
            slice: Some(7)
        }
    );
    engine.tick(ms(1000));
    assert_eq!(
        shape(&mut engine, DOWN, ms(1500)),
        Shape {
            late: ms(25),
            rate: Some(1024),
            slice: Some(3)
        }
    );
    assert_eq!(
        shape(&mut engine, DOWN, ms(2000)),
        Shape {
            late: ms(20),
            rate: Some(1024),
            slice: Some(7)
        }
    );
}

#[test]
fn jitter_stays_within_its_bounds() {
    let mut engine = engine("always: delay 10ms jitter 10ms");
    let id = open(&mut engine, ms(0));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let [Step::Pass { shape, .. }] = engine.piece(id, UP, None, SIZE, ms(0))[..] else {
            panic!("passed")
        };
        assert!(shape.late <= ms(20));
        seen.insert(shape.late);
    }
    assert!(seen.len() > 50, "only {} different delays", seen.len());
}

#[test]
fn draws_depend_on_the_seed_and_not_on_how_the_ways_interleave() {
    let script = "with 10% per frame: cut";
    let cut = |seed: u64, order: &[Direction]| {
        let mut engine = Engine::new(parse(script).expect("a script"), seed);
        let id = open(&mut engine, ms(0));
        let mut cut = [Vec::new(), Vec::new()];
        let mut count = [0; 2];
        for way in order {
            count[way.index()] += 1;
            let data = FrameFacts {
                kind: Kind::Data,
                stream: 1,
            };
            if engine
                .piece(id, *way, Some(data), SIZE, ms(0))
                .contains(&Step::End(End::Cut))
            {
                cut[way.index()].push(count[way.index()]);
            }
        }
        cut
    };
    let turns: Vec<Direction> = [UP, DOWN].repeat(200);
    let blocks: Vec<Direction> = [[UP; 200], [DOWN; 200]].concat();
    assert_eq!(cut(3, &turns), cut(3, &blocks));
    assert_ne!(cut(3, &turns), cut(4, &turns));
    let share = cut(3, &turns).concat().len();
    assert!((15..=70).contains(&share), "{share} of 400 with 10%");
}

#[test]
fn a_refusal_is_felt_only_by_who_comes() {
    let mut engine = engine("after 1s for 2s: refuse\nat connection 3: refuse");
    open(&mut engine, ms(0));
    engine.tick(ms(1000));
    assert_eq!(engine.tally().idle().count(), 2);
    assert_eq!(engine.open(ms(1500)), Admission::Refuse);
    assert_eq!(engine.open(ms(3500)), Admission::Refuse, "the third");
    open(&mut engine, ms(3600));
    assert_eq!(engine.tally().refused, 2);
    assert_eq!(engine.tally().idle().count(), 0);
}

#[test]
fn a_port_that_is_down_comes_back() {
    let mut engine = engine("at connection 1: down for 2s");
    open(&mut engine, ms(500));
    assert!(!engine.listens());
    assert_eq!(engine.next_tick(), Some(ms(2500)));
    engine.tick(ms(2500));
    assert!(engine.listens());
}

#[test]
fn a_half_close_ends_one_way_in_order() {
    let mut engine = engine("on FINAL to-gateway: half-close to-gateway");
    let id = open(&mut engine, ms(0));
    assert!(passes(&frame(&mut engine, id, UP, Kind::Data, 1)));
    assert_eq!(
        frame(&mut engine, id, UP, Kind::Final, 1),
        [Step::HalfClose]
    );
    assert!(passes(&frame(&mut engine, id, DOWN, Kind::Data, 1)));
    assert_eq!(engine.ending(id), None);
}

#[test]
fn a_span_that_is_begun_again_is_prolonged_and_not_doubled() {
    let mut engine = engine("on each DATA: delay 1s for 5s");
    let id = open(&mut engine, ms(0));
    let data = Some(FrameFacts {
        kind: Kind::Data,
        stream: 1,
    });
    for n in 0..10 {
        let steps = engine.piece(id, DOWN, data, SIZE, ms(n));
        assert!(
            matches!(steps[..], [Step::Pass { shape: Shape { late, .. }, .. }] if late == ms(1000)),
            "{steps:?}"
        );
    }
    assert_eq!(engine.next_tick(), Some(ms(5009)));
}

#[test]
fn another_script_begins_its_own_time() {
    let mut engine = engine("always: delay 1s");
    let id = open(&mut engine, ms(0));
    engine.load(parse("after 1s: cut").expect("a script"), ms(500));
    assert!(passes(&engine.piece(id, UP, None, SIZE, ms(600))));
    assert_eq!(engine.next_tick(), Some(ms(1500)));
}
