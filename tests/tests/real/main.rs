//! Other people's programs behind the agent: what users run must work, feature by feature.
//!
//! Each test sets up what it needs by package name below the target directory. What cannot be set up
//! is skipped loudly, and listed in `target/…/bh-tests/skipped.txt`; with `CI` set it is a failure.

mod grpc;
mod h2_conformance;
mod node;
mod python;
mod setup;
mod web;
