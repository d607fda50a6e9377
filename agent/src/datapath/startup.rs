//! The cgroup above all pods: what becomes of those that nobody knows yet.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use aya::maps::Array;
use egret_common::maps::Startup;

use super::{
    ApplyError, AttachError, Datapath, bpf_sys,
    cgroup::update,
    cgroup_link::{self, CgroupHook},
    load::{STARTUP, chain},
};

const MAP: &str = "STARTUP";

impl Datapath {
    /// Says what becomes of unknown pods below the cgroup that the programs are attached to.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub fn set_startup(&mut self, startup: Startup) -> Result<(), ApplyError> {
        let failed = |error| ApplyError { map: MAP, entry: format!("{startup:?}"), error };
        let map = self.ebpf.map_mut(MAP).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let map = Array::<_, Startup>::try_from(map);
        let mut map = map.map_err(|error| failed(io::Error::other(chain(&error))))?;
        map.set(0, startup, 0).map_err(|error| failed(super::apply::io_error(error)))
    }

    /// Puts the programs on the cgroup above all pods, in the place of older ones of ours. To be called again now and
    /// then. What is known must be bound before.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach_startup(&self, cgroup: &Path, mount: &Path) -> Result<(), AttachError> {
        for (hook, name) in STARTUP {
            let failed = |error| cgroup_link::AttachError::Kernel {
                hook: hook.name(),
                cgroup: cgroup.to_owned(),
                error,
            };
            let path = self.startup_link(hook);
            let program = self.startup_program(name).map_err(failed)?;
            if update(&path, &program).map_err(failed)? {
                continue;
            }
            let link = cgroup_link::attach(program.as_fd(), cgroup, mount, hook, false)?;
            bpf_sys::pin(link.as_fd(), &path).map_err(|error| AttachError::Pin { path, error })?;
        }
        Ok(())
    }

    /// Takes them off, wherever they are.
    pub fn detach_startup(&self) {
        for (hook, _) in STARTUP {
            let path = self.startup_link(hook);
            if let Ok(link) = bpf_sys::get(&path) {
                // The cgroup may be gone; then so is the link.
                let _ = bpf_sys::link_detach(link.as_fd());
            }
            let _ = fs::remove_file(path);
        }
    }

    fn startup_program(&self, name: &str) -> io::Result<OwnedFd> {
        let program = self.ebpf.program(name).ok_or(io::ErrorKind::NotFound)?;
        program.fd().map_err(|error| io::Error::other(chain(&error)))?.as_fd().try_clone_to_owned()
    }

    fn startup_link(&self, hook: CgroupHook) -> PathBuf {
        self.versioned().join(format!("link_startup_{}", hook.name()))
    }
}
