//! Configuration texts: any text is a configuration or a list of mistakes, each on one line.

use std::path::Path;

use bridgehead_gateway::config::{self, Config};

use super::{signature, size, variant};

pub(super) const WORDS: &[&[u8]] = &[
    b"[gateway]\n",
    b"[public]\n",
    b"[tunnel]\n",
    b"[admin]\n",
    b"[limits]\n",
    b"[defaults]\n",
    b"[[agent]]\n",
    b"[[app]]\n",
    b"name = \"demo\"\n",
    b"hosts = [\"a.example.com\", \"B.example.com\"]\n",
    b"paths = [\"/api\"]\n",
    b"http = [\":8080\"]\n",
    b"domain = \"apps.example.com\"\n",
    b"listen = \"127.0.0.1:0\"\n",
    b"plain = true\n",
    b"hold = \"10s\"\n",
    b"first_frame_window = \"0s\"\n",
    b"max_body = \"1KiB\"\n",
    b"head_size = \"99999999999GiB\"\n",
    b"trusted_proxies = [\"10.0.0.0/8\"]\n",
    b"keys = [{ id = \"k1\", hash = \"blake3:00\" }]\n",
    b"apps = [\"*\", \"shop-*\"]\n",
    b"protocol = \"h2c\"\n",
    b"go = \"unsafe\"\n",
    b"go_windw = 1\n",
    b"-1",
    b"\"18446744073709551616s\"",
    b"\xc3\xa9",
    b"\"\"\"",
    b"= ",
];

pub(super) fn run(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let outcome = match Config::from_toml(&text, "gateway.toml", Path::new("/nowhere")) {
        Ok(config) => {
            let summary = config::summary(&config, 0, Vec::new());
            assert!(!summary.is_empty(), "a valid configuration has a summary");
            signature(&[1, size(config.apps.len()), size(config.agents.len())])
        }
        Err(errors) => {
            let list = errors.as_slice();
            assert!(!list.is_empty(), "a refusal says why");
            let said = errors.to_string();
            assert_eq!(
                said.lines().count(),
                list.len(),
                "a mistake is one line: {said:?}"
            );
            let breaks = |c: char| c.is_control() && c != '\n';
            assert!(
                !said.contains(breaks),
                "a mistake cannot draw on a terminal: {said:?}"
            );
            signature(&[
                variant(&list[0].path),
                variant(&list[0].what),
                size(list.len()),
            ])
        }
    };
    signature(&[outcome])
}
