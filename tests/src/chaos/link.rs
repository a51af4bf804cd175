//! One connection through a chaos carrier: read, ask the engine, wait, write; both ways.
//!
//! Owns the sockets of both sides. Must not decide anything: what happens to a piece is the engine's word.
//! Invariants: bytes leave in the order in which they came; memory of one way is bounded by its queue;
//! an end is FIN or RST as the rule says, and an end made by a peer is passed on as what it was.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::carrier::Shared;
use super::decision::{Held, LinkId, Shape, Step};
use super::scan::Scanner;
use super::script::{Direction, End};
use crate::wait;

/// Pieces under way in one direction; at most 64 KiB each, so a way holds at most 16 MiB.
const QUEUE: usize = 256;

/// How long a dial to the gateway may take.
const DIAL: Duration = Duration::from_secs(5);

/// How long the peers of a cut connection may take to end theirs, before it is closed all the same.
const FAREWELL: Duration = Duration::from_secs(1);

/// What waits to be written.
enum Item {
    Bytes {
        bytes: Bytes,
        offset: u64,
        due: Duration,
        shape: Shape,
    },
    End(End),
    HalfClose,
    /// The peer that this way comes from reset its connection.
    PeerReset,
}

/// What a writer has to do next.
enum Next {
    Item(Item),
    HalfClose,
    Over,
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}
type Side = Box<dyn Duplex>;

/// The sockets below, for what only a socket can do.
struct Sockets([Socket; 2]);

impl Sockets {
    /// Both get a FIN, with nothing said by TLS.
    fn shut(&self) {
        for socket in &self.0 {
            // An error means that it is closed already.
            drop(socket.shutdown(std::net::Shutdown::Write));
        }
    }

    /// Both get an RST as soon as they are closed.
    fn reset(&self) {
        for socket in &self.0 {
            drop(socket.set_linger(Some(Duration::ZERO)));
        }
    }
}

/// Carries one accepted connection to its end.
pub(super) async fn carry(shared: Arc<Shared>, id: LinkId, near: TcpStream) {
    let guard = Guard {
        shared: &shared,
        id,
    };
    drop(near.set_nodelay(true));
    reachable(&shared, id).await;
    let Some(far) = dial(&shared).await else {
        drop(SockRef::from(&near).set_linger(Some(Duration::ZERO)));
        shared.engine().undialled(id);
        return;
    };
    let (Ok(a), Ok(b)) = (
        SockRef::from(&near).try_clone(),
        SockRef::from(&far).try_clone(),
    ) else {
        return;
    };
    let sockets = Sockets([a, b]);
    let Some((near, far)) = sides(&shared, near, far).await else {
        return;
    };
    run(&shared, id, &sockets, near, far).await;
    drop(guard);
}

/// Tells the engine that the connection is over, however that came.
struct Guard<'a> {
    shared: &'a Shared,
    id: LinkId,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.shared.engine().close(self.id);
        self.shared.announce();
    }
}

/// Waits while a black hole would swallow a handshake.
async fn reachable(shared: &Shared, id: LinkId) {
    let mut changes = shared.changes();
    loop {
        changes.mark_unchanged();
        let held = shared.engine().held_off(id, shared.now());
        match held {
            None => return,
            Some(held) => released(shared, held, &mut changes).await,
        }
    }
}

async fn released(shared: &Shared, held: Held, changes: &mut tokio::sync::watch::Receiver<u64>) {
    let over = async {
        match held {
            Held::Until(until) => wait::dawdle(until.saturating_sub(shared.now())).await,
            Held::ForGood => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        _ = changes.changed() => {}
        () = over => {}
    }
}

async fn dial(shared: &Shared) -> Option<TcpStream> {
    let target = shared.target();
    let connect = TcpStream::connect(target.as_str());
    let stream = tokio::time::timeout(DIAL, connect).await.ok()?.ok()?;
    drop(stream.set_nodelay(true));
    Some(stream)
}

async fn sides(shared: &Shared, near: TcpStream, far: TcpStream) -> Option<(Side, Side)> {
    let Some(tls) = &shared.tls else {
        return Some((Box::new(near), Box::new(far)));
    };
    let handshakes = async {
        let near = tls.accept(near).await?;
        let alpn = near.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        let far = tls.connect(far, alpn.as_deref()).await?;
        std::io::Result::Ok((near, far))
    };
    let (near, far) = tokio::time::timeout(DIAL, handshakes).await.ok()?.ok()?;
    Some((Box::new(near), Box::new(far)))
}

async fn run(shared: &Shared, id: LinkId, sockets: &Sockets, near: Side, far: Side) {
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    let (to_gateway, gateway) = mpsc::channel(QUEUE);
    let (to_agent, agent) = mpsc::channel(QUEUE);
    let up = Way {
        shared,
        id,
        way: Direction::ToGateway,
    };
    let down = Way {
        shared,
        id,
        way: Direction::ToAgent,
    };
    let both = async {
        tokio::join!(
            up.read(near_read, to_gateway),
            down.read(far_read, to_agent),
            up.write(far_write, gateway),
            down.write(near_write, agent),
        )
    };
    let end = tokio::select! {
        biased;
        end = ending(shared, id) => Some(end),
        // The last of them may have been ended by a rule in the same moment.
        _ = both => shared.engine().ending(id),
    };
    let Some(end) = end else { return };
    match end {
        End::Reset => sockets.reset(),
        End::Cut => {
            sockets.shut();
            // A close with bytes unread would be a reset: peers get time to see the FIN and go.
            drop(tokio::time::timeout(FAREWELL, gone(sockets)).await);
        }
    }
}

async fn ending(shared: &Shared, id: LinkId) -> End {
    let mut changes = shared.changes();
    loop {
        changes.mark_unchanged();
        if let Some(end) = shared.engine().ending(id) {
            return end;
        }
        drop(changes.changed().await);
    }
}

/// Reads and drops until both peers are done.
async fn gone(sockets: &Sockets) {
    let discard = |socket: &Socket| {
        let socket = socket.try_clone().ok();
        async move {
            let Some(stream) = socket.and_then(|s| TcpStream::from_std(s.into()).ok()) else {
                return;
            };
            let mut chunk = vec![0; 16 * 1024];
            loop {
                if stream.readable().await.is_err() {
                    return;
                }
                match stream.try_read(&mut chunk) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        }
    };
    let [a, b] = &sockets.0;
    tokio::join!(discard(a), discard(b));
}

/// One way of one connection.
struct Way<'a> {
    shared: &'a Shared,
    id: LinkId,
    way: Direction,
}

impl Way<'_> {
    /// Reads until the peer or a rule ends this way.
    async fn read(&self, mut from: impl AsyncRead + Unpin, queue: mpsc::Sender<Item>) {
        let mut scanner = Scanner::default();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            match from.read(&mut chunk).await {
                Ok(0) => break,
                Ok(n) => scanner.push(&chunk[..n]),
                Err(_) => {
                    // If the queue is closed, the way is over already.
                    drop(queue.send(Item::PeerReset).await);
                    break;
                }
            }
            while let Some(piece) = scanner.next_piece() {
                if !self.pass(piece, &queue).await {
                    return;
                }
            }
        }
        if let Some(piece) = scanner.rest()
            && !self.pass(piece, &queue).await
        {
            return;
        }
        let over = self.shared.engine().finished(self.id, self.way);
        if over {
            // Both peers left: who waits in a black hole waits for nobody.
            self.shared.announce();
        }
    }

    /// Takes the engine's steps; false if nothing may follow.
    async fn pass(&self, piece: super::scan::Piece, queue: &mpsc::Sender<Item>) -> bool {
        let now = self.shared.now();
        let steps = {
            let mut engine = self.shared.engine();
            let before = engine.next_tick();
            let steps = engine.piece(self.id, self.way, piece.frame, piece.bytes.len(), now);
            let plain = matches!(steps.as_slice(), [Step::Pass { shape, .. }] if *shape == Shape::default());
            if !plain || engine.next_tick() != before {
                self.shared.announce();
            }
            steps
        };
        for step in steps {
            let (item, more) = match step {
                Step::Pass {
                    from,
                    to,
                    offset,
                    shape,
                } => {
                    let due = now + shape.late;
                    (
                        Item::Bytes {
                            bytes: piece.bytes.slice(from..to),
                            offset,
                            due,
                            shape,
                        },
                        true,
                    )
                }
                Step::End(end) => (Item::End(end), false),
                // The source goes on; what it says from here on is heard and dropped.
                Step::HalfClose => (Item::HalfClose, true),
            };
            if queue.send(item).await.is_err() || !more {
                return false;
            }
        }
        true
    }

    /// Writes what is due until this way ends, then passes the end on.
    async fn write(&self, mut to: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Item>) {
        let mut free_at = Duration::ZERO;
        let item = loop {
            let item = match self.next(&mut queue).await {
                Next::Item(Item::Bytes {
                    bytes,
                    offset,
                    due,
                    shape,
                }) => {
                    wait_until(self.shared, due).await;
                    if self.passable(offset).await.is_break() {
                        break Next::HalfClose;
                    }
                    if self.put(&mut to, &bytes, shape, &mut free_at).await.is_ok() {
                        continue;
                    }
                    // The peer is gone; the other learns it unless a black hole lies between them.
                    let _closed = self.back().passable(u64::MAX).await;
                    Next::Item(Item::End(End::Reset))
                }
                other => other,
            };
            break item;
        };
        match item {
            Next::Item(Item::End(end)) => return self.end(end),
            Next::Item(Item::PeerReset) => {
                let _closed = self.passable(u64::MAX).await;
                return self.end(End::Reset);
            }
            Next::Over => {
                let _closed = self.passable(u64::MAX).await;
            }
            Next::HalfClose | Next::Item(Item::HalfClose | Item::Bytes { .. }) => {}
        }
        drop(to.shutdown().await);
        while queue.recv().await.is_some() {}
    }

    async fn next(&self, queue: &mut mpsc::Receiver<Item>) -> Next {
        let mut changes = self.shared.changes();
        loop {
            changes.mark_unchanged();
            if self.shared.engine().is_half_closed(self.id, self.way) {
                return Next::HalfClose;
            }
            tokio::select! {
                biased;
                item = queue.recv() => return item.map_or(Next::Over, Next::Item),
                _ = changes.changed() => {}
            }
        }
    }

    /// The other way of this connection.
    fn back(&self) -> Self {
        let way = match self.way {
            Direction::ToAgent => Direction::ToGateway,
            Direction::ToGateway => Direction::ToAgent,
        };
        Self {
            shared: self.shared,
            id: self.id,
            way,
        }
    }

    /// Waits while a black hole keeps `offset` back; breaks if this way was half-closed.
    async fn passable(&self, offset: u64) -> std::ops::ControlFlow<()> {
        let mut changes = self.shared.changes();
        loop {
            changes.mark_unchanged();
            let (held, closed) = {
                let engine = self.shared.engine();
                let held = engine.held(self.id, self.way, offset, self.shared.now());
                (held, engine.is_half_closed(self.id, self.way))
            };
            match (held, closed) {
                (_, true) => return std::ops::ControlFlow::Break(()),
                (None, false) => return std::ops::ControlFlow::Continue(()),
                (Some(held), false) => released(self.shared, held, &mut changes).await,
            }
        }
    }

    async fn put(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        bytes: &[u8],
        shape: Shape,
        free_at: &mut Duration,
    ) -> std::io::Result<()> {
        for part in bytes.chunks(shape.slice.unwrap_or(bytes.len()).max(1)) {
            if let Some(rate) = shape.rate {
                wait_until(self.shared, *free_at).await;
                let takes = Duration::from_secs_f64(part.len() as f64 / rate as f64);
                *free_at = self.shared.now().max(*free_at) + takes;
            }
            to.write_all(part).await?;
            to.flush().await?;
        }
        Ok(())
    }

    fn end(&self, end: End) {
        self.shared.engine().end(self.id, end);
        self.shared.announce();
    }
}

async fn wait_until(shared: &Shared, due: Duration) {
    let left = due.saturating_sub(shared.now());
    if !left.is_zero() {
        wait::dawdle(left).await;
    }
}
