//! A running pod with all that the parts of a cluster write into it: the template, what admission adds, what the
//! scheduler and the kubelet report, and who wrote which field.

use serde_json::{Value, json};

use super::{address, app, name, namespace, node_address, node_name};

/// Where a text of the mould is to be filled in.
pub(super) const MARKS: [&str; 11] = [
    "<app>",
    "<name>",
    "<namespace>",
    "<node>",
    "<host>",
    "<address>",
    "<hash>",
    "<release>",
    "<tier>",
    "<uid>",
    "<long>",
];

/// What is filled in, in the order of [`MARKS`].
pub(super) type Values = [String; MARKS.len()];

/// What differs from pod to pod.
pub(super) fn values(number: u32, node: u32, release: u32) -> Values {
    [
        app(number),
        name(number),
        namespace(number),
        node_name(node),
        node_address(node).to_string(),
        address(number).to_string(),
        format!("{:08x}", number / 4),
        release.to_string(),
        if number.is_multiple_of(3) { "front" } else { "back" }.to_owned(),
        format!("{number:08x}-0000-4000-8000-{:012x}", number.wrapping_mul(0x9e37_79b1)),
        format!("{:064x}", u128::from(number.wrapping_mul(0x9e37_79b1)).pow(3)),
    ]
}

const START: &str = "2026-01-15T08:30:00Z";
const TOKENS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The object, with marks where pods differ.
pub(super) fn object() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "<name>",
            "generateName": "<app>-<hash>-",
            "namespace": "<namespace>",
            "uid": "<uid>",
            "generation": 1,
            "creationTimestamp": START,
            "labels": {
                "app.kubernetes.io/name": "<app>",
                "app.kubernetes.io/instance": "<app>-<namespace>",
                "app.kubernetes.io/part-of": "town",
                "app.kubernetes.io/version": "1.<release>.0",
                "pod-template-hash": "<hash>",
                "tier": "<tier>",
            },
            "annotations": {
                "checksum/config": "<long>",
                "kubectl.kubernetes.io/restartedAt": START,
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9102",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "<app>-<hash>",
                "uid": "<hash>-0000-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": managed(),
        },
        "spec": spec(),
        "status": status(),
    })
}

fn spec() -> Value {
    json!({
        "nodeName": "<node>",
        "serviceAccountName": "<app>",
        "serviceAccount": "<app>",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "securityContext": {"runAsNonRoot": true, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [container("prepare", "<app>", &[])],
        "containers": [
            container("main", "<app>", &[("http", 8080), ("metrics", 9102)]),
            container("proxy", "sidecar", &[("admin", 9901)]),
        ],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300},
        ],
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "<app>"}},
        }],
        "volumes": [
            {"name": "config", "configMap": {"name": "<app>-config", "defaultMode": 420}},
            {"name": "tls", "secret": {"secretName": "<app>-tls", "defaultMode": 420}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ]}},
        ],
    })
}

fn container(name: &str, app: &str, ports: &[(&str, u16)]) -> Value {
    let open: Vec<Value> = ports
        .iter()
        .map(|(name, port)| json!({"name": name, "containerPort": port, "protocol": "TCP"}))
        .collect();
    let probe = |path: &str, period: u32| {
        json!({
            "httpGet": {"path": path, "port": ports.first().map(|(name, _)| *name), "scheme": "HTTP"},
            "initialDelaySeconds": 5, "timeoutSeconds": 1, "periodSeconds": period, "successThreshold": 1,
            "failureThreshold": 3,
        })
    };
    let mut container = json!({
        "name": name,
        "image": format!("registry.example.com/town/{app}-{name}:1.0.0"),
        "imagePullPolicy": "IfNotPresent",
        "args": ["--config=/etc/app/config.yaml", "--log-level=info"],
        "ports": open,
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": format!("{app}-db"), "key": "password"}}},
            {"name": "DATABASE", "value": format!("postgres://{app}@db.town.svc.cluster.local:5432/{app}")},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app", "readOnly": true},
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "kube-api-access", "mountPath": TOKENS, "readOnly": true},
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    });
    if !ports.is_empty() {
        container["livenessProbe"] = probe("/live", 10);
        container["readinessProbe"] = probe("/ready", 5);
    }
    container
}

fn status() -> Value {
    let condition = |name: &str| {
        json!({"type": name, "status": "True", "lastProbeTime": null, "lastTransitionTime": START,
            "observedGeneration": 1})
    };
    let ran = |name: &str, image: &str, state: Value| {
        json!({
            "name": name, "ready": true, "started": true, "restartCount": 0, "state": state, "lastState": {},
            "image": format!("registry.example.com/town/{image}-{name}:1.0.0"),
            "imageID": format!("registry.example.com/town/{image}-{name}@sha256:{:064x}", 0x1234_5678_u64),
            "containerID": "containerd://<long>",
        })
    };
    let running = || json!({"running": {"startedAt": START}});
    let finished = json!({"terminated": {
        "exitCode": 0, "reason": "Completed", "startedAt": START, "finishedAt": START,
    }});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(condition);
    json!({
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": START,
        "observedGeneration": 1,
        "hostIP": "<host>",
        "hostIPs": [{"ip": "<host>"}],
        "podIP": "<address>",
        "podIPs": [{"ip": "<address>"}],
        "conditions": conditions,
        "initContainerStatuses": [ran("prepare", "<app>", finished)],
        "containerStatuses": [ran("main", "<app>", running()), ran("proxy", "sidecar", running())],
    })
}

/// Who wrote which field: the controller the template, the kubelet the status.
fn managed() -> Value {
    let all = |keys: &[&str]| -> Value { keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect() };
    let fields = ["args", "env", "image", "imagePullPolicy", "name", "ports", "resources", "volumeMounts"];
    let condition = all(&["lastProbeTime", "lastTransitionTime", "observedGeneration", "status", "type"]);
    json!([
        {
            "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": START,
            "fieldsType": "FieldsV1", "fieldsV1": {
                "f:metadata": {
                    "f:annotations": all(&["checksum/config", "prometheus.io/scrape", "prometheus.io/port"]),
                    "f:labels": all(&["app.kubernetes.io/name", "app.kubernetes.io/version", "tier"]),
                    "f:generateName": {}, "f:ownerReferences": {},
                },
                "f:spec": {
                    "f:containers": {
                        "k:{\"name\":\"main\"}": all(&fields), "k:{\"name\":\"proxy\"}": all(&fields),
                    },
                    "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                },
            },
        },
        {
            "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": START, "subresource": "status",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {
                "f:conditions": {
                    "k:{\"type\":\"Ready\"}": condition, "k:{\"type\":\"Initialized\"}": condition,
                    "k:{\"type\":\"ContainersReady\"}": condition,
                },
                "f:containerStatuses": {}, "f:hostIP": {}, "f:podIP": {}, "f:podIPs": {}, "f:phase": {},
            }},
        },
    ])
}
