//! A registry of one's own on loopback, and images pushed to it.
//!
//! Owns the process and its directory. Talks the distribution API by itself,
//! so that no image tool is needed. Containerd takes a registry on loopback for
//! one without TLS.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::host;
use crate::image::Image;
use crate::klet::reserve_port;
use crate::process::{self, Process};
use crate::wait::eventually;

/// How long the registry may take to answer.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The one user of a registry that wants a login.
pub const USER: &str = "klet";
/// The user's password.
pub const PASSWORD: &str = "s3same";
/// User and password as HTTP and docker configurations write them.
pub const LOGIN_BASE64: &str = "a2xldDpzM3NhbWU=";
/// The password as the registry keeps it: bcrypt, which it insists on.
const PASSWORD_HASH: &str = "$2y$05$kletkletkletkletkletkOCL4WA8QZ1QkBTqLSHWdGRasdZRic4I.";

/// A registry.
#[derive(Debug)]
pub struct Registry {
    process: Process,
    port: u16,
    log: PathBuf,
}

impl Registry {
    /// Starts one below `dir`. With `login`, only [`USER`] may read and write.
    pub fn start(dir: &Path, login: bool) -> Result<Self> {
        let program = host::program("docker-registry", "docker-registry")?;
        let dir = dir.join("registry");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let (listener, port) = reserve_port(0)?;
        let users = dir.join("users");
        let mut config = json!({
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": dir.join("data")}},
            "http": {"addr": format!("127.0.0.1:{port}")},
        });
        if login {
            config["auth"] = json!({"htpasswd": {"realm": "klet", "path": users}});
        }
        let path = dir.join("config.yml");
        fs::write(&users, format!("{USER}:{PASSWORD_HASH}\n"))
            .and_then(|()| fs::write(&path, format!("{config:#}\n")))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let log = dir.join("registry.log");
        drop(listener);
        let mut command = Command::new(program);
        let process = Process::spawn("registry", command.arg("serve").arg(&path), &log)?;
        let mut registry = Self { process, port, log };
        registry.wait_ready()?;
        Ok(registry)
    }

    fn wait_ready(&mut self) -> Result<()> {
        eventually(START_LIMIT, "the registry to answer", || {
            self.process.check_alive()?;
            let answer = send(self.port, "GET", "/v2/", "", &[])?;
            ensure!(answer.status == 200, "it answers {}", answer.status);
            Ok(())
        })
    }

    /// Host and port, as image names begin.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Pushes an image under `repository:tag`; returns its full name.
    pub fn push(&self, image: &Image, repository: &str, tag: &str) -> Result<String> {
        let archive = self.log.with_file_name(format!("push-{tag}.tar"));
        image.write(&archive)?;
        let files = unpack(&archive)?;
        fs::remove_file(&archive).context("cannot remove the archive")?;
        self.push_files(&files, repository, tag)?;
        Ok(format!("{}/{repository}:{tag}", self.host()))
    }

    /// Pushes the image of an OCI archive under its own name, without the host of that;
    /// returns the host.
    pub fn push_archive(&self, archive: &Path) -> Result<String> {
        let files = unpack(archive)?;
        let index: Value = serde_json::from_slice(&files["index.json"]).context("bad index")?;
        let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
        let name = name.as_str().context("the archive does not name its image")?;
        let (host, path) = name.split_once('/').context("the image's name has no host")?;
        let (repository, tag) = path.rsplit_once(':').context("the image's name has no tag")?;
        self.push_files(&files, repository, tag)?;
        Ok(host.to_owned())
    }

    fn push_files(
        &self,
        files: &BTreeMap<String, Vec<u8>>,
        repository: &str,
        tag: &str,
    ) -> Result<()> {
        let blob = |digest: &Value| {
            let path = digest.as_str().unwrap_or_default().replace(':', "/");
            files.get(&format!("blobs/{path}")).context("the archive lacks a blob")
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).context("bad index")?;
        let manifest = blob(&index["manifests"][0]["digest"])?;
        let parts: Value = serde_json::from_slice(manifest).context("bad manifest")?;
        let layers = parts["layers"].as_array().into_iter().flatten();
        for part in layers.chain([&parts["config"]]) {
            self.push_blob(
                repository,
                part["digest"].as_str().unwrap_or_default(),
                blob(&part["digest"])?,
            )?;
        }
        let kind = parts["mediaType"].as_str().unwrap_or_default();
        let path = format!("/v2/{repository}/manifests/{tag}");
        let answer = send(self.port, "PUT", &path, kind, manifest)?;
        ensure!(answer.status == 201, "PUT {path} answered {}", answer.status);
        Ok(())
    }

    fn push_blob(&self, repository: &str, digest: &str, content: &[u8]) -> Result<()> {
        let begun = send(self.port, "POST", &format!("/v2/{repository}/blobs/uploads/"), "", &[])?;
        ensure!(begun.status == 202, "an upload answered {}", begun.status);
        let location = begun.location.context("an upload has no location")?;
        let path = location.strip_prefix(&format!("http://{}", self.host())).unwrap_or(&location);
        let path = format!("{path}&digest={digest}");
        let ended = send(self.port, "PUT", &path, "application/octet-stream", content)?;
        ensure!(ended.status == 201, "PUT {path} answered {}", ended.status);
        Ok(())
    }

    /// How often somebody looked for that tag: once per pull.
    pub fn looks(&self, repository: &str, tag: &str) -> Result<usize> {
        let log = fs::read_to_string(&self.log).context("cannot read the registry's log")?;
        let wanted = format!("\"HEAD /v2/{repository}/manifests/{tag} ");
        Ok(log.lines().filter(|line| line.contains(&wanted)).count())
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        process::tail(&self.log, 40)
    }
}

fn unpack(archive: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let file = fs::File::open(archive).context("cannot open the archive")?;
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(file).entries().context("cannot read the archive")? {
        let mut entry = entry.context("cannot read the archive")?;
        let path = entry.path().context("an entry has no path")?.display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).with_context(|| format!("cannot read {path}"))?;
        files.insert(path, content);
    }
    Ok(files)
}

struct Answer {
    status: u16,
    location: Option<String>,
}

/// One request, always with the login: a registry without users does not mind.
fn send(port: u16, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Answer> {
    let what = || format!("{method} http://127.0.0.1:{port}{path}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).with_context(what)?;
    stream.set_read_timeout(Some(START_LIMIT)).with_context(what)?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Basic {LOGIN_BASE64}\r\n\
         Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).with_context(what)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(what)?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let location = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    Ok(Answer { status: status.with_context(what)?, location })
}
