//! Numbers of the closed sets that stand in payloads. One byte each, never reused; 0 names
//! nothing, so that a forgotten byte is noticed.

use super::frame::{
    AppHealth, AppKind, FinalCause, GoAwayReason, RefuseCode, RefusedReason, ResetCode,
};

macro_rules! codes {
    ($($set:ident { $($name:ident = $number:literal),+ $(,)? })+) => {$(
        impl $set {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            pub(super) const fn number(self) -> u8 {
                match self { $(Self::$name => $number),+ }
            }

            pub(super) const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }
        }
    )+};
}

codes! {
    AppKind { Http1 = 1, H2c = 2, Tcp = 3 }
    AppHealth { Unknown = 1, Ready = 2, Starting = 3, Failing = 4, Draining = 5 }
    RefusedReason {
        ConnectRefused = 1,
        ConnectTimeout = 2,
        ConnectReset = 3,
        TlsFailed = 4,
        NoSuchApp = 5,
        Draining = 6,
        Limit = 7,
        Expired = 8,
        Unreachable = 9,
    }
    FinalCause {
        AppClosed = 1,
        AppReset = 2,
        Reset = 3,
        Fenced = 4,
        Stale = 5,
        Expired = 6,
        LingerOver = 7,
        Stopping = 8,
        Starved = 9,
    }
    ResetCode { Cancelled = 1, Idle = 2, AppBroken = 3, Abuse = 4, Stopping = 5, Internal = 6 }
    GoAwayReason { Draining = 1, Replaced = 2, Revoked = 3, IdsExhausted = 4, ProtocolError = 5 }
    RefuseCode {
        Unauthorized = 1,
        ScopeDenied = 2,
        VersionUnsupported = 3,
        Malformed = 4,
        ResumeGone = 5,
        StaleEpoch = 6,
        Busy = 7,
        Draining = 8,
    }
}

impl RefuseCode {
    /// Name in logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::ScopeDenied => "scope_denied",
            Self::VersionUnsupported => "version_unsupported",
            Self::Malformed => "malformed",
            Self::ResumeGone => "resume_gone",
            Self::StaleEpoch => "stale_epoch",
            Self::Busy => "busy",
            Self::Draining => "draining",
        }
    }
}
