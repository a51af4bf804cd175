//! The agent's side: HELLO out, WELCOME or REFUSE in.

use crate::wire::{
    self, AppOffer, Frame, Hello, Kind, PeerLimits, Refuse, ResumeTicket, Welcome, WireError,
};

use super::names::{is_agent_id, is_app_name, is_host_header};
use super::token::Token;
use super::version::SPOKEN;

/// What an agent says of itself.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// Agent id.
    pub agent: String,
    /// Random per start.
    pub instance: u128,
    /// Token; `None` if the WebSocket request carried it.
    pub token: Option<Token>,
    /// Features the agent has.
    pub features: Vec<String>,
    /// Apps offered.
    pub apps: Vec<AppOffer>,
    /// Limits asked of the gateway.
    pub limits: PeerLimits,
    /// Tunnel to continue.
    pub resume: Option<ResumeTicket>,
}

/// An introduction that no gateway would accept; the agent's own fault, found before dialling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntroductionError {
    /// The agent id.
    #[error("agent id {0:?}: use 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")]
    Agent(String),
    /// An app name.
    #[error("app name {0:?}: use 1 to 40 of a-z, 0-9 and '-'")]
    App(String),
    /// The host an app wants to see.
    #[error("host {0:?}: use a host name with an optional port")]
    Host(String),
    /// The list of apps is too long.
    #[error(transparent)]
    Apps(#[from] WireError),
}

/// Why a gateway's answer is no admission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The gateway said no.
    #[error("the gateway refused: {}", .0.text)]
    Refused(Refuse),
    /// Neither WELCOME nor REFUSE.
    #[error("the gateway answered HELLO with {0}")]
    Unexpected(Kind),
    /// A version that was not offered.
    #[error("the gateway chose version {0}, which was not offered")]
    Version(u16),
    /// A feature that was not offered.
    #[error("the gateway chose feature {0:?}, which was not offered")]
    Feature(String),
}

/// First state: checked, nothing said yet.
#[derive(Clone, Debug)]
pub struct Client {
    introduction: Introduction,
}

/// Second state: HELLO is said.
#[derive(Clone, Debug)]
pub struct AwaitAnswer {
    features: Vec<String>,
}

impl Client {
    /// Checks an introduction.
    ///
    /// # Errors
    /// [`IntroductionError`].
    pub fn new(introduction: Introduction) -> Result<Self, IntroductionError> {
        if !is_agent_id(&introduction.agent) {
            return Err(IntroductionError::Agent(introduction.agent));
        }
        for app in &introduction.apps {
            if !is_app_name(&app.name) {
                return Err(IntroductionError::App(app.name.clone()));
            }
            if !is_host_header(&app.upstream_host) {
                return Err(IntroductionError::Host(app.upstream_host.clone()));
            }
        }
        wire::check_offers(&introduction.apps)?;
        Ok(Self { introduction })
    }

    /// What to send first.
    #[must_use]
    pub fn hello(self) -> (Frame, AwaitAnswer) {
        let Introduction {
            agent,
            instance,
            token,
            features,
            apps,
            limits,
            resume,
        } = self.introduction;
        let state = AwaitAnswer {
            features: features.clone(),
        };
        let token = token
            .map(|token| token.reveal().to_owned())
            .unwrap_or_default();
        let versions = SPOKEN.to_vec();
        let hello = Hello {
            versions,
            features,
            agent,
            instance,
            token,
            apps,
            limits,
            resume,
        };
        (Frame::Hello(hello), state)
    }
}

impl AwaitAnswer {
    /// Judges the gateway's first frame.
    ///
    /// # Errors
    /// [`ClientError`]; the carrier is of no more use.
    pub fn receive(self, frame: Frame) -> Result<Welcome, ClientError> {
        let kind = frame.kind();
        let welcome = match frame {
            Frame::Welcome(welcome) => welcome,
            Frame::Refuse(refuse) => return Err(ClientError::Refused(refuse)),
            _ => return Err(ClientError::Unexpected(kind)),
        };
        if !SPOKEN.contains(&welcome.version) {
            return Err(ClientError::Version(welcome.version));
        }
        let stranger = welcome
            .features
            .iter()
            .find(|feature| !self.features.contains(feature));
        if let Some(feature) = stranger {
            return Err(ClientError::Feature(feature.clone()));
        }
        Ok(welcome)
    }
}
