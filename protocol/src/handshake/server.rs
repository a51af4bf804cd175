//! The gateway's side: HELLO in, WELCOME or REFUSE out.
//!
//! Must not know tunnels or limits of the process; between [`Applicant`] and [`Admitted`] the
//! registry decides, and may say no as well.

use std::fmt;
use std::mem;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::wire::{AppOffer, Frame, Hello, PeerLimits, Refuse, RefuseCode, ResumeTicket, Welcome};

use super::names::{is_agent_id, is_app_name, is_host_header};
use super::scope::Scope;
use super::token::Token;
use super::version::{self, NEWEST, OLDEST};

/// Who a valid token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Subject: the agent entry of the configuration.
    pub subject: String,
    /// Apps it may serve.
    pub scope: Scope,
}

/// Why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denied {
    /// No such key, or the secret does not match: not told apart.
    Unknown,
    /// The secret matches and its time is over.
    Expired,
}

/// Looks tokens up. Finds the hash by [`Token::key_id`] and compares with
/// [`TokenHash::matches`](super::TokenHash::matches); says [`Denied::Expired`] only after the
/// secret matched.
pub trait TokenVerifier {
    /// What the token allows now.
    ///
    /// # Errors
    /// [`Denied`].
    fn verify(&self, token: &Token) -> Result<Grant, Denied>;
}

/// Two agents are the same one if both parts are; takeover, resume and reports stay inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Subject of the token.
    pub subject: String,
    /// Agent id of HELLO.
    pub agent: String,
}

/// What a gateway says of itself to every agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Node id.
    pub node: String,
    /// Features it has.
    pub features: Vec<String>,
    /// Silence after which each side pings.
    pub ping_after: Duration,
    /// How long a lost tunnel may be resumed; zero = never.
    pub resume_window: Duration,
    /// Limits it asks of the agent.
    pub limits: PeerLimits,
    /// Other nodes an agent may dial.
    pub nodes: Vec<String>,
}

/// First state: waits for the first frame of a carrier.
#[derive(Default)]
pub struct AwaitHello {
    header: Option<Zeroizing<String>>,
}

/// Second state: who knocks is known and may serve what it offers; the registry decides.
#[derive(Clone, Debug)]
pub struct Applicant {
    identity: Identity,
    key: String,
    scope: Scope,
    instance: u128,
    apps: Vec<AppOffer>,
    limits: PeerLimits,
    version: u16,
    features: Vec<String>,
    resume: Option<ResumeTicket>,
}

/// Last state: what both sides agreed on.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Who it is.
    pub identity: Identity,
    /// Key id of its token, to cut the tunnel when the key is revoked.
    pub key: String,
    /// Apps it may serve; also binds every later APPS (see [`check_apps`]).
    pub scope: Scope,
    /// Random per start of the agent.
    pub instance: u128,
    /// Apps it offers now.
    pub apps: Vec<AppOffer>,
    /// Limits it asked for.
    pub limits: PeerLimits,
    /// Version agreed on.
    pub version: u16,
    /// Features agreed on.
    pub features: Vec<String>,
    /// Tunnel, secret and epoch as told in WELCOME.
    pub ticket: ResumeTicket,
}

impl fmt::Debug for AwaitHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = if self.header.is_some() { "***" } else { "none" };
        f.debug_struct("AwaitHello")
            .field("header", &format_args!("{header}"))
            .finish()
    }
}

impl AwaitHello {
    /// For a carrier whose HELLO brings the token.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For a WebSocket whose request brought the token.
    #[must_use]
    pub const fn with_header_token(token: Zeroizing<String>) -> Self {
        Self {
            header: Some(token),
        }
    }

    /// Judges the first frame.
    ///
    /// # Errors
    /// The REFUSE to send before the carrier is closed.
    pub fn receive(self, frame: Frame, verifier: &dyn TokenVerifier) -> Result<Applicant, Refuse> {
        let kind = frame.kind();
        let Frame::Hello(mut hello) = frame else {
            let text = format!("the first frame must be HELLO, not {kind}");
            return Err(Refuse::of(RefuseCode::Malformed, text));
        };
        let version = version::choose(&hello.versions, OLDEST, NEWEST).map_err(|code| {
            Refuse::of(code, format!("versions {OLDEST} to {NEWEST} are spoken"))
        })?;
        let token = self.token(&mut hello)?;
        let grant = verifier.verify(&token).map_err(|denied| denied.refuse())?;
        check_introduction(&hello)?;
        check_apps(&hello.apps, &grant.scope)?;
        Ok(Applicant {
            identity: Identity {
                subject: grant.subject,
                agent: hello.agent,
            },
            key: token.key_id().to_owned(),
            scope: grant.scope,
            instance: hello.instance,
            apps: hello.apps,
            limits: hello.limits,
            version,
            features: hello.features,
            resume: hello.resume,
        })
    }

    /// The token from the one place where it is.
    fn token(self, hello: &mut Hello) -> Result<Token, Refuse> {
        let said = Zeroizing::new(mem::take(&mut hello.token));
        let text = match (self.header, said.is_empty()) {
            (None, false) => said,
            (Some(header), true) => header,
            (None, true) => {
                return Err(Refuse::of(RefuseCode::Unauthorized, "a token is needed"));
            }
            (Some(_), false) => {
                let text = "the token belongs in the request or in HELLO, not in both";
                return Err(Refuse::of(RefuseCode::Malformed, text));
            }
        };
        Token::parse(&text).map_err(|error| Refuse::of(RefuseCode::Unauthorized, error.to_string()))
    }
}

impl Denied {
    fn refuse(self) -> Refuse {
        let text = match self {
            Self::Unknown => "the token is not known here",
            Self::Expired => "the token has expired",
        };
        Refuse::of(RefuseCode::Unauthorized, text)
    }
}

impl Applicant {
    /// Who it is.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Random per start of the agent.
    #[must_use]
    pub const fn instance(&self) -> u128 {
        self.instance
    }

    /// Apps it offers.
    #[must_use]
    pub fn apps(&self) -> &[AppOffer] {
        &self.apps
    }

    /// The tunnel that it wants to continue; [`Resumable::judge`](super::Resumable::judge) says
    /// whether it may.
    #[must_use]
    pub const fn resume(&self) -> Option<&ResumeTicket> {
        self.resume.as_ref()
    }

    /// Lets it in as the tunnel of `ticket`.
    #[must_use]
    pub fn admit(self, terms: &Terms, ticket: ResumeTicket) -> (Welcome, Admitted) {
        let features = version::common(&terms.features, &self.features);
        let welcome = Welcome {
            version: self.version,
            features: features.clone(),
            node: terms.node.clone(),
            ticket: ticket.clone(),
            ping_after: terms.ping_after,
            resume_window: terms.resume_window,
            limits: terms.limits,
            nodes: terms.nodes.clone(),
        };
        let admitted = Admitted {
            identity: self.identity,
            key: self.key,
            scope: self.scope,
            instance: self.instance,
            apps: self.apps,
            limits: self.limits,
            version: self.version,
            features,
            ticket,
        };
        (welcome, admitted)
    }
}

fn check_introduction(hello: &Hello) -> Result<(), Refuse> {
    if !is_agent_id(&hello.agent) {
        let text = "an agent id is 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'";
        return Err(Refuse::of(RefuseCode::Malformed, text));
    }
    if hello.limits.max_streams == 0 || hello.limits.initial_credit == 0 {
        let text = "a limit of zero streams or zero credit carries nothing";
        return Err(Refuse::of(RefuseCode::Malformed, text));
    }
    Ok(())
}

/// Checks the apps of a HELLO or of a later APPS.
///
/// # Errors
/// [`RefuseCode::Malformed`] for a bad or repeated name, weight or host;
/// [`RefuseCode::ScopeDenied`] for an app the token does not cover.
pub fn check_apps(apps: &[AppOffer], scope: &Scope) -> Result<(), Refuse> {
    let malformed = |text: String| Err(Refuse::of(RefuseCode::Malformed, text));
    for (index, app) in apps.iter().enumerate() {
        if !is_app_name(&app.name) {
            return malformed("an app name is 1 to 40 of a-z, 0-9 and '-'".to_owned());
        }
        let name = &app.name;
        if apps[..index].iter().any(|other| other.name == *name) {
            return malformed(format!("app {name} is offered twice"));
        }
        if !(1..=100).contains(&app.weight) {
            return malformed(format!("the weight of app {name} is not within 1 to 100"));
        }
        if !is_host_header(&app.upstream_host) {
            return malformed(format!("the host of app {name} is no host"));
        }
        if !scope.covers(name) {
            let text = format!("the token does not cover app {name}");
            return Err(Refuse::of(RefuseCode::ScopeDenied, text));
        }
    }
    Ok(())
}

impl Refuse {
    /// A refusal with the usual permanence and wait of its code.
    #[must_use]
    pub fn of(code: RefuseCode, text: impl Into<String>) -> Self {
        let (permanent, seconds) = code.advice();
        Self {
            code,
            permanent,
            retry_after: Duration::from_secs(seconds),
            text: text.into(),
        }
    }

    /// Another wait than the usual one.
    #[must_use]
    pub const fn after(mut self, wait: Duration) -> Self {
        self.retry_after = wait;
        self
    }
}

impl RefuseCode {
    /// Whether trying again without a change is useless, and the wait in seconds. Even a permanent
    /// refusal has one: an agent that tries on (a token may be added by a reload) must not hammer.
    const fn advice(self) -> (bool, u64) {
        match self {
            Self::Unauthorized | Self::ScopeDenied => (true, 15),
            Self::VersionUnsupported | Self::Malformed => (true, 60),
            // Start anew, or dial another node: at once.
            Self::ResumeGone | Self::StaleEpoch | Self::Draining => (false, 0),
            Self::Busy => (false, 5),
        }
    }
}
