//! Short pieces become longer ones, so that what it costs to hold them stays near their length.

use bytes::Bytes;

/// Payloads below this are copied out of the read buffer, so that one kept byte never pins 64 KiB.
pub(super) const COPY_BELOW: usize = 1024;
/// Pieces are gathered up to this length: the cost of holding one (about 100 bytes) is then small
/// beside it, also for a peer or an app that sends single bytes.
const GATHER_UP_TO: usize = 4096;

/// Appends `more` to `last` if the result stays short and nobody else holds `last`.
pub(super) fn gather(last: &mut Bytes, more: &[u8]) -> bool {
    if last.len() + more.len() > GATHER_UP_TO {
        return false;
    }
    match std::mem::take(last).try_into_mut() {
        Ok(mut joined) => {
            joined.extend_from_slice(more);
            *last = joined.freeze();
            true
        }
        Err(shared) => {
            *last = shared;
            false
        }
    }
}
