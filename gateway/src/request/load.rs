//! What running exchanges hold in memory, and how they are given up: the largest of them when memory is
//! short, all when the gateway's grace is over.
//!
//! Each exchange has an entry while it runs; its size is asked of its stream only when somebody wants
//! to know. Invariants: an entry lives exactly as long as its [`Load`]; once the grace is over an
//! exchange that begins is given up as well.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bridgehead_protocol::conn::View;
use bridgehead_protocol::io::StreamControl;

use crate::pressure::largest;

/// Below this a stream frees next to nothing.
const LEAST: u64 = 16 * 1024;
/// Streams given up at once; then memory is measured again.
const MOST: usize = 32;

/// Why an exchange is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// Memory is short and it holds much.
    Memory,
    /// The gateway ends, and the time for finishing is over.
    Ending,
}

/// All running exchanges. Shared by all workers.
#[derive(Default)]
pub struct Loads {
    running: Mutex<Running>,
    over: AtomicBool,
}

#[derive(Default)]
struct Running {
    next: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
}

#[derive(Default)]
struct Entry {
    given_up: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    control: Option<StreamControl>,
    waker: Option<Waker>,
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> u64 {
        // The lock is not held while the stream is asked: that takes the tunnel's.
        let control = self.lock().control.clone();
        control.map_or(0, |control| held(&control.view()))
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let waker = self.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Bytes that a stream keeps at this side: of the request until the app has taken them, of the
/// answer until the client has. A stream that has ended keeps nothing of the request; the offsets of
/// one that is gone are no numbers at all.
fn held(view: &View) -> u64 {
    let up = match view.ended {
        Some(_) => 0,
        None => view.queued_to.saturating_sub(view.consumed),
    };
    up.saturating_add(view.received.saturating_sub(view.taken))
}

impl Loads {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An exchange begins.
    pub fn begin(self: &Arc<Self>) -> Load {
        let entry = Arc::new(Entry::default());
        let mut running = self.lock();
        let number = running.next;
        running.next += 1;
        running.entries.insert(number, Arc::clone(&entry));
        drop(running);
        Load {
            loads: Arc::clone(self),
            number,
            entry,
        }
    }

    /// Bytes that all running exchanges hold.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.entries().iter().map(|entry| entry.held()).sum()
    }

    /// Gives up the largest ones, about as many as hold `excess` bytes. Answers how many.
    pub fn give_up(&self, excess: u64) -> usize {
        let mut entries = self.entries();
        entries.retain(|entry| !entry.given_up.load(Ordering::Acquire));
        let held: Vec<u64> = entries.iter().map(|entry| entry.held()).collect();
        let places = largest(&held, excess, LEAST, MOST);
        for at in &places {
            entries[*at].give_up();
        }
        places.len()
    }

    /// Gives all of them up, and all that begin from now on: the gateway ends.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.entries().iter().for_each(|entry| entry.wake());
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.lock().entries.values().cloned().collect()
    }
}

/// One running exchange's entry.
pub struct Load {
    loads: Arc<Loads>,
    number: u64,
    entry: Arc<Entry>,
}

impl Load {
    /// The exchange goes over this stream now.
    pub fn stream(&self, control: &StreamControl) {
        self.entry.lock().control = Some(control.clone());
    }

    fn given_up(&self) -> Option<GivenUp> {
        if self.entry.given_up.load(Ordering::Acquire) {
            return Some(GivenUp::Memory);
        }
        let over = self.loads.over.load(Ordering::Acquire);
        over.then_some(GivenUp::Ending)
    }

    /// Ready once the exchange has to end, with the reason. The last waker counts.
    pub fn poll_given_up(&self, cx: &mut Context<'_>) -> Poll<GivenUp> {
        if let Some(why) = self.given_up() {
            return Poll::Ready(why);
        }
        let mut inner = self.entry.lock();
        if !(inner.waker.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        drop(inner);
        // It may have been given up before the waker was there.
        match self.given_up() {
            Some(why) => Poll::Ready(why),
            None => Poll::Pending,
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.loads.lock().entries.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use bridgehead_protocol::conn::Ended;

    use super::*;

    fn view(ended: Option<Ended>, queued_to: u64) -> View {
        View {
            opened: true,
            emitted: queued_to,
            queued_to,
            consumed: 100,
            received: 70,
            taken: 50,
            ended,
            counted: None,
            closing: false,
            suspended: false,
            starved: false,
        }
    }

    #[test]
    fn what_waits_in_both_directions_is_held_and_nothing_of_the_request_once_the_stream_has_ended()
    {
        assert_eq!(held(&view(None, 400)), 320);
        assert_eq!(held(&view(Some(Ended::Lost), 400)), 20);
        // As a stream looks whose slot is free again.
        assert_eq!(held(&view(Some(Ended::Lost), u64::MAX)), 20);
    }

    #[test]
    fn an_entry_lives_as_long_as_its_exchange() {
        let loads = Arc::new(Loads::default());
        let (first, second) = (loads.begin(), loads.begin());
        assert_eq!(loads.entries().len(), 2);
        drop(first);
        assert_eq!(loads.entries().len(), 1);
        drop(second);
        assert!(loads.entries().is_empty());
    }

    #[test]
    fn an_exchange_without_a_stream_holds_nothing_and_is_not_given_up() {
        let loads = Arc::new(Loads::default());
        let load = loads.begin();
        assert_eq!((loads.held(), loads.give_up(u64::MAX)), (0, 0));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(load.poll_given_up(&mut cx).is_pending());
        load.entry.give_up();
        assert_eq!(load.poll_given_up(&mut cx), Poll::Ready(GivenUp::Memory));
    }

    #[test]
    fn once_the_gateway_ends_every_exchange_is_given_up_also_one_that_begins_then() {
        let loads = Arc::new(Loads::default());
        let running = loads.begin();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(running.poll_given_up(&mut cx).is_pending());
        loads.end();
        assert_eq!(running.poll_given_up(&mut cx), Poll::Ready(GivenUp::Ending));
        let late = loads.begin();
        assert_eq!(late.poll_given_up(&mut cx), Poll::Ready(GivenUp::Ending));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_woken_when_the_gateway_ends() {
        let loads = Arc::new(Loads::default());
        let load = loads.begin();
        let waiting =
            tokio::spawn(async move { std::future::poll_fn(|cx| load.poll_given_up(cx)).await });
        tokio::task::yield_now().await;
        loads.end();
        let woken = tokio::time::timeout(std::time::Duration::from_secs(1), waiting).await;
        assert_eq!(
            woken.expect("it is woken").expect("no panic"),
            GivenUp::Ending
        );
    }
}
