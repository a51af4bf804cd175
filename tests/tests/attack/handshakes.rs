//! Attacks on the TLS layer, beside a client that shakes hands for each of its requests.
//!
//! All are bytes of the first flight, which an attacker has for nothing: what the gateway spends on them
//! is bounded by `tls_handshake` and by what `rustls` puts up with.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::ServerName;

use crate::attackers::{Attack, flood, slow};
use crate::floods::{Door, beside, guarded};

/// Head of a record with `length` bytes of content.
fn record(kind: u8, length: u16) -> Vec<u8> {
    let [high, low] = length.to_be_bytes();
    vec![kind, 3, 1, high, low]
}

/// A whole hello, as a client of the field sends it; always the same one.
fn hello() -> &'static [u8] {
    static HELLO: OnceLock<Vec<u8>> = OnceLock::new();
    HELLO.get_or_init(|| {
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from("demo.localhost").expect("a name");
        let mut client =
            rustls::ClientConnection::new(Arc::new(config), name).expect("a connection");
        let mut out = Vec::new();
        client.write_tls(&mut out).expect("a vector takes all");
        out
    })
}

/// The hello in records of one byte each.
fn crumbs() -> Vec<u8> {
    let crumb = |byte: &u8| [record(22, 1), vec![*byte]].concat();
    hello()[5..].iter().flat_map(crumb).collect()
}

/// Says `first` once and hangs up when it is answered or has said all.
fn once(n: u32, first: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    match n {
        0 => first(),
        _ => Vec::new(),
    }
}

/// All of them, in the order in which they run.
const ATTACKS: &[Attack] = &[
    flood("hellos that nobody follows up", |n, _| {
        once(n, || hello().to_vec())
    }),
    flood("hellos in crumbs", |n, _| once(n, crumbs)),
    flood("hellos of another kind", |n, _| {
        once(n, || {
            let mut other = hello().to_vec();
            // The first byte behind both heads: the version.
            other[9] ^= 0xff;
            other
        })
    }),
    flood("records of nothing", |_, _| record(22, 0).repeat(200)),
    flood("warnings", |_, _| {
        [record(21, 2), vec![1, 90]].concat().repeat(200)
    }),
    flood("changes of the cipher", |n, _| {
        let mut out = once(n, || hello().to_vec());
        out.extend([record(20, 1), vec![1]].concat().repeat(200));
        out
    }),
    flood("a hello of sixteen mebibytes", |n, _| {
        let mut out = once(n, || [record(22, 4), vec![1, 0xff, 0xff, 0xff]].concat());
        out.extend([record(22, 16_384), vec![0; 16_384]].concat());
        out
    }),
    flood("HTTP without TLS", |_, host| {
        format!("GET /c HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
    }),
    slow("slow hellos", |n, _| {
        let byte = |at| hello().get(at as usize).copied();
        byte(n).into_iter().collect()
    }),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_well_behaved_client_notices_no_attack_on_its_handshakes() {
    beside(guarded().tls(), Door::Tls, ATTACKS).await;
}
