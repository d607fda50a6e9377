//! The kinds that are watched, and where an API server has them.

use egret_core::cluster::Kind;
use kube::Client;
use kube::discovery::ApiResource;

/// A kind to watch.
#[derive(Debug)]
pub(super) struct Watched {
    /// What it is for Egret.
    pub(super) kind: Kind,
    group: &'static str,
    /// The newest one first: all of them say the same.
    versions: &'static [&'static str],
    plural: &'static str,
    /// Of a custom resource that may not be there, or not yet.
    pub(super) optional: bool,
}

const fn core(kind: Kind, group: &'static str, plural: &'static str) -> Watched {
    Watched { kind, group, versions: &["v1"], plural, optional: false }
}

const fn custom(
    kind: Kind,
    group: &'static str,
    versions: &'static [&'static str],
    plural: &'static str,
) -> Watched {
    Watched { kind, group, versions, plural, optional: true }
}

/// All of them.
pub(super) static WATCHED: [Watched; 10] = [
    core(Kind::Namespace, "", "namespaces"),
    core(Kind::Node, "", "nodes"),
    core(Kind::Pod, "", "pods"),
    core(Kind::Service, "", "services"),
    core(Kind::EndpointSlice, "discovery.k8s.io", "endpointslices"),
    core(Kind::NetworkPolicy, "networking.k8s.io", "networkpolicies"),
    custom(Kind::CiliumNetworkPolicy, "cilium.io", &["v2"], "ciliumnetworkpolicies"),
    custom(Kind::CiliumClusterwideNetworkPolicy, "cilium.io", &["v2"], "ciliumclusterwidenetworkpolicies"),
    custom(Kind::CiliumCidrGroup, "cilium.io", &["v2", "v2alpha1"], "ciliumcidrgroups"),
    custom(
        Kind::ClusterNetworkPolicy,
        "policy.networking.k8s.io",
        &["v1beta1", "v1alpha2"],
        "clusternetworkpolicies",
    ),
];

impl Watched {
    /// Where the server has it, as far as it is known without asking.
    pub(super) fn resource(&self) -> Option<ApiResource> {
        (!self.optional).then(|| self.in_version(self.versions[0]))
    }

    /// Asks the server where it has it; `None`: it does not.
    ///
    /// # Errors
    /// There was no answer.
    pub(super) async fn find(&self, client: &Client) -> kube::Result<Option<ApiResource>> {
        let groups = client.list_api_groups().await?.groups;
        let Some(group) = groups.into_iter().find(|group| group.name == self.group) else {
            return Ok(None);
        };
        let served = |version: &&&str| group.versions.iter().any(|has| has.version == **version);
        for version in self.versions.iter().filter(served) {
            let has = client.list_api_group_resources(&format!("{}/{version}", self.group)).await?;
            if has.resources.iter().any(|resource| resource.name == self.plural) {
                return Ok(Some(self.in_version(version)));
            }
        }
        Ok(None)
    }

    fn in_version(&self, version: &str) -> ApiResource {
        let group = self.group;
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
            kind: self.kind.to_string(),
            plural: self.plural.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_that_is_watched_can_be_read() {
        for watched in &WATCHED {
            for version in watched.versions {
                let resource = watched.in_version(version);
                assert_eq!(
                    Kind::of(&resource.api_version, &resource.kind),
                    Some(watched.kind),
                    "{resource:?}"
                );
            }
        }
    }
}
