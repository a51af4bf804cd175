//! What the agent may say of the app, one sentence a test: a tunnel in memory, a scripted app, paused time.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::conn::{Counted, Ended};
use bridgehead_protocol::wire::{AppHealth, AppKind, FinalCause, RefusedReason, ResetCode};
use bytes::Bytes;
use tokio::time::Instant;

use super::testing::{World, a_moment, open};
use crate::app::table::{AppSpec, AppTable};
use crate::app::target::Target;

fn final_of(ended: Ended) -> (u64, u64, FinalCause) {
    match ended {
        Ended::Final {
            written,
            read,
            cause,
        } => (written, read, cause),
        other => panic!("not a final: {other:?}"),
    }
}

// ---- before the first byte -----------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn leftovers_on_a_kept_connection_make_it_stale_before_a_byte_is_written() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.exchange().await;
    stream.app.says("HTTP/1.1 408 Request Timeout\r\n\r\n");
    let start = stream.begin(8, b"GET /2");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (start, FinalCause::Stale));
    assert_eq!(stream.app.saw(), b"GET /1");
}

#[tokio::test(start_paused = true)]
async fn leftovers_already_passed_on_make_a_kept_connection_stale() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.exchange().await;
    stream.app.says("more than the answer");
    a_moment().await;
    let start = stream.begin(8, b"GET /2");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (start, FinalCause::Stale));
    assert_eq!(stream.app.saw(), b"GET /1");
}

#[tokio::test(start_paused = true)]
async fn leftovers_between_a_begin_and_its_first_byte_make_a_connection_stale() {
    let world = World::new();
    for kept in [true, false] {
        let mut stream = world.stream(AppKind::Http1).await;
        if kept {
            stream.exchange().await;
        }
        let start = stream.begin(if kept { 8 } else { 0 }, b"");
        a_moment().await;
        // The kernel has it before the runtime knows.
        stream.app.goes_unnoticed(u32::MAX);
        stream.app.says("HTTP/1.1 408 Request Timeout\r\n\r\n");
        stream.write(b"GET /2");
        let (written, _, cause) = final_of(stream.ended().await);
        assert_eq!((written, cause), (start, FinalCause::Stale), "kept: {kept}");
        assert_eq!(stream.app.took(), start);
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_waits_on_a_kept_connection_makes_it_stale() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.exchange().await;
    // Both become visible in the same turn; the copier obeys the gateway first.
    let start = stream.begin(8, b"GET /2");
    stream.app.ends();
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!(written, start);
    assert!(
        matches!(cause, FinalCause::Stale | FinalCause::AppClosed),
        "{cause:?}"
    );
    assert_eq!(stream.app.saw(), b"GET /1");
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_waits_on_a_kept_connection_makes_it_stale() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.exchange().await;
    stream.app.goes_unnoticed(u32::MAX);
    stream.app.resets();
    let start = stream.begin(8, b"GET /2");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (start, FinalCause::Stale));
}

#[tokio::test(start_paused = true)]
async fn what_the_kernel_holds_for_a_session_is_read_before_a_connection_counts_as_fresh() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.app.is_behind_a_session();
    stream.exchange().await;
    stream.app.goes_unnoticed(7);
    stream.app.says("HTTP/1.1 408 Request Timeout\r\n\r\n");
    let start = stream.begin(8, b"GET /2");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (start, FinalCause::Stale));
    assert_eq!(stream.app.saw(), b"GET /1");
}

#[tokio::test(start_paused = true)]
async fn what_the_app_says_before_it_took_a_byte_is_no_answer() {
    let world = World::new();
    let mut stream = world.stuck_stream(AppKind::Http1).await;
    stream.app.takes(6);
    stream.exchange().await;
    let start = stream.begin(8, b"GET /2");
    a_moment().await;
    stream.app.says("HTTP/1.1 408 Request Timeout\r\n\r\n");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (start, FinalCause::Stale));
    assert_eq!(stream.read().await, None, "and none of it is passed on");
}

#[tokio::test(start_paused = true)]
async fn an_app_that_refuses_the_first_byte_of_a_kept_connection_was_stale() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.exchange().await;
    stream.app.refuses_bytes(ErrorKind::BrokenPipe);
    let start = stream.begin(8, b"GET /2");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (start, FinalCause::Stale));
}

#[tokio::test(start_paused = true)]
async fn an_exchange_whose_time_is_over_is_not_written() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    let start = stream.begin_within(Duration::ZERO, 0, b"GET /late");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (start, FinalCause::Expired));
    assert_eq!(stream.app.took(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_exchange_whose_first_byte_comes_after_its_time_is_not_written() {
    let world = World::new();
    let mut stream = world.stuck_stream(AppKind::Http1).await;
    let start = stream.begin_within(Duration::from_secs(1), 0, b"GET /late");
    tokio::time::sleep(Duration::from_secs(2)).await;
    stream.app.takes(100);
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (start, FinalCause::Expired));
    assert_eq!(stream.app.took(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_kept_connection_without_news_serves_the_next_exchange() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.exchange().await;
    stream.begin(8, b"GET /2");
    a_moment().await;
    stream.app.says("answer 2");
    assert_eq!(stream.read().await.as_deref(), Some(&b"answer 2"[..]));
    assert_eq!(stream.app.saw(), b"GET /1GET /2");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_keeps_its_reason_when_the_stream_is_dropped_after_it() {
    let world = World::new();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = format!("{}", dead.local_addr().expect("an address"));
    drop(dead);
    let spec = AppSpec::new("demo", Target::parse(&target).expect("a target"));
    let apps = Arc::new(AppTable::build(&[spec], AppHealth::Unknown).expect("apps"));
    let stream = world.gateway.open(open(AppKind::Http1)).expect("a stream");
    let at_agent = world.agent.accept().await.expect("a stream");
    super::stream(at_agent, apps).await;
    let ended = std::future::poll_fn(|cx| stream.control().poll_ended(cx)).await;
    let Ended::Refused { reason, errno } = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(reason, RefusedReason::ConnectRefused);
    assert_ne!(errno, 0);
}

// ---- counting ------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_fence_is_answered_with_what_the_socket_accepted_and_nothing_is_written_after_it() {
    let request = b"POST / HTTP/1.1\r\n\r\nbody";
    for accepted in 0..=request.len() {
        let world = World::new();
        let mut stream = world.stuck_stream(AppKind::Http1).await;
        stream.app.takes(accepted);
        stream.begin(0, request);
        a_moment().await;
        let counted = stream.fence(true).await;
        assert_eq!(counted.written, accepted as u64);
        stream.app.takes(1000);
        a_moment().await;
        assert_eq!(stream.app.took(), accepted as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fence_that_races_with_writes_is_answered_with_the_truth() {
    let world = World::new();
    for round in 0..200_usize {
        let mut stream = world.stuck_stream(AppKind::Http1).await;
        stream.begin(0, &[b'x'; 2000]);
        let app = stream.app.clone();
        let feeding = tokio::task::spawn_blocking(move || {
            for _ in 0..50 + round {
                app.takes(1);
            }
        });
        let Counted { written, .. } = stream.fence(true).await;
        let told = stream.app.took();
        feeding.await.expect("the app lives");
        stream.app.takes(10_000);
        let (last, _, _) = final_of(stream.ended().await);
        assert_eq!((written, told, last), (written, written, written));
        assert_eq!(stream.app.took(), written);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_of_a_session_counts_as_accepted() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.app.is_behind_a_session();
    stream.app.refuses_bytes(ErrorKind::ConnectionReset);
    stream.app.goes_unnoticed(u32::MAX);
    let start = stream.begin(0, b"POST /");
    a_moment().await;
    let Counted { written, .. } = stream.fence(false).await;
    assert_eq!((start, written), (0, 6), "the app may have read all of it");
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_of_a_plain_socket_counts_nothing() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.app.refuses_bytes(ErrorKind::ConnectionReset);
    stream.begin(0, b"POST /");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (0, FinalCause::AppReset));
}

// ---- the app's end -------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn the_apps_end_is_told_after_everything_it_said() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.begin(0, b"GET /");
    a_moment().await;
    let answer = Bytes::from(vec![b'a'; 700_000]);
    stream.app.says(answer.clone());
    stream.app.ends();
    let mut read = Vec::new();
    while let Some(bytes) = stream.read().await {
        read.extend_from_slice(&bytes);
    }
    assert!(read == answer);
    let end = final_of(stream.ended().await);
    assert_eq!(end, (5, 700_000, FinalCause::AppClosed));
    assert_eq!(stream.app.closed_abruptly(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn after_the_apps_end_nothing_more_is_written_to_an_http_app() {
    let world = World::new();
    let mut stream = world.stuck_stream(AppKind::Http1).await;
    stream.app.takes(4);
    stream.begin(0, b"POST /, but the app ends");
    a_moment().await;
    stream.app.ends();
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (4, FinalCause::AppClosed));
    stream.app.takes(1000);
    a_moment().await;
    assert_eq!(stream.app.took(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_reset_by_the_app_is_told_as_one() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.begin(0, b"GET /");
    a_moment().await;
    stream.app.says("half an ans");
    stream.app.resets();
    assert_eq!(stream.read().await.as_deref(), Some(&b"half an ans"[..]));
    let end = final_of(stream.ended().await);
    assert_eq!(end, (5, 11, FinalCause::AppReset));
}

#[tokio::test(start_paused = true)]
async fn a_reset_seen_by_the_writer_is_not_taken_for_an_end_by_the_reader() {
    let world = World::new();
    let mut stream = world.stuck_stream(AppKind::Http1).await;
    stream.app.takes(4);
    stream.begin(0, b"POST /");
    a_moment().await;
    stream.app.says("half an answer");
    stream.app.refuses_bytes(ErrorKind::ConnectionReset);
    stream.app.ends();
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (4, FinalCause::AppReset));
}

#[tokio::test(start_paused = true)]
async fn an_app_that_takes_nothing_more_may_still_answer() {
    let world = World::new();
    let mut stream = world.stuck_stream(AppKind::Http1).await;
    stream.app.takes(4);
    stream.begin(0, b"POST / and a body it does not want");
    a_moment().await;
    stream.app.refuses_bytes(ErrorKind::BrokenPipe);
    a_moment().await;
    stream.app.says("HTTP/1.1 413 Content Too Large\r\n\r\n");
    stream.app.ends();
    assert!(
        stream
            .read()
            .await
            .is_some_and(|b| b.starts_with(b"HTTP/1.1 413"))
    );
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (4, FinalCause::AppClosed));
}

// ---- half-close ----------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_tcp_client_that_ends_first_still_gets_the_answer_and_an_orderly_end() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Tcp).await;
    stream.write(b"ask");
    stream.gateway.finish();
    a_moment().await;
    assert_eq!(stream.app.saw(), b"ask");
    assert!(stream.app.was_told_the_end());
    stream.app.says("answer");
    stream.app.ends();
    assert_eq!(stream.read().await.as_deref(), Some(&b"answer"[..]));
    let end = std::future::poll_fn(|cx| stream.gateway.poll_read(cx, 100)).await;
    assert_eq!(end, Ok(None), "an end, not a break");
    let end = final_of(stream.ended().await);
    assert_eq!(end, (3, 6, FinalCause::AppClosed));
}

#[tokio::test(start_paused = true)]
async fn a_tcp_app_that_ends_first_still_takes_what_the_client_sends() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Tcp).await;
    stream.app.says("hello");
    stream.app.ends();
    assert_eq!(stream.read().await.as_deref(), Some(&b"hello"[..]));
    assert_eq!(stream.read().await, None);
    stream.write(b"bye");
    a_moment().await;
    assert_eq!(stream.app.saw(), b"bye");
    stream.gateway.finish();
    let end = final_of(stream.ended().await);
    assert_eq!(end, (3, 5, FinalCause::AppClosed));
    assert!(stream.app.was_told_the_end());
    assert_eq!(stream.app.closed_abruptly(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_tcp_app_that_ends_and_then_resets_ends_the_stream() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Tcp).await;
    stream.app.ends();
    assert_eq!(stream.read().await, None);
    stream.app.refuses_bytes(ErrorKind::ConnectionReset);
    stream.write(b"nobody listens");
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (0, FinalCause::AppReset));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_takes_several_turns_is_finished() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Tcp).await;
    stream.app.shuts_down_slowly(100);
    stream.write(b"ask");
    stream.gateway.finish();
    a_moment().await;
    assert!(stream.app.was_told_the_end());
}

// ---- giving up -----------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_cancelled_exchange_closes_the_apps_socket_abruptly() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.begin(0, b"GET /");
    a_moment().await;
    stream.gateway.control().reset(ResetCode::Cancelled);
    let (written, _, cause) = final_of(stream.ended().await);
    assert_eq!((written, cause), (5, FinalCause::Reset));
    assert_eq!(stream.app.closed_abruptly(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_connection_given_back_without_an_exchange_is_closed_in_order() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.exchange().await;
    stream.gateway.control().reset(ResetCode::Idle);
    let (_, _, cause) = final_of(stream.ended().await);
    assert_eq!(cause, FinalCause::Reset);
    assert_eq!(stream.app.closed_abruptly(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_fenced_exchange_written_in_part_is_closed_abruptly() {
    let world = World::new();
    let mut stream = world.stuck_stream(AppKind::Http1).await;
    stream.app.takes(3);
    stream.begin(0, b"POST /");
    a_moment().await;
    assert_eq!(stream.fence(true).await.written, 3);
    let end = final_of(stream.ended().await);
    assert_eq!(end, (3, 0, FinalCause::Fenced));
    assert_eq!(stream.app.closed_abruptly(), Some(true));
}

async fn lingering(world: &World) -> super::testing::Stream {
    let mut stream = world.stream(AppKind::Http1).await;
    stream.begin(0, b"POST /slow");
    a_moment().await;
    assert_eq!(stream.fence(true).await.written, 10);
    a_moment().await;
    assert_eq!(stream.app.closed_abruptly(), None, "the app is not stopped");
    stream
}

#[tokio::test(start_paused = true)]
async fn a_fenced_whole_request_lingers_for_its_late_answer_and_then_ends() {
    let world = World::new();
    let fenced_at = Instant::now();
    let mut stream = lingering(&world).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    stream.app.says("late answer");
    assert_eq!(stream.read().await.as_deref(), Some(&b"late answer"[..]));
    let end = final_of(stream.ended().await);
    assert_eq!(end, (10, 11, FinalCause::LingerOver));
    let lasted = fenced_at.elapsed().as_secs();
    assert_eq!(lasted, 60, "the time of its settings");
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_the_lingering() {
    let world = World::new();
    let stream = lingering(&world).await;
    stream.gateway.control().reset(ResetCode::Cancelled);
    let end = final_of(stream.ended().await);
    assert_eq!(end, (10, 0, FinalCause::Reset));
    assert_eq!(stream.app.closed_abruptly(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_the_tunnel_ends_the_lingering() {
    let world = World::new();
    let stream = lingering(&world).await;
    world.lose();
    stream.serving.await.expect("the task ends");
    assert_eq!(stream.app.closed_abruptly(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn what_a_session_buffers_is_flushed_while_lingering() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Http1).await;
    stream.app.buffers_until_flushed();
    stream.begin(0, b"POST /slow");
    a_moment().await;
    assert_eq!(stream.fence(true).await.written, 10);
    a_moment().await;
    assert_eq!(stream.app.saw(), b"");
    stream.app.lets_flush();
    a_moment().await;
    assert_eq!(stream.app.saw(), b"POST /slow");
}

#[tokio::test(start_paused = true)]
async fn a_lost_tunnel_drops_what_the_app_did_not_take_and_closes_abruptly() {
    let world = World::new();
    let mut stream = world.stuck_stream(AppKind::Http1).await;
    stream.app.takes(2);
    stream.begin(0, b"POST /");
    a_moment().await;
    world.lose();
    world.agent.closed().await;
    stream.app.takes(1000);
    stream.serving.await.expect("the task ends");
    assert_eq!(stream.app.saw(), b"PO");
    assert_eq!(stream.app.closed_abruptly(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_stops_cuts_the_app_abruptly_and_says_so() {
    let world = World::new();
    let mut stream = world.stream(AppKind::Tcp).await;
    stream.write(b"in the middle of");
    a_moment().await;
    stream.serving.abort();
    let end = final_of(stream.ended().await);
    assert_eq!(end, (16, 0, FinalCause::Stopping));
    assert_eq!(stream.app.closed_abruptly(), Some(true));
}
