"""check_manifests.py CRDS FILE…: manifests against the schemas of custom resources (CRDS: a folder of *-crd.yaml, which may
be missing), where a field that the schema does not know is an error, and pod templates and other objects against
Kubernetes' own (PyPI: kubernetes-validate)."""
import glob
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


def pod_specs(thing, at=""):
    """Every pod template in it."""
    if isinstance(thing, dict) and isinstance(thing.get("spec"), dict) and "containers" in thing["spec"]:
        yield at, thing["spec"]
    elif isinstance(thing, (dict, list)):
        for k, v in thing.items() if isinstance(thing, dict) else enumerate(thing):
            yield from pod_specs(v, f"{at}/{k}")


def read_schemas(folder):
    schemas = {}
    for path in glob.glob(folder + "/*-crd.yaml") if jsonschema else []:
        with open(path) as f:
            for crd in (c for c in yaml.safe_load_all(f) if c):
                for v in crd["spec"]["versions"]:
                    name = f"{crd['spec']['group']}/{v['name']}", crd["spec"]["names"]["kind"]
                    schemas[name] = strict(v["schema"]["openAPIV3Schema"])
    return schemas


def main():
    folder, files = sys.argv[1], sys.argv[2:]
    schemas, errors, n, unknown = read_schemas(folder), [], 0, set()
    for file in files:
        with open(file) as f:
            things = [t for t in yaml.safe_load_all(f) if t]
        for t in things:
            n += 1
            name = t["apiVersion"], t["kind"]
            custom = "kubeflow.org" in name[0]
            if name in schemas:
                errors += check_crd(schemas[name], t, file)
            elif custom:
                unknown.add(t["kind"])
            if not custom:
                errors += check_kubernetes(t, file) if kubernetes_validate else []
                continue
            for at, spec in pod_specs(t["spec"]):
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
                errors += check_kubernetes(pod, file + at) if kubernetes_validate else []
    print("not checked, no schema here:", ", ".join(sorted(unknown)) or "none")
    print("pods:", "checked" if kubernetes_validate else "not checked: no kubernetes-validate")
    print("\n".join(errors))
    print(f"{n} objects of {len(files)} files, {len(errors)} errors")
    return 1 if errors else 0


sys.exit(main())
