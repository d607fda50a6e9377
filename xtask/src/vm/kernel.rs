//! Debian's 6.1 cloud kernel: found through its meta-package, kept in `target/vm`, modules in load order.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use crate::sh;

const META_PACKAGE: &str = "linux-image-cloud-amd64";
const SERIES: &str = "linux-image-6.1.";
/// What worlds need and this kernel has as modules; what they depend on is found.
const WANTED: &[&str] = &[
    "veth",
    "dummy",
    "bridge",
    "ifb",
    "tun",
    "sch_ingress",
    "cls_bpf",
    "act_bpf",
    "act_gact",
    "act_mirred",
    "sctp",
    "sctp_diag",
    "tcp_diag",
    "udp_diag",
    "nf_tables",
    "nft_ct",
    "nft_chain_nat",
    "nft_nat",
    "nft_reject_inet",
];

/// An unpacked kernel.
pub(crate) struct Kernel {
    /// The file to boot.
    pub(crate) image: PathBuf,
    modules: PathBuf,
}

/// A module and what it asks for.
struct Module {
    path: PathBuf,
    depends: Vec<String>,
}

/// Downloads and unpacks the kernel, or takes what an earlier call left.
pub(crate) fn fetch() -> Result<Kernel> {
    let cache = sh::target_dir().join("vm");
    let folder = cache.join("kernel");
    if !folder.join("boot").exists() {
        fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
        let package = package_name()?;
        eprintln!("vm: fetching {package}");
        sh::run_quiet(sh::command("apt-get").current_dir(&cache).args(["-qq", "download", &package]))?;
        let file = find(&cache, &|name| name.starts_with(&format!("{package}_")) && name.ends_with(".deb"))?;
        // Unpacked beside its place and then renamed: an interrupted call leaves no half kernel.
        let unpacked = cache.join("kernel.tmp");
        drop(fs::remove_dir_all(&unpacked));
        sh::run(sh::command("dpkg-deb").arg("-x").args([&file, &unpacked]))?;
        fs::rename(&unpacked, &folder).context("moving the unpacked kernel to its place")?;
        fs::remove_file(file).context("removing the kernel's package")?;
    }
    let image = find(&folder.join("boot"), &|name| name.starts_with("vmlinuz-6.1."))?;
    let modules = find(&folder.join("lib/modules"), &|name| name.starts_with("6.1."))?;
    Ok(Kernel { image, modules })
}

/// The package that the meta-package points to.
fn package_name() -> Result<String> {
    let depends = || sh::stdout(sh::command("apt-cache").args(["depends", META_PACKAGE]));
    if let Some(name) = depends().ok().and_then(|text| pointed_to(&text)) {
        return Ok(name);
    }
    sh::run_quiet(sh::command("apt-get").args(["-qq", "update"]))?;
    pointed_to(&depends()?)
        .with_context(|| format!("{META_PACKAGE} points to no {SERIES}* (Debian 12 has it)"))
}

fn pointed_to(depends: &str) -> Option<String> {
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with(SERIES))
        .map(str::to_owned)
}

fn find(folder: &Path, accepts: &dyn Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(accepts) {
            return Ok(entry.path());
        }
    }
    bail!("{} does not hold the file that was expected", folder.display())
}

impl Kernel {
    /// The wanted modules and all that they depend on, dependencies first.
    pub(crate) fn modules(&self) -> Result<Vec<PathBuf>> {
        let builtin =
            fs::read_to_string(self.modules.join("modules.builtin")).context("reading modules.builtin")?;
        let builtin: Vec<String> = builtin.lines().map(|line| module_name(Path::new(line))).collect();
        let order =
            fs::read_to_string(self.modules.join("modules.order")).context("reading modules.order")?;
        let mut loaded = Vec::new();
        for wanted in WANTED {
            self.add(wanted, &order, &builtin, &mut loaded)?;
        }
        Ok(loaded)
    }

    fn add(&self, name: &str, order: &str, builtin: &[String], loaded: &mut Vec<PathBuf>) -> Result<()> {
        if builtin.iter().any(|b| b == name) || loaded.iter().any(|path| module_name(path) == name) {
            return Ok(());
        }
        let line = order.lines().find(|line| module_name(Path::new(line)) == name);
        let module = self.read(line.with_context(|| format!("the kernel has no module {name}"))?)?;
        for dependency in &module.depends {
            self.add(dependency, order, builtin, loaded)?;
        }
        loaded.push(module.path);
        Ok(())
    }

    fn read(&self, relative: &str) -> Result<Module> {
        let path = self.modules.join(relative);
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        ensure!(bytes.starts_with(b"\x7fELF"), "{}: compressed modules are not supported", path.display());
        Ok(Module { path, depends: depends(&bytes) })
    }
}

/// A module's name as the kernel says it.
pub(crate) fn module_name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_")
}

/// The `depends=` entry of a module's `.modinfo`, a section of strings that end with a zero byte.
fn depends(module: &[u8]) -> Vec<String> {
    let list = module.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let list = String::from_utf8_lossy(list.unwrap_or_default()).into_owned();
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_package_is_followed() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-57-cloud-amd64\n";
        assert_eq!(pointed_to(text).as_deref(), Some("linux-image-6.1.0-57-cloud-amd64"));
        assert_eq!(pointed_to("linux-image-cloud-amd64\n  Depends: linux-image-6.12.1-cloud-amd64\n"), None);
    }

    #[test]
    fn dependencies_are_read() {
        assert_eq!(depends(b"\x7fELF\0license=GPL\0depends=stp,x-y\0name=bridge\0"), ["stp", "x_y"]);
        assert_eq!(depends(b"\x7fELF\0depends=\0"), Vec::<String>::new());
        assert_eq!(module_name(Path::new("kernel/net/sched/sch-x.ko")), "sch_x");
    }
}
