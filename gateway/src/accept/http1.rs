//! One HTTP/1 connection: head, exchange, answer, and again, in one task.
//!
//! Body and answer of an exchange are two views of one [`Core`], which owns the socket; a short,
//! never contended mutex joins them, because the corridor must be free to move both.
//!
//! Invariants: heads are answered in order (pipelined bytes wait in the read buffer); the connection
//! is kept only if the request's body was read to its end and both sides want it; a broken answer
//! never ends cleanly; an answer to an unread body arrives (half-close, then a bounded discard)
//! instead of dying with a reset.

mod answer;
mod body;
mod core;
mod leave;
#[cfg(test)]
mod properties;
mod queue;
#[cfg(test)]
mod socket_tests;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use self::answer::Answer;
use self::body::Body;
use self::core::{Core, Ending};
use super::{Corridor, Limits, Refusal, Transport};
use crate::h1::{HeadScan, head};
use crate::pressure::TIGHT_IDLE;
use crate::request::front::{ClientInfo, ClientProtocol, RawHead};
use crate::shutdown::Signal;

/// Room for a head; bodies grow the buffer while they flow.
const HEAD_BUFFER: usize = 4 * 1024;

/// What comes next on the connection.
enum Next {
    Exchange(Box<RawHead>),
    Refuse(Refusal),
    /// Nothing more; nobody waits for an answer.
    Close,
}

/// Serve one connection to its end. `first` holds bytes that were already read from it.
///
/// Dropping the future closes the connection at once, by a reset where a close would look like the end
/// of an answer that is none.
pub async fn serve<IO: Transport, C: Corridor>(
    io: IO,
    first: BytesMut,
    info: &ClientInfo,
    corridor: &C,
    limits: &Arc<Limits>,
    mut signal: Signal,
) {
    let mut core = Core::new(io, first, Arc::clone(limits), signal.clone());
    loop {
        let next = next_head(&mut core, &mut signal).await;
        match &next {
            Next::Close => return close(core).await,
            Next::Exchange(head) => core.begin(head),
            Next::Refuse(_) => core.begin_refusal(),
        }
        let shared = Mutex::new(core);
        match next {
            Next::Exchange(head) => {
                let (mut body, mut answer) = (Body::new(&shared), Answer::new(&shared));
                corridor.exchange(info, *head, &mut body, &mut answer).await;
            }
            Next::Refuse(refusal) => {
                // What is no request says no version that could be believed.
                let protocol = ClientProtocol::Http11;
                corridor.refuse(info, protocol, refusal, &mut Answer::new(&shared));
            }
            Next::Close => {}
        }
        core = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        match core.ending() {
            Ending::Broken => return drop_broken(core).await,
            Ending::Next if flushed(&mut core).await => {}
            Ending::Close if flushed(&mut core).await => return close(core).await,
            Ending::Linger if flushed(&mut core).await => return linger(core).await,
            // The client takes no more of its answer.
            Ending::Next | Ending::Close | Ending::Linger => return,
        }
    }
}

/// Read until a head is complete, refused, or not to be expected any more.
async fn next_head<IO: Transport>(core: &mut Core<IO>, signal: &mut Signal) -> Next {
    let limits = Arc::clone(&core.limits);
    let mut idle_end = Instant::now() + limits.keep_alive;
    let (mut draining, mut tight) = (false, false);
    let head_end = |first: Instant| first + limits.head_time;
    let mut scan = HeadScan::request();
    let mut began = (!core.input.is_empty()).then(Instant::now);
    core.shrink_input();
    loop {
        match scan.scan(&core.input, &limits.head) {
            Err(error) => return Next::Refuse(Refusal::Head(error)),
            Ok(Some(len)) => {
                let bytes = Bytes::copy_from_slice(&core.input[..len]);
                core.input.advance(len);
                return match head::request_head(bytes, &limits.head) {
                    Ok(head) => Next::Exchange(Box::new(head)),
                    Err(error) => Next::Refuse(Refusal::Head(error)),
                };
            }
            Ok(None) if core.ended() => return Next::Close,
            Ok(None) => {}
        }
        core.input.reserve(HEAD_BUFFER);
        let read = core.io.read_buf(&mut core.input);
        let alarm = sleep_until(began.map_or(idle_end, head_end));
        tokio::select! { biased;
            // A request may be on its way to us: it gets an answer, not a reset.
            () = signal.draining(), if began.is_none() && !draining => {
                draining = true;
                idle_end = idle_end.min(Instant::now() + limits.drain_patience);
            }
            () = limits.pressure.tight(), if began.is_none() && !tight => {
                tight = true;
                idle_end = idle_end.min(Instant::now() + TIGHT_IDLE);
            }
            read = read => match read {
                Ok(0) | Err(_) => return Next::Close,
                Ok(_) => { began.get_or_insert_with(Instant::now); }
            },
            () = alarm => return match began {
                Some(_) => Next::Refuse(Refusal::HeadTimeout),
                None => Next::Close,
            },
        }
    }
}

/// Write out what is queued; false if the client does not take it.
async fn flushed<IO: Transport>(core: &mut Core<IO>) -> bool {
    poll_fn(|cx| core.poll_flush(cx)).await.is_ok()
}

/// Close cleanly: everything that was answered is on its way, and nothing unread would turn the
/// close into a reset.
async fn close<IO: Transport>(mut core: Core<IO>) {
    // A peer that is gone needs no goodbye, and one that does not read gets no more time.
    let limit = core.limits.write_stall;
    let _gone_or_late = timeout(limit, poll_fn(|cx| core.poll_shutdown(cx))).await;
}

/// Close our side and throw away what the client still sends, so that it can read its answer.
async fn linger<IO: Transport>(mut core: Core<IO>) {
    let limits = Arc::clone(&core.limits);
    let end = Instant::now() + limits.discard_time;
    let mut left = limits.discard_bytes;
    let discard = async {
        if poll_fn(|cx| core.poll_shutdown(cx)).await.is_err() {
            return;
        }
        let mut sink = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = core.io.read(&mut sink).await {
            left = left.saturating_sub(read as u64);
            if left == 0 {
                return;
            }
        }
    };
    // Late or not, the connection ends here.
    let _late = timeout_at(end, discard).await;
}

/// The answer ends broken: what was queued may still go out, a clean end may not (see [`Core`]).
async fn drop_broken<IO: Transport>(mut core: Core<IO>) {
    poll_fn(|cx| {
        core.write_once(cx);
        std::task::Poll::Ready(())
    })
    .await;
}
