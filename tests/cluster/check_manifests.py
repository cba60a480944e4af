"""check_manifests.py CRD FILE…: manifests against MPIJob's schema (CRD: its file; "": not checked), where a field that the
schema does not know is an error, and pod templates and other objects against Kubernetes' own (PyPI: kubernetes-validate)."""
import sys

import yaml

try:
    import jsonschema
except ImportError:
    jsonschema = None
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None


def strict(schema):
    """An API server drops fields that a schema does not name; here they are mistakes."""
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" not in schema and \
                not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema = dict(schema, additionalProperties=False)
        if schema.get("type") == "object" and "properties" not in schema and "additionalProperties" not in schema:
            return {k: v for k, v in schema.items() if k != "format"}
        return {k: strict(v) for k, v in schema.items() if k != "format"}
    return [strict(s) for s in schema] if isinstance(schema, list) else schema


def check_crd(schema, thing, file):
    for error in jsonschema.Draft7Validator(schema).iter_errors(thing):
        yield f"{file}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"


def check_kubernetes(thing, file):
    try:
        kubernetes_validate.validate(thing, "1.29", strict=True)
    except kubernetes_validate.ValidationError as e:
        yield f"{file}: {thing['kind']}: {str(e)[:300]}"


def main():
    crd, files = sys.argv[1], sys.argv[2:]
    schema, errors, n = None, [], 0
    if crd and jsonschema:
        with open(crd) as f:
            versions = yaml.safe_load(f)["spec"]["versions"]
        schema = strict(next(v for v in versions if v["name"] == "v2beta1")["schema"]["openAPIV3Schema"])
    print("MPIJob:", "checked against " + crd if schema else "not checked: " + ("no CRD here" if jsonschema else "no jsonschema"))
    print("pods:", "checked" if kubernetes_validate else "not checked: no kubernetes-validate")
    for file in files:
        with open(file) as f:
            things = [t for t in yaml.safe_load_all(f) if t]
        for t in things:
            n += 1
            if t["kind"] != "MPIJob":
                errors += check_kubernetes(t, file) if kubernetes_validate else []
                continue
            errors += check_crd(schema, t, file) if schema else []
            for role, replica in t["spec"]["mpiReplicaSpecs"].items():
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role.lower()}, "spec": replica["template"]["spec"]}
                errors += check_kubernetes(pod, file) if kubernetes_validate else []
    print("\n".join(errors))
    print(f"{n} objects of {len(files)} files, {len(errors)} errors")
    return 1 if errors else 0


sys.exit(main())
