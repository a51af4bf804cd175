//! No wake is lost, whatever order the tasks are polled in: a seeded executor inside paused time.
//!
//! A lost wake shows as time: somebody then sleeps until a ping two seconds later, or for ever.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;

use super::*;

/// xorshift64*; good enough to shuffle.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(mixed).unwrap() % bound
    }
}

struct Flag {
    woken: AtomicBool,
    parent: Arc<AtomicWaker>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.parent.wake();
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Polls woken tasks in the dice's order until the first `essential` ones are done.
struct Shuffle {
    tasks: Vec<(Option<Task>, Arc<Flag>)>,
    essential: usize,
    parent: Arc<AtomicWaker>,
    dice: Rc<RefCell<Dice>>,
}

impl Shuffle {
    fn new(dice: Rc<RefCell<Dice>>) -> Self {
        Self {
            tasks: Vec::new(),
            essential: 0,
            parent: Arc::default(),
            dice,
        }
    }

    fn add(&mut self, task: impl Future<Output = ()> + 'static) {
        let flag = Flag {
            woken: AtomicBool::new(true),
            parent: Arc::clone(&self.parent),
        };
        self.tasks.push((Some(Box::pin(task)), Arc::new(flag)));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.parent.register(cx.waker());
        loop {
            let woken: Vec<usize> = (0..self.tasks.len())
                .filter(|at| self.tasks[*at].0.is_some())
                .filter(|at| self.tasks[*at].1.woken.load(Ordering::Acquire))
                .collect();
            if woken.is_empty() {
                let done = self.tasks[..self.essential].iter().all(|t| t.0.is_none());
                return if done { Poll::Ready(()) } else { Poll::Pending };
            }
            let at = woken[self.dice.borrow_mut().below(woken.len())];
            let (task, flag) = &mut self.tasks[at];
            flag.woken.store(false, Ordering::Release);
            let waker = Waker::from(Arc::clone(flag));
            let polled = task
                .as_mut()
                .map(|t| t.as_mut().poll(&mut Context::from_waker(&waker)));
            if polled.is_some_and(|p| p.is_ready()) {
                *task = None;
            }
        }
    }
}

fn pattern(from: usize, len: usize) -> Bytes {
    (from..from + len).map(|at| (at % 253) as u8).collect()
}

/// Writes `total` bytes in pieces and ends.
async fn write(stream: Rc<RefCell<TunnelStream>>, total: usize, dice: Rc<RefCell<Dice>>) {
    let mut sent = 0;
    while sent < total {
        let most = (1 + dice.borrow_mut().below(900)).min(total - sent);
        let mut piece = pattern(sent, most);
        poll_fn(|cx| stream.borrow_mut().poll_writable(cx))
            .await
            .unwrap();
        sent += stream.borrow_mut().write(&mut piece);
    }
    stream.borrow_mut().finish();
}

/// Reads the echo of `total` bytes to its end.
async fn read(stream: Rc<RefCell<TunnelStream>>, total: usize, dice: Rc<RefCell<Dice>>) {
    let mut got = 0;
    loop {
        let most = 1 + dice.borrow_mut().below(900);
        let bytes = poll_fn(|cx| stream.borrow_mut().poll_read(cx, most)).await;
        let Some(bytes) = bytes.unwrap() else { break };
        assert_eq!(bytes, pattern(got, bytes.len()));
        got += bytes.len();
    }
    assert_eq!(got, total);
}

/// An app that says what it is told, through a socket that takes a few bytes at a time.
async fn echo(app: AppStream, mut socket: DuplexStream, mut back: DuplexStream) {
    app.opened();
    let (mut ended, mut buffer) = (false, BytesMut::new());
    poll_fn(|cx| {
        loop {
            let out = if ended {
                Poll::Pending
            } else {
                app.poll_outgoing(cx, &mut socket, FailedWrite::TookNothing)
            };
            if let Poll::Ready(outgoing) = &out {
                match outgoing.as_ref().unwrap() {
                    Outgoing::Wrote(_) => {}
                    Outgoing::Begin { .. } => app.begun(),
                    Outgoing::Fin => {
                        ended = true;
                        let _ = pin!(socket.shutdown()).poll(cx);
                    }
                    other => panic!("cut off: {other:?}"),
                }
            }
            let mut progress = out.is_ready();
            if let Poll::Ready(room) = app.poll_room(cx) {
                buffer.reserve(room.min(700));
                let mut limited = bytes::BufMut::limit(&mut buffer, room.min(700));
                match pin!(back.read_buf(&mut limited)).poll(cx) {
                    Poll::Ready(read) if read.as_ref().unwrap() == &0 => return Poll::Ready(()),
                    Poll::Ready(_) => {
                        app.pass_on(buffer.split().freeze());
                        progress = true;
                    }
                    Poll::Pending => {}
                }
            }
            if !progress {
                return Poll::Pending;
            }
        }
    })
    .await;
    app.finish();
    app.conclude(FinalCause::AppClosed);
}

async fn run(seed: u64) {
    let dice = Rc::new(RefCell::new(Dice(
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
    )));
    let settings = Settings {
        initial_window: 2048,
        max_window: 4096,
        queue_limit: 700,
        retain_limit: 3000,
        ..Settings::default()
    };
    let pipe = 50 + dice.borrow_mut().below(3000);
    let (here, there) = duplex(pipe);
    let (clock, peer, empty) = (Clock::start(), limits(settings), BytesMut::new);
    let (gateway, one) = Tunnel::new(Side::Gateway, settings, peer, here, empty(), clock);
    let (agent, two) = Tunnel::new(Side::Agent, settings, peer, there, empty(), clock);
    let mut shuffle = Shuffle::new(Rc::clone(&dice));
    for _ in 0..3 {
        let stream = gateway.open(open()).unwrap();
        stream.control().begin(begin());
        let stream = Rc::new(RefCell::new(stream));
        let total = 1 + dice.borrow_mut().below(20_000);
        shuffle.add(write(Rc::clone(&stream), total, Rc::clone(&dice)));
        shuffle.add(read(stream, total, Rc::clone(&dice)));
    }
    let mut doors = Vec::new();
    for _ in 0..3 {
        let (door, come) = tokio::sync::oneshot::channel();
        doors.push(door);
        let (socket, back) = duplex(1 + dice.borrow_mut().below(900));
        shuffle.add(async move {
            let app = come.await.unwrap();
            let (mut from, mut to) = tokio::io::split(back);
            let (socket, mut echoed) = (socket, duplex(64));
            let copying = async {
                drop(tokio::io::copy(&mut from, &mut echoed.0).await);
                drop(echoed.0.shutdown().await);
                drop(to.shutdown().await);
            };
            tokio::join!(echo(app, socket, echoed.1), copying);
        });
    }
    shuffle.add(async move {
        for door in doors {
            let app = agent.accept().await.unwrap();
            assert!(door.send(app).is_ok());
        }
    });
    shuffle.essential = shuffle.tasks.len();
    shuffle.add(async move { drop(one.await) });
    shuffle.add(async move { drop(two.await) });
    let began = Instant::now();
    let all = poll_fn(|cx| shuffle.poll(cx));
    let done = tokio::time::timeout(Duration::from_secs(30), all).await;
    assert!(done.is_ok(), "seed {seed}: somebody was never woken");
    let lasted = began.elapsed();
    assert!(
        lasted < Duration::from_millis(1900),
        "seed {seed}: somebody slept until the next ping ({lasted:?})"
    );
}

#[tokio::test(start_paused = true)]
async fn in_any_order_of_polls_nobody_sleeps_through_its_news() {
    for seed in 0..150 {
        run(seed).await;
    }
}
