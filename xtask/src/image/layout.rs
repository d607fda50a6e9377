//! The image layout (OCI image specification 1.1): layer, configuration, manifest and index, each but the last a blob
//! under its digest, all in one tar.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use flate2::{Compression, GzBuilder, read::GzDecoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType};

use super::layer::append;

/// A whole image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// The file that engines import.
    pub(super) tar: Vec<u8>,
    /// The manifest's digest, by which a registry knows the image.
    pub(super) digest: String,
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Puts an image around a layer.
pub(super) fn image(layer: &[u8], machine: &str, name: &str) -> Result<Image> {
    let mut blobs = Blobs::default();
    let compressed = blobs.add(LAYER, gzip(layer)?);
    let config = json!({
        "architecture": machine,
        "os": "linux",
        "config": {
            "User": "0:0",
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/egret"],
            "Labels": labels(),
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(layer)] },
        "history": [{ "created_by": "cargo xtask image" }],
    });
    let config = blobs.add(CONFIG, serde_json::to_vec(&config)?);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [compressed],
        "annotations": labels(),
    });
    let mut manifest = blobs.add(MANIFEST, serde_json::to_vec(&manifest)?);
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["platform"] = json!({ "architecture": machine, "os": "linux" });
    // The first is what containerd goes by, the second what the others do.
    manifest["annotations"] =
        json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest] });
    Ok(Image { tar: blobs.into_tar(&serde_json::to_vec(&index)?)?, digest })
}

/// The layer of an image, found as an engine finds it and checked against its digests.
pub(super) fn layer(image: &Image) -> Result<Vec<u8>> {
    let index: Value = serde_json::from_slice(&file(&image.tar, "index.json")?)?;
    let manifest: Value = serde_json::from_slice(&blob(&image.tar, &index["manifests"][0])?)?;
    let config: Value = serde_json::from_slice(&blob(&image.tar, &manifest["config"])?)?;
    let mut layer = Vec::new();
    GzDecoder::new(&blob(&image.tar, &manifest["layers"][0])?[..]).read_to_end(&mut layer)?;
    ensure!(config["rootfs"]["diff_ids"] == json!([digest(&layer)]), "the layer is not the configuration's");
    Ok(layer)
}

/// The blob that a descriptor means.
fn blob(tar: &[u8], descriptor: &Value) -> Result<Vec<u8>> {
    let wanted = descriptor["digest"].as_str().context("a descriptor has no digest")?;
    let bytes = file(tar, &format!("blobs/{}", wanted.replace(':', "/")))?;
    ensure!(
        digest(&bytes) == wanted && descriptor["size"] == bytes.len(),
        "{wanted} is another blob's digest"
    );
    Ok(bytes)
}

fn file(tar: &[u8], path: &str) -> Result<Vec<u8>> {
    for entry in Archive::new(tar).entries()? {
        let mut entry = entry?;
        if entry.path()? == Path::new(path) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
    }
    bail!("the image holds no {path}")
}

fn labels() -> Value {
    json!({
        "org.opencontainers.image.title": "egret",
        "org.opencontainers.image.description": "An egress firewall in eBPF that knows names",
        "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
    })
}

/// The blobs by the hexadecimal part of their digests.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Keeps a blob and gives its descriptor.
    fn add(&mut self, kind: &str, bytes: Vec<u8>) -> Value {
        let hash = hex(&bytes);
        let descriptor =
            json!({ "mediaType": kind, "digest": format!("sha256:{hash}"), "size": bytes.len() });
        self.0.insert(hash, bytes);
        descriptor
    }

    fn into_tar(self, index: &[u8]) -> Result<Vec<u8>> {
        let mut builder = Builder::new(Vec::new());
        append(&mut builder, EntryType::Regular, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        append(&mut builder, EntryType::Regular, "index.json", 0o644, index)?;
        for folder in ["blobs/", "blobs/sha256/"] {
            append(&mut builder, EntryType::Directory, folder, 0o755, &[])?;
        }
        for (hash, bytes) in &self.0 {
            append(&mut builder, EntryType::Regular, &format!("blobs/sha256/{hash}"), 0o644, bytes)?;
        }
        builder.into_inner().context("ending the image's tar")
    }
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    // No name and no time in the header; 255: of no operating system.
    let mut encoder = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish().context("compressing the layer")
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
