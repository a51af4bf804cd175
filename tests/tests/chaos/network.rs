//! A network of its own for an agent: a namespace behind a router that can lose packets.
//!
//! Owns: two namespaces, a pair of interfaces on the host and a route, all named after this process and gone
//! with the [`Network`]. Needs root, `ip` (iproute2) and `nft` (nftables). Packets are lost where they are
//! forwarded, so that neither end's kernel learns of it.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use bridgehead_tests::process::{self, Finished};
use bridgehead_tests::wait;

use crate::setup::{Missing, program};

/// First of the addresses that are set aside for such tests (RFC 2544), and how many blocks of eight there are.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const BLOCKS: u32 = 1 << 14;

/// `host` — `router` — `agent`.
pub(crate) struct Network {
    host: String,
    router: String,
    agent: String,
    block: u32,
}

impl Network {
    /// Lays it, without loss.
    pub(crate) fn lay() -> Result<Self, Missing> {
        program("ip")?;
        program("nft")?;
        let id = std::process::id();
        let made = Self {
            host: format!("bh{id}"),
            router: format!("bh{id}-router"),
            agent: format!("bh{id}-agent"),
            block: FIRST + id % BLOCKS * 8,
        };
        made.build()?;
        Ok(made)
    }

    fn build(&self) -> Result<(), Missing> {
        let Self {
            host,
            router,
            agent,
            ..
        } = self;
        let [near, north, south, far] = [1, 2, 5, 6].map(|n| self.ip(n));
        let beyond = self.ip(4);
        // Segments are as large as packets, so that a lost one is no more than that.
        let lines = [
            format!("netns add {router}"),
            format!("netns add {agent}"),
            format!("link add {host} gso_max_segs 1 type veth peer name north netns {router}"),
            format!("-n {router} link add south type veth peer name up netns {agent}"),
            format!("addr add {near}/30 dev {host}"),
            format!("link set {host} up"),
            format!("-n {router} addr add {north}/30 dev north"),
            format!("-n {router} link set dev north up"),
            format!("-n {router} addr add {south}/30 dev south"),
            format!("-n {router} link set dev south up"),
            format!("-n {agent} addr add {far}/30 dev up"),
            format!("-n {agent} link set dev up gso_max_segs 1 up"),
            format!("-n {agent} route add default via {south}"),
            format!("route add {beyond}/30 via {north}"),
            format!("netns exec {router} sh -c"),
        ];
        for line in lines {
            let mut command = ip(&line);
            if line.ends_with("sh -c") {
                command.arg("echo 1 > /proc/sys/net/ipv4/ip_forward");
            }
            checked(command)?;
        }
        Ok(())
    }

    fn ip(&self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.block + n)
    }

    /// The host's address as the agent sees it.
    pub(crate) fn host(&self) -> IpAddr {
        IpAddr::V4(self.ip(1))
    }

    /// `command`, run where the agent is.
    pub(crate) fn inside(&self, command: &Command) -> Command {
        let mut inside = ip(&format!("netns exec {}", self.agent));
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }

    /// From now on loses this share of the packets from and to the host's `port`; other traffic is left alone.
    pub(crate) fn lose(&self, percent: u32, port: u16) -> Result<(), Missing> {
        let rules = format!(
            "table ip loss\n\
             delete table ip loss\n\
             table ip loss {{\n\
               counter lost {{ }}\n\
               chain forward {{\n\
                 type filter hook forward priority 0;\n\
                 tcp dport {port} numgen random mod 100 < {percent} counter name lost drop\n\
                 tcp sport {port} numgen random mod 100 < {percent} counter name lost drop\n\
               }}\n\
             }}\n"
        );
        let mut nft = ip(&format!("netns exec {} nft", self.router));
        nft.arg(rules);
        checked(nft).map(drop)
    }

    /// Packets lost since the rules were given.
    pub(crate) fn lost(&self) -> Result<u64, Missing> {
        let said = checked(ip(&format!(
            "netns exec {} nft list counter ip loss lost",
            self.router
        )))?;
        let count = said
            .stdout
            .split_whitespace()
            .skip_while(|w| *w != "packets")
            .nth(1);
        count
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| Missing(format!("no counter in {}", said.stdout)))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // With the host's end goes its route; what was not made cannot be removed, and says so to nobody.
        for line in [
            format!("link del {}", self.host),
            format!("netns del {}", self.agent),
            format!("netns del {}", self.router),
        ] {
            drop(ip(&line).stderr(Stdio::null()).status());
        }
    }
}

/// `ip` with these words.
fn ip(line: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(line.split_whitespace());
    command
}

fn checked(command: Command) -> Result<Finished, Missing> {
    let said = format!("{command:?}");
    let done = process::run_to_end("ip", command, wait::SOON);
    match done.code {
        Some(0) => Ok(done),
        _ => Err(Missing(format!("{said}: {}", done.stderr.trim()))),
    }
}
