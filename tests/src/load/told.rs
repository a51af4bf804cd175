//! What a client was told about one request, whatever it asked with.
//!
//! Pure values. Invariant: [`Told::Right`] is a whole answer, every byte of it right.

use std::collections::BTreeMap;

use serde_json::Value;

/// What came of a request, seen by its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The whole answer, and the right one.
    Right,
    /// An answer that was said to be whole, and is not what the app sends.
    Wrong(String),
    /// A failure that the gateway answered for.
    Refused(Verdict),
    /// The app's own failure.
    AppSays(u16),
    /// A failure that neither the app nor the gateway's envelope explains.
    Foreign(u16),
    /// No answer at all: the connection ended while the head was due.
    Empty(String),
    /// An answer that broke visibly after its head.
    Aborted(String),
    /// No connection to the gateway.
    Unreachable(String),
    /// The client's patience ended.
    Late,
}

impl Told {
    /// Word for the report.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong(_) => "wrong",
            Self::Refused(_) => "verdict",
            Self::AppSays(_) => "app_says",
            Self::Foreign(_) => "no_envelope",
            Self::Empty(_) => "no_answer",
            Self::Aborted(_) => "aborted",
            Self::Unreachable(_) => "unreachable",
            Self::Late => "late",
        }
    }
}

/// The gateway's word on a failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verdict {
    /// Code.
    pub code: String,
    /// Whether the app saw it.
    pub delivery: String,
    /// What happened.
    pub reason: String,
    /// How far the request got.
    pub stage: String,
}

/// What a failed answer says. `headers` have names in lower case.
pub fn failure(status: u16, headers: &BTreeMap<String, String>, body: &[u8]) -> Told {
    let Some(code) = headers.get("bridgehead-code") else {
        return Told::Foreign(status);
    };
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let word = |name: &str| json["error"][name].as_str().unwrap_or_default().to_owned();
    let delivery = headers
        .get("bridgehead-delivery")
        .cloned()
        .unwrap_or_default();
    if word("delivery") != delivery || word("code") != *code {
        return Told::Wrong(format!("the envelope of {code} and its fields differ"));
    }
    Told::Refused(Verdict {
        code: code.clone(),
        delivery,
        reason: word("reason"),
        stage: word("stage"),
    })
}
