//! Exchanges with an `h2` server behind a tunnel.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::sync::Notify;

use super::Http2Exchange;
use super::world::{World, answer, app, app_with, begin, event, head, ok, send, websocket};
use crate::request::app::{AnswerLength, AppEvent, AppFault, AppSide};
use crate::request::front::{BodyLength, BodyPart};

fn data(text: &'static str) -> BodyPart {
    BodyPart::Data(Bytes::from_static(text.as_bytes()))
}

fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, HeaderValue::from_static(value));
    }
    map
}

async fn read(body: &mut h2::RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        all.extend_from_slice(&data);
        body.flow_control()
            .release_capacity(data.len())
            .expect("it came");
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_unary_call_keeps_path_metadata_and_trailers() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |request, mut respond| async move {
        let (parts, mut body) = request.into_parts();
        assert_eq!(
            parts.uri.to_string(),
            "http://demo.example:8080/pkg.Service/Call?x=%20"
        );
        assert!(parts.headers.get("host").is_none());
        assert_eq!(
            (&parts.headers["x-meta"], &parts.headers["te"]),
            (
                &"one".parse().expect("a value"),
                &"trailers".parse().expect("a value")
            )
        );
        let said = read(&mut body).await;
        let asked = body.trailers().await.expect("the end").expect("trailers");
        assert_eq!(
            (said.as_slice(), &asked["x-sum"]),
            (&b"hello"[..], &HeaderValue::from_static("5"))
        );
        let mut head = ok();
        *head.headers_mut() = fields(&[("content-type", "application/grpc"), ("x-initial", "a")]);
        let mut stream = respond.send_response(head, false).expect("it is sent");
        stream
            .send_data(Bytes::from_static(b"world"), false)
            .expect("it is sent");
        let trailers = fields(&[
            ("grpc-status", "0"),
            ("x-final", "b"),
            ("content-length", "9"),
        ]);
        stream.send_trailers(trailers).expect("it is sent");
    });
    let mut asked = head(Method::POST, BodyLength::Streamed);
    asked.te_trailers = true;
    let mut exchange = begin(connection, &asked);
    send(&mut exchange, data("hello")).await;
    send(&mut exchange, BodyPart::Trailers(fields(&[("x-sum", "5")]))).await;
    let answer = answer(&mut exchange).await.expect("an answer");
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (200, &b"world"[..])
    );
    assert_eq!(answer.length, Some(AnswerLength::Streamed));
    assert_eq!(answer.headers["x-initial"], "a");
    let trailers = answer.trailers.expect("trailers");
    assert_eq!(
        (&trailers["grpc-status"], &trailers["x-final"]),
        (
            &"0".parse().expect("a value"),
            &"b".parse().expect("a value")
        )
    );
    assert!(
        trailers.get("content-length").is_none(),
        "it frames nothing there"
    );
    let offsets = exchange.offsets();
    let whole = offsets.whole.expect("the request is whole");
    // Behind it stands at most what the connection itself has to say.
    let behind = exchange.control().view().queued_to - offsets.start - whole;
    assert!(behind <= 2 * 13, "{behind} bytes");
    assert!(offsets.head < whole && offsets.answer > 0);
    assert!(exchange.into_kept().is_some());
}

#[tokio::test(start_paused = true)]
async fn one_connection_carries_one_exchange_after_another() {
    let mut world = World::new();
    let (mut connection, socket) = world.connect().await;
    app(socket, |request, mut respond| async move {
        let mut head = ok();
        let length = request.uri().path().len();
        head.headers_mut().insert("content-length", length.into());
        let mut stream = respond.send_response(head, false).expect("it is sent");
        let path = Bytes::copy_from_slice(request.uri().path().as_bytes());
        stream.send_data(path, true).expect("it is sent");
    });
    let mut start = 0;
    for n in 0..5 {
        let mut asked = head(Method::GET, BodyLength::None);
        asked.target = format!("/number/{n}");
        let mut exchange = begin(connection, &asked);
        assert!(
            exchange.offsets().start > start,
            "each begins behind the last"
        );
        start = exchange.offsets().start;
        let answer = answer(&mut exchange).await.expect("an answer");
        assert_eq!(answer.body, asked.target.as_bytes());
        assert_eq!(answer.length, Some(AnswerLength::Exact(9)));
        connection = exchange.into_kept().expect("the connection stands");
    }
    assert!(connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn each_message_of_a_server_stream_arrives_before_the_next_is_sent() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    let next = Arc::new(Notify::new());
    let told = Arc::clone(&next);
    app(socket, move |_, mut respond| {
        let next = Arc::clone(&told);
        async move {
            let mut stream = respond.send_response(ok(), false).expect("it is sent");
            for n in 0..4_u8 {
                next.notified().await;
                stream
                    .send_data(Bytes::from(vec![n]), n == 3)
                    .expect("it is sent");
            }
        }
    });
    let mut exchange = begin(connection, &head(Method::POST, BodyLength::None));
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::Head(_))));
    for n in 0..4_u8 {
        next.notify_one();
        match event(&mut exchange).await {
            Ok(AppEvent::Data(data)) => assert_eq!(data[..], [n]),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::End)));
}

#[tokio::test(start_paused = true)]
async fn both_directions_of_a_call_move_on_their_own() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |request, mut respond| async move {
        let mut body = request.into_body();
        let mut stream = respond.send_response(ok(), false).expect("it is sent");
        while let Some(Ok(data)) = body.data().await {
            stream.send_data(data, false).expect("it is sent");
        }
        stream
            .send_trailers(fields(&[("grpc-status", "0")]))
            .expect("it is sent");
    });
    let mut exchange = begin(connection, &head(Method::POST, BodyLength::Streamed));
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::Head(_))));
    for text in ["one", "two", "three"] {
        send(&mut exchange, data(text)).await;
        match event(&mut exchange).await {
            Ok(AppEvent::Data(data)) => assert_eq!(data, text),
            other => panic!("{other:?}"),
        }
    }
    send(&mut exchange, BodyPart::End).await;
    assert!(matches!(
        event(&mut exchange).await,
        Ok(AppEvent::Trailers(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn an_app_that_does_not_read_holds_the_body_back_until_it_does() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    app(socket, move |request, mut respond| {
        let go = Arc::clone(&told);
        async move {
            go.notified().await;
            let length = read(&mut request.into_body()).await.len();
            let mut stream = respond.send_response(ok(), false).expect("it is sent");
            stream
                .send_data(Bytes::from(length.to_string()), true)
                .expect("it is sent");
        }
    });
    let mut exchange = begin(connection, &head(Method::POST, BodyLength::Streamed));
    let piece = Bytes::from(vec![b'x'; 16 * 1024]);
    let mut taken = 0;
    // The app's own window of 64 KiB minus one is all that is taken, however much is offered.
    while let Poll::Ready(ready) = poll_once(&mut exchange).await {
        ready.expect("the app takes the body");
        exchange.send(BodyPart::Data(piece.clone()));
        taken += piece.len();
        assert!(taken <= 128 * 1024, "{taken} bytes were taken");
    }
    assert!(taken >= 48 * 1024, "{taken} bytes were taken");
    go.notify_one();
    for _ in 0..64 {
        send(&mut exchange, BodyPart::Data(piece.clone())).await;
        taken += piece.len();
    }
    send(&mut exchange, BodyPart::End).await;
    let answer = answer(&mut exchange).await.expect("an answer");
    assert_eq!(answer.body, taken.to_string().as_bytes());
}

/// Ready, or pending when the whole world stands still.
async fn poll_once(exchange: &mut Http2Exchange) -> Poll<Result<(), AppFault>> {
    let ready = poll_fn(|cx| exchange.poll_ready(cx));
    match tokio::time::timeout(std::time::Duration::from_secs(5), ready).await {
        Ok(ready) => Poll::Ready(ready),
        Err(_) => Poll::Pending,
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_nobody_reads_stops_at_its_window_and_a_read_one_widens_it() {
    const LENGTH: usize = 3 << 20;
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |_, mut respond| async move {
        let mut stream = respond.send_response(ok(), false).expect("it is sent");
        let mut left = LENGTH;
        while left > 0 {
            stream.reserve_capacity(left.min(16 * 1024));
            let room = poll_fn(|cx| stream.poll_capacity(cx)).await;
            let room = room
                .expect("the stream is open")
                .expect("no reset")
                .min(left);
            left -= room;
            stream
                .send_data(Bytes::from(vec![1; room]), left == 0)
                .expect("it is sent");
        }
    });
    let mut exchange = begin(connection, &head(Method::GET, BodyLength::None));
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::Head(_))));
    // Only the head is taken; time passes, and the app has sent what the window allows.
    let quiet = poll_fn(|cx| exchange.poll_ready(cx));
    quiet.await.expect("nothing is to be sent");
    tokio::task::yield_now().await;
    assert!(
        exchange.offsets().answer < 70 * 1024,
        "{:?}",
        exchange.offsets()
    );
    let mut read = 0;
    loop {
        match event(&mut exchange).await.expect("an answer") {
            AppEvent::Data(data) => read += data.len(),
            AppEvent::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read, LENGTH);
    let connection = exchange.into_kept().expect("the connection stands");
    assert_eq!(connection.window(), 1024 * 1024);
}

#[tokio::test(start_paused = true)]
async fn trailers_only_is_an_answer_without_a_body() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |_, mut respond| async move {
        let mut head = ok();
        *head.headers_mut() = fields(&[("grpc-status", "12"), ("grpc-message", "no such method")]);
        respond.send_response(head, true).expect("it is sent");
    });
    let mut exchange = begin(connection, &head(Method::POST, BodyLength::Streamed));
    let answer = answer(&mut exchange).await.expect("an answer");
    assert_eq!(answer.length, Some(AnswerLength::Exact(0)));
    assert_eq!(answer.headers["grpc-status"], "12");
    assert_eq!(
        exchange.offsets().whole,
        None,
        "the request was not sent to its end"
    );
    // What was left of the request is called off, and the connection lives on.
    assert!(exchange.into_kept().is_some());
}

#[tokio::test(start_paused = true)]
async fn informational_answers_and_head_and_no_content_are_what_they_are() {
    let mut world = World::new();
    let (mut connection, socket) = world.connect().await;
    app(socket, |request, mut respond| async move {
        if request.method() == Method::HEAD {
            let mut head = ok();
            head.headers_mut().insert("content-length", 1234.into());
            respond.send_response(head, true).expect("it is sent");
            return;
        }
        let mut early = ok();
        *early.status_mut() = StatusCode::EARLY_HINTS;
        respond.send_informational(early).expect("it is sent");
        let mut head = ok();
        *head.status_mut() = StatusCode::NO_CONTENT;
        let mut stream = respond.send_response(head, false).expect("it is sent");
        stream.send_data(Bytes::new(), true).expect("it is sent");
    });
    let mut exchange = begin(connection, &head(Method::HEAD, BodyLength::None));
    let got = answer(&mut exchange).await.expect("an answer");
    assert_eq!(
        (got.length, &got.headers["content-length"]),
        (Some(AnswerLength::None), &HeaderValue::from_static("1234"))
    );
    connection = exchange.into_kept().expect("the connection stands");
    let mut exchange = begin(connection, &head(Method::DELETE, BodyLength::None));
    let got = answer(&mut exchange).await.expect("an answer");
    assert_eq!(
        (got.informational.as_slice(), got.status, got.length),
        (&[103][..], 204, Some(AnswerLength::None))
    );
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_stays_whole_when_the_app_resets_the_rest_of_the_request() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |request, mut respond| async move {
        let mut stream = respond.send_response(ok(), false).expect("it is sent");
        stream
            .send_data(Bytes::from_static(b"enough"), true)
            .expect("it is sent");
        // Dropping the unread body resets it with NO_ERROR.
        drop(request);
    });
    let mut exchange = begin(connection, &head(Method::POST, BodyLength::Streamed));
    send(&mut exchange, data("part")).await;
    let answer = answer(&mut exchange).await.expect("an answer");
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (200, &b"enough"[..])
    );
    assert!(exchange.into_kept().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_web_socket_goes_by_extended_connect_where_the_app_has_it() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    let mut builder = h2::server::Builder::new();
    builder.enable_connect_protocol();
    app_with(builder, socket, |request, mut respond| async move {
        let protocol = request.extensions().get::<h2::ext::Protocol>();
        assert_eq!(protocol.map(h2::ext::Protocol::as_str), Some("websocket"));
        assert_eq!(request.method(), Method::CONNECT);
        assert!(request.headers().get("sec-websocket-key").is_none());
        let mut body = request.into_body();
        let mut stream = respond.send_response(ok(), false).expect("it is sent");
        while let Some(Ok(data)) = body.data().await {
            stream.send_data(data, false).expect("it is sent");
        }
        stream.send_data(Bytes::new(), true).expect("it is sent");
    });
    let mut exchange = begin(connection, &websocket());
    let Ok(AppEvent::Head(head)) = event(&mut exchange).await else {
        panic!("no head");
    };
    assert_eq!(
        (head.status.as_u16(), head.length),
        (101, AnswerLength::Pipe)
    );
    assert_eq!(
        head.headers["sec-websocket-accept"],
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    );
    send(&mut exchange, data("frame")).await;
    match event(&mut exchange).await {
        Ok(AppEvent::Data(data)) => assert_eq!(data, "frame"),
        other => panic!("{other:?}"),
    }
    send(&mut exchange, BodyPart::End).await;
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::End)));
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_while_nobody_wants_the_answer() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    let (tell, ponged) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut connection = h2::server::handshake(socket).await.expect("a preface");
        let mut pings = connection.ping_pong().expect("asked for once");
        let (_, mut respond) = connection
            .accept()
            .await
            .expect("a request")
            .expect("sound");
        let mut stream = respond.send_response(ok(), false).expect("it is sent");
        stream
            .send_data(Bytes::from_static(b"first"), false)
            .expect("it is sent");
        let pong = async {
            pings.ping(h2::Ping::opaque()).await.expect("a pong");
            tell.send(()).expect("it is waited for");
        };
        let serve = async { while connection.accept().await.is_some() {} };
        tokio::join!(pong, serve);
    });
    let mut exchange = begin(connection, &head(Method::GET, BodyLength::None));
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::Head(_))));
    let attending = poll_fn(|cx| {
        exchange.attend(cx);
        Poll::<()>::Pending
    });
    let soon = std::time::Duration::from_secs(5);
    let ponged = tokio::time::timeout(soon, ponged);
    tokio::select! {
        () = attending => {}
        ponged = ponged => ponged.expect("in time").expect("the app lives"),
    }
}
