//! Later facts against what is known, all of them against all of it.

use super::*;

const START: u64 = 100;
const HEAD: u64 = 20;
const WHOLE: u64 = 50;

fn evidence(terminal: Terminal, answer_bytes: u64) -> Evidence {
    Evidence {
        start: START,
        emitted: START + WHOLE,
        head_len: HEAD,
        request_len: Some(WHOLE),
        terminal,
        answer_bytes,
    }
}

fn unknown() -> Known {
    let known = Known {
        read_before: Some(1000),
        received: 1000,
        ..Known::of(evidence(Terminal::LostUnknown, 0), None)
    };
    assert_eq!(known.judgement.delivery, Delivery::Unknown);
    known
}

fn counted(written: u64, read: Option<u64>) -> Fact {
    Fact::Ended {
        terminal: Terminal::Counted { written },
        read,
        source: Source::AgentReport,
    }
}

fn said(known: &Known) -> (Delivery, Stage, Option<Reply>) {
    (known.judgement.delivery, known.judgement.stage, known.reply)
}

fn every_known() -> Vec<Known> {
    let counted = |written| Terminal::Counted { written };
    let terminals = [
        Terminal::LostUnknown,
        Terminal::Open {
            consumed: START + 5,
        },
        Terminal::Refused,
        counted(START),
        counted(START + 30),
    ];
    let mut all = Vec::new();
    for terminal in terminals {
        for answer_bytes in [0, 7] {
            for read_before in [None, Some(1000)] {
                let consumed = match terminal {
                    Terminal::Open { consumed } => consumed,
                    _ => 0,
                };
                all.push(Known {
                    consumed,
                    received: 1000 + answer_bytes,
                    read_before,
                    ..Known::of(
                        evidence(terminal, answer_bytes),
                        (answer_bytes > 0).then_some(200),
                    )
                });
            }
        }
    }
    all
}

fn every_fact() -> Vec<Fact> {
    let mut all = Vec::new();
    for status in [None, Some(200), Some(503)] {
        for complete in [false, true] {
            all.push(Fact::Answer(Reply { status, complete }));
        }
    }
    let offsets = [
        0,
        START,
        START + 1,
        START + HEAD,
        START + 30,
        START + WHOLE,
        START + WHOLE + 1,
    ];
    for source in [Source::LateCount, Source::AgentReport] {
        for written in offsets {
            for read in [None, Some(0), Some(1000), Some(1001), Some(5000)] {
                let terminal = Terminal::Counted { written };
                all.push(Fact::Ended {
                    terminal,
                    read,
                    source,
                });
            }
        }
        for terminal in [
            Terminal::Refused,
            Terminal::GoAwayBelow,
            Terminal::NotOpened,
            Terminal::LostUnknown,
        ] {
            all.push(Fact::Ended {
                terminal,
                read: None,
                source,
            });
        }
    }
    all
}

#[test]
fn no_fact_and_no_two_facts_take_back_or_weaken_what_was_said() {
    let (knowns, facts) = (every_known(), every_fact());
    for told in &knowns {
        for first in &facts {
            let once = told.with(*first);
            assert_eq!(once.with(*first), once, "twice is once: {told:?} {first:?}");
            for second in &facts {
                let twice = once.with(*second);
                for (before, after) in [(told, &once), (&once, &twice)] {
                    assert_later(before, after, *second);
                }
            }
        }
    }
}

fn assert_later(before: &Known, after: &Known, fact: Fact) {
    let context = || format!("{before:?}\n{fact:?}\n{after:?}");
    match before.judgement.delivery {
        Delivery::NotDelivered => assert_eq!(before, after),
        Delivery::Delivered => {
            assert_eq!(
                after.judgement.delivery,
                Delivery::Delivered,
                "{}",
                context()
            );
        }
        Delivery::Unknown => {}
    }
    if let Some(reply) = before.reply {
        let later = after
            .reply
            .unwrap_or_else(|| panic!("taken back: {}", context()));
        assert!(
            reply.status.is_none() || reply.status == later.status,
            "{}",
            context()
        );
        assert!(!reply.complete || later.complete, "{}", context());
        assert_ne!(
            after.judgement.delivery,
            Delivery::NotDelivered,
            "{}",
            context()
        );
    }
    if after.judgement.delivery != Delivery::NotDelivered {
        assert!(
            rank(after.judgement.stage) >= rank(before.judgement.stage),
            "{}",
            context()
        );
    }
}

#[test]
fn a_late_count_at_the_start_proves_that_the_app_saw_nothing() {
    for fact in [
        counted(START, Some(1000)),
        counted(0, None),
        Fact::Ended {
            terminal: Terminal::Refused,
            read: None,
            source: Source::LateCount,
        },
    ] {
        let known = Known {
            received: 0,
            ..unknown()
        };
        assert_eq!(
            said(&known.with(fact)),
            (Delivery::NotDelivered, Stage::None, None)
        );
    }
}

#[test]
fn a_late_count_beyond_the_start_tells_the_stage_and_no_more() {
    for (written, stage) in [
        (START + 1, Stage::PartOfHead),
        (START + HEAD, Stage::Head),
        (START + HEAD + 1, Stage::Body),
        (START + WHOLE, Stage::All),
    ] {
        let later = unknown().with(counted(written, Some(1000)));
        assert_eq!(said(&later), (Delivery::Unknown, stage, None));
        assert_eq!(later.source, Source::AgentReport);
    }
}

#[test]
fn more_read_than_before_the_request_says_that_the_app_began_to_answer() {
    let later = unknown().with(counted(START + WHOLE, Some(1001)));
    let began = Some(Reply::default());
    // No byte of it came to the gateway: the word `delivered` is not said.
    assert_eq!(said(&later), (Delivery::Unknown, Stage::AnswerBegun, began));
    let silent = Known {
        read_before: None,
        ..unknown()
    };
    let later = silent.with(counted(START + WHOLE, Some(5000)));
    assert_eq!(said(&later), (Delivery::Unknown, Stage::All, None));
}

#[test]
fn counts_that_contradict_what_is_known_change_nothing() {
    let taken = Known {
        consumed: START + 10,
        ..unknown()
    };
    let refused = Fact::Ended {
        terminal: Terminal::Refused,
        read: None,
        source: Source::LateCount,
    };
    for (known, fact) in [
        (taken, counted(START, Some(1000))),
        (taken, counted(START + 9, Some(1000))),
        (taken, refused),
        (unknown(), counted(START + WHOLE + 1, Some(1000))),
        (unknown(), counted(START, Some(999))),
        (unknown(), refused),
    ] {
        assert_eq!(known.with(fact), known, "{fact:?}");
    }
    let final_count = Terminal::Counted {
        written: START + 30,
    };
    let known = Known::of(evidence(final_count, 0), None);
    assert_eq!(known.with(counted(START, None)), known);
    assert_eq!(known.with(counted(START + WHOLE, None)), known);
}

#[test]
fn a_late_answer_brings_its_status_once_and_its_end() {
    let answer = |status, complete| Fact::Answer(Reply { status, complete });
    let began = unknown().with(answer(None, false));
    assert_eq!(began.reply, Some(Reply::default()));
    let head = began.with(answer(Some(201), false));
    assert_eq!(head.reply.and_then(|reply| reply.status), Some(201));
    assert_eq!(head.with(answer(Some(500), false)), head);
    let whole = head.with(answer(None, true));
    let reply = Reply {
        status: Some(201),
        complete: true,
    };
    assert_eq!(whole.reply, Some(reply));
    assert_eq!(said(&whole).0, Delivery::Delivered);
    assert_eq!(whole.source, Source::LateAnswer);
}
