//! Doing one step in a world, and looking at every promise it could break.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::conn::{Conn, ConnError, Event, Front, Outbox};
use crate::verdict::{Delivery, Evidence, judge};
use crate::wire::{
    AppKind, Begin, FinalCause, Frame, GoAwayReason, Open, RefusedReason, ResetCode, encode,
};

use super::{Action, App, Broken, HEAD, WINDOW, World, follows, pattern};

/// Bytes of a piece where a little goes or comes at a time.
const SOME: usize = 7;
/// Window, dead time of a carrier, and the lateness of an agent that is not noticed.
const LATEST: Duration = Duration::from_secs(30 + 6 + 1);

impl World {
    /// Does it.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn step(&mut self, action: Action) -> Result<(), Broken> {
        self.faults += usize::from(action.is_fault());
        match action {
            Action::Open(i) => self.open(i),
            Action::Ask(i) => self.ask(i),
            Action::Send(i) => self.send(i, self.plan.part),
            Action::End(i) => self.end(i),
            Action::Read(i) => self.read(i)?,
            Action::Expire(i) | Action::Leave(i) => self.give_up(i, action)?,
            Action::Tell(i) => self.tell(i)?,
            Action::Connect(l)
            | Action::Answer(l)
            | Action::Refuse(l)
            | Action::Close(l)
            | Action::Stop(l) => self.act_app(l, action),
            Action::Take(l) => self.take(l, usize::MAX)?,
            Action::TakeByte(l) => self.take(l, 1)?,
            Action::EmitGateway => emit(&mut self.gateway, usize::MAX, &mut self.to_agent),
            Action::EmitGatewaySome => emit(&mut self.gateway, SOME, &mut self.to_agent),
            Action::EmitAgent => emit(&mut self.agent, usize::MAX, &mut self.to_gateway),
            Action::EmitAgentSome => emit(&mut self.agent, SOME, &mut self.to_gateway),
            Action::CarryToAgent => self.carry_to_agent(usize::MAX)?,
            Action::CarrySomeToAgent => self.carry_to_agent(SOME)?,
            Action::CarryToGateway => self.carry_to_gateway(usize::MAX)?,
            Action::CarrySomeToGateway => self.carry_to_gateway(SOME)?,
            Action::Cut => {
                self.cut_at_gateway();
                self.cut_at_agent();
            }
            Action::CutAtGateway => self.cut_at_gateway(),
            Action::CutAtAgent => self.cut_at_agent(),
            Action::Redial => self.redial(),
            Action::Lose => self.lose(),
            Action::Deadline => self.pass_deadline()?,
            Action::Freeze => self.freeze()?,
            Action::Flood => self.flood()?,
            Action::DrainAgent => self.agent.drain(GoAwayReason::Draining, WINDOW),
            Action::DrainGateway => self.gateway.drain(GoAwayReason::Draining, WINDOW),
        }
        self.hear()?;
        self.gateway.check_invariants();
        self.agent.check_invariants();
        Ok(())
    }

    // ---- the corridor ------------------------------------------------------------------------

    fn open(&mut self, index: usize) {
        let stream = self.stream_of(index);
        let open = Open {
            app: stream.to_string(),
            kind: AppKind::Tcp,
            remaining: WINDOW,
            credit: 0,
            client: None,
        };
        self.links[stream].key = self.gateway.open(self.now, open).ok();
    }

    fn ask(&mut self, index: usize) {
        let stream = self.stream_of(index);
        let Some(key) = self.links[stream].key else {
            return;
        };
        let begin = Begin {
            request: index as u128,
            remaining: WINDOW,
            expect_read: Some(self.links[stream].read),
        };
        let start = self.gateway.begin(self.now, key, begin);
        let exchange = &mut self.exchanges[index];
        exchange.is_asked = true;
        exchange.start = start;
        exchange.asked_at = self.now;
        self.send(index, HEAD);
        self.exchanges[index].parts = 0;
    }

    fn send(&mut self, index: usize, len: usize) {
        let stream = self.stream_of(index);
        let link = &mut self.links[stream];
        let Some(key) = link.key else { return };
        let count = self.gateway.write(key, &mut pattern(link.wrote, len)) as u64;
        link.wrote += count;
        self.exchanges[index].wrote += count;
        self.exchanges[index].parts += 1;
    }

    fn end(&mut self, index: usize) {
        self.exchanges[index].ended = true;
        if let Some(key) = self.links[self.stream_of(index)].key {
            self.gateway.finish(key);
        }
    }

    /// Bytes that came before the app is known to have taken the question answer nothing.
    fn read(&mut self, index: usize) -> Result<(), Broken> {
        let stream = self.stream_of(index);
        let Some(key) = self.links[stream].key else {
            return Ok(());
        };
        let Some(view) = self.gateway.view(key) else {
            return Ok(());
        };
        let answers = view.consumed > self.exchanges[index].start;
        while let Some(bytes) = self.gateway.read(self.now, key, usize::MAX) {
            let link = &mut self.links[stream];
            if !follows(&bytes, link.read) {
                return Err(format!("the answer has a hole at {}", link.read));
            }
            link.read += bytes.len() as u64;
            if answers {
                self.exchanges[index].answer += bytes.len() as u64;
            }
        }
        if answers {
            return Ok(());
        }
        self.give_up(index, Action::Leave(index))
    }

    fn give_up(&mut self, index: usize, action: Action) -> Result<(), Broken> {
        let Some(key) = self.links[self.stream_of(index)].key else {
            return Ok(());
        };
        let before = self.gateway.view(key).map_or(0, |view| view.emitted);
        let emitted = if matches!(action, Action::Expire(_)) {
            self.gateway.fence(key, self.exchanges[index].ended)
        } else {
            self.gateway.reset(key, ResetCode::Cancelled)
        };
        self.exchanges[index].given_up = true;
        if emitted != before {
            return Err("what was emitted changed by giving up".into());
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, index: usize) -> Result<(), Broken> {
        let stream = self.stream_of(index);
        let Some(key) = self.links[stream].key else {
            return Ok(());
        };
        let Some(view) = self.gateway.view(key) else {
            return Err("a stream is gone before its exchange was told".into());
        };
        let exchange = &self.exchanges[index];
        let told = judge(&Evidence {
            start: exchange.start,
            emitted: view.emitted,
            head_len: HEAD as u64,
            request_len: exchange.ended.then_some(exchange.wrote),
            terminal: view.terminal(exchange.start),
            answer_bytes: exchange.answer,
        })
        .delivery;
        let app = self.links[stream].app.as_ref();
        let saw = app.is_some_and(|app| app.took > exchange.start);
        let begun = app.and_then(|app| app.begun.iter().find(|(begun, _)| *begun == index));
        let answered = app.is_some_and(|app| begun.is_some_and(|(_, said)| app.said > *said));
        match told {
            Delivery::NotDelivered if saw => return Err(format!("a lie: {view:?}")),
            Delivery::Delivered if !answered => {
                return Err(format!("nobody answered: {view:?} {app:?}"));
            }
            _ => {}
        }
        let is_last = index + 1 == self.exchanges.len();
        let keeps = told == Delivery::Delivered && self.plan.reuse && !is_last;
        self.exchanges[index].told = Some(told);
        if !keeps || view.ended.is_some() {
            self.links[stream].released = true;
            self.gateway.release(key);
        }
        Ok(())
    }

    // ---- the app -----------------------------------------------------------------------------

    fn act_app(&mut self, link: usize, action: Action) {
        let Some(app) = self.links[link].app.as_mut() else {
            return;
        };
        match action {
            Action::Connect(_) => {
                app.connected = true;
                self.agent.opened(app.key);
                return;
            }
            Action::Answer(_) => {
                self.agent.write_all(app.key, pattern(app.said, 3));
                app.said += 3;
                return;
            }
            Action::Refuse(_) => {
                self.agent
                    .refuse(app.key, RefusedReason::ConnectRefused, 111);
            }
            Action::Close(_) => self.agent.conclude(app.key, FinalCause::AppClosed),
            _ => {}
        }
        app.gone = true;
        self.agent.let_go(app.key);
    }

    pub(super) fn take(&mut self, link: usize, most: usize) -> Result<(), Broken> {
        let Some(app) = self.links[link].app.as_mut().filter(|app| !app.gone) else {
            return Ok(());
        };
        self.agent.look_at_clock(self.now);
        let cause = match self.agent.front(app.key) {
            Front::Bytes(bytes) if app.connected => {
                let bytes = bytes.slice(..bytes.len().min(most));
                return self.took(link, &bytes);
            }
            Front::Begin { begin, deadline } if app.connected => {
                if self.now >= deadline {
                    FinalCause::Expired
                } else if begin.expect_read != Some(self.agent.app_read(app.key)) {
                    FinalCause::Stale
                } else {
                    let index = usize::try_from(begin.request).unwrap_or(0);
                    app.begun.push((index, app.said));
                    self.agent.begun(app.key);
                    return self.begun_once(index);
                }
            }
            Front::Fenced { linger: false } => FinalCause::Fenced,
            Front::Closed { .. } => FinalCause::Reset,
            _ => return Ok(()),
        };
        app.gone = true;
        self.agent.conclude(app.key, cause);
        self.agent.let_go(app.key);
        Ok(())
    }

    fn begun_once(&self, index: usize) -> Result<(), Broken> {
        let apps = self.links.iter().filter_map(|link| link.app.as_ref());
        let begun = apps.flat_map(|app| &app.begun).filter(|(i, _)| *i == index);
        if begun.count() > 1 {
            return Err(format!("exchange {index} was begun twice"));
        }
        Ok(())
    }

    fn took(&mut self, link: usize, bytes: &Bytes) -> Result<(), Broken> {
        let Some(app) = self.links[link].app.as_mut() else {
            return Ok(());
        };
        let first = app.took;
        if !follows(bytes, first) {
            return Err(format!("the app was given a hole at {first}"));
        }
        self.agent.app_took(self.now, app.key, bytes.len());
        app.took += bytes.len() as u64;
        let end = app.took;
        for (index, exchange) in self.exchanges.iter().enumerate() {
            let is_here = self.plan.stream_of(index) == link && exchange.is_asked;
            let span = exchange.start..exchange.start + exchange.wrote;
            if !is_here || end <= span.start || first >= span.end {
                continue;
            }
            if exchange.told == Some(Delivery::NotDelivered) {
                return Err(format!(
                    "exchange {index} was called undelivered and arrived"
                ));
            }
            if first <= span.start && self.now.since(exchange.asked_at) > LATEST {
                return Err(format!("exchange {index} arrived too late"));
            }
        }
        Ok(())
    }

    // ---- the carrier -------------------------------------------------------------------------

    fn carry_to_agent(&mut self, most: usize) -> Result<(), Broken> {
        let part = self.to_agent.split_to(most.min(self.to_agent.len()));
        self.agent_inbox.unsplit(part);
        let heard = self.agent.handle_bytes(self.now, &mut self.agent_inbox);
        no_fault_found(heard)
    }

    fn carry_to_gateway(&mut self, most: usize) -> Result<(), Broken> {
        let part = self.to_gateway.split_to(most.min(self.to_gateway.len()));
        self.gateway_inbox.unsplit(part);
        let heard = self.gateway.handle_bytes(self.now, &mut self.gateway_inbox);
        no_fault_found(heard)
    }

    fn cut_at_gateway(&mut self) {
        self.to_gateway.clear();
        self.gateway_inbox.clear();
        self.gateway.suspend(self.now);
    }

    fn cut_at_agent(&mut self) {
        self.to_agent.clear();
        self.agent_inbox.clear();
        self.agent.suspend(self.now);
    }

    /// A handshake: refused if one side has no tunnel any more.
    pub(super) fn redial(&mut self) {
        if self.gateway.failure().is_some() || self.agent.failure().is_some() {
            self.lose();
            return;
        }
        self.cut_at_gateway();
        self.cut_at_agent();
        self.gateway.resume(self.now);
        self.agent.resume(self.now);
    }

    fn lose(&mut self) {
        self.to_agent.clear();
        self.to_gateway.clear();
        self.gateway.lose();
        self.agent.lose();
    }

    /// The earlier of both sides' timers rings; who has lost its carrier by it drops its bytes.
    pub(super) fn pass_deadline(&mut self) -> Result<(), Broken> {
        let due = |conn: &Conn| conn.failure().is_none().then(|| conn.poll_timeout());
        let next = due(&self.gateway).into_iter().chain(due(&self.agent)).min();
        self.now = self.now.max(next.unwrap_or(self.now));
        let gateway = self.gateway.handle_timeout(self.now);
        let agent = self.agent.handle_timeout(self.now);
        if self.gateway.wants_carrier() {
            self.cut_at_gateway();
        }
        if self.agent.wants_carrier() {
            self.cut_at_agent();
        }
        no_fault_found(gateway)?;
        no_fault_found(agent)
    }

    fn freeze(&mut self) -> Result<(), Broken> {
        let end = self.now + Duration::from_secs(3);
        while self.gateway.failure().is_none() && self.gateway.poll_timeout() <= end {
            self.now = self.now.max(self.gateway.poll_timeout());
            no_fault_found(self.gateway.handle_timeout(self.now))?;
        }
        self.now = end;
        if self.gateway.wants_carrier() {
            self.cut_at_gateway();
        }
        Ok(())
    }

    /// Pings a peer may send at any time behind its statement.
    fn flood(&mut self) -> Result<(), Broken> {
        let mut pings = BytesMut::new();
        (0..50).for_each(|_| encode(&Frame::Ping([9; 8]), &mut pings));
        for (conn, inbox) in [
            (&mut self.agent, &self.agent_inbox),
            (&mut self.gateway, &self.gateway_inbox),
        ] {
            if !conn.is_suspended() && inbox.is_empty() && conn.failure().is_none() {
                let heard = conn.handle_bytes(self.now, &mut pings.clone());
                heard.map_err(|error| format!("a ping was taken for a fault: {error}"))?;
            }
        }
        Ok(())
    }

    /// News of both cores; fates as soon as there are any.
    pub(super) fn hear(&mut self) -> Result<(), Broken> {
        while self.gateway.poll_event().is_some() {}
        while let Some(event) = self.agent.poll_event() {
            let Event::Incoming(key) = event else {
                continue;
            };
            let named = self.agent.asked(key).map(|(open, _)| open.app.parse());
            let Some(Ok(link)) = named else { continue };
            let link: usize = link;
            if self.links[link].app.is_some() {
                return Err("a stream was dialled twice".into());
            }
            self.links[link].app = Some(App {
                key,
                connected: false,
                gone: false,
                took: 0,
                said: 0,
                begun: Vec::new(),
            });
        }
        for fate in self.agent.take_fates() {
            self.fates.push((fate.stream.0, fate.written));
        }
        Ok(())
    }
}

/// Both sides are honest, so neither may find fault with the other; a tunnel that is over says so.
fn no_fault_found(heard: Result<(), ConnError>) -> Result<(), Broken> {
    match heard {
        Ok(()) | Err(ConnError::Closed | ConnError::Lapsed) => Ok(()),
        Err(other) => Err(format!("an honest peer was found at fault: {other}")),
    }
}

fn emit(conn: &mut Conn, budget: usize, pipe: &mut BytesMut) {
    let mut out = Outbox::default();
    conn.poll_transmit(&mut out, budget);
    out.segments()
        .for_each(|segment| pipe.extend_from_slice(segment));
}
