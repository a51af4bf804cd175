//! The corridor: the way of one request, top to bottom.
//!
//! [`Exchanges::serve`] is read first: normalize → route → admit → tries (pick, open, forward) →
//! answer. Each step names its own failure; whatever goes wrong ends in `answer`, once, or as a
//! visible abort when bytes are out. The guard that counts and logs the exchange travels along and
//! is dropped last.

mod admission;
pub mod allowance;
pub mod app;
pub mod apps;
pub mod evidence;
pub mod forward;
pub mod forwarded;
pub mod front;
pub mod head;
pub mod linger;
pub mod load;
pub mod normalize;
pub mod outcome;
pub mod own;
pub mod reply;
pub mod retry;
pub mod tcp;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod tries;
pub mod upload;
pub mod windows;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{Code, Judgement, Reason};
use futures_util::FutureExt;
use http::HeaderMap;
use uuid::Uuid;

use self::admission::Admitted;
use self::apps::{AppState, Apps};
use self::front::{
    ClientAnswer, ClientBody, ClientInfo, ClientProtocol, Corridor, RawHead, Refusal, Spoken,
};
use self::linger::Lingering;
use self::load::Loads;
use self::normalize::{Rules, normalize};
use self::outcome::Page;
use crate::answer::Asked;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Cidr;
use crate::error::Failure;
use crate::h1::HeadError;
use crate::ledger::Ledger;
use crate::pressure::{Charge, Pressure};
use crate::route::{AppRoute, Found, RouteTable};
use crate::shutdown::Signal;
use crate::task::Tasks;
use crate::telemetry::access::{ExchangeGuard, Protocol, Sinks};
use crate::telemetry::labels::ConnectionKind;
use crate::telemetry::metrics::GaugeGuard;
use crate::tunnel::enroll::Enroll;
use crate::tunnel::live::Tunnels;

/// After a start every configured app counts as seen before: its agent needs time to come back.
const START_GRACE: Duration = Duration::from_secs(20);

/// What all exchanges share; one per gateway.
pub struct Shared {
    /// The process's clock.
    pub clock: Clock,
    /// Random bits for ids and keys.
    pub chance: Arc<Chance>,
    /// When the gateway began to serve.
    pub started: Moment,
    /// This node's name.
    pub node: String,
    /// Routes now.
    pub routes: Arc<ArcSwap<RouteTable>>,
    /// Tunnels now.
    pub tunnels: Arc<Tunnels>,
    /// What was seen of each app.
    pub apps: Arc<Apps>,
    /// What every request is asked about, now.
    pub bounds: ArcSwap<Bounds>,
    /// Log, metrics, memory of exchanges.
    pub sinks: Arc<Sinks>,
    /// Tasks that outlive their exchange.
    pub tasks: Tasks,
    /// Agents that come by WebSocket.
    pub enroll: Arc<Enroll>,
    /// How short memory is.
    pub pressure: Arc<Pressure>,
    /// What running exchanges hold.
    pub loads: Arc<Loads>,
    /// The way to the end.
    pub shutdown: Signal,
    /// Exchanges of which something is still awaited.
    pub lingering: Lingering,
    /// What became of requests whose answer could not say it.
    pub ledger: Arc<Ledger>,
}

/// What every request is asked about.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Sizes a head may have.
    pub rules: Rules,
    /// Proxies whose word about the client is believed.
    pub trusted_proxies: Vec<Cidr>,
    /// Agents may come by WebSocket without TLS.
    pub plain_tunnels: bool,
    /// Longest time for a connection to an app.
    pub app_connect: Duration,
    /// Longest time a kept connection may have been idle when it is used.
    pub app_idle: Duration,
}

/// The corridor as connections see it.
#[derive(Clone)]
pub struct Exchanges {
    shared: Arc<Shared>,
}

/// One exchange on its way.
struct Exchange<'a, B, A> {
    info: &'a ClientInfo,
    /// The client's address, behind trusted proxies the one they tell.
    client: IpAddr,
    id: Uuid,
    asked: Asked,
    guard: ExchangeGuard,
    page: Page<'a>,
    /// Memory that its large body may take.
    charge: Option<Charge>,
    body: &'a mut B,
    answer: &'a mut A,
}

impl Exchanges {
    /// A corridor over what is shared.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// What is shared.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    async fn serve<B: ClientBody, A: ClientAnswer>(
        &self,
        info: &ClientInfo,
        raw: RawHead,
        body: &mut B,
        answer: &mut A,
    ) {
        let mut exchange = self.enter(info, &raw, body, answer);
        // A panic is a bug, and still no reason to leave the client without an answer.
        let walked = AssertUnwindSafe(self.walk(&mut exchange, &raw)).catch_unwind();
        if walked.await.is_err() {
            let judgement = exchange.guard.judgement();
            let failure = Failure::judged(Code::ServiceUnavailable, Reason::Internal, judgement);
            tracing::error!(request_id = %exchange.id, "an exchange panicked");
            exchange.refuse_and_close(&failure).await;
        }
    }

    async fn walk<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        raw: &RawHead,
    ) {
        let rules = self.shared.bounds.load().rules;
        let mut normal = match normalize(raw, exchange.info, &rules) {
            Ok(normal) => normal,
            Err(failure) => {
                exchange.guard.request(&raw.method, "", "");
                return exchange.refuse_and_close(&failure).await;
            }
        };
        exchange.asked.websocket = normal.is_websocket();
        exchange
            .guard
            .request(&normal.method, normal.host.as_str(), normal.path());
        let found = self.shared.routes.load().find(&normal.host, normal.path());
        let route = match found {
            Found::App(route) => route,
            Found::Own => return own::serve(&self.shared, exchange, raw, &normal).await,
            Found::None => {
                let failure = Failure::refused(Code::AppNotFound, Reason::NoRoute);
                return exchange.fail(&failure).await;
            }
        };
        let app = self.shared.apps.of_route(&route);
        exchange.guard.app(&app.name, &app.metrics);
        exchange.asked.cors = route.settings.cors;
        if self.shared.shutdown.is_draining() {
            return exchange.refuse_and_close(&draining()).await;
        }
        if let Err(fault) = exchange.page.route(&app.name, exchange.info, &normal) {
            return exchange.fail(&fault.failure()).await;
        }
        match self.shared.admit(exchange, &route, &app, &normal).await {
            Admitted::Through(permit) => {
                exchange.guard.admitted(self.shared.clock.now(), permit);
            }
            Admitted::Denied(failure) => return exchange.fail(&failure).await,
            Admitted::ClientLeft => return exchange.leave(Judgement::NOT_DELIVERED),
        }
        self.serve_app(exchange, &route, &app, &mut normal).await;
    }

    fn enter<'a, B, A>(
        &'a self,
        info: &'a ClientInfo,
        raw: &RawHead,
        body: &'a mut B,
        answer: &'a mut A,
    ) -> Exchange<'a, B, A> {
        let shared = &self.shared;
        let now = shared.clock.now();
        let id = shared.request_id(now);
        let client = match shared.trusts(info) {
            true => {
                forwarded::client_address(&raw.headers, info.peer.ip(), |ip| shared.is_trusted(ip))
            }
            false => info.peer.ip().to_canonical(),
        };
        let sinks = Arc::clone(&shared.sinks);
        let guard = ExchangeGuard::new(sinks, id, now, client, Protocol::Http(raw.protocol));
        let asked = Asked {
            grpc: raw.is_grpc(),
            ..Asked::of(&raw.method, &raw.headers, id, &shared.node)
        };
        Exchange {
            info,
            client,
            id,
            asked,
            guard,
            page: Page::new(shared, id),
            charge: None,
            body,
            answer,
        }
    }
}

impl Shared {
    /// The time for finishing is over: every exchange that runs is given up, and its client told as far
    /// as it takes it. What then is left of them is cut with its connection.
    pub fn end(&self) {
        self.sinks.end();
        self.loads.end();
    }

    fn request_id(&self, now: Moment) -> Uuid {
        self.clock.request_id(now, self.chance.bytes())
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        let bounds = self.bounds.load();
        bounds
            .trusted_proxies
            .iter()
            .any(|net| net.contains(address))
    }

    /// The connection is that of a trusted proxy, which speaks for its clients.
    fn trusts(&self, info: &ClientInfo) -> bool {
        !info.announced && self.is_trusted(info.peer.ip().to_canonical())
    }

    /// The client speaks TLS, to us or to a trusted proxy in front of us.
    fn is_secure(&self, info: &ClientInfo, headers: &HeaderMap) -> bool {
        info.tls || (self.trusts(info) && forwarded::says_https(headers))
    }

    /// How long an exchange may wait for this app. An app that was never reached is told at once,
    /// except right after a start, when the agents of configured apps are still on their way.
    fn hold(&self, route: &AppRoute, app: &AppState) -> Duration {
        let starting = route.configured && self.clock.now() - self.started < START_GRACE;
        if app.was_reached() || starting {
            route.settings.hold
        } else {
            Duration::ZERO
        }
    }
}

/// The gateway goes away; another one, or the next start, takes the request.
fn draining() -> Failure {
    Failure::refused(Code::ServiceUnavailable, Reason::Draining)
}

impl Corridor for Exchanges {
    type Place = GaugeGuard;

    fn connected(&self, spoken: Spoken) -> GaugeGuard {
        self.shared.sinks.metrics().connection(match spoken {
            Spoken::Pending => ConnectionKind::Pending,
            Spoken::Http1 => ConnectionKind::Http1,
            Spoken::Http2 => ConnectionKind::Http2,
        })
    }

    async fn exchange<B: ClientBody, A: ClientAnswer>(
        &self,
        info: &ClientInfo,
        head: RawHead,
        body: &mut B,
        answer: &mut A,
    ) {
        self.serve(info, head, body, answer).await;
    }

    fn refuse<A: ClientAnswer>(
        &self,
        info: &ClientInfo,
        protocol: ClientProtocol,
        refusal: Refusal,
        answer: &mut A,
    ) {
        let shared = &self.shared;
        let now = shared.clock.now();
        let id = shared.request_id(now);
        let failure = refusal_failure(refusal, &shared.bounds.load().rules);
        let sinks = Arc::clone(&shared.sinks);
        let protocol = Protocol::Http(protocol);
        let mut guard = ExchangeGuard::new(sinks, id, now, info.peer.ip(), protocol);
        guard.failed(&failure);
        let asked = Asked::of(
            &http::Method::GET,
            &http::HeaderMap::new(),
            id,
            &shared.node,
        );
        reply::queue(
            answer,
            crate::answer::build(&failure, &asked),
            reply::After::Close,
        );
    }
}

/// A head that is no request. A limit names itself.
fn refusal_failure(refusal: Refusal, rules: &Rules) -> Failure {
    let (code, reason) = match refusal {
        Refusal::HeadTimeout => (Code::ClientTimeout, Reason::ClientTimeout),
        Refusal::Overload => (Code::ServiceUnavailable, Reason::Overload),
        Refusal::Head(error) => match error {
            HeadError::UriTooLong => (Code::UriTooLong, Reason::UriLimit),
            HeadError::TooLarge | HeadError::TooManyFields => {
                (Code::HeadTooLarge, Reason::HeadLimit)
            }
            _ => (Code::BadRequest, Reason::BadRequest),
        },
    };
    let failure = Failure::refused(code, reason).with_status(refusal.status());
    match refusal {
        Refusal::HeadTimeout => failure.with_detail("the request's head did not come in time"),
        Refusal::Overload => failure.with_detail("there are too many connections"),
        Refusal::Head(HeadError::UriTooLong) => {
            failure.with_detail(format!("the limit uri_size is {} bytes", rules.uri_size))
        }
        Refusal::Head(HeadError::TooLarge) => {
            failure.with_detail(format!("the limit head_size is {} bytes", rules.head_size))
        }
        Refusal::Head(HeadError::TooManyFields) => {
            failure.with_detail(format!("the limit head_fields is {}", rules.head_fields))
        }
        Refusal::Head(error) => failure.with_detail(error.to_string()),
    }
}
