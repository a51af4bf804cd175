//! What the modules of this suite share: worlds with one app, and one judge for every failed answer.

use bridgehead_protocol::verdict::{self, Code, Delivery, Operation};
use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::client::{Answer, H1};
use bridgehead_tests::world::{Agent, Setup, World, setup};

/// A gateway with an agent for one app, `demo`.
pub(crate) struct One {
    pub(crate) world: World,
    pub(crate) agent: Agent,
    pub(crate) app: App,
}

/// Starts `script` as app `demo` behind an agent.
pub(crate) async fn one<S, F>(setup: Setup, script: S) -> One
where
    S: Fn(Conn) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let app = App::start(script).await;
    let world = setup.start().await;
    let agent = world.join("a1", &[("demo", &app.target())]).await;
    One { world, agent, app }
}

/// Windows of a second, no hold: failures come fast, and 1 s is still far above a slow machine's noise.
pub(crate) fn quick() -> Setup {
    setup().defaults("hold = \"0s\"\nfirst_frame_window = \"1s\"\nstall_window = \"1s\"")
}

/// What a failed answer must say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) delivery: &'static str,
    pub(crate) stage: &'static str,
    pub(crate) window: &'static str,
    pub(crate) retry_after: Option<u64>,
}

impl Verdict {
    /// A refusal: the app saw nothing and never will.
    pub(crate) const fn refused(status: u16, code: &'static str, reason: &'static str) -> Self {
        Self {
            status,
            code,
            reason,
            delivery: "not_delivered",
            stage: "none",
            window: "",
            retry_after: None,
        }
    }

    pub(crate) const fn after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) const fn unknown(mut self, stage: &'static str) -> Self {
        self.delivery = "unknown";
        self.stage = stage;
        self
    }

    pub(crate) const fn delivered(mut self) -> Self {
        self.delivery = "delivered";
        self.stage = "answer_begun";
        self
    }

    pub(crate) const fn window(mut self, window: &'static str) -> Self {
        self.window = window;
        self
    }

    /// Checks every place of an answer that says something about the failure, and that they agree.
    #[track_caller]
    pub(crate) fn check(&self, answer: &Answer) {
        let text = answer.text();
        assert_eq!(answer.status, self.status, "{text}");
        let json = answer.json();
        let error = &json["error"];
        assert_eq!(json["success"], false, "{text}");
        assert_eq!(error["code"], self.code, "{text}");
        assert_eq!(json["code"], self.code, "both dialects: {text}");
        assert_eq!(answer.error("reason"), self.reason, "{text}");
        assert_eq!(answer.error("delivery"), self.delivery, "{text}");
        assert_eq!(answer.error("stage"), self.stage, "{text}");
        assert_eq!(answer.error("window"), self.window, "{text}");
        assert_eq!(answer.header("bridgehead-code"), Some(self.code));
        assert_eq!(answer.header("bridgehead-delivery"), Some(self.delivery));
        assert!(
            !answer.error("message").is_empty() && !answer.error("hint").is_empty(),
            "{text}"
        );
        self.check_retry_after(answer);
        self.check_advice(answer);
        let id = answer.header("x-request-id").expect("a request id");
        assert_eq!(answer.error("requestId"), id);
        assert!(is_uuid7(id), "{id} is a UUIDv7");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(
            answer.header("proxy-status").is_some(),
            "a Proxy-Status field"
        );
    }

    #[track_caller]
    fn check_retry_after(&self, answer: &Answer) {
        let json = answer.json();
        let Some(seconds) = self.retry_after else {
            assert_eq!(
                answer.header("retry-after"),
                None,
                "no pause makes this repeat safe"
            );
            assert!(
                json.get("retryAfter")
                    .is_none_or(serde_json::Value::is_null),
                "{json}"
            );
            assert!(
                json["error"]
                    .get("retryAfter")
                    .is_none_or(serde_json::Value::is_null),
                "{json}"
            );
            return;
        };
        assert_eq!(
            answer.header("retry-after"),
            Some(seconds.to_string().as_str())
        );
        assert_eq!(json["retryAfter"], seconds, "{json}");
        assert_eq!(json["error"]["retryAfter"], seconds, "{json}");
    }

    #[track_caller]
    fn check_advice(&self, answer: &Answer) {
        let code = Code::parse(self.code).expect("a known code");
        let delivery = match self.delivery {
            "not_delivered" => Delivery::NotDelivered,
            "unknown" => Delivery::Unknown,
            _ => Delivery::Delivered,
        };
        let retry = &answer.json()["error"]["retry"];
        assert_eq!(
            retry["read"],
            verdict::advise(code, delivery, Operation::Read).as_str()
        );
        assert_eq!(
            retry["write"],
            verdict::advise(code, delivery, Operation::Write).as_str()
        );
    }
}

fn is_uuid7(text: &str) -> bool {
    let dashes = text
        .char_indices()
        .filter(|(_, c)| *c == '-')
        .map(|(i, _)| i);
    text.len() == 36 && dashes.eq([8, 13, 18, 23]) && text.as_bytes()[14] == b'7'
}

/// Bytes that differ from place to place, so that a lost or doubled piece changes the digest.
pub(crate) fn pattern(from: u64, len: usize) -> Vec<u8> {
    // Eight at a time: a debug build makes gibibytes of it.
    let words = from / 8..(from + len as u64).div_ceil(8);
    let word = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let mut bytes = Vec::with_capacity(len + 16);
    words.for_each(|i| bytes.extend_from_slice(&word(i).to_le_bytes()));
    bytes.drain(..(from % 8) as usize);
    bytes.truncate(len);
    bytes
}

/// Bytes of a bulk transfer: more with `BH_DEEP=1`.
pub(crate) fn bulk() -> u64 {
    let deep = std::env::var("BH_DEEP").is_ok_and(|v| v == "1");
    if deep { 1 << 30 } else { 32 << 20 }
}

/// A connection that comes from another address of this machine.
pub(crate) async fn neighbour(world: &World) -> H1 {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    let own = ([127, 0, 0, 2], 0).into();
    socket
        .bind(own)
        .expect("the whole of 127/8 is this machine");
    let stream = socket.connect(world.places.public).await;
    H1::over(stream.expect("the gateway accepts"))
}
