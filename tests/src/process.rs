//! A child process under test: its lines can be awaited, its logs are printed on failure, it dies with its handle.
//!
//! Owns: two reader threads per child (a pipe that nobody empties would stop the child). Invariants:
//! no child outlives its [`Process`]; what it said is printed if the test panics.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::wait;

/// Lines kept per child; older ones are dropped.
const KEEP: usize = 20_000;

/// A running child.
pub struct Process {
    name: String,
    child: Child,
    said: Arc<Said>,
}

#[derive(Default)]
struct Said {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<(Stream, String)>,
    open: usize,
}

/// Where a line was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What a finished child left.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs `command` to its end; panics if it runs longer than `limit`.
pub fn run_to_end(name: &str, command: Command, limit: Duration) -> Finished {
    let mut process = Process::start(name, command);
    let status = process.wait_exit(limit);
    process.said.wait_closed();
    Finished {
        code: status.code(),
        stdout: process.text(Stream::Out),
        stderr: process.text(Stream::Err),
    }
}

impl Process {
    /// Starts `command` with both outputs captured and no input.
    pub fn start(name: &str, mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let said = Arc::new(Said::default());
        said.lock().open = 2;
        let out = child.stdout.take().expect("stdout is piped");
        let err = child.stderr.take().expect("stderr is piped");
        said.read(Stream::Out, out);
        said.read(Stream::Err, err);
        Self {
            name: name.to_owned(),
            child,
            said,
        }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// First line on either output that `wanted` accepts; panics, with the logs, if there is none in time.
    pub fn line(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + wait::SOON;
        let mut state = self.said.lock();
        let mut seen = 0;
        loop {
            if let Some((_, line)) = state.lines[seen.min(state.lines.len())..]
                .iter()
                .find(|(_, l)| wanted(l))
            {
                return line.clone();
            }
            seen = state.lines.len();
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero() && state.open > 0,
                "{} never said {what}:\n{}",
                self.name,
                render(&state)
            );
            state = self
                .said
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Everything said so far on one output.
    pub fn text(&self, stream: Stream) -> String {
        let state = self.said.lock();
        state
            .lines
            .iter()
            .filter(|(s, _)| *s == stream)
            .map(|(_, l)| format!("{l}\n"))
            .collect()
    }

    /// Everything said so far on both outputs.
    pub fn logs(&self) -> String {
        self.text(Stream::Out) + &self.text(Stream::Err)
    }

    /// SIGKILL, and the exit awaited.
    pub fn kill(&mut self) {
        // An error means that it has ended already, which is what is wanted.
        drop(self.child.kill());
        self.wait_exit(wait::SOON);
    }

    /// Sends a signal by name: `TERM`, `HUP`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.id().to_string())
            .status();
        assert!(
            status.is_ok_and(|s| s.success()),
            "{} cannot be sent {name}",
            self.name
        );
    }

    /// Waits for the end; panics after `limit`.
    pub fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        wait::until_blocking(limit, &what, || {
            self.child.try_wait().expect("a child can be waited for")
        })
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Resident memory in bytes, from `/proc`.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))
            .expect("the child has a status");
        let line = status
            .lines()
            .find(|l| l.starts_with("VmRSS:"))
            .expect("its memory is told");
        let kib: u64 = line
            .split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .expect("as a number of KiB");
        kib * 1024
    }

    /// Processor time used so far, from `/proc`; ticks of 10 ms.
    pub fn processor(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))
            .expect("the child has a status");
        // The name in parentheses may hold anything; user and system time are the 12th and 13th behind it.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = |at: usize| -> u64 {
            let field = fields.split_whitespace().nth(at);
            field.and_then(|n| n.parse().ok()).unwrap_or_default()
        };
        Duration::from_millis(10 * (ticks(11) + ticks(12)))
    }

    /// Number of open file descriptors, from `/proc`.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id()))
            .expect("the child has descriptors")
            .count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            // eprintln! is captured with the failing test's own output.
            eprintln!(
                "---- {} said ----\n{}",
                self.name,
                render(&self.said.lock())
            );
        }
    }
}

impl Said {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(self: &Arc<Self>, stream: Stream, pipe: impl Read + Send + 'static) {
        let said = Arc::clone(self);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                let Ok(line) = line else { break };
                let mut state = said.lock();
                if state.lines.len() >= KEEP {
                    state.lines.drain(..KEEP / 2);
                }
                state
                    .lines
                    .push((stream, String::from_utf8_lossy(&line).into_owned()));
                said.changed.notify_all();
            }
            said.lock().open -= 1;
            said.changed.notify_all();
        });
    }

    fn wait_closed(&self) {
        let mut state = self.lock();
        while state.open > 0 {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn render(state: &State) -> String {
    let tail = state.lines.len().saturating_sub(200);
    state.lines[tail..]
        .iter()
        .map(|(s, l)| format!("{s:?} {l}\n"))
        .collect()
}
