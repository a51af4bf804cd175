//! A TCP app's client: one stream, bytes both ways, half-close kept. No HTTP, no windows; the verdict
//! stands in the log and the metrics.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::conn::Ended;
use bridgehead_protocol::verdict::{Code, Reason};
use bridgehead_protocol::wire::{AppKind, Open, ResetCode};
use std::future::poll_fn;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;

use super::admission::overload;
use super::app::Offsets;
use super::front::ClientInfo;
use super::{Exchanges, evidence};
use crate::error::Failure;
use crate::telemetry::access::{AppConn, ExchangeGuard, Protocol};
use crate::telemetry::labels::ConnectionKind;

/// The agent's word about a connection may take this much longer than the connection itself.
const OPENED_SLACK: Duration = Duration::from_secs(1);

/// Bytes copied at once, each way.
const COPY: usize = 16 * 1024;

/// Why bytes do not go on.
enum CutShort {
    /// One side broke.
    Broken,
    /// The gateway is short of memory.
    GivenUp,
}

impl Exchanges {
    /// Serves one connection to the end. Dropping the future closes it abruptly.
    pub async fn serve_tcp(&self, mut client: TcpStream, info: ClientInfo, app: &str) {
        let shared = self.shared();
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
        // A client whose app cannot be reached must not take the end for an orderly one.
        let abrupt = |client: &TcpStream| drop(client.set_zero_linger());
        let route = shared.routes.load().app(app).map(Arc::clone);
        let admitted = route.map(|route| {
            let limits = &route.settings.admission;
            state.gate.enter_long_lived(now, limits, info.peer.ip())
        });
        if shared.pressure.is_full() {
            guard.turned_away(&overload());
            return abrupt(&client);
        }
        match admitted {
            Some(Ok(permit)) => guard.admitted(now, permit),
            Some(Err(denied)) => {
                guard.turned_away(&denied.failure());
                return abrupt(&client);
            }
            None => {
                guard.turned_away(&Failure::refused(Code::AppNotFound, Reason::NoRoute));
                return abrupt(&client);
            }
        }
        guard.enter_long_lived();
        let Some(place) = shared.tunnels.take(app, &[]) else {
            state.refused(now, Reason::NoAgent);
            guard.aborted(&Failure::refused(Code::BhAppStarting, Reason::NoAgent));
            return abrupt(&client);
        };
        guard.tunnel(&place.tunnel.agent, &place.tunnel.id);
        let (remaining, peer) = (shared.app_connect, Some(info.peer));
        let open = Open {
            app: app.into(),
            kind: AppKind::Tcp,
            remaining,
            credit: 0,
            client: peer,
        };
        let Ok(mut stream) = place.tunnel.tunnel.open(open) else {
            guard.aborted(&Failure::refused(
                Code::BhAppStarting,
                Reason::AgentDraining,
            ));
            return abrupt(&client);
        };
        let opened = poll_fn(|cx| stream.control().poll_opened(cx));
        let opened = tokio::time::timeout(shared.app_connect + OPENED_SLACK, opened).await;
        if !matches!(opened, Ok(Ok(()))) {
            let reason = match opened {
                Ok(Err(ended)) => evidence::reason(ended.0),
                Ok(Ok(())) | Err(_) => Reason::ConnectTimeout,
            };
            state.refused(shared.clock.now(), reason);
            guard.aborted(&Failure::refused(Code::BhAppStarting, reason));
            return abrupt(&client);
        }
        state.reached();
        guard.opened(shared.clock.now(), AppConn::Fresh);
        let load = shared.loads.begin();
        load.stream(stream.control());
        let copied = tokio::select! {
            biased;
            () = poll_fn(|cx| load.poll_given_up(cx)) => Err(CutShort::GivenUp),
            copied = copy_bidirectional_with_sizes(&mut client, &mut stream, COPY, COPY) => {
                copied.map_err(|_| CutShort::Broken)
            }
        };
        // Given up first: what may be said rests on what was emitted until then.
        let emitted = copied
            .is_err()
            .then(|| stream.control().reset(ResetCode::Cancelled));
        if emitted.is_some() {
            evidence::count(stream.control()).await;
        }
        let view = stream.control().view();
        guard.bytes_in(view.queued_to);
        guard.bytes_out(view.taken);
        match copied {
            Ok(_) => guard.answered(),
            Err(why) => {
                abrupt(&client);
                let offsets = Offsets {
                    start: 0,
                    head: 0,
                    whole: None,
                    so_far: view.queued_to,
                    answer: view.received,
                };
                let judgement =
                    evidence::judgement(&view, offsets, emitted.unwrap_or(view.emitted));
                guard.judged(judgement);
                if let CutShort::GivenUp = why {
                    let code = Code::ServiceUnavailable;
                    guard.aborted(&Failure::judged(code, Reason::Overload, judgement));
                } else if let Some(ended) = view.ended {
                    let lost = ended == Ended::Lost;
                    let reason = if lost {
                        Reason::TunnelLost
                    } else {
                        Reason::AppClosed
                    };
                    guard.aborted(&Failure::judged(Code::BhAppBroken, reason, judgement));
                }
            }
        }
    }
}
