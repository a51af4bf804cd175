//! The language: every example of the grammar parses, every mistake is placed, nothing panics.

use std::time::Duration;

use bridgehead_protocol::wire::Kind;
use proptest::prelude::*;

use super::script::{Direction, Effect, End, Fault, Filter, Often, Place, Trigger};
use super::{GRAMMAR, parse};

fn one(text: &str) -> (Trigger, Vec<Fault>) {
    let script = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let [rule] = &script.rules[..] else {
        panic!("{text}: one rule")
    };
    (rule.trigger, rule.faults.clone())
}

fn mistake(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

#[test]
fn every_example_of_the_grammar_parses() {
    let (_, examples) = GRAMMAR
        .split_once("Examples:")
        .expect("the grammar has examples");
    let script = parse(examples).expect("the examples are right");
    assert_eq!(script.rules.len(), 12);
}

#[test]
fn a_rule_means_what_it_says() {
    let of_stream = Filter {
        stream: Some(1),
        ..Filter::default()
    };
    assert_eq!(
        one("at frame 3 of stream 1: cut"),
        (
            Trigger::Frame {
                number: 3,
                filter: of_stream,
                place: Place::Before,
                often: Often::Once
            },
            vec![Fault::End(End::Cut)]
        )
    );
    let finals = Filter {
        kind: Some(Kind::Final),
        direction: Some(Direction::ToGateway),
        ..Filter::default()
    };
    assert_eq!(
        one("on final to-gateway of each connection : reset").0,
        Trigger::Frame {
            number: 1,
            filter: finals,
            place: Place::Before,
            often: Often::EachConnection
        }
    );
    let (trigger, faults) =
        one("after 5s for 4s: blackhole to-agent, delay 20ms jitter 5ms for 1m");
    assert_eq!(
        trigger,
        Trigger::After {
            delay: Duration::from_secs(5)
        }
    );
    let hole = Fault::Last {
        effect: Effect::BlackHole,
        direction: Some(Direction::ToAgent),
        span: Some(Duration::from_secs(4)),
    };
    let late = Effect::Delay {
        by: Duration::from_millis(20),
        jitter: Duration::from_millis(5),
    };
    let late = Fault::Last {
        effect: late,
        direction: None,
        span: Some(Duration::from_secs(60)),
    };
    assert_eq!(faults, [hole, late]);
    assert_eq!(
        one("with 0.5% per frame: reset").0,
        Trigger::PerFrame {
            chance: 5000,
            filter: Filter::default()
        }
    );
}

#[test]
fn comments_and_empty_lines_are_nothing() {
    assert!(
        parse("# all\n\n   \n\t# of it")
            .expect("nothing")
            .rules
            .is_empty()
    );
    assert_eq!(one("  always: slice 7 # small").1.len(), 1);
}

#[test]
fn a_mistake_is_told_with_line_column_and_cure() {
    for (text, said) in [
        (
            "sometimes: cut",
            "line 1, column 1: expected `always`, `at`, `after`, `on`, `every` or `with`, found `sometimes`",
        ),
        (
            "\n\nat frame x: cut",
            "line 3, column 10: expected a number from 1, found `x`",
        ),
        (
            "at frame 3",
            "line 1, column 11: expected more of when, or `:` and a fault, found the end of the line",
        ),
        (
            "at frame 3 of each: cut",
            "line 1, column 12: expected more of when, or `:` and a fault, found `of`",
        ),
        (
            "every 1s: explode",
            "line 1, column 11: expected a fault: `cut`,",
        ),
        (
            "always: cut",
            "line 1, column 9: expected a fault that lasts; this one needs a moment",
        ),
        (
            "every 5s: down",
            "line 1, column 15: expected `for` and a time, since this rule can fire again, found the end",
        ),
        (
            "on each DATA: delay 1s",
            "column 23: expected `for` and a time",
        ),
        (
            "after 5s for: cut",
            "line 1, column 13: expected a time such as 20ms, 5s or 1m, found `:`",
        ),
        (
            "with 0% per frame: cut",
            "line 1, column 6: expected a chance such as 1% or 0.01%, found `0%`",
        ),
        (
            "on HULLO: cut",
            "line 1, column 4: expected a type of frame (HELLO, WELCOME,",
        ),
        (
            "always: rate 5KiB",
            "line 1, column 14: expected a rate such as 500B/s or 1MiB/s, found `5KiB`",
        ),
        (
            "at byte 5: half-close",
            "line 1, column 22: expected `to-agent` or `to-gateway`, found the end of the line",
        ),
        (
            "at byte 5: cut cut",
            "line 1, column 16: expected `,` and another fault, or the end of the line, found `cut`",
        ),
    ] {
        let found = mistake(text);
        assert!(found.contains(said), "{text:?}: {found}");
        assert!(!found.contains('\n'));
    }
}

#[test]
fn columns_count_characters_and_not_bytes() {
    assert!(mistake("at frame 3 of stream \u{442}\u{44b} : cut").contains("column 22"));
    assert!(mistake("always: \u{442}\u{44b}\u{44b} cut").contains("column 9"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,80}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_sequence_of_its_own_words_makes_the_parser_panic(words in proptest::collection::vec(0_usize..36, 0..14)) {
        const WORDS: [&str; 36] = [
            "always", "at", "after", "on", "every", "with", "frame", "frames", "byte", "connection", "of", "each",
            "type", "stream", "per", "for", ":", ",", "cut", "reset", "half-close", "blackhole", "delay", "jitter",
            "rate", "slice", "refuse", "down", "to-agent", "to-gateway", "1", "99999999999999999999", "1s", "5%", "1MiB/s", "DATA",
        ];
        let text: Vec<&str> = words.iter().map(|n| WORDS[*n]).collect();
        if let Ok(script) = parse(&text.join(" ")) {
            // What was read is kept as it was written, and reads the same again.
            for rule in script.rules {
                prop_assert_eq!(&parse(&rule.text).expect("the same text").rules[0], &rule);
            }
        }
    }

    #[test]
    fn spans_too_long_for_arithmetic_are_refused(n in 0_u64..u64::MAX, unit in 0_usize..4) {
        let text = format!("after {n}{}: cut", ["ms", "s", "m", "h"][unit]);
        if let Ok(script) = parse(&text) {
            let super::Script { rules } = script;
            let after = |delay: Duration| delay <= Duration::from_secs(366 * 24 * 3600);
            let fits = matches!(rules[0].trigger, Trigger::After { delay } if after(delay));
            prop_assert!(fits);
        }
    }
}
