//! The request's body on its way to the app: held, kept for another try, limited, passed on.
//!
//! Reads from the client only when the tunnel can take more, so that a held body stays in the
//! client's socket. What was read stays here, up to [`KEEP`] bytes, until the first byte of an
//! answer: only then can a proven `not_delivered` not need it any more. On a connection with many
//! streams all of it counts against what they may hold together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::allowance::{Allowance, Portion};
use super::front::{BodyPart, ClientBody, ClientFault};

/// Body bytes kept for another try.
const KEEP: usize = 64 * 1024;

#[derive(Clone)]
enum Kept {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

impl Kept {
    fn part(&self) -> BodyPart {
        match self {
            Self::Data(bytes) => BodyPart::Data(bytes.clone()),
            Self::Trailers(trailers) => BodyPart::Trailers(trailers.clone()),
            Self::End => BodyPart::End,
        }
    }
}

/// Why the body stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadFault {
    /// The client's side failed.
    Client(ClientFault),
    /// The route's limit was passed.
    TooLarge(u64),
}

/// The body of one exchange across its tries.
pub struct Upload {
    kept: Vec<Kept>,
    kept_bytes: usize,
    is_kept: bool,
    replay: VecDeque<Kept>,
    total: u64,
    limit: Option<u64>,
    ended: bool,
    /// What the bodies of the client's connection may hold, and this one's part of it in this try, once
    /// something was read.
    allowance: Option<Arc<Allowance>>,
    portion: Option<Portion>,
    most: usize,
}

impl Upload {
    /// A body of which nothing was read; `limit` in bytes. `allowance`: what the client's connection may
    /// hold, if it has many streams.
    #[must_use]
    pub fn new(limit: Option<u64>, allowance: Option<Arc<Allowance>>) -> Self {
        Self {
            kept: Vec::new(),
            kept_bytes: 0,
            is_kept: true,
            replay: VecDeque::new(),
            total: 0,
            limit,
            ended: false,
            allowance,
            portion: None,
            most: KEEP,
        }
    }

    /// True while all that was read is still here.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Bytes read from the client so far, however often they were passed on.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The next try begins: what was read comes again first.
    pub fn rewind(&mut self) {
        debug_assert!(self.is_kept);
        self.replay = self.kept.iter().cloned().collect();
        // Its part is told to the connection of each try.
        self.portion = None;
    }

    /// No other try will follow: what is kept is given back.
    pub fn commit(&mut self) {
        self.kept = Vec::new();
        self.kept_bytes = 0;
        self.is_kept = false;
    }

    /// More may be read: how much of the body may wait for the app from now on, if that is another than
    /// before. `waits`: bytes that the tunnel was handed and the app has not taken.
    pub fn share_out(&mut self, waits: impl FnOnce() -> u64) -> Option<u32> {
        // Most requests have no body.
        if self.total == 0 {
            return None;
        }
        let allowance = self.allowance.as_ref();
        let portion = (self.portion).get_or_insert_with(|| Portion::of(allowance));
        let kept = self.kept_bytes as u64;
        let most = portion.reads(|| waits().max(kept))?;
        self.most = KEEP.min(most as usize);
        Some(most)
    }

    /// The next part, from what was kept or from the client. Cancel safe.
    pub fn poll_part<B: ClientBody>(
        &mut self,
        body: &mut B,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BodyPart, UploadFault>> {
        if let Some(kept) = self.replay.pop_front() {
            return Poll::Ready(Ok(kept.part()));
        }
        if self.ended {
            return Poll::Ready(Ok(BodyPart::End));
        }
        let part = match body.poll_part(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(fault)) => return Poll::Ready(Err(UploadFault::Client(fault))),
            Poll::Ready(Ok(part)) => part,
        };
        if let BodyPart::Data(bytes) = &part {
            self.total += bytes.len() as u64;
            if let Some(limit) = self.limit.filter(|limit| self.total > *limit) {
                return Poll::Ready(Err(UploadFault::TooLarge(limit)));
            }
        }
        self.ended = !matches!(part, BodyPart::Data(_));
        self.keep(&part);
        Poll::Ready(Ok(part))
    }

    fn keep(&mut self, part: &BodyPart) {
        if !self.is_kept {
            return;
        }
        let kept = match part {
            BodyPart::Data(bytes) => Kept::Data(bytes.clone()),
            BodyPart::Trailers(trailers) => Kept::Trailers(trailers.clone()),
            BodyPart::End => Kept::End,
        };
        if let Kept::Data(bytes) = &kept {
            self.kept_bytes += bytes.len();
        }
        if self.kept_bytes > self.most {
            self.commit();
        } else {
            self.kept.push(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Body(VecDeque<BodyPart>);

    impl ClientBody for Body {
        fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Result<BodyPart, ClientFault>> {
            self.0
                .pop_front()
                .map_or(Poll::Pending, |part| Poll::Ready(Ok(part)))
        }

        fn poll_left(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn bytes_read(&self) -> u64 {
            0
        }
    }

    fn data(text: &'static str) -> BodyPart {
        BodyPart::Data(Bytes::from_static(text.as_bytes()))
    }

    fn all(upload: &mut Upload, body: &mut Body) -> String {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut text = String::new();
        loop {
            match upload.poll_part(body, &mut cx) {
                Poll::Ready(Ok(BodyPart::Data(bytes))) => {
                    text.push_str(&String::from_utf8_lossy(&bytes))
                }
                Poll::Ready(Ok(_)) => return text + "$",
                Poll::Ready(Err(fault)) => return format!("{text}{fault:?}"),
                Poll::Pending => return text + "…",
            }
        }
    }

    #[test]
    fn a_second_try_sees_the_same_body_from_its_beginning() {
        let mut body = Body([data("ab"), data("cd")].into());
        let mut upload = Upload::new(None, None);
        assert_eq!(all(&mut upload, &mut body), "abcd…");
        body.0.extend([data("ef"), BodyPart::End]);
        upload.rewind();
        assert_eq!(all(&mut upload, &mut body), "abcdef$");
        upload.rewind();
        assert_eq!(all(&mut upload, &mut body), "abcdef$");
    }

    #[test]
    fn a_body_too_long_to_keep_is_not_kept_at_all() {
        let chunk = Bytes::from(vec![0; 40_000]);
        let mut body = Body([BodyPart::Data(chunk.clone()), BodyPart::Data(chunk)].into());
        let mut upload = Upload::new(None, None);
        all(&mut upload, &mut body);
        assert!(!upload.is_kept());
    }

    #[test]
    fn a_body_has_its_part_of_what_the_connection_holds_once_there_is_one() {
        let allowance = Allowance::new(64 * 1024);
        let mut other = Portion::of(Some(&allowance));
        assert!(other.bears(60 * 1024));
        let chunk = BodyPart::Data(Bytes::from(vec![0; 3_000]));
        let mut body = Body([chunk].into());
        let mut upload = Upload::new(None, Some(Arc::clone(&allowance)));
        assert_eq!(upload.share_out(|| 0), None, "nothing was read");
        all(&mut upload, &mut body);
        assert_eq!(upload.share_out(|| 3_000), Some(4 * 1024));
        assert_eq!(upload.share_out(|| 3_000), None, "it is the same");
        assert!(upload.is_kept());
        // What is kept for another try is held as well, whatever the app took of it.
        body.0.extend([data("ab")]);
        all(&mut upload, &mut body);
        drop(other);
        let more = upload.share_out(|| 0).expect("there is more now");
        assert!(more > 16 * 1024, "{more}");
        upload.rewind();
        assert!(upload.share_out(|| 0).is_some(), "another connection");
    }

    #[test]
    fn a_body_beyond_its_part_is_not_kept_for_another_try() {
        let allowance = Allowance::new(1);
        let chunk = BodyPart::Data(Bytes::from(vec![0; 3_000]));
        let mut body = Body([chunk].into());
        let mut upload = Upload::new(None, Some(allowance));
        all(&mut upload, &mut body);
        upload.share_out(|| 3_000);
        body.0
            .push_back(BodyPart::Data(Bytes::from(vec![0; 3_000])));
        all(&mut upload, &mut body);
        assert!(!upload.is_kept());
    }

    #[test]
    fn a_limit_is_told_with_its_number() {
        let mut body = Body([data("abc"), data("de"), BodyPart::End].into());
        assert_eq!(
            all(&mut Upload::new(Some(4), None), &mut body),
            "abcTooLarge(4)"
        );
    }
}
