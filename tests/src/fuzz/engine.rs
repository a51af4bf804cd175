//! Drives a target on stable Rust: a seeded mutator over a corpus, and what is done with findings.
//!
//! Same seed, same corpus, same number of runs: same inputs. Inputs whose signature is new join the
//! corpus of the run (not the one on disk). A finding is written to `tests/regress/TARGET/`, and every
//! file there is run first ever after.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::Target;

/// Longest input that is made.
const MOST: usize = 8 * 1024;

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many inputs.
    Runs(u64),
    /// After so long.
    Time(Duration),
}

/// What a run found.
#[derive(Debug)]
pub struct Report {
    /// Inputs run.
    pub runs: u64,
    /// How long it took.
    pub took: Duration,
    /// Different signatures seen.
    pub signatures: usize,
    /// Inputs that broke an assertion, where they were written.
    pub findings: Vec<PathBuf>,
}

impl Report {
    /// Inputs a second.
    pub fn rate(&self) -> f64 {
        self.runs as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Folder of the tests crate.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files of a folder in the order of their names, with their bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .into_iter()
        .filter_map(|path| std::fs::read(&path).ok().map(|bytes| (path, bytes)))
        .collect()
}

/// Inputs that once broke something.
pub fn regressions(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    files(&home().join("regress").join(target.name))
}

/// Inputs to begin with.
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let found = files(&home().join("fuzz/corpus").join(target.name));
    found.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Runs a target; stops at the first finding.
pub fn drive(target: &Target, seed: u64, until: Until) -> Report {
    let begun = Instant::now();
    let mut random = SmallRng::seed_from_u64(seed);
    let mut pool: Vec<Vec<u8>> = regressions(target).into_iter().map(|(_, b)| b).collect();
    pool.extend(corpus(target));
    pool.push(Vec::new());
    let mut fresh = pool.clone().into_iter();
    let (mut seen, mut runs, mut findings) = (HashSet::new(), 0, Vec::new());
    loop {
        let over = match until {
            Until::Runs(most) => runs >= most,
            // A clock is read seldom: some targets take a microsecond.
            Until::Time(span) => runs % 64 == 0 && begun.elapsed() >= span,
        };
        if over || !findings.is_empty() {
            break;
        }
        let input = fresh
            .next()
            .unwrap_or_else(|| mutate(&pool, target.words, &mut random));
        runs += 1;
        match catch_unwind(AssertUnwindSafe(|| (target.run)(&input))) {
            Ok(signature) => {
                if seen.insert(signature) {
                    pool.push(input);
                }
            }
            Err(_) => findings.push(keep(target, &input)),
        }
    }
    Report {
        runs,
        took: begun.elapsed(),
        signatures: seen.len(),
        findings,
    }
}

/// Writes a finding where every later run begins.
fn keep(target: &Target, input: &[u8]) -> PathBuf {
    let folder = home().join("regress").join(target.name);
    let name = blake3::hash(input).to_hex();
    let path = folder.join(&name[..16]);
    std::fs::create_dir_all(&folder).expect("the folder of regressions can be made");
    std::fs::write(&path, input).expect("a regression can be written");
    path
}

/// A new input from old ones.
fn mutate(pool: &[Vec<u8>], words: &[&[u8]], random: &mut SmallRng) -> Vec<u8> {
    let mut input = pool.choose(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=input.len());
        match random.random_range(0..9) {
            0 | 1 if !words.is_empty() => insert(&mut input, at, words.choose(random)),
            2 if !input.is_empty() => {
                let at = at % input.len();
                input[at] ^= 1 << random.random_range(0..8);
            }
            3 if !input.is_empty() => {
                let at = at % input.len();
                input[at] = random.random();
            }
            4 => input.insert(at, random.random()),
            5 => {
                let end = (at + random.random_range(1..32)).min(input.len());
                input.drain(at..end);
            }
            6 => {
                let end = (at + random.random_range(1..64)).min(input.len());
                let piece = input[at..end].to_vec();
                insert(&mut input, end, Some(&piece.as_slice()));
            }
            7 => {
                let other = pool.choose(random).cloned().unwrap_or_default();
                let from = random.random_range(0..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ if !words.is_empty() && !input.is_empty() => {
                // A word in the place of as many bytes.
                let word = words.choose(random).copied().unwrap_or_default();
                let end = (at + word.len()).min(input.len());
                input.splice(at..end, word.iter().copied());
            }
            _ => input.truncate(at),
        }
    }
    input.truncate(MOST);
    input
}

fn insert(input: &mut Vec<u8>, at: usize, piece: Option<&&[u8]>) {
    let piece = piece.copied().unwrap_or_default();
    input.splice(at..at, piece.iter().copied());
}
