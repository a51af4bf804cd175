//! What can be done next in a world, and what of it is a fault.

use crate::conn::Front;
use crate::verdict::Delivery;

use super::{Action, HEAD, World};

impl Action {
    /// True if it is a fault: something that need not happen in a good world.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Expire(_)
                | Self::Leave(_)
                | Self::Refuse(_)
                | Self::Close(_)
                | Self::Stop(_)
                | Self::Cut
                | Self::CutAtGateway
                | Self::CutAtAgent
                | Self::Lose
                | Self::Deadline
                | Self::Freeze
                | Self::Flood
                | Self::DrainAgent
                | Self::DrainGateway
        )
    }
}

impl World {
    /// All that can be done now and makes a difference.
    #[must_use]
    pub fn enabled(&self) -> Vec<Action> {
        let mut can = Vec::new();
        for exchange in 0..self.exchanges.len() {
            self.enabled_at_gateway(exchange, &mut can);
        }
        for link in 0..self.links.len() {
            self.enabled_at_agent(link, &mut can);
        }
        self.enabled_of_carrier(&mut can);
        can
    }

    fn enabled_at_gateway(&self, index: usize, can: &mut Vec<Action>) {
        let (exchange, link) = (&self.exchanges[index], &self.links[self.stream_of(index)]);
        if exchange.told.is_some() || link.released {
            return;
        }
        let Some(key) = link.key else {
            if !self.gateway.takes_no_streams() && (index == 0 || !self.plan.reuse) {
                can.push(Action::Open(index));
            }
            return;
        };
        let Some(view) = self.gateway.view(key) else {
            return;
        };
        let before = index.checked_sub(1).map(|i| &self.exchanges[i]);
        let turn = !self.plan.reuse || before.is_none_or(|e| e.told == Some(Delivery::Delivered));
        let room = self.gateway.room(key);
        if turn && !exchange.is_asked && room >= HEAD && !view.closing {
            can.push(Action::Ask(index));
        }
        if !exchange.is_asked {
            return;
        }
        if !exchange.given_up && exchange.parts < self.plan.parts && room >= self.plan.part {
            can.push(Action::Send(index));
        }
        let is_last = index + 1 == self.exchanges.len() || !self.plan.reuse;
        if is_last && !exchange.ended && self.gateway.is_writable(key) {
            can.push(Action::End(index));
        }
        if view.received > view.taken {
            can.push(Action::Read(index));
        }
        if !exchange.given_up && view.ended.is_none() {
            can.extend([Action::Expire(index), Action::Leave(index)]);
        }
        if exchange.given_up || view.ended.is_some() || exchange.answer > 0 {
            can.push(Action::Tell(index));
        }
    }

    fn enabled_at_agent(&self, index: usize, can: &mut Vec<Action>) {
        let Some(app) = self.links[index].app.as_ref().filter(|app| !app.gone) else {
            return;
        };
        let front = self.agent.front(app.key);
        if matches!(
            front,
            Front::Closed { .. } | Front::Fenced { linger: false }
        ) {
            can.push(Action::Take(index));
            return;
        }
        can.push(Action::Stop(index));
        if !app.connected {
            can.extend([Action::Connect(index), Action::Refuse(index)]);
            return;
        }
        if matches!(front, Front::Bytes(_) | Front::Begin { .. }) {
            can.push(Action::Take(index));
        }
        if matches!(&front, Front::Bytes(bytes) if bytes.len() > 1) {
            can.push(Action::TakeByte(index));
        }
        if app.said < self.plan.answers * 3 && self.agent.room(app.key) >= 3 {
            can.push(Action::Answer(index));
        }
        can.push(Action::Close(index));
    }

    fn enabled_of_carrier(&self, can: &mut Vec<Action>) {
        if self.gateway.wants_transmit() {
            can.extend([Action::EmitGateway, Action::EmitGatewaySome]);
        }
        if self.agent.wants_transmit() {
            can.extend([Action::EmitAgent, Action::EmitAgentSome]);
        }
        if !self.to_agent.is_empty() {
            can.extend([Action::CarryToAgent, Action::CarrySomeToAgent]);
        }
        if !self.to_gateway.is_empty() {
            can.extend([Action::CarryToGateway, Action::CarrySomeToGateway]);
        }
        if self.is_over() {
            return;
        }
        let (gateway, agent) = (self.gateway.wants_carrier(), self.agent.wants_carrier());
        match (gateway, agent) {
            (false, false) => can.extend([Action::Cut, Action::CutAtGateway, Action::CutAtAgent]),
            (true, false) => can.extend([Action::CutAtAgent, Action::Redial]),
            (false, true) => can.extend([Action::CutAtGateway, Action::Redial]),
            (true, true) => can.push(Action::Redial),
        }
        can.extend([
            Action::Lose,
            Action::Deadline,
            Action::Freeze,
            Action::Flood,
        ]);
        if !self.gateway.is_going_away() && !self.agent.is_going_away() {
            can.extend([Action::DrainAgent, Action::DrainGateway]);
        }
    }
}
