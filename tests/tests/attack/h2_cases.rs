//! HTTP/2 cases: what must not survive the way down to HTTP/1, and what must.

use crate::case::{Expect, Seen, get, post};
use crate::rfc;

/// Field lines of one section, Latin-1 as everywhere.
pub(crate) type Fields = &'static [(&'static str, &'static str)];

/// One HTTP/2 case: a field section, DATA frames, a second section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct H2Case {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) head: Fields,
    pub(crate) data: &'static [&'static str],
    pub(crate) trailers: Option<Fields>,
    /// The last frame ends the stream.
    pub(crate) ends: bool,
    pub(crate) expect: Expect,
}

const fn h2(
    name: &'static str,
    rule: &'static str,
    head: Fields,
    data: &'static [&'static str],
    expect: Expect,
) -> H2Case {
    H2Case {
        name,
        rule,
        head,
        data,
        trailers: None,
        ends: true,
        expect,
    }
}

/// A stream error and nothing for the origin.
const fn no(name: &'static str, rule: &'static str, head: Fields) -> H2Case {
    h2(name, rule, head, &[], Expect::Reset)
}

/// Refused with an answer, which RFC 9113 §8.1.1 allows beside a stream error.
const fn answered(status: u16, name: &'static str, rule: &'static str, head: Fields) -> H2Case {
    h2(name, rule, head, &[], Expect::Refuse(status))
}

/// Passes.
const fn ok(name: &'static str, rule: &'static str, head: Fields, seen: &'static [Seen]) -> H2Case {
    h2(name, rule, head, &[], Expect::Pass(seen))
}

/// A second field section behind `a`.
const fn tail(
    name: &'static str,
    rule: &'static str,
    head: Fields,
    trailers: Fields,
    expect: Expect,
) -> H2Case {
    H2Case {
        trailers: Some(trailers),
        ..h2(name, rule, head, &["a"], expect)
    }
}

/// A GET with these fields behind the usual four.
macro_rules! g {
    ($($field:expr),*) => {
        &[(":method", "GET"), (":scheme", "http"), (":authority", "$H"), (":path", "/c"), $($field),*]
    };
}
/// A POST.
macro_rules! p {
    ($($field:expr),*) => {
        &[(":method", "POST"), (":scheme", "http"), (":authority", "$H"), (":path", "/c"), $($field),*]
    };
}
/// A GET of this path.
macro_rules! path {
    ($path:expr) => {
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "$H"),
            (":path", $path),
        ]
    };
}
/// A GET of this authority.
macro_rules! at {
    ($host:expr) => {
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", $host),
            (":path", "/c"),
        ]
    };
}

#[rustfmt::skip]
pub(crate) const CASES: &[H2Case] = &[
    // Values
    no("value: CR LF and a field", rfc::H2_VALUE, g!(("x-v", "1\r\nx-evil: 1"))),
    no("value: CR LF and a request", rfc::H2_VALUE, g!(("x-v", "1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: $H\r\n\r\n"))),
    no("value: CR", rfc::H2_VALUE, g!(("x-v", "a\rb"))),
    no("value: LF", rfc::H2_VALUE, g!(("x-v", "a\nb"))),
    no("value: NUL", rfc::H2_VALUE, g!(("x-v", "a\u{0}b"))),
    no("value: LF at the end", rfc::H2_VALUE, g!(("x-v", "a\n"))),
    no("value: CR at the beginning", rfc::H2_VALUE, g!(("x-v", "\ra"))),
    no("value: a blank before", rfc::H2_BLANK, g!(("x-v", " a"))),
    no("value: a blank behind", rfc::H2_BLANK, g!(("x-v", "a "))),
    no("value: a tab before", rfc::H2_BLANK, g!(("x-v", "\ta"))),
    no("value: a tab behind", rfc::H2_BLANK, g!(("x-v", "a\t"))),
    no("value: only a blank", rfc::H2_BLANK, g!(("x-v", " "))),
    no("value: a blank before a length", rfc::H2_BLANK, p!(("content-length", " 0"))),
    no("value: CR LF in a cookie", rfc::H2_VALUE, g!(("cookie", "a=b\r\nx-evil: 1"))),
    no("value: a control byte", rfc::H2_MALFORMED, g!(("x-v", "a\u{1}b"))),
    no("value: DEL", rfc::H2_MALFORMED, g!(("x-v", "a\u{7f}b"))),

    // Names
    no("name: a colon inside", rfc::H2_COLON, g!(("x:v", "1"))),
    no("name: a colon behind", rfc::H2_COLON, g!(("x-v:", "1"))),
    no("name: a field inside", rfc::H2_NAME, g!(("x-v: 1\r\ntransfer-encoding", "chunked"))),
    no("name: a request inside", rfc::H2_NAME, g!(("x: y\r\n\r\nGET /smuggled HTTP/1.1\r\nhost", "$H"))),
    no("name: a capital", rfc::H2_NAME, g!(("X-V", "1"))),
    no("name: a blank", rfc::H2_NAME, g!(("x v", "1"))),
    no("name: a blank behind", rfc::H2_NAME, g!(("transfer-encoding ", "chunked"))),
    no("name: a NUL", rfc::H2_NAME, g!(("x\u{0}v", "1"))),
    no("name: LF", rfc::H2_NAME, g!(("x\nv", "1"))),
    no("name: a tab", rfc::H2_NAME, g!(("x\tv", "1"))),
    no("name: a foreign letter", rfc::H2_NAME, g!(("x\u{e9}", "1"))),
    no("name: empty", rfc::H2_NAME, g!(("", "1"))),
    no("name: a parenthesis", rfc::H2_MALFORMED, g!(("x(", "1"))),
    answered(400, "name: x_forwarded_for", rfc::UNDERSCORE, g!(("x_forwarded_for", "6.6.6.6"))),
    answered(400, "name: content_length", rfc::UNDERSCORE, p!(("content_length", "0"))),
    answered(400, "name: transfer_encoding", rfc::UNDERSCORE, p!(("transfer_encoding", "chunked"))),

    // Fields of a connection
    no("connection-specific: Transfer-Encoding", rfc::H2_CONNECTION, p!(("transfer-encoding", "chunked"))),
    no("connection-specific: Connection", rfc::H2_CONNECTION, g!(("connection", "close"))),
    no("connection-specific: Connection names a field", rfc::H2_CONNECTION, g!(("connection", "x-v"), ("x-v", "1"))),
    no("connection-specific: Keep-Alive", rfc::H2_CONNECTION, g!(("keep-alive", "timeout=5"))),
    no("connection-specific: Proxy-Connection", rfc::H2_CONNECTION, g!(("proxy-connection", "keep-alive"))),
    no("connection-specific: Upgrade", rfc::H2_CONNECTION, g!(("upgrade", "websocket"))),
    no("TE: chunked", rfc::H2_TE, g!(("te", "chunked"))),
    no("TE: gzip", rfc::H2_TE, g!(("te", "gzip"))),
    no("TE: trailers and more", rfc::H2_TE, g!(("te", "trailers, chunked"))),
    no("TE: empty", rfc::H2_TE, g!(("te", ""))),
    no("TE: twice, the second chunked", rfc::H2_TE, g!(("te", "trailers"), ("te", "chunked"))),

    // Lengths
    no("length: more than nothing", rfc::H2_LENGTH, p!(("content-length", "3"))),
    no("length: twice", rfc::CL_REPEATED, p!(("content-length", "0"), ("content-length", "0"))),
    no("length: twice, different", rfc::CL_REPEATED, p!(("content-length", "0"), ("content-length", "3"))),
    no("length: a sign", rfc::CL_GRAMMAR, p!(("content-length", "+0"))),
    no("length: negative", rfc::CL_GRAMMAR, p!(("content-length", "-1"))),
    no("length: a list", rfc::CL_GRAMMAR, p!(("content-length", "0, 0"))),
    no("length: a word", rfc::CL_GRAMMAR, p!(("content-length", "x"))),
    no("length: empty", rfc::CL_GRAMMAR, p!(("content-length", ""))),
    no("length: a leading zero", rfc::CL_GRAMMAR, p!(("content-length", "00"))),
    no("length: 2^64", rfc::CL_BIG, p!(("content-length", "18446744073709551616"))),
    h2("length: less than comes", rfc::H2_LENGTH, p!(("content-length", "3")), &["abcGET /smuggled HTTP/1.1\r\nHost: $H\r\n\r\n"], Expect::Cut),
    h2("length: less than comes in two frames", rfc::H2_LENGTH, p!(("content-length", "3")), &["abc", "d"], Expect::Cut),
    h2("length: more than comes", rfc::H2_LENGTH, p!(("content-length", "10")), &["abc"], Expect::Cut),
    h2("length: more than comes, empty DATA", rfc::H2_LENGTH, p!(("content-length", "1")), &[""], Expect::Cut),
    h2("length: zero and DATA", rfc::H2_LENGTH, p!(("content-length", "0")), &["abc"], Expect::Cut),
    h2("length: GET declares zero and sends", rfc::H2_LENGTH, g!(("content-length", "0")), &["GET /smuggled HTTP/1.1\r\nHost: $H\r\n\r\n"], Expect::Cut),
    tail("length: more than comes before trailers", rfc::H2_LENGTH, p!(("content-length", "10")), &[("x-t", "1")], Expect::Cut),

    // Pseudo fields
    no("pseudo: behind a field", rfc::H2_PSEUDO_ORDER, &[(":method", "GET"), (":scheme", "http"), (":path", "/c"), ("x-v", "1"), (":authority", "$H")]),
    no("pseudo: two methods", rfc::H2_PSEUDO_TWICE, g!((":method", "POST"))),
    no("pseudo: two paths", rfc::H2_PSEUDO_TWICE, g!((":path", "/d"))),
    no("pseudo: two schemes", rfc::H2_PSEUDO_TWICE, g!((":scheme", "https"))),
    no("pseudo: two authorities", rfc::H2_PSEUDO_TWICE, g!((":authority", "$H"))),
    no("pseudo: no method", rfc::H2_PSEUDO_NEEDED, &[(":scheme", "http"), (":authority", "$H"), (":path", "/c")]),
    no("pseudo: no scheme", rfc::H2_PSEUDO_NEEDED, &[(":method", "GET"), (":authority", "$H"), (":path", "/c")]),
    no("pseudo: no path", rfc::H2_PSEUDO_NEEDED, &[(":method", "GET"), (":scheme", "http"), (":authority", "$H")]),
    no("pseudo: none at all", rfc::H2_PSEUDO_NEEDED, &[("host", "$H")]),
    no("pseudo: an unknown one", rfc::H2_PSEUDO_UNKNOWN, g!((":evil", "1"))),
    no("pseudo: a status", rfc::H2_PSEUDO_UNKNOWN, g!((":status", "200"))),
    no("pseudo: an empty name", rfc::H2_PSEUDO_UNKNOWN, g!((":", "1"))),
    no("pseudo: a method with a blank", rfc::H2_MALFORMED, &[(":method", "GET /smuggled HTTP/1.1\r\nx:"), (":scheme", "http"), (":authority", "$H"), (":path", "/c")]),
    no("pseudo: an empty method", rfc::H2_MALFORMED, &[(":method", ""), (":scheme", "http"), (":authority", "$H"), (":path", "/c")]),
    no("pseudo: a scheme with a line end", rfc::H2_MALFORMED, &[(":method", "GET"), (":scheme", "http\r\nx: y"), (":authority", "$H"), (":path", "/c")]),
    no("pseudo: a scheme with a URL", rfc::H2_MALFORMED, &[(":method", "GET"), (":scheme", "http://evil/?"), (":authority", "$H"), (":path", "/c")]),
    no("path: empty", rfc::H2_PATH, path!("")),
    no("path: a blank and a version", rfc::H2_PATH, path!("/c HTTP/1.1")),
    no("path: a line end", rfc::H2_VALUE, path!("/c HTTP/1.1\r\nx-evil: 1\r\n\r\n")),
    no("path: a NUL", rfc::H2_VALUE, path!("/c\u{0}")),
    no("path: a foreign byte", rfc::H2_PATH, path!("/\u{ff}")),
    no("path: no slash", rfc::H2_PATH, path!("c")),
    no("path: absolute", rfc::H2_PATH, path!("http://$H/c")),
    answered(400, "path: an asterisk for GET", rfc::ASTERISK, path!("*")),
    answered(400, "path: dot dot", rfc::DOTS, path!("/a/../c")),
    ok("path: a fragment is cut off before anyone reads it", rfc::H2_PATH, path!("/c#x"), &[get("/c")]),
    answered(400, "path: a backslash", rfc::H2_PATH, path!("/c\\d")),

    // Hosts
    no("host: differs from :authority", rfc::H2_AUTHORITY, g!(("host", "evil.localhost"))),
    no("host: the port differs", rfc::H2_AUTHORITY, g!(("host", "$N:1"))),
    no("host: twice", rfc::HOST, g!(("host", "$H"), ("host", "$H"))),
    no("host: empty beside :authority", rfc::H2_AUTHORITY, g!(("host", ""))),
    answered(400, "host: userinfo in :authority", rfc::H2_USERINFO, at!("me@$H")),
    no("host: a line end in :authority", rfc::H2_VALUE, at!("$H\r\nx-evil: 1")),
    no("host: a list in :authority", rfc::H2_MALFORMED, at!("$H, evil.localhost")),
    no("host: a path in :authority", rfc::H2_MALFORMED, at!("$H/c")),
    no("host: empty :authority", rfc::URI_EMPTY_HOST, at!("")),
    no("host: percent in :authority", rfc::PERCENT, at!("d%6fuble.localhost")),
    answered(400, "host: a trailing dot", rfc::HOST_GRAMMAR, at!("$N.")),
    answered(400, "host: a bad port", rfc::PORT, at!("$N:x")),
    no("host: UTF-8", rfc::IDN, at!("d\u{c3}\u{b6}uble.localhost")),
    answered(400, "host: none", rfc::H2_AUTHORITY, &[(":method", "GET"), (":scheme", "http"), (":path", "/c")]),
    answered(404, "host: nobody's", rfc::HOST_FIELD, at!("nobody.localhost")),

    // CONNECT
    answered(501, "CONNECT: plain", rfc::H2_CONNECT, &[(":method", "CONNECT"), (":authority", "$H")]),
    no("CONNECT: with a path", rfc::H2_CONNECT, &[(":method", "CONNECT"), (":authority", "$H"), (":path", "/c")]),
    no("CONNECT: with a scheme", rfc::H2_CONNECT, &[(":method", "CONNECT"), (":scheme", "http"), (":authority", "$H")]),
    no("CONNECT: without an authority", rfc::H2_CONNECT, &[(":method", "CONNECT")]),
    no("CONNECT: a protocol and no path", rfc::H2_PROTOCOL, &[(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":authority", "$H")]),
    no("CONNECT: a protocol and a length", rfc::H2_PROTOCOL, &[(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":authority", "$H"), (":path", "/c"), ("content-length", "3")]),
    no("GET with a protocol", rfc::H2_PROTOCOL, g!((":protocol", "websocket"))),
    answered(400, "CONNECT: a protocol with a line end", rfc::H2_VALUE, &[(":method", "CONNECT"), (":protocol", "websocket\r\nx: y"), (":scheme", "http"), (":authority", "$H"), (":path", "/c")]),

    // Trailers
    H2Case { ends: false, ..tail("trailers: the stream goes on", rfc::H2_TRAILERS, p!(), &[("x-t", "1")], Expect::Cut) },
    tail("trailers: a pseudo field is dropped", rfc::H2_PSEUDO_TRAILER, p!(), &[(":path", "/smuggled")], Expect::Pass(&[post("a").fields(&["!trailer"])])),
    tail("trailers: a line end", rfc::H2_VALUE, p!(), &[("x-t", "1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: $H\r\n\r\n")], Expect::Cut),
    tail("trailers: a capital", rfc::H2_NAME, p!(), &[("X-T", "1")], Expect::Cut),
    tail("trailers: a colon in a name", rfc::H2_COLON, p!(), &[("x:t", "1")], Expect::Cut),
    tail("trailers: a connection field", rfc::H2_CONNECTION, p!(), &[("transfer-encoding", "chunked")], Expect::Cut),
    tail("trailers: a blank around a value", rfc::H2_BLANK, p!(), &[("x-t", " 1")], Expect::Cut),
    H2Case { ends: false, ..h2("the body never ends", rfc::INCOMPLETE, p!(), &["abc"], Expect::Cut) },

    // What must pass
    ok("a GET", rfc::H2_PSEUDO_NEEDED, g!(), &[get("/c")]),
    ok("a value", rfc::H2_VALUE, g!(("x-v", "a  b\tc")), &[get("/c").value("a  b\tc")]),
    ok("an empty value", rfc::H2_BLANK, g!(("x-v", "")), &[get("/c")]),
    ok("two values", rfc::H2_VALUE, g!(("x-v", "1"), ("x-v", "2")), &[get("/c").value("1, 2")]),
    ok("punctuation", rfc::H2_VALUE, g!(("x-v", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")), &[get("/c").value("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")]),
    ok("a query", rfc::H2_PATH, path!("/c?a=b&c=%20"), &[get("/c?a=b&c=%20")]),
    ok("an encoded slash", rfc::H2_PATH, path!("/a%2Fb"), &[get("/a%2Fb")]),
    ok("double slashes", rfc::H2_PATH, path!("/a//b/"), &[get("/a//b/")]),
    ok("Host beside :authority", rfc::H2_AUTHORITY, g!(("host", "$H")), &[get("/c").fields(&["host: $H"])]),
    ok("Host beside :authority, in capitals", rfc::H2_AUTHORITY, g!(("host", "$U")), &[get("/c")]),
    ok("Host alone", rfc::H2_AUTHORITY, &[(":method", "GET"), (":scheme", "http"), (":path", "/c"), ("host", "$H")], &[get("/c").fields(&["host: $H"])]),
    ok(":authority in capitals", rfc::H2_AUTHORITY, at!("$U"), &[get("/c")]),
    ok("no body, length zero", rfc::BODY, p!(("content-length", "0")), &[post("").fields(&["content-length: 0"])]),
    ok("no body, no length", rfc::NO_BODY, p!(), &[post("").fields(&["!transfer-encoding"])]),
    ok("TE: trailers", rfc::H2_TE, g!(("te", "trailers")), &[get("/c").fields(&["te: trailers"])]),
    ok("cookie crumbs", rfc::H2_COOKIE, g!(("cookie", "a=b"), ("cookie", "c=d")), &[get("/c").fields(&["cookie: a=b; c=d"])]),
    ok("OPTIONS *", rfc::ASTERISK, &[(":method", "OPTIONS"), (":scheme", "http"), (":authority", "$H"), (":path", "*")], &[get("*").method("OPTIONS")]),
    ok("forwarded claims are overwritten", rfc::FORWARDED, g!(("x-forwarded-for", "6.6.6.6"), ("forwarded", "for=6.6.6.6")), &[get("/c").fields(&["x-forwarded-for: 127.0.0.1", "!forwarded: for=6"])]),
    h2("a length that is kept", rfc::H2_LENGTH, p!(("content-length", "5")), &["hello"], Expect::Pass(&[post("hello").fields(&["content-length: 5"])])),
    h2("a length in two frames", rfc::H2_LENGTH, p!(("content-length", "5")), &["he", "llo"], Expect::Pass(&[post("hello")])),
    h2("no length", rfc::BODY, p!(), &["hello"], Expect::Pass(&[post("hello").fields(&["transfer-encoding: chunked"])])),
    h2("empty DATA between", rfc::BODY, p!(), &["he", "", "llo", ""], Expect::Pass(&[post("hello")])),
    h2("a body that looks like an end", rfc::CHUNK, p!(), &["0\r\n\r\n", "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"], Expect::Pass(&[post("0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")])),
    h2("a GET with a body", rfc::BODY, g!(), &["a"], Expect::Pass(&[Seen { body: "a", ..get("/c") }])),
    h2("only an empty DATA", rfc::BODY, p!(), &[""], Expect::Pass(&[post("")])),
    tail("trailers", rfc::TRAILERS, p!(), &[("x-t", "1")], Expect::Pass(&[post("a").fields(&["trailer x-t: 1"])])),
    tail("trailers behind a length", rfc::TRAILERS, p!(("content-length", "1")), &[("x-t", "1")], Expect::Pass(&[post("a")])),
    tail("trailers that are dropped", rfc::FORBIDDEN_TRAILER, p!(), &[("content-length", "99"), ("host", "evil"), ("authorization", "x"), ("x-t", "1")], Expect::Pass(&[post("a").fields(&["trailer x-t: 1", "!trailer content-length", "!trailer host", "!trailer authorization"])])),
];
