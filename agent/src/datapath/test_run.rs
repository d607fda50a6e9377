//! `BPF_PROG_TEST_RUN` of our programs: the agent's own ones, and in tests those of the packets.

use aya::programs::{Program, ProgramError, TestRun as _, TestRunOptions, TestRunResult};

use super::{Datapath, RunError, load::chain};

/// What a program made of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    /// Its return value.
    pub value: u32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// Time of one run in ns, the mean over all repetitions.
    pub nanoseconds: u64,
}

/// Bytes that a packet may have grown by.
const ROOM: usize = 256;

impl Datapath {
    /// Runs a program `repeat` times on `packet`, which begins with 14 bytes of Ethernet header. cgroup programs see
    /// the calling process's cgroup.
    ///
    /// # Errors
    /// [`RunError`] when there is no such program, or the kernel refuses the packet.
    pub fn test_run(&self, program: &'static str, packet: &[u8], repeat: u32) -> Result<TestRun, RunError> {
        let failed = |error| RunError { program, error };
        let mut out = vec![0; packet.len() + ROOM];
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.data_out = Some(&mut out);
        options.repeat = repeat;
        let result: Result<TestRunResult, ProgramError> = match self.ebpf.program(program) {
            Some(Program::SchedClassifier(program)) => program.test_run(options),
            Some(Program::CgroupSkb(program)) => program.test_run(options),
            _ => return Err(failed("no such program".to_owned())),
        };
        let result = result.map_err(|error| failed(chain(&error)))?;
        out.truncate(result.data_size_out as usize);
        let nanoseconds = u64::try_from(result.duration.as_nanos()).unwrap_or(u64::MAX);
        Ok(TestRun { value: result.return_value, packet: out, nanoseconds })
    }
}
