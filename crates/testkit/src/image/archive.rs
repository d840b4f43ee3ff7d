//! The OCI image layout in a tar file: layer, config, manifest, index.
//!
//! Every time stamp is fixed, so that equal images have equal digests.

use std::io::Write;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::{Entry, Image};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Writes the image as an OCI archive.
pub(super) fn write(image: &Image, out: impl Write) -> Result<()> {
    let layer = layer(&image.entries)?;
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "config": {
            "Env": [PATH],
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "User": image.user.clone().unwrap_or_default(),
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        "history": [{"created_by": "klet testkit"}],
    });
    let config = serde_json::to_vec(&config).context("cannot encode the config")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": digest(&config), "size": config.len()},
        "layers": [{"mediaType": LAYER, "digest": digest(&layer), "size": layer.len()}],
    });
    let manifest = serde_json::to_vec(&manifest).context("cannot encode the manifest")?;
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": MANIFEST,
            "digest": digest(&manifest),
            "size": manifest.len(),
            "annotations": {
                "io.containerd.image.name": image.name,
                "org.opencontainers.image.ref.name": image.name,
            },
        }],
    });
    let index = serde_json::to_vec(&index).context("cannot encode the index")?;

    let mut tar = Builder::new(out);
    add_file(&mut tar, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add_file(&mut tar, "index.json", 0o644, &index)?;
    for blob in [&layer, &config, &manifest] {
        let name = digest(blob).replace(':', "/");
        add_file(&mut tar, &format!("blobs/{name}"), 0o644, blob)?;
    }
    tar.into_inner().and_then(|mut out| out.flush()).context("cannot finish the archive")
}

fn layer(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for entry in entries {
        match entry {
            Entry::File { path, mode, content } => add_file(&mut tar, path, *mode, content)?,
            Entry::Directory { path, mode } => {
                let mut header = header(EntryType::Directory, *mode, 0);
                tar.append_data(&mut header, path, std::io::empty())
                    .with_context(|| format!("cannot add {path}"))?;
            }
            Entry::Link { path, target } => {
                let mut header = header(EntryType::Symlink, 0o777, 0);
                tar.append_link(&mut header, path, target)
                    .with_context(|| format!("cannot add {path}"))?;
            }
        }
    }
    tar.into_inner().context("cannot finish the layer")
}

fn add_file(tar: &mut Builder<impl Write>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, content.len() as u64);
    tar.append_data(&mut header, path, content).with_context(|| format!("cannot add {path}"))
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    fn files(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(bytes);
        let read = |mut entry: tar::Entry<'_, &[u8]>| {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        };
        archive.entries().unwrap().map(|entry| read(entry.unwrap())).collect()
    }

    #[test]
    fn every_digest_names_its_blob() {
        let image = Image::pause();
        let mut archive = Vec::new();
        write(&image, &mut archive).unwrap();
        let files = files(&archive);
        for (path, content) in &files {
            if let Some(name) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(digest(content), format!("sha256:{name}"));
            }
        }
        let blob = |digest: &serde_json::Value| {
            files[&format!("blobs/{}", digest.as_str().unwrap().replace(':', "/"))].clone()
        };
        let index: serde_json::Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let manifest: serde_json::Value =
            serde_json::from_slice(&blob(&index["manifests"][0]["digest"])).unwrap();
        let config: serde_json::Value =
            serde_json::from_slice(&blob(&manifest["config"]["digest"])).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        assert_eq!(config["config"]["Entrypoint"], json!(["/pause"]));
    }

    #[test]
    fn equal_images_are_equal_byte_for_byte() {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        write(&Image::pause(), &mut one).unwrap();
        write(&Image::pause(), &mut two).unwrap();
        assert_eq!(one, two);
    }
}
