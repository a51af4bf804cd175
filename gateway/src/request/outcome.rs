//! The page of one exchange in the outcome ledger: opened when there is a reason, closed exactly
//! once, on every exit.
//!
//! A caller's key is a reason from the start; a try that may have reached the app is one later. All
//! other exchanges never touch the ledger. Decides nothing: what is known comes from the tries.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use uuid::Uuid;

use super::app::{AppExchange, AppSide};
use super::forward::Finish;
use super::front::ClientInfo;
use super::linger::{self, Rest};
use super::normalize::Normal;
use super::{Shared, evidence};
use crate::error::Failure;
use crate::ledger::{
    Closing, Fact, KeyDigest, KeyError, Known, Opening, OutcomeId, OutcomeKey, Reply, Serial,
    Source, TryRecord,
};
use crate::tunnel::live::LiveTunnel;
use bridgehead_protocol::handshake::Identity;
use bridgehead_protocol::verdict::{Code, Delivery, Evidence, Reason};

/// The caller's key. It is for the gateway alone: it opens the outcome, so it goes to no app.
pub const OUTCOME_KEY: HeaderName = HeaderName::from_static("bridgehead-outcome-key");
/// Outcomes by id, on the gateway's own hosts.
pub const OUTCOMES: &str = "/.well-known/bridgehead/outcomes/";

/// A try that may have reached the app.
pub(super) struct Trace {
    /// What is known of it.
    pub(super) record: TryRecord,
    /// Where more may come from.
    pub(super) rest: Option<Rest>,
}

impl Trace {
    /// What is left of a try. `status`: of the app's final head, if one came.
    pub(super) fn of(
        finish: Finish,
        evidence: Evidence,
        status: Option<u16>,
        tunnel: &LiveTunnel,
        app: AppExchange,
    ) -> Self {
        let control = app.control();
        let (view, start) = (control.view(), evidence.start);
        let known = known(evidence, status, &app);
        let delivery = known.judgement.delivery;
        Self {
            record: TryRecord {
                // The counts may tell of an answer that is still on its way.
                known: known.with(evidence::fact(&view, start)),
                tunnel: Arc::clone(&tunnel.id),
                stream: control.id(),
                owner: tunnel.identity.clone(),
            },
            rest: Rest::of(finish, delivery, app),
        }
    }
}

/// What is known of a try when it ends. `status`: of the app's final head, if one came.
pub(super) fn known(evidence: Evidence, status: Option<u16>, app: &AppExchange) -> Known {
    let view = app.control().view();
    Known {
        consumed: view.consumed,
        received: view.received,
        read_before: app.read_before(),
        ..Known::of(evidence, status)
    }
}

/// Where the request goes, as far as the ledger is concerned.
struct Subject {
    app: Arc<str>,
    key: Option<KeyDigest>,
    tls: bool,
    port: Option<u16>,
}

/// The page. Dropped without an end it says that the client left.
pub(super) struct Page<'a> {
    shared: &'a Shared,
    request: Uuid,
    subject: Option<Subject>,
    serial: Option<Serial>,
    /// A try runs whose bytes may reach the app; what it came to is not noted yet.
    handing_over: bool,
    closed: bool,
}

/// Why the key of a request is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// More than one line.
    #[error("more than one Bridgehead-Outcome-Key")]
    Several,
    /// Its form.
    #[error("the Bridgehead-Outcome-Key {0}")]
    Form(#[from] KeyError),
}

impl KeyFault {
    /// Refuses the request: its caller would rely on a key that nobody can keep.
    #[must_use]
    pub fn failure(self) -> Failure {
        Failure::refused(Code::BadRequest, Reason::BadRequest).with_detail(self.to_string())
    }
}

/// The key of a request, if it brings one.
///
/// # Errors
/// [`KeyFault`] for a key that is no key.
pub fn key(headers: &HeaderMap) -> Result<Option<OutcomeKey<'_>>, KeyFault> {
    let mut lines = headers.get_all(OUTCOME_KEY).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(KeyFault::Several);
    }
    let text = line.to_str().map_err(|_| KeyError::Character)?;
    Ok(Some(OutcomeKey::parse(text)?))
}

impl<'a> Page<'a> {
    /// A page that is not opened.
    pub(super) fn new(shared: &'a Shared, request: Uuid) -> Self {
        Self {
            shared,
            request,
            subject: None,
            serial: None,
            handing_over: false,
            closed: false,
        }
    }

    /// The request is for this app. With a key it is remembered from here on, because a caller that
    /// loses its connection never sees an answer.
    pub(super) fn route(
        &mut self,
        app: &Arc<str>,
        info: &ClientInfo,
        normal: &Normal,
    ) -> Result<(), KeyFault> {
        let key = key(&normal.headers)?;
        let digest = key.map(|key| self.shared.ledger.digest(normal.host.as_str(), &key));
        self.subject = Some(Subject {
            app: Arc::clone(app),
            key: digest,
            tls: self.shared.is_secure(info, &normal.headers),
            port: normal.port,
        });
        if digest.is_some() {
            self.enter();
        }
        Ok(())
    }

    /// The entry, opened if it is not yet; none for what leads to no app.
    fn enter(&mut self) -> Option<Serial> {
        if self.serial.is_none() {
            let subject = self.subject.as_ref()?;
            let opening = Opening {
                id: OutcomeId::new(u128::from_ne_bytes(self.shared.chance.bytes())),
                request: self.request,
                app: Arc::clone(&subject.app),
                key: subject.key,
            };
            let now = self.shared.clock.now();
            self.serial = Some(self.shared.ledger.open(now, opening));
        }
        self.serial
    }

    /// A try begins.
    pub(super) fn hands_over(&mut self) {
        self.handing_over = true;
    }

    /// A try has ended without an answer. `trace`: it may have reached the app.
    pub(super) fn missed(&mut self, trace: Option<Box<Trace>>) {
        self.handing_over = false;
        let Some(trace) = trace else { return };
        let Some(serial) = self.enter() else { return };
        let (ledger, now) = (&self.shared.ledger, self.shared.clock.now());
        let which = ledger.tried(now, serial, trace.record);
        match trace.rest {
            Some(rest) => linger::watch(self.shared, rest, which),
            None => ledger.unwatch(now, which),
        }
    }

    /// The app's answer went out whole.
    pub(super) fn answered(&mut self, status: Option<u16>) {
        self.handing_over = false;
        self.close(Closing::Answered { status });
    }

    /// The client is told a failure. Answers where it can ask for what became of the request.
    pub(super) fn failed(&mut self, failure: &Failure) -> Option<String> {
        self.cut_off(failure.delivery);
        let (code, reason) = (failure.code, failure.reason);
        let id = self.close(Closing::Failed { code, reason })?;
        self.url(id)
    }

    /// The client is gone and told nothing.
    pub(super) fn left(&mut self) {
        self.cut_off(Delivery::Unknown);
        self.close(Closing::Left);
    }

    /// A try that nobody could say the end of: it was dropped in the middle, or it panicked. What was
    /// handed over is not known, and the ledger says no less than its client was told.
    fn cut_off(&mut self, told: Delivery) {
        if self.closed || !self.handing_over {
            return;
        }
        let began = Known::nothing().with(Fact::Answer(Reply::default()));
        let known = match told {
            Delivery::Delivered => Known {
                source: Source::Exchange,
                ..began
            },
            Delivery::Unknown | Delivery::NotDelivered => Known::nothing(),
        };
        self.missed(Some(Box::new(Trace {
            record: TryRecord {
                known,
                tunnel: "".into(),
                stream: None,
                owner: Identity {
                    subject: String::new(),
                    agent: String::new(),
                },
            },
            rest: None,
        })));
    }

    fn close(&mut self, closing: Closing) -> Option<OutcomeId> {
        if std::mem::replace(&mut self.closed, true) {
            return None;
        }
        let now = self.shared.clock.now();
        self.shared.ledger.close(now, self.serial?, closing)
    }

    /// On the first of the gateway's own hosts, by the scheme and the port that the client used: it
    /// has just shown that these lead here, also through what stands in front of the gateway.
    fn url(&self, id: OutcomeId) -> Option<String> {
        let (routes, subject) = (self.shared.routes.load(), self.subject.as_ref()?);
        let host = routes.first_own()?;
        let (scheme, usual) = if subject.tls {
            ("https", 443)
        } else {
            ("http", 80)
        };
        let port = subject.port.filter(|port| *port != usual);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{scheme}://{host}{port}{OUTCOMES}{id}"))
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if !self.closed {
            self.left();
        }
    }
}
