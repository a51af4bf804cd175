//! The handshake over a carrier: the machines of `handshake`, moved by bytes, under one deadline.
//!
//! Runs in the task of its own connection, never in an accept loop. What was read beyond the
//! handshake stays in the caller's buffer. A future that is dropped midway leaves the carrier
//! useless; nothing else is harmed.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use crate::handshake::{
    Admitted, Applicant, AwaitHello, Client, ClientError, Terms, TokenVerifier,
};
use crate::wire::{
    Frame, Limits, Refuse, RefuseCode, ResumeTicket, Welcome, WireError, decode, encode,
};

/// No handshake takes longer, whatever a caller asks for: a silent peer holds a place no longer.
pub const LONGEST: Duration = Duration::from_secs(10);

/// The same for one that continues a tunnel: whoever waits for it waits with requests of clients.
pub const LONGEST_RESUMING: Duration = Duration::from_secs(5);

/// Bytes asked of the carrier at once. Small: before the token holds, a peer gets no more memory
/// than its frame needs.
const READ: usize = 4 * 1024;

/// How a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum ShakeError {
    /// The deadline passed.
    #[error("the handshake took too long")]
    TimedOut,
    /// The peer closed the carrier.
    #[error("the peer closed the carrier during the handshake")]
    Ended,
    /// The carrier failed.
    #[error("the carrier failed during the handshake: {0}")]
    Io(#[from] io::Error),
    /// The peer sent bytes that are no frame.
    #[error("the peer broke the protocol: {0}")]
    Wire(#[from] WireError),
    /// The agent was refused or got no proper answer (agent's side).
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The gateway refused, and has said so (gateway's side).
    #[error("refused: {}", .0.text)]
    Refused(Refuse),
}

impl ShakeError {
    /// Metric label of `handshakes_total`.
    #[must_use]
    pub const fn result(&self) -> &'static str {
        match self {
            Self::TimedOut => "timeout",
            Self::Ended => "closed",
            Self::Io(_) => "io",
            Self::Wire(_) => RefuseCode::Malformed.as_str(),
            Self::Client(ClientError::Refused(refuse)) | Self::Refused(refuse) => {
                refuse.code.as_str()
            }
            Self::Client(
                ClientError::Unexpected(_) | ClientError::Version(_) | ClientError::Feature(_),
            ) => "bad_answer",
        }
    }
}

/// The deadline of a handshake that begins now and may take `within`, at most [`LONGEST`].
#[must_use]
pub fn deadline(within: Duration) -> Instant {
    Instant::now() + within.min(LONGEST)
}

/// The same for a handshake that continues a tunnel.
#[must_use]
pub fn resuming_deadline(within: Duration) -> Instant {
    Instant::now() + within.min(LONGEST_RESUMING)
}

/// Agent: says HELLO and reads the answer.
///
/// # Errors
/// [`ShakeError`].
pub async fn knock<C>(
    carrier: &mut C,
    buf: &mut BytesMut,
    client: Client,
    until: Instant,
) -> Result<Welcome, ShakeError>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let (hello, waiting) = client.hello();
    send(carrier, &hello, until).await?;
    let answer = receive_frame(carrier, buf, until).await?;
    Ok(waiting.receive(answer)?)
}

/// Gateway: reads HELLO and judges it. An agent that is not let in has been told so, and the
/// carrier is closed, when this returns [`ShakeError::Refused`] or [`ShakeError::Wire`].
///
/// # Errors
/// [`ShakeError`].
pub async fn receive<C>(
    carrier: &mut C,
    buf: &mut BytesMut,
    waiting: AwaitHello,
    verifier: &(dyn TokenVerifier + Sync),
    until: Instant,
) -> Result<Applicant, ShakeError>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let hello = match receive_frame(carrier, buf, until).await {
        Ok(hello) => hello,
        Err(ShakeError::Wire(error)) => {
            // The cause told is the decoder's; whether the farewell arrived changes nothing.
            let told = Refuse::of(RefuseCode::Malformed, error.to_string());
            drop(refuse(carrier, told, until).await);
            return Err(error.into());
        }
        Err(error) => return Err(error),
    };
    match waiting.receive(hello, verifier) {
        Ok(applicant) => Ok(applicant),
        Err(refused) => Err(refuse(carrier, refused, until).await),
    }
}

/// Gateway: lets an applicant in as the tunnel of `ticket`.
///
/// # Errors
/// [`ShakeError`].
pub async fn admit<C>(
    carrier: &mut C,
    applicant: Applicant,
    terms: &Terms,
    ticket: ResumeTicket,
    until: Instant,
) -> Result<Admitted, ShakeError>
where
    C: AsyncWrite + Unpin,
{
    let (welcome, admitted) = applicant.admit(terms, ticket);
    send(carrier, &Frame::Welcome(welcome), until).await?;
    Ok(admitted)
}

/// Gateway: says no and closes the carrier. The result is what to report: the refusal, or why it
/// could not be said.
pub async fn refuse<C>(carrier: &mut C, refuse: Refuse, until: Instant) -> ShakeError
where
    C: AsyncWrite + Unpin,
{
    let said = async {
        send(carrier, &Frame::Refuse(refuse.clone()), until).await?;
        within(until, carrier.shutdown()).await
    };
    match said.await {
        Ok(()) => ShakeError::Refused(refuse),
        Err(error) => error,
    }
}

async fn send<C>(carrier: &mut C, frame: &Frame, until: Instant) -> Result<(), ShakeError>
where
    C: AsyncWrite + Unpin,
{
    let mut bytes = BytesMut::new();
    encode(frame, &mut bytes);
    within(until, async {
        carrier.write_all(&bytes).await?;
        carrier.flush().await
    })
    .await
}

async fn receive_frame<C>(
    carrier: &mut C,
    buf: &mut BytesMut,
    until: Instant,
) -> Result<Frame, ShakeError>
where
    C: AsyncRead + Unpin,
{
    loop {
        if let Some(frame) = decode(buf, &Limits::default())? {
            return Ok(frame);
        }
        buf.reserve(READ);
        if within(until, carrier.read_buf(buf)).await? == 0 {
            return Err(ShakeError::Ended);
        }
    }
}

async fn within<T>(
    until: Instant,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, ShakeError> {
    match timeout_at(until, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(ShakeError::TimedOut),
    }
}

#[cfg(test)]
mod tests;
