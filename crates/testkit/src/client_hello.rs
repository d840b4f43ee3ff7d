//! The first words of a TLS client that no library would say any more.
//!
//! To see what a server makes of weak suites and old versions: TLS 1.2 and before, so
//! that what is chosen can be read in the answer. RFC 5246, section 7.4.1.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How long the answer may take.
const LIMIT: Duration = Duration::from_secs(30);
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;

/// What a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It goes on, with this suite.
    Chosen(u16),
    /// It refuses, for the reason of this number: 40 if no suite suits it, 70 if the
    /// version does not.
    Refused(u8),
}

/// Says hello with this version (`0x0303` is TLS 1.2) and these suites.
pub fn say(port: u16, version: u16, suites: &[u16]) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&hello(version, suites))?;
    let mut head = [0; 5];
    stream.read_exact(&mut head).context("no answer")?;
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut body).context("half an answer")?;
    match (head[0], body.as_slice()) {
        (ALERT, [_, reason, ..]) => Ok(Answer::Refused(*reason)),
        (HANDSHAKE, [SERVER_HELLO, ..]) => {
            // Kind and length, version, random; then the session's id before the suite.
            let session = usize::from(*body.get(38).context("too short")?);
            let suite = body.get(39 + session..41 + session).context("too short")?;
            Ok(Answer::Chosen(u16::from_be_bytes([suite[0], suite[1]])))
        }
        (kind, body) => bail!("a record of kind {kind}: {body:?}"),
    }
}

fn hello(version: u16, suites: &[u16]) -> Vec<u8> {
    let numbers = |all: &[u16]| all.iter().flat_map(|one| one.to_be_bytes()).collect::<Vec<u8>>();
    let extension = |kind: u16, body: Vec<u8>| [&kind.to_be_bytes()[..], &sized(&body)].concat();
    let extensions = [
        // Groups, forms of points, and signatures that everybody knows.
        extension(10, sized(&numbers(&[0x001d, 0x0017, 0x0018]))),
        extension(11, vec![1, 0]),
        extension(13, sized(&numbers(&[0x0403, 0x0503, 0x0804, 0x0401, 0x0807]))),
    ];
    let body = [
        &version.to_be_bytes()[..],
        &[7; 32],
        &[0],
        &sized(&numbers(suites)),
        &[1, 0],
        &sized(&extensions.concat()),
    ];
    let handshake = [&[1, 0][..], &sized(&body.concat())].concat();
    [&[HANDSHAKE, 3, 1][..], &sized(&handshake)].concat()
}

/// With its length in two bytes before it.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a hello is short");
    [&length.to_be_bytes()[..], bytes].concat()
}
