//! Builds the BPF object (crate `ebpf`) with a nested cargo and embeds it.
//!
//! The object's path reaches the crate as `EGRET_BPF_OBJECT`. The programs need a nightly-like compiler with
//! the source of `core`, and bpf-linker; two sources of that pair are known:
//! - `debian`: Debian's rustc-web and rust-web-src (/usr/bin/rustc with `RUSTC_BOOTSTRAP=1`);
//! - `rustup`: a rustup nightly with the rust-src component.
//!
//! `EGRET_BPF_TOOLCHAIN` picks one, otherwise the first that is there. `EGRET_SKIP_BPF=1`, or clippy without a
//! toolchain, embeds an empty object, so that lints and pure tests run anywhere. `EGRET_BPF_FEATURES` is handed
//! to the BPF crate as `--features`.
//!
//! Also turns `proto/` into Rust, without protoc, and keeps its description for field masks.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    protocol(&manifest.join("proto"))?;
    let workspace = manifest.parent().ok_or("the agent's folder has no parent")?;
    let object = PathBuf::from(env::var("OUT_DIR")?).join("egret.bpf.o");
    watch(workspace);
    println!("cargo::rustc-env=EGRET_BPF_OBJECT={}", object.display());

    if env::var_os("EGRET_SKIP_BPF").is_some_and(|v| v == "1") {
        println!("cargo::warning=EGRET_SKIP_BPF=1: an empty BPF object is embedded, egret cannot enforce");
        return write_if_changed(&object, &[]);
    }
    match Toolchain::find() {
        Ok(toolchain) => match toolchain.build(workspace) {
            Ok(built) => write_if_changed(&object, &fs::read(built)?),
            Err(error) => fail(&error.to_string()),
        },
        Err(missing) if env::var_os("CLIPPY_ARGS").is_some() => {
            // The next build without clippy must try again.
            println!("cargo::rerun-if-env-changed=CLIPPY_ARGS");
            println!("cargo::warning=no BPF toolchain ({missing}): clippy sees an empty BPF object");
            write_if_changed(&object, &[])
        }
        Err(missing) => fail(&format!(
            "the BPF programs cannot be built: {missing}. Run `cargo xtask setup` (EGRET_SKIP_BPF=1 embeds an empty object)"
        )),
    }
}

/// Generates the messages, servers and clients of Hubble's API.
fn protocol(folder: &Path) -> Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = protox::Compiler::new([folder])?;
    files.include_imports(true).open_files(["observer.proto", "peer.proto"])?;
    let description = PathBuf::from(env::var("OUT_DIR")?).join("hubble.bin");
    write_if_changed(&description, &files.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .build_transport(false)
        .boxed(".observer.GetFlowsResponse.response_types.flow")
        .compile_fds(files.file_descriptor_set())?;
    Ok(())
}

/// Ends the build with one message that cargo shows as an error.
fn fail(message: &str) -> Result<()> {
    // cargo caches no failed run: the next build tries again.
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    Ok(())
}

/// Tells cargo what the object depends on.
fn watch(workspace: &Path) {
    for path in ["ebpf", "common/src", "common/Cargo.toml", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(path).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["EGRET_SKIP_BPF", "EGRET_BPF_TOOLCHAIN", "EGRET_BPF_FEATURES"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
}

/// Leaves an unchanged file alone, so that the crate is not compiled again for nothing.
fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    Ok(fs::write(path, bytes)?)
}

/// A compiler that can build `core` for the BPF target.
enum Toolchain {
    /// Debian's compiler, at this path, driven by whatever cargo runs this script.
    Debian { rustc: PathBuf },
    /// `rustup run nightly`.
    Rustup,
}

impl Toolchain {
    /// The toolchain to use, or what is missing.
    fn find() -> std::result::Result<Self, String> {
        linker().ok_or("bpf-linker is not on the PATH")?;
        let wanted = env::var("EGRET_BPF_TOOLCHAIN").unwrap_or_default();
        let debian = || {
            let rustc = PathBuf::from("/usr/bin/rustc");
            has_core_source(Command::new(&rustc)).then_some(Self::Debian { rustc })
        };
        let rustup = || {
            let mut command = Command::new("rustup");
            command.args(["run", "nightly", "rustc"]);
            has_core_source(command).then_some(Self::Rustup)
        };
        match wanted.as_str() {
            "debian" => debian().ok_or("/usr/bin/rustc with its rust-src is not there".into()),
            "rustup" => rustup().ok_or("rustup has no nightly with rust-src".into()),
            "" => debian().or_else(rustup).ok_or(
                "neither Debian's rustc-web with rust-web-src nor a rustup nightly with rust-src".into(),
            ),
            other => Err(format!("EGRET_BPF_TOOLCHAIN={other}: debian or rustup is known")),
        }
    }

    /// Builds the object and returns its path.
    fn build(&self, workspace: &Path) -> Result<PathBuf> {
        let target = match env::var("CARGO_CFG_TARGET_ENDIAN")?.as_str() {
            "big" => "bpfeb-unknown-none",
            _ => "bpfel-unknown-none",
        };
        let mut command = match self {
            Self::Debian { rustc } => {
                let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                scrub(&mut command);
                command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
                command
            }
            Self::Rustup => {
                let mut command = Command::new("rustup");
                scrub(&mut command);
                command.args(["run", "nightly", "cargo"]);
                command
            }
        };
        // Its own target folder: the outer cargo holds the lock of the usual one.
        let target_dir = target_root(workspace).join("bpf");
        let linker = linker().ok_or("bpf-linker is not on the PATH")?;
        command
            .current_dir(workspace)
            .args(["build", "--release", "--package", "egret-ebpf", "--target", target])
            .args(["-Z", "build-std=core"])
            .arg("--target-dir")
            .arg(&target_dir)
            .env(
                "RUSTFLAGS",
                format!("-Clinker-plugin-lto -Clinker={} -Clink-arg=--btf -Cdebuginfo=2", linker.display()),
            );
        if let Ok(features) = env::var("EGRET_BPF_FEATURES") {
            command.args(["--features", &features]);
        }
        let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let progress = ["Compiling", "Downloaded", "Downloading", "Blocking", "Finished", "Updating"];
            let is_progress = |line: &&str| progress.iter().any(|p| line.trim_start().starts_with(p));
            let told = stderr.lines().filter(|line| !is_progress(line)).collect::<Vec<_>>().join("\n");
            return Err(format!("the BPF programs do not build ({}):\n{told}", output.status).into());
        }
        for line in stderr.lines().filter_map(|line| line.strip_prefix("warning: ")) {
            if !line.starts_with('`') {
                println!("cargo::warning=ebpf: {line}");
            }
        }
        Ok(target_dir.join(target).join("release/egret-ebpf"))
    }
}

/// Takes out what the outer cargo, clippy or a test runner set for the host's build.
fn scrub(command: &mut Command) {
    const KEPT: [&str; 6] =
        ["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_TERM_"];
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let outer = ["CARGO_", "DEP_", "RUSTC", "RUSTDOC", "NEXTEST"].iter().any(|p| name.starts_with(p))
            || [
                "CARGO",
                "RUSTFLAGS",
                "RUSTUP_TOOLCHAIN",
                "CLIPPY_ARGS",
                "TARGET",
                "HOST",
                "PROFILE",
                "OPT_LEVEL",
            ]
            .contains(&name)
            || ["DEBUG", "OUT_DIR", "NUM_JOBS", "CLIPPY_CONF_DIR", "LD_LIBRARY_PATH"].contains(&name);
        if outer && !KEPT.iter().any(|kept| name.starts_with(kept)) {
            command.env_remove(name);
        }
    }
}

/// Where the nested target folder goes: beside the outer one's profiles, whichever profile or triple asks.
fn target_root(workspace: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |dir| workspace.join(dir))
}

/// bpf-linker from the PATH or cargo's own bin folder, which not every PATH names (sudo, build farms).
fn linker() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    env::split_paths(&path)
        .chain(home.map(|home| home.join("bin")))
        .map(|folder| folder.join("bpf-linker"))
        .find(|file| file.is_file())
}

/// Whether this compiler runs and its sysroot holds the source of `core`.
fn has_core_source(mut rustc: Command) -> bool {
    rustc.args(["--print", "sysroot"]).env_remove("RUSTUP_TOOLCHAIN");
    let Ok(output) = rustc.output() else { return false };
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    output.status.success() && sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file()
}
