//! Putting the programs on a pod's interface, and keeping them there.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use super::{
    AttachError, Datapath,
    load::chain,
    pins,
    tc::{self, Method, Place, Placed, TcError, TcHook},
};

impl Datapath {
    /// Every interface that the programs know, with its endpoint.
    pub fn bound_interfaces(&self) -> Vec<(u32, u32)> {
        self.entries("ENDPOINT_BY_IFINDEX", self.sizes.interfaces)
    }

    /// Every cgroup that the programs know, with its endpoint.
    pub fn bound_cgroups(&self) -> Vec<(u64, u32)> {
        self.entries("ENDPOINT_BY_CGROUP", self.sizes.cgroups)
    }

    /// Puts both programs on the interface, first in their chains, in the place of older ones of ours. To be called
    /// again now and then: where another tool got in front, or took ours off, that is mended.
    ///
    /// # Errors
    /// [`AttachError`]; the program that sees what the pod sends is attached first.
    pub fn attach_interface(&self, ifindex: u32, method: Method) -> Result<Placed, AttachError> {
        let mut placed = Placed::Already;
        for hook in TcHook::ALL {
            let failed = |error| AttachError::Interface { ifindex, hook: hook.name(), error };
            let missing = |error| failed(TcError::Kernel { what: "finding the program", error });
            let program =
                self.ebpf.program(hook.program()).ok_or_else(|| missing(io::ErrorKind::NotFound.into()))?;
            let program = program.fd().map_err(|error| missing(io::Error::other(chain(&error))))?;
            let pins = self.versioned();
            let place = Place { ifindex, hook, pins: &pins, method };
            placed = placed.max(place.put(program.as_fd()).map_err(failed)?);
        }
        Ok(placed)
    }

    /// Takes our programs off the interface; other tools' stay. An interface that is gone is no error.
    ///
    /// # Errors
    /// [`AttachError`]; the other hook is done all the same.
    pub fn detach_interface(&self, ifindex: u32, method: Method) -> Result<(), AttachError> {
        let pins = self.versioned();
        let done = TcHook::ALL.map(|hook| {
            let taken = Place { ifindex, hook, pins: &pins, method }.take_off();
            taken.map_err(|error| AttachError::Interface { ifindex, hook: hook.name(), error })
        });
        done.into_iter().collect()
    }

    /// Removes the pins of interfaces that are gone. Gives their number.
    pub fn sweep_interfaces(&self) -> usize {
        tc::sweep(&self.versioned())
    }

    pub(super) fn versioned(&self) -> PathBuf {
        pins::version_dir(&self.dir)
    }
}
