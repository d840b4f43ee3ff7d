//! A way to the runtime that takes down which containers it is asked to make.
//!
//! Owns a socket and the threads that pass bytes on. A runtime forgets what it
//! does not know; this shows what it was sent. Reads frames of HTTP/2 and the
//! messages in them, but no headers: only a request to make a container has one
//! in the place where that has it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use cri::v1;
use prost::Message;

/// What each client of HTTP/2 says first.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Length, type, flags, stream.
const FRAME_HEAD: usize = 9;
/// Compression and length, before each message.
const MESSAGE_HEAD: usize = 5;

/// The recorder. Connections end with their peers.
#[derive(Debug, Clone)]
pub struct CriRecorder {
    socket: PathBuf,
    made: Arc<Mutex<Vec<v1::ContainerConfig>>>,
}

impl CriRecorder {
    /// Listens beside the runtime's socket and passes on what comes.
    pub fn start(runtime: &Path) -> Result<Self> {
        let socket = runtime.with_extension("recorder.sock");
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let recorder = Self { socket, made: Arc::default() };
        let (own, runtime) = (recorder.clone(), runtime.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&runtime)) else {
                    continue;
                };
                own.pass(client, server);
            }
        });
        Ok(recorder)
    }

    /// Where it listens, as a kubelet's configuration says it.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// The last configuration sent for a container of a pod's, by both their names.
    pub fn sent(&self, pod: &str, container: &str) -> Option<v1::ContainerConfig> {
        let made = self.made.lock().expect("nobody panics while holding it");
        let label = |config: &v1::ContainerConfig, key: &str, wanted: &str| {
            config.labels.get(key).is_some_and(|found| found == wanted)
        };
        let mut newest = made.iter().rev();
        let found = newest.find(|config| {
            label(config, "io.kubernetes.pod.name", pod)
                && label(config, "io.kubernetes.container.name", container)
        });
        found.cloned()
    }

    fn pass(&self, client: UnixStream, server: UnixStream) {
        let (Ok(mut back), Ok(mut answers)) = (client.try_clone(), server.try_clone()) else {
            return;
        };
        std::thread::spawn(move || {
            // Either end may go away; then so does the other.
            let _ = std::io::copy(&mut answers, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        let own = self.clone();
        std::thread::spawn(move || own.listen(client, server));
    }

    fn listen(&self, mut client: UnixStream, mut server: UnixStream) {
        let (mut buffer, mut frames) = (vec![0; 64 * 1024], Frames::default());
        while let Ok(size @ 1..) = client.read(&mut buffer) {
            // Taken down first: who has its answer finds its question here.
            let requests = frames.feed(&buffer[..size]);
            let made = requests.into_iter().filter_map(|request| request.config);
            self.made.lock().expect("nobody panics while holding it").extend(made);
            if server.write_all(&buffer[..size]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }
}

/// What a client sent, cut into frames.
#[derive(Default)]
struct Frames {
    greeted: bool,
    rest: Vec<u8>,
    /// Data of each stream.
    streams: BTreeMap<u32, Vec<u8>>,
}

impl Frames {
    /// More bytes; returns the requests to make a container that end in them.
    fn feed(&mut self, bytes: &[u8]) -> Vec<v1::CreateContainerRequest> {
        self.rest.extend_from_slice(bytes);
        if !self.greeted {
            if self.rest.len() < PREFACE {
                return Vec::new();
            }
            self.rest.drain(..PREFACE);
            self.greeted = true;
        }
        let mut found = Vec::new();
        while self.rest.len() >= FRAME_HEAD {
            let head = &self.rest[..FRAME_HEAD];
            let size =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
            if self.rest.len() < FRAME_HEAD + size {
                break;
            }
            let frame: Vec<u8> = self.rest.drain(..FRAME_HEAD + size).collect();
            // Data without padding: nobody here pads.
            if kind == 0 && flags & 0x8 == 0 {
                self.streams.entry(stream).or_default().extend_from_slice(&frame[FRAME_HEAD..]);
                if flags & 0x1 != 0 {
                    let data = self.streams.remove(&stream).unwrap_or_default();
                    found.extend(request(&data));
                }
            }
        }
        found
    }
}

/// The message of a stream, if it asks for a container to be made.
fn request(data: &[u8]) -> Option<v1::CreateContainerRequest> {
    let request = v1::CreateContainerRequest::decode(data.get(MESSAGE_HEAD..)?).ok()?;
    let named = request.config.as_ref().is_some_and(|config| config.metadata.is_some());
    (named && request.sandbox_config.is_some()).then_some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_however_they_are_cut() {
        let wanted = v1::CreateContainerRequest {
            pod_sandbox_id: "s".to_owned(),
            config: Some(v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 1 }),
                ..Default::default()
            }),
            sandbox_config: Some(v1::PodSandboxConfig::default()),
        };
        let message = wanted.encode_to_vec();
        let frame = |kind: u8, flags: u8, data: &[u8]| {
            let size = u8::try_from(data.len()).unwrap();
            [&[0, 0, size, kind, flags, 0, 0, 0, 5], data].concat()
        };
        let mut data = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
        data.extend_from_slice(&message);
        let bytes = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(1, 4, b"headers"),
            frame(0, 0, &data[..7]),
            frame(0, 1, &data[7..]),
        ]
        .concat();
        let mut frames = Frames::default();
        let found: Vec<_> = bytes.chunks(3).flat_map(|chunk| frames.feed(chunk)).collect();
        assert_eq!(found, [wanted]);
    }
}
