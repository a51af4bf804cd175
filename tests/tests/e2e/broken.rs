//! Apps that break HTTP: told as `BH_APP_BROKEN`, and the next client gets none of it.

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::client::End;
use bridgehead_tests::frames::{END_HEADERS, PREFACE, block, frame, kind, settings};

use crate::support::{One, Verdict, one, quick};

const GARBAGE: Verdict = Verdict::refused(502, "BH_APP_BROKEN", "bad_http").delivered();
const CLOSED: Verdict = Verdict::refused(502, "BH_APP_BROKEN", "app_closed").delivered();

/// Answers `/good` well, and everything else with `reply`, then closes if `close`.
fn app(
    reply: &'static [u8],
    close: bool,
) -> impl Fn(Conn) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    move |mut conn: Conn| {
        Box::pin(async move {
            while let Some(head) = conn.read_head().await {
                if conn.read_body(&head).await.is_none() {
                    return;
                }
                if head.target == "/good" {
                    conn.answer("good").await;
                    continue;
                }
                conn.write(reply).await;
                if close {
                    return;
                }
            }
        })
    }
}

async fn broken(reply: &'static [u8], close: bool, expected: Verdict) {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), app(reply, close)).await;
    for (method, body) in [("GET", &b""[..]), ("POST", &b"a=1"[..])] {
        expected.check(&world.ask(method, "/bad", body).await);
        let next = world.get("/good").await;
        assert_eq!(
            (next.status, next.text().as_str()),
            (200, "good"),
            "the next client gets none of it"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_head_is_told_as_broken() {
    broken(b"HTTP/1.1 200 OK\r\nContent-Le", true, CLOSED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_told_as_broken() {
    broken(
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is no HTTP\r\n\r\n",
        false,
        GARBAGE,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lengths_that_differ_are_told_as_broken() {
    let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\nhello";
    broken(reply, false, GARBAGE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_length_beside_chunks_is_told_as_broken() {
    let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    broken(reply, false, GARBAGE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_nobody_asked_for_is_told_as_broken() {
    let reply = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    broken(reply, false, GARBAGE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_without_end_is_told_as_broken() {
    let reply: &'static [u8] = Box::leak(
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "x".repeat(600_000))
            .into_bytes()
            .into_boxed_slice(),
    );
    broken(reply, false, GARBAGE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_informational_answers_is_told_as_broken() {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    let storm: &'static [u8] = Box::leak(hint.repeat(1000).into_bytes().into_boxed_slice());
    broken(storm, false, GARBAGE).await;
}

/// The same by HTTP/2, and HEADERS without end of other kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_an_http2_app_is_told_as_broken() {
    let hints = |stream| {
        let fields = block(&[(":status", "103"), ("link", "</a.css>")]);
        frame(kind::HEADERS, END_HEADERS, stream, &fields).repeat(1000)
    };
    let pieces = |stream| {
        let begun = frame(kind::HEADERS, 0, stream, &block(&[(":status", "200")]));
        let more = frame(
            kind::CONTINUATION,
            0,
            stream,
            &block(&[("x", &"y".repeat(999))]),
        );
        [begun, more.repeat(1000)].concat()
    };
    for storm in [hints as fn(u32) -> Vec<u8>, pieces] {
        let setup = quick().app("demo", "protocol = \"h2c\"");
        let app = App::start(move |conn| storming(conn, storm)).await;
        let world = setup.start().await;
        let target = app.target().replace("http://", "h2c://");
        let _agent = world.join("a1", &[("demo", &target)]).await;
        for (method, body) in [("GET", &b""[..]), ("POST", &b"a=1"[..])] {
            GARBAGE.check(&world.ask(method, "/bad", body).await);
        }
    }
}

/// Speaks HTTP/2 until a request comes, and answers that with `storm` of its stream.
async fn storming(mut conn: Conn, storm: fn(u32) -> Vec<u8>) {
    let (mut got, mut at) = (Vec::new(), PREFACE.len());
    conn.write(settings(&[])).await;
    while let Some(bytes) = conn.read_some().await {
        got.extend(bytes);
        while let Some(head) = got.get(at..at + 9) {
            let length =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let (sort, stream) = (
                head[3],
                u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            );
            at += 9 + length;
            if sort == kind::HEADERS {
                conn.write(storm(stream)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_cut_short_breaks_off_visibly() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(
        quick(),
        app(
            b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nonly this",
            true,
        ),
    )
    .await;
    let answer = world.get("/bad").await;
    let visible = answer.status == 200 && matches!(answer.end, End::Short | End::Reset);
    assert!(
        visible || answer.error("code") == "BH_APP_BROKEN",
        "{answer:?}"
    );
    assert_eq!(world.get("/good").await.text(), "good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_that_break_off_break_off_visibly() {
    let reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nZZ\r\n";
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), app(reply, false)).await;
    let answer = world.get("/bad").await;
    let visible = answer.status == 200 && matches!(answer.end, End::Short | End::Reset);
    assert!(
        visible || answer.error("code") == "BH_APP_BROKEN",
        "{answer:?}"
    );
    assert_eq!(world.get("/good").await.text(), "good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_of_two_answers_reaches_nobody() {
    let twice = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond";
    surplus(twice, "second").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_after_the_answer_reach_nobody() {
    surplus(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst and more of it",
        "more",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_on_an_answer_without_one_reaches_nobody() {
    surplus(b"HTTP/1.1 204 No Content\r\n\r\nleaked", "leaked").await;
    surplus(
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\nleaked",
        "leaked",
    )
    .await;
}

/// The answer itself may pass, since the surplus may come later than it; what follows may not.
async fn surplus(reply: &'static [u8], leaked: &str) {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), app(reply, false)).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    for _ in 0..5 {
        client.request("GET", "/bad", &host, &[], b"").await;
        let Ok(answer) = client.try_answer("GET").await else {
            client = world.h1().await;
            continue;
        };
        assert!(
            !answer.text().contains(leaked),
            "the surplus reached a client: {}",
            answer.text()
        );
        if answer.made_by_gateway() {
            assert_eq!(answer.error("code"), "BH_APP_BROKEN");
        }
        let next = world.get("/good").await;
        assert_eq!((next.status, next.text().as_str()), (200, "good"));
        client = world.h1().await;
    }
}
