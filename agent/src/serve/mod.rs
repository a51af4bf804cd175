//! One task per stream: connect to the app, say so, copy bytes both ways, tell how it ended.
//!
//! Never repeats and never dials twice for one stream. What was written is counted by the tunnel
//! core in the same step as the write (see `protocol::io::AppStream`), never here.

mod copy;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::io::AppStream;
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::wire::RefusedReason;

use crate::app::table::AppTable;

use copy::Copy;
pub use copy::{Connection, Orphan};

/// How much longer than asked a planted bug waits for the app's connection.
const BUG_WAITS: Duration = Duration::from_secs(60);

/// Serves one stream to its end. Dropping the future concludes the stream and closes the app's socket.
/// Answers what is left of it if its tunnel was lost while the app was at work.
pub async fn stream(stream: AppStream, apps: Arc<AppTable>) -> Option<Orphan> {
    let (open, deadline) = stream.asked()?;
    let mut until = stream.instant(deadline);
    if Bug::ExpiredBeginWritten.bites() {
        until += BUG_WAITS;
    }
    let connect = apps.connect(&open.app, open.kind, until);
    let connected = tokio::select! {
        biased;
        _ = poll_fn(|cx| stream.poll_given_up(cx)) => {
            stream.refuse(RefusedReason::Expired, 0);
            return None;
        }
        connected = connect => connected,
    };
    match connected {
        Ok(socket) => {
            stream.opened();
            Copy::new(stream, socket, open.kind).run().await
        }
        Err(error) => {
            tracing::debug!(app = open.app, %error, "app not reached");
            stream.refuse(error.reason, error.errno);
            None
        }
    }
}
