//! The way back of a sending half: to where the peer stands, or behind what was never taken.

use super::SendHalf;

impl SendHalf {
    /// True if the peer, by what it says of itself, can stand at `offset`.
    pub(in crate::conn) fn may_stand_at(&self, offset: u64) -> bool {
        self.consumed <= offset && offset <= self.next
    }

    /// The next carrier goes on at `offset`, where the peer stands; answers how many bytes are sent
    /// again. A mark at that offset is sent again too: the peer knows it by its request.
    pub(in crate::conn) fn rewind(&mut self, offset: u64) -> u64 {
        debug_assert!(self.may_stand_at(offset));
        if self.shut {
            return 0;
        }
        let again = self.next - offset;
        let mut left = again;
        while left > 0 {
            let Some(mut piece) = self.retained.pop_back() else {
                debug_assert!(false, "what is not consumed is kept");
                break;
            };
            let len = piece.len() as u64;
            if len > left {
                let keep = usize::try_from(len - left).unwrap_or(0);
                self.retained.push_back(piece.split_to(keep));
            }
            left -= len.min(left);
            self.queued.push_front(piece);
        }
        self.next = offset;
        self.fin_sent = false;
        let unseen = self.marks.partition_point(|mark| mark.at < offset);
        for mark in self.marks.split_off(unseen).into_iter().rev() {
            self.begins.push_front(mark);
        }
        again
    }

    /// What was emitted from `offset` on was never taken by the carrier that is lost; before it was
    /// emitted, `emitted` stood at `before`. It is queued again, or falls away if it was forgotten.
    pub(in crate::conn) fn never_taken(&mut self, offset: u64, before: u64) {
        // A peer that says it consumed what it never got keeps what it said.
        let offset = offset.max(self.consumed);
        if offset > self.next {
            return;
        }
        self.rewind(offset);
        self.high = before.max(offset).min(self.high);
    }
}
