//! Framing: heads, lengths, chunks, trailers and early answers pass unchanged both ways.

use std::time::Duration;

use bridgehead_tests::app::{self, Conn};
use bridgehead_tests::client::End;
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;

use crate::support::{One, one};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_without_a_length_is_streamed_in_chunks() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    let body = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let answer = client
        .ask(
            "PATCH",
            "/x",
            &world.host("demo"),
            &[("Transfer-Encoding", "chunked")],
            body,
        )
        .await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.text().ends_with("\n\nhello world"),
        "{}",
        answer.text()
    );
    assert!(
        app.text()
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked"),
        "still without a length"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_piece_of_a_body_reaches_the_app_as_it_is_sent() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    client
        .request(
            "POST",
            "/x",
            &world.host("demo"),
            &[("Transfer-Encoding", "chunked")],
            b"",
        )
        .await;
    for piece in ["alpha", "beta", "gamma"] {
        client
            .send(format!("{:x}\r\n{piece}\r\n", piece.len()))
            .await;
        app.until_text(piece).await;
    }
    client.send("0\r\n\r\n").await;
    assert!(
        client
            .answer("POST")
            .await
            .text()
            .ends_with("alphabetagamma")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explicit_zero_length_survives() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    assert_eq!(
        client
            .ask("PUT", "/zero", &host, &[("Content-Length", "0")], b"")
            .await
            .status,
        200
    );
    assert_eq!(
        client.ask("GET", "/none", &host, &[], b"").await.status,
        200
    );
    let seen = app.text().to_ascii_lowercase();
    let (zero, none) = seen
        .split_once("get /none")
        .expect("both arrived, in order");
    assert!(zero.contains("content-length: 0"), "{zero}");
    assert!(
        !none.contains("content-length") && !none.contains("transfer-encoding"),
        "a GET stays lengthless: {none}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zero_lengths_and_bodyless_answers_survive() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            let answer = match head.target.as_str() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 12\r\n\r\n",
                "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n",
                "/chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            };
            conn.write(answer).await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let host = world.host("demo");
    let mut client = world.h1().await;
    assert_eq!(client.ask("GET", "/204", &host, &[], b"").await.status, 204);
    let not_modified = client.ask("GET", "/304", &host, &[], b"").await;
    assert_eq!(
        (not_modified.status, not_modified.header("etag")),
        (304, Some("\"a\""))
    );
    let head = client.ask("HEAD", "/head", &host, &[], b"").await;
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("12"))
    );
    let chunks = client.ask("GET", "/chunks", &host, &[], b"").await;
    assert_eq!(
        (chunks.status, chunks.body.len(), chunks.end),
        (200, 0, End::Complete)
    );
    let zero = client.ask("GET", "/zero", &host, &[], b"").await;
    assert_eq!(
        (zero.status, zero.header("content-length")),
        (200, Some("0"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_ends_with_the_connection_is_complete() {
    let script = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write("HTTP/1.0 200 OK\r\n\r\nuntil the end").await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let answer = world.get("/").await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "until the end")
    );
    assert!(
        matches!(answer.end, End::Complete | End::Close),
        "{:?}",
        answer.end
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_pass_both_ways() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            let Some((_, trailers)) = conn.read_body(&head).await else {
                return;
            };
            let got = trailers.join(",");
            let body = format!(
                "{:x}\r\n{got}\r\n0\r\nX-Sum: 42\r\nTransfer-Encoding: evil\r\n\r\n",
                got.len()
            );
            conn.write(format!(
                "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
            ))
            .await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let mut client = world.h1().await;
    let fields = [
        ("Transfer-Encoding", "chunked"),
        ("TE", "trailers"),
        ("Trailer", "X-In"),
    ];
    let body = b"2\r\nhi\r\n0\r\nX-In: 7\r\nContent-Length: 9\r\n\r\n";
    let answer = client
        .ask("POST", "/", &world.host("demo"), &fields, body)
        .await;
    let got = answer.text().to_ascii_lowercase();
    assert_eq!(
        got.replace(' ', ""),
        "x-in:7",
        "forbidden names are dropped, others pass"
    );
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "42".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informational_answers_pass() {
    let script = |mut conn: Conn| async move {
        while conn.read_head().await.is_some() {
            conn.write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
                .await;
            conn.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let answer = world.get("/").await;
    assert_eq!(answer.informational, [103]);
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expecting_client_gets_its_continue_and_the_app_decides() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            if head.target == "/no" {
                conn.write("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
                conn.until_closed().await;
                return;
            }
            conn.write("HTTP/1.1 100 Continue\r\n\r\n").await;
            let Some((body, _)) = conn.read_body(&head).await else {
                return;
            };
            conn.answer(&format!("got {}", body.len())).await;
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), script).await;
    let fields = [("Expect", "100-continue"), ("Content-Length", "5")];
    let mut client = world.h1().await;
    client
        .request("POST", "/yes", &world.host("demo"), &fields, b"")
        .await;
    let first = client.read_head().await.expect("a head");
    assert_eq!(first.status, 100);
    client.send("hello").await;
    assert_eq!(client.answer("POST").await.text(), "got 5");

    let mut client = world.h1().await;
    client
        .request("POST", "/no", &world.host("demo"), &fields, b"")
        .await;
    let answer = client.answer("POST").await;
    assert_eq!(
        answer.status, 417,
        "the app's refusal comes instead of the body"
    );
    assert!(answer.informational.is_empty(), "no continue was promised");
    assert!(
        !app.text()
            .split("/no")
            .nth(1)
            .unwrap_or_default()
            .contains("hello")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_answer_during_an_upload_reaches_the_client() {
    let script = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write(
                "HTTP/1.1 413 Too Much\r\nConnection: close\r\nContent-Length: 4\r\n\r\nstop",
            )
            .await;
            conn.half_close().await;
            conn.until_closed().await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let mut client = world.h1().await;
    client
        .request(
            "POST",
            "/",
            &world.host("demo"),
            &[("Content-Length", "100000000")],
            &[b'x'; 100_000],
        )
        .await;
    let answer = client.answer("POST").await;
    assert_eq!((answer.status, answer.text().as_str()), (413, "stop"));
    assert!(!answer.made_by_gateway());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_starts_while_the_upload_runs_lets_both_finish() {
    let script = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            let mut left = 3;
            while left > 0 {
                let Some(part) = conn.read_exact(4).await else {
                    return;
                };
                conn.write(format!(
                    "4\r\n{}\r\n",
                    String::from_utf8_lossy(&part).to_uppercase()
                ))
                .await;
                left -= 1;
            }
            conn.write("0\r\n\r\n").await;
            conn.until_closed().await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let mut client = world.h1().await;
    client
        .request(
            "POST",
            "/",
            &world.host("demo"),
            &[("Content-Length", "12")],
            b"",
        )
        .await;
    let mut answered = false;
    for piece in ["abcd", "efgh", "ijkl"] {
        client.send(piece).await;
        if !answered {
            assert_eq!(client.read_head().await.expect("a head").status, 200);
            answered = true;
        }
        let chunk = wait::within(wait::SOON, "the transformed piece", client.read_chunk()).await;
        assert_eq!(chunk.expect("a chunk"), piece.to_uppercase().into_bytes());
    }
    assert_eq!(client.read_chunk().await.expect("the last chunk"), b"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_after_the_clients_half_close_still_comes() {
    let (go, gate) = tokio::sync::watch::channel(false);
    let script = move |mut conn: Conn| {
        let mut gate = gate.clone();
        async move {
            if conn.read_head().await.is_some() && gate.wait_for(|open| *open).await.is_ok() {
                conn.answer("late").await;
                conn.until_closed().await;
            }
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), script).await;
    let mut client = world.h1().await;
    client
        .request("GET", "/", &world.host("demo"), &[], b"")
        .await;
    app.until_text("GET /").await;
    client.half_close().await;
    // The gateway may ask, by a 100 that every client must skip, whether anybody still listens.
    let asked = tokio::time::timeout(Duration::from_millis(700), client.read_head()).await;
    if let Ok(head) = asked {
        assert_eq!(head.expect("the connection stays open").status, 100);
    }
    go.send_replace(true);
    assert_eq!(client.answer("GET").await.text(), "late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_pass_with_every_field_and_every_byte_of_the_target() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let target = "/a%2Fb/%e4/%7Ex?q=1&r=%20+;x&empty=";
    let fields = [
        ("X-One", "1"),
        ("X-One", "2"),
        ("Cookie", "a=b; c=d"),
        ("Authorization", "Basic eA=="),
        ("X-Empty", ""),
    ];
    let text = world
        .h1()
        .await
        .ask("GET", target, &world.host("demo"), &fields, b"")
        .await
        .text();
    assert!(text.starts_with(&format!("GET {target}\n")), "{text}");
    for line in [
        "x-one: 1\nx-one: 2\n",
        "cookie: a=b; c=d\n",
        "authorization: Basic eA==\n",
        "x-empty: \n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert!(
        text.contains(&format!("host: {}\n", world.host("demo"))),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hop_by_hop_fields_stay_and_forwarding_fields_are_ours() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let fields = [
        ("Connection", "X-Private, keep-alive"),
        ("X-Private", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.example"),
        ("Forwarded", "for=1.2.3.4"),
    ];
    let text = world
        .h1()
        .await
        .ask("GET", "/", &world.host("demo"), &fields, b"")
        .await
        .text();
    for gone in [
        "x-private",
        "keep-alive: timeout",
        "proxy-connection",
        "1.2.3.4",
        "evil.example",
    ] {
        assert!(!text.contains(gone), "{gone} in {text}");
    }
    assert!(text.contains("x-forwarded-for: 127.0.0.1\n"), "{text}");
    assert!(text.contains("x-forwarded-proto: http\n"), "{text}");
    assert!(
        text.contains("x-request-id: "),
        "the app can name the request too: {text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_ignores_an_expectation_gets_the_body_all_the_same() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            let Some((body, _)) = conn.read_body(&head).await else {
                return;
            };
            conn.answer(&format!("got {}", body.len())).await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let fields = [("Expect", "100-continue"), ("Content-Length", "5")];
    let mut client = world.h1().await;
    client
        .request("POST", "/", &world.host("demo"), &fields, b"")
        .await;
    let asked = wait::within(wait::SOON, "a continue of somebody", client.read_head()).await;
    assert_eq!(asked.expect("a head").status, 100);
    client.send("hello").await;
    assert_eq!(client.answer("POST").await.text(), "got 5");
}
