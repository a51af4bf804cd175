//! End to end through real sockets: two separate binaries, scripted apps, raw clients.
//!
//! Each module is one kind of promise. A test knows the product only by its interfaces; what an app
//! saw is read from the app double, never from what the gateway says.

mod admission;
mod bodies;
mod broken;
mod bulk;
mod cancel;
mod certificates;
mod cli;
mod http2;
mod keepalive;
mod ledger;
mod live;
mod memory;
mod observe;
mod operate;
mod refusals;
mod reload;
mod reports;
mod restart;
mod resume;
mod rolling;
mod routing;
mod situations;
mod support;
mod tcp;
mod tunnel;
