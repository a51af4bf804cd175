//! A connection to the app for one try: kept, new, or handed over by another exchange; and patience
//! with a new one that the app does not take up.
//!
//! That a new connection stands says nothing about the app (see `tunnel::uptake`). While it gives no
//! sign, idle connections of the same app are closed one by one, so that an app which serves one
//! connection at a time comes to this one. An exchange none of whose bytes is on its way may leave a
//! new connection that does not even stand for one that becomes free.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bridgehead_protocol::conn::{Ended, OpenError};
use bridgehead_protocol::io::StreamControl;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{Reason, WindowKind};
use bridgehead_protocol::wire::{AppKind as WireKind, Open};

use super::{Attempt, Miss, UNSAFE_IDLE, give_up};
use crate::config::AppKind;
use crate::request::app::{AppFault, Offsets};
use crate::request::evidence::judgement;
use crate::request::forward::Finish;
use crate::request::front::{ClientAnswer, ClientBody};
use crate::request::{Exchange, Shared};
use crate::telemetry::access::AppConn;
use crate::tunnel::connection::AppConnection;
use crate::tunnel::live::Place;
use crate::tunnel::pool::{Kept, Seat, Wanted};
use crate::tunnel::registry::TunnelNumber;
use crate::tunnel::uptake::PATIENCE;

/// What a try runs on.
pub(super) struct Link {
    pub(super) place: Place,
    pub(super) connection: AppConnection,
    pub(super) seat: Seat,
    pub(super) conn: AppConn,
}

/// How a wait for a connection to stand ended well.
enum Stood {
    Own,
    Given(Kept),
}

impl Shared {
    /// A kept connection, or a new one whose OPEN is queued.
    pub(super) fn link<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        attempt: &mut Attempt<'_>,
        mut place: Place,
    ) -> Result<Link, Miss> {
        let now = self.clock.now();
        let pool = place.tunnel.pool.app(&attempt.app.name);
        let at_most = if attempt.normal.method.is_safe() {
            self.bounds.load().app_idle
        } else {
            UNSAFE_IDLE
        };
        let wanted = Wanted {
            tunnel: place.tunnel.number,
            avoid: &attempt.avoid,
            at_most,
        };
        if !attempt.fresh_only
            && let Some(kept) =
                pool.take(now, wanted, |kept| attempt.portion.bears(kept.exposure()))
        {
            match self.reused(exchange, attempt, kept, place) {
                Ok(link) => return Ok(link),
                Err(picked) => place = picked,
            }
        }
        let seat = pool.ask(now);
        let kind = match attempt.route.kind {
            AppKind::H2c => WireKind::H2c,
            AppKind::Http1 | AppKind::Tcp => WireKind::Http1,
        };
        let open = Open {
            app: attempt.app.name.to_string(),
            kind,
            remaining: self.remaining(attempt).min(self.bounds.load().app_connect),
            credit: 0,
            client: Some(exchange.info.peer),
        };
        let usual = self.enroll.terms.load().settings.initial_window;
        let cap = attempt.portion.first(usual).unwrap_or(u32::MAX);
        match place.tunnel.tunnel.open_within(open, cap) {
            Ok(stream) => Ok(Link {
                connection: AppConnection::new(kind, stream, cap),
                seat,
                conn: AppConn::Fresh,
                place,
            }),
            Err(error) => {
                let reason = match error {
                    OpenError::Lost => Reason::TunnelLost,
                    OpenError::GoingAway => Reason::AgentDraining,
                    OpenError::Full => Reason::AgentLimit,
                };
                Err(Miss::before_handover(reason, Some(place.tunnel.number)))
            }
        }
    }

    /// Goes on with a kept connection. Its tunnel may be another one than was picked; if that takes no
    /// exchange any more, the picked place comes back.
    fn reused<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        attempt: &Attempt<'_>,
        mut kept: Kept,
        picked: Place,
    ) -> Result<Link, Place> {
        let place = if kept.tunnel == picked.tunnel.number {
            picked
        } else {
            let name = &attempt.app.name;
            let Some(place) = self.tunnels.take_on(kept.tunnel, name) else {
                return Err(picked);
            };
            exchange.guard.tunnel(&place.tunnel.agent, &place.tunnel.id);
            place
        };
        exchange.guard.opened(self.clock.now(), AppConn::Reused);
        // Its last exchange may have had little.
        kept.connection.control().keep_at_most(None);
        if attempt.portion.is_everything() {
            kept.connection.cap(u32::MAX);
        }
        Ok(Link {
            place,
            connection: kept.connection,
            seat: kept.seat,
            conn: AppConn::Reused,
        })
    }

    /// Waits until a new connection stands, or another one is handed over in its place.
    pub(super) async fn standing<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        attempt: &mut Attempt<'_>,
        link: Link,
    ) -> Result<Link, Miss> {
        let number = link.place.tunnel.number;
        let control = link.connection.control().clone();
        match self
            .opened(exchange, attempt, &control, &link.seat, number)
            .await
        {
            Ok(Stood::Own) => {
                link.seat.stands();
                exchange.guard.opened(self.clock.now(), link.conn);
                attempt.app.reached();
                Ok(link)
            }
            // The new one is dropped: nothing was said on it.
            Ok(Stood::Given(kept)) => {
                attempt.portion.takes(kept.connection.exposure());
                attempt.app.reached();
                self.reused(exchange, attempt, kept, link.place)
                    .map_err(|_| Miss::before_handover(Reason::StaleConnection, None).of_reused())
            }
            Err(finish) => {
                let emitted = give_up(finish, &control, Offsets::UNBEGUN).await;
                let judgement = judgement(&control.view(), Offsets::UNBEGUN, emitted);
                Err(self.miss(attempt, finish, &control, judgement, link.conn, number))
            }
        }
    }

    /// Waits for OPENED under the first-frame window, with the client's body still in its socket.
    async fn opened<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        attempt: &Attempt<'_>,
        control: &StreamControl,
        seat: &Seat,
        number: TunnelNumber,
    ) -> Result<Stood, Finish> {
        let due = attempt.windows.due().unwrap_or(Moment::ZERO);
        let (name, avoid) = (&attempt.app.name, &attempt.avoid);
        let elsewhere = || self.tunnels.stands_beside(name, avoid, Some(number));
        let opened = poll_fn(|cx: &mut Context<'_>| match control.poll_opened(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(Stood::Own)),
            Poll::Ready(Err(ended)) => Poll::Ready(Err(Finish::App(AppFault::Ended(ended.0)))),
            // Nothing was handed over: whoever stands takes it, and nobody waits for a carrier.
            Poll::Pending if control.view().suspended && elsewhere() => {
                let stranded = AppFault::Ended(Ended::NotOpened);
                Poll::Ready(Err(Finish::App(stranded)))
            }
            Poll::Pending if exchange.body.poll_left(cx).is_ready() => {
                Poll::Ready(Err(Finish::ClientLeft))
            }
            Poll::Pending => {
                let given_up = attempt.load.poll_given_up(cx);
                given_up.map(|why| Err(Finish::GivenUp(why)))
            }
        });
        let given = async {
            tokio::time::sleep(PATIENCE).await;
            let mut given = pin!(seat.call());
            loop {
                seat.make_room(self.clock.now());
                if let Ok(Ok(kept)) = tokio::time::timeout(PATIENCE, given.as_mut()).await {
                    return Ok(Stood::Given(kept));
                }
            }
        };
        tokio::select! {
            biased;
            stood = opened => stood,
            given = given => given,
            () = tokio::time::sleep_until(self.clock.instant(due)) => {
                Err(Finish::Window(WindowKind::FirstFrame))
            }
        }
    }

    /// Runs a try. As long as the app gives no sign on a new connection, room is made for it.
    pub(super) async fn attended<F: Future>(
        &self,
        seat: &Seat,
        control: &StreamControl,
        run: F,
    ) -> F::Output {
        let (mut run, mut patience) = (pin!(run), pin!(tokio::time::sleep(PATIENCE)));
        let mut waiting = true;
        poll_fn(|cx| {
            let done = run.as_mut().poll(cx);
            if waiting {
                waiting = is_unheard(seat, control);
            }
            while waiting && done.is_pending() {
                ready!(patience.as_mut().poll(cx));
                waiting = seat.make_room(self.clock.now());
                let next = tokio::time::Instant::now() + PATIENCE;
                patience.as_mut().reset(next);
            }
            done
        })
        .await
    }
}

/// Tells the seat what the stream knows; true while the app gave no sign.
fn is_unheard(seat: &Seat, control: &StreamControl) -> bool {
    let view = control.view();
    if view.received > 0 {
        seat.taken_up();
    } else if view.opened {
        seat.stands();
    }
    view.received == 0
}
