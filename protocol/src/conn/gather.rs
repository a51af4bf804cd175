//! Short pieces become longer ones, so that what it costs to hold them stays near their length.

use bytes::Bytes;

/// Payloads below this are copied out of the read buffer: a piece pins the whole buffer, of which the rest
/// may have long been read. Half of a buffer, so that what is kept costs at most twice its length.
pub(super) const PINS_BELOW: usize = 32 * 1024;
/// Pieces below this are joined to the last one where that is still here alone.
pub(super) const GATHER_BELOW: usize = 1024;
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
