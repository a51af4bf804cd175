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
    last_open: u32,
    /// Of the carrier that stands: what is said once on each.
    gateway: Said,
    agent: Said,
}

#[derive(Debug, Default)]
struct Said {
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
        if matches!(frame, Frame::Resume(_)) {
            self.gateway = Said::default();
        }
        let id = frame.stream();
        if id == StreamId::TUNNEL {
            return;
        }
        let said = &mut self.gateway;
        if let Frame::Open(..) = frame {
            let is_new = self.opened.insert(id);
            assert_eq!(is_new, id.0 > self.last_open, "{frame:?}");
            assert!(said.opened.insert(id) && id.0 > said.last_open, "{frame:?}");
            self.last_open = self.last_open.max(id.0);
            said.last_open = id.0;
        }
        assert!(self.opened.contains(&id), "before its OPEN: {frame:?}");
        assert!(!said.reset.contains(&id), "after its RESET: {frame:?}");
        match frame {
            Frame::Data { .. } | Frame::Begin(..) | Frame::Open(..) => {
                assert!(!self.given_up.contains(&id), "after giving up: {frame:?}");
            }
            Frame::Fence { .. } => {
                assert!(said.given_up.insert(id), "fenced twice");
                self.given_up.insert(id);
            }
            Frame::Reset { .. } => {
                said.reset.insert(id);
                self.given_up.insert(id);
                self.reset.insert(id);
            }
            _ => assert!(!self.reset.contains(&id), "after its RESET: {frame:?}"),
        }
    }

    fn heed_agent(&mut self, frame: &Frame) {
        if matches!(frame, Frame::Resume(_)) {
            self.agent = Said::default();
        }
        let id = frame.stream();
        if id == StreamId::TUNNEL {
            return;
        }
        let ended = &mut self.agent.ended;
        assert!(!ended.contains(&id), "after its terminal: {frame:?}");
        if matches!(frame, Frame::Final { .. } | Frame::Refused { .. }) {
            ended.insert(id);
        }
    }
}

/// Whole frames from `from` on, and where they end.
fn whole(sent: &BytesMut, from: usize) -> (usize, Vec<Frame>) {
    let mut rest = BytesMut::from(&sent[from..]);
    let frames = std::iter::from_fn(|| decode(&mut rest, &Limits::default()).unwrap()).collect();
    (sent.len() - rest.len(), frames)
}
