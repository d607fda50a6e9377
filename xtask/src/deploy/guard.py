"""Runs the ValidatingAdmissionPolicy of a rendered file on changes of nodes: which it lets through, and why not.

    guard.py FILE
"""

import sys

import celpy
import yaml
from celpy import celtypes

KEY = "egret.dev/agent-not-ready"
OURS = {"key": KEY, "effect": "NoSchedule"}
OTHER = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
MILDER = {**OTHER, "effect": "NoSchedule"}
EGRET = "system:serviceaccount:kube-system:egret"
NODE_NAME = "authentication.kubernetes.io/node-name"

PASSES = None
ADD, REMOVE = "egret may add no taint", f"egret may remove only the taint {KEY}"
OWN, CORDON = "egret may change only the node that it runs on", "egret may not cordon or uncordon"
META = "egret may change neither labels, annotations, owners nor finalizers"


def node(taints=None, name="n1", unschedulable=None, **metadata):
    spec = {"taints": taints, "unschedulable": unschedulable}
    return {"metadata": {"name": name, **metadata}, "spec": {k: v for k, v in spec.items() if v is not None}}


# Before, after, what comes of it, and whose request it is if not that of the agent of n1.
CASES = [
    (node([OURS, OTHER]), node([OTHER]), PASSES, {}),
    (node([OURS]), node(), PASSES, {}),
    (node([OURS]), node([]), PASSES, {}),
    (node([OTHER]), node([OTHER]), PASSES, {}),
    (node([OURS], labels={"a": "b"}), node(labels={"a": "b"}), PASSES, {}),
    (node([OURS], unschedulable=True), node(unschedulable=True), PASSES, {}),
    (node([OURS, OTHER]), node([OURS]), REMOVE, {}),
    (node([OURS, OTHER]), node(), REMOVE, {}),
    (node([OURS]), node([OTHER]), ADD, {}),
    (node(), node([OURS]), ADD, {}),
    (node([OTHER]), node([MILDER]), ADD, {}),
    (node([OURS], "n2"), node([], "n2"), OWN, {}),
    (node([OURS]), node(), OWN, {"extra": {}}),
    (node([OURS]), node(), OWN, {"extra": None}),
    (node([OURS]), node(unschedulable=True), CORDON, {}),
    (node([OURS], unschedulable=True), node(), CORDON, {}),
    (node([OURS]), node(labels={"node-role.kubernetes.io/control-plane": ""}), META, {}),
    (node([OURS], annotations={"a": "b"}), node(annotations={"a": "c"}), META, {}),
    (node([OURS]), node(finalizers=["x"]), META, {}),
    # Nobody else is looked at.
    (node([OTHER]), node(), PASSES, {"username": "system:serviceaccount:kube-system:other"}),
    (node([OTHER]), node(), PASSES, {"username": "system:node:n1"}),
]


def verdict(policy, old, new, who):
    """The message of the first rule that is broken, if one is."""
    user = {"username": EGRET, "extra": {NODE_NAME: ["n1"]}, **who}
    user = {key: value for key, value in user.items() if value is not None}
    context = {"object": new, "oldObject": old, "request": {"userInfo": user}}
    context = {name: celpy.json_to_cel(value) for name, value in context.items()}
    environment = celpy.Environment()

    def value(rule):
        result = environment.program(environment.compile(rule["expression"])).evaluate(context)
        if isinstance(result, Exception):
            raise result
        return result

    if not all(value(rule) for rule in policy["matchConditions"]):
        return PASSES
    variables = {celtypes.StringType(rule["name"]): value(rule) for rule in policy["variables"]}
    context["variables"] = celtypes.MapType(variables)
    return next((rule["message"] for rule in policy["validations"] if not value(rule)), PASSES)


def main():
    with open(sys.argv[1]) as file:
        (policy,) = [d["spec"] for d in yaml.safe_load_all(file) if d["kind"] == "ValidatingAdmissionPolicy"]
    wrong = 0
    for old, new, wanted, who in CASES:
        found = verdict(policy, old, new, who)
        if found != wanted:
            wrong += 1
            print(f"{old} -> {new} by {who or 'the agent'}: {found}, not {wanted}")
    unused = {rule["message"] for rule in policy["validations"]} - {wanted for _, _, wanted, _ in CASES}
    print(f"guard: {len(CASES)} changes of nodes, {wrong} judged wrongly, {len(unused)} rules without a case")
    sys.exit(1 if wrong or unused else 0)


main()
