//! Frames to bytes. Cannot fail: open lists that are too long become several frames, texts that
//! are too long are cut; what must not be cut is checked by its maker (`check_offers`, the
//! handshake). No frame longer than the cap is ever written.

use bytes::{BufMut, BytesMut};

use super::frame::{Frame, Resume, StreamId};
use super::header::{self, HEADER_LEN, Kind, MAX_PAYLOAD};
use super::{
    apps, begin, credit, data, fence, goaway, hello, open, opened, refuse, refused, report, reset,
    resume, terminal, welcome,
};

/// Appends `frame` to `out`.
///
/// DATA is copied; a writer that has the bytes in hand sends [`encode_data_header`] and the bytes
/// side by side. A DATA frame longer than [`MAX_PAYLOAD`] becomes several; FIN stands on the last.
pub fn encode(frame: &Frame, out: &mut BytesMut) {
    let kind = frame.kind();
    let stream = frame.stream();
    let mut put = |flags: u8, payload: &dyn Fn(&mut BytesMut)| {
        framed(out, kind, flags, stream, payload);
    };
    match frame {
        Frame::Hello(hello) => put(hello::flags(hello), &|out| hello::encode(hello, out)),
        Frame::Welcome(welcome) => put(0, &|out| welcome::encode(welcome, out)),
        Frame::Refuse(refuse) => put(refuse::flags(refuse), &|out| refuse::encode(refuse, out)),
        Frame::Resume(resume) => encode_resume(resume, out),
        Frame::Ping(bytes) | Frame::Pong(bytes) => put(0, &|out| out.put_slice(bytes)),
        Frame::Apps { revision, apps } => put(0, &|out| apps::encode(*revision, apps, out)),
        Frame::GoAway {
            last,
            reason,
            deadline,
        } => {
            put(0, &|out| goaway::encode(*last, *reason, *deadline, out));
        }
        Frame::Open(_, open) => put(0, &|out| open::encode(open, out)),
        Frame::Opened { credit, .. } => put(0, &|out| opened::encode(*credit, out)),
        Frame::Refused { reason, errno, .. } => {
            put(0, &|out| refused::encode(*reason, *errno, out));
        }
        Frame::Begin(_, begin) => put(begin::flags(begin), &|out| begin::encode(begin, out)),
        Frame::Data { bytes, fin, .. } => encode_data(stream, bytes, *fin, out),
        Frame::Credit {
            limit, consumed, ..
        } => {
            put(0, &|out| credit::encode(*limit, *consumed, out));
        }
        Frame::Fence { linger, .. } => put(fence::flags(*linger), &|_| ()),
        Frame::Count { written, read, .. } => {
            put(0, &|out| fence::encode_count(*written, *read, out));
        }
        Frame::Reset { code, .. } => put(0, &|out| reset::encode(*code, out)),
        Frame::Final {
            written,
            read,
            cause,
            ..
        } => {
            put(0, &|out| {
                terminal::encode_final(*written, *read, *cause, out)
            });
        }
        Frame::Done(streams) => {
            for part in parts(streams, terminal::MAX_DONE) {
                put(0, &|out| terminal::encode_done(part, out));
            }
        }
        Frame::Report(entries) => {
            for part in parts(entries, report::MAX_ENTRIES) {
                put(0, &|out| report::encode(part, out));
            }
        }
    }
}

/// Header of a DATA frame whose `len` bytes follow; `len` is at most [`MAX_PAYLOAD`].
#[must_use]
pub const fn encode_data_header(stream: StreamId, len: usize, fin: bool) -> [u8; HEADER_LEN] {
    header::bytes(len, Kind::Data, data::flags(fin), stream)
}

/// Writes a header with length zero, the payload, then the true length.
fn framed(
    out: &mut BytesMut,
    kind: Kind,
    flags: u8,
    stream: StreamId,
    payload: &dyn Fn(&mut BytesMut),
) {
    let start = out.len();
    out.put_slice(&header::bytes(0, kind, flags, stream));
    payload(out);
    let length = out.len() - start - HEADER_LEN;
    debug_assert!(length <= MAX_PAYLOAD);
    out[start..start + HEADER_LEN].copy_from_slice(&header::bytes(length, kind, flags, stream));
}

fn encode_resume(resume: &Resume, out: &mut BytesMut) {
    let mut rest = parts(&resume.streams, resume::MAX_STREAMS).peekable();
    while let Some(part) = rest.next() {
        let more = resume.more || rest.peek().is_some();
        let flags = if more { resume::MORE } else { 0 };
        framed(out, Kind::Resume, flags, StreamId::TUNNEL, &|out| {
            resume::encode(resume.highest_open, part, out);
        });
    }
}

fn encode_data(stream: StreamId, bytes: &[u8], fin: bool, out: &mut BytesMut) {
    let mut rest = parts(bytes, MAX_PAYLOAD).peekable();
    while let Some(part) = rest.next() {
        let last = rest.peek().is_none();
        out.put_slice(&encode_data_header(stream, part.len(), fin && last));
        out.put_slice(part);
    }
}

/// `list` in pieces of at most `size`; one empty piece if it is empty.
fn parts<T>(list: &[T], size: usize) -> impl Iterator<Item = &[T]> {
    let empty = list.is_empty().then_some(list);
    empty.into_iter().chain(list.chunks(size))
}
