//! An image is taken apart as an engine would, and must hold what was put in.

use std::{collections::BTreeMap, io::Read};

use flate2::read::GzDecoder;
use serde_json::Value;
use tar::Archive;

use super::{
    image,
    layout::{self, hex},
};

const NAME: &str = "localhost/egret:test";

/// A 64-bit ELF header with one program header of this type, and something behind them.
fn elf(machine: u16, program_header: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
    bytes[64..68].copy_from_slice(&program_header.to_le_bytes());
    bytes.extend(rest);
    bytes
}

fn made(binary: &[u8]) -> layout::Image {
    image(binary, NAME).unwrap()
}

/// Path, permissions and bytes of everything in a tar; owners and times must be nobody's.
fn unpack(tar: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    for entry in Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
        let (mode, path) = (header.mode().unwrap(), entry.path().unwrap().to_string_lossy().into_owned());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        assert!(files.insert(path.clone(), (mode, bytes)).is_none(), "{path} is there twice");
    }
    files
}

/// The blob that a descriptor means, found by its digest and checked against it.
fn blob(files: &BTreeMap<String, (u32, Vec<u8>)>, descriptor: &Value) -> Vec<u8> {
    let hash = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let (_, bytes) = &files[&format!("blobs/sha256/{hash}")];
    assert_eq!(hex(bytes), hash);
    assert_eq!(descriptor["size"], bytes.len());
    bytes.clone()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn every_digest_leads_to_its_blob_and_the_layer_to_the_binary() {
    let binary = elf(62, 1, b"the program");
    let image = made(&binary);
    let files = unpack(&image.tar);
    assert_eq!(json(&files["oci-layout"].1)["imageLayoutVersion"], "1.0.0");
    let index = json(&files["index.json"].1);
    let descriptor = &index["manifests"][0];
    assert_eq!(descriptor["digest"], image.digest);
    assert_eq!(descriptor["annotations"]["io.containerd.image.name"], NAME);
    let manifest = json(&blob(&files, descriptor));
    assert_eq!(manifest["mediaType"], descriptor["mediaType"]);
    let config = json(&blob(&files, &manifest["config"]));
    assert_eq!((&config["architecture"], &config["os"]), (&"amd64".into(), &"linux".into()));
    let mut layer = Vec::new();
    GzDecoder::new(&blob(&files, &manifest["layers"][0])[..]).read_to_end(&mut layer).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"], serde_json::json!([format!("sha256:{}", hex(&layer))]));
    // Three blobs, and nothing that no descriptor names.
    assert_eq!(files.keys().filter(|path| path.starts_with("blobs/sha256/") && path.len() > 13).count(), 3);

    let root = unpack(&layer);
    let entry = config["config"]["Entrypoint"][0].as_str().unwrap();
    assert_eq!(root[entry.trim_start_matches('/')], (0o755, binary));
    assert_eq!(config["config"]["Env"][0], format!("PATH={}", entry.rsplit_once('/').unwrap().0));
    for folder in ["proc/", "run/egret/", "usr/bin/"] {
        assert_eq!(root[folder], (0o755, Vec::new()), "{folder}");
    }
    assert!(root["usr/share/doc/egret/LICENSE-MIT"].1.starts_with(b"MIT License"));
}

#[test]
fn the_same_binary_gives_the_same_image_and_another_one_another() {
    let first = made(&elf(62, 1, b"one"));
    assert_eq!(first, made(&elf(62, 1, b"one")));
    assert_ne!(first.digest, made(&elf(62, 1, b"two")).digest);
}

#[test]
fn a_layer_that_changed_on_the_way_is_found_out() {
    let mut image = made(&elf(62, 1, &[7; 4096]));
    let layer = layout::layer(&image).unwrap();
    assert_eq!(unpack(&layer)["usr/bin/egret"].1, elf(62, 1, &[7; 4096]));
    // The first byte of the compressed layer, which is the largest blob.
    let at = image.tar.windows(4).position(|w| w == [0x1f, 0x8b, 8, 0]).unwrap();
    image.tar[at + 20] ^= 1;
    let error = layout::layer(&image).unwrap_err().to_string();
    assert!(error.contains("another blob's digest"), "{error}");
}

#[test]
fn the_machine_comes_from_the_binary() {
    let image = made(&elf(183, 1, b""));
    let index = json(&unpack(&image.tar)["index.json"].1);
    assert_eq!(index["manifests"][0]["platform"]["architecture"], "arm64");
}

#[test]
fn what_could_not_start_is_refused() {
    let check = |binary: &[u8], text: &str| {
        let error = image(binary, NAME).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    check(&elf(62, 3, b""), "linked dynamically");
    check(&elf(8, 1, b""), "machine 8");
    check(b"#!/bin/sh\n", "no 64-bit");
    check(&elf(62, 1, b"")[..66], "ends within its headers");
    let mut far = elf(62, 1, b"");
    far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    check(&far, "ends within its headers");
    // What cargo builds without the flag is linked dynamically: this very program.
    check(&std::fs::read(std::env::current_exe().unwrap()).unwrap(), "linked dynamically");
}
