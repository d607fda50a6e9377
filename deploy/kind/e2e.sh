#!/usr/bin/env bash
# Egret on a cluster of kind: install, policies, an agent killed under traffic, uninstall. Started by `cargo xtask kind`,
# which makes the image first. Prints one line per step; the first that does not hold ends it with code 1.
#
#   e2e.sh IMAGE.tar       the image as `cargo xtask image` writes it
#
# EGRET_E2E_KEEP=1 leaves the cluster as it is at the end, for looking at.

set -euo pipefail

image=${1:?the image archive}
root=$(cd "$(dirname "$0")/../.." && pwd)
cluster=egret-e2e
namespace=egret-e2e
# For the pods that are looked at; it needs sleep, httpd and wget.
pods_image=busybox:1.36
# Seconds until a change must have come about.
patience=60
work=$(mktemp -d)
# The user's own kubeconfig is neither read nor written.
export KUBECONFIG=$work/kubeconfig
made=no

finish() {
  local code=$?
  trap - EXIT
  if [ "$made" = yes ]; then
    if [ "$code" -ne 0 ]; then
      explain >&2 || true
    fi
    if [ "${EGRET_E2E_KEEP:-}" = 1 ]; then
      echo "the cluster stays: KUBECONFIG=$KUBECONFIG; kind delete cluster --name $cluster"
      exit "$code"
    fi
    kind delete cluster --name "$cluster" || true
  fi
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() { printf '\n==> %s\n' "$*"; }
fail() { printf 'e2e: %s\n' "$*" >&2; exit 1; }
k() { kubectl -n "$namespace" "$@"; }

# What one needs to know of a failure.
explain() {
  local pod
  kubectl get nodes,pods -A -o wide
  for pod in $(kubectl -n kube-system get pods -l app.kubernetes.io/name=egret -o name); do
    echo "--- $pod"
    kubectl -n kube-system logs --tail=50 "$pod"
    kubectl -n kube-system exec "$pod" -- egret status
    kubectl -n kube-system exec "$pod" -- egret endpoint list
    kubectl -n kube-system exec "$pod" -- egret policy get
  done
}

# Waits until a command succeeds.
within() {
  local end=$((SECONDS + patience))
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 1
  done
}

# One attempt by pod $1 to read from $2: nothing is kept, nothing is tried again.
reads() { k exec "$1" -- wget -q -T 2 -O /dev/null "http://$2/" 2>/dev/null; }
does_not_read() { ! reads "$1" "$2"; }

# $1 reaches $2, or does not: within a while, and still when asked again.
open() {
  { within reads "$1" "$2" && reads "$1" "$2"; } || fail "$1 does not reach $2: $3"
  echo "open:   $1 -> $2: $3"
}
closed() {
  { within does_not_read "$1" "$2" && does_not_read "$1" "$2"; } || fail "$1 reaches $2: $3"
  echo "closed: $1 -> $2: $3"
}

# The agent's pod of the node of pod $1.
agent_of() {
  local node
  node=$(k get pod "$1" -o 'jsonpath={.spec.nodeName}')
  kubectl -n kube-system get pods -l app.kubernetes.io/component=agent --field-selector "spec.nodeName=$node" -o name
}

# Whether Egret itself has dropped packets of pod $1 for reason $2: newer kinds bring an engine of their own for
# NetworkPolicy, whose silence looks the same.
has_dropped() {
  kubectl -n kube-system exec "$(agent_of "$1")" -- egret endpoint list -o json |
    awk -v pod="\"$namespace/$1\"" -v reason="\"$2\"" '
      /"pod":/ { ours = index($0, pod) > 0 }
      ours && /"reason":/ && index($0, reason) > 0 { found = 1 }
      END { exit !found }'
}

needs() {
  local program
  for program in docker kind kubectl helm; do
    command -v "$program" >/dev/null || { echo "e2e: there is no $program here" >&2; exit 69; }
  done
  docker info >/dev/null 2>&1 || { echo "e2e: no Docker engine answers" >&2; exit 69; }
  if kind get clusters 2>/dev/null | grep -qx "$cluster"; then
    fail "there is a cluster $cluster already: kind delete cluster --name $cluster"
  fi
}

create() {
  step "a cluster of two nodes"
  # What fails half way is removed too.
  made=yes
  kind create cluster --name "$cluster" --config "$root/deploy/kind/cluster.yaml" --wait 180s
  kind load image-archive "$image" --name "$cluster"
  docker image inspect "$pods_image" >/dev/null 2>&1 || docker pull -q "$pods_image"
  kind load docker-image "$pods_image" --name "$cluster"
}

install() {
  step "the chart, with the CRDs"
  helm install egret "$root/deploy/helm/egret" --namespace kube-system --set crds.install=true --wait --timeout 300s
  kubectl -n kube-system rollout status daemonset/egret --timeout=300s
  kubectl wait --for=condition=Established --timeout=60s crd/ciliumnetworkpolicies.cilium.io
  kubectl apply -f "$root/deploy/kind/pods.yaml"
  k wait --for=condition=Ready --timeout=180s pod --all
  server=$(k get pod server -o 'jsonpath={.status.podIP}')
  other=$(k get pod other -o 'jsonpath={.status.podIP}')
  vip=$(k get service server -o 'jsonpath={.spec.clusterIP}')
}

policies() {
  step "NetworkPolicy: default deny, allowed by label"
  open client "$server:8080" "nothing isolates"
  k apply -f "$root/deploy/kind/deny.yaml"
  closed client "$server:8080" "default deny"
  closed client "$vip" "default deny, by the Service"
  has_dropped client NoRule || fail "Egret has dropped nothing of the client's"
  k apply -f "$root/deploy/kind/allow.yaml"
  open client "$server:8080" "allowed by label"
  open client "$vip" "allowed by the label of the pods behind the Service"
  closed client "$other:8080" "another label"
  k label pod server role=closed --overwrite
  closed client "$server:8080" "the label is gone"
  k label pod server role=open --overwrite
  open client "$server:8080" "the label is back"
}

names() {
  step "CiliumNetworkPolicy: one name"
  k apply -f "$root/deploy/kind/names.yaml"
  within is_valid || fail "the policy does not say that it is valid"
  closed asker "$other:8080" "no name was asked for"
  open asker "names.$namespace.svc.cluster.local:8080" "the name that is allowed"
  closed asker "others.$namespace.svc.cluster.local:8080" "another name"
  has_dropped asker NameUnresolved || has_dropped asker NoRule || fail "Egret has dropped nothing of the asker's"
}

is_valid() {
  local valid='{.status.conditions[?(@.type=="Valid")].status}'
  [ "$(k get ciliumnetworkpolicies.cilium.io names -o "jsonpath=$valid")" = True ]
}

# SIGKILL of the agent, and then the end of its whole pod, while one pod goes on asking for a name and connecting.
# Both sides are counted: what must pass, and what must not.
kill_agent() {
  local agent node
  step "the agent is killed, its pod deleted, while traffic goes on"
  agent=$(agent_of asker)
  node=$(k get pod asker -o 'jsonpath={.spec.nodeName}')
  # shellcheck disable=SC2016 # expanded in the pod
  k exec asker -- sh -c '
    rm -f /tmp/stop /tmp/failed /tmp/leaked /tmp/done; : > /tmp/tries
    while ! [ -e /tmp/stop ]; do
      wget -q -T 2 -O /dev/null "http://$0/" 2>/dev/null || echo x >> /tmp/failed
      ! wget -q -T 1 -O /dev/null "http://$1/" 2>/dev/null || echo x >> /tmp/leaked
      echo x >> /tmp/tries
    done
    echo yes > /tmp/done' "names.$namespace.svc.cluster.local:8080" "$other:8080" &
  within tried 3 || fail "the traffic does not start"
  docker exec "$node" pkill -KILL -x egret || fail "no agent to kill on $node"
  within tried 6 || fail "the traffic has stopped"
  kubectl -n kube-system delete "$agent" --grace-period=0 --force
  kubectl -n kube-system rollout status daemonset/egret --timeout=300s
  within tried 12 || fail "the traffic has stopped"
  k exec asker -- touch /tmp/stop
  wait $!
  echo "tries: $(tries), failed: $(count failed), leaked: $(count leaked)"
  if [ "$(count failed)" -ne 0 ] || [ "$(count leaked)" -ne 0 ]; then
    fail "the end of the agent was noticed"
  fi
  open asker "names.$namespace.svc.cluster.local:8080" "under the next agent"
  closed asker "$other:8080" "under the next agent"
}

# Lines of a file in the asker; none if there is no file.
count() { k exec asker -- sh -c "cat /tmp/$1 2>/dev/null | wc -l"; }
tries() { count tries; }
tried() { [ "$(tries)" -ge "$1" ]; }

uninstall() {
  local node
  step "uninstall"
  helm uninstall egret --namespace kube-system --wait --timeout 120s
  within no_agent || fail "agents are still there"
  reads asker "$other:8080" && fail "the end of the release has opened what was closed"
  echo "closed: asker -> $other:8080: what was enforced stays, until it is taken off"
  # The version stands in the manifest; the image is the one that was loaded.
  kubectl apply -f "$root/deploy/uninstall.yaml"
  within is_clean || fail "not every node is clean"
  kubectl delete -f "$root/deploy/uninstall.yaml"
  open asker "$other:8080" "nobody enforces"
  for node in $(kind get nodes --name "$cluster"); do
    [ -z "$(docker exec "$node" sh -c 'ls -A /sys/fs/bpf/egret 2>/dev/null')" ] || fail "pins are left on $node"
  done
}

no_agent() { [ -z "$(kubectl -n kube-system get pods -l app.kubernetes.io/component=agent -o name)" ]; }

# Every node's container has ended with code 0.
is_clean() {
  local codes nodes
  nodes=$(kubectl get nodes -o name | wc -l)
  codes=$(kubectl -n kube-system get pods -l app.kubernetes.io/component=uninstall -o \
    'jsonpath={range .items[*]}{.status.containerStatuses[0].lastState.terminated.exitCode}{"\n"}{end}')
  [ "$(grep -cx 0 <<<"$codes")" -eq "$nodes" ]
}

needs
create
install
policies
names
kill_agent
uninstall
step "all of it held"
