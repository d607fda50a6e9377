//! The VM's file system: files of this machine under the same paths, packed as an initramfs.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};

use crate::sh;

/// Where the VM keeps its kernel modules.
pub(crate) const MODULES: &str = "/modules";
const BUSYBOX: &str = "/bin/busybox";
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A file system under construction; its files and its image go with it.
pub(crate) struct Root {
    folder: PathBuf,
    done: BTreeSet<PathBuf>,
    env: Vec<(String, String)>,
}

impl Root {
    /// An empty root with merged /usr, the few files of /etc that libc reads, and a shell.
    pub(crate) fn new() -> Result<Self> {
        sweep(&sh::target_dir().join("vm"));
        // Its own per process: two VMs may be made at the same time.
        let folder = sh::target_dir().join(format!("vm/root-{}", std::process::id()));
        let mut root = Self { folder, done: BTreeSet::new(), env: Vec::new() };
        for folder in [
            "usr/bin",
            "usr/sbin",
            "usr/lib",
            "usr/lib64",
            "etc",
            "proc",
            "sys",
            "dev",
            "run",
            "tmp",
            "root",
            "var",
        ] {
            fs::create_dir_all(root.folder.join(folder))?;
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), root.folder.join(name))?;
        }
        symlink("/run", root.folder.join("var/run"))?;
        for name in
            ["passwd", "group", "nsswitch.conf", "protocols", "services", "ssl/openssl.cnf", "gai.conf"]
        {
            let file = Path::new("/etc").join(name);
            if file.exists() {
                root.copy(&file, &file)?;
            }
        }
        fs::write(root.folder.join("etc/hosts"), "127.0.0.1 localhost egret-vm\n::1 localhost\n")?;
        // Worlds mount their own over it.
        fs::write(root.folder.join("etc/resolv.conf"), "# The VM has no network.\n")?;
        root.add_binary(Path::new(BUSYBOX))?;
        root.set_env("PATH", SYSTEM_PATH);
        root.set_env("HOME", "/root");
        root.set_env("RUST_BACKTRACE", "1");
        Ok(root)
    }

    /// Sets a variable for every job.
    pub(crate) fn set_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The jobs' environment.
    pub(crate) fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// Adds programs of the system with their libraries; Python with its standard library.
    pub(crate) fn add_programs(&mut self, names: &[&str]) -> Result<()> {
        for name in names {
            // Not the PATH: it may name shims that only work on this machine.
            let path = ["/usr/bin", "/usr/sbin"].map(|folder| Path::new(folder).join(name));
            let path =
                path.into_iter().find(|p| p.exists()).with_context(|| format!("{name} is not installed"))?;
            self.add_binary(&path)?;
            if *name == "python3" {
                self.add_python(&path)?;
            }
        }
        Ok(())
    }

    /// Adds an executable, without debug information, and the libraries that it loads.
    pub(crate) fn add_binary(&mut self, path: &Path) -> Result<()> {
        self.copy_with_libs(path)
    }

    /// Adds one kernel module.
    pub(crate) fn add_module(&mut self, module: &Path) -> Result<()> {
        let name = module.file_name().context("a module without a name")?;
        self.copy(module, &Path::new(MODULES).join(name))
    }

    /// Adds the script that is process 1.
    pub(crate) fn add_init(&mut self, script: &str) -> Result<()> {
        let path = self.folder.join("init");
        fs::write(&path, script).context("writing init")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("making init executable")
    }

    /// Makes a folder without its content.
    pub(crate) fn add_folder(&mut self, folder: &Path) -> Result<()> {
        let inside = self.inside(folder)?;
        fs::create_dir_all(&inside).with_context(|| format!("making {}", inside.display()))
    }

    /// Adds a folder with all that is in it; one that does not exist adds nothing.
    pub(crate) fn add_tree(&mut self, folder: &Path) -> Result<()> {
        if !folder.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            let heavy = path
                .file_name()
                .is_some_and(|n| ["test", "idlelib", "dist-packages", "ensurepip"].iter().any(|h| n == *h));
            if path.is_dir() {
                if !heavy {
                    self.add_tree(&path)?;
                }
            } else if path.exists() {
                self.copy(&path, &path)?;
            }
        }
        Ok(())
    }

    /// Packs everything as a cpio archive and returns its path.
    pub(crate) fn pack(&mut self) -> Result<PathBuf> {
        self.add_applets()?;
        let image = self.folder.with_extension("cpio");
        let output = fs::File::create(&image).with_context(|| format!("creating {}", image.display()))?;
        let mut find = sh::command("find")
            .current_dir(&self.folder)
            .args([".", "-print0"])
            .stdout(Stdio::piped())
            .spawn()?;
        let names = find.stdout.take().context("find has no output")?;
        let status = sh::command("cpio")
            .current_dir(&self.folder)
            .args(["--null", "--create", "--format=newc", "--owner=0:0", "--quiet"])
            .stdin(names)
            .stdout(output)
            .status()
            .context("cannot start cpio")?;
        ensure!(status.success() && find.wait()?.success(), "cpio failed ({status})");
        Ok(image)
    }

    /// busybox under every name that no real program took.
    fn add_applets(&self) -> Result<()> {
        for name in sh::stdout(sh::command(BUSYBOX).arg("--list"))?.lines() {
            let taken = ["usr/bin", "usr/sbin"].iter().any(|dir| self.folder.join(dir).join(name).exists());
            if !taken {
                symlink(BUSYBOX, self.folder.join("usr/bin").join(name))
                    .with_context(|| format!("linking {name}"))?;
            }
        }
        Ok(())
    }

    fn add_python(&mut self, python: &Path) -> Result<()> {
        let script = "import sysconfig; print(sysconfig.get_path('stdlib'))";
        let folder = sh::stdout(sh::command(&python.to_string_lossy()).args(["-I", "-c", script]))?;
        let folder = PathBuf::from(folder.trim());
        self.add_tree(&folder)?;
        // Compiled modules load libraries of their own.
        let modules = folder.join("lib-dynload");
        for entry in fs::read_dir(&modules).with_context(|| format!("reading {}", modules.display()))? {
            self.add_libs_of(&entry?.path())?;
        }
        Ok(())
    }

    /// Copies a program, or library, and every library that the loader would map for it.
    fn copy_with_libs(&mut self, path: &Path) -> Result<()> {
        if !self.done.contains(path) {
            self.copy(path, path)?;
            self.strip(path)?;
            self.add_libs_of(path)?;
        }
        Ok(())
    }

    fn add_libs_of(&mut self, path: &Path) -> Result<()> {
        // ldd fails for a static program, which needs nothing.
        let output = sh::command("ldd")
            .env_remove("LD_LIBRARY_PATH")
            .arg(path)
            .output()
            .context("cannot start ldd")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for library in libraries(&text) {
            if !self.done.contains(&library) {
                self.copy(&library, &library)?;
            }
        }
        Ok(())
    }

    /// Debug information is most of a test binary, and all of it would sit in the VM's memory.
    fn strip(&self, path: &Path) -> Result<()> {
        let copy = self.inside(path)?;
        if fs::metadata(&copy)?.len() < 4 << 20 {
            return Ok(());
        }
        sh::run_quiet(sh::command("strip").arg("--strip-debug").arg(&copy))
    }

    fn copy(&mut self, from: &Path, to: &Path) -> Result<()> {
        let inside = self.inside(to)?;
        let parent = inside.parent().context("a file without a folder")?;
        let copied = fs::create_dir_all(parent).and_then(|()| copy_writable(from, &inside));
        copied.with_context(|| format!("copying {} to {}", from.display(), inside.display()))?;
        self.done.insert(to.to_owned());
        Ok(())
    }

    /// Where a path of the VM lies on this machine.
    fn inside(&self, path: &Path) -> Result<PathBuf> {
        Ok(self
            .folder
            .join(path.strip_prefix("/").with_context(|| format!("{} is not absolute", path.display()))?))
    }
}

/// Removes the roots of processes that were killed.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("root-").map(|rest| rest.trim_end_matches(".cpio").to_owned());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // A folder or a file; what stays harms nobody.
            drop(fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path())));
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // What cannot be removed lies in the target folder and harms nobody.
        drop(fs::remove_dir_all(&self.folder));
        drop(fs::remove_file(self.folder.with_extension("cpio")));
    }
}

fn copy_writable(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    let mode = fs::metadata(from)?.permissions().mode();
    fs::set_permissions(to, fs::Permissions::from_mode(mode | 0o600))
}

/// The paths in ldd's lines `name => path (address)` and `path (address)`.
fn libraries(ldd: &str) -> Vec<PathBuf> {
    ldd.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(|word| PathBuf::from(word.trim_end_matches(':')))
        .filter(|path| path.is_file())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007f)\n\tlibx.so => /bin/sh (0x1)\n\t/bin/sh (0x2)\n\tnope => not found\n";
        assert_eq!(libraries(text), [PathBuf::from("/bin/sh"), PathBuf::from("/bin/sh")]);
        assert_eq!(libraries("\tnot a dynamic executable\n"), Vec::<PathBuf>::new());
    }
}
