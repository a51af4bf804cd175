//! What a case of the grid is. A table holds one case a line.
//!
//! Texts are Latin-1: each character is one byte on the wire, so `\u{ff}` is the byte 0xff. `$H`
//! stands for the host of the origin at hand.

/// What must become of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    /// The gateway answers with this status and the origin sees nothing.
    Refuse(u16),
    /// These requests reach the origin, in this order, and are answered in this order.
    Pass(&'static [Seen]),
    /// The same, and then the gateway answers with this status.
    PassThenRefuse(&'static [Seen], u16),
    /// A request that turns bad on its way: the origin never completes one.
    Cut,
    /// HTTP/2: the stream (or the connection) is reset and the origin sees nothing.
    Reset,
}

/// A request as the origin must have read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) method: &'static str,
    pub(crate) target: &'static str,
    pub(crate) body: &'static str,
    /// Value of `X-V`.
    pub(crate) value: &'static str,
    /// Lines of the head (`name: value`) and trailers (`trailer name: value`) that must be there, or,
    /// with `!` before them, must not be (their beginning is enough); where the origin tells them.
    pub(crate) fields: &'static [&'static str],
}

/// One HTTP/1 case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) text: &'static str,
    pub(crate) expect: Expect,
}

/// Refused with 400.
pub(crate) const fn bad(name: &'static str, rule: &'static str, text: &'static str) -> Case {
    refused(400, name, rule, text)
}

/// Refused with another status.
pub(crate) const fn refused(
    status: u16,
    name: &'static str,
    rule: &'static str,
    text: &'static str,
) -> Case {
    let expect = Expect::Refuse(status);
    Case {
        name,
        rule,
        text,
        expect,
    }
}

/// Never a complete request.
pub(crate) const fn cut(name: &'static str, rule: &'static str, text: &'static str) -> Case {
    let expect = Expect::Cut;
    Case {
        name,
        rule,
        text,
        expect,
    }
}

/// Passes.
pub(crate) const fn ok(
    name: &'static str,
    rule: &'static str,
    text: &'static str,
    seen: &'static [Seen],
) -> Case {
    let expect = Expect::Pass(seen);
    Case {
        name,
        rule,
        text,
        expect,
    }
}

/// A request without a body.
pub(crate) const fn get(target: &'static str) -> Seen {
    Seen {
        method: "GET",
        target,
        body: "",
        value: "",
        fields: &[],
    }
}

/// A request with a body.
pub(crate) const fn post(body: &'static str) -> Seen {
    Seen {
        method: "POST",
        target: "/c",
        body,
        value: "",
        fields: &[],
    }
}

impl Seen {
    pub(crate) const fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    pub(crate) const fn value(mut self, value: &'static str) -> Self {
        self.value = value;
        self
    }

    pub(crate) const fn fields(mut self, fields: &'static [&'static str]) -> Self {
        self.fields = fields;
        self
    }
}

/// The bytes of a text.
pub(crate) fn bytes(text: &str, host: &str) -> Vec<u8> {
    let text = text.replace("$H", host);
    text.chars()
        .map(|c| u8::try_from(u32::from(c)).expect("a table holds bytes only"))
        .collect()
}

/// `GET /c` with these fields.
macro_rules! g {
    ($($rest:expr),*) => { concat!("GET /c HTTP/1.1\r\nHost: $H\r\n", $($rest),*) };
}
/// `POST /c` with these fields and body.
macro_rules! p {
    ($($rest:expr),*) => { concat!("POST /c HTTP/1.1\r\nHost: $H\r\n", $($rest),*) };
}
/// `POST /c` with this `Transfer-Encoding` line, an empty chunked body and a hidden request.
macro_rules! te {
    ($line:expr) => {
        concat!(
            "POST /c HTTP/1.1\r\nHost: $H\r\n",
            $line,
            "\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: $H\r\n\r\n"
        )
    };
}
/// `POST /c` with this `Content-Length` line, three bytes and a hidden request.
macro_rules! cl {
    ($line:expr) => {
        concat!(
            "POST /c HTTP/1.1\r\nHost: $H\r\n",
            $line,
            "\r\n\r\nabcGET /smuggled HTTP/1.1\r\nHost: $H\r\n\r\n"
        )
    };
}
/// `POST /c`, chunked, with this body.
macro_rules! ch {
    ($($rest:expr),*) => {
        concat!("POST /c HTTP/1.1\r\nHost: $H\r\nTransfer-Encoding: chunked\r\n\r\n", $($rest),*)
    };
}
/// A request that must stay hidden.
macro_rules! evil {
    () => {
        "GET /smuggled HTTP/1.1\r\nHost: $H\r\n\r\n"
    };
}
pub(crate) use {ch, cl, evil, g, p, te};
