//! Putting the programs on a cgroup, and proving that they are there.

use std::{
    fs, io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
};

use aya::{maps::HashMap, programs::ProgramError};

use super::{
    ApplyError, AttachError, Datapath, Mismatch, bpf_sys,
    cgroup_link::{self, CgroupHook},
    load::{MAPS, chain, program_of},
    pins,
};

impl Datapath {
    /// Tells the programs that the cgroup directory `cgroup`, at the configured level, is `endpoint`. Packets of a
    /// cgroup that is not bound are dropped as `UnknownEndpoint`.
    ///
    /// # Errors
    /// [`ApplyError`] when the directory is not there or the map is full.
    pub fn bind_cgroup(&mut self, cgroup: &Path, endpoint: u32) -> Result<(), ApplyError> {
        const MAP: &str = "ENDPOINT_BY_CGROUP";
        let failed = |error| ApplyError { map: MAP, entry: cgroup.display().to_string(), error };
        let id = fs::metadata(cgroup).map_err(failed)?.ino();
        let map = self.ebpf.map_mut(MAP).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let mut map =
            HashMap::<_, u64, u32>::try_from(map).map_err(|e| failed(io::Error::other(chain(&e))))?;
        map.insert(id, endpoint, 0).map_err(|e| failed(super::apply::io_error(e)))
    }

    /// Makes the interface with this index an endpoint's, or nobody's (`None`: then it passes nothing).
    ///
    /// # Errors
    /// [`ApplyError`] with the interface.
    pub fn bind_interface(&mut self, ifindex: u32, endpoint: Option<u32>) -> Result<(), ApplyError> {
        const MAP: &str = "ENDPOINT_BY_IFINDEX";
        let failed = |error| ApplyError { map: MAP, entry: format!("interface {ifindex}"), error };
        let map = self.ebpf.map_mut(MAP).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        super::apply::hash::<u32, u32>(map, &ifindex, endpoint.as_ref()).map_err(failed)
    }

    /// Attaches all programs to the cgroup directory `cgroup` below the cgroup2 mount `cgroup_mount`, the boundary
    /// first, and pins the links. With `accept_override` a foreign program that ours would switch off is no obstacle.
    ///
    /// # Errors
    /// [`AttachError`]; what was attached until then stays: remove the instance.
    pub fn attach_cgroup(
        &mut self,
        cgroup: &Path,
        cgroup_mount: &Path,
        accept_override: bool,
    ) -> Result<(), AttachError> {
        for hook in CgroupHook::ALL {
            let path = pins::link_path(&self.dir, hook);
            let program = self.program_fd(hook).map_err(|error| unknown(cgroup, hook, error))?;
            let link = cgroup_link::attach(program.as_fd(), cgroup, cgroup_mount, hook, accept_override)?;
            bpf_sys::pin(link.as_fd(), &path).map_err(|error| AttachError::Pin { path, error })?;
        }
        Ok(self.verify(cgroup)?)
    }

    /// Checks that our program is on each hook of the cgroup directory, and that it uses the maps that are written
    /// here.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn verify(&self, cgroup: &Path) -> Result<(), Mismatch> {
        for hook in CgroupHook::ALL {
            let name = program_of(hook);
            let ask = || -> io::Result<(u32, Vec<u32>)> {
                let info = self.info(name)?;
                let maps = info.map_ids().map_err(|e| io::Error::other(chain(&e)))?;
                Ok((info.id(), maps.unwrap_or_default()))
            };
            let (expected, maps) = ask().map_err(|error| unknown(cgroup, hook, error))?;
            let found = cgroup_link::attached(cgroup, hook).map_err(|error| unknown(cgroup, hook, error))?;
            if !found.programs.contains(&expected) {
                let (cgroup, hook) = (cgroup.to_owned(), hook.name());
                return Err(Mismatch::NotAttached { cgroup, hook, expected, found: found.programs });
            }
            self.verify_maps(hook, maps)?;
        }
        Ok(())
    }

    /// A program names only some of the maps; those of the decision every packet program must name.
    fn verify_maps(&self, hook: CgroupHook, found: Vec<u32>) -> Result<(), Mismatch> {
        let boundary = matches!(hook, CgroupHook::SkbEgress | CgroupHook::SkbIngress);
        let needed: &[&str] = if boundary { &BOUNDARY_MAPS } else { &["ENDPOINTS"] };
        for map in MAPS.into_iter().filter(|map| needed.contains(map)) {
            let expected = self.map_ids.get(map).copied().unwrap_or(0);
            if !found.contains(&expected) {
                return Err(Mismatch::OtherMap {
                    program: program_of(hook).to_owned(),
                    map,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }

    fn program_fd(&self, hook: CgroupHook) -> io::Result<std::os::fd::OwnedFd> {
        let program = self.ebpf.program(program_of(hook)).ok_or(io::ErrorKind::NotFound)?;
        program.fd().map_err(io::Error::other)?.as_fd().try_clone_to_owned()
    }

    fn info(&self, name: &str) -> io::Result<aya::programs::ProgramInfo> {
        let program = self.ebpf.program(name).ok_or(io::ErrorKind::NotFound)?;
        program.info().map_err(|error: ProgramError| io::Error::other(chain(&error)))
    }
}

/// What the two programs of the boundary decide by.
const BOUNDARY_MAPS: [&str; 9] = [
    "ENDPOINT_BY_CGROUP",
    "ENDPOINTS",
    "IDENTITIES",
    "CIDR_CLASSES",
    "GRANTS",
    "RULES",
    "FLOWS",
    "TRUSTED_RESOLVERS",
    "COUNTERS",
];

fn unknown(cgroup: &Path, hook: CgroupHook, error: io::Error) -> Mismatch {
    Mismatch::Unknown { cgroup: cgroup.to_owned(), hook: hook.name(), error }
}
