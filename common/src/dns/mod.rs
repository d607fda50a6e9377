//! The DNS scanner: reads a question, and from an answer the addresses that it can *prove* belong to the question.
//! Written as step functions over a scratch struct: the kernel drives them with `bpf_loop`, the host with a `for`.
//!
//! All state lives in [`Scratch`], which is map memory in the kernel: on 6.1 the verifier checks a `bpf_loop`
//! callback once, with the constants it finds on the stack, and removes the branches it did not see.
//!
//! What the scanner accepts is a subset of what a full parser accepts: whatever it cannot prove is
//! [`Outcome::Slow`], teaches the kernel nothing, and goes to the agent. The order of records carries no meaning;
//! only the answer section counts. RFC 1035 4.1, RFC 6891 6.1.

mod answer;
mod name;
mod scratch;

pub use answer::{Credited, Outcome, credited, scan_answer, scan_query};
pub use name::{Names, classify, legal};
pub use scratch::{ADDRESS_CAP, MSG_CAP, REV_CAP, Scratch, WireName};

/// Runs a step function until it returns false, `max` times at most.
pub trait Driver {
    /// The loop.
    fn repeat<S: Step>(scratch: &mut Scratch, max: u32);

    /// Clears a name. In the kernel by words: the compiler would call a loop over bytes.
    #[inline(always)]
    fn clear(name: &mut WireName) {
        *name = WireName([0; crate::maps::NAME_CAP]);
    }
}

/// One turn of a loop; all its state is in the scratch.
pub trait Step {
    /// True: go on.
    fn step(scratch: &mut Scratch) -> bool;
}

/// The driver of the host.
#[derive(Debug)]
pub struct ForLoop;

impl Driver for ForLoop {
    fn repeat<S: Step>(scratch: &mut Scratch, max: u32) {
        for _ in 0..max {
            if !S::step(scratch) {
                break;
            }
        }
    }
}
