//! A hostile agent with a valid token: whatever it says, its lies stay inside its own apps.
//!
//! Beside it another subject's agent serves `demo`; each lie is followed by requests to `demo`, which
//! must be served as ever, and the liar's own clients must get an answer and not a wait.

use std::time::Duration;

use bridgehead_protocol::wire::{
    AppKind, Begin, FinalCause, Frame, GoAwayReason, Hello, Open, RefuseCode, ReportEntry,
    ResetCode, Resume, ResumeTicket, StreamId,
};
use bridgehead_tests::app::{self, App};
use bridgehead_tests::client::{Answer, H1};
use bridgehead_tests::peer::{self, Peer};
use bridgehead_tests::wait;
use bridgehead_tests::world::{Agent, World, setup};
use bytes::Bytes;

/// A tunnel ends with its carrier: no client waits for a liar to come back.
const FORGETFUL: &str = "resume_window = \"0s\"";

/// Two subjects, an app each.
pub(crate) struct Two {
    pub(crate) world: World,
    pub(crate) honest: App,
    _agent: Agent,
}

/// With lines for `[tunnel]`.
pub(crate) async fn two(tunnel: &str) -> Two {
    let honest = App::start(app::echo).await;
    let world = setup()
        .section("tunnel", tunnel)
        .defaults("hold = \"0s\"\nfirst_frame_window = \"2s\"")
        .app("evil", "")
        .agent("a1", &["demo"])
        .agent("evil", &["evil", "evil-*"])
        .start()
        .await;
    let agent = world.join("a1", &[("demo", &honest.target())]).await;
    Two {
        world,
        honest,
        _agent: agent,
    }
}

impl Two {
    pub(crate) fn hello(&self) -> Hello {
        peer::hello(&self.world.token("evil").secret, "liar", &["evil"])
    }

    /// The liar, let in.
    pub(crate) async fn liar(&self) -> Peer {
        let mut liar = Peer::dial(self.world.places.tunnel).await;
        liar.say(&Frame::Hello(self.hello())).await;
        let first = wait::within(wait::SOON, "an answer to HELLO", liar.hear()).await;
        assert!(matches!(first, Some(Frame::Welcome(_))), "not let in");
        liar
    }

    /// The neighbour is served by its own app, and by nobody else.
    pub(crate) async fn neighbour_is_served(&self, after: &str) {
        let (before, target) = (self.honest.total(), "/neighbour");
        let begun = std::time::Instant::now();
        for _ in 0..2 {
            let answer = self.world.get(target).await;
            assert_eq!(answer.status, 200, "after {after}: {}", answer.text());
            assert!(answer.text().starts_with("GET /neighbour\n"), "{after}");
        }
        println!("the neighbour took {:.1?} after {after}", begun.elapsed());
        assert!(
            self.honest.total() > before,
            "{after}: another app answered"
        );
    }

    /// A request to the liar's app.
    async fn ask_liar(&self) -> Answer {
        let mut client = H1::connect(self.world.places.public).await;
        let host = self.world.host("evil");
        client.request("GET", "/mine", &host, &[], b"").await;
        wait::within(wait::SOON, "an answer about the liar", client.answer("GET")).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_serves_an_app_that_its_token_does_not_cover() {
    let two = two("").await;
    let token = two.world.token("evil").secret.clone();
    let half_foreign = {
        let (own, foreign) = (&two.world.token("evil"), &two.world.token("a1"));
        own.secret.replace(&own.key, &foreign.key)
    };
    let resuming = |tunnel| Hello {
        resume: Some(ResumeTicket {
            tunnel,
            secret: [0; 32],
            epoch: 2,
        }),
        ..two.hello()
    };
    let neighbours = two.world.admin("/v1/tunnels").await.to_string();
    let theirs = neighbours.split("\"id\":\"").nth(1);
    let theirs = theirs.and_then(|text| u128::from_str_radix(text.get(..32)?, 16).ok());
    let theirs = theirs.expect("a tunnel has an id");
    let cases = [
        (
            "another's app",
            peer::hello(&token, "liar", &["demo"]),
            RefuseCode::ScopeDenied,
        ),
        (
            "both apps",
            peer::hello(&token, "liar", &["evil", "demo"]),
            RefuseCode::ScopeDenied,
        ),
        (
            "another's key",
            peer::hello(&half_foreign, "liar", &["demo"]),
            RefuseCode::Unauthorized,
        ),
        (
            "no token",
            peer::hello("", "liar", &["evil"]),
            RefuseCode::Unauthorized,
        ),
        (
            "an app twice",
            peer::hello(&token, "liar", &["evil", "evil"]),
            RefuseCode::Malformed,
        ),
        (
            "a line end in its id",
            peer::hello(&token, "li\nar", &["evil"]),
            RefuseCode::Malformed,
        ),
        ("a tunnel nobody has", resuming(1), RefuseCode::ResumeGone),
        ("another's tunnel", resuming(theirs), RefuseCode::ResumeGone),
    ];
    for (what, hello, code) in cases {
        let mut liar = Peer::dial(two.world.places.tunnel).await;
        liar.say(&Frame::Hello(hello)).await;
        let said = wait::within(wait::SOON, what, liar.hear()).await;
        match said {
            Some(Frame::Refuse(refuse)) => {
                assert_eq!(refuse.code, code, "{what}: {}", refuse.text);
                assert!(
                    !refuse.text.contains(&token[10..]),
                    "{what}: {}",
                    refuse.text
                );
            }
            _ => panic!("{what} is not refused"),
        }
    }
    // The same agent id under another subject is another agent: nobody is replaced.
    let name = two.world.admin("/v1/tunnels").await.to_string();
    let mut namesake = Peer::dial(two.world.places.tunnel).await;
    let agent = name
        .split("\"agent\":\"")
        .nth(1)
        .and_then(|t| t.split('"').next());
    let hello = peer::hello(&token, agent.expect("a tunnel names its agent"), &["evil"]);
    namesake.say(&Frame::Hello(hello)).await;
    let first = wait::within(wait::SOON, "an answer", namesake.hear()).await;
    assert!(matches!(first, Some(Frame::Welcome(_))));
    two.neighbour_is_served("a namesake").await;
}

const ONE: StreamId = StreamId(1);

/// Names of one APPS; as many as fit.
pub(crate) const NAMES: usize = 128;

/// The list of that revision has no name of another revision's.
pub(crate) fn ever_new_names(revision: u64) -> Frame {
    let name = |n| format!("evil-{revision}-{n}");
    Frame::Apps {
        revision,
        apps: (0..NAMES).map(|n| peer::offer(&name(n))).collect(),
    }
}

/// What a liar says out of nothing.
fn lies() -> Vec<(&'static str, Vec<Frame>)> {
    let open = Open {
        app: "demo".into(),
        kind: AppKind::Http1,
        remaining: Duration::from_secs(1),
        credit: 1,
        client: None,
    };
    let begin = Begin {
        request: 1,
        remaining: Duration::from_secs(1),
        expect_read: None,
    };
    let entry = |stream| ReportEntry {
        tunnel: 1,
        stream: StreamId(stream),
        written: 0,
        read: 0,
        cause: FinalCause::AppClosed,
    };
    let finale = |written, read| Frame::Final {
        stream: ONE,
        written,
        read,
        cause: FinalCause::AppClosed,
    };
    let credit = |limit, consumed| Frame::Credit {
        stream: ONE,
        limit,
        consumed,
    };
    let data = |stream: u32, len: usize| Frame::Data {
        stream: StreamId(stream),
        bytes: Bytes::from(vec![b'x'; len]),
        fin: false,
    };
    vec![
        (
            "another's app in APPS",
            vec![Frame::Apps {
                revision: 1,
                apps: vec![peer::offer("demo")],
            }],
        ),
        (
            "OPEN, which is not its to say",
            vec![Frame::Open(ONE, open)],
        ),
        (
            "BEGIN, which is not its to say",
            vec![Frame::Begin(ONE, begin)],
        ),
        (
            "FENCE, which is not its to say",
            vec![Frame::Fence {
                stream: ONE,
                linger: true,
            }],
        ),
        ("DATA of no stream", vec![data(1, 10)]),
        ("DATA of a stream far away", vec![data(0x7fff_ffff, 10)]),
        (
            "OPENED of no stream",
            vec![Frame::Opened {
                stream: ONE,
                credit: u32::MAX,
            }],
        ),
        ("CREDIT without end", vec![credit(u64::MAX, u64::MAX)]),
        (
            "COUNT unasked",
            vec![Frame::Count {
                stream: ONE,
                written: u64::MAX,
                read: u64::MAX,
            }],
        ),
        ("FINAL of no stream", vec![finale(0, 0)]),
        ("FINAL twice", vec![finale(0, 0), finale(0, 0)]),
        (
            "RESET of no stream",
            vec![Frame::Reset {
                stream: ONE,
                code: ResetCode::Abuse,
            }],
        ),
        (
            "REPORT of another's tunnel",
            vec![Frame::Report((1..200).map(entry).collect())],
        ),
        (
            "RESUME in the middle",
            vec![Frame::Resume(Resume {
                highest_open: 9,
                streams: vec![(ONE, 9)],
                more: false,
            })],
        ),
        (
            "HELLO again",
            vec![Frame::Hello(peer::hello("bh_x_y", "liar", &["demo"]))],
        ),
        (
            "GOAWAY and on",
            vec![
                Frame::GoAway {
                    last: ONE,
                    reason: GoAwayReason::Draining,
                    deadline: Duration::ZERO,
                },
                data(1, 10),
            ],
        ),
        (
            "a thousand PINGs",
            (0..1000).map(|_| Frame::Ping([1; 8])).collect(),
        ),
        (
            "a thousand APPS, each with names of its own",
            (1..=1000).map(ever_new_names).collect(),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lying_agent_harms_nobody_else() {
    let two = two("").await;
    for (what, frames) in lies() {
        let mut liar = two.liar().await;
        for frame in &frames {
            liar.say(frame).await;
        }
        two.neighbour_is_served(what).await;
    }
    for (what, bytes) in [
        ("bytes that are no frame", &[0xff; 64][..]),
        (
            "a length without end",
            &[0xff, 0xff, 0xff, 11, 0, 0, 0, 0, 1][..],
        ),
        ("half a frame", &[0, 0, 50, 11, 0, 0, 0, 0, 1, 1][..]),
    ] {
        let mut liar = two.liar().await;
        liar.say_bytes(bytes).await;
        two.neighbour_is_served(what).await;
    }
    // What it was is gone with it: only the honest agent's tunnels are left.
    let left = || async {
        let tunnels = two.world.admin("/v1/tunnels").await.to_string();
        (!tunnels.contains("liar")).then_some(())
    };
    // Longer than a tunnel waits for its next carrier.
    wait::until(wait::SOON * 3, "the liar's tunnels ending", left).await;
}

/// What a liar does with a stream that was opened to it.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Silence,
    RefusesAfterOpening,
    NothingWasWritten,
    MoreThanWasSent,
    AnswersUnasked,
    FloodsBeyondCredit,
    TwoAnswers,
    Vanishes,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lying_agent_s_own_clients_get_an_answer_and_never_another_s() {
    let two = two(FORGETFUL).await;
    for deed in [
        Deed::Silence,
        Deed::RefusesAfterOpening,
        Deed::NothingWasWritten,
        Deed::MoreThanWasSent,
        Deed::AnswersUnasked,
        Deed::FloodsBeyondCredit,
        Deed::TwoAnswers,
        Deed::Vanishes,
    ] {
        let liar = two.liar().await;
        let lying = tokio::spawn(lie(liar, deed));
        let answer = two.ask_liar().await;
        let fine = answer.made_by_gateway() || answer.text() == "mine";
        assert!(fine, "{deed:?}: {answer:?}");
        two.neighbour_is_served(&format!("{deed:?}")).await;
        let again = two.ask_liar().await;
        assert_ne!(again.text(), "stale", "{deed:?}: an answer from before");
        lying.abort();
    }
}

/// Serves streams as `deed` says until the gateway has had enough.
async fn lie(mut liar: Peer, deed: Deed) {
    loop {
        let opened = |frame: &Frame| match frame {
            Frame::Open(stream, _) => Some(*stream),
            _ => None,
        };
        let Some(stream) = liar.until(opened).await else {
            return;
        };
        let data = |text: &str| Frame::Data {
            stream,
            bytes: Bytes::copy_from_slice(text.as_bytes()),
            fin: false,
        };
        let end = |written, read| Frame::Final {
            stream,
            written,
            read,
            cause: FinalCause::AppClosed,
        };
        let credit = 65_536;
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine";
        if !matches!(deed, Deed::AnswersUnasked | Deed::Vanishes) {
            liar.say(&Frame::Opened { stream, credit }).await;
        }
        match deed {
            Deed::Silence => {}
            Deed::RefusesAfterOpening => {
                let reason = bridgehead_protocol::wire::RefusedReason::ConnectRefused;
                liar.say(&Frame::Refused {
                    stream,
                    reason,
                    errno: 0,
                })
                .await;
            }
            Deed::NothingWasWritten => drop(liar.say(&end(0, 0)).await),
            Deed::MoreThanWasSent => drop(liar.say(&end(u64::MAX, 0)).await),
            Deed::AnswersUnasked => drop(liar.say(&data(answer)).await),
            Deed::FloodsBeyondCredit => {
                let piece = "x".repeat(60_000);
                for _ in 0..100 {
                    liar.say(&data(&piece)).await;
                }
            }
            Deed::TwoAnswers => {
                let consumed = Frame::Credit {
                    stream,
                    limit: 65_536,
                    consumed: 10,
                };
                liar.say(&consumed).await;
                let second = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale";
                liar.say(&data(&format!("{answer}{second}"))).await;
            }
            Deed::Vanishes => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_and_no_agent_writes_a_line_of_the_log() {
    let two = two("").await;
    let host = two.world.host("demo");
    let mut client = two.world.h1().await;
    let target = "/\"},{\"ts\":\"forged\"}\\n%0A%0D{\"forged\":1}";
    let fields = [
        ("User-Agent", "x\"}{\"forged\":2}"),
        ("Referer", "\\n{\"forged\":3}"),
    ];
    client
        .ask("GET", &target.replace('\\', ""), &host, &fields, b"")
        .await;
    client.ask("FORGED{}", "/", &host, &[], b"").await;
    let mut stranger = Peer::dial(two.world.places.tunnel).await;
    let mut forged = two.hello();
    forged.agent = "x\n{\"forged\":4}\u{1b}[2J".into();
    stranger.say(&Frame::Hello(forged)).await;
    wait::within(wait::SOON, "a refusal", stranger.hear()).await;
    let mut liar = two.liar().await;
    let mut offer = peer::offer("evil");
    offer.upstream_host = "x\n{\"forged\":5}".into();
    liar.say(&Frame::Apps {
        revision: 9,
        apps: vec![offer],
    })
    .await;
    while wait::within(wait::SOON, "the liar being cut off", liar.hear())
        .await
        .is_some()
    {}
    let last = two.world.get("/last").await;
    let id = last.header("x-request-id").unwrap_or_default().to_owned();
    two.world.gateway.line("the last line", |line| {
        line.contains("/last") || line.contains(&id)
    });
    let log = two
        .world
        .gateway
        .text(bridgehead_tests::process::Stream::Out);
    for line in log.lines().filter(|line| !line.starts_with("ready ")) {
        let parsed: serde_json::Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("a line is no JSON ({error}): {line}"));
        assert!(parsed.get("forged").is_none(), "{line}");
    }
    let told = two.world.gateway.logs();
    assert!(!told.contains('\u{1b}'), "an escape reaches the terminal");
    assert!(
        !told.lines().any(|line| line.starts_with("{\"forged\"")),
        "{told}"
    );
}
