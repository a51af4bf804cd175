//! The line alone: order, shares, who waits and who stands aside.
#![allow(clippy::unwrap_used)]

use super::*;

const WAIT: Duration = Duration::from_secs(30);

fn at(millis: u64) -> Moment {
    Moment::from_micros(millis * 1000)
}

const ME: Client = Client::Address(1);
const YOU: Client = Client::Address(2);
const MINE: Turn = Turn {
    number: u64::MAX,
    client: ME,
};

/// A line with so many places, all of which one client may have.
fn line(limit: usize) -> Line {
    shared(limit, limit)
}

fn shared(all: usize, each: usize) -> Line {
    let mut line = Line::default();
    assert!(line.resize(Bounds { all, each }).is_empty());
    line
}

fn join(line: &mut Line, now: Moment, length: usize) -> (Turn, Joined) {
    line.join(now, ME, Bounds::whole(length), WAIT)
}

fn come(line: &mut Line, client: Client) -> (Turn, Joined) {
    let waiting = Bounds { all: 9, each: 4 };
    line.join(at(0), client, waiting, WAIT)
}

fn poll(line: &mut Line, turn: Turn) -> Poll<()> {
    line.poll(turn, &mut Context::from_waker(Waker::noop()))
}

#[test]
fn places_are_given_in_the_order_of_arrival() {
    let mut line = line(1);
    assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
    let (first, joined) = join(&mut line, at(0), 9);
    let (second, _) = join(&mut line, at(0), 9);
    assert_eq!(
        (joined, line.waiting(), line.taken()),
        (Joined::Waits, 2, 1)
    );
    assert!(poll(&mut line, second).is_pending());
    drop(line.release(MINE));
    assert!(poll(&mut line, second).is_pending());
    assert!(poll(&mut line, first).is_ready());
    assert_eq!((line.waiting(), line.taken()), (1, 1));
}

#[test]
fn nobody_slips_in_between_a_place_that_was_given_and_its_taker() {
    let mut line = line(1);
    assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
    let (waits, _) = join(&mut line, at(0), 9);
    drop(line.release(MINE));
    assert_eq!(join(&mut line, at(0), 9).1, Joined::Waits);
    assert!(poll(&mut line, waits).is_ready());
}

#[test]
fn who_leaves_the_line_frees_its_place_in_it() {
    let mut line = line(1);
    assert_eq!(join(&mut line, at(0), 1).1, Joined::In);
    let (waits, _) = join(&mut line, at(0), 1);
    assert!(matches!(join(&mut line, at(0), 1).1, Joined::Full(_)));
    drop(line.leave(waits));
    assert_eq!(join(&mut line, at(0), 1).1, Joined::Waits);
}

#[test]
fn who_leaves_with_a_place_given_passes_it_on() {
    let mut line = line(1);
    assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
    let (first, _) = join(&mut line, at(0), 9);
    let (second, _) = join(&mut line, at(0), 9);
    drop(line.release(MINE));
    drop(line.leave(first));
    assert!(poll(&mut line, second).is_ready());
    drop(line.release(MINE));
    assert_eq!((line.taken(), line.waiting()), (0, 0));
}

#[test]
fn who_comes_back_stands_where_it_stood() {
    let mut line = line(1);
    let (early, _) = join(&mut line, at(0), 9);
    drop(line.hold(early, Bounds::whole(9)).unwrap());
    assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
    let (late, _) = join(&mut line, at(0), 9);
    assert_eq!(line.rejoin(early), Joined::Waits);
    drop(line.release(MINE));
    assert!(poll(&mut line, late).is_pending());
    assert!(poll(&mut line, early).is_ready());
}

#[test]
fn who_is_held_counts_among_those_who_wait_and_never_twice() {
    let mut line = line(2);
    let room = Bounds { all: 3, each: 2 };
    let [a, b] = [ME; 2].map(|client| line.join(at(0), client, room, WAIT).0);
    drop(line.hold(a, room).unwrap());
    assert_eq!((line.taken(), line.held(), line.waiting()), (1, 1, 0));
    drop(line.hold(b, room).unwrap());
    // All that one client may have; it keeps the place for which it asked.
    let (c, joined) = line.join(at(0), ME, room, WAIT);
    assert_eq!(joined, Joined::In);
    assert_eq!(line.hold(c, room).unwrap_err(), Reached::Share);
    assert_eq!((line.taken(), line.held()), (1, 2));
    let (d, joined) = line.join(at(0), YOU, room, WAIT);
    assert_eq!(joined, Joined::In);
    // Nothing is in flight for more, and one more may wait.
    assert!(matches!(
        line.join(at(0), ME, room, WAIT).1,
        Joined::ShareFull(_)
    ));
    let (e, joined) = line.join(at(0), YOU, room, WAIT);
    assert_eq!(joined, Joined::Waits);
    assert!(matches!(
        line.join(at(0), YOU, room, WAIT).1,
        Joined::Full(_)
    ));
    assert_eq!(line.hold(d, room).unwrap_err(), Reached::All);
    // Who comes back waits where it stood, and counts once.
    assert_eq!(line.rejoin(a), Joined::Waits);
    assert_eq!((line.held(), line.waiting()), (2, 2));
    assert!(matches!(
        line.join(at(0), YOU, room, WAIT).1,
        Joined::Full(_)
    ));
    drop(line.release(d));
    assert!(poll(&mut line, e).is_pending() && poll(&mut line, a).is_ready());
    assert_eq!((line.held(), line.waiting()), (2, 1));
    line.end_hold(a);
    line.end_hold(b);
    drop(line.leave(e));
    drop(line.release(a));
    drop(line.release(c));
    assert!(line.clients.is_empty() && (line.held(), line.waiting()) == (0, 0));
}

#[test]
fn who_tries_again_keeps_its_place_among_those_who_wait() {
    let mut line = line(2);
    let one = Bounds::whole(1);
    let (early, _) = line.join(at(0), ME, one, WAIT);
    drop(line.hold(early, one).unwrap());
    assert_eq!(line.rejoin(early), Joined::In);
    let (late, joined) = line.join(at(0), YOU, one, WAIT);
    assert_eq!(joined, Joined::In);
    // It tries; the one who may wait is still it, and it may go on waiting.
    assert_eq!(line.hold(late, one).unwrap_err(), Reached::All);
    drop(line.hold(early, one).unwrap());
    assert_eq!((line.held(), line.taken()), (1, 1));
    line.end_hold(early);
    drop(line.hold(late, one).unwrap());
    assert_eq!((line.held(), line.taken()), (1, 0));
}

#[test]
fn a_client_gets_its_share_and_whoever_stands_behind_it_passes() {
    let mut line = shared(4, 2);
    let mine = [come(&mut line, ME), come(&mut line, ME)];
    assert_eq!(mine.map(|(_, joined)| joined), [Joined::In; 2]);
    let (greedy, joined) = come(&mut line, ME);
    assert_eq!(joined, Joined::Waits);
    assert!(line.waits_for_itself(greedy));
    assert_eq!((line.at_their_share(), line.taken()), (1, 2));
    assert_eq!(come(&mut line, YOU).1, Joined::In);
    let (yours, _) = come(&mut line, YOU);
    assert_eq!((line.at_their_share(), line.taken()), (2, 4));
    assert!(!line.waits_for_itself(greedy), "nothing is free");
    // A place of another's is not for it, one of its own is.
    drop(line.release(yours));
    assert!(poll(&mut line, greedy).is_pending());
    drop(line.release(mine[0].0));
    assert!(poll(&mut line, greedy).is_ready());
}

#[test]
fn those_who_may_have_a_place_are_served_in_the_order_of_arrival() {
    let mut line = shared(2, 1);
    let (mine, _) = come(&mut line, ME);
    let (yours, _) = come(&mut line, YOU);
    let turns = [ME, ME, YOU, ME, YOU].map(|client| come(&mut line, client).0);
    drop(line.release(yours));
    let ready = turns.map(|turn| poll(&mut line, turn).is_ready());
    assert_eq!(ready, [false, false, true, false, false]);
    drop(line.release(mine));
    let ready = turns.map(|turn| poll(&mut line, turn).is_ready());
    assert_eq!(ready, [true, false, false, false, false]);
}

#[test]
fn a_client_may_fill_its_part_of_the_line_and_no_more() {
    let mut line = shared(1, 1);
    assert_eq!(come(&mut line, ME).1, Joined::In);
    let joined = [ME; 4].map(|client| come(&mut line, client).1);
    assert_eq!(joined, [Joined::Waits; 4]);
    assert!(matches!(come(&mut line, ME).1, Joined::ShareFull(_)));
    assert_eq!(come(&mut line, YOU).1, Joined::Waits);
}

#[test]
fn a_larger_share_lets_more_in_at_once() {
    let mut line = shared(4, 1);
    let (mine, _) = come(&mut line, ME);
    let (waits, _) = come(&mut line, ME);
    assert!(poll(&mut line, waits).is_pending());
    drop(line.resize(Bounds::whole(4)));
    assert!(poll(&mut line, waits).is_ready());
    drop(line.resize(Bounds { all: 4, each: 1 }));
    assert_eq!(come(&mut line, ME).1, Joined::Waits);
    drop(line.release(mine));
    assert_eq!(line.taken(), 1, "it still has as many as it may");
}

/// Random arrivals, ends, holds and departures: nobody who may have a place is left waiting beside a
/// free one, and no count is off.
#[test]
fn no_place_stays_free_beside_somebody_who_may_have_it() {
    let mut dice = 88_172_645_463_325_252u64;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        usize::try_from(dice % sides as u64).unwrap_or(0)
    };
    let mut line = shared(5, 2);
    let room = Bounds { all: 9, each: 4 };
    let (mut inside, mut outside): (Vec<Turn>, Vec<Turn>) = (Vec::new(), Vec::new());
    let (mut aside, mut held): (Vec<Turn>, BTreeSet<u64>) = (Vec::new(), BTreeSet::new());
    let end = |line: &mut Line, held: &mut BTreeSet<u64>, turn: Turn| {
        held.remove(&turn.number);
        line.end_hold(turn);
    };
    for _ in 0..20_000 {
        match roll(8) {
            0 | 1 => match come(&mut line, Client::Address(roll(4) as u64)) {
                (turn, Joined::In) => inside.push(turn),
                (turn, Joined::Waits) => outside.push(turn),
                (_, Joined::Full(_) | Joined::ShareFull(_)) => {}
            },
            2 if !inside.is_empty() => {
                let turn = inside.swap_remove(roll(inside.len()));
                drop(line.release(turn));
                end(&mut line, &mut held, turn);
            }
            3 if !outside.is_empty() => {
                let turn = outside.swap_remove(roll(outside.len()));
                drop(line.leave(turn));
                end(&mut line, &mut held, turn);
            }
            4 if !inside.is_empty() => {
                let turn = inside[roll(inside.len())];
                if line.hold(turn, room).is_ok() {
                    inside.retain(|known| *known != turn);
                    aside.push(turn);
                    held.insert(turn.number);
                }
            }
            5 if !aside.is_empty() => {
                let turn = aside.swap_remove(roll(aside.len()));
                match line.rejoin(turn) {
                    Joined::In => inside.push(turn),
                    _ => outside.push(turn),
                }
            }
            6 if !aside.is_empty() => {
                let turn = aside.swap_remove(roll(aside.len()));
                end(&mut line, &mut held, turn);
            }
            7 if !inside.is_empty() => {
                let turn = inside[roll(inside.len())];
                end(&mut line, &mut held, turn);
            }
            _ => {}
        }
        outside.retain(|turn| {
            let ready = poll(&mut line, *turn).is_ready();
            inside.extend(ready.then_some(*turn));
            !ready
        });
        assert_eq!(
            (line.taken(), line.waiting(), line.held()),
            (inside.len(), outside.len(), held.len())
        );
        let newcomers = outside.iter().filter(|turn| !held.contains(&turn.number));
        assert!(inside.len() <= 5 && newcomers.count() + held.len() <= 9);
        let has = |client| inside.iter().filter(|turn| turn.client == client).count();
        assert!(inside.iter().all(|turn| has(turn.client) <= 2));
        let could_be_in = |turn: &Turn| inside.len() < 5 && has(turn.client) < 2;
        assert!(!outside.iter().any(could_be_in), "a place is free");
    }
    inside.iter().for_each(|turn| drop(line.release(*turn)));
    outside.iter().for_each(|turn| drop(line.leave(*turn)));
    let all = [inside, outside, aside].concat();
    all.into_iter().for_each(|turn| line.end_hold(turn));
    assert!(line.clients.is_empty() && line.next_in.is_empty());
}

#[test]
fn a_larger_limit_lets_more_in_at_once() {
    let mut line = line(1);
    assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
    let (waits, _) = join(&mut line, at(0), 9);
    assert!(poll(&mut line, waits).is_pending());
    assert_eq!(line.resize(Bounds::whole(2)).len(), 1);
    assert!(poll(&mut line, waits).is_ready());
}

#[test]
fn the_pause_follows_how_fast_places_become_free() {
    let mut line = line(1);
    let full = |line: &mut Line, now| match join(line, now, 0).1 {
        Joined::Full(pause) => Some(pause),
        Joined::In | Joined::Waits | Joined::ShareFull(_) => None,
    };
    assert_eq!(full(&mut line, at(0)), None);
    assert_eq!(full(&mut line, at(10)), Some(LEAST), "nothing is known yet");
    assert_eq!(full(&mut line, at(2000)), Some(WAIT), "the app is stuck");
    // One in four seconds.
    drop(line.release(MINE));
    assert_eq!(full(&mut line, at(4000)), None);
    assert_eq!(full(&mut line, at(4000)), Some(Duration::from_secs(4)));
    // Much faster than the least that is told.
    for _ in 0..1000 {
        drop(line.release(MINE));
        assert_eq!(full(&mut line, at(4001)), None);
    }
    assert_eq!(full(&mut line, at(4001)), Some(LEAST));
}

#[test]
fn the_pause_counts_those_who_are_ahead() {
    let mut line = line(1);
    assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
    for _ in 0..9 {
        assert_eq!(join(&mut line, at(0), 9).1, Joined::Waits);
    }
    drop(line.release(MINE));
    assert_eq!(join(&mut line, at(1000), 9).1, Joined::Waits);
    let full = Joined::Full(Duration::from_secs(10));
    assert_eq!(join(&mut line, at(1000), 9).1, full);
}
