//! What must be known of the binary: that nothing else has to be loaded with it, and which machine it is for.

use anyhow::{Context, Result, bail};

/// `e_machine` and the name that images use.
const MACHINES: [(u16, &str); 2] = [(62, "amd64"), (183, "arm64")];
const PT_INTERP: u32 = 3;
/// Offsets in a 64-bit ELF header, and in a program header.
const E_MACHINE: usize = 18;
const E_PHOFF: usize = 32;
const E_PHENTSIZE: usize = 54;
const E_PHNUM: usize = 56;

/// The image's word for the machine of a static binary.
pub(super) fn check(binary: &[u8]) -> Result<&'static str> {
    // Class 64 bit, little endian, version 1.
    if !binary.starts_with(b"\x7fELF\x02\x01\x01") {
        bail!("is no 64-bit little-endian ELF file");
    }
    let machine = u16_at(binary, E_MACHINE)?;
    let Some((_, name)) = MACHINES.iter().find(|(number, _)| *number == machine) else {
        bail!("is for machine {machine}, of which Egret knows nothing");
    };
    let start = usize::try_from(u64::from_le_bytes(take(binary, E_PHOFF)?))?;
    let (size, count) = (u16_at(binary, E_PHENTSIZE)?, u16_at(binary, E_PHNUM)?);
    for index in 0..usize::from(count) {
        let at =
            start.checked_add(index * usize::from(size)).context("has a program header out of bounds")?;
        if u32::from_le_bytes(take(binary, at)?) == PT_INTERP {
            bail!(
                "is linked dynamically, and the image holds no loader: build it with -C target-feature=+crt-static"
            );
        }
    }
    Ok(name)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(take(bytes, at)?))
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let slice = bytes.get(at..).and_then(|rest| rest.get(..N)).context("ends within its headers")?;
    Ok(slice.try_into()?)
}
