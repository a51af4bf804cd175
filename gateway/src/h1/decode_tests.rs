//! Bodies: the same bytes give the same body however they are divided, and broken framing never ends.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::super::encode;
use super::*;

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    end: Result<bool, BodyError>,
    rest: Vec<u8>,
}

/// Feed `wire` in pieces that end at `cuts`, then the end of the stream if `eof`.
fn run(mut decoder: BodyDecoder, wire: &[u8], cuts: &[usize], eof: bool) -> Outcome {
    let mut outcome = Outcome {
        body: Vec::new(),
        trailers: None,
        end: Ok(false),
        rest: Vec::new(),
    };
    let mut ends: Vec<usize> = cuts.iter().map(|c| c % (wire.len() + 1)).collect();
    ends.push(wire.len());
    ends.sort_unstable();
    let mut buf = BytesMut::new();
    let mut fed = 0;
    for end in ends {
        buf.extend_from_slice(&wire[fed..end]);
        fed = end;
        while outcome.end == Ok(false) {
            match decoder.decode(&mut buf) {
                Ok(Some(Decoded::Data(data))) => outcome.body.extend_from_slice(&data),
                Ok(Some(Decoded::Trailers(map))) => outcome.trailers = Some(map),
                Ok(Some(Decoded::End)) => outcome.end = Ok(true),
                Ok(None) => break,
                Err(error) => outcome.end = Err(error),
            }
        }
    }
    if eof && outcome.end == Ok(false) {
        outcome.end = decoder.decode_eof().map(|_| true);
    }
    outcome.rest = buf.to_vec();
    outcome
}

fn chunked(wire: &[u8]) -> Outcome {
    run(BodyDecoder::request(BodyLength::Streamed), wire, &[], true)
}

#[test]
fn a_body_with_a_length_ends_at_its_length() {
    let decoder = BodyDecoder::request(BodyLength::Exact(5));
    let outcome = run(decoder, b"helloNEXT", &[2, 5], false);
    assert_eq!(outcome.body, b"hello");
    assert_eq!(outcome.end, Ok(true));
    assert_eq!(outcome.rest, b"NEXT");
}

#[test]
fn a_body_short_of_its_length_never_ends() {
    let decoder = BodyDecoder::request(BodyLength::Exact(5));
    assert_eq!(run(decoder, b"hell", &[], true).end, Err(BodyError::Short));
}

#[test]
fn no_body_and_a_zero_length_end_at_once() {
    for length in [BodyLength::None, BodyLength::Exact(0)] {
        let outcome = run(BodyDecoder::request(length), b"NEXT", &[], false);
        assert_eq!((outcome.end, outcome.rest), (Ok(true), b"NEXT".to_vec()));
    }
}

#[test]
fn a_body_until_close_ends_with_the_connection() {
    let decoder = BodyDecoder::response(ResponseFraming::UntilClose);
    let outcome = run(decoder, b"abc", &[1], true);
    assert_eq!((outcome.body, outcome.end), (b"abc".to_vec(), Ok(true)));
}

#[test]
fn a_chunked_body_carries_its_trailers() {
    let outcome = chunked(b"3\r\nabc\r\n0\r\nX-Sum: 7\r\nContent-Length: 9\r\n\r\nNEXT");
    assert_eq!(outcome.body, b"abc");
    let trailers = outcome.trailers.unwrap();
    assert_eq!(trailers.len(), 1);
    assert_eq!(trailers["x-sum"], "7");
    assert_eq!(outcome.end, Ok(true));
    assert_eq!(outcome.rest, b"NEXT");
}

#[test]
fn a_malformed_chunk_never_leads_to_an_end() {
    use BodyError::{ChunkEnd, ChunkExtension, ChunkSize, Short};
    let cases: &[(&[u8], BodyError)] = &[
        (b"\r\nabc\r\n0\r\n\r\n", ChunkSize),
        (b"g\r\n", ChunkSize),
        (b"+3\r\nabc\r\n0\r\n\r\n", ChunkSize),
        (b"-3\r\nabc\r\n0\r\n\r\n", ChunkSize),
        (b"0x3\r\nabc\r\n0\r\n\r\n", ChunkSize),
        (b" 3\r\nabc\r\n0\r\n\r\n", ChunkSize),
        (b"3 \r\nabc\r\n0\r\n\r\n", ChunkSize),
        (b"3\nabc\r\n0\r\n\r\n", ChunkSize),
        (b"3\rXabc\r\n0\r\n\r\n", ChunkSize),
        (b"00000000000000003\r\nabc\r\n0\r\n\r\n", ChunkSize),
        (b"10000000000000000\r\n", ChunkSize),
        (b"3;a=b\r\nabc\r\n0\r\n\r\n", ChunkExtension),
        (b"0;a\r\n\r\n", ChunkExtension),
        (b"3\r\nabcd\r\n0\r\n\r\n", ChunkEnd),
        (b"3\r\nabc\n0\r\n\r\n", ChunkEnd),
        (b"3\r\nabc0\r\n\r\n", ChunkEnd),
        (b"3\r\nabc\r\n", Short),
        (b"3\r\nabc\r\n0\r\n", Short),
        (b"3\r\nab", Short),
        (b"", Short),
        (
            b"0\r\nx: a\nb: c\r\n\r\n",
            BodyError::Trailers(HeadError::BareLf),
        ),
        (
            b"0\r\nnocolon\r\n\r\n",
            BodyError::Trailers(HeadError::FieldName),
        ),
        (
            b"0\r\n x: y\r\n\r\n",
            BodyError::Trailers(HeadError::Folding),
        ),
    ];
    for (wire, error) in cases {
        let text = String::from_utf8_lossy(wire);
        assert_eq!(chunked(wire).end, Err(*error), "{text:?}");
    }
}

#[test]
fn an_error_is_repeated() {
    let mut decoder = BodyDecoder::request(BodyLength::Streamed);
    let mut buf = BytesMut::from(&b"zz\r\n"[..]);
    assert_eq!(decoder.decode(&mut buf), Err(BodyError::ChunkSize));
    let mut good = BytesMut::from(&b"0\r\n\r\n"[..]);
    assert_eq!(decoder.decode(&mut good), Err(BodyError::ChunkSize));
    assert_eq!(decoder.decode_eof(), Err(BodyError::ChunkSize));
}

#[test]
fn the_trailer_section_is_bounded() {
    let many = format!("0\r\n{}\r\n", "x: y\r\n".repeat(33));
    let end = chunked(many.as_bytes()).end;
    assert_eq!(end, Err(BodyError::Trailers(HeadError::TooManyFields)));
    let large = format!("0\r\nx: {}\r\n\r\n", "y".repeat(9000));
    let end = chunked(large.as_bytes()).end;
    assert_eq!(end, Err(BodyError::Trailers(HeadError::TooLarge)));
}

#[test]
fn extensions_of_an_app_are_skipped_within_a_bound() {
    let app = |wire: &[u8]| {
        run(
            BodyDecoder::response(ResponseFraming::Chunked),
            wire,
            &[],
            true,
        )
    };
    let outcome = app(b"3;a=\"b\"\r\nabc\r\n0 ;x\r\n\r\n");
    assert_eq!((outcome.body, outcome.end), (b"abc".to_vec(), Ok(true)));
    let long = format!("3;{}\r\nabc\r\n0\r\n\r\n", "a".repeat(2000));
    assert_eq!(app(long.as_bytes()).end, Err(BodyError::ChunkExtension));
    assert_eq!(
        app(b"3;a\nabc\r\n0\r\n\r\n").end,
        Err(BodyError::ChunkExtension)
    );
}

fn encoded(pieces: &[Vec<u8>], trailer: Option<&'static str>) -> BytesMut {
    let mut wire = BytesMut::new();
    for piece in pieces {
        encode::chunk_header(&mut wire, piece.len());
        wire.extend_from_slice(piece);
        encode::chunk_end(&mut wire, piece.len());
    }
    match trailer {
        None => encode::last_chunk(&mut wire),
        Some(value) => {
            let mut map = HeaderMap::new();
            map.insert("x-sum", http::HeaderValue::from_static(value));
            encode::last_chunk_with(&mut wire, &map);
        }
    }
    wire
}

proptest! {
    #[test]
    fn any_division_of_a_chunked_body_gives_the_same_body(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6),
        with_trailer in any::<bool>(),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut wire = encoded(&pieces, with_trailer.then_some("7"));
        wire.extend_from_slice(b"GET / ");
        let outcome = run(BodyDecoder::request(BodyLength::Streamed), &wire, &cuts, false);
        prop_assert_eq!(outcome.body, pieces.concat());
        prop_assert_eq!(outcome.trailers.is_some(), with_trailer);
        prop_assert_eq!(outcome.end, Ok(true));
        prop_assert_eq!(outcome.rest, b"GET / ".to_vec());
    }

    #[test]
    fn any_bytes_give_the_same_outcome_however_they_are_divided(
        wire in proptest::collection::vec(prop_oneof![
            Just(b'0'), Just(b'3'), Just(b'\r'), Just(b'\n'), Just(b';'), Just(b' '), Just(b'a'), Just(b':'), any::<u8>()
        ], 0..60),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
        app in any::<bool>(),
    ) {
        let decoder = match app {
            true => BodyDecoder::response(ResponseFraming::Chunked),
            false => BodyDecoder::request(BodyLength::Streamed),
        };
        let whole = run(decoder.clone(), &wire, &[], true);
        let divided = run(decoder, &wire, &cuts, true);
        prop_assert_eq!(&whole.body, &divided.body);
        prop_assert_eq!(whole.end, divided.end);
    }
}
