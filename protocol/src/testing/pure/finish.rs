//! The end of a world: whatever has happened, everything is told, nothing is left, and what was told
//! stays true.

use std::time::Duration;

use crate::conn::Conn;
use crate::verdict::Delivery;

use super::{Action, Broken, Link, World};

/// Rounds in which everything that can still move has moved.
const ROUNDS: usize = 60;

const CARRY: [Action; 4] = [
    Action::EmitGateway,
    Action::CarryToAgent,
    Action::EmitAgent,
    Action::CarryToGateway,
];

impl World {
    /// Lets the exchanges go on over a working carrier, gives up what does not end, and looks.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn finish(mut self) -> Result<(), Broken> {
        self.connect();
        self.settle()?;
        for index in 0..self.exchanges.len() {
            self.conclude(index)?;
        }
        self.release_all();
        self.settle()?;
        self.wait(Duration::from_millis(100))?;
        self.settle()?;
        self.check_nothing_left()?;
        self.check_fates()?;
        // What was told stays true a minute later.
        self.wait(Duration::from_secs(60))?;
        self.settle()
    }

    fn connect(&mut self) {
        let lost = self.gateway.failure().is_some() || self.agent.failure().is_some();
        if lost || self.gateway.is_suspended() || self.agent.is_suspended() {
            self.redial();
        }
    }

    /// Everybody does what is to be done, but nothing new is asked.
    fn settle(&mut self) -> Result<(), Broken> {
        for _ in 0..ROUNDS {
            let mut moved = false;
            for action in CARRY {
                moved |= match action {
                    Action::EmitGateway => self.gateway.wants_transmit(),
                    Action::EmitAgent => self.agent.wants_transmit(),
                    Action::CarryToAgent => !self.to_agent.is_empty(),
                    _ => !self.to_gateway.is_empty(),
                };
                self.step(action)?;
            }
            for link in 0..self.links.len() {
                let can = self.enabled();
                moved |= can.contains(&Action::Take(link));
                self.take(link, usize::MAX)?;
            }
            self.hear()?;
            if !moved {
                return Ok(());
            }
        }
        Err(format!("it never comes to rest: {:?}", self.enabled()))
    }

    /// One outcome for every exchange that was asked, in bounded time.
    fn conclude(&mut self, index: usize) -> Result<(), Broken> {
        if !self.exchanges[index].is_asked || self.exchanges[index].told.is_some() {
            return Ok(());
        }
        if !self.exchanges[index].given_up {
            self.step(Action::Expire(index))?;
        }
        self.settle()?;
        self.tell(index)?;
        let told = self.exchanges[index].told;
        let app = self.links[self.stream_of(index)].app.as_ref();
        let unseen = app.is_none_or(|app| app.took <= self.exchanges[index].start);
        // The tunnel stands and the agent answers, so every doubt can be settled.
        if told == Some(Delivery::Unknown) && unseen && !self.is_over() {
            return Err(format!("exchange {index} is unknown and was never seen"));
        }
        Ok(())
    }

    fn release_all(&mut self) {
        for link in &mut self.links {
            if let Some(key) = link.key
                && !std::mem::replace(&mut link.released, true)
            {
                self.gateway.release(key);
            }
        }
    }

    fn wait(&mut self, span: Duration) -> Result<(), Broken> {
        let end = self.now + span;
        let over = |conn: &Conn| conn.failure().is_some();
        while !over(&self.gateway) && !over(&self.agent) {
            if self.gateway.poll_timeout().min(self.agent.poll_timeout()) > end {
                break;
            }
            self.pass_deadline()?;
            for action in CARRY {
                self.step(action)?;
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    fn check_nothing_left(&self) -> Result<(), Broken> {
        let apps = self.links.iter().filter_map(|link| link.app.as_ref());
        if let Some(app) = apps.into_iter().find(|app| !app.gone) {
            return Err(format!("an app's connection outlives its stream: {app:?}"));
        }
        for (name, core) in [("gateway", &self.gateway), ("agent", &self.agent)] {
            if core.live_streams() > 0 || core.held_slots() > 0 {
                return Err(format!("streams are left at the {name}: {core:?}"));
            }
        }
        Ok(())
    }

    /// What an agent reports of a lost tunnel is what its app's sockets took.
    fn check_fates(&self) -> Result<(), Broken> {
        for (stream, written) in &self.fates {
            let took = |link: &Link| link.app.as_ref().is_some_and(|app| app.took == *written);
            if *written > 0 && !self.links.iter().any(took) {
                return Err(format!("stream {stream} is said to have written {written}"));
            }
        }
        Ok(())
    }
}
