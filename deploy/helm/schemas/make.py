"""Makes the schemas of the kinds that the chart renders, from what Kubernetes says of its own API:

    python3 deploy/helm/schemas/make.py     needs Go, which downloads the module of Kubernetes

A field that no type has is refused; descriptions are left out. kubeconform reads the files.
"""

import json
import pathlib
import subprocess

MODULE = "k8s.io/kubernetes@v1.37.2"
KINDS = {
    "configmap-v1": "io.k8s.api.core.v1.ConfigMap",
    "pod-v1": "io.k8s.api.core.v1.Pod",
    "service-v1": "io.k8s.api.core.v1.Service",
    "serviceaccount-v1": "io.k8s.api.core.v1.ServiceAccount",
    "statefulset-apps-v1": "io.k8s.api.apps.v1.StatefulSet",
    "networkpolicy-networking-v1": "io.k8s.api.networking.v1.NetworkPolicy",
}
REF = "#/definitions/"


def strict(node):
    """The node without prose, closed where it has properties."""
    if isinstance(node, list):
        return [strict(n) for n in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    kept = {k: strict(v) for k, v in node.items() if k != "description" and not k.startswith("x-kubernetes-")}
    if isinstance(node.get("properties"), dict):
        kept["properties"] = {k: strict(v) for k, v in node["properties"].items()}
        kept["additionalProperties"] = False
    return kept


def needed(name, all_, found):
    """Adds to found the definition and all that it refers to."""
    if name in found:
        return
    found[name] = strict(all_[name])
    for ref in refs(found[name]):
        needed(ref, all_, found)


def refs(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(REF)
        node = list(node.values())
    if isinstance(node, list):
        for n in node:
            yield from refs(n)


here = pathlib.Path(__file__).parent
module = json.loads(subprocess.check_output(["go", "mod", "download", "-json", MODULE]))
swagger = json.loads(pathlib.Path(module["Dir"], "api/openapi-spec/swagger.json").read_text())["definitions"]
for file, kind in KINDS.items():
    found = {}
    needed(kind, swagger, found)
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": REF + kind, "definitions": dict(sorted(found.items()))}
    (here / f"{file}.json").write_text(json.dumps(whole, separators=(",", ":"), sort_keys=True) + "\n")
