//! Endpoints that are cgroups: the programs of each level of the hierarchy, their links, and whose a cgroup is.
//!
//! A program finds its endpoint by the cgroup at one level, which stands in its read-only data. So cgroups of different
//! levels have programs of their own, all with the same maps.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use aya::Ebpf;

use super::{
    ApplyError, AttachError, Datapath, LoadError, bpf_sys,
    cgroup_link::{self, CgroupHook},
    load::{self, chain, program_of},
};

impl Datapath {
    /// Puts the programs on a cgroup directory at `level`, in the place of older ones of ours. To be called again now and
    /// then: what others took off is mended. Bind the cgroup first: one that is not bound passes nothing.
    ///
    /// # Errors
    /// [`AttachError`]; the boundary is attached first.
    pub fn attach_endpoint_cgroup(
        &mut self,
        cgroup: &Path,
        mount: &Path,
        level: u32,
    ) -> Result<(), AttachError> {
        self.load_level(level)?;
        for hook in CgroupHook::ALL {
            let failed = |error| cgroup_link::AttachError::Kernel {
                hook: hook.name(),
                cgroup: cgroup.to_owned(),
                error,
            };
            let path = self.link_of(fs::metadata(cgroup).map_err(failed)?.ino(), hook);
            let program = self.program_at(level, hook).map_err(failed)?;
            if update(&path, &program).map_err(failed)? {
                continue;
            }
            let link = cgroup_link::attach(program.as_fd(), cgroup, mount, hook, false)?;
            bpf_sys::pin(link.as_fd(), &path).map_err(|error| AttachError::Pin { path, error })?;
        }
        Ok(())
    }

    /// Takes our programs off the cgroup with this id, which may be gone, and forgets whose it is.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub fn release_cgroup(&mut self, id: u64) -> Result<(), ApplyError> {
        const MAP: &str = "ENDPOINT_BY_CGROUP";
        for hook in CgroupHook::ALL.into_iter().rev() {
            let path = self.link_of(id, hook);
            if let Ok(link) = bpf_sys::get(&path) {
                // The cgroup may be gone; then so is the link.
                let _ = bpf_sys::link_detach(link.as_fd());
            }
            let _ = fs::remove_file(path);
        }
        let failed = |error| ApplyError { map: MAP, entry: format!("cgroup {id}"), error };
        let map = self.ebpf.map_mut(MAP).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        super::apply::hash::<u64, u32>(map, &id, None).map_err(failed)
    }

    fn link_of(&self, id: u64, hook: CgroupHook) -> PathBuf {
        self.versioned().join(format!("link_cgroup_{id}_{}", hook.name()))
    }

    fn load_level(&mut self, level: u32) -> Result<(), LoadError> {
        if level == self.options.cgroup_level || self.levels.contains_key(&level) {
            return Ok(());
        }
        let pins = self.versioned();
        let mut ebpf = load::create(&self.options, Some(&pins), level, self.hz())?;
        for hook in CgroupHook::ALL {
            let name = program_of(hook);
            let program = ebpf.program_mut(name).ok_or(LoadError::Missing { kind: "program", name })?;
            load::load_program(program, name)?;
        }
        self.levels.insert(level, ebpf);
        Ok(())
    }

    fn program_at(&self, level: u32, hook: CgroupHook) -> io::Result<OwnedFd> {
        let ebpf: &Ebpf = self.levels.get(&level).unwrap_or(&self.ebpf);
        let program = ebpf.program(program_of(hook)).ok_or(io::ErrorKind::NotFound)?;
        program.fd().map_err(|error| io::Error::other(chain(&error)))?.as_fd().try_clone_to_owned()
    }
}

/// Puts the program into the pinned link. False: there is none, or its cgroup is gone; then the pin is removed.
pub(super) fn update(path: &Path, program: &OwnedFd) -> io::Result<bool> {
    let link = match bpf_sys::get(path) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match bpf_sys::link_update(link.as_fd(), program.as_fd()) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => fs::remove_file(path).map(|()| false),
        Err(error) => Err(error),
    }
}
