//! Streams: giving up, being watched, ending without a cut.

use super::*;

#[tokio::test(start_paused = true)]
async fn whoever_watches_a_stream_is_woken_when_its_owner_drops_it() {
    let world = world();
    let (stream, app) = world.opened().await;
    let control = stream.control().clone();
    let watching = tokio::spawn(async move { poll_fn(|cx| control.poll_counted(cx)).await });
    a_moment().await;
    drop(stream);
    a_moment().await;
    app.conclude(FinalCause::Reset);
    assert!(watching.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_writer_is_woken_when_another_hand_gives_the_stream_up() {
    let world = world();
    let (mut stream, _app) = world.opened().await;
    let control = stream.control().clone();
    fill(&mut stream).await;
    let writing = tokio::spawn(async move { poll_fn(|cx| stream.poll_writable(cx)).await });
    a_moment().await;
    control.fence(false);
    assert!(writing.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_until_the_app_took_everything() {
    let world = world();
    let (mut stream, app) = world.opened().await;
    let (mut socket, mut reader) = duplex(1000);
    let serving = tokio::spawn(async move {
        loop {
            let outgoing =
                poll_fn(|cx| app.poll_outgoing(cx, &mut socket, FailedWrite::TookNothing)).await;
            match outgoing.unwrap() {
                Outgoing::Wrote(_) => {}
                Outgoing::Fin => break,
                other => panic!("cut off: {other:?}"),
            }
        }
        drop(socket);
        app.conclude(FinalCause::AppClosed);
    });
    // The app ended its direction before.
    let sent = vec![9; 300_000];
    let sending = tokio::spawn({
        let sent = sent.clone();
        async move {
            stream.write_all(&sent).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).await.unwrap();
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    serving.await.unwrap();
    sending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn both_ends_of_a_tcp_stream_end_in_order_before_its_drop() {
    let world = world();
    let (mut stream, app) = world.opened().await;
    app.finish();
    let mut nothing = Vec::new();
    stream.read_to_end(&mut nothing).await.unwrap();
    stream.write_all(b"the tail").await.unwrap();
    let ending = tokio::spawn(async move {
        stream.shutdown().await.unwrap();
        drop(stream);
    });
    a_moment().await;
    assert!(!ending.is_finished(), "the app has not taken it");
    let mut took = Vec::new();
    loop {
        let outgoing =
            poll_fn(|cx| app.poll_outgoing(cx, &mut took, FailedWrite::TookNothing)).await;
        match outgoing.unwrap() {
            Outgoing::Wrote(_) => a_moment().await,
            Outgoing::Fin => break,
            other => panic!("cut off: {other:?}"),
        }
    }
    app.conclude(FinalCause::AppClosed);
    ending.await.unwrap();
    assert_eq!(took, b"the tail");
}

#[tokio::test(start_paused = true)]
async fn giving_up_answers_what_was_emitted_even_while_the_carrier_is_stuck() {
    let mut world = scripted(1024);
    let mut stream = world.opens(1).await;
    stream.control().begin(begin());
    fill(&mut stream).await;
    a_moment().await;
    let emitted = stream.control().reset(ResetCode::Cancelled);
    // The rest of what was emitted still goes out; not a byte more does.
    let mut arrived = 0;
    let mut seen = BytesMut::new();
    loop {
        world.peer.read_buf(&mut seen).await.unwrap();
        while let Some(frame) = decode(&mut seen, &Limits::default()).unwrap() {
            match frame {
                Frame::Data { bytes, .. } => arrived += bytes.len() as u64,
                Frame::Reset { .. } => {
                    assert_eq!(arrived, emitted);
                    return;
                }
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_nobody_answers_ends_with_the_tunnel() {
    let mut world = scripted(64 * 1024);
    let mut stream = world.opens(1).await;
    stream.control().begin(begin());
    stream.write(&mut Bytes::from_static(b"POST"));
    a_moment().await;
    assert_eq!(stream.control().fence(true), 4);
    let control = stream.control().clone();
    let waiting = tokio::spawn(async move { poll_fn(|cx| control.poll_counted(cx)).await });
    a_moment().await;
    assert!(!waiting.is_finished());
    drop(world.peer);
    assert_eq!(waiting.await.unwrap(), Err(StreamEnded(Ended::Lost)));
}

#[tokio::test(start_paused = true)]
async fn what_the_app_took_is_told_soon_although_nothing_else_moves() {
    let world = world();
    let (mut stream, app) = world.opened().await;
    a_moment().await;
    stream.write(&mut Bytes::from_static(b"GET"));
    tokio::task::yield_now().await;
    let mut took = Vec::new();
    let outgoing = poll_fn(|cx| app.poll_outgoing(cx, &mut took, FailedWrite::TookNothing)).await;
    assert_eq!(outgoing.unwrap(), Outgoing::Wrote(3));
    let taken_at = Instant::now();
    assert_eq!(poll_fn(|cx| stream.control().poll_took(cx, 0)).await, 3);
    let told_after = taken_at.elapsed();
    assert!(told_after <= Duration::from_millis(21), "{told_after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_alone_gives_credit_back_at_once() {
    let mut world = scripted(1 << 20);
    let mut stream = world.opens(1).await;
    world.heard().await;
    for _ in 0..4 {
        world
            .says(Frame::Data {
                stream: StreamId(1),
                bytes: Bytes::from(vec![7; 40_000]),
                fin: false,
            })
            .await;
    }
    a_moment().await;
    let began = Instant::now();
    for _ in 0..4 {
        poll_fn(|cx| stream.poll_read(cx, usize::MAX))
            .await
            .unwrap();
    }
    let mut seen = BytesMut::new();
    while decode(&mut seen, &Limits::default()).unwrap().is_none() {
        world.peer.read_buf(&mut seen).await.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_is_closed_after_counts_tells_what_was_written() {
    for concludes in [true, false] {
        let world = world();
        let (mut stream, app) = world.opened().await;
        stream.control().begin(begin());
        stream.write(&mut Bytes::from_static(b"question"));
        let mut socket = Vec::new();
        loop {
            let next = poll_fn(|cx| app.poll_outgoing(cx, &mut socket, FailedWrite::TookNothing));
            match next.await.unwrap() {
                Outgoing::Begin { .. } => app.begun(),
                _ => break,
            }
        }
        let before = Instant::now();
        let within = Duration::from_millis(500);
        world.gateway.drain(GoAwayReason::Revoked, Duration::ZERO);
        world.gateway.close_after_counts(within);
        let fenced = poll_fn(|cx| app.poll_given_up(cx)).await;
        assert_eq!(fenced, Outgoing::Fenced { linger: false });
        if concludes {
            app.conclude(FinalCause::Fenced);
        }
        let reason = world.gateway_driver.await.unwrap();
        let view = stream.control().view();
        if concludes {
            assert_eq!(reason, CloseReason::Drained);
            assert!(before.elapsed() < within, "{:?}", before.elapsed());
            assert!(matches!(view.ended, Some(Ended::Final { written: 8, .. })));
        } else {
            // An agent that counts and does not end is not waited for any longer.
            assert_eq!(reason, CloseReason::Closed);
            assert_eq!(before.elapsed(), within);
            assert_eq!(view.counted.map(|counted| counted.written), Some(8));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_is_closed_after_ends_tells_what_was_written_and_what_never_was() {
    for concludes in [true, false] {
        let world = world();
        let (mut stream, app) = world.opened().await;
        stream.write(&mut Bytes::from_static(b"question"));
        let mut socket = Vec::new();
        let next = poll_fn(|cx| app.poll_outgoing(cx, &mut socket, FailedWrite::TookNothing));
        assert_eq!(next.await.unwrap(), Outgoing::Wrote(8));
        let waiting = world.gateway.open(open()).unwrap();
        let connecting = world.agent.accept().await.unwrap();
        let before = Instant::now();
        let within = Duration::from_millis(500);
        world.agent.drain(GoAwayReason::Draining, Duration::ZERO);
        if !concludes {
            // A gateway that is not there acknowledges nothing and is not waited for.
            world.gateway_driver.abort();
            world.agent.close_after_ends(within);
            assert!(world.agent_driver.await.is_ok());
            assert!(before.elapsed() <= within, "{:?}", before.elapsed());
            continue;
        }
        world.agent.close_after_ends(within);
        let closed = poll_fn(|cx| app.poll_given_up(cx)).await;
        assert_eq!(closed, Outgoing::Closed { idle: false });
        let (written, read, cause) = (8, 0, FinalCause::Stopping);
        let told = Ended::Final {
            written,
            read,
            cause,
        };
        assert_eq!(ended(&stream).await, told);
        let refused = ended(&waiting).await;
        assert!(matches!(
            refused,
            Ended::Refused {
                reason: RefusedReason::Draining,
                ..
            }
        ));
        assert_eq!(world.agent_driver.await.unwrap(), CloseReason::Drained);
        assert!(before.elapsed() < within, "{:?}", before.elapsed());
        drop((app, connecting));
    }
}

/// A machine that sleeps with a request in its buffers.
#[tokio::test(start_paused = true)]
async fn what_stood_in_the_buffers_while_the_machine_slept_is_begun_after_its_time_is_over() {
    static SLEPT: AtomicU64 = AtomicU64::new(0);
    let agents = Clock::counting(|| Duration::from_secs(SLEPT.load(Ordering::Relaxed)));
    let world = world_by(agents);
    let (mut stream, app) = world.opened().await;
    stream.control().begin(begin());
    stream.write(&mut Bytes::from_static(b"question"));
    a_moment().await;
    SLEPT.store(3600, Ordering::Relaxed);
    let mut socket = Vec::new();
    let mut next =
        |cx: &mut Context<'_>| app.poll_outgoing(cx, &mut socket, FailedWrite::TookNothing);
    let at_once = poll_fn(|cx| Poll::Ready(next(cx))).await;
    assert!(
        at_once.is_pending(),
        "before the gateway was heard: {at_once:?}"
    );
    let Outgoing::Begin { deadline, .. } = poll_fn(next).await.unwrap() else {
        panic!("no exchange begins");
    };
    assert!(app.now() >= deadline, "its time was over long ago");
}
