//! What the gateway refuses by itself: 0 bytes reach the app, and the answer says which rule it was.

use bridgehead_tests::app;
use bridgehead_tests::client::H1;
use bridgehead_tests::h2c::H2;
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;

use crate::support::{One, Verdict, one};

const BAD: Verdict = Verdict::refused(400, "BAD_REQUEST", "bad_request");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_nobody_routes_is_not_found() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let not_found = Verdict::refused(404, "APP_NOT_FOUND", "no_route");
    for host in ["other.localhost", "demo.example.com", "local"] {
        not_found.check(&world.h1().await.ask("GET", "/", host, &[], b"").await);
    }
    assert_eq!(app.total(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_heads_are_refused_and_the_app_sees_nothing() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let host = world.host("demo");
    let h = format!("Host: {host}\r\n");
    let cases: Vec<(&str, String)> = vec![
        ("no host", "GET / HTTP/1.1\r\n\r\n".into()),
        ("two hosts", format!("GET / HTTP/1.1\r\n{h}{h}\r\n")),
        (
            "length and chunks",
            format!(
                "POST / HTTP/1.1\r\n{h}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        (
            "two lengths",
            format!("POST / HTTP/1.1\r\n{h}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        ),
        (
            "a signed length",
            format!("POST / HTTP/1.1\r\n{h}Content-Length: +3\r\n\r\nabc"),
        ),
        (
            "a list of lengths",
            format!("POST / HTTP/1.1\r\n{h}Content-Length: 3, 3\r\n\r\nabc"),
        ),
        (
            "a huge length",
            format!("POST / HTTP/1.1\r\n{h}Content-Length: 99999999999999999999999\r\n\r\nabc"),
        ),
        (
            "gzip, chunked",
            format!("POST / HTTP/1.1\r\n{h}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "chunked twice",
            format!(
                "POST / HTTP/1.1\r\n{h}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        (
            "xchunked",
            format!("POST / HTTP/1.1\r\n{h}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "bare line feeds",
            format!("GET / HTTP/1.1\nHost: {host}\n\n"),
        ),
        (
            "a blank before the colon",
            format!("GET / HTTP/1.1\r\n{h}X : y\r\n\r\n"),
        ),
        (
            "a folded line",
            format!("GET / HTTP/1.1\r\n{h}X: y\r\n z\r\n\r\n"),
        ),
        ("a NUL", format!("GET / HTTP/1.1\r\n{h}X: a\0b\r\n\r\n")),
        ("a bare CR", format!("GET / HTTP/1.1\r\n{h}X: a\rb\r\n\r\n")),
        (
            "userinfo",
            format!("GET / HTTP/1.1\r\nHost: me@{host}\r\n\r\n"),
        ),
        (
            "a host with a path",
            format!("GET / HTTP/1.1\r\nHost: {host}/x\r\n\r\n"),
        ),
        (
            "another absolute form",
            format!("GET http://other.localhost/ HTTP/1.1\r\n{h}\r\n"),
        ),
        ("no HTTP at all", "\u{16}\u{3}\u{1}hello\r\n\r\n".into()),
        ("version 3", format!("GET / HTTP/3.0\r\n{h}\r\n")),
        (
            "a chunk extension",
            format!("POST / HTTP/1.0\r\n{h}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
    ];
    for (name, bytes) in cases {
        let mut client = world.h1().await;
        client.send(&bytes).await;
        let answer = client.answer("GET").await;
        assert!(
            (400..=505).contains(&answer.status) && answer.made_by_gateway(),
            "{name}: {answer:?}"
        );
        assert_eq!(answer.error("delivery"), "not_delivered", "{name}");
        let (rest, _) =
            wait::within(wait::SOON, "the connection's end", client.read_to_end()).await;
        assert!(
            rest.is_empty(),
            "{name}: nothing follows: {}",
            String::from_utf8_lossy(&rest)
        );
    }
    assert_eq!(app.total(), 0, "the app saw {}", app.text());
    let mut client = world.h1().await;
    client
        .send(format!("POST / HTTP/1.1\r\n{h}Content-Length: abc\r\n\r\n"))
        .await;
    BAD.check(&client.answer("POST").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunked_body_that_turns_bad_never_looks_complete_to_the_app() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    for (n, bad) in [
        "5;ext=1\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX",
        "zz\r\n",
        "5\nhello\n0\n\n",
        "-1\r\n",
        "fffffffffffffffff\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = world.h1().await;
        let fields = [("Transfer-Encoding", "chunked")];
        client
            .request(
                "POST",
                &format!("/bad/{n}"),
                &world.host("demo"),
                &fields,
                format!("4\r\nabc{n}\r\n").as_bytes(),
            )
            .await;
        app.until_text(&format!("abc{n}")).await;
        client.send(bad).await;
        let result = wait::within(wait::SOON, "an end", client.try_answer("POST")).await;
        if let Ok(answer) = result {
            assert_eq!(answer.status, 400, "{bad:?}: {}", answer.text());
            assert_ne!(
                answer.error("delivery"),
                "not_delivered",
                "the app saw its beginning"
            );
        }
    }
    let seen = app
        .until("the app's connections ending", |seen| {
            seen.iter().all(|s| s.ended.is_some())
        })
        .await;
    for one in seen {
        assert!(
            !one.text().contains("\r\n0\r\n\r\n"),
            "a complete request: {}",
            one.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_too_long_names_its_limit() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let answer = world.get(&format!("/{}", "x".repeat(9000))).await;
    Verdict::refused(414, "URI_TOO_LONG", "uri_limit").check(&answer);
    assert!(
        answer.text().contains('8'),
        "the limit of 8 KiB is named: {}",
        answer.text()
    );
    assert_eq!(app.total(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_too_large_names_its_limit() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let too_large = Verdict::refused(431, "HEAD_TOO_LARGE", "head_limit");
    let long = "x".repeat(40_000);
    too_large.check(
        &world
            .h1()
            .await
            .ask("GET", "/", &world.host("demo"), &[("X-Long", &long)], b"")
            .await,
    );
    let many: Vec<(String, String)> = (0..150)
        .map(|n| (format!("X-{n}"), "1".to_owned()))
        .collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    too_large.check(
        &world
            .h1()
            .await
            .ask("GET", "/", &world.host("demo"), &many, b"")
            .await,
    );
    assert_eq!(app.total(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_body_beyond_the_route_s_cap_is_refused_unread() {
    let setup = setup().app("demo", "max_body = \"1KiB\"");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, app::echo).await;
    let answer = world.ask("POST", "/", &[b'x'; 2000]).await;
    Verdict::refused(413, "BODY_TOO_LARGE", "body_limit").check(&answer);
    assert!(
        answer.text().contains("max_body") || answer.text().contains("1"),
        "the limit is named: {}",
        answer.text()
    );
    assert_eq!(app.total(), 0);
    assert_eq!(
        world.ask("POST", "/", &[b'x'; 1024]).await.status,
        200,
        "exactly the cap passes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_body_beyond_the_cap_is_no_lie_about_delivery() {
    let setup = setup().app("demo", "max_body = \"1KiB\"");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, app::echo).await;
    let mut client = world.h1().await;
    let chunk = format!("200\r\n{}\r\n", "x".repeat(0x200));
    client
        .request(
            "POST",
            "/",
            &world.host("demo"),
            &[("Transfer-Encoding", "chunked")],
            chunk.as_bytes(),
        )
        .await;
    app.until_text("xxx").await;
    for _ in 0..4 {
        client.send(&chunk).await;
    }
    let answer = client.answer("POST").await;
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert_eq!(
        answer.error("delivery"),
        "unknown",
        "the app saw a part of it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_name_that_differs_from_the_host_is_misdirected() {
    let app = app::App::start(app::echo).await;
    let world = setup().tls().app("other", "").start().await;
    let _agent = world
        .join("a1", &[("demo", &app.target()), ("other", &app.target())])
        .await;
    let addr = world.places.public_tls.expect("a TLS listener");
    let mut client = H1::connect_tls(addr, "demo.localhost", &world.certificate.roots).await;
    let answer = client.ask("GET", "/", "demo.localhost", &[], b"").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = client.ask("GET", "/", "other.localhost", &[], b"").await;
    Verdict::refused(421, "MISDIRECTED", "wrong_host").check(&answer);
    assert!(!app.text().contains("other.localhost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_request_is_refused() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    client
        .send(format!(
            "CONNECT example.com:443 HTTP/1.1\r\nHost: {}\r\n\r\n",
            world.host("demo")
        ))
        .await;
    let answer = client.answer("GET").await;
    Verdict::refused(501, "UPGRADE_UNSUPPORTED", "upgrade").check(&answer);
    assert_eq!(app.total(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_stops_is_told_as_client_timeout() {
    let setup = setup().section("limits", "upload_idle = \"1s\"");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, app::echo).await;
    let mut client = world.h1().await;
    client
        .request(
            "POST",
            "/up",
            &world.host("demo"),
            &[("Content-Length", "100")],
            b"only this",
        )
        .await;
    app.until_text("only this").await;
    let answer = client.answer("POST").await;
    assert_eq!(answer.status, 408, "{}", answer.text());
    assert_eq!(answer.error("code"), "CLIENT_TIMEOUT");
    assert_eq!(
        answer.error("delivery"),
        "unknown",
        "the app saw a part of it"
    );
    assert_eq!(answer.error("stage"), "body");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_stops_is_told_so_whatever_its_fields_promise() {
    let setup = setup().section("limits", "upload_idle = \"1s\"");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, app::echo).await;
    let host = world.host("demo");
    let promises: [&[(&str, &str)]; 3] = [
        &[("Connection", "upgrade"), ("Upgrade", "websocket")],
        &[("Content-Type", "application/grpc")],
        &[("Content-Type", "application/grpc-web+proto")],
    ];
    for (n, promise) in promises.into_iter().enumerate() {
        let mut fields = promise.to_vec();
        fields.push(("Content-Length", "10"));
        let (target, mut client) = (format!("/up{n}"), world.h1().await);
        client.request("POST", &target, &host, &fields, b"").await;
        app.until_text(&target).await;
        let answer = client.answer("POST").await;
        assert_eq!(answer.status, 408, "{promise:?}: {}", answer.text());
        assert_eq!(answer.error("code"), "CLIENT_TIMEOUT");
    }
    let in_flight = || async {
        let now = world.metrics().await.sum("in_flight", &[("app", "demo")]);
        (now == 0.0).then_some(())
    };
    wait::until(wait::SOON, "no place being taken", in_flight).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_never_ends_is_told_as_client_timeout() {
    let setup = setup().section("limits", "head_time = \"1s\"");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, app::echo).await;
    let mut client = world.h1().await;
    client.send("GET / HTTP/1.1\r\nHost: dem").await;
    let answer = client.answer("GET").await;
    assert_eq!(
        (answer.status, answer.error("code").as_str()),
        (408, "CLIENT_TIMEOUT")
    );
    assert_eq!(answer.error("delivery"), "not_delivered");
    assert_eq!(app.total(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_gateway_says_so_and_the_app_sees_nothing() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    assert_eq!(
        client.ask("GET", "/before", &host, &[], b"").await.status,
        200
    );
    // Its head is on its way when the drain begins.
    client.send("POST /after HTTP/1.1\r\n").await;
    let answer = world.command("/v1/drain").await;
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    client
        .send(format!("Host: {host}\r\nContent-Length: 0\r\n\r\n"))
        .await;
    let answer = client.answer("POST").await;
    Verdict::refused(503, "SERVICE_UNAVAILABLE", "draining")
        .after(5)
        .check(&answer);
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(!app.text().contains("/after"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_beyond_the_limit_is_told_so_and_the_app_sees_nothing() {
    for limit in ["connections = 2", "connections_per_ip = 2"] {
        let One {
            world,
            agent: _agent,
            app,
        } = one(setup().section("limits", limit), app::echo).await;
        let (host, mut places) = (world.host("demo"), Vec::new());
        for _ in 0..2 {
            let mut client = world.h1().await;
            let answer = client.ask("GET", "/inside", &host, &[], b"").await;
            assert_eq!(answer.status, 200);
            places.push(client);
        }
        let mut outside = world.h1().await;
        let answer = outside
            .ask("POST", "/outside", &host, &[], b"an order")
            .await;
        Verdict::refused(503, "SERVICE_UNAVAILABLE", "overload")
            .after(5)
            .check(&answer);
        let mut outside = world.h2().await;
        let answer = outside.ask(H2::get(&host, "/outside"), b"").await;
        assert_eq!(answer.expect("an answer").head.status(), 503);
        assert!(!app.text().contains("/outside"));
        // A place that is given back is given again.
        drop(places);
        let again = || async {
            let answer = world.get("/again").await;
            (answer.status == 200).then_some(())
        };
        bridgehead_tests::wait::until(bridgehead_tests::wait::SOON, "a free place", again).await;
    }
}
