//! The world's wires: in-memory links between client, gateway, agent and app, with a journal of all
//! that happens on them and faults that strike at its entries.
//!
//! Everything stands behind one lock, so that a fault acts on the whole world between two bytes.
//! Nothing here knows what is right: the journal is read by the oracle. Invariant: what `poll_write`
//! of a link accepted is what a kernel would have accepted, whatever becomes of it.

mod end;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use bridgehead_agent::outside::Pace;
use bytes::BytesMut;
use tokio::time::Instant;

pub(crate) use self::end::End;
use crate::fault::{Fault, Order};
use crate::frames::{Cutter, Note, OnTheWay};
use crate::journal::{Class, Entry, Journal, Op, When};

/// Bytes that fit into one direction of a link, by what it is.
const fn room(class: Class) -> usize {
    match class {
        Class::Carrier => 256 * 1024,
        Class::App => 24 * 1024,
        Class::Client => 64 * 1024,
    }
}

/// What an app says to a connection that nobody used for a while.
const BLURT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\n\r\n";

/// Who owns an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Client,
    /// By generation: a gateway that was killed is followed by another.
    Gateway(u16),
    /// By number: each start of an agent has its own.
    Agent(u16),
    App,
}

/// One direction.
#[derive(Default)]
struct Dir {
    bytes: BytesMut,
    /// The writer ended in order; what was written is still read.
    fin: bool,
    /// A reset follows what was written.
    cut: bool,
    /// What is written vanishes.
    hole: bool,
    /// Nothing is read before.
    until: Option<Instant>,
    written: u64,
    read: u64,
    /// Frames on their way, by the offset behind each. Carriers only.
    frames: OnTheWay,
    cutter: Cutter,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// One link; side 0 is nearer to the client.
struct Link {
    class: Class,
    owners: [Party; 2],
    dirs: [Dir; 2],
    gone: [bool; 2],
    abrupt: [bool; 2],
    /// By side: it finds the link reset.
    reset: [bool; 2],
    /// Bytes for the app that were written before the last mark.
    before: u64,
}

/// A process.
#[derive(Clone, Debug)]
struct Process {
    party: Party,
    pace: Pace,
    held: bool,
    dead: bool,
}

pub(crate) struct World {
    links: Vec<Link>,
    processes: Vec<Process>,
    pub(crate) journal: Journal,
    pub(crate) orders: Vec<Order>,
    director: Option<Waker>,
    wakers: Vec<Waker>,
    /// New connections to the app are refused.
    pub(crate) app_refuses: bool,
    /// Nobody reaches the gateway with a new carrier.
    pub(crate) unreachable: bool,
}

/// The wires, shared by all who hang on them.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<World>>);

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Net")
    }
}

impl Net {
    pub(crate) fn new(journal: Journal) -> Self {
        Self(Arc::new(Mutex::new(World {
            links: Vec::new(),
            processes: Vec::new(),
            journal,
            orders: Vec::new(),
            director: None,
            wakers: Vec::new(),
            app_refuses: false,
            unreachable: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the world or changes it, then wakes whoever has news.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.lock();
        let done = act(&mut world);
        let wakers = std::mem::take(&mut world.wakers);
        drop(world);
        wakers.into_iter().for_each(Waker::wake);
        done
    }

    /// A new link and both of its ends.
    pub(crate) fn link(&self, class: Class, owners: [Party; 2]) -> [End; 2] {
        let link = self.with(|world| {
            world.links.push(Link {
                class,
                owners,
                dirs: Default::default(),
                gone: [false; 2],
                abrupt: [false; 2],
                reset: [false; 2],
                before: 0,
            });
            let link = world.links.len() - 1;
            world.note(link, 0, Op::Linked, Note::NONE, 0);
            link
        });
        [0, 1].map(|side| End {
            net: self.clone(),
            link,
            side,
        })
    }

    /// A process of the world; `pace` stops its tasks.
    pub(crate) fn process(&self, party: Party, pace: Pace) {
        self.with(|world| {
            world.processes.push(Process {
                party,
                pace,
                held: false,
                dead: false,
            });
        });
    }

    /// The next order of a fault, for the director.
    pub(crate) async fn order(&self) -> Order {
        std::future::poll_fn(|cx| {
            let mut world = self.lock();
            if world.orders.is_empty() {
                world.director = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(world.orders.remove(0))
        })
        .await
    }
}

impl World {
    /// Records an event and lets the faults strike that wait for it.
    fn note(&mut self, link: usize, side: usize, op: Op, note: Note, len: u32) {
        let class = self.links[link].class;
        let entry = Entry {
            at: self.journal.now(),
            link: u16::try_from(link).unwrap_or(u16::MAX),
            class,
            side: u8::from(side == 1),
            op,
            note,
            len,
        };
        let due = self.journal.push(entry);
        self.strike(due, link);
    }

    /// The faults that wait for the next event strike before it.
    fn about_to(&mut self, link: usize) {
        let due = self.journal.due(When::Before);
        self.strike(due, link);
    }

    fn strike(&mut self, due: Vec<Fault>, link: usize) {
        for fault in due {
            fault.strike(self, link);
        }
    }

    fn process(&self, party: Party) -> Option<&Process> {
        self.processes.iter().find(|p| p.party == party)
    }

    fn is_dead(&self, link: usize, side: usize) -> bool {
        self.process(self.links[link].owners[side])
            .is_some_and(|p| p.dead)
    }

    fn is_held(&self, link: usize, side: usize) -> bool {
        self.process(self.links[link].owners[side])
            .is_some_and(|p| p.held || p.dead)
    }

    // ---- what faults do -------------------------------------------------------------------

    pub(crate) fn order(&mut self, order: Order) {
        self.orders.push(order);
        self.wakers.extend(self.director.take());
    }

    /// The carrier meant by a fault at `link`: that one, or the newest that stands.
    pub(crate) fn carrier(&self, link: usize) -> Option<usize> {
        if self.links[link].class == Class::Carrier {
            return Some(link);
        }
        (0..self.links.len())
            .rev()
            .find(|l| self.links[*l].class == Class::Carrier && self.links[*l].gone == [false; 2])
    }

    /// Links of a class that stand.
    pub(crate) fn standing(&self, class: Class) -> Vec<usize> {
        (0..self.links.len())
            .filter(|l| self.links[*l].class == class && self.links[*l].reset == [false; 2])
            .collect()
    }

    /// Somebody between the ends closes: both read what was written, then the end.
    pub(crate) fn sever(&mut self, link: usize) {
        self.links[link].dirs.iter_mut().for_each(|d| d.fin = true);
        self.wake(link);
    }

    /// Both ends find it reset; what was not read is lost.
    pub(crate) fn reset(&mut self, link: usize) {
        let l = &mut self.links[link];
        l.reset = [true; 2];
        l.dirs.iter_mut().for_each(|d| {
            d.bytes.clear();
            d.frames.clear();
        });
        self.wake(link);
    }

    /// One end finds it reset; what was on its way to the other is still read.
    pub(crate) fn reset_side(&mut self, link: usize, side: usize) {
        let l = &mut self.links[link];
        l.reset[side] = true;
        l.dirs[1 - side].bytes.clear();
        l.dirs[1 - side].frames.clear();
        self.wake(link);
    }

    /// What was written until now belongs to exchanges that are over.
    pub(crate) fn mark_bytes(&mut self) {
        self.links
            .iter_mut()
            .for_each(|link| link.before = link.dirs[0].written);
    }

    /// The app says something on each connection on which no exchange began since the last mark. At
    /// an event on such a connection it could not be told from an answer, so nothing is said there.
    pub(crate) fn blurt(&mut self, at: usize) {
        if self.links[at].class == Class::App {
            return;
        }
        for link in self.standing(Class::App) {
            let l = &mut self.links[link];
            if l.dirs[0].written == l.before && l.gone == [false; 2] && !l.dirs[1].fin {
                l.dirs[1].bytes.extend_from_slice(BLURT);
                l.dirs[1].written += BLURT.len() as u64;
                self.wake(link);
            }
        }
    }

    /// What `side` writes from now on vanishes, and what was not read as well.
    pub(crate) fn swallow(&mut self, link: usize, side: usize) {
        let dir = &mut self.links[link].dirs[side];
        dir.hole = true;
        dir.bytes.clear();
        dir.frames.clear();
        self.wake(link);
    }

    /// What `side` writes is not read before `until`.
    pub(crate) fn delay(&mut self, link: usize, side: usize, by: Duration) {
        self.links[link].dirs[side].until = Some(Instant::now() + by);
        self.order(Order::Wake(link, by));
    }

    pub(crate) fn wake(&mut self, link: usize) {
        for dir in &mut self.links[link].dirs {
            self.wakers.extend(dir.reader.take());
            self.wakers.extend(dir.writer.take());
        }
    }

    /// The process stands still, its sockets with it.
    pub(crate) fn hold(&mut self, party: Party) {
        for process in self.processes.iter_mut().filter(|p| p.party == party) {
            process.held = true;
            process.pace.hold();
        }
    }

    /// It goes on.
    pub(crate) fn go_on(&mut self, party: Party) {
        let mut paces = Vec::new();
        for process in self.processes.iter_mut().filter(|p| p.party == party) {
            if process.dead {
                continue;
            }
            process.held = false;
            paces.push(process.pace.clone());
        }
        for link in 0..self.links.len() {
            if self.links[link].owners.contains(&party) {
                self.wake(link);
            }
        }
        // Wakes tasks: they find the lock taken only for a moment, on this thread never.
        paces.iter().for_each(Pace::go_on);
    }

    /// The process is gone between two of its instructions; the kernel closes what it had.
    pub(crate) fn kill(&mut self, party: Party) {
        for process in self.processes.iter_mut().filter(|p| p.party == party) {
            process.dead = true;
            process.pace.hold();
        }
        for link in 0..self.links.len() {
            for side in 0..2 {
                if self.links[link].owners[side] == party {
                    self.links[link].abrupt[side] = false;
                    self.close(link, side);
                }
            }
        }
    }

    /// True while a process that is not dead stands still; the app may do so for ever.
    pub(crate) fn is_somebody_held(&self) -> bool {
        let held = |p: &Process| p.held && !p.dead && p.party != Party::App;
        self.processes.iter().any(held)
    }

    /// An app that stands still is killed; one that runs goes on.
    pub(crate) fn end_the_app(&mut self) {
        if self
            .processes
            .iter()
            .any(|p| p.party == Party::App && p.held)
        {
            for link in self.standing(Class::App) {
                self.reset(link);
            }
        }
    }

    /// One end is closed, as a kernel closes a socket: bytes that nobody read make it a reset.
    pub(crate) fn close(&mut self, link: usize, side: usize) {
        let l = &mut self.links[link];
        if std::mem::replace(&mut l.gone[side], true) {
            return;
        }
        let unread = !l.dirs[1 - side].bytes.is_empty();
        l.dirs[1 - side].bytes.clear();
        l.dirs[1 - side].frames.clear();
        if (unread || l.abrupt[side]) && l.class == Class::Client {
            // What was sent before is read first, as Linux has it: the client is no subject here.
            l.dirs[side].cut = true;
            self.wake(link);
        } else if unread || l.abrupt[side] {
            // The peer may read what was sent before, but must not rely on it: the harder case.
            self.reset(link);
        } else {
            l.dirs[side].fin = true;
            self.wake(link);
        }
    }

    /// The party at one side of the newest link of a class.
    pub(crate) fn newest_agent(&self) -> Option<Party> {
        let agents = self.processes.iter().rev();
        agents
            .filter(|p| !p.dead)
            .map(|p| p.party)
            .find(|p| matches!(p, Party::Agent(_)))
    }

    pub(crate) fn gateway(&self) -> Option<Party> {
        let all = self.processes.iter().rev();
        all.filter(|p| !p.dead)
            .map(|p| p.party)
            .find(|p| matches!(p, Party::Gateway(_)))
    }

    /// Ends of links that are still held by a party.
    pub(crate) fn ends_of(&self, class: Class, side: usize) -> usize {
        let open = |l: &&Link| l.class == class && !l.gone[side];
        self.links.iter().filter(open).count()
    }
}
