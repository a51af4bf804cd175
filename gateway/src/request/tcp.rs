//! A TCP app's client: one stream, bytes both ways, half-close kept. No HTTP, no windows; the verdict
//! stands in the log and the metrics.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::conn::View;
use bridgehead_protocol::io::{StreamControl, TunnelStream};
use bridgehead_protocol::verdict::{Code, Delivery, Reason};
use bridgehead_protocol::wire::{AppKind, Open, ResetCode};
use std::future::poll_fn;
use tokio::io::copy_bidirectional_with_sizes;

use super::admission::{count_share, overload};
use super::app::Offsets;
use super::apps::AppState;
use super::front::{ClientInfo, RawClient};
use super::load::{GivenUp, Load};
use super::retry::{Failed, Next, Tries};
use super::{Exchanges, Shared, draining, evidence};
use crate::config::defaults::DEAD_AFTER;
use crate::error::Failure;
use crate::route::AppRoute;
use crate::telemetry::access::{AppConn, ExchangeGuard, Protocol};
use crate::telemetry::labels::{ConnectionKind, HoldResult};
use crate::tunnel::live::Place;
use crate::tunnel::registry::TunnelNumber;

/// The agent's word about a connection may take this much longer than the connection itself, or than
/// the silence after which the tunnel's own connection is replaced.
const OPENED_SLACK: Duration = Duration::from_secs(1);

/// Bytes copied at once, each way.
const COPY: usize = 16 * 1024;

/// Why bytes do not go on.
enum CutShort {
    /// One side broke.
    Broken,
    /// The gateway gave the connection up.
    GivenUp(GivenUp),
}

/// A client's connection. Unless both sides have said all it closes by a reset, however it is dropped:
/// nobody may take what was cut for an orderly end.
struct Client<IO: RawClient> {
    io: IO,
    said_all: bool,
}

impl<IO: RawClient> Client<IO> {
    fn new(io: IO) -> Self {
        Self {
            io,
            said_all: false,
        }
    }
}

impl<IO: RawClient> Drop for Client<IO> {
    fn drop(&mut self) {
        if !self.said_all {
            self.io.reset_on_close();
        }
    }
}

impl Exchanges {
    /// Serves one connection to the end. Dropping the future closes it abruptly.
    pub async fn serve_tcp<IO: RawClient>(&self, client: IO, info: ClientInfo, app: &str) {
        let shared = self.shared();
        let mut client = Client::new(client);
        let state = shared.apps.state(app);
        let _place = shared.sinks.metrics().connection(ConnectionKind::Tcp);
        let now = shared.clock.now();
        let sinks = Arc::clone(&shared.sinks);
        let mut guard = ExchangeGuard::new(
            sinks,
            shared.request_id(now),
            now,
            info.peer.ip(),
            Protocol::Tcp,
        );
        guard.app(&state.name, &state.metrics);
        let route = shared.routes.load().app(app).map(Arc::clone);
        let admitted = route.as_ref().map(|route| {
            let limits = &route.settings.admission;
            state.gate.enter_long_lived(now, limits, info.peer.ip())
        });
        if shared.pressure.is_full() {
            return guard.turned_away(&overload());
        }
        let load = shared.loads.begin();
        let way = Way::of(shared, route.as_deref(), &state, &load);
        match admitted {
            Some(Ok(permit)) => guard.admitted(now, permit),
            Some(Err(denied)) => {
                count_share(&state.metrics, denied.share());
                return guard.turned_away(&denied.failure());
            }
            None => {
                let failure = Failure::refused(Code::AppNotFound, Reason::NoRoute);
                return guard.turned_away(&failure);
            }
        }
        let found = shared.reach(&mut guard, &way, &info, &client.io).await;
        let (place, mut stream) = match found {
            Ok(found) => found,
            Err(failure) => return guard.aborted(&failure),
        };
        let resumes = place.tunnel.resumes();
        load.stream(stream.control());
        let copied = tokio::select! {
            biased;
            why = poll_fn(|cx| load.poll_given_up(cx)) => Err(CutShort::GivenUp(why)),
            copied = copy_bidirectional_with_sizes(&mut client.io, &mut stream, COPY, COPY) => {
                copied.map_err(|_| CutShort::Broken)
            }
        };
        guard.resumed(place.tunnel.resumes().wrapping_sub(resumes));
        match copied {
            Ok(_) => {
                client.said_all = true;
                let view = stream.control().view();
                guard.bytes_in(view.queued_to);
                guard.bytes_out(view.taken);
                guard.answered();
            }
            Err(why) => cut_short(&mut guard, stream.control(), why).await,
        }
    }
}

/// Gives the stream up and says what is known of it.
async fn cut_short(guard: &mut ExchangeGuard, control: &StreamControl, why: CutShort) {
    // Before the reset, which makes an end of its own.
    let blamed = blamed(why, &control.view());
    // Given up first: what may be said rests on what was emitted until then.
    let emitted = control.reset(ResetCode::Cancelled);
    evidence::count(control).await;
    let view = control.view();
    guard.bytes_in(view.queued_to);
    guard.bytes_out(view.taken);
    let offsets = Offsets {
        start: 0,
        head: 0,
        whole: None,
        so_far: view.queued_to,
        answer: view.received,
    };
    let judgement = evidence::judgement(&view, offsets, emitted);
    match blamed {
        Some((code, reason)) => guard.aborted(&Failure::judged(code, reason, judgement)),
        None => guard.left(judgement),
    }
}

/// Who cut the bytes short, by what the stream showed until then; nobody but the client if it lived.
fn blamed(why: CutShort, view: &View) -> Option<(Code, Reason)> {
    match (why, view.ended) {
        (CutShort::GivenUp(GivenUp::Ending), _) => {
            Some((Code::ServiceUnavailable, Reason::Draining))
        }
        (CutShort::GivenUp(GivenUp::Memory), _) => {
            Some((Code::ServiceUnavailable, Reason::Overload))
        }
        (CutShort::Broken, _) if view.starved => Some((Code::ServiceUnavailable, Reason::Overload)),
        (CutShort::Broken, Some(ended)) => Some(match evidence::reason(ended) {
            Reason::ClosedBeforeHead => (Code::BhAppBroken, Reason::AppClosed),
            reason => (Code::BhAppBroken, reason),
        }),
        (CutShort::Broken, None) => None,
    }
}

/// Where a connection leads, and how long that may take.
struct Way<'a> {
    app: &'a AppState,
    hold: Duration,
    window: Duration,
    load: &'a Load,
}

impl<'a> Way<'a> {
    fn of(shared: &Shared, route: Option<&AppRoute>, app: &'a AppState, load: &'a Load) -> Self {
        Self {
            app,
            load,
            hold: route.map_or(Duration::ZERO, |route| shared.hold(route, app)),
            window: route.map_or(Duration::ZERO, |route| route.settings.first_frame_window),
        }
    }
}

/// A try that reached nobody: nothing was sent.
struct Missed {
    reason: Reason,
    tunnel: Option<TunnelNumber>,
}

impl Shared {
    /// A stream whose app's connection stands. As for HTTP another agent is asked at once and the same
    /// one after a pause, as long as the route's hold allows: nothing of the client was read yet.
    async fn reach(
        &self,
        guard: &mut ExchangeGuard,
        way: &Way<'_>,
        info: &ClientInfo,
        client: &impl RawClient,
    ) -> Result<(Place, TunnelStream), Failure> {
        let mut tries = Tries::begin(self.clock.now(), way.hold, way.window);
        let mut avoid = Vec::new();
        loop {
            guard.enter_long_lived();
            let missed = match self.try_tcp(guard, way, info, &avoid).await {
                Ok(found) => {
                    guard.end_hold(self.clock.now(), HoldResult::Released);
                    return Ok(found);
                }
                Err(missed) => missed,
            };
            let now = self.clock.now();
            avoid.extend(missed.tunnel);
            let next = match tries.after(now, self.not_reached(way, missed.reason, &avoid)) {
                Next::AtOnce => Next::AtOnce,
                // A gateway that drains holds nobody; tunnels it still has.
                _ if self.shutdown.is_draining() => return Err(draining()),
                next => next,
            };
            match next {
                Next::AtOnce => {}
                Next::After(pause) => {
                    avoid.clear();
                    if guard.begin_hold(now).is_err() {
                        return Err(Failure::refused(Code::BhAppStarting, missed.reason));
                    }
                    let turn = way.app.turn(now + pause).unwrap_or_default();
                    if let Hold::Over = self.wait_tcp(client, pause + turn).await {
                        return Err(Failure::refused(Code::BhAppStarting, missed.reason));
                    }
                }
                Next::GiveUp => {
                    guard.end_hold(now, HoldResult::Expired);
                    return Err(Failure::refused(Code::BhAppStarting, missed.reason));
                }
            }
            guard.retried(missed.reason);
        }
    }

    fn not_reached(&self, way: &Way<'_>, reason: Reason, avoid: &[TunnelNumber]) -> Failed {
        Failed {
            reason,
            delivery: Delivery::NotDelivered,
            body_kept: true,
            other_tunnel: self.tunnels.take(&way.app.name, avoid).is_some(),
            returning: self.tunnels.awaits(&way.app.name),
            reused: false,
            declared_read: false,
            read_repeated: false,
        }
    }

    async fn try_tcp(
        &self,
        guard: &mut ExchangeGuard,
        way: &Way<'_>,
        info: &ClientInfo,
        avoid: &[TunnelNumber],
    ) -> Result<(Place, TunnelStream), Missed> {
        let app = way.app;
        let missed = |reason, tunnel| {
            app.refused(self.clock.now(), reason);
            Missed { reason, tunnel }
        };
        let Some(place) = self.tunnels.take(&app.name, avoid) else {
            return Err(missed(Reason::NoAgent, None));
        };
        let number = Some(place.tunnel.number);
        guard.tunnel(&place.tunnel.agent, &place.tunnel.id);
        let connect = self.bounds.load().app_connect;
        let open = Open {
            app: app.name.to_string(),
            kind: AppKind::Tcp,
            remaining: connect,
            credit: 0,
            client: Some(info.peer),
        };
        let Ok(stream) = place.tunnel.tunnel.open(open) else {
            return Err(missed(Reason::AgentDraining, number));
        };
        let within = connect.max(DEAD_AFTER) + OPENED_SLACK;
        let opened = tokio::select! {
            biased;
            _ending = poll_fn(|cx| way.load.poll_given_up(cx)) => Err(Reason::Draining),
            opened = opened(stream.control(), within) => opened,
        };
        match opened {
            Ok(()) => {
                app.reached();
                guard.opened(self.clock.now(), AppConn::Fresh);
                Ok((place, stream))
            }
            Err(reason) => Err(missed(reason, number)),
        }
    }

    /// Waits for the next try, unless the client resets its connection first.
    async fn wait_tcp(&self, client: &impl RawClient, pause: Duration) -> Hold {
        let mut shutdown = self.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.draining() => Hold::Goes,
            () = client.broken() => Hold::Over,
            () = tokio::time::sleep(pause) => Hold::Goes,
        }
    }
}

/// Waits for the app's connection; time without a carrier does not count.
async fn opened(control: &StreamControl, within: Duration) -> Result<(), Reason> {
    loop {
        let opened = poll_fn(|cx| control.poll_opened(cx));
        match tokio::time::timeout(within, opened).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(ended)) => return Err(evidence::reason(ended.0)),
            Err(_) if control.view().suspended => {}
            Err(_) => return Err(Reason::ConnectTimeout),
        }
    }
}

enum Hold {
    Goes,
    Over,
}
