//! The harness: real binaries, app doubles that record every byte, clients that say exactly what they sent.
//!
//! Owns: starting and stopping everything a test needs, on port 0 and without leftovers. Must not:
//! know how gateway or agent work inside; whatever a test learns, it learns through sockets,
//! files and exit codes, as a stranger would. Only [`fuzz`] calls their parsers.
//!
//! | Module | Holds |
//! |---|---|
//! | [`binaries`] | finds or builds `bh-gateway` and `bh-agent` |
//! | [`port`] | ports that no other test is given by chance |
//! | [`process`] | a child process: lines awaited, logs kept, killed on drop, memory read |
//! | [`app`] | the app double: scripted behaviour, every byte recorded |
//! | [`client`] | raw HTTP/1; [`h2c`] HTTP/2; [`frames`] its frames as bytes; [`ws`] WebSocket |
//! | [`metrics`] | the admin listener read as numbers |
//! | [`world`] | gateway + agents + apps, wired |
//! | [`peer`] | a scripted agent, frame by frame |
//! | [`pki`] | certificates made for one test |
//! | [`chaos`] | `bh-chaos`: a carrier that breaks when it is told to, frame by frame |
//! | [`oracle`], [`load`] | the app that knows what it saw; `bh-load`, which holds answers against it |
//! | [`drill`] | a gateway under more load than its app can serve, measured |
//! | [`relay`] | a TCP relay that can be cut, between an agent and its gateway |
//! | [`fuzz`] | targets for what reads bytes of strangers, and an engine on stable |
//! | [`wait`] | the only place that waits for time |

#![forbid(unsafe_code)]

pub mod app;
pub mod binaries;
pub mod chaos;
pub mod client;
pub mod drill;
pub mod frames;
pub mod fuzz;
pub mod h2c;
pub mod load;
pub mod metrics;
pub mod oracle;
pub mod peer;
pub mod pki;
pub mod port;
pub mod process;
pub mod relay;
pub mod wait;
pub mod world;
pub mod ws;
