//! The tries of one exchange: pick a tunnel, get a connection, forward, and what follows a failure.
//!
//! A try is repeated only as `retry` allows. After each failed try the stream is given up first and
//! judged then, so that nothing can be delivered after it was called undelivered.

mod connect;
mod failure;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bridgehead_protocol::conn::{Ended, View};
use bridgehead_protocol::io::StreamControl;
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::verdict::{Delivery, Judgement, Reason};
use bridgehead_protocol::wire::ResetCode;
use futures_util::FutureExt;
use http::HeaderMap;

use self::connect::Link;
use self::failure::reason;
use super::admission::Rejoined;
use super::allowance::Portion;
use super::app::{AppExchange, AppFault, AppSide, Offsets, RequestHead};
use super::apps::AppState;
use super::evidence::{self, COUNT_WITHIN, judgement};
use super::forward::{Finish, Forward, Parts};
use super::forwarded::{self, Hop, Trust};
use super::front::{ClientAnswer, ClientBody};
use super::head::{self, Shape};
use super::load::GivenUp;
use super::normalize::Normal;
use super::outcome::{self, OUTCOME_KEY, Trace};
use super::retry::{Failed, Next, Tries};
use super::upload::Upload;
use super::windows::{Lengths, Windows};
use super::{Exchange, Exchanges, Shared};
use crate::config::Go;
use crate::ledger::Fact;
use crate::route::AppRoute;
use crate::telemetry::access::AppConn;
use crate::telemetry::labels::HoldResult;
use crate::tunnel::live::Place;
use crate::tunnel::registry::TunnelNumber;

/// An unsafe method does not use a kept connection that was idle for longer: the longer it was,
/// the likelier the app is closing it just now.
const UNSAFE_IDLE: Duration = Duration::from_secs(1);

/// What one try needs beyond the exchange.
struct Attempt<'a> {
    route: &'a AppRoute,
    app: &'a Arc<AppState>,
    normal: &'a Normal,
    headers: &'a HeaderMap,
    key: [u8; 16],
    upload: Upload,
    windows: Windows,
    load: super::load::Load,
    /// What the answer may hold of what its client's connection may.
    portion: Portion,
    avoid: Vec<TunnelNumber>,
    /// No kept connection: the last one proved stale.
    fresh_only: bool,
}

/// A try that did not deliver an answer.
struct Miss {
    finish: Finish,
    judgement: Judgement,
    reason: Reason,
    reused: bool,
    tunnel: Option<TunnelNumber>,
    /// For the ledger, if the app may have been reached.
    trace: Option<Box<Trace>>,
}

impl Miss {
    fn before_handover(reason: Reason, tunnel: Option<TunnelNumber>) -> Self {
        let finish = Finish::App(AppFault::Ended(Ended::NotOpened));
        Self {
            finish,
            judgement: Judgement::NOT_DELIVERED,
            reason,
            reused: false,
            tunnel,
            trace: None,
        }
    }

    /// The same on a kept connection.
    fn of_reused(mut self) -> Self {
        self.reused = true;
        self
    }
}

impl Exchanges {
    pub(super) async fn serve_app<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        route: &AppRoute,
        app: &Arc<AppState>,
        normal: &mut Normal,
    ) {
        let shared = self.shared();
        let headers = marked(shared, exchange, normal);
        let settings = &route.settings;
        let lengths = Lengths {
            first_frame: settings.first_frame_window,
            stall: settings.stall_window,
            streaming_stall: settings.streaming_stall_window,
        };
        let now = shared.clock.now();
        let mut tries = Tries::begin(now, shared.hold(route, app), settings.first_frame_window);
        let held = exchange.info.allowance.as_ref();
        let mut attempt = Attempt {
            route,
            app,
            normal,
            headers: &headers,
            key: shared.chance.bytes(),
            upload: Upload::new(settings.max_body, held.map(|held| Arc::clone(&held.bodies))),
            windows: Windows::open(lengths, now),
            load: shared.loads.begin(),
            portion: Portion::of(held.map(|held| &held.answers)),
            avoid: Vec::new(),
            fresh_only: false,
        };
        // What a repeated read may have done before; nothing that follows takes it back.
        let mut earlier = None;
        loop {
            exchange.guard.enter_in_flight();
            let Err(mut miss) = shared.attempt(exchange, &mut attempt).await else {
                return;
            };
            exchange.page.missed(miss.trace.take());
            let now = shared.clock.now();
            // A try that ended while the client was waited for left the window standing still.
            attempt.windows.pause(now, false);
            let told = told(earlier, miss.judgement);
            if miss.finish == Finish::ClientLeft {
                return exchange.leave(told);
            }
            let next = if exchange.answer.head_sent() {
                Next::GiveUp
            } else {
                tries.after(now, shared.failed(&attempt, &miss, earlier.is_some()))
            };
            let next = match next {
                // A gateway that drains holds nobody; tunnels it still has.
                Next::After(_) if shared.shutdown.is_draining() => Next::GiveUp,
                next => next,
            };
            if told.delivery != Delivery::NotDelivered {
                earlier = Some(told);
            }
            match next {
                Next::GiveUp => {
                    exchange.guard.end_hold(now, HoldResult::Expired);
                    let failure = shared.failure(&attempt, &miss, told);
                    return exchange.fail(&failure).await;
                }
                Next::AtOnce => {
                    attempt.fresh_only |= miss.reused;
                    if !miss.reused {
                        attempt.avoid.extend(miss.tunnel);
                    }
                }
                Next::After(pause) => {
                    if exchange.guard.begin_hold(now).is_err() {
                        let failure = shared.failure(&attempt, &miss, told);
                        return exchange.fail(&failure).await;
                    }
                    attempt.avoid.clear();
                    let turn = shared.turn(&mut *exchange.body, app, &tries, pause);
                    if turn.await == Waited::ClientLeft {
                        return exchange.leave(told);
                    }
                    let patience = shared.remaining(&attempt);
                    match shared.rejoin(exchange, route, app, patience).await {
                        Rejoined::In => {}
                        Rejoined::ClientLeft => return exchange.leave(told),
                        Rejoined::Denied(denied) => {
                            let now = shared.clock.now();
                            exchange.guard.end_hold(now, HoldResult::Expired);
                            let failure = match told.delivery == Delivery::NotDelivered {
                                true => denied,
                                false => shared.failure(&attempt, &miss, told),
                            };
                            return exchange.fail(&failure).await;
                        }
                    }
                }
            }
            exchange.guard.retried(miss.reason);
            attempt.upload.rewind();
        }
    }
}

/// End-to-end fields with ours in them.
fn marked<B, A>(shared: &Shared, exchange: &Exchange<'_, B, A>, normal: &mut Normal) -> HeaderMap {
    // Nobody asks the request for them any more.
    let mut headers = std::mem::take(&mut normal.headers);
    headers.remove(OUTCOME_KEY);
    let trusted = shared.trusts(exchange.info);
    forwarded::mark(
        &mut headers,
        &Hop {
            peer: exchange.info.peer.ip(),
            peer_trust: if trusted { Trust::Proxy } else { Trust::Nobody },
            tls: exchange.info.tls,
            authority: &normal.authority,
            request_id: &exchange.id.hyphenated().to_string(),
        },
    );
    headers
}

#[derive(PartialEq, Eq)]
enum Waited {
    Through,
    ClientLeft,
}

impl Shared {
    /// Waits, unless the client leaves first or the gateway drains. The body stays in its socket.
    async fn wait<B: ClientBody>(&self, body: &mut B, pause: Duration) -> Waited {
        let mut shutdown = self.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.draining() => Waited::Through,
            () = poll_fn(|cx| body.poll_left(cx)) => Waited::ClientLeft,
            () = tokio::time::sleep(pause) => Waited::Through,
        }
    }

    /// Waits for the turn of a held exchange. When its hold ends it tries once more in any case.
    async fn turn<B: ClientBody>(
        &self,
        body: &mut B,
        app: &AppState,
        tries: &Tries,
        mut pause: Duration,
    ) -> Waited {
        loop {
            if self.wait(body, pause).await == Waited::ClientLeft {
                return Waited::ClientLeft;
            }
            if self.shutdown.is_draining() {
                return Waited::Through;
            }
            let now = self.clock.now();
            let Some(look) = tries.next_look(now) else {
                return Waited::Through;
            };
            match app.turn(now) {
                Some(turn) => return self.wait(body, turn.min(look)).await,
                None => pause = look,
            }
        }
    }

    async fn attempt<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        attempt: &mut Attempt<'_>,
    ) -> Result<(), Miss> {
        let Some(place) = self.tunnels.take(&attempt.app.name, &attempt.avoid) else {
            attempt.app.refused(self.clock.now(), Reason::NoAgent);
            return Err(Miss::before_handover(Reason::NoAgent, None));
        };
        exchange.guard.tunnel(&place.tunnel.agent, &place.tunnel.id);
        let mut link = self.link(exchange, attempt, place)?;
        if link.conn == AppConn::Fresh && self.waits_for_opened(attempt, &link) {
            link = self.standing(exchange, attempt, link).await?;
        }
        let Link {
            place,
            connection,
            seat,
            conn,
        } = link;
        let (number, resumes) = (place.tunnel.number, place.tunnel.resumes());
        let (head, shape) = self.head(attempt, &place);
        let remaining = self.remaining(attempt);
        exchange.guard.handed_over();
        exchange.page.hands_over();
        let mut app = AppExchange::begin(connection, head, exchange.id.as_u128(), remaining);
        let control = app.control().clone();
        let (name, avoid) = (&attempt.app.name, &attempt.avoid);
        let elsewhere = || self.tunnels.stands_beside(name, avoid, Some(number));
        let mut forward = Forward::new(Parts {
            body: &mut *exchange.body,
            answer: &mut *exchange.answer,
            app: &mut app,
            upload: &mut attempt.upload,
            windows: &mut attempt.windows,
            guard: &mut exchange.guard,
            state: attempt.app,
            clock: self.clock,
            method: &attempt.normal.method,
            protocol: attempt.normal.protocol,
            streaming: &attempt.route.settings.streaming_types,
            shape: &shape,
            load: &attempt.load,
            elsewhere: &elsewhere,
            portion: &mut attempt.portion,
            limits: &exchange.asked.fields,
        });
        let finish = match conn {
            AppConn::Reused => forward.run().await,
            AppConn::Fresh => self.attended(&seat, &control, forward.run()).await,
        };
        let status = forward.app_status();
        let again = place.tunnel.resumes().wrapping_sub(resumes);
        exchange.guard.resumed(again);
        if finish != Finish::Complete {
            return Err(self
                .failed_try(attempt, finish, app, conn, &place, status)
                .await);
        }
        exchange.guard.answered();
        exchange.page.answered(status);
        if let Some(connection) = app.into_kept() {
            seat.keep(connection, number, self.clock.now());
        }
        Ok(())
    }

    fn head(&self, attempt: &Attempt<'_>, place: &Place) -> (RequestHead, Shape) {
        let policy = &attempt.route.settings.host_header;
        let host = forwarded::host_for_app(policy, &place.upstream_host, &attempt.normal.authority);
        head::request(attempt.normal, attempt.headers.clone(), host, attempt.key)
    }

    fn remaining(&self, attempt: &Attempt<'_>) -> Duration {
        let now = self.clock.now();
        attempt
            .windows
            .due()
            .map_or(Duration::ZERO, |due| due.since(now))
    }

    /// GO rule: on a new connection these wait for OPENED before their first byte. At an app that may
    /// have no place all of them do, so that they can leave a connection that does not come to stand.
    fn waits_for_opened(&self, attempt: &Attempt<'_>, link: &Link) -> bool {
        let by_route = match attempt.route.settings.go {
            Go::Always => true,
            Go::Unsafe => !attempt.normal.method.is_safe(),
            Go::Never => false,
        };
        by_route || attempt.normal.expect_continue || link.seat.is_crowded(self.clock.now())
    }

    /// Gives the exchange up, then says what is known of it. Answer bytes that come while the counts
    /// are awaited count as well.
    async fn failed_try(
        &self,
        attempt: &Attempt<'_>,
        finish: Finish,
        mut app: AppExchange,
        conn: AppConn,
        place: &Place,
        status: Option<u16>,
    ) -> Miss {
        let control = app.control().clone();
        let finish = match finish {
            // Not the app's doing, nor the agent's: the tunnel held too much and gave this stream up.
            Finish::App(_) if control.view().starved => Finish::GivenUp(GivenUp::Memory),
            finish => finish,
        };
        let emitted = give_up(finish, &control, app.offsets()).await;
        app.look();
        let (view, offsets) = (control.view(), app.offsets());
        let evidence = evidence::evidence(&view, offsets, emitted);
        let mut judgement = judgement(&view, offsets, emitted);
        if judgement.delivery == Delivery::Unknown
            && let Some(fact) = self.reported(&view, &control, place).await
        {
            let known = outcome::known(evidence, status, &app);
            judgement = known.with(fact).judgement;
        }
        let number = place.tunnel.number;
        let mut miss = self.miss(attempt, finish, &control, judgement, conn, number);
        if judgement.delivery != Delivery::NotDelivered {
            let trace = Trace::of(finish, evidence, status, &place.tunnel, app);
            miss.trace = Some(Box::new(trace));
        }
        miss
    }

    /// What the agent reports of a stream without a terminal, as one that gave the tunnel up before the
    /// gateway did. Where the tunnel was lost with its carrier it dials anew at once, and reports first of
    /// all: then that is waited for, no longer than for counts.
    async fn reported(&self, view: &View, control: &StreamControl, place: &Place) -> Option<Fact> {
        let tunnel = &place.tunnel;
        let lost = matches!(view.ended, Some(Ended::Lost));
        if view.counted.is_some() || (view.ended.is_some() && !lost) {
            return None;
        }
        // One that was replaced or revoked has nobody to report to.
        let returns =
            lost && !tunnel.tunnel.is_resumable() && !tunnel.retired.load(Ordering::Relaxed);
        let stream = control.id()?;
        let reported = self.ledger.reported(&tunnel.identity, &tunnel.id, stream);
        if !returns {
            return reported.now_or_never();
        }
        tokio::time::timeout(COUNT_WITHIN, reported).await.ok()
    }

    fn miss(
        &self,
        attempt: &Attempt<'_>,
        finish: Finish,
        control: &StreamControl,
        judgement: Judgement,
        conn: AppConn,
        tunnel: TunnelNumber,
    ) -> Miss {
        let view = control.view();
        if view.opened {
            attempt.app.reached();
        }
        let reason = reason(finish, judgement, conn);
        if matches!(view.ended, Some(Ended::Refused { .. })) {
            attempt.app.refused(self.clock.now(), reason);
        }
        Miss {
            finish,
            judgement,
            reason,
            reused: conn == AppConn::Reused,
            tunnel: Some(tunnel),
            trace: None,
        }
    }

    fn failed(&self, attempt: &Attempt<'_>, miss: &Miss, read_repeated: bool) -> Failed {
        let (name, avoid) = (&attempt.app.name, &attempt.avoid);
        let method = &attempt.normal.method;
        let read = *method == http::Method::GET || *method == http::Method::HEAD;
        Failed {
            reason: miss.reason,
            delivery: match Bug::HoldRepeatsWritten.bites() {
                true => Delivery::NotDelivered,
                false => miss.judgement.delivery,
            },
            body_kept: attempt.upload.is_kept() && may_end_otherwise(miss.finish),
            returning: self.tunnels.awaits(&attempt.app.name),
            other_tunnel: self.tunnels.stands_beside(name, avoid, miss.tunnel),
            reused: miss.reused,
            declared_read: attempt.route.settings.repeat_reads && read,
            read_repeated,
        }
    }
}

/// What may be said of the exchange after its tries so far.
fn told(earlier: Option<Judgement>, last: Judgement) -> Judgement {
    match last.delivery {
        Delivery::NotDelivered => earlier.unwrap_or(last),
        Delivery::Unknown | Delivery::Delivered => last,
    }
}

/// Gives the stream up and waits for the agent's counts where they could still prove something.
/// Answers the highest request offset ever emitted.
async fn give_up(finish: Finish, control: &StreamControl, offsets: Offsets) -> u64 {
    let stale = match Bug::EmittedNotByCore.bites() {
        true => Some(control.view().emitted),
        false => None,
    };
    if stale.is_some() {
        tokio::task::yield_now().await;
    }
    let emitted = match finish {
        Finish::ClientLeft if Bug::CancelNotPassedOn.bites() => control.view().emitted,
        Finish::Window(_) => control.fence(offsets.whole.is_some()),
        Finish::Upload(_) | Finish::App(AppFault::GaveUp(_)) => control.fence(false),
        Finish::ClientLeft | Finish::GivenUp(_) => control.reset(ResetCode::Cancelled),
        Finish::App(AppFault::BadHttp(_)) => control.reset(ResetCode::AppBroken),
        Finish::App(AppFault::NoUpgrade(_) | AppFault::Unspeakable(_)) => {
            control.reset(ResetCode::Idle)
        }
        Finish::App(AppFault::Ended(_)) | Finish::Complete => control.reset(ResetCode::Internal),
    };
    let emitted = stale.unwrap_or(emitted);
    let proven = emitted <= offsets.start || offsets.answer > 0;
    if proven {
        return emitted;
    }
    evidence::count(control).await;
    // Of what was given up a carrier that was lost meanwhile may have taken less.
    emitted.min(control.view().emitted)
}

/// Another try may end otherwise. The client's own faults stay, whoever is asked.
fn may_end_otherwise(finish: Finish) -> bool {
    match finish {
        Finish::App(fault) => !matches!(fault, AppFault::Unspeakable(_)),
        Finish::Complete
        | Finish::ClientLeft
        | Finish::GivenUp(_)
        | Finish::Window(_)
        | Finish::Upload(_) => false,
    }
}
