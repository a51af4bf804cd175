//! The HTTP/2 conformance cases of `httpwg` against the gateway's front, with a real app behind it.
//!
//! A case that fails is mended or stands in [`ARGUED`] with the sentence of RFC 9113 that decides it; one
//! that stands there and passes has to be struck out.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use bridgehead_tests::port;
use bridgehead_tests::process;
use bridgehead_tests::world::setup;

use crate::setup::{behind, httpwg, needs, node};

/// Cases of the suite; a smaller number means that its output is not understood any more.
const CASES: usize = 107;

/// A failure that is no fault of the gateway's own code.
struct Argued {
    /// The suite's name for it, without the RFC.
    case: &'static str,
    /// Section of RFC 9113.
    section: &'static str,
    /// Its sentence, as far as it decides the case.
    sentence: &'static str,
    /// What the gateway does, and why it stays so.
    why: &'static str,
}

/// The frame layer belongs to the `h2` library, which ends the connection for all of these, as it must,
/// but with its general code. No client acts on the difference: the connection is gone either way, and
/// the requests that were under way end in the same manner. `h2` has no place to name another code.
const GENERAL_CODE: &str =
    "the connection ends with GOAWAY(PROTOCOL_ERROR), the general code for the particular one";

/// A stream error that is treated as a connection error.
const WHOLE_CONNECTION: &str = "an endpoint MAY choose to treat a stream error as a connection error (§5.4.1); \
                                here too the code is the general one";

const ARGUED: &[Argued] = &[
    Argued {
        case: "4. http frames :: invalid header block fragment",
        section: "4.3",
        sentence: "A decoding error in a field block MUST be treated as a connection error of type COMPRESSION_ERROR.",
        why: GENERAL_CODE,
    },
    Argued {
        case: "5. streams and multiplexing :: closed sends headers frame",
        section: "5.1.1",
        sentence: "An endpoint that receives an unexpected stream identifier MUST respond with a connection error of type PROTOCOL_ERROR.",
        why: "the suite wants STREAM_CLOSED (§5.1); a head for an identifier that was used breaks this rule as well, and its code is given",
    },
    Argued {
        case: "5. streams and multiplexing :: closed sends headers frame after rst stream",
        section: "5.1.1",
        sentence: "An endpoint that receives an unexpected stream identifier MUST respond with a connection error of type PROTOCOL_ERROR.",
        why: "as above, for a stream that its client has reset",
    },
    Argued {
        case: "5. streams and multiplexing :: half closed remote sends headers frame",
        section: "5.1",
        sentence: "If an endpoint receives additional frames, other than WINDOW_UPDATE, PRIORITY, or RST_STREAM, for a stream that is in this state, it MUST respond with a stream error of type STREAM_CLOSED.",
        why: WHOLE_CONNECTION,
    },
    Argued {
        case: "5. streams and multiplexing :: half closed remote sends data frame",
        section: "5.1",
        sentence: "If an endpoint receives additional frames, other than WINDOW_UPDATE, PRIORITY, or RST_STREAM, for a stream that is in this state, it MUST respond with a stream error of type STREAM_CLOSED.",
        why: WHOLE_CONNECTION,
    },
    Argued {
        case: "6. frame definitions :: sends data frame on invalid stream state",
        section: "6.1",
        sentence: "If a DATA frame is received whose stream is not in the \"open\" or \"half-closed (local)\" state, the recipient MUST respond with a stream error of type STREAM_CLOSED.",
        why: WHOLE_CONNECTION,
    },
    Argued {
        case: "6. frame definitions :: sends priority frame with invalid length",
        section: "6.3",
        sentence: "A PRIORITY frame with a length other than 5 octets MUST be treated as a stream error of type FRAME_SIZE_ERROR.",
        why: WHOLE_CONNECTION,
    },
    Argued {
        case: "6. frame definitions :: sends rst stream frame with invalid length",
        section: "6.4",
        sentence: "A RST_STREAM frame with a length other than 4 octets MUST be treated as a connection error of type FRAME_SIZE_ERROR.",
        why: GENERAL_CODE,
    },
    Argued {
        case: "6. frame definitions :: sends settings frame with ack and payload",
        section: "6.5",
        sentence: "Receipt of a SETTINGS frame with the ACK flag set and a length field value other than 0 MUST be treated as a connection error of type FRAME_SIZE_ERROR.",
        why: GENERAL_CODE,
    },
    Argued {
        case: "6. frame definitions :: sends settings frame with invalid length",
        section: "6.5",
        sentence: "A SETTINGS frame with a length other than a multiple of 6 octets MUST be treated as a connection error of type FRAME_SIZE_ERROR.",
        why: GENERAL_CODE,
    },
    Argued {
        case: "6. frame definitions :: sends settings initial window size with exceeded max window size value",
        section: "6.5.2",
        sentence: "Values above the maximum flow-control window size of 2^31-1 MUST be treated as a connection error of type FLOW_CONTROL_ERROR.",
        why: GENERAL_CODE,
    },
    Argued {
        case: "6. frame definitions :: sends settings initial window size with invalid value",
        section: "6.5.2",
        sentence: "Values above the maximum flow-control window size of 2^31-1 MUST be treated as a connection error of type FLOW_CONTROL_ERROR.",
        why: GENERAL_CODE,
    },
    Argued {
        case: "6. frame definitions :: sends ping frame with invalid length",
        section: "6.7",
        sentence: "Receipt of a PING frame with a length field value other than 8 MUST be treated as a connection error of type FRAME_SIZE_ERROR.",
        why: GENERAL_CODE,
    },
    Argued {
        case: "6. frame definitions :: sends window update frame with invalid length",
        section: "6.9",
        sentence: "A WINDOW_UPDATE frame with a length other than 4 octets MUST be treated as a connection error of type FRAME_SIZE_ERROR.",
        why: GENERAL_CODE,
    },
    Argued {
        case: "8. expressing http semantics in http2 :: sends headers frame with pseudo header in trailer",
        section: "8.1",
        sentence: "Pseudo-header fields MUST NOT appear in a trailer section.",
        why: "`h2` drops them without a word before anybody can see them, so the gateway cannot refuse the request; none is forwarded, and the app gets what it would have got without them",
    },
];

/// Cases whose end the suite's own timing decides, so that either is taken.
const UNDECIDED: &[Argued] = &[
    Argued {
        case: "7. error codes :: sends goaway frame with unknown error code",
        section: "7",
        sentence: "Unknown or unsupported error codes [...] MAY be treated by an implementation as being equivalent to INTERNAL_ERROR.",
        why: "a client that says GOAWAY with an error closes next (§5.4.1), so `h2` ends the connection; the suite's PING is answered if it came in the same read",
    },
    Argued {
        case: "8. expressing http semantics in http2 :: client sends push promise frame",
        section: "8.4",
        sentence: "servers MUST treat the receipt of a PUSH_PROMISE frame as a connection error of type PROTOCOL_ERROR.",
        why: "the suite's frame has no END_HEADERS, so `h2` awaits the rest of its block and the gateway cuts the connection half a minute later, when a ping is not answered; before, two timers of the suite run out together, and one of them counts as a pass",
    },
];

/// Names of the cases that ran, and of those that passed.
fn read(said: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let named = |word: &'static str| {
        said.lines()
            .filter_map(move |line| line.split_once(word)?.1.split_once(" :: "))
            .map(|(_rfc, case)| case)
            .collect()
    };
    (named("Running test: "), named("Test passed: "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_http2_conformance_case_passes_but_those_that_are_argued() {
    let folder = needs!(node());
    let httpwg = needs!(httpwg());
    let port = port::free();
    let args = [port.to_string()];
    let app = crate::node::script(&folder, "express_app.mjs", &[&args[0]]);
    // The suite asks every server for `localhost`.
    let setup = setup()
        .own_hosts(&["gw.localhost"])
        .app("demo", "hosts = [\"localhost\"]");
    let real = behind(setup, needs!(app), port, "http").await;
    let mut command = Command::new(httpwg);
    command
        .args([
            "--verbose",
            "--frame-timeout",
            "5000",
            "--connect-timeout",
            "5000",
        ])
        .arg("--address")
        .arg(real.world.places.public.to_string())
        // One after the other, and no backtraces of what fails: they take longer than the suite waits.
        .envs([("SEQUENTIAL", "1"), ("RUST_LOG", "off"), ("NO_COLOR", "1")])
        .envs([("RUST_BACKTRACE", "0"), ("RUST_LIB_BACKTRACE", "0")]);
    // It exits with 1 if any case failed; which ones is in its output.
    let said = process::run_to_end("httpwg", command, Duration::from_secs(240)).stderr;
    let (run, passed) = read(&said);
    assert_eq!(run.len(), CASES, "the suite's output changed: {said}");
    let decided = |case: &&str| UNDECIDED.iter().all(|u| u.case != *case);
    let failed: BTreeSet<&str> = run.difference(&passed).copied().filter(decided).collect();
    let argued: BTreeSet<&str> = ARGUED.iter().map(|a| a.case).collect();
    for undecided in UNDECIDED {
        assert!(
            run.contains(undecided.case),
            "{} is no case",
            undecided.case
        );
    }
    let unsaid: Vec<_> = failed.difference(&argued).collect();
    assert!(
        unsaid.is_empty(),
        "{unsaid:?} fail, and nothing is said for them:\n{said}"
    );
    let passing = |a: &&Argued| !failed.contains(a.case);
    if let Some(Argued {
        case,
        section,
        sentence,
        why,
    }) = ARGUED.iter().find(passing)
    {
        panic!("{case} passes, so strike it out (RFC 9113 §{section}: {sentence} {why})");
    }
}
