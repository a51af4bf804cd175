//! A tunnel over several carriers, one sentence a test.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::testing::Pair;
use crate::wire::AppKind;

const WINDOW: Duration = Duration::from_secs(20);

fn pair() -> Pair {
    let mut pair = Pair::new(Settings {
        resume_window: WINDOW,
        ..Settings::default()
    });
    pair.settle().unwrap();
    pair
}

/// A stream whose app's connection stands.
fn opened(pair: &mut Pair) -> (StreamKey, StreamKey) {
    let key = pair.open(AppKind::Tcp);
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.opened(app);
    pair.settle().unwrap();
    (key, app)
}

fn write(pair: &mut Pair, key: StreamKey, text: &'static [u8]) {
    let mut bytes = Bytes::from_static(text);
    assert_eq!(pair.gateway.write(key, &mut bytes), text.len());
}

fn say(pair: &mut Pair, app: StreamKey, text: &'static [u8]) {
    pair.agent.write_all(app, Bytes::from_static(text));
}

fn read(pair: &mut Pair, key: StreamKey) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = pair.gateway.read(pair.now, key, usize::MAX) {
        all.extend_from_slice(&bytes);
    }
    all
}

#[test]
fn bytes_lost_with_a_carrier_are_sent_again_once_and_in_order() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    write(&mut pair, key, b"one ");
    pair.settle().unwrap();
    assert_eq!(pair.app_takes(app), b"one ");
    write(&mut pair, key, b"two ");
    say(&mut pair, app, b"answer");
    pair.emit_gateway();
    pair.emit_agent();
    pair.cut();
    write(&mut pair, key, b"three");
    assert_eq!(
        pair.emit_gateway(),
        0,
        "nothing is emitted without a carrier"
    );
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(pair.app_takes(app), b"two three");
    assert_eq!(read(&mut pair, key), b"answer");
}
