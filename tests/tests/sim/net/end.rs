//! One end of a link as a program holds it: reading, writing, and what a kernel would add.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bridgehead_agent::app::connect::Given;
use bridgehead_gateway::accept::Transport;
use bridgehead_gateway::request::front::RawClient;
use bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::{Net, World, room};
use crate::frames::Note;
use crate::journal::{Class, Op, When};

/// One end of a link.
#[derive(Debug)]
pub(crate) struct End {
    pub(super) net: Net,
    pub(super) link: usize,
    pub(super) side: usize,
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl World {
    fn poll_write(
        &mut self,
        cx: &Context<'_>,
        link: usize,
        side: usize,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_held(link, side) {
            self.links[link].dirs[side].writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut accepted = 0;
        while accepted < bytes.len() {
            let piece = self.piece(link, side, &bytes[accepted..]);
            if self.links[link].dirs[side].cutter.is_between() || self.is_plain(link) {
                self.about_to(link);
            }
            let amid = !self.is_plain(link) && piece > 1 && self.journal.cuts_the_next();
            let piece = if amid { piece / 2 } else { piece };
            let wrote = self.write_piece(cx, link, side, &bytes[accepted..accepted + piece]);
            if amid {
                let due = self.journal.due(When::Amid);
                self.strike(due, link);
            }
            match wrote {
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(Ok(count)) => accepted += count,
                Poll::Ready(Err(error)) if accepted == 0 => return Poll::Ready(Err(error)),
                Poll::Pending if accepted == 0 => return Poll::Pending,
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(accepted))
    }

    fn is_plain(&self, link: usize) -> bool {
        self.links[link].class != Class::Carrier
    }

    /// Carriers take frame by frame, others everything.
    fn piece(&self, link: usize, side: usize, bytes: &[u8]) -> usize {
        if self.is_plain(link) {
            return bytes.len();
        }
        self.links[link].dirs[side].cutter.piece(bytes)
    }

    fn write_piece(
        &mut self,
        cx: &Context<'_>,
        link: usize,
        side: usize,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let held = self.is_held(link, side);
        let plain = self.is_plain(link);
        let l = &mut self.links[link];
        if held {
            l.dirs[side].writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if l.reset[side] || l.gone[side] {
            return Poll::Ready(Err(reset()));
        }
        let dir = &mut l.dirs[side];
        if dir.fin && !dir.hole {
            // Somebody between the ends closed it: the first bytes meet a reset. What the far end did
            // not read yet stands before its end as it stood.
            let count = bytes.len();
            dir.written += count as u64;
            self.note(link, side, Op::Wrote, Note::LOST, count as u32);
            self.reset_side(link, side);
            return Poll::Ready(Ok(count));
        }
        let free = room(l.class).saturating_sub(dir.bytes.len());
        let count = if dir.hole {
            bytes.len()
        } else {
            bytes.len().min(free)
        };
        if count == 0 {
            dir.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut notes = Vec::new();
        if plain {
            dir.written += count as u64;
            notes.push(Note::bytes(&bytes[..count]));
        } else {
            for note in dir.cutter.feed(&bytes[..count], dir.written) {
                dir.frames.push_back(note);
                notes.push(note.1);
            }
            dir.written += count as u64;
        }
        if dir.hole || l.gone[1 - side] {
            dir.frames.clear();
        } else {
            dir.bytes.extend_from_slice(&bytes[..count]);
            self.wakers.extend(dir.reader.take());
        }
        let peer_gone = l.gone[1 - side] && !l.dirs[side].hole;
        for note in notes {
            self.note(link, side, Op::Wrote, note, count as u32);
        }
        if peer_gone {
            // The kernel took the bytes; the far one answers them with a reset.
            self.reset(link);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_read(
        &mut self,
        cx: &Context<'_>,
        link: usize,
        side: usize,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_held(link, side) && self.has_bytes(link, side) {
            self.about_to(link);
        }
        if self.is_held(link, side) {
            self.links[link].dirs[1 - side].reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let l = &mut self.links[link];
        if l.reset[side] || l.gone[side] {
            return Poll::Ready(Err(reset()));
        }
        let dir = &mut l.dirs[1 - side];
        if dir.until.is_some_and(|until| Instant::now() < until) {
            dir.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if dir.bytes.is_empty() {
            if dir.cut {
                return Poll::Ready(Err(reset()));
            }
            if dir.fin && !dir.hole {
                return Poll::Ready(Ok(()));
            }
            dir.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // Up to the end of one frame, so that a fault may strike between any two.
        let mut count = dir.bytes.len().min(buf.remaining());
        let mut note = Note::NONE;
        let mut more = Vec::new();
        if let Some((end, frame)) = dir.frames.front() {
            let left = usize::try_from(end - dir.read).unwrap_or(usize::MAX);
            if left <= count {
                (count, note) = (left, *frame);
                let end = *end;
                dir.frames.pop_front();
                while let Some((_, note)) = dir.frames.pop_front_if(|(e, _)| *e == end) {
                    more.push(note);
                }
            } else {
                note = Note::PART;
            }
        }
        buf.put_slice(&dir.bytes[..count]);
        dir.bytes.advance(count);
        dir.read += count as u64;
        self.wakers.extend(dir.writer.take());
        self.note(link, side, Op::Read, note, count as u32);
        for note in more {
            self.note(link, side, Op::Read, note, 0);
        }
        Poll::Ready(Ok(()))
    }

    fn has_bytes(&self, link: usize, side: usize) -> bool {
        let l = &self.links[link];
        let dir = &l.dirs[1 - side];
        let late = dir.until.is_some_and(|until| Instant::now() < until);
        !l.reset[side] && !late && !dir.bytes.is_empty()
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (link, side) = (self.link, self.side);
        self.net.with(|world| world.poll_read(cx, link, side, buf))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (link, side) = (self.link, self.side);
        self.net
            .with(|world| world.poll_write(cx, link, side, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
        self.poll_write(cx, &all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (link, side) = (self.link, self.side);
        self.net.with(|world| {
            if world.is_held(link, side) {
                world.links[link].dirs[side].writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            world.links[link].dirs[side].fin = true;
            world.note(link, side, Op::Ended, Note::NONE, 0);
            world.wake(link);
            Poll::Ready(Ok(()))
        })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let (link, side) = (self.link, self.side);
        self.net.with(|world| {
            if !world.is_dead(link, side) && !world.links[link].gone[side] {
                world.note(link, side, Op::Closed, Note::NONE, 0);
                world.close(link, side);
            }
        });
    }
}

impl Transport for End {
    fn is_reset(&self) -> bool {
        self.net
            .with(|world| world.links[self.link].reset[self.side])
    }

    fn reset_on_close(&self) {
        self.net
            .with(|world| world.links[self.link].abrupt[self.side] = true);
    }
}

impl RawClient for End {
    fn reset_on_close(&self) {
        Transport::reset_on_close(self);
    }

    async fn broken(&self) {
        std::future::poll_fn(|cx| {
            self.net.with(|world| {
                let link = &mut world.links[self.link];
                if link.reset[self.side] {
                    return Poll::Ready(());
                }
                link.dirs[1 - self.side].reader = Some(cx.waker().clone());
                Poll::Pending
            })
        })
        .await;
    }
}

impl Given for End {
    fn has_news(&self) -> bool {
        self.net.with(|world| {
            let link = &world.links[self.link];
            let dir = &link.dirs[1 - self.side];
            link.reset[self.side] || dir.fin || !dir.bytes.is_empty()
        })
    }

    fn abort_on_drop(&self) {
        self.net
            .with(|world| world.links[self.link].abrupt[self.side] = true);
    }
}
