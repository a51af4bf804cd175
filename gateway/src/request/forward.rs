//! One try: the client's halves joined with the app's side, both directions and the windows in one task.
//!
//! Decides nothing about verdicts: it ends with what happened ([`Finish`]), and the corridor says
//! what that means. Invariants: the client's body is read only when the app's side can take it; an
//! answer's head is held until its first byte, its end, or the window, unless its type streams;
//! nothing of a broken answer ends cleanly.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bridgehead_protocol::conn::{Ended, View};
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::WindowKind;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Sleep;

use super::admission::tell_limits;
use super::allowance::Portion;
use super::app::{AnswerLength, AppEvent, AppFault, AppHead, AppSide};
use super::apps::AppState;
use super::front::{
    AnswerBody, AnswerHead, BodyPart, ClientAnswer, ClientBody, ClientFault, ClientProtocol,
};
use super::head::{self, Shape};
use super::load::{GivenUp, Load};
use super::upload::{Upload, UploadFault};
use super::windows::{Started, Windows};
use crate::clock::Clock;
use crate::config::MediaTypes;
use crate::telemetry::access::{AppConn, ExchangeGuard};
use crate::telemetry::labels::HoldResult;

/// Longest time an app may take to say `100 Continue` before the body is sent anyway.
const CONTINUE_WITHIN: Duration = Duration::from_secs(1);
/// Turns before the task lets others run.
const TURNS: usize = 32;

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The whole answer went to the client.
    Complete,
    /// The client is gone.
    ClientLeft,
    /// The gateway gave it up.
    GivenUp(GivenUp),
    /// A window ran out.
    Window(WindowKind),
    /// The app's side failed.
    App(AppFault),
    /// The request's body failed.
    Upload(UploadFault),
}

/// What a try is made of.
pub struct Parts<'a, B, A, S> {
    /// The client's body.
    pub body: &'a mut B,
    /// The client's answer.
    pub answer: &'a mut A,
    /// The app's side; its head is on its way.
    pub app: &'a mut S,
    /// The body across tries.
    pub upload: &'a mut Upload,
    /// The windows across tries.
    pub windows: &'a mut Windows,
    /// The account of the exchange.
    pub guard: &'a mut ExchangeGuard,
    /// What is known of the app.
    pub state: &'a AppState,
    /// The process's clock.
    pub clock: Clock,
    /// Method of the request.
    pub method: &'a Method,
    /// Version of the client.
    pub protocol: ClientProtocol,
    /// Content types of streaming answers.
    pub streaming: &'a MediaTypes,
    /// What the exchange may become.
    pub shape: &'a Shape,
    /// The exchange's entry among those that hold memory.
    pub load: &'a Load,
    /// Another tunnel would take the exchange at once.
    pub elsewhere: &'a (dyn Fn() -> bool + Sync),
    /// What the answer may hold of what its client's connection may.
    pub portion: &'a mut Portion,
    /// Fields that tell where the client stands with its limits.
    pub limits: &'a HeaderMap,
}

/// Where the body stands.
enum Up {
    /// Held until the app agrees, or the time is over.
    Asking(Moment),
    /// Held until the app has switched protocols.
    Switching,
    Sending,
    Done,
}

/// One try under way.
pub struct Forward<'a, B, A, S> {
    parts: Parts<'a, B, A, S>,
    up: Up,
    held_head: Option<AnswerHead>,
    chunk: Bytes,
    ending: Option<BodyPart>,
    ended: bool,
    app_status: Option<u16>,
    /// Bytes of the stream that the agent told as taken.
    consumed: u64,
    /// Those of them that are the request's.
    took: u64,
    answered: u64,
    told_opened: bool,
    waits_for_client_body: bool,
    waits_for_client_read: bool,
    /// When a gRPC call whose client is waited for counts as a stream.
    settles: Option<Moment>,
    settled: bool,
    timer: Pin<Box<Sleep>>,
    timer_at: Option<Moment>,
}

impl<'a, B: ClientBody, A: ClientAnswer, S: AppSide> Forward<'a, B, A, S> {
    /// A try whose head was handed to the app's side.
    pub fn new(parts: Parts<'a, B, A, S>) -> Self {
        let now = parts.clock.now();
        let up = if parts.shape.switches() {
            Up::Switching
        } else if parts.shape.expect_continue {
            Up::Asking(now + CONTINUE_WITHIN)
        } else {
            Up::Sending
        };
        parts.load.stream(parts.app.control());
        let view = parts.app.control().view();
        Self {
            parts,
            up,
            held_head: None,
            chunk: Bytes::new(),
            ending: None,
            ended: false,
            app_status: None,
            consumed: view.consumed,
            took: 0,
            answered: 0,
            told_opened: view.opened,
            waits_for_client_body: false,
            waits_for_client_read: false,
            settles: None,
            settled: false,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: None,
        }
    }

    /// Runs to the end. Not cancel safe: dropping it leaves the answer unfinished.
    pub async fn run(&mut self) -> Finish {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Status of the app's final head, if one came; the client may not have seen it.
    pub fn app_status(&self) -> Option<u16> {
        self.app_status
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Finish> {
        for _ in 0..TURNS {
            let down = self.poll_down(cx);
            if let Poll::Ready(Some(finish)) = down {
                return Poll::Ready(finish);
            }
            let up = self.poll_up(cx);
            if let Poll::Ready(Some(finish)) = up {
                return Poll::Ready(finish);
            }
            if down.is_pending() && up.is_pending() {
                return self.poll_waits(cx);
            }
        }
        // Bytes that never pause must not keep the exchange from ending.
        if let Poll::Ready(why) = self.parts.load.poll_given_up(cx) {
            return Poll::Ready(Finish::GivenUp(why));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    // ---- app to client ---------------------------------------------------------------------

    /// `Ready(None)` is progress, `Ready(Some)` the end.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Option<Finish>> {
        if !self.chunk.is_empty() {
            return self.poll_chunk(cx);
        }
        if let Some(ending) = self.ending.take() {
            match ending {
                BodyPart::Trailers(trailers) => self.parts.answer.trailers(trailers),
                BodyPart::Data(_) | BodyPart::End => self.parts.answer.end(),
            }
            self.ended = true;
        }
        if self.ended {
            // Whatever is left to flush, the app has done its part: no window runs any more.
            self.waits_for_client_read = true;
            return self
                .parts
                .answer
                .poll_flush(cx)
                .map(|flushed| Some(flushed.map_or(Finish::ClientLeft, |()| Finish::Complete)));
        }
        match self.parts.app.poll_event(cx) {
            Poll::Pending => self.poll_flush(cx),
            Poll::Ready(Err(fault)) => Poll::Ready(Some(Finish::App(fault))),
            Poll::Ready(Ok(event)) => {
                let now = self.parts.clock.now();
                self.tell_opened(now);
                self.parts.guard.first_byte(now);
                self.parts.upload.commit();
                self.progress(now);
                Poll::Ready(self.on_event(event, now))
            }
        }
    }

    fn tell_opened(&mut self, now: Moment) {
        if !std::mem::replace(&mut self.told_opened, true) {
            self.parts.guard.opened(now, AppConn::Fresh);
            self.parts.state.reached();
        }
    }

    /// The app took or gave bytes of this exchange: it is there.
    fn progress(&mut self, now: Moment) {
        self.parts.windows.progress(now);
        self.parts.guard.end_hold(now, HoldResult::Released);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Option<Finish>> {
        match self.parts.answer.poll_flush(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(Some(Finish::ClientLeft)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Finish>> {
        match self.parts.answer.poll_ready(cx) {
            Poll::Pending => {
                self.waits_for_client_read = true;
                self.parts.app.attend(cx);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Some(Finish::ClientLeft)),
            Poll::Ready(Ok(())) => {
                self.waits_for_client_read = false;
                let before = self.chunk.len();
                self.parts.answer.data(&mut self.chunk);
                if self.chunk.is_empty() {
                    self.share_out();
                }
                self.parts
                    .guard
                    .bytes_out((before - self.chunk.len()) as u64);
                Poll::Ready(None)
            }
        }
    }

    /// The client reads, so its stream may have more, or must leave some to the others.
    fn share_out(&mut self) {
        let app = &mut *self.parts.app;
        if let Some(cap) = self.parts.portion.reads(|| app.exposure()) {
            app.cap(cap);
        }
    }

    fn on_event(&mut self, event: AppEvent, now: Moment) -> Option<Finish> {
        match event {
            AppEvent::Informational(StatusCode::CONTINUE, _) => {
                // The client gets its own 100 with the first poll of its body.
                if matches!(self.up, Up::Asking(_)) {
                    self.up = Up::Sending;
                }
            }
            AppEvent::Informational(status, headers) => {
                if self.parts.protocol != ClientProtocol::Http10 {
                    self.parts
                        .answer
                        .informational(status, &head::informational(headers));
                }
            }
            AppEvent::Head(head) => return self.on_head(head, now),
            AppEvent::Data(bytes) => {
                self.release_head();
                self.chunk = bytes;
            }
            AppEvent::Trailers(trailers) => {
                self.release_head();
                self.ending = Some(BodyPart::Trailers(head::trailers(trailers)));
            }
            AppEvent::End => {
                self.release_head();
                self.ending = Some(BodyPart::End);
            }
        }
        None
    }

    fn on_head(&mut self, app: AppHead, now: Moment) -> Option<Finish> {
        self.app_status = Some(app.status.as_u16());
        let started = head::started(&app, self.parts.streaming);
        let piped = app.length == AnswerLength::Pipe;
        let answer = match head::answer(app, self.parts.method, self.parts.shape) {
            Ok(answer) => answer,
            Err(fault) => return Some(Finish::App(AppFault::BadHttp(fault))),
        };
        self.parts.windows.head(now, started);
        if started != Started::Plain {
            self.parts.guard.enter_long_lived();
        }
        match self.up {
            Up::Switching if piped => self.up = Up::Sending,
            Up::Switching => self.up = Up::Done,
            // The app answered instead of asking for the body: it does not want it, or takes it as it comes.
            Up::Asking(_) if answer.status.is_success() => self.up = Up::Sending,
            Up::Asking(_) => self.up = Up::Done,
            Up::Sending | Up::Done => {}
        }
        let nothing_follows =
            answer.body == AnswerBody::Empty || answer.body == AnswerBody::Exact(0);
        let held = started == Started::Plain && !nothing_follows;
        if held && !Bug::HeadReleasedEarly.bites() {
            self.held_head = Some(answer);
        } else {
            self.send_head(answer);
        }
        None
    }

    fn release_head(&mut self) {
        if let Some(head) = self.held_head.take() {
            self.send_head(head);
        }
    }

    fn send_head(&mut self, mut head: AnswerHead) {
        tell_limits(&mut head.headers, self.parts.limits);
        self.parts.guard.status(head.status.as_u16());
        self.parts.answer.head(head);
    }

    // ---- client to app ---------------------------------------------------------------------

    /// `Ready(None)` is progress, `Ready(Some)` the end.
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<Option<Finish>> {
        self.waits_for_client_body = false;
        if self.ended {
            // The answer is complete: what is left of the body concerns nobody.
            return Poll::Pending;
        }
        match self.up {
            Up::Sending => {}
            Up::Asking(until) if self.parts.clock.now() >= until => self.up = Up::Sending,
            Up::Asking(_) | Up::Switching | Up::Done => return Poll::Pending,
        }
        match self.parts.app.poll_ready(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) => {
                // The app takes nothing more; what it has to say, or how it ended, is read in `poll_down`.
                self.up = Up::Done;
                return Poll::Ready(None);
            }
            Poll::Ready(Ok(())) => {}
        }
        let before = self.parts.upload.total();
        match self.parts.upload.poll_part(self.parts.body, cx) {
            Poll::Pending => {
                self.waits_for_client_body = true;
                Poll::Pending
            }
            Poll::Ready(Err(UploadFault::Client(ClientFault::Left))) => {
                Poll::Ready(Some(Finish::ClientLeft))
            }
            Poll::Ready(Err(fault)) => Poll::Ready(Some(Finish::Upload(fault))),
            Poll::Ready(Ok(part)) => {
                self.settles = None;
                if matches!(part, BodyPart::Trailers(_) | BodyPart::End) {
                    self.up = Up::Done;
                }
                let fresh = self.parts.upload.total() - before;
                self.parts.guard.bytes_in(fresh);
                self.share_out_upload();
                self.parts.app.send(part);
                Poll::Ready(None)
            }
        }
    }

    /// The app takes, so its body may have more here, or must leave some to the others.
    fn share_out_upload(&mut self) {
        let control = self.parts.app.control();
        let waits = || {
            let view = control.view();
            view.queued_to.saturating_sub(view.consumed)
        };
        if let Some(most) = self.parts.upload.share_out(waits) {
            control.keep_at_most(Some(u64::from(most)));
        }
    }

    // ---- waiting ---------------------------------------------------------------------------

    /// Nothing moves: who is waited for, has the app taken bytes, is the client there, is it time?
    fn poll_waits(&mut self, cx: &mut Context<'_>) -> Poll<Finish> {
        if self.parts.body.poll_left(cx).is_ready() {
            return Poll::Ready(Finish::ClientLeft);
        }
        if let Poll::Ready(why) = self.parts.load.poll_given_up(cx) {
            return Poll::Ready(Finish::GivenUp(why));
        }
        let now = self.parts.clock.now();
        let view = self.look(cx, now);
        if self.is_stranded(&view) {
            return Poll::Ready(Finish::App(AppFault::Ended(Ended::NotOpened)));
        }
        // A started answer waits for nobody's upload: no other limit would end it.
        let upload = self.waits_for_client_body && self.parts.windows.is_first_frame();
        // Nor for a dead carrier: the resume window ends that wait.
        let carrier = view.suspended && !self.parts.windows.is_first_frame();
        let paused = upload || self.waits_for_client_read || carrier;
        self.parts.windows.pause(now, paused);
        match upload {
            true => self.settle(now),
            false => self.settles = None,
        }
        if let Some(window) = self.parts.windows.fired(now) {
            return Poll::Ready(Finish::Window(window));
        }
        self.poll_timer(cx)
    }

    /// No limit ends a gRPC call whose client falls silent. Once that lasts as long as an app may be
    /// silent the call counts as a stream, so that it keeps nobody from the app.
    fn settle(&mut self, now: Moment) {
        if !self.parts.shape.grpc || self.settled {
            return;
        }
        let first_frame = self.parts.windows.first_frame();
        let settles = *self.settles.get_or_insert(now + first_frame);
        if now >= settles {
            self.settles = None;
            self.settled = true;
            self.parts.guard.enter_long_lived();
        }
    }

    /// The carrier is gone before it was given any of the request, and another tunnel stands: nobody
    /// waits for the next carrier.
    fn is_stranded(&self, view: &View) -> bool {
        view.suspended
            && view.emitted <= self.parts.app.offsets().start
            && self.parts.upload.is_kept()
            && (self.parts.elsewhere)()
    }

    /// Progress that is no event: the connection stands, request bytes were taken, a piece of a head
    /// came. Answers what was seen of the stream last.
    fn look(&mut self, cx: &mut Context<'_>, now: Moment) -> View {
        let control = self.parts.app.control();
        while let Poll::Ready(consumed) = control.poll_took(cx, self.consumed) {
            self.consumed = consumed;
            if control.view().ended.is_some() {
                break;
            }
        }
        // After the waker is set, so that nothing falls between the two.
        let view = control.view();
        if view.opened {
            self.tell_opened(now);
        }
        let offsets = self.parts.app.offsets();
        let took = offsets.taken(self.consumed);
        // Behind a head progress comes as events.
        let answers = offsets.answer > self.answered && self.parts.windows.is_first_frame();
        if took > self.took || answers {
            (self.took, self.answered) = (took, offsets.answer);
            self.progress(now);
        }
        view
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Finish> {
        let asking = if let Up::Asking(until) = self.up {
            Some(until)
        } else {
            None
        };
        let due = [self.parts.windows.due(), asking, self.settles]
            .into_iter()
            .flatten()
            .min();
        let Some(due) = due else { return Poll::Pending };
        if self.timer_at != Some(due) {
            self.timer_at = Some(due);
            self.timer.as_mut().reset(self.parts.clock.instant(due));
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            // The next turn sees what is due.
            self.timer_at = None;
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
