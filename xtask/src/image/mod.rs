//! `xtask image`: the agent's container image as an OCI image layout in a tar file, made without a container engine.
//!
//! ```text
//! binary ─> elf (static? for which machine?) ─> layer (one gzip tar) ─> layout (blobs by digest, one tar)
//! ```
//! The same binary gives the same bytes: no clock, no user, no order of a folder gets in.

mod elf;
mod layer;
mod layout;
mod trial;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{cargo, setup, sh};

/// Where the binary stands in the image; its folder is the image's PATH.
const PROGRAM: &str = "usr/bin/egret";

/// Builds the binary unless it is given, and writes the image; `try_it` starts it as well.
pub(crate) fn run(
    binary: Option<&Path>,
    output: Option<&Path>,
    name: Option<&str>,
    try_it: bool,
) -> Result<()> {
    let binary = match binary {
        Some(path) => path.to_owned(),
        None => build_static()?,
    };
    let default = || sh::target_dir().join("egret-image.tar");
    let output = output.map_or_else(default, Path::to_owned);
    let version = env!("CARGO_PKG_VERSION");
    let name = name.map_or_else(|| format!("localhost/egret:{version}"), str::to_owned);
    let bytes = fs::read(&binary).with_context(|| format!("reading {}", binary.display()))?;
    let image = image(&bytes, &name).with_context(|| format!("{}", binary.display()))?;
    fs::write(&output, &image.tar).with_context(|| format!("writing {}", output.display()))?;
    println!("image:  {}", output.display());
    println!("name:   {name}");
    println!("digest: {}", image.digest);
    if try_it { trial::run(&layout::layer(&image)?) } else { Ok(()) }
}

/// The image of a binary, under a name such as `localhost/egret:0.1.0`.
fn image(binary: &[u8], name: &str) -> Result<layout::Image> {
    let machine = elf::check(binary)?;
    let licences = [
        ("usr/share/doc/egret/LICENSE-APACHE", &include_bytes!("../../../LICENSE-APACHE")[..]),
        ("usr/share/doc/egret/LICENSE-MIT", &include_bytes!("../../../LICENSE-MIT")[..]),
    ];
    let mut files = vec![layer::File { path: PROGRAM, mode: 0o755, bytes: binary }];
    files.extend(licences.map(|(path, bytes)| layer::File { path, mode: 0o644, bytes }));
    layout::image(&layer::tar(&files)?, machine, name)
}

/// The release binary with everything linked in: the image holds no loader and no library.
fn build_static() -> Result<PathBuf> {
    setup::ensure(&[setup::Tier::Bpf])?;
    let host = sh::stdout(sh::command("rustc").args(["--print", "host-tuple"]))?;
    let host = host.trim();
    // For this target only: build scripts and procedural macros must stay dynamic, and build.rs has a target of its own.
    let variable = format!("CARGO_TARGET_{}_RUSTFLAGS", host.to_uppercase().replace('-', "_"));
    let mut command = sh::command("cargo");
    command
        .arg("build")
        .args(cargo::HOST_PACKAGES)
        .args(["--release", "--bin", "egret", "--target", host])
        .env(variable, "-C target-feature=+crt-static")
        // Nobody debugs in the image; names of functions stay for backtraces.
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    let built = cargo::build(&mut command)?;
    let egret = cargo::binary(&built, "egret").context("cargo built no binary `egret`")?;
    Ok(egret.path.clone())
}

#[cfg(test)]
mod tests;
