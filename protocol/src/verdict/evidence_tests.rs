//! Each row of the decision table by example, and its promises as properties.

use super::*;
use proptest::prelude::*;

/// An exchange that begins at offset 100: head of 50, body of 30, all of it given to a carrier.
fn evidence(terminal: Terminal) -> Evidence {
    Evidence {
        start: 100,
        emitted: 180,
        head_len: 50,
        request_len: Some(80),
        terminal,
        answer_bytes: 0,
    }
}

fn said(e: Evidence) -> (Delivery, Stage) {
    let judgement = judge(&e);
    (judgement.delivery, judgement.stage)
}

const PROVEN: (Delivery, Stage) = (Delivery::NotDelivered, Stage::None);

#[test]
fn what_was_never_opened_is_not_delivered() {
    assert_eq!(
        said(Evidence {
            emitted: 0,
            ..evidence(Terminal::NotOpened)
        }),
        PROVEN
    );
}

#[test]
fn a_refused_stream_is_not_delivered_though_its_bytes_were_sent() {
    assert_eq!(said(evidence(Terminal::Refused)), PROVEN);
}

#[test]
fn a_goaway_below_the_stream_is_not_delivered() {
    assert_eq!(said(evidence(Terminal::GoAwayBelow)), PROVEN);
}

#[test]
fn a_count_at_or_below_the_start_is_not_delivered() {
    assert_eq!(said(evidence(Terminal::Counted { written: 100 })), PROVEN);
    assert_eq!(said(evidence(Terminal::Counted { written: 99 })), PROVEN);
}

#[test]
fn a_count_above_the_start_is_unknown_and_names_the_stage() {
    let stages = [
        (101, Stage::PartOfHead),
        (149, Stage::PartOfHead),
        (150, Stage::Head),
        (151, Stage::Body),
        (179, Stage::Body),
        (180, Stage::All),
        (999, Stage::All),
    ];
    for (written, stage) in stages {
        assert_eq!(
            said(evidence(Terminal::Counted { written })),
            (Delivery::Unknown, stage),
            "{written}"
        );
        let open = evidence(Terminal::Open { consumed: written });
        assert_eq!(said(open), (Delivery::Unknown, stage), "{written}");
    }
}

#[test]
fn a_request_without_body_is_all_once_its_head_is_written() {
    let e = Evidence {
        request_len: Some(50),
        ..evidence(Terminal::Counted { written: 150 })
    };
    assert_eq!(said(e), (Delivery::Unknown, Stage::All));
}

#[test]
fn a_body_whose_end_is_not_known_never_counts_as_all() {
    let e = Evidence {
        request_len: None,
        ..evidence(Terminal::Counted { written: u64::MAX })
    };
    assert_eq!(said(e), (Delivery::Unknown, Stage::Body));
    let head = Evidence {
        request_len: None,
        ..evidence(Terminal::Counted { written: 150 })
    };
    assert_eq!(said(head), (Delivery::Unknown, Stage::Head));
}

#[test]
fn a_byte_of_the_answer_is_delivered_whatever_else_is_claimed() {
    for terminal in [
        Terminal::Refused,
        Terminal::LostUnknown,
        Terminal::Counted { written: 0 },
    ] {
        let e = Evidence {
            answer_bytes: 1,
            ..evidence(terminal)
        };
        assert_eq!(said(e), (Delivery::Delivered, Stage::AnswerBegun));
    }
}

#[test]
fn a_lost_tunnel_is_unknown_unless_nothing_was_given_to_a_carrier() {
    assert_eq!(
        said(evidence(Terminal::LostUnknown)),
        (Delivery::Unknown, Stage::None)
    );
    let one_byte = Evidence {
        emitted: 101,
        ..evidence(Terminal::LostUnknown)
    };
    assert_eq!(said(one_byte), (Delivery::Unknown, Stage::None));
    assert_eq!(
        said(Evidence {
            emitted: 100,
            ..evidence(Terminal::LostUnknown)
        }),
        PROVEN
    );
}

#[test]
fn a_credit_that_says_nothing_was_taken_proves_nothing() {
    let e = evidence(Terminal::Open { consumed: 100 });
    assert_eq!(said(e), (Delivery::Unknown, Stage::None));
    assert_eq!(said(Evidence { emitted: 100, ..e }), PROVEN);
}

fn terminals() -> impl Strategy<Value = Terminal> {
    prop_oneof![
        Just(Terminal::NotOpened),
        Just(Terminal::Refused),
        offsets().prop_map(|written| Terminal::Counted { written }),
        Just(Terminal::GoAwayBelow),
        Just(Terminal::LostUnknown),
        offsets().prop_map(|consumed| Terminal::Open { consumed }),
    ]
}

/// Small numbers, so that equality of offsets is common, and the ends of the range.
fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..12u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn evidences() -> impl Strategy<Value = Evidence> {
    let lengths = (offsets(), proptest::option::of(offsets()));
    (offsets(), offsets(), lengths, terminals(), 0..3u64).prop_map(
        |(start, emitted, (head_len, request_len), terminal, answer_bytes)| Evidence {
            start,
            emitted,
            head_len,
            request_len,
            terminal,
            answer_bytes,
        },
    )
}

const fn strength(delivery: Delivery) -> u8 {
    match delivery {
        Delivery::NotDelivered => 0,
        Delivery::Unknown => 1,
        Delivery::Delivered => 2,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn delivered_is_said_exactly_when_the_app_answered(e in evidences()) {
        prop_assert_eq!(judge(&e).delivery == Delivery::Delivered, e.answer_bytes > 0);
        prop_assert_eq!(judge(&e).stage == Stage::AnswerBegun, e.answer_bytes > 0);
    }

    #[test]
    fn not_delivered_is_never_said_of_a_written_or_of_an_emitted_and_undecided_byte(e in evidences()) {
        let denied = match e.terminal {
            Terminal::Counted { written } => written > e.start,
            Terminal::NotOpened | Terminal::LostUnknown => e.emitted > e.start,
            Terminal::Open { consumed } => e.emitted > e.start || consumed > e.start,
            Terminal::Refused | Terminal::GoAwayBelow => false,
        };
        if denied || e.answer_bytes > 0 {
            prop_assert_ne!(judge(&e).delivery, Delivery::NotDelivered);
        }
    }

    #[test]
    fn unknown_is_said_only_when_a_byte_may_have_reached_the_app(e in evidences()) {
        if judge(&e).delivery == Delivery::Unknown {
            let may_have = match e.terminal {
                Terminal::Counted { written } => written > e.start,
                Terminal::Open { consumed } => e.emitted > e.start || consumed > e.start,
                Terminal::NotOpened | Terminal::LostUnknown => e.emitted > e.start,
                Terminal::Refused | Terminal::GoAwayBelow => false,
            };
            prop_assert!(may_have);
        }
    }

    #[test]
    fn not_delivered_never_comes_with_a_stage(e in evidences()) {
        let judgement = judge(&e);
        if judgement.delivery == Delivery::NotDelivered {
            prop_assert_eq!(judgement.stage, Stage::None);
        }
    }

    #[test]
    fn more_bytes_never_turn_the_verdict_back(e in evidences(), more in 0..5u64) {
        let before = strength(judge(&e).delivery);
        let answered = Evidence { answer_bytes: e.answer_bytes + more, ..e };
        prop_assert!(strength(judge(&answered).delivery) >= before);
        let emitted = Evidence { emitted: e.emitted.saturating_add(more), ..e };
        prop_assert!(strength(judge(&emitted).delivery) >= before);
        if let Terminal::Counted { written } = e.terminal {
            let terminal = Terminal::Counted { written: written.saturating_add(more) };
            let after = judge(&Evidence { terminal, ..e });
            prop_assert!(strength(after.delivery) >= before);
            prop_assert!(rank(after.stage) >= rank(judge(&e).stage));
        }
    }

    #[test]
    fn only_differences_of_offsets_matter(e in evidences(), shift in 0..1000u64) {
        let low = Evidence { start: e.start % 1000, emitted: e.emitted % 1000, ..e };
        let at = |terminal, by: u64| match terminal {
            Terminal::Counted { written } => Terminal::Counted { written: written % 1000 + by },
            Terminal::Open { consumed } => Terminal::Open { consumed: consumed % 1000 + by },
            other => other,
        };
        let still = Evidence { terminal: at(e.terminal, 0), ..low };
        let moved = Evidence {
            start: low.start + shift,
            emitted: low.emitted + shift,
            terminal: at(e.terminal, shift),
            ..low
        };
        prop_assert_eq!(judge(&moved), judge(&still));
    }
}

fn rank(stage: Stage) -> usize {
    Stage::ALL
        .iter()
        .position(|&s| s == stage)
        .expect("every stage is in the list")
}
