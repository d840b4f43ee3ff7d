//! Frames there and back, and frames that nobody honest sends.

use std::future::poll_fn;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

fn headers(pairs: &[(&str, &str)]) -> Headers {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn encoded(frames: &[Frame]) -> Vec<u8> {
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    frames.iter().for_each(|frame| encoder.encode(frame, &mut bytes));
    bytes
}

/// All frames of what comes in portions of `portion` bytes.
fn decoded(bytes: &[u8], portion: usize) -> Result<Vec<Frame>, SpdyError> {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    for portion in bytes.chunks(portion) {
        decoder.push(portion);
        while let Some(frame) = decoder.next_frame()? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// Joins the parts of one stream's data.
fn data_of(frames: &[Frame], wanted: StreamId) -> (Vec<u8>, bool) {
    let mut all = (Vec::new(), false);
    for frame in frames {
        if let Frame::Data { stream, fin, bytes } = frame
            && *stream == wanted
        {
            assert!(!all.1, "nothing comes after the end");
            all.0.extend(bytes);
            all.1 |= fin;
        }
    }
    all
}

#[test]
fn frames_survive_however_they_are_cut() {
    let stream = StreamId(0x7fff_ffff);
    let frames = [
        Frame::SynStream {
            stream: StreamId(1),
            fin: false,
            headers: headers(&[("streamtype", "error")]),
        },
        Frame::SynStream {
            stream,
            fin: true,
            headers: headers(&[("streamtype", "stdin"), ("x", "")]),
        },
        Frame::SynReply { stream, fin: false, headers: Headers::new() },
        Frame::Headers { stream, fin: true, headers: headers(&[("content-type", "é\0b")]) },
        Frame::RstStream { stream, status: 5 },
        Frame::Ping(u32::MAX),
        Frame::GoAway { last: 7, status: 1 },
        Frame::Data { stream: StreamId(3), fin: true, bytes: Vec::new() },
        Frame::Ping(2),
    ];
    let bytes = encoded(&frames);
    for portion in [1, 2, 7, 8, 9, 100, bytes.len()] {
        assert_eq!(decoded(&bytes, portion).unwrap(), frames, "in portions of {portion}");
    }
}

#[test]
fn long_data_is_handed_on_as_it_comes() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    let stream = StreamId(5);
    let sent = encoded(&[Frame::Data { stream, fin: true, bytes: bytes.clone() }]);
    let frames = decoded(&sent, 1_000).unwrap();
    assert!(frames.len() >= 100, "{} parts", frames.len());
    assert_eq!(data_of(&frames, stream), (bytes, true));
}

#[test]
fn header_blocks_build_on_each_other() {
    let block = headers(&[("streamtype", "a-name-that-no-dictionary-has")]);
    let frame = |n| Frame::SynStream { stream: StreamId(n), fin: false, headers: block.clone() };
    let (first, both) = (encoded(&[frame(1)]), encoded(&[frame(1), frame(3)]));
    assert!(both.len() - first.len() < first.len(), "the second is shorter");
    assert_eq!(decoded(&both, 10).unwrap(), [frame(1), frame(3)]);
    let large = headers(&[("x", &"random-ish ".repeat(5_000))]);
    let frame = Frame::Headers { stream: StreamId(1), fin: false, headers: large };
    assert_eq!(decoded(&encoded(std::slice::from_ref(&frame)), 4_096).unwrap(), [frame]);
}

fn control(kind: u16, length: usize, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).unwrap().to_be_bytes();
    [&[0x80, 3], &kind.to_be_bytes()[..], &[0], &length[1..], body].concat()
}

/// A SYN_REPLY for stream 1 with this as its block before it is packed.
fn reply_with(block: &[u8]) -> Vec<u8> {
    let mut state = flate2::Compress::new(flate2::Compression::best(), true);
    let mut packed = Vec::with_capacity(block.len() + 1_000);
    state.compress_vec(block, &mut packed, flate2::FlushCompress::Sync).unwrap();
    control(2, 4 + packed.len(), &[&[0, 0, 0, 1], &packed[..]].concat())
}

#[test]
fn what_cannot_be_is_refused() {
    let bad: [(&str, Vec<u8>); 16] = [
        ("version", vec![0x80, 2, 0, 1, 0, 0, 0, 10]),
        ("SYN_STREAM frame has 9", control(1, 9, &[1; 9])),
        ("SYN_REPLY frame has 3", control(2, 3, &[1; 3])),
        ("RST_STREAM frame has 4", control(3, 4, &[1; 4])),
        ("PING frame has 5", control(6, 5, &[1; 5])),
        ("GOAWAY frame has 9", control(7, 9, &[1; 9])),
        ("RST_STREAM frame names no", control(3, 8, &[0; 8])),
        ("DATA frame names no", vec![0, 0, 0, 0, 1, 0, 0, 0]),
        // Refused by its head alone: nothing of it is kept.
        ("HEADERS frame has 16777215", control(8, 0x00ff_ffff, &[])),
        ("not compressed", control(2, 8, &[0, 0, 0, 1, 9, 9, 9, 9])),
        ("cut short", control(2, 4, &[0, 0, 0, 1])),
        ("cut short", reply_with(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff])),
        ("cut short", reply_with(&[0xff; 4])),
        ("goes on", reply_with(&[0, 0, 0, 0, 0])),
        ("lower case", reply_with(&[0, 0, 0, 1, 0, 0, 0, 1, b'A', 0, 0, 0, 0])),
        // Sixteen mebibytes in sixteen kibibytes.
        ("too large", reply_with(&vec![0; 16 << 20])),
    ];
    for (needle, bytes) in bad {
        let error = decoded(&bytes, 64 << 10).expect_err(needle).to_string();
        assert!(error.contains(needle), "{error} does not speak of {needle}");
    }
}

#[test]
fn frames_that_change_nothing_are_passed_over() {
    let settings = control(4, 12, &[0; 12]);
    let window = control(9, 8, &[1; 8]);
    let unknown = control(77, 1 << 20, &vec![1; 1 << 20]);
    let bytes = [settings, window, unknown, encoded(&[Frame::Ping(4)])].concat();
    for portion in [5, 10_000] {
        assert_eq!(decoded(&bytes, portion).unwrap(), [Frame::Ping(4)]);
    }
}

proptest! {
    #[test]
    fn nothing_sent_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), portion in 1_usize..300) {
        let _ = decoded(&bytes, portion);
    }

    #[test]
    fn no_frame_spoilt_makes_it_panic(at in 0_usize..200, to: u8, portion in 1_usize..100) {
        let block = headers(&[("streamtype", "stdin"), ("port", "80")]);
        let mut bytes = encoded(&[
            Frame::SynStream { stream: StreamId(1), fin: false, headers: block.clone() },
            Frame::Data { stream: StreamId(1), fin: false, bytes: vec![7; 40] },
            Frame::SynReply { stream: StreamId(1), fin: true, headers: block },
            Frame::GoAway { last: 1, status: 0 },
        ]);
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = decoded(&bytes, portion);
    }
}

async fn next(connection: &mut Connection<DuplexStream>) -> Result<Option<Event>, SpdyError> {
    poll_fn(|context| connection.poll_event(context)).await
}

#[tokio::test]
async fn either_side_opens_streams_and_answers_pings() {
    let (one, other) = duplex(64);
    let mut client = Connection::new(one, Side::Client, &[]);
    let mut server = Connection::new(other, Side::Server, &[]);
    assert_eq!(
        [client.open(Headers::new()), client.open(Headers::new())],
        [StreamId(1), StreamId(3)]
    );
    assert_eq!(server.open(Headers::new()), StreamId(2));
    client.queue(&Frame::Ping(1));
    let serving = async {
        let mut seen = Vec::new();
        while let Some(event) = next(&mut server).await.unwrap() {
            seen.push(event);
        }
        seen
    };
    let asking = async move {
        let mut seen = Vec::new();
        // The ping goes out with the streams; its answer is nobody's concern.
        while seen.len() < 2 {
            seen.extend(next(&mut client).await.unwrap());
        }
        seen
    };
    let (seen, answered) = tokio::join!(serving, asking);
    let syn = |n| {
        Event::Frame(Frame::SynStream { stream: StreamId(n), fin: false, headers: Headers::new() })
    };
    assert!(answered.contains(&syn(2)) && answered.contains(&Event::Drained), "{answered:?}");
    assert!(seen.contains(&syn(1)) && seen.contains(&syn(3)), "{seen:?}");
}

#[tokio::test]
async fn pings_come_back() {
    let (one, mut other) = duplex(1_000);
    let mut client = Connection::new(one, Side::Client, &[]);
    let ping = encoded(&[Frame::Ping(2)]);
    other.write_all(&ping).await.unwrap();
    assert_eq!(next(&mut client).await.unwrap(), Some(Event::Drained));
    let mut back = vec![0; ping.len()];
    other.read_exact(&mut back).await.unwrap();
    assert_eq!(back, ping);
}

#[tokio::test]
async fn a_flood_of_pings_ends_the_connection() {
    let (one, mut other) = duplex(4_096);
    let mut client = Connection::new(one, Side::Client, &[]);
    let pings = encoded(&[Frame::Ping(2)]).repeat(100_000);
    let flood = async {
        // It fails when the connection is given up.
        let _ = other.write_all(&pings).await;
    };
    let error = async {
        loop {
            match next(&mut client).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it was let through"),
                Err(error) => break error,
            }
        }
    };
    let error = tokio::select! { error = error => error, () = flood => panic!("it was taken") };
    assert!(matches!(error, SpdyError::Flooded), "{error}");
}
