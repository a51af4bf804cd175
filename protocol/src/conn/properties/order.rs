//! The order of frames on the wire: what may come before and after what.

use std::collections::BTreeSet;

use bytes::BytesMut;

use crate::testing::Pair;
use crate::wire::{Frame, Limits, StreamId, decode};

/// The order of frames on the wire, both ways.
#[derive(Debug, Default)]
pub(super) struct Wire {
    gateway_seen: usize,
    agent_seen: usize,
    opened: BTreeSet<StreamId>,
    given_up: BTreeSet<StreamId>,
    reset: BTreeSet<StreamId>,
    ended: BTreeSet<StreamId>,
    last_open: u32,
}

impl Wire {
    pub(super) fn follow(&mut self, pair: &Pair) {
        let (seen, frames) = whole(&pair.gateway_sent, self.gateway_seen);
        self.gateway_seen = seen;
        frames.iter().for_each(|frame| self.heed_gateway(frame));
        let (seen, frames) = whole(&pair.agent_sent, self.agent_seen);
        self.agent_seen = seen;
        frames.iter().for_each(|frame| self.heed_agent(frame));
    }

    fn heed_gateway(&mut self, frame: &Frame) {
        let id = frame.stream();
        if id == StreamId::TUNNEL {
            return;
        }
        if let Frame::Open(..) = frame {
            assert!(id.0 > self.last_open && self.opened.insert(id), "{frame:?}");
            self.last_open = id.0;
        }
        assert!(self.opened.contains(&id), "before its OPEN: {frame:?}");
        assert!(!self.reset.contains(&id), "after its RESET: {frame:?}");
        match frame {
            Frame::Data { .. } | Frame::Begin(..) => {
                assert!(!self.given_up.contains(&id), "after giving up: {frame:?}");
            }
            Frame::Fence { .. } => {
                assert!(self.given_up.insert(id), "fenced twice");
            }
            Frame::Reset { .. } => {
                self.given_up.insert(id);
                self.reset.insert(id);
            }
            _ => {}
        }
    }

    fn heed_agent(&mut self, frame: &Frame) {
        let id = frame.stream();
        if id == StreamId::TUNNEL {
            return;
        }
        assert!(!self.ended.contains(&id), "after its terminal: {frame:?}");
        if matches!(frame, Frame::Final { .. } | Frame::Refused { .. }) {
            self.ended.insert(id);
        }
    }
}

/// Whole frames from `from` on, and where they end.
fn whole(sent: &BytesMut, from: usize) -> (usize, Vec<Frame>) {
    let mut rest = BytesMut::from(&sent[from..]);
    let frames = std::iter::from_fn(|| decode(&mut rest, &Limits::default()).unwrap()).collect();
    (sent.len() - rest.len(), frames)
}
