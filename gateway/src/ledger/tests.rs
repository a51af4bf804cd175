//! The ledger as its users see it: counters, and the shape of what is said.

use std::time::Duration;

use super::*;
use crate::clock::Clock;

fn line(metrics: &Metrics, start: &str) -> String {
    let text = metrics.render().expect("consistent families");
    let line = text.lines().find(|line| line.starts_with(start));
    line.unwrap_or_else(|| panic!("{start} is not there"))
        .to_owned()
}

#[tokio::test]
async fn what_became_known_is_counted_with_its_time() {
    let metrics = Metrics::new();
    let ledger = Ledger::new(Arc::clone(&metrics), [7; 32]);
    let opening = Opening {
        id: OutcomeId::new(1),
        request: Uuid::from_u128(1),
        app: "demo".into(),
        key: None,
    };
    let now = Moment::ZERO;
    let serial = ledger.open(now, opening);
    let record = TryRecord {
        known: Known::nothing(),
        tunnel: "t".into(),
        stream: None,
        owner: Identity {
            subject: "acme".into(),
            agent: "a".into(),
        },
    };
    let which = ledger.tried(now, serial, record);
    ledger.close(now, serial, Closing::Left);
    let reply = Reply {
        status: Some(200),
        complete: true,
    };
    let now = now + Duration::from_secs(4);
    ledger.learn(now, which, Fact::Answer(reply));
    let resolved = "bridgehead_ledger_resolved_total{state=\"answered\"}";
    assert_eq!(line(&metrics, resolved), format!("{resolved} 1"));
    let seconds = "bridgehead_ledger_resolve_seconds_sum{state=\"answered\"}";
    assert_eq!(line(&metrics, seconds), format!("{seconds} 4"));
    assert_eq!(ledger.counts(now).0, [0, 0, 1, 0]);
    assert!(ledger.by_request(now, Uuid::from_u128(1)).is_some());
}

#[tokio::test]
async fn what_is_not_known_is_unknown_and_a_write_has_to_be_verified() {
    let said = said(&Outcome::NOTHING, Clock::start());
    let text = serde_json::to_string(&said).unwrap();
    let expected = r#"{"state":"unknown","at":null,"evidence":{"source":"none","delivery":"unknown","stage":"none","code":null,"reason":null,"complete":null},"retry":{"read":"safe","write":"verify_first"}}"#;
    assert_eq!(text, expected);
}
