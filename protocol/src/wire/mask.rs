//! Debug output of the values that hold secrets or bytes of clients: a log line at any level
//! shows neither a token, nor a resume secret, nor what a stream carries.

use std::fmt::{self, Debug, Formatter};

use super::frame::{Frame, Hello, ResumeTicket, Welcome};

/// Stands where a secret was.
const MASK: &str = "***";

impl Debug for ResumeTicket {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeTicket")
            .field("tunnel", &format_args!("{:032x}", self.tunnel))
            .field("secret", &format_args!("{MASK}"))
            .field("epoch", &self.epoch)
            .finish()
    }
}

impl Debug for Hello {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let token = if self.token.is_empty() { "none" } else { MASK };
        f.debug_struct("Hello")
            .field("versions", &self.versions)
            .field("features", &self.features)
            .field("agent", &self.agent)
            .field("instance", &format_args!("{:032x}", self.instance))
            .field("token", &format_args!("{token}"))
            .field("apps", &self.apps)
            .field("limits", &self.limits)
            .field("resume", &self.resume)
            .finish()
    }
}

impl Debug for Welcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Welcome")
            .field("version", &self.version)
            .field("features", &self.features)
            .field("node", &self.node)
            .field("ticket", &self.ticket)
            .field("ping_after", &self.ping_after)
            .field("resume_window", &self.resume_window)
            .field("limits", &self.limits)
            .field("nodes", &self.nodes)
            .finish()
    }
}

impl Debug for Frame {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Hello(hello) => hello.fmt(f),
            Self::Welcome(welcome) => welcome.fmt(f),
            Self::Refuse(refuse) => refuse.fmt(f),
            Self::Resume(resume) => resume.fmt(f),
            Self::Ping(bytes) | Self::Pong(bytes) => {
                write!(f, "{kind}({:016x})", u64::from_be_bytes(*bytes))
            }
            Self::Apps { revision, apps } => write!(f, "{kind}(revision {revision}, {apps:?})"),
            Self::GoAway {
                last,
                reason,
                deadline,
            } => {
                write!(f, "{kind}(last {}, {reason:?}, {deadline:?})", last.0)
            }
            Self::Open(stream, open) => write!(f, "{kind}({}, {open:?})", stream.0),
            Self::Opened { stream, credit } => write!(f, "{kind}({}, credit {credit})", stream.0),
            Self::Refused {
                stream,
                reason,
                errno,
            } => {
                write!(f, "{kind}({}, {reason:?}, errno {errno})", stream.0)
            }
            Self::Begin(stream, begin) => write!(f, "{kind}({}, {begin:?})", stream.0),
            Self::Data { stream, bytes, fin } => {
                let fin = if *fin { ", fin" } else { "" };
                write!(f, "{kind}({}, {} bytes{fin})", stream.0, bytes.len())
            }
            Self::Credit {
                stream,
                limit,
                consumed,
            } => {
                write!(
                    f,
                    "{kind}({}, limit {limit}, consumed {consumed})",
                    stream.0
                )
            }
            Self::Fence { stream, linger } => write!(f, "{kind}({}, linger {linger})", stream.0),
            Self::Count {
                stream,
                written,
                read,
            } => {
                write!(f, "{kind}({}, written {written}, read {read})", stream.0)
            }
            Self::Reset { stream, code } => write!(f, "{kind}({}, {code:?})", stream.0),
            Self::Final {
                stream,
                written,
                read,
                cause,
            } => {
                write!(
                    f,
                    "{kind}({}, written {written}, read {read}, {cause:?})",
                    stream.0
                )
            }
            Self::Done(streams) => write!(f, "{kind}({} streams)", streams.len()),
            Self::Report(entries) => write!(f, "{kind}({} entries)", entries.len()),
        }
    }
}
