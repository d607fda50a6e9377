//! What an answer teaches.

use std::net::IpAddr;

use egret_common::{
    grant::GrantTime,
    ids::{ClassId, EndpointId},
};

use super::{Grant, State, grant, opens};
use crate::{
    compile::{CompileError, addr},
    desired::MapOp,
    dns::{
        cache::Cache,
        lifetime::Lifetime,
        parse::{Answer, Learned},
    },
    names::Name,
};

/// What the kernel made of the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelDid {
    /// It granted the answer's addresses...
    pub learned: bool,
    /// ...to this class of the question.
    pub class: ClassId,
}

/// What follows from an answer. First the steps, then the grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lesson {
    /// Steps that must be taken before the grants.
    pub ops: Vec<MapOp>,
    /// Grants that the kernel did not make.
    pub grants: Vec<Grant>,
    /// Addresses that no name may open (loopback, link-local, multicast, unspecified), or only names under the cluster's
    /// domain (those of the cluster).
    pub forbidden: Vec<IpAddr>,
    /// The name that was meant, if the resolver walked the search path (CASES W-A03).
    pub bare: Option<Name>,
    /// Addresses that the cache had no room for; they are granted nevertheless.
    pub refused: usize,
}

impl State {
    /// Learns from an answer that a trusted resolver gave to a question of this workload, at `now`.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn see_answer(
        &mut self,
        endpoint: EndpointId,
        answer: &Answer,
        kernel: KernelDid,
        now: GrantTime,
    ) -> Result<Lesson, CompileError> {
        let mut lesson = Lesson::default();
        let Some(spec) = self.endpoints.iter().find(|e| e.id == endpoint) else { return Ok(lesson) };
        let lifetime = spec.lifetime;
        if let Some(asked) = answer.question.name.clone() {
            let (class, ops) = self.class_of(&asked)?;
            lesson.ops.extend(ops);
            let source = Source { endpoint, name: &asked, class, lifetime, now };
            let done = kernel.learned && kernel.class == class;
            self.learn(&mut lesson, &source, &answer.addresses, done);
            self.learn(&mut lesson, &source, &answer.hints, false);
        }
        if let Some(bare) = answer.autopath(&self.world.search).cloned() {
            let (class, ops) = self.class_of(&bare)?;
            lesson.ops.extend(ops);
            let source = Source { endpoint, name: &bare, class, lifetime, now };
            self.learn(&mut lesson, &source, &answer.addresses, false);
            lesson.bare = Some(bare);
        }
        lesson.forbidden.sort();
        lesson.forbidden.dedup();
        Ok(lesson)
    }

    /// Remembers addresses under a name, and grants them if the name opens anything.
    fn learn(&mut self, lesson: &mut Lesson, source: &Source<'_>, addresses: &[Learned], done: bool) {
        let open = opens(&self.compiled.desired, source.class);
        let limits = self.limits;
        let cache = self.caches.entry(source.endpoint).or_insert_with(|| Cache::new(limits));
        for learned in addresses {
            if !self.world.may_open(source.name, learned.address)
                || addr(learned.address).is_forbidden_answer()
            {
                lesson.forbidden.push(learned.address);
                continue;
            }
            let expires = source.lifetime.expiry(source.now, learned.ttl);
            if !cache.learn(source.name, learned.address, expires, source.now) {
                lesson.refused += 1;
            }
            if open && !done {
                lesson.grants.push(grant(source.endpoint, learned.address, source.class, expires));
            }
        }
    }
}

/// Who was told which name.
struct Source<'a> {
    endpoint: EndpointId,
    name: &'a Name,
    class: ClassId,
    lifetime: Lifetime,
    now: GrantTime,
}
