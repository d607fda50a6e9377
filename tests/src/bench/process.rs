//! What a process costs, by /proc.

use std::fs;
use std::time::Duration;

/// A process that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// Processor time so far.
    pub(crate) fn cpu(self) -> Duration {
        let stat = self.read("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
        // USER_HZ is 100 on every architecture that Linux has BPF for.
        Duration::from_millis(ticks * 10)
    }

    /// A line of `status`, in MiB.
    pub(crate) fn memory(self, line: &str) -> u64 {
        let status = self.read("status");
        let found = status.lines().find_map(|l| l.strip_prefix(line)).expect("a line");
        found.split_whitespace().find_map(|word| word.parse::<u64>().ok()).expect("kB") / 1024
    }

    /// Every thread that it has now stays on this CPU.
    pub(crate) fn pin(self, cpu: usize) {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0)).expect("it runs");
        for task in tasks.flatten() {
            let tid = task.file_name().to_string_lossy().parse().expect("a number");
            pin(tid, cpu);
        }
    }

    fn read(self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0)).expect("it runs")
    }
}

/// A thread (0: this one) stays on this CPU, as far as there are so many.
pub(crate) fn pin(tid: i32, cpu: usize) {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: an all-zero set is valid; the call reads it for its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu % count, &mut set);
        libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
