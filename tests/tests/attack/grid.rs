//! The smuggling grid: every case, at every origin, by HTTP/1 and HTTP/2.
//!
//! *Smuggled* means that an origin parsed other request boundaries than the gateway forwarded. Each
//! origin counts the complete requests it has seen; after every case a probe on a fresh client
//! connection, which reuses what the case left behind on the app's side, must be exactly the next one.

use bridgehead_tests::client::{self, H1};
use bridgehead_tests::frames::{self, END_HEADERS, END_STREAM, Frame, RawH2, kind};
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};

use crate::case::{Case, Expect, Seen, bytes};
use crate::h2_cases::{Fields, H2Case};
use crate::origins::{self, Origin};
use crate::setup::skip;
use crate::{ALONE, h1_framing, h1_heads, h1_valid, h2_cases};

/// Why a case failed.
type Fault = String;

/// What was counted, for the line that is printed.
#[derive(Default)]
struct Tally {
    cases: usize,
    passed: usize,
    /// Requests that passed and that the server refused or answered before its app.
    own_answers: usize,
}

/// One answer, as far as the grid looks.
#[derive(Debug)]
struct Got {
    status: u16,
    by_gateway: bool,
    text: String,
}

/// An origin behind the gateway.
struct Place<'w> {
    world: &'w World,
    origin: &'w Origin,
    /// Complete requests that the origin has told.
    count: u64,
    probes: u64,
    tally: Tally,
}

/// What one line of an origin says.
struct Line {
    n: u64,
    method: String,
    target: Vec<u8>,
    body: Vec<u8>,
    value: Vec<u8>,
    fields: Option<String>,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim_end().split('|');
        if parts.next() != Some("origin") {
            return None;
        }
        let n = parts.next()?.parse().ok()?;
        let method = parts.next()?.to_owned();
        let mut raw = || unhex(parts.next()?);
        let (target, body, value) = (raw()?, raw()?, raw()?);
        let fields = raw().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Some(Self {
            n,
            method,
            target,
            body,
            value,
            fields,
        })
    }

    /// Why this is not `seen`, the `n`-th request of its origin.
    fn differs(&self, seen: &Seen, n: u64, host: &str) -> Option<Fault> {
        let texts = [
            ("target", &self.target, seen.target),
            ("body", &self.body, seen.body),
            ("X-V", &self.value, seen.value),
        ];
        // What servers tell of a request is blurred: WSGI joins lines without a blank, and ASGI has no
        // place for an empty query.
        for (what, got, wanted) in texts {
            let blurred = (host.starts_with("uvicorn") && wanted.ends_with('?'))
                || (host.starts_with("gunicorn") && wanted == "1, 2");
            if *got != bytes(wanted, host) && !blurred {
                let got = String::from_utf8_lossy(got);
                return Some(format!("{what} is {got:?} and not {wanted:?}"));
            }
        }
        if self.method != seen.method {
            return Some(format!("method is {} and not {}", self.method, seen.method));
        }
        if self.n != n {
            return Some(format!(
                "SMUGGLED: it is the origin's request {}, and not {n}",
                self.n
            ));
        }
        let fields = self.fields.as_deref()?;
        let begins = |start: &str| fields.lines().any(|line| line.starts_with(start));
        for wanted in seen.fields {
            let wanted = wanted.replace("$H", host);
            let fine = match wanted.strip_prefix('!') {
                Some(unwanted) => !begins(unwanted),
                None => begins(&wanted),
            };
            if !fine {
                return Some(format!("{wanted:?} is not so in {fields}"));
            }
        }
        None
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

impl<'w> Place<'w> {
    fn new(world: &'w World, origin: &'w Origin) -> Self {
        Self {
            world,
            origin,
            count: u64::MAX,
            probes: 0,
            tally: Tally::default(),
        }
    }

    fn host(&self) -> String {
        self.world.host(self.origin.name)
    }

    /// One more request, as an ordinary client sends it. It must be the next one at the origin.
    async fn probe(&mut self) -> Result<(), Fault> {
        self.probes += 1;
        let target = format!("/probe/{}", self.probes);
        let host = self.host();
        let mut client = H1::connect(self.world.places.public).await;
        client.request("GET", &target, &host, &[], b"").await;
        let asked = wait::within(wait::SOON, "a probe's answer", client.try_answer("GET")).await;
        let answer = asked.map_err(|why| format!("the probe was not answered: {why:?}"))?;
        let line = Line::parse(&answer.text()).ok_or_else(|| {
            format!(
                "the probe was answered {}: {}",
                answer.status,
                answer.text()
            )
        })?;
        let differs = (line.target != target.as_bytes() || !line.body.is_empty()).then(|| {
            format!(
                "SMUGGLED: the probe became {} {}",
                line.method,
                String::from_utf8_lossy(&line.target)
            )
        });
        let wrong = (line.n != self.count + 1).then(|| {
            format!(
                "SMUGGLED: the origin has seen {} requests, {} were forwarded",
                line.n,
                self.count + 1
            )
        });
        self.count = line.n;
        differs.or(wrong).map_or(Ok(()), Err)
    }

    /// Compares answers with what a case expects; counts what must have reached the origin.
    fn judge(&mut self, expect: &Expect, got: &[Got]) -> Result<(), Fault> {
        let (seen, refusal): (&[Seen], Option<u16>) = match expect {
            Expect::Pass(seen) => (seen, None),
            Expect::PassThenRefuse(seen, status) => (seen, Some(*status)),
            Expect::Refuse(status) => (&[], Some(*status)),
            Expect::Cut | Expect::Reset => {
                return match got.iter().find(|a| !a.by_gateway && a.status < 400) {
                    Some(answer) => Err(format!("the origin answered {answer:?}")),
                    None => Ok(()),
                };
            }
        };
        let host = self.host();
        let mut answers = got.iter();
        for seen in seen {
            let answer = answers.next().ok_or("an answer is missing")?;
            if answer.by_gateway && self.origin.cannot_upgrade(&answer.text) {
                self.tally.own_answers += 1;
                self.forgive();
                return Ok(());
            }
            if answer.by_gateway {
                return Err(format!("refused: {answer:?}"));
            }
            self.tally.passed += 1;
            match Line::parse(&answer.text) {
                Some(line) => {
                    self.count += 1;
                    if let Some(fault) = line.differs(seen, self.count, &host) {
                        return Err(fault);
                    }
                }
                None if seen.method == "HEAD" && answer.status == 200 => self.count += 1,
                // Its own taste; it may close the connection then, and nothing behind is judged.
                None if !self.origin.is_ours() => {
                    self.tally.own_answers += 1;
                    self.forgive();
                    return Ok(());
                }
                None => return Err(format!("no line of the origin: {answer:?}")),
            }
        }
        if let Some(status) = refusal {
            let answer = answers.next().ok_or("no refusal came")?;
            if !answer.by_gateway || (answer.status != status && answer.status != 0) {
                return Err(format!("not refused with {status}: {answer:?}"));
            }
        }
        match answers.next() {
            Some(more) => Err(format!("one answer too many: {more:?}")),
            None => Ok(()),
        }
    }

    /// The origin may have counted a request that it refused: the next probe tells.
    fn forgive(&mut self) {
        self.count = u64::MAX;
    }

    /// The end of a case: after a fault the count is unknown, after none it is proven.
    async fn close(&mut self, done: Result<(), Fault>) -> Option<Fault> {
        self.tally.cases += 1;
        if done.is_err() {
            self.forgive();
        }
        let settled = self.settle().await;
        done.and(settled).err()
    }

    async fn settle(&mut self) -> Result<(), Fault> {
        if self.count == u64::MAX {
            // A probe that only reads the count.
            self.count = 0;
            return match self.probe().await {
                Err(fault) if fault.contains("the origin has seen") => Ok(()),
                other => other,
            };
        }
        self.probe().await
    }

    async fn h1(&mut self, case: &Case) -> Result<(), Fault> {
        let host = self.host();
        let text = case
            .text
            .replace("$U", &host.to_ascii_uppercase())
            .replace("$N", &format!("{}.localhost", self.origin.name));
        let mut client = H1::connect(self.world.places.public).await;
        client.send(bytes(&text, &host)).await;
        client.half_close().await;
        let methods: Vec<&str> = match &case.expect {
            Expect::Pass(seen) | Expect::PassThenRefuse(seen, _) => {
                seen.iter().map(|s| s.method).collect()
            }
            Expect::Refuse(_) | Expect::Cut | Expect::Reset => Vec::new(),
        };
        let mut got = Vec::new();
        let all = async {
            while let Ok(answer) = client
                .try_answer(methods.get(got.len()).copied().unwrap_or("GET"))
                .await
            {
                got.push(Got {
                    status: answer.status,
                    by_gateway: answer.made_by_gateway(),
                    text: answer.text(),
                });
            }
        };
        wait::within(wait::SOON, case.name, all).await;
        self.judge(&case.expect, &got)
    }

    async fn h2(&mut self, case: &H2Case) -> Result<(), Fault> {
        let host = self.host();
        let section = |fields: Fields| {
            let text = |text: &str| {
                let text = text.replace("$U", &host.to_ascii_uppercase());
                bytes(
                    &text.replace("$N", &format!("{}.localhost", self.origin.name)),
                    &host,
                )
            };
            let lines: Vec<_> = fields.iter().map(|(n, v)| (text(n), text(v))).collect();
            frames::block(&lines)
        };
        let mut out = Vec::new();
        let last = case.data.len() + usize::from(case.trailers.is_some());
        let end = |at: usize| {
            if at == last && case.ends {
                END_STREAM
            } else {
                0
            }
        };
        let head = section(case.head);
        out.extend(frames::frame(kind::HEADERS, END_HEADERS | end(0), 1, &head));
        for (at, data) in case.data.iter().enumerate() {
            let data = bytes(data, &host);
            out.extend(frames::frame(kind::DATA, end(at + 1), 1, &data));
        }
        if let Some(trailers) = case.trailers {
            let block = section(trailers);
            out.extend(frames::frame(
                kind::HEADERS,
                END_HEADERS | end(last),
                1,
                &block,
            ));
        }
        let mut client = RawH2::connect(self.world.places.public, &[(1, 0)]).await;
        client.send(&out).await;
        if !case.ends && case.trailers.is_none() {
            // Nothing more will come: the client leaves in the middle.
            client.send(&frames::reset(1, 8)).await;
            client.send(&frames::frame(kind::PING, 0, 0, &[7; 8])).await;
        }
        let (got, reset) = wait::within(wait::SOON, case.name, stream_end(&mut client)).await;
        match case.expect {
            Expect::Reset if !reset => Err(format!("no stream error: {got:?}")),
            Expect::Refuse(_) if reset => Err("reset and not answered".to_owned()),
            _ => self.judge(&case.expect, got.as_slice()),
        }
    }
}

/// Reads until stream 1 (or the connection) has ended; gives what DATA said, and whether the end was
/// an error.
async fn stream_end(client: &mut RawH2) -> (Vec<Got>, bool) {
    let mut data = Vec::new();
    loop {
        let Some(frame) = client.next().await else {
            return (answers(&data, true), true);
        };
        match &frame {
            Frame {
                kind: kind::DATA,
                stream: 1,
                payload,
                ..
            } => data.extend_from_slice(payload),
            Frame {
                kind: kind::RST_STREAM,
                stream: 1,
                ..
            } if frame.code() != Some(0) => {
                return (answers(&data, true), true);
            }
            Frame {
                kind: kind::GOAWAY, ..
            } if frame.code() != Some(0) => {
                return (answers(&data, true), true);
            }
            // The answer to our own ping, behind a stream that we reset.
            Frame {
                kind: kind::PING,
                flags: 1,
                ..
            } => return (answers(&data, true), true),
            _ => {}
        }
        let ends = matches!(frame.kind, kind::DATA | kind::HEADERS);
        if ends && frame.stream == 1 && frame.flags & END_STREAM != 0 {
            return (answers(&data, false), false);
        }
    }
}

/// An answer by its body; its status stays in a compressed block, and is not looked at.
fn answers(data: &[u8], broken: bool) -> Vec<Got> {
    if broken && data.is_empty() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(data).into_owned();
    let by_gateway = text.contains("\"success\":false");
    let status = if Line::parse(&text).is_some() { 200 } else { 0 };
    vec![Got {
        status,
        by_gateway,
        text,
    }]
}

/// All cases at one origin, one after another.
async fn visit(world: &World, origin: &Origin) -> (Tally, Vec<Fault>) {
    let mut place = Place::new(world, origin);
    let mut faults = Vec::new();
    if let Err(fault) = place.settle().await {
        return (place.tally, vec![format!("{}: {fault}", origin.name)]);
    }
    let tables = [h1_framing::CASES, h1_heads::CASES, h1_valid::CASES];
    for case in tables.into_iter().flatten() {
        let done = place.h1(case).await;
        let told = place.close(done).await;
        faults.extend(told.map(|told| report(origin, "HTTP/1", case.name, case.rule, &told)));
    }
    for case in h2_cases::CASES {
        let done = place.h2(case).await;
        let told = place.close(done).await;
        faults.extend(told.map(|told| report(origin, "HTTP/2", case.name, case.rule, &told)));
    }
    (place.tally, faults)
}

fn report(origin: &Origin, front: &str, name: &str, rule: &str, fault: &str) -> Fault {
    format!("{} by {front}: {name}: {fault}\n    {rule}", origin.name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_smuggled_past_any_origin() {
    let _alone = ALONE.lock().await;
    let begun = std::time::Instant::now();
    let (origins, missing) = origins::all().await;
    for missing in &missing {
        skip("no_request_is_smuggled_past_any_origin", missing);
    }
    let mut setup = setup();
    for origin in &origins {
        setup = setup.app(origin.name, origin.settings);
    }
    let world = setup.start().await;
    let apps: Vec<(&str, &str)> = origins
        .iter()
        .map(|o| (o.name, o.target.as_str()))
        .collect();
    let _agent = world.join("a1", &apps).await;
    let visits = origins.iter().map(|origin| visit(&world, origin));
    let mut faults = Vec::new();
    for (origin, (tally, found)) in origins
        .iter()
        .zip(futures_util::future::join_all(visits).await)
    {
        println!(
            "{:>18}: {} cases, {} requests passed ({} answered by the server itself), {} faults",
            origin.name,
            tally.cases,
            tally.passed,
            tally.own_answers,
            found.len()
        );
        faults.extend(found);
    }
    println!("{} origins in {:.1?}", origins.len(), begun.elapsed());
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_the_gateway_did_not_forward_is_noticed() {
    let origin = origins::double().await;
    let world = setup().app(origin.name, "").start().await;
    let _agent = world.join("a1", &[(origin.name, &origin.target)]).await;
    let mut place = Place::new(&world, &origin);
    place.settle().await.expect("the first probe passes");
    place.settle().await.expect("and so does the second");
    let behind = origin.target.trim_start_matches("http://");
    let behind = behind.parse().expect("an address");
    client::ask(behind, "GET", "/smuggled", "double").await;
    let fault = place.settle().await.expect_err("the count is off by one");
    assert!(fault.starts_with("SMUGGLED"), "{fault}");
}

#[test]
fn every_case_has_a_name_of_its_own_and_a_sentence() {
    let h1 = [h1_framing::CASES, h1_heads::CASES, h1_valid::CASES];
    let h1 = h1
        .into_iter()
        .flatten()
        .map(|c| ("h1", c.name, c.rule, c.expect));
    let h2 = h2_cases::CASES
        .iter()
        .map(|c| ("h2", c.name, c.rule, c.expect));
    let (mut names, mut passing) = (std::collections::BTreeSet::new(), 0);
    for (front, name, rule, expect) in h1.chain(h2) {
        assert!(names.insert((front, name)), "{name} is there twice");
        assert!(
            rule.starts_with("RFC ") && rule.contains('\u{a7}') && rule.contains(": "),
            "{name}: {rule}"
        );
        passing += usize::from(matches!(expect, Expect::Pass(_)));
    }
    assert!(
        names.len() - passing >= 250 && passing >= 60,
        "{} and {passing}",
        names.len()
    );
}
