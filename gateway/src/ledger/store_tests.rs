//! The store: who finds what, what is told of it, and what goes when.

use bridgehead_protocol::verdict::{Advice, Code, Delivery, Evidence, Operation, Reason, Stage};
use bridgehead_protocol::wire::{FinalCause, StreamId};

use super::super::early::{EARLY, EARLY_REPORTS};
use super::super::id::OutcomeKey;
use super::super::known::{Known, Reply};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LOST: Closing = Closing::Failed {
    code: Code::BhAppStarting,
    reason: Reason::TunnelLost,
};

/// A store with a clock and names for its entries.
struct Scene {
    store: Store,
    now: Moment,
    made: u128,
}

impl Scene {
    fn new() -> Self {
        Self::with_limit(ENTRIES)
    }

    fn with_limit(limit: usize) -> Self {
        Self {
            store: Store::with_limit(limit),
            now: Moment::ZERO + SECOND,
            made: 0,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn open(&mut self, app: &str, key: Option<KeyDigest>) -> Serial {
        self.made += 1;
        let opening = Opening {
            id: OutcomeId::new(self.made),
            request: Uuid::from_u128(self.made),
            app: app.into(),
            key,
        };
        let serial = self.store.open(self.now, opening);
        self.store.check();
        serial
    }

    fn tried(&mut self, serial: Serial, record: TryRecord) -> TryRef {
        let which = self.store.tried(self.now, serial, record);
        self.store.check();
        which
    }

    fn close(&mut self, serial: Serial, closing: Closing) -> Option<OutcomeId> {
        let id = self.store.close(self.now, serial, closing);
        self.store.check();
        id
    }

    /// An exchange of one uncertain try that was told so.
    fn uncertain(&mut self, app: &str, stream: u32) -> (TryRef, OutcomeId) {
        let serial = self.open(app, None);
        let which = self.tried(serial, uncertain(stream));
        (which, self.close(serial, LOST).unwrap())
    }

    fn learn(&mut self, which: TryRef, fact: Fact) {
        self.store.learn(self.now, which, fact);
        self.store.check();
    }

    fn unwatch(&mut self, which: TryRef) {
        self.store.unwatch(self.now, which);
        self.store.check();
    }

    fn report(&mut self, owner: &Identity, entry: ReportEntry) {
        self.store.report(self.now, owner, &[entry]);
        self.store.check();
    }

    fn state(&mut self, id: OutcomeId) -> Option<State> {
        self.store.by_id(self.now, id).map(|told| told.state)
    }

    fn of_key(&mut self, key: KeyDigest) -> Option<State> {
        self.store.by_key(self.now, key).map(|told| told.state)
    }
}

fn owner(agent: &str) -> Identity {
    Identity {
        subject: "acme".into(),
        agent: agent.into(),
    }
}

fn tunnel() -> Arc<str> {
    format!("{:032x}", 5).into()
}

fn record(known: Known, stream: u32) -> TryRecord {
    TryRecord {
        known,
        tunnel: tunnel(),
        stream: Some(stream),
        owner: owner("a"),
    }
}

fn uncertain(stream: u32) -> TryRecord {
    let evidence = Evidence {
        start: 10,
        emitted: 60,
        head_len: 50,
        request_len: Some(50),
        terminal: Terminal::LostUnknown,
        answer_bytes: 0,
    };
    let known = Known {
        read_before: Some(0),
        ..Known::of(evidence, None)
    };
    record(known, stream)
}

fn reported(stream: u32, written: u64, read: u64) -> ReportEntry {
    ReportEntry {
        tunnel: 5,
        stream: StreamId(stream),
        written,
        read,
        cause: FinalCause::Reset,
    }
}

fn key(n: u32) -> KeyDigest {
    let text = format!("Zm9vYmFyYmF6cXV4MTIz{n:03}");
    OutcomeKey::parse(&text)
        .unwrap()
        .digest(&[0; 32], "demo.example.com")
}

fn answer(status: u16) -> Fact {
    Fact::Answer(Reply {
        status: Some(status),
        complete: false,
    })
}

#[test]
fn an_uncertain_exchange_is_pending_while_it_is_watched_and_unknown_afterwards() {
    let mut scene = Scene::new();
    let (which, id) = scene.uncertain("demo", 1);
    assert_eq!(scene.state(id), Some(State::Pending));
    scene.unwatch(which);
    assert_eq!(scene.state(id), Some(State::Unknown));
    let told = scene.store.by_id(scene.now, id).unwrap();
    assert_eq!(told.failed, Some((Code::BhAppStarting, Reason::TunnelLost)));
    assert_eq!(told.advice(Operation::Write), Advice::VerifyFirst);
    assert_eq!(
        (told.delivery, told.stage),
        (Delivery::Unknown, Stage::None)
    );
}

#[test]
fn a_late_answer_is_told_with_its_status_and_moment() {
    let mut scene = Scene::new();
    let (which, id) = scene.uncertain("demo", 1);
    scene.pass(SECOND * 3);
    scene.learn(which, answer(201));
    let told = scene.store.by_id(scene.now, id).unwrap();
    assert_eq!((told.state, told.status), (State::Answered, Some(201)));
    assert_eq!(
        (told.source, told.at),
        (Source::LateAnswer, Some(scene.now))
    );
    assert_eq!(
        (told.delivery, told.complete),
        (Delivery::Delivered, Some(false))
    );
    assert_eq!(told.advice(Operation::Write), Advice::VerifyFirst);
    let at = scene.now;
    scene.pass(SECOND);
    scene.unwatch(which);
    assert_eq!(scene.store.by_id(scene.now, id).unwrap().at, Some(at));
    let resolved = Resolved {
        state: State::Answered,
        after: Some(SECOND * 3),
    };
    assert_eq!(scene.store.take_resolved(), [resolved]);
}

#[test]
fn a_report_of_the_same_identity_proves_and_a_foreign_one_changes_nothing() {
    let mut scene = Scene::new();
    let (which, id) = scene.uncertain("demo", 7);
    scene.unwatch(which);
    for foreign in [
        owner("b"),
        Identity {
            subject: "other".into(),
            agent: "a".into(),
        },
    ] {
        scene.report(&foreign, reported(7, 10, 0));
        assert_eq!(scene.state(id), Some(State::Unknown));
    }
    scene.report(&owner("a"), reported(8, 10, 0));
    scene.report(
        &owner("a"),
        ReportEntry {
            tunnel: 6,
            ..reported(7, 10, 0)
        },
    );
    scene.report(&owner("a"), reported(7, 9999, 0));
    assert_eq!(scene.state(id), Some(State::Unknown));
    scene.report(&owner("a"), reported(7, 10, 0));
    let told = scene.store.by_id(scene.now, id).unwrap();
    assert_eq!(
        (told.state, told.source),
        (State::NotDelivered, Source::AgentReport)
    );
    assert_eq!(told.advice(Operation::Write), Advice::Safe);
    scene.report(&owner("a"), reported(7, 60, 500));
    scene.learn(which, answer(200));
    assert_eq!(scene.state(id), Some(State::NotDelivered));
}

#[test]
fn a_report_of_bytes_read_says_answered_without_a_status() {
    let mut scene = Scene::new();
    let (_, id) = scene.uncertain("demo", 7);
    scene.report(&owner("a"), reported(7, 60, 500));
    let told = scene.store.by_id(scene.now, id).unwrap();
    assert_eq!((told.state, told.status), (State::Answered, None));
    assert_eq!(
        (told.delivery, told.complete),
        (Delivery::Unknown, Some(false))
    );
}

#[test]
fn a_report_that_comes_before_the_exchange_has_ended_waits_for_it() {
    let mut scene = Scene::new();
    scene.report(&owner("b"), reported(7, 60, 0));
    scene.report(&owner("a"), reported(7, 10, 0));
    let (_, id) = scene.uncertain("demo", 7);
    assert_eq!(scene.state(id), Some(State::NotDelivered));
    scene.report(&owner("a"), reported(9, 10, 0));
    scene.pass(EARLY);
    let (which, id) = scene.uncertain("demo", 9);
    scene.unwatch(which);
    assert_eq!(scene.state(id), Some(State::Unknown));
}

#[test]
fn early_reports_of_one_token_push_out_none_of_another() {
    let mut scene = Scene::new();
    scene.report(&owner("a"), reported(7, 10, 0));
    let noisy = Identity {
        subject: "noisy".into(),
        agent: "a".into(),
    };
    let flood: Vec<_> = (0..40_000).map(|stream| reported(stream, 10, 0)).collect();
    scene.store.report(scene.now, &noisy, &flood);
    assert_eq!(scene.store.early.len("noisy"), EARLY_REPORTS);
    let (_, id) = scene.uncertain("demo", 7);
    assert_eq!(scene.state(id), Some(State::NotDelivered));
}

#[test]
fn one_unproven_try_keeps_the_exchange_unproven() {
    let mut scene = Scene::new();
    let serial = scene.open("demo", None);
    let first = scene.tried(serial, uncertain(1));
    let second = scene.tried(serial, uncertain(3));
    let id = scene.close(serial, LOST).unwrap();
    scene.report(&owner("a"), reported(3, 10, 0));
    assert_eq!(scene.state(id), Some(State::Pending));
    scene.unwatch(first);
    scene.unwatch(second);
    assert_eq!(scene.state(id), Some(State::Unknown));
    scene.report(&owner("a"), reported(1, 10, 0));
    assert_eq!(scene.state(id), Some(State::NotDelivered));
}

#[test]
fn a_keyed_exchange_is_pending_from_its_start_and_answered_at_its_end() {
    let mut scene = Scene::new();
    let serial = scene.open("demo", Some(key(1)));
    assert_eq!(scene.of_key(key(1)), Some(State::Pending));
    assert_eq!(scene.of_key(key(2)), None);
    let answered = Closing::Answered { status: Some(204) };
    // The caller has its answer; only the key leads here.
    assert_eq!(scene.close(serial, answered), None);
    let told = scene.store.by_key(scene.now, key(1)).unwrap();
    assert_eq!((told.state, told.status), (State::Answered, Some(204)));
    assert_eq!((told.failed, told.complete), (None, Some(true)));
    assert!(scene.store.take_resolved().is_empty());
}

#[test]
fn a_keyed_exchange_that_was_refused_says_so() {
    let mut scene = Scene::new();
    let serial = scene.open("demo", Some(key(1)));
    let refused = Closing::Failed {
        code: Code::BodyTooLarge,
        reason: Reason::BodyLimit,
    };
    assert_eq!(scene.close(serial, refused), None);
    let told = scene.store.by_key(scene.now, key(1)).unwrap();
    assert_eq!(
        (told.state, told.delivery),
        (State::NotDelivered, Delivery::NotDelivered)
    );
    assert_eq!(told.advice(Operation::Write), Advice::NeverAutomatic);
    let serial = scene.open("demo", Some(key(2)));
    scene.close(serial, Closing::Left);
    let told = scene.store.by_key(scene.now, key(2)).unwrap();
    assert_eq!(
        (told.state, told.advice(Operation::Write)),
        (State::NotDelivered, Advice::Safe)
    );
}

#[test]
fn a_key_used_again_is_told_by_what_is_true_of_all_its_exchanges() {
    let mut scene = Scene::new();
    let first = scene.open("demo", Some(key(1)));
    let which = scene.tried(first, uncertain(1));
    scene.close(first, Closing::Left);
    scene.unwatch(which);
    let second = scene.open("demo", Some(key(1)));
    assert_eq!(scene.of_key(key(1)), Some(State::Pending));
    scene.close(second, Closing::Left);
    assert_eq!(scene.of_key(key(1)), Some(State::Unknown));
    let third = scene.open("demo", Some(key(1)));
    scene.close(third, Closing::Answered { status: Some(200) });
    assert_eq!(scene.of_key(key(1)), Some(State::Answered));
}

#[test]
fn what_a_key_has_forgotten_keeps_it_from_saying_not_delivered() {
    let mut scene = Scene::new();
    let first = scene.open("demo", Some(key(1)));
    let which = scene.tried(first, uncertain(1));
    scene.close(first, LOST);
    scene.unwatch(which);
    scene.pass(REMEMBERED / 2);
    let second = scene.open("demo", Some(key(1)));
    scene.close(second, Closing::Left);
    scene.pass(REMEMBERED / 2);
    assert_eq!(scene.of_key(key(1)), Some(State::Unknown));
    let told = scene.store.by_key(scene.now, key(1)).unwrap();
    assert_eq!(told.advice(Operation::Write), Advice::VerifyFirst);
    scene.pass(REMEMBERED / 2);
    assert_eq!(scene.of_key(key(1)), None);
}

/// What is said of a key whose exchange, the only one, was refused just now.
fn repeated_and_refused(scene: &mut Scene, key: KeyDigest) -> Option<State> {
    let serial = scene.open("demo", Some(key));
    scene.close(serial, Closing::Left);
    scene.of_key(key)
}

#[test]
fn a_refused_repeat_does_not_speak_for_a_first_try_that_was_pushed_out() {
    let mut scene = Scene::with_limit(2);
    let first = scene.open("demo", Some(key(1)));
    let which = scene.tried(first, uncertain(1));
    scene.close(first, LOST);
    scene.unwatch(which);
    for stream in 2..4 {
        scene.uncertain("demo", stream);
    }
    assert_eq!(scene.of_key(key(1)), None, "pushed out");
    let told = repeated_and_refused(&mut scene, key(1));
    assert_eq!(told, Some(State::Unknown));
    scene.pass(REMEMBERED);
    assert_eq!(scene.of_key(key(1)), None);
    // The repeat is forgotten as well, an hour after the first, and so is the page an hour later.
    scene.pass(REMEMBERED);
    let told = repeated_and_refused(&mut scene, key(1));
    assert_eq!(told, Some(State::NotDelivered));
}

#[test]
fn where_not_all_forgotten_keys_are_remembered_no_key_is_called_undelivered_for_a_while() {
    let mut scene = Scene::with_limit(2);
    for n in 0..6 {
        let serial = scene.open("demo", Some(key(n)));
        scene.tried(serial, uncertain(n + 1));
        scene.close(serial, LOST);
    }
    for n in [0, 9] {
        let told = repeated_and_refused(&mut scene, key(n));
        assert_eq!(told, Some(State::Unknown), "{n}");
    }
    for _ in 0..2 {
        scene.pass(REMEMBERED);
        assert_eq!(scene.of_key(key(9)), None);
    }
    let told = repeated_and_refused(&mut scene, key(8));
    assert_eq!(told, Some(State::NotDelivered));
}

#[test]
fn a_key_used_without_end_stays_small_and_honest() {
    let mut scene = Scene::new();
    let first = scene.open("demo", Some(key(1)));
    scene.tried(first, uncertain(1));
    scene.close(first, LOST);
    for _ in 0..50 {
        let serial = scene.open("demo", Some(key(1)));
        scene.close(serial, Closing::Left);
    }
    let page = scene.store.keys.page(&key(1)).unwrap();
    assert_eq!(page.serials().len(), 8);
    assert_eq!(scene.of_key(key(1)), Some(State::Unknown));
}

#[test]
fn an_entry_is_forgotten_after_an_hour_and_counted_if_it_stayed_unknown() {
    let mut scene = Scene::new();
    let (which, id) = scene.uncertain("demo", 1);
    scene.unwatch(which);
    scene.pass(REMEMBERED - SECOND);
    assert_eq!(scene.state(id), Some(State::Unknown));
    scene.pass(SECOND);
    assert_eq!(scene.state(id), None);
    scene.store.check();
    let resolved = Resolved {
        state: State::Unknown,
        after: None,
    };
    assert_eq!(scene.store.take_resolved(), [resolved]);
    assert_eq!(scene.store.counts(scene.now), Counts::default());
}

#[test]
fn an_exchange_that_runs_is_not_forgotten_by_age() {
    let mut scene = Scene::new();
    scene.open("demo", Some(key(1)));
    scene.pass(REMEMBERED * 5);
    assert_eq!(scene.of_key(key(1)), Some(State::Pending));
}

#[test]
fn a_full_shelf_forgets_the_oldest_of_the_app_that_has_most() {
    let mut scene = Scene::with_limit(10);
    let (_, neighbour) = scene.uncertain("small", 1000);
    let ids: Vec<_> = (0..30).map(|n| scene.uncertain("big", n).1).collect();
    assert_eq!(scene.state(neighbour), Some(State::Pending));
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(scene.state(*id).is_some(), n >= 21, "{n}");
    }
}

#[test]
fn refusals_under_keys_without_end_are_few_and_push_out_nothing_else() {
    const MORE: u32 = 100;
    let mut scene = Scene::new();
    let answered = scene.open("demo", Some(key(0)));
    scene.close(answered, Closing::Answered { status: Some(201) });
    let refused = Closing::Failed {
        code: Code::RateLimited,
        reason: Reason::Rate,
    };
    let kept = u32::try_from(REFUSED).unwrap();
    for n in 1..=kept + MORE {
        scene.made += 1;
        let opening = Opening {
            id: OutcomeId::new(scene.made),
            request: Uuid::from_u128(scene.made),
            app: "demo".into(),
            key: Some(key(n)),
        };
        let serial = scene.store.open(scene.now, opening);
        scene.store.close(scene.now, serial, refused);
    }
    scene.store.check();
    assert_eq!(scene.of_key(key(0)), Some(State::Answered));
    assert_eq!(scene.of_key(key(MORE)), None);
    assert_eq!(scene.of_key(key(MORE + 1)), Some(State::NotDelivered));
    let counts = scene.store.counts(scene.now);
    assert_eq!(counts.0.iter().sum::<usize>(), REFUSED + 1);
    scene.pass(REMEMBERED);
    assert_eq!(scene.store.counts(scene.now), Counts::default());
}

#[test]
fn entries_under_way_are_bounded_too() {
    let mut scene = Scene::with_limit(10);
    let first = scene.open("demo", Some(key(0)));
    for n in 1..=10 {
        scene.open("demo", Some(key(n)));
    }
    assert_eq!(scene.of_key(key(0)), None);
    assert_eq!(scene.of_key(key(1)), Some(State::Pending));
    // Its exchange goes on and ends without a page.
    let which = scene.tried(first, uncertain(1));
    scene.learn(which, answer(200));
    assert_eq!(scene.close(first, LOST), None);
}

#[test]
fn an_exchange_without_key_or_doubt_leaves_nothing() {
    let mut scene = Scene::new();
    let serial = scene.open("demo", None);
    scene.tried(serial, uncertain(1));
    assert_eq!(
        scene.close(serial, Closing::Answered { status: Some(200) }),
        None
    );
    assert_eq!(scene.store.counts(scene.now), Counts::default());
    assert!(scene.store.streams.is_empty());
}
