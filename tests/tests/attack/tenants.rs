//! A tenant that takes what it may and more: tunnels, names, connections. What it cannot have is told to it,
//! and its neighbours do not notice.

use std::time::Duration;

use bridgehead_protocol::wire::{Frame, RefuseCode};
use bridgehead_tests::peer::{self, Peer};
use bridgehead_tests::wait;

use crate::agents::{NAMES, ever_new_names, two};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ever_new_names_make_few_routes_and_the_neighbour_is_served_beside_them() {
    const MOST: usize = 200;
    const LISTS: u64 = 1000;
    let two = two(&format!("apps_per_agent = {MOST}")).await;
    let mut liar = two.liar().await;
    for revision in 1..=LISTS {
        assert!(liar.say(&ever_new_names(revision)).await, "cut off");
        if revision % 25 == 0 {
            two.neighbour_is_served(&format!("{revision} APPS")).await;
        }
    }
    let brought = || async {
        let apps = two.world.admin("/v1/apps").await.to_string();
        (
            apps.matches("\"name\":\"evil-").count(),
            apps.contains(&format!("evil-{LISTS}-0")),
        )
    };
    let last = || async { brought().await.1.then_some(()) };
    wait::until(wait::SOON, "the last list being in effect", last).await;
    let (count, _) = brought().await;
    assert!((NAMES..=MOST).contains(&count), "{count} routes");
    let news = [("limit", "news")];
    assert!(two.world.metrics().await.sum("agent_limits_total", &news) > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_used_too_much_is_told_so_and_keeps_nobody_else_out() {
    let two = two("tunnels_per_agent = 4\napps_per_agent = 100").await;
    let token = two.world.token("evil").secret.clone();
    let knock = |agent: String, apps: Vec<String>| {
        let names: Vec<&str> = apps.iter().map(String::as_str).collect();
        let hello = Frame::Hello(peer::hello(&token, &agent, &names));
        async move {
            let mut peer = Peer::dial(two.world.places.tunnel).await;
            peer.say(&hello).await;
            let told = wait::within(wait::SOON, "an answer to HELLO", peer.hear()).await;
            (peer, told)
        }
    };
    let busy = |told: Option<Frame>, key: &str| match told {
        Some(Frame::Refuse(refuse)) => {
            assert_eq!(refuse.code, RefuseCode::Busy, "{}", refuse.text);
            assert!(refuse.text.contains(key), "{}", refuse.text);
            assert!(refuse.retry_after >= Duration::from_secs(5) && !refuse.permanent);
        }
        other => panic!("not refused: {other:?}"),
    };
    let many = (0..101).map(|n| format!("evil-{n}")).collect();
    busy(knock("greedy".into(), many).await.1, "apps_per_agent");
    let mut held = Vec::new();
    for n in 0..4 {
        let (peer, told) = knock(format!("liar-{n}"), vec!["evil".into()]).await;
        assert!(matches!(told, Some(Frame::Welcome(_))), "{told:?}");
        held.push(peer);
    }
    busy(
        knock("liar-5".into(), vec!["evil".into()]).await.1,
        "tunnels_per_agent",
    );
    two.neighbour_is_served("as many tunnels as a token may have")
        .await;
    let target = two.honest.target();
    let _more = two.world.join("a1", &[("demo", &target)]).await;
    let limits = two.world.metrics().await;
    for limit in ["apps", "tunnels"] {
        assert_eq!(
            limits.sum("agent_limits_total", &[("limit", limit)]) as u64,
            1,
            "{limit}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_from_one_address_keeps_only_that_address_out() {
    let two = two("handshakes_per_ip = 3").await;
    let (noisy, tunnel) = ([127, 0, 0, 9].into(), two.world.places.tunnel);
    let is_refused = async || {
        let Ok(mut one_more) = Peer::dial_from(noisy, tunnel).await else {
            return true;
        };
        one_more.say(&Frame::Hello(two.hello())).await;
        let told = wait::within(wait::SOON, "an answer", one_more.hear()).await;
        told.is_none()
    };
    // Each worker accepts in the order of their coming, but there are several: one that speaks may have
    // the place of one that came before it and is then turned away.
    let mut silent = Vec::new();
    while !is_refused().await {
        assert!(silent.len() < 30, "the address is never refused");
        silent.extend(Peer::dial_from(noisy, tunnel).await.ok());
    }
    let reason = [("listener", "tunnel"), ("reason", "per_ip")];
    let count = two
        .world
        .metrics()
        .await
        .sum("connections_refused_total", &reason);
    assert!(count >= 1.0, "{count}");
    // Whoever was let in is no stranger any more.
    let mut let_in = Vec::new();
    for _ in 0..5 {
        let_in.push(two.liar().await);
    }
    two.neighbour_is_served("silence").await;
}
