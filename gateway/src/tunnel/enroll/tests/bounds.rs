//! What one token may take of what all share, and what an agent that wants more is told.

use super::*;

fn limit(door: &Door, name: &str) -> u64 {
    door.counted(&format!(
        "bridgehead_agent_limits_total{{limit=\"{name}\"}}"
    ))
}

#[tokio::test(start_paused = true)]
async fn a_token_has_as_many_tunnels_as_it_may_and_others_are_not_hurt() {
    let door = door();
    door.enroll.terms.rcu(|terms| TunnelTerms {
        per_agent: 2,
        ..TunnelTerms::clone(terms)
    });
    let of = |agent| Says {
        agent,
        ..says(None)
    };
    let first = door.knock(of("a1")).await.unwrap();
    let second = door.knock(of("a2")).await.unwrap();
    let refuse = door.knock(of("a3")).await.err().unwrap();
    assert_eq!((refuse.code, refuse.permanent), (RefuseCode::Busy, false));
    assert!(
        refuse.text.contains("[tunnel].tunnels_per_agent"),
        "{}",
        refuse.text
    );
    assert_eq!(limit(&door, "tunnels"), 1);
    let other = Says {
        token: Token::generate("k2", &[8; 32]).unwrap(),
        ..of("a1")
    };
    let other = door.knock(other).await.unwrap();
    // One that waits for its carrier holds its place, and gets it back.
    drop(second.carrier);
    let back = door.knock(Says {
        agent: "a2",
        ..says(next(&second.welcome.ticket, 2))
    });
    let back = back.await.unwrap();
    assert_eq!(
        door.knock(of("a3")).await.err().unwrap().code,
        RefuseCode::Busy
    );
    drop((first.carrier, back.carrier));
    tokio::time::sleep(WINDOW * 2).await;
    assert!(door.knock(of("a3")).await.is_ok());
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn the_next_start_of_a_killed_agent_is_let_in_beside_what_it_left() {
    let door = door();
    door.enroll.terms.rcu(|terms| TunnelTerms {
        per_agent: 1,
        ..TunnelTerms::clone(terms)
    });
    let killed = door.knock(says(None)).await.unwrap();
    let live = door.only();
    drop(killed.carrier);
    until_state(&live, TunnelState::Suspended).await;
    let next = |instance| Says {
        instance,
        ..says(None)
    };
    let _started = door.knock(next(6)).await.unwrap();
    let third = door.knock(next(6)).await.err().unwrap();
    assert_eq!(third.code, RefuseCode::Busy, "one more of the same start");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_flaps_is_told_to_wait_and_one_that_resumes_is_not() {
    let door = door();
    let (mut refused, steady) = (Vec::new(), door.knock(says(None)).await.unwrap());
    for _ in 0..100 {
        let flapping = Says {
            agent: "flaps",
            ..says(None)
        };
        match door.knock(flapping).await {
            Ok(agent) => drop(agent.carrier),
            Err(refuse) => refused.push(refuse),
        }
    }
    assert!((35..=41).contains(&refused.len()), "{}", refused.len());
    assert!(refused.iter().all(|refuse| refuse.code == RefuseCode::Busy));
    assert_eq!(limit(&door, "pace"), refused.len() as u64);
    // A hundred cuts of one tunnel are a hundred resumptions.
    let mut carrier = steady.carrier;
    for epoch in 2..102 {
        drop(carrier);
        let back = door.knock(says(next(&steady.welcome.ticket, epoch)));
        carrier = back.await.unwrap().carrier;
    }
}

#[tokio::test(start_paused = true)]
async fn while_memory_is_full_nothing_new_is_let_in_and_what_stands_comes_back() {
    let door = door();
    let agent = door.knock(says(None)).await.unwrap();
    door.enroll.pressure.set(crate::pressure::Level::Full);
    let refuse = door.knock(says(None)).await.err().unwrap();
    assert_eq!((refuse.code, limit(&door, "memory")), (RefuseCode::Busy, 1));
    let ticket = next(&agent.welcome.ticket, 2);
    drop(agent.carrier);
    assert!(door.knock(says(ticket)).await.is_ok());
    door.enroll.pressure.set(crate::pressure::Level::Calm);
    assert!(door.knock(says(None)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_more_apps_than_its_token_may_bring_is_told_so_at_the_door() {
    let door = door();
    let many = Says {
        apps: shops(MOST_SHOPS + 1),
        ..says(None)
    };
    let refuse = door.knock(many).await.err().unwrap();
    assert_eq!(refuse.code, RefuseCode::Busy);
    assert!(
        refuse.text.contains("[tunnel].apps_per_agent"),
        "{}",
        refuse.text
    );
    assert_eq!(limit(&door, "apps"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_brings_more_later_keeps_what_it_had_and_takes_nothing_new() {
    let door = door();
    let (tunnel, _, _end) = door.tunnel().await;
    let live = door.only();
    let offered = |name: &str| !door.enroll.tunnels.snapshot().offers(name).is_empty();
    tunnel.announce(shops(MOST_SHOPS));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(offered("shop-0") && !offered("demo"));
    let runs = live.tunnel.open(open("shop-0")).unwrap();
    let app = tunnel.accept().await.unwrap();
    tunnel.announce(shops(MOST_SHOPS + 1));
    until_state(&live, TunnelState::Draining).await;
    assert!(offered("shop-0") && !offered("shop-3"));
    assert!(door.enroll.tunnels.take("shop-0", &[]).is_none());
    drop((runs, app));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!offered("shop-0"), "it closes when what runs is over");
}

#[tokio::test(start_paused = true)]
async fn news_that_come_without_end_are_taken_seldom_and_the_last_of_them_is_taken() {
    let door = door();
    let (tunnel, _, _end) = door.tunnel().await;
    let before = door.enroll.tunnels.snapshot();
    let mut registries = Vec::from([Arc::clone(&before)]);
    for n in 0..1000 {
        tunnel.announce(vec![offer(&format!("app-{n}"))]);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = door.enroll.tunnels.snapshot();
        if !Arc::ptr_eq(&now, &registries[registries.len() - 1]) {
            registries.push(now);
        }
    }
    assert!((8..=10).contains(&registries.len()), "{}", registries.len());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let apps = door.enroll.tunnels.snapshot();
    let apps: Vec<&str> = apps.apps().map(|app| &**app).collect();
    assert_eq!(apps, ["app-999"]);
    assert!(limit(&door, "news") > 0);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_says_nothing_new_changes_nothing() {
    let door = door();
    let (tunnel, _, _end) = door.tunnel().await;
    let before = door.enroll.tunnels.snapshot();
    for _ in 0..100 {
        tunnel.announce(vec![offer("demo")]);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(Arc::ptr_eq(&before, &door.enroll.tunnels.snapshot()));
    assert_eq!(limit(&door, "news"), 0);
}

/// However a revocation and a reload interleave, nobody whose token was revoked is let in.
#[test]
fn a_token_that_is_revoked_while_a_reload_runs_stays_revoked() {
    let door = door();
    let agents: Vec<AgentEntry> = (0..500).map(many_keys).collect();
    for round in 0..200 {
        door.enroll.tokens.store(Arc::new(Tokens::new(&agents)));
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                door.enroll.replace_tokens(&agents);
            });
            scope.spawn(|| {
                start.wait();
                assert_eq!(door.enroll.revoke("agent-7"), Some(0));
            });
        });
        assert!(!door.enroll.tokens.load().knows("agent-7"), "round {round}");
    }
}

fn many_keys(n: u32) -> AgentEntry {
    let token = Token::generate(&format!("k{n}"), &[7; 32]).unwrap();
    entry(&format!("agent-{n}"), &token)
}
