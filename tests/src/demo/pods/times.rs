//! What time changes: lifetimes, edits of a policy in use, an agent that is killed.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::story::Story;
use super::tries::{Try, Want};
use super::{Step, Verdict};
use crate::cluster::names_of_web;
use crate::exec::Running;
use crate::wait;

/// Names that nobody has looked up before.
pub(super) const FRESH: usize = 3000;
/// For programs that go on until something has happened.
const LIMIT: Duration = Duration::from_secs(30);
/// Look-ups before, without and with the next agent.
const ROUNDS: u64 = 100;

/// All steps, in the order in which they are done.
pub(super) fn all() -> Vec<Step> {
    vec![
        Step {
            name: "TTL transition",
            done: "rotate.example (TTL 1) gets another address",
            expected: "old one closed after TTL + grace, open connection goes on",
            act: ttl_transition,
            core: true,
        },
        Step {
            name: "edit of a policy",
            done: "names a, b, c -> b, c",
            expected: "a denied; b, c go on without a look-up",
            act: edit,
            core: true,
        },
        Step {
            name: "agent killed",
            done: "kill -9 under traffic, then start the next one",
            expected: "nothing fails, denied stays denied",
            act: killed,
            core: false,
        },
    ]
}

fn ttl_transition(story: &mut Story) -> Verdict {
    story.apply("names.yaml", &names_of_web(&["rotate.example"]));
    let running = story.python(
        "web",
        "import socket, time\n\
         def connect(host): return socket.create_connection((host, 80), timeout=0.4)\n\
         def who(s): s.sendall(b'WHO\\n'); return s.recv(200).decode().split()[1]\n\
         kept = socket.create_connection(('rotate.example', 80), timeout=8)\n\
         kept.settimeout(8)\n\
         old, start = kept.getpeername()[0], time.time()\n\
         print('first', who(kept))\n\
         while True:\n\
         \x20   try: connect(old).close()\n\
         \x20   except OSError: break\n\
         \x20   time.sleep(0.05)\n\
         print('closed', round(time.time() - start, 1))\n\
         print('kept', who(kept))\n\
         s = socket.create_connection(('rotate.example', 80), timeout=8)\n\
         print('second', who(s))\n",
    );
    let outcome = running.wait(LIMIT);
    let value = |key: &str| {
        let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(key));
        line.map(|text| text.trim().to_owned()).ok_or_else(|| format!("no {key}: {outcome:?}"))
    };
    let (first, second, kept, closed) = (value("first")?, value("second")?, value("kept")?, value("closed")?);
    let expired = story.drops("web", "NameExpired");
    let old = story.all(&[Try::new("web", "http://192.0.2.51/", Want::Silence)])?;
    let seconds: f64 = closed.parse().map_err(|_| format!("closed after {closed:?}"))?;
    // TTL 1 and grace 1, then a connect that is given up after 0.4 s.
    let in_time = (1.5..wait::patient(Duration::from_secs(4)).as_secs_f64()).contains(&seconds);
    if first != "192.0.2.51:80" || second != "192.0.2.52:80" || kept != first || !in_time || expired == 0 {
        return Err(format!("{outcome:?}, NameExpired {expired}"));
    }
    Ok(format!("{first} closed after {closed} s (NameExpired), {old}, kept one answers; now {second}"))
}

fn edit(story: &mut Story) -> Verdict {
    let (a, b, c) = ("a.example", "b.example", "c.example");
    story.apply("names.yaml", &names_of_web(&[a, b, c]));
    let mut running = story.python(
        "web",
        "import socket, sys\n\
         def who(s): s.sendall(b'WHO\\n'); return s.recv(200).decode().split()[1]\n\
         open = {n: socket.create_connection((n + '.example', 80), timeout=8) for n in 'abc'}\n\
         print('looked up', flush=True)\n\
         sys.stdin.read()\n\
         for n in 'bc': print('kept', n, who(open[n]))\n",
    );
    let ready = || running.stdout_so_far().contains("looked up").then_some(());
    wait::until(wait::patient(LIMIT), ready).ok_or("the names were not looked up")?;
    let asked = |story: &Story| [b, c].map(|name| story.cluster.queries().count(name));
    let before = asked(story);
    story.apply("names.yaml", &names_of_web(&[b, c]));
    let tried = story.all(&[
        Try::new("web", "http://192.0.2.61/", Want::Silence),
        Try::new("web", "http://192.0.2.62/", Want::Reach("192.0.2.62:80")),
        Try::new("web", "http://192.0.2.63/", Want::Reach("192.0.2.63:80")),
    ])?;
    running.feed(b"");
    let outcome = running.wait(LIMIT);
    if !outcome.success() || asked(story) != before {
        return Err(format!("{before:?}, then {:?} queries: {outcome:?}", asked(story)));
    }
    Ok(format!("{tried}, open ones answer, 0 queries"))
}

fn killed(story: &mut Story) -> Verdict {
    story.apply("names.yaml", &names_of_web(&["*.fresh.example"]));
    let mut running = story.python(
        "web",
        "import select, socket, sys, time\n\
         kept = socket.create_connection(('vendor.example', 80), timeout=8)\n\
         closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); closed.setblocking(False)\n\
         rounds = lookups = connects = echoes = leaks = 0\n\
         while not select.select([sys.stdin], [], [], 0.02)[0]:\n\
         \x20   address = None\n\
         \x20   try: address = socket.gethostbyname(f'n{rounds % 3000}.fresh.example')\n\
         \x20   except OSError: lookups += 1\n\
         \x20   try: socket.create_connection((address, 80), timeout=0.9).close()\n\
         \x20   except OSError: connects += 1\n\
         \x20   try: kept.sendall(b'x\\n'); echoes += kept.recv(9) != b'x\\n'\n\
         \x20   except OSError: echoes += 1\n\
         \x20   closed.sendto(b'x', ('203.0.113.99', 9999))\n\
         \x20   try: closed.recv(9); leaks += 1\n\
         \x20   except OSError: pass\n\
         \x20   rounds += 1\n\
         \x20   print(rounds, lookups, connects, echoes, leaks, flush=True)\n",
    );
    more_rounds(&running, ROUNDS)?;
    story.cluster.agent.end(Signal::SIGKILL);
    more_rounds(&running, ROUNDS)?;
    story.cluster.agent.start();
    more_rounds(&running, ROUNDS)?;
    running.feed(b"");
    let outcome = running.wait(LIMIT);
    let last = rounds(&outcome.stdout).ok_or_else(|| format!("{outcome:?}"))?;
    let status = story.cluster.agent.json(&["status"]);
    let [all, failures @ ..] = last;
    if failures != [0; 4] || status["adopted"] != true {
        return Err(format!("{all} rounds, failures {failures:?}: {status}"));
    }
    Ok(format!(
        "{all} new names, 0 look-ups, 0 connects, 0 echoes failed, 0 of {all} denied datagrams passed"
    ))
}

/// Waits until the program has done so many rounds more.
fn more_rounds(running: &Running, more: u64) -> Result<(), String> {
    let done = || rounds(&running.stdout_so_far()).map_or(0, |numbers| numbers[0]);
    let end = done() + more;
    let reached = wait::until(wait::patient(LIMIT), || (done() >= end).then_some(()));
    reached.ok_or_else(|| format!("it hangs at {}: {}", done(), running.stderr_so_far()))
}

/// The numbers of the last whole line.
fn rounds(stdout: &str) -> Option<[u64; 5]> {
    let whole = &stdout[..=stdout.rfind('\n')?];
    let numbers: Vec<u64> = whole.lines().last()?.split(' ').filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}
