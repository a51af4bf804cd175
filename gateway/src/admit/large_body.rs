//! Who needs one of the slots for large bodies.
//!
//! A declared length is a promise to send that much at once; the slots bound how many such uploads
//! an app has to swallow beside each other. A body of unknown length flows under credit and needs
//! none, nor does what becomes a byte pipe or a stream of messages. Beside the slot of the app it takes
//! memory of the gateway: what one body may hold until its app has taken it.

use super::gate::{Asker, Shape};
use crate::config::Admission;

pub(super) fn needs_slot(limits: &Admission, asker: &Asker) -> bool {
    let exempt = match asker.shape {
        Shape::Exchange => false,
        Shape::Stream | Shape::Pipe => true,
    };
    !exempt
        && asker
            .declared
            .is_some_and(|length| length > limits.large_body)
}
