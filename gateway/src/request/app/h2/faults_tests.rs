//! What apps break, and what may be said of it.

use std::future::poll_fn;
use std::sync::Arc;

use bridgehead_protocol::conn::Ended;
use bridgehead_protocol::verdict::{Delivery, Stage};
use bridgehead_protocol::wire::{FinalCause, ResetCode};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::Http2Exchange;
use super::world::{World, answer, app, begin, event, head, ok, websocket};
use crate::request::app::{AppEvent, AppFault, AppSide, Offsets};
use crate::request::evidence::judgement;
use crate::request::front::BodyLength;

/// What is known of an exchange that is given up now.
fn judged(exchange: &Http2Exchange) -> (Delivery, Stage) {
    let emitted = exchange.control().reset(ResetCode::Internal);
    let view = exchange.control().view();
    let judged = judgement(&view, exchange.offsets(), emitted);
    (judged.delivery, judged.stage)
}

#[tokio::test(start_paused = true)]
async fn a_body_behind_204_is_the_apps_fault() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |_, mut respond| async move {
        let mut head = ok();
        *head.status_mut() = StatusCode::NO_CONTENT;
        let mut stream = respond.send_response(head, false).expect("it is sent");
        stream
            .send_data(Bytes::from_static(b"x"), true)
            .expect("it is sent");
    });
    let mut exchange = begin(connection, &head(Method::GET, BodyLength::None));
    let fault = answer(&mut exchange).await.expect_err("a fault");
    assert_eq!(fault, AppFault::BadHttp("a body where none may be"));
}

#[tokio::test(start_paused = true)]
async fn a_length_that_is_not_kept_is_the_apps_fault() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |_, mut respond| async move {
        let mut head = ok();
        head.headers_mut().insert("content-length", 9.into());
        let mut stream = respond.send_response(head, false).expect("it is sent");
        stream
            .send_data(Bytes::from_static(b"short"), true)
            .expect("it is sent");
    });
    let mut exchange = begin(connection, &head(Method::GET, BodyLength::None));
    let fault = answer(&mut exchange).await.expect_err("a fault");
    assert_eq!(fault, AppFault::BadHttp("PROTOCOL_ERROR"));
    assert_eq!(judged(&exchange).0, Delivery::Delivered);
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_proves_nothing() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |_, mut respond| async move {
        respond.send_reset(h2::Reason::REFUSED_STREAM);
    });
    let mut exchange = begin(connection, &head(Method::POST, BodyLength::None));
    let fault = answer(&mut exchange).await.expect_err("a fault");
    assert_eq!(fault, AppFault::GaveUp("REFUSED_STREAM"));
    assert_eq!(judged(&exchange).0, Delivery::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_app_that_dies_in_mid_answer_leaves_no_clean_end() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    let die = Arc::new(Notify::new());
    let told = Arc::clone(&die);
    let serving = app(socket, move |_, mut respond| {
        let die = Arc::clone(&told);
        async move {
            let mut stream = respond.send_response(ok(), false).expect("it is sent");
            stream
                .send_data(Bytes::from_static(b"half"), false)
                .expect("it is sent");
            die.notified().await;
        }
    });
    let mut exchange = begin(connection, &head(Method::GET, BodyLength::None));
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::Head(_))));
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::Data(_))));
    serving.abort();
    match event(&mut exchange).await {
        Err(AppFault::Ended(Ended::Final { cause, .. })) => {
            assert_eq!(cause, FinalCause::AppClosed)
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(judged(&exchange), (Delivery::Delivered, Stage::AnswerBegun));
}

#[tokio::test(start_paused = true)]
async fn settings_are_no_answer_when_the_app_dies_before_one() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    let seen = Arc::new(Notify::new());
    let tell = Arc::clone(&seen);
    let serving = app(socket, move |request, respond| {
        tell.notify_one();
        async move {
            let _held = (request, respond);
            std::future::pending::<()>().await;
        }
    });
    let mut exchange = begin(connection, &head(Method::POST, BodyLength::None));
    seen.notified().await;
    serving.abort();
    match event(&mut exchange).await {
        Err(AppFault::Ended(Ended::Final { .. })) => {}
        other => panic!("{other:?}"),
    }
    assert!(
        exchange.control().view().received > 0,
        "the app's SETTINGS came"
    );
    assert_eq!(judged(&exchange), (Delivery::Unknown, Stage::All));
}

#[tokio::test(start_paused = true)]
async fn an_app_that_closes_after_its_whole_answer_is_not_kept() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    tokio::spawn(async move {
        let mut connection = h2::server::handshake(socket).await.expect("a preface");
        let (_, mut respond) = connection
            .accept()
            .await
            .expect("a request")
            .expect("sound");
        let mut stream = respond.send_response(ok(), false).expect("it is sent");
        stream
            .send_data(Bytes::from_static(b"last"), true)
            .expect("it is sent");
        connection.graceful_shutdown();
        while connection.accept().await.is_some() {}
    });
    let mut exchange = begin(connection, &head(Method::GET, BodyLength::None));
    let answer = answer(&mut exchange).await.expect("an answer");
    assert_eq!(answer.body, b"last");
    assert!(exchange.into_kept().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_said_farewell_while_it_was_kept_is_not_used() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    let leave = Arc::new(Notify::new());
    let told = Arc::clone(&leave);
    tokio::spawn(async move {
        let mut connection = h2::server::handshake::<_>(socket).await.expect("a preface");
        let (_, mut respond) = connection
            .accept()
            .await
            .expect("a request")
            .expect("sound");
        respond
            .send_response(ok(), true)
            .map(drop)
            .expect("it is sent");
        tokio::select! {
            () = told.notified() => {}
            _ = connection.accept() => panic!("no second request comes"),
        }
        connection.graceful_shutdown();
        poll_fn(|cx| connection.poll_closed(cx))
            .await
            .expect("an end");
    });
    let mut exchange = begin(connection, &head(Method::GET, BodyLength::None));
    answer(&mut exchange).await.expect("an answer");
    let control = exchange.control().clone();
    let mut connection = exchange.into_kept().expect("the connection stands");
    let before = control.view().received;
    leave.notify_one();
    let more = async {
        while control.view().received == before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(5), more)
        .await
        .expect("a GOAWAY");
    assert!(!connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn an_app_of_http1_is_told_apart() {
    let mut world = World::new();
    let (connection, mut socket) = world.connect().await;
    socket
        .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .await
        .expect("it is sent");
    let mut exchange = begin(connection, &head(Method::GET, BodyLength::None));
    let fault = answer(&mut exchange).await.expect_err("a fault");
    assert_eq!(fault, AppFault::BadHttp("it does not speak HTTP/2"));
    assert_eq!(
        judged(&exchange).0,
        Delivery::Unknown,
        "it answered something, not this"
    );
}

#[tokio::test(start_paused = true)]
async fn the_preface_is_not_the_request() {
    let mut world = World::new();
    let (connection, mut socket) = world.connect().await;
    let mut preface = [0; 24];
    socket
        .read_exact(&mut preface)
        .await
        .expect("the preface came");
    let mut bad = head(Method::GET, BodyLength::None);
    bad.target = "/a<b".to_owned();
    let mut exchange = begin(connection, &bad);
    let fault = answer(&mut exchange).await.expect_err("a fault");
    assert_eq!(
        fault,
        AppFault::Unspeakable("the path has no form in HTTP/2")
    );
    assert_eq!(exchange.offsets(), Offsets::UNBEGUN);
    assert_eq!(judged(&exchange), (Delivery::NotDelivered, Stage::None));
}

#[tokio::test(start_paused = true)]
async fn giving_an_exchange_up_closes_the_apps_connection() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    let seen = Arc::new(Notify::new());
    let tell = Arc::clone(&seen);
    let serving = app(socket, move |request, respond| {
        tell.notify_one();
        async move {
            let _respond = respond;
            let end = request.into_body().data().await;
            assert!(end.is_none_or(|e| e.is_err()), "no data comes");
        }
    });
    let exchange = begin(connection, &head(Method::POST, BodyLength::Streamed));
    seen.notified().await;
    exchange.control().reset(ResetCode::Cancelled);
    drop(exchange);
    let ended = tokio::time::timeout(std::time::Duration::from_secs(1), serving);
    ended.await.expect("the connection ends").expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_web_socket_for_an_app_without_extended_connect_is_provably_not_delivered() {
    let mut world = World::new();
    let (connection, socket) = world.connect().await;
    app(socket, |_, _| async { panic!("nothing may come") });
    let mut exchange = begin(connection, &websocket());
    let fault = event(&mut exchange).await.expect_err("a fault");
    assert!(matches!(fault, AppFault::NoUpgrade(_)), "{fault:?}");
    assert_eq!(judged(&exchange), (Delivery::NotDelivered, Stage::None));
}

#[tokio::test(start_paused = true)]
async fn other_upgrades_have_no_form_in_http2() {
    let mut world = World::new();
    let (connection, _socket) = world.connect().await;
    let mut asked = head(Method::GET, BodyLength::None);
    asked.upgrade = Some(HeaderValue::from_static("tls/1.3"));
    let mut exchange = begin(connection, &asked);
    let fault = event(&mut exchange).await.expect_err("a fault");
    assert!(matches!(fault, AppFault::NoUpgrade(_)), "{fault:?}");
}
