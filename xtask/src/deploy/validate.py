"""Checks rendered objects against the schemas of Kubernetes, and samples against the CRDs.

    validate.py objects FILE...          every object, against the oldest and the newest version that the chart is for;
                                         of CRDs also the rules for structural schemas, which no JSON schema says
    validate.py samples CRDS SAMPLE...   as the API server would take them: pruned, then validated

A sample begins with what must become of it: `# valid`, or `# refused: PATH: PART OF THE MESSAGE`; and for fields that the
CRD does not name but must not lose: `# kept: PATH`. Lines `# agent: ...` are read by a test of the agent. Knows
nothing of Helm and of where files are.
"""

import re
import sys

import jsonschema
import kubernetes_validate
import yaml

VERSIONS = ["1.30", "1.37"]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
# Of operators, whose schemas are not Kubernetes'.
FOREIGN = {"monitoring.coreos.com/v1"}
# Forbidden anywhere in a structural schema (apiextensions.k8s.io/v1).
FORBIDDEN = {"$ref", "definitions", "dependencies", "deprecated", "discriminator", "id", "patternProperties",
             "readOnly", "writeOnly", "xml"}
# What a schema may hold at its root where status is a subresource: what stands there would not be about status.
AT_ROOT = {"description", "type", "format", "title", "required", "properties", PRESERVE, "x-kubernetes-validations"}
# Forbidden within allOf, anyOf, oneOf and not, which only look at values.
ONLY_OUTSIDE = {"description", "type", "default", "additionalProperties", "nullable", PRESERVE, INT_OR_STRING}


def main():
    what, *files = sys.argv[1:]
    check_structural()
    problems = objects(files) if what == "objects" else samples(*files)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def objects(files):
    problems, count = [], 0
    for file in files:
        for thing in documents(file):
            count += 1
            label = f"{file}: {thing.get('kind')}/{thing.get('metadata', {}).get('name')}"
            problems += [f"{label}: {problem}" for problem in check_object(thing)]
    print(f"objects: {count} in {len(files)} files against Kubernetes {', '.join(VERSIONS)}")
    return problems


def check_object(thing):
    if thing.get("apiVersion") in FOREIGN:
        return
    for version in VERSIONS:
        try:
            used = kubernetes_validate.validate(thing, version, strict=True)
            if used != version:
                yield f"there are no schemas of {version}"
        except kubernetes_validate.ValidationError as error:
            yield f"{version}: {path(error.path)}: {error.message}"
        except kubernetes_validate.SchemaNotFoundError as error:
            yield error.message
    if thing["kind"] == "CustomResourceDefinition":
        for version in thing["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            yield from structural(schema, "schema", False)
            if "status" in version.get("subresources", {}):
                yield from (f"schema: {word} is forbidden beside a status" for word in sorted(schema.keys() - AT_ROOT))


def structural(schema, at, inside):
    """What the API server would not take as a structural schema."""
    for word in FORBIDDEN & schema.keys():
        yield f"{at}: {word} is forbidden"
    if inside:
        for word in ONLY_OUTSIDE & schema.keys():
            yield f"{at}: {word} is forbidden within a junctor"
    elif "type" not in schema and not (schema.get(PRESERVE) or schema.get(INT_OR_STRING)):
        yield f"{at}: has no type"
    if "properties" in schema and "additionalProperties" in schema:
        yield f"{at}: has properties and additionalProperties"
    if schema.get("additionalProperties") is False or schema.get("uniqueItems"):
        yield f"{at}: additionalProperties: false and uniqueItems are forbidden"
    if schema.get("type") == "array" and not inside and "items" not in schema:
        yield f"{at}: has no items"
    if at == "schema" and schema.get("type") != "object":
        yield f"{at}: is no object"
    for name, inner in schema.get("properties", {}).items():
        yield from structural(inner, f"{at}.{name}", inside)
    for word in ["items", "additionalProperties", "not"]:
        if isinstance(schema.get(word), dict):
            yield from structural(schema[word], f"{at}.{word}", inside or word == "not")
    for word in ["allOf", "anyOf", "oneOf"]:
        for index, inner in enumerate(schema.get(word, [])):
            yield from structural(inner, f"{at}.{word}[{index}]", True)


def check_structural():
    """The rules above are nobody else's: each must find what it is for."""
    for schema, wanted in [
        ({"type": "object", "properties": {"a": {}}}, "schema.a: has no type"),
        ({"type": "object", "properties": {"a": {PRESERVE: True}}}, None),
        ({"type": "object", "$ref": "#/x"}, "schema: $ref is forbidden"),
        ({"type": "object", "oneOf": [{"required": ["a"]}]}, None),
        ({"type": "object", "oneOf": [{"type": "object"}]}, "schema.oneOf[0]: type is forbidden within a junctor"),
        ({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
         "schema: has properties and additionalProperties"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "schema.a: has no items"),
        ({"type": "array", "items": {"type": "string"}}, "schema: is no object"),
    ]:
        assert list(structural(schema, "schema", False)) == ([wanted] if wanted else []), schema


def samples(crds, *files):
    schemas = {}
    for crd in documents(crds):
        for version in crd["spec"]["versions"]:
            key = (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"])
            schemas[key] = (version["schema"]["openAPIV3Schema"], crd["spec"]["scope"])
    problems, seen = [], {(key, taken): 0 for key in schemas for taken in [True, False]}
    for file in files:
        (thing,) = documents(file)
        wish = Wish(open(file).read())
        key = (thing["apiVersion"], thing["kind"])
        seen[key, wish.refused is None] += 1
        problems += [f"{file}: {problem}" for problem in wish.check(thing, *schemas[key])]
    for (key, taken), count in seen.items():
        if count == 0:
            problems.append(f"no sample of {' '.join(key)} that is {'taken' if taken else 'refused'}")
    refused = sum(count for (_, taken), count in seen.items() if not taken)
    print(f"samples: {len(files)} of {len(schemas)} kinds, {refused} of them to be refused")
    return problems


class Wish:
    """What must become of a sample, from the comments at its head."""

    def __init__(self, text):
        self.refused, self.kept = None, []
        first, *rest = [line[2:] for line in text.splitlines() if line.startswith("# ")]
        match = re.fullmatch(r"refused: (\S*): (.*)", first)
        if match:
            self.refused = match.groups()
        elif first != "valid":
            raise SystemExit(f"`# {first}`: write `# valid` or `# refused: PATH: MESSAGE`")
        for line in rest:
            if line.startswith("kept: "):
                self.kept.append(line.removeprefix("kept: "))

    def check(self, thing, schema, scope):
        if (scope == "Namespaced") != ("namespace" in thing["metadata"]):
            yield f"the kind is {scope}"
        lost = prune(schema, thing, "", top=True)
        if lost and self.refused is None:
            yield f"loses {', '.join(lost)}"
        for wanted in self.kept:
            if wanted not in paths(thing, ""):
                yield f"has lost {wanted}"
        errors = list(jsonschema.Draft7Validator(plain(schema)).iter_errors(thing))
        told = [(path(error.path), error.message) for error in errors]
        if self.refused is None:
            yield from (f"is refused: {at}: {message}" for at, message in told)
        elif not any(at == self.refused[0] and self.refused[1] in message for at, message in told):
            yield f"should be refused with {': '.join(self.refused)}, but: {told}"


def prune(schema, value, at, top=False):
    """Takes out what the API server would, and says what that was."""
    lost = []
    if isinstance(value, list) and "items" in schema:
        for index, inner in enumerate(value):
            lost += prune(schema["items"], inner, f"{at}[{index}]")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for name in list(value):
            inner = f"{at}.{name}".lstrip(".")
            # The head of an object is not the schema's business.
            if top and name in ["apiVersion", "kind", "metadata"]:
                continue
            if name in known:
                lost += prune(known[name], value[name], inner)
            elif isinstance(others, dict):
                lost += prune(others, value[name], inner)
            elif not schema.get(PRESERVE) and not others:
                del value[name]
                lost.append(inner)
    return lost


def plain(schema):
    """The schema without the one extension that changes what a value may be."""
    if isinstance(schema, list):
        return [plain(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: plain(inner) for name, inner in schema.items()}
    if out.get(INT_OR_STRING) is True:
        out["type"] = ["integer", "string"]
    return out


def paths(value, at):
    """The path of everything in a value."""
    yield at
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, f"{at}.{name}".lstrip("."))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, f"{at}[{index}]")


def path(parts):
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def documents(file):
    with open(file) as opened:
        return [document for document in yaml.safe_load_all(opened) if document]


main()
