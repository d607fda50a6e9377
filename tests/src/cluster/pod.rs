//! The pods, and their objects.

use std::fmt::Write as _;

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its object's name.
    pub name: &'static str,
    /// Its object's namespace.
    pub namespace: &'static str,
    /// The network namespace as the world calls it.
    pub ns: &'static str,
    /// IPv4 and IPv6.
    pub addresses: [&'static str; 2],
    /// Labels.
    pub labels: Vec<(&'static str, &'static str)>,
    /// Annotations beside the one that says where it is.
    pub annotations: Vec<(&'static str, &'static str)>,
    /// Kind and name of the object that controls it.
    pub owner: Option<(&'static str, &'static str)>,
}

/// Every pod that there may be; `web2` is what `web` becomes when it is created anew.
pub(super) fn all() -> Vec<Pod> {
    let pod = |namespace, name, v4, v6, label| Pod {
        name,
        namespace,
        ns: name,
        addresses: [v4, v6],
        labels: vec![label],
        annotations: Vec::new(),
        owner: None,
    };
    vec![
        pod("shop", "web", "10.244.0.11", "2001:db8:244::11", ("app", "web")),
        pod("shop", "web2", "10.244.0.21", "2001:db8:244::21", ("app", "web")),
        pod("shop", "api", "10.244.0.12", "2001:db8:244::12", ("app", "api")),
        pod("shop", "job", "10.244.0.13", "2001:db8:244::13", ("app", "job")),
        pod("kube-system", "dns", "10.244.0.53", "2001:db8:244::53", ("k8s-app", "kube-dns")),
    ]
}

impl Pod {
    /// Namespace and name.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The node's end of its interface.
    pub fn interface(&self) -> String {
        format!("v{}", self.ns)
    }

    /// Gives a label another value.
    pub fn label(&mut self, key: &'static str, value: &'static str) {
        self.labels.retain(|(known, _)| *known != key);
        self.labels.push((key, value));
    }

    /// Its object; `netns` is what `ip netns` calls its network namespace.
    pub(super) fn yaml(&self, netns: &str) -> String {
        let Self { name, namespace, ns, addresses: [v4, v6], .. } = self;
        let map = |pairs: &[(&str, &str)]| {
            let mut text = String::new();
            for (key, value) in pairs {
                let _ = write!(text, "\n    {key}: \"{value}\"");
            }
            text
        };
        let mut annotations = vec![("egret.dev/netns", netns)];
        annotations.extend(&self.annotations);
        let owner = self.owner.map(|(kind, name)| {
            format!("\n  ownerReferences: [{{kind: {kind}, name: {name}, uid: u, controller: true}}]")
        });
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  uid: uid-{ns}\n  \
             labels:{}\n  annotations:{}{}\nspec: {{nodeName: n1}}\n\
             status: {{phase: Running, podIPs: [{{ip: {v4}}}, {{ip: \"{v6}\"}}]}}\n",
            map(&self.labels),
            map(&annotations),
            owner.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_says_what_the_pod_is() {
        let mut pod = all().remove(0);
        pod.label("app", "other");
        pod.annotations.push(("a/b", "true"));
        let text = pod.yaml("eg-1-web");
        for part in
            ["labels:\n    app: \"other\"\n", "egret.dev/netns: \"eg-1-web\"\n    a/b: \"true\"", "uid-web"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
