//! What is asked when: the mix of requests and their arrivals.
//!
//! Pure; the seed comes in. Invariant: the same plan gives the same requests at the same times.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::oracle::content::Action;

/// Kind of a request, as a mix and the report name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Small answer at once.
    Get,
    /// Small answer after 200 ms.
    Slow,
    /// Small body, its digest back.
    Post,
    /// Large body, its digest back.
    Upload,
    /// Large answer.
    Download,
    /// Numbered server-sent events.
    Sse,
    /// WebSocket with numbered messages.
    Ws,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Get,
        Self::Slow,
        Self::Post,
        Self::Upload,
        Self::Download,
        Self::Sse,
        Self::Ws,
    ];

    /// As a mix writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Slow => "slow",
            Self::Post => "post",
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Sse => "sse",
            Self::Ws => "ws",
        }
    }

    /// True if a fault of the app can be asked for in its place.
    const fn may_fail(self) -> bool {
        matches!(self, Self::Get | Self::Slow | Self::Post | Self::Download)
    }
}

/// Shares of the kinds; only their ratios matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix([u32; Kind::ALL.len()]);

impl Default for Mix {
    fn default() -> Self {
        Self([60, 5, 20, 4, 5, 3, 3])
    }
}

impl Mix {
    /// Reads `get=60,post=30,ws=10`; a kind that is not named has no share.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut shares = [0_u32; Kind::ALL.len()];
        for part in text.split(',') {
            let names = || Kind::ALL.map(Kind::as_str).join(", ");
            let (name, share) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}`: write KIND=SHARE with {}", names()))?;
            let index = Kind::ALL.iter().position(|k| k.as_str() == name.trim());
            let index =
                index.ok_or_else(|| format!("`{name}` is no kind; write one of {}", names()))?;
            let share: u16 = share
                .trim()
                .parse()
                .map_err(|_| format!("`{share}`: a share is a number up to 65535"))?;
            shares[index] = share.into();
        }
        let any = shares.iter().any(|share| *share > 0);
        any.then_some(Self(shares))
            .ok_or_else(|| "a mix without any share asks nothing".to_owned())
    }

    fn draw(&self, rng: &mut StdRng) -> Kind {
        let mut at = rng.random_range(0..self.0.iter().sum());
        for (kind, share) in Kind::ALL.into_iter().zip(self.0) {
            if at < share {
                return kind;
            }
            at -= share;
        }
        Kind::Get
    }
}

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// As independent clients come.
    Poisson,
    /// As a clock ticks.
    Constant,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Requests a second.
    pub rate: f64,
    /// How long requests arrive.
    pub duration: Duration,
    /// Which.
    pub mix: Mix,
    /// Spacing.
    pub spacing: Spacing,
    /// Seed of all draws.
    pub seed: u64,
    /// Number of the first request; runs that share a book must not share numbers.
    pub first_id: u64,
    /// Share of requests that ask the app to fail, in parts of a million.
    pub app_faults: u32,
    /// Share of requests on a connection of their own, in parts of a million.
    pub fresh: u32,
    /// Body of an upload, bytes.
    pub upload: u32,
    /// Body of a download, bytes.
    pub download: u32,
    /// Events of a stream, and the pause before each.
    pub events: (u32, Duration),
    /// Messages of a WebSocket, and the pause between two.
    pub messages: (u32, Duration),
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rate: 100.0,
            duration: Duration::from_secs(10),
            mix: Mix::default(),
            spacing: Spacing::Poisson,
            seed: 1,
            first_id: FIRST_ID,
            app_faults: 0,
            fresh: 100_000,
            upload: 256 * 1024,
            download: 256 * 1024,
            events: (20, Duration::from_millis(100)),
            messages: (20, Duration::from_millis(100)),
        }
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, since the start.
    pub at: Duration,
    /// Its number.
    pub id: u64,
    /// Its kind.
    pub kind: Kind,
    /// What the app is asked to do.
    pub action: Action,
    /// Bytes of its body.
    pub body: usize,
    /// On a connection of its own.
    pub fresh: bool,
}

/// Number of the first request of a plan that says nothing else; below it are probes.
pub const FIRST_ID: u64 = 1000;

impl Plan {
    /// All requests in order.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> + use<> {
        let plan = self.clone();
        let mut rng = StdRng::seed_from_u64(plan.seed);
        let mut at = Duration::ZERO;
        let mut id = plan.first_id;
        std::iter::from_fn(move || {
            at += plan.gap(&mut rng);
            let arrival = plan.arrival(&mut rng, at, id);
            id += 1;
            (at < plan.duration).then_some(arrival)
        })
    }

    fn gap(&self, rng: &mut StdRng) -> Duration {
        let unit = match self.spacing {
            Spacing::Constant => 1.0,
            // One minus, so that the logarithm is never of zero.
            Spacing::Poisson => -(1.0 - rng.random::<f64>()).ln(),
        };
        Duration::from_secs_f64(unit / self.rate)
    }

    fn arrival(&self, rng: &mut StdRng, at: Duration, id: u64) -> Arrival {
        let kind = self.mix.draw(rng);
        let fault = rng.random_range(0..1_000_000) < self.app_faults;
        let which = rng.random_range(0..Action::FAULTS.len());
        let fresh = rng.random_range(0..1_000_000) < self.fresh;
        let (action, body) = match kind {
            Kind::Get => (Action::Get, 0),
            Kind::Slow => (Action::Slow(Duration::from_millis(200)), 0),
            Kind::Post => (Action::Take, 200),
            Kind::Upload => (Action::Take, self.upload as usize),
            // Odd and even lengths are framed differently.
            Kind::Download => (Action::Download(u64::from(self.download) + id % 2), 0),
            Kind::Sse => (Action::Events(self.events.0, self.events.1), 0),
            Kind::Ws => (Action::Echo, 0),
        };
        let action = if fault && kind.may_fail() {
            Action::FAULTS[which]
        } else {
            action
        };
        Arrival {
            at,
            id,
            kind,
            action,
            body,
            fresh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_or_the_mistake_is_named() {
        let mix = Mix::parse("get=1, ws=3").expect("a mix");
        assert_eq!(mix, Mix([1, 0, 0, 0, 0, 0, 3]));
        for (text, said) in [
            ("get", "write KIND=SHARE with get, slow,"),
            ("put=1", "`put` is no kind"),
            ("get=x", "a share is a number"),
            ("get=70000", "a share is a number"),
            ("get=0", "asks nothing"),
        ] {
            let found = Mix::parse(text).expect_err(text);
            assert!(found.contains(said), "{found}");
        }
    }

    #[test]
    fn arrivals_keep_the_rate_and_the_shares() {
        for spacing in [Spacing::Poisson, Spacing::Constant] {
            let plan = Plan {
                rate: 1000.0,
                spacing,
                app_faults: 100_000,
                ..Plan::default()
            };
            let all: Vec<Arrival> = plan.arrivals().collect();
            assert!(
                (9_500..10_500).contains(&all.len()),
                "{} in ten seconds",
                all.len()
            );
            assert!(
                all.windows(2)
                    .all(|w| w[0].at <= w[1].at && w[0].id + 1 == w[1].id)
            );
            let posts = all.iter().filter(|a| a.kind == Kind::Post).count();
            assert!((1_700..2_300).contains(&posts), "{posts} posts of 20%");
            let faults = all
                .iter()
                .filter(|a| Action::FAULTS.contains(&a.action))
                .count();
            assert!(
                (750..1_050).contains(&faults),
                "{faults} faults of 10% where they may be"
            );
            assert_eq!(all, plan.arrivals().collect::<Vec<_>>(), "the same again");
        }
    }
}
