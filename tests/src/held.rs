//! The client of a [`Lab`] held in either way: under `egret run`, or as a pod by an agent at the router. The same steps
//! must come out the same.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::agent::Agent;
use crate::egret::Guarded;
use crate::exec::Running;
use crate::lab::Lab;
use crate::netns::{CLIENT_V4, CLIENT_V6, RESOLVER_V4, RESOLVER_V6};
use crate::policy::Cnp;
use crate::probe::{Session, Tried};
use crate::report::CONTROL;
use crate::wait;

/// Who holds the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// `egret run`: programs at its cgroup.
    Run,
    /// `egret agent`: programs at the router's end of its interface.
    Pod,
}

/// What the client may do.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    names: Vec<(String, Vec<String>)>,
    /// `--ttl-floor`, `--grace`.
    lifetimes: Option<(u32, u32)>,
}

/// A probe that is held.
#[derive(Debug)]
pub struct Held {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Run(Guarded),
    Pod(Session, Agent),
}

impl Terms {
    /// It may look up and reach this name at these ports (`443/TCP`).
    pub fn name(name: &str, ports: &[&str]) -> Self {
        Self::default().and(name, ports)
    }

    /// And this one.
    #[must_use]
    pub fn and(mut self, name: &str, ports: &[&str]) -> Self {
        self.names.push((name.into(), ports.iter().map(|port| (*port).into()).collect()));
        self
    }

    /// With these lifetimes.
    #[must_use]
    pub fn lifetimes(mut self, floor: u32, grace: u32) -> Self {
        self.lifetimes = Some((floor, grace));
        self
    }

    /// As policy. The look-ups are opened as well, which a pod needs.
    pub fn policy(&self) -> String {
        self.names
            .iter()
            .fold(Cnp::new(), |policy, (name, ports)| {
                let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
                policy.queries(name).fqdn(name, &ports)
            })
            .text()
    }

    fn args(&self) -> Vec<String> {
        let Some((floor, grace)) = self.lifetimes else { return Vec::new() };
        ["--ttl-floor", &floor.to_string(), "--grace", &grace.to_string()].map(String::from).into()
    }
}

impl Held {
    /// Starts a probe in `c` under these terms.
    pub fn start(lab: &Lab, holder: Holder, terms: &Terms) -> Self {
        let inner = match holder {
            Holder::Run => {
                let args = terms.args();
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                Inner::Run(lab.egret().policy(&terms.policy()).args(&args).session())
            }
            Holder::Pod => {
                let agent = agent(lab, terms);
                Inner::Pod(Session::start(&lab.bare()), agent)
            }
        };
        Self { inner }
    }

    /// Panics unless the connect is refused at once, whichever errno that is.
    #[track_caller]
    pub fn refused(&mut self, to: &str) {
        match &mut self.inner {
            Inner::Run(session) => session.tcp(to).refused(),
            Inner::Pod(session, _) => {
                let Tried { result, elapsed } = session.tcp(to);
                assert_eq!(result, Err(libc::ECONNREFUSED), "{to}");
                assert!(
                    elapsed < wait::patient(Duration::from_millis(500)),
                    "{to}: refused, but late: {elapsed:?}"
                );
            }
        }
    }

    /// Panics unless a target that no test allows is refused.
    #[track_caller]
    pub fn is_held(&mut self) {
        self.refused(CONTROL);
    }

    /// The policy is another one from now on. Only for a pod.
    pub fn edit(&self, terms: &Terms) {
        let Inner::Pod(_, agent) = &self.inner else { panic!("the policy of a run stays") };
        agent.apply("policy.yaml", &terms.policy());
    }

    /// The agent of a pod.
    pub fn agent(&mut self) -> Option<&mut Agent> {
        match &mut self.inner {
            Inner::Run(_) => None,
            Inner::Pod(_, agent) => Some(agent),
        }
    }

    /// The process that holds: `egret run`, or the agent.
    pub fn egret(&mut self) -> &Running {
        match &mut self.inner {
            Inner::Run(session) => session.process(),
            Inner::Pod(_, agent) => agent.process(),
        }
    }

    /// Ends it. Panics unless these (sorted) are the reasons for which packets were dropped, and no others.
    #[track_caller]
    pub fn finish(self, reasons: &[&str]) {
        let told: Vec<String> = match self.inner {
            Inner::Run(session) => {
                let report = session.finish().report;
                report.drop_counters().into_iter().map(|(reason, _)| reason).collect()
            }
            Inner::Pod(_, agent) => agent.drops(POD).into_keys().collect(),
        };
        assert_eq!(told, reasons);
    }
}

const POD: &str = "default/c";

/// An agent that holds `c` at the router, and refuses what it denies.
fn agent(lab: &Lab, terms: &Terms) -> Agent {
    let resolvers = ["--trusted-resolver", RESOLVER_V4, "--trusted-resolver", RESOLVER_V6];
    let args = terms.args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut agent = Agent::new(&lab.world, "r").args(&resolvers).args(&["--on-deny", "reject"]).args(&args);
    agent.put("c.yaml", &object());
    agent.put("policy.yaml", &terms.policy());
    agent.start();
    agent.expect_ready(POD);
    agent
}

fn object() -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: c\n  uid: c\n  labels: {{app: c}}\n  annotations: \
         {{egret.dev/interface: vc}}\nspec: {{nodeName: n1}}\nstatus: {{phase: Running, podIPs: \
         [{{ip: {CLIENT_V4}}}, {{ip: \"{CLIENT_V6}\"}}]}}\n"
    )
}

impl Deref for Held {
    type Target = Session;

    fn deref(&self) -> &Session {
        match &self.inner {
            Inner::Run(session) => session,
            Inner::Pod(session, _) => session,
        }
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Session {
        match &mut self.inner {
            Inner::Run(session) => session,
            Inner::Pod(session, _) => session,
        }
    }
}
