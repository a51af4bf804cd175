//! Tests of the choice of a proxy and of the CONNECT exchange.

use super::super::address::Plain;
use super::*;

fn gateway(text: &str) -> GatewayAddress {
    GatewayAddress::parse(text, Plain::Anywhere).expect(text)
}

fn environment(pairs: &'static [(&'static str, &'static str)]) -> Result<Proxies, String> {
    Proxies::from_environment(|name| {
        pairs
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn the_environment_chooses_by_encryption_and_leaves_out_what_it_names() {
    let proxies = environment(&[
        ("HTTPS_PROXY", "http://one:3128"),
        ("http_proxy", "two"),
        ("NO_PROXY", "internal.example, .corp.example,10.0.0.1"),
    ])
    .expect("proxies");
    let name = |text: &str| proxies.towards(&gateway(text)).map(ToString::to_string);
    assert_eq!(
        name("tls://gw.example.com").as_deref(),
        Some("http://one:3128")
    );
    assert_eq!(
        name("wss://gw.example.com").as_deref(),
        Some("http://one:3128")
    );
    assert_eq!(
        name("tcp://gw.example.com").as_deref(),
        Some("http://two:80")
    );
    for direct in [
        "tls://internal.example",
        "tls://gw.corp.example",
        "tls://10.0.0.1",
        "tls://localhost",
        "ws://[::1]",
    ] {
        assert_eq!(name(direct), None, "{direct}");
    }
    assert!(name("tls://notinternal.example").is_some());
}

#[test]
fn an_empty_variable_is_no_proxy_and_a_bad_one_is_named_without_its_password() {
    assert_eq!(environment(&[("HTTPS_PROXY", "")]), Ok(Proxies::none()));
    let said = environment(&[("HTTPS_PROXY", "socks5://user:hunter2@x")]).expect_err("socks");
    assert!(
        said.contains("HTTPS_PROXY") && !said.contains("hunter2"),
        "{said}"
    );
}

#[test]
fn a_password_is_never_shown() {
    let proxy = ProxyAddress::parse("http://user:p%40ss@proxy:3128").expect("proxy");
    assert_eq!(
        format!("{proxy:?} {proxy}"),
        "http://proxy:3128 http://proxy:3128"
    );
    assert_eq!(
        proxy.credentials.as_deref(),
        Some(STANDARD.encode("user:p@ss").as_str())
    );
}

#[tokio::test]
async fn bytes_after_the_proxys_answer_stay_for_the_gateway() {
    let (mut near, mut far) = tokio::io::duplex(1024);
    let proxy = ProxyAddress::parse("u:p@proxy").expect("proxy");
    let serve = async {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            seen.push(far.read_u8().await.expect("request"));
        }
        far.write_all(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nfirst")
            .await
            .expect("answer");
        String::from_utf8(seen).expect("text")
    };
    let target = gateway("tls://[2001:db8::1]:7000");
    let (done, seen) = tokio::join!(connect_through(&mut near, &proxy, &target), serve);
    done.expect("connected");
    assert!(
        seen.starts_with("CONNECT [2001:db8::1]:7000 HTTP/1.1\r\nHost: [2001:db8::1]:7000\r\n"),
        "{seen}"
    );
    assert!(
        seen.contains("Proxy-Authorization: Basic dTpw\r\n"),
        "{seen}"
    );
    let mut first = [0; 5];
    near.read_exact(&mut first).await.expect("rest");
    assert_eq!(&first, b"first");
}

#[tokio::test]
async fn a_refusal_is_told_with_the_proxys_own_line() {
    for answer in [
        "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 2000 x\r\n\r\n",
    ] {
        let (mut near, mut far) = tokio::io::duplex(1024);
        far.write_all(answer.as_bytes()).await.expect("answer");
        let proxy = ProxyAddress::parse("proxy").expect("proxy");
        let said = connect_through(&mut near, &proxy, &gateway("tls://gw"))
            .await
            .expect_err(answer)
            .to_string();
        assert!(said.contains(answer.trim_end()), "{said}");
    }
}

#[tokio::test]
async fn an_endless_head_is_cut_off() {
    let (mut near, mut far) = tokio::io::duplex(64 * 1024);
    far.write_all(&vec![b'a'; HEAD_LIMIT + 1])
        .await
        .expect("answer");
    let proxy = ProxyAddress::parse("proxy").expect("proxy");
    assert!(
        connect_through(&mut near, &proxy, &gateway("tls://gw"))
            .await
            .is_err()
    );
}
