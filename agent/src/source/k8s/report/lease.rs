//! Which agent of the cluster writes about objects: the one whose node's name sorts first, of those that are there.
//!
//! Owns a Lease in the agent's own namespace. Whoever stops renewing it loses it; a lower name takes it over at once.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

/// Its name.
const NAME: &str = "egret-policy-status";
/// Whoever has not renewed it for so long has lost it, in seconds.
const SECONDS: i32 = 30;
const LIFE: Duration = Duration::from_secs(SECONDS as u64);
/// How often it is renewed, or looked at.
const ROUND: Duration = Duration::from_secs(10);

/// The lease as this agent sees it.
pub(super) struct Seat {
    leases: Api<Lease>,
    own: String,
    /// The version that was seen last, and since when: other nodes' clocks are not believed.
    seen: Option<(String, Instant)>,
    looked: Option<Instant>,
    renewed: Option<Instant>,
}

impl Seat {
    pub(super) fn new(client: Client, own: &str) -> Self {
        let leases = Api::default_namespaced(client);
        Self { leases, own: own.to_owned(), seen: None, looked: None, renewed: None }
    }

    /// Whether this agent holds it now; renews it, or tries to get it, when it is time.
    pub(super) async fn is_held(&mut self) -> kube::Result<bool> {
        if self.looked.is_none_or(|at| at.elapsed() >= ROUND) {
            self.looked = Some(Instant::now());
            let begun = Instant::now();
            let held = self.take().await?;
            self.renewed = held.then_some(begun);
        }
        Ok(self.renewed.is_some_and(|at| at.elapsed() < LIFE))
    }

    async fn take(&mut self) -> kube::Result<bool> {
        let Some(mut lease) = self.leases.get_opt(NAME).await? else {
            let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.renewal(LeaseSpec::default())) };
            return lost_races(self.leases.create(&PostParams::default(), &lease).await);
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != version) {
            self.seen = Some((version, Instant::now()));
        }
        let old = self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() >= LIFE);
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if !old && !holder.is_empty() && holder < self.own.as_str() {
            return Ok(false);
        }
        lease.spec = Some(self.renewal(spec));
        lost_races(self.leases.replace(NAME, &PostParams::default(), &lease).await)
    }

    fn renewal(&self, before: LeaseSpec) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mine = before.holder_identity.as_ref() == Some(&self.own);
        let transitions = before.lease_transitions.unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.own.clone()),
            lease_duration_seconds: Some(SECONDS),
            acquire_time: before.acquire_time.filter(|_| mine).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if mine { transitions } else { transitions.saturating_add(1) }),
            ..before
        }
    }
}

/// Another agent was faster: no failure.
fn lost_races(result: kube::Result<Lease>) -> kube::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
