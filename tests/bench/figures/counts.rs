//! Orderly restarts under load: nothing fails, nothing arrives twice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::client::H1;
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;
use tokio::task::JoinSet;

use crate::table::{Figure, Table};

/// Clients of the load.
const CLIENTS: usize = 16;
/// Requests between two steps of the drill.
const BETWEEN: u64 = 500;

pub(crate) async fn measure(table: &mut Table) {
    let leaving = Arc::new(AtomicBool::new(false));
    let first = App::start(serving(&leaving)).await;
    let world = setup().defaults("hold = \"10s\"").start().await;
    let target = first.target();
    let old = world.join("a1", &[("demo", &target)]).await;
    let load = Load::start(world.places.public, &world.host("demo"));
    load.served(BETWEEN).await;
    // The app: its connections say farewell, its port closes, its successor opens it again.
    leaving.store(true, Ordering::SeqCst);
    let seen_first = first.recorder();
    let at = first.drained().await;
    let second = App::start_at(at, serving(&Arc::default())).await;
    load.served(BETWEEN).await;
    // The agent: its successor joins first.
    let _new = world.join("a1", &[("demo", &target)]).await;
    old.process.signal("TERM");
    load.served(BETWEEN).await;
    let told = load.finish().await;
    let failed = told.iter().filter(|(_, ok)| !ok).count();
    let count = told.len();
    let name = format!("failed of {count}: app and agent restarted in order under load");
    table.add(Figure::upto(name, failed as f64, 0.0, ""));
    let seen = seen_first.text() + &second.text();
    let arrivals = |id: &str| seen.matches(&format!("POST /{id} ")).count();
    let posts: Vec<&String> = (told.iter().map(|(id, _)| id))
        .filter(|id| id.starts_with("post"))
        .collect();
    let not_once = posts.iter().filter(|id| arrivals(id) != 1).count();
    let name = format!("POSTs of {} that did not arrive exactly once", posts.len());
    table.add(Figure::upto(name, not_once as f64, 0.0, ""));
}

/// Answers every request; once `leaving`, each answer is its connection's last.
fn serving(leaving: &Arc<AtomicBool>) -> impl Fn(Conn) -> Serving + Send + Sync + 'static {
    let leaving = Arc::clone(leaving);
    move |mut conn: Conn| {
        let leaving = Arc::clone(&leaving);
        Box::pin(async move {
            while let Some(head) = conn.read_head().await {
                if conn.read_body(&head).await.is_none() {
                    return;
                }
                if leaving.load(Ordering::SeqCst) {
                    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                    conn.write(last).await;
                    return;
                }
                conn.answer("served").await;
            }
        })
    }
}

type Serving = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Clients that ask again as soon as they are answered.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    clients: JoinSet<Vec<(String, bool)>>,
}

impl Load {
    fn start(addr: SocketAddr, host: &str) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (stop, done, host) = (Arc::clone(&stop), Arc::clone(&done), host.to_owned());
            clients.spawn(async move {
                let mut told = Vec::new();
                let mut h1 = H1::connect(addr).await;
                for n in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let method = if n % 2 == 0 { "POST" } else { "GET" };
                    let id = format!("{}-{client}-{n}", method.to_ascii_lowercase());
                    let body: &[u8] = if method == "POST" { b"order" } else { b"" };
                    h1.request(method, &format!("/{id}"), &host, &[], body)
                        .await;
                    let answer = h1.try_answer(method).await;
                    let ok = answer.as_ref().is_ok_and(|answer| answer.status == 200);
                    if answer.is_err() {
                        h1 = H1::connect(addr).await;
                    }
                    told.push((id, ok));
                    done.fetch_add(1, Ordering::SeqCst);
                }
                told
            });
        }
        Self {
            stop,
            done,
            clients,
        }
    }

    async fn served(&self, more: u64) {
        let goal = self.done.load(Ordering::SeqCst) + more;
        let reached = || async { (self.done.load(Ordering::SeqCst) >= goal).then_some(()) };
        wait::until(wait::SOON * 4, "the load going on", reached).await;
    }

    async fn finish(self) -> Vec<(String, bool)> {
        self.stop.store(true, Ordering::SeqCst);
        self.clients
            .join_all()
            .await
            .into_iter()
            .flatten()
            .collect()
    }
}
