//! The table of resources that the double serves: names, scope and the few rules in which they differ. Knows no
//! objects.

use serde_json::{Map, Value};

/// One resource of the API.
#[derive(Debug)]
pub(super) struct Kind {
    /// Empty for the core group.
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) short: &'static [&'static str],
    pub(super) namespaced: bool,
    /// Has a status subresource: `.status` is changed there and nowhere else.
    pub(super) status: bool,
    /// Comes from a CustomResourceDefinition: absent at first, knows no strategic merge patch, items of its lists
    /// carry their type.
    pub(super) custom: bool,
    /// May be replaced without a `resourceVersion`.
    pub(super) blind: bool,
    /// Is created by a PUT to a name that does not exist.
    pub(super) upsert: bool,
    /// What a field selector may ask for, beside `metadata.name` and `metadata.namespace`.
    pub(super) fields: &'static [&'static str],
}

const BUILT_IN: Kind = Kind {
    group: "",
    version: "v1",
    plural: "",
    kind: "",
    short: &[],
    namespaced: true,
    status: false,
    custom: false,
    blind: true,
    upsert: false,
    fields: &[],
};

/// Objects like others: nobody is refused anything for them.
const RBAC: Kind = Kind { group: "rbac.authorization.k8s.io", upsert: true, ..BUILT_IN };

const CILIUM: Kind =
    Kind { group: "cilium.io", version: "v2", custom: true, blind: false, status: true, ..BUILT_IN };

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// Every resource, in the order of discovery. Its place here is its number in the store.
pub(super) static KINDS: [Kind; 18] = [
    Kind { plural: "events", kind: "Event", short: &["ev"], upsert: true, fields: EVENT_FIELDS, ..BUILT_IN },
    Kind {
        plural: "namespaces",
        kind: "Namespace",
        short: &["ns"],
        namespaced: false,
        status: true,
        fields: &["status.phase"],
        ..BUILT_IN
    },
    Kind { plural: "nodes", kind: "Node", short: &["no"], namespaced: false, status: true, ..BUILT_IN },
    Kind { plural: "pods", kind: "Pod", short: &["po"], status: true, fields: POD_FIELDS, ..BUILT_IN },
    Kind { plural: "serviceaccounts", kind: "ServiceAccount", short: &["sa"], ..BUILT_IN },
    Kind {
        plural: "services",
        kind: "Service",
        short: &["svc"],
        status: true,
        upsert: true,
        fields: &["spec.clusterIP", "spec.type"],
        ..BUILT_IN
    },
    Kind {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        blind: false,
        upsert: true,
        ..BUILT_IN
    },
    Kind { group: "discovery.k8s.io", plural: "endpointslices", kind: "EndpointSlice", ..BUILT_IN },
    Kind {
        group: "events.k8s.io",
        plural: "events",
        kind: "Event",
        short: &["ev"],
        upsert: true,
        ..BUILT_IN
    },
    Kind {
        group: "networking.k8s.io",
        plural: "networkpolicies",
        kind: "NetworkPolicy",
        short: &["netpol"],
        ..BUILT_IN
    },
    Kind { plural: "clusterrolebindings", kind: "ClusterRoleBinding", namespaced: false, ..RBAC },
    Kind { plural: "clusterroles", kind: "ClusterRole", namespaced: false, ..RBAC },
    Kind { plural: "rolebindings", kind: "RoleBinding", ..RBAC },
    Kind { plural: "roles", kind: "Role", ..RBAC },
    Kind { plural: "ciliumnetworkpolicies", kind: "CiliumNetworkPolicy", short: &["cnp"], ..CILIUM },
    Kind {
        plural: "ciliumclusterwidenetworkpolicies",
        kind: "CiliumClusterwideNetworkPolicy",
        short: &["ccnp"],
        namespaced: false,
        ..CILIUM
    },
    Kind {
        plural: "ciliumcidrgroups",
        kind: "CiliumCIDRGroup",
        short: &["ccg"],
        namespaced: false,
        status: false,
        ..CILIUM
    },
    Kind {
        group: "policy.networking.k8s.io",
        version: "v1alpha2",
        plural: "clusternetworkpolicies",
        kind: "ClusterNetworkPolicy",
        short: &["cnp"],
        namespaced: false,
        ..CILIUM
    },
];

impl Kind {
    /// `v1`, or `group/version`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.into() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, or `leases.coordination.k8s.io`: as messages name it.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.into() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The key of an object, in the order in which the real server's database sorts.
    pub(super) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.into() }
    }

    /// The resource that an object says it is of.
    pub(super) fn of(object: &Map<String, Value>) -> Option<usize> {
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let (version, kind) = (text("apiVersion")?, text("kind")?);
        KINDS.iter().position(|known| known.kind == kind && known.api_version() == version)
    }
}

/// The resources of a group and version.
pub(super) fn within<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = usize> + 'a {
    (0..KINDS.len()).filter(move |id| KINDS[*id].group == group && KINDS[*id].version == version)
}
