"""Rules for pods: Kubernetes' schemas, quantities, our image, no root, no secrets in plain text."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from cluster.rules.problems import Problem
from cluster.rules.software import OWN_IMAGE, RAY_IMAGE, environment_problems, right_image

KUBERNETES = "1.33"
GPU = "nvidia.com/gpu"
UNITS = {
    **{"": 1, "m": 1e-3},
    **{unit: 1000**power for power, unit in enumerate("kMGTP", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTP", 1)},
}


def pod_problems(template: dict, field: str) -> Iterator[Problem]:
    """Yield problems of a pod template found by Kubernetes' schema, then by our rules."""
    refused = list(kubernetes_problems({"apiVersion": "v1", "kind": "Pod", **template}, field))
    yield from refused
    if refused:
        return
    pod = template["spec"]
    if not pod.get("securityContext", {}).get("runAsNonRoot"):
        yield f"{field}.spec.securityContext.runAsNonRoot", "missing; true"
    if (policy := pod.get("restartPolicy", "missing")) != "Never":
        yield f"{field}.spec.restartPolicy", f"{policy}; a pod must not come back as another Ray node: Never"
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield f"{field}.spec.{key}", "true, which opens the node; leave it out"
    for index, container in enumerate(pod["containers"]):
        yield from container_problems(container, f"{field}.spec.containers.{index}")


def container_problems(container: dict, field: str) -> Iterator[Problem]:
    """Yield other images than ours, root, open ports, missing limits, and secrets in plain text."""
    if not right_image(container.get("image")):
        yield f"{field}.image", f"{container.get('image', 'missing')}; your own {OWN_IMAGE}, or {RAY_IMAGE}"
    yield from quantity_problems(container.get("resources", {}), f"{field}.resources")
    guard = container.get("securityContext", {})
    if guard.get("privileged") or guard.get("runAsUser") == 0 or guard.get("allowPrivilegeEscalation", True):
        instead = "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"
        yield f"{field}.securityContext", f"may become root; {instead}"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield f"{field}.ports", "a hostPort opens the node; leave it out, and kubectl port-forward"
    words = [*container.get("command", []), *container.get("args", [])]
    if {"mlflow", "server"} <= set(words) and ("--host", "127.0.0.1") not in pairwise(words):
        yield f"{field}.command", "the MLflow server has no login; --host 127.0.0.1, and kubectl port-forward"
    for key in ("requests", "limits"):
        if missing := {"cpu", "memory"} - set(container.get("resources", {}).get(key, {})):
            yield f"{field}.resources.{key}", f"without {' and '.join(sorted(missing))}; say how much"
    for entry in container.get("env", []):
        yield from environment_problems(entry["name"], str(entry.get("value", "")), f"{field}.env")


def quantity(text: Any) -> float | None:
    """Return the value of a Kubernetes quantity; None for an invalid one."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]*)", str(text))
    return float(found[1]) * UNITS[found[2]] if found and found[2] in UNITS else None


def quantity_problems(resources: dict, field: str) -> Iterator[Problem]:
    """Yield invalid quantities, requests above limits, fractions of a GPU, and unequal GPU requests and limits."""
    limits = resources.get("limits", {})
    for key in ("requests", "limits"):
        for name, text in resources.get(key, {}).items():
            value = quantity(text)
            if value is None:
                yield f"{field}.{key}.{name}", f"{text} is no quantity; as 500m, 4 or 56Gi"
            elif "/" in name and value != int(value):
                yield f"{field}.{key}.{name}", f"{text}; devices are whole: {int(value) + 1}"
            elif "/" in name and quantity(limits.get(name)) != value:
                yield (
                    f"{field}.{key}.{name}",
                    f"{text}, and the limit is {limits.get(name, 'missing')}; the same of both",
                )
            elif name in limits and value > (quantity(limits[name]) or value):
                yield f"{field}.{key}.{name}", f"{text} is above the limit ({limits[name]})"


def kubernetes_problems(document: dict, field: str) -> Iterator[Problem]:
    """Yield the first problem of each object that Kubernetes' own schema finds, including unknown fields."""
    import kubernetes_validate

    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield ".".join(filter(None, [field, *map(str, error.absolute_path)])), error.message
    except (kubernetes_validate.SchemaNotFoundError, KeyError):
        given = f"{document.get('apiVersion')} has no kind {document.get('kind')}"
        yield "apiVersion", f"{given}; KubeRay's are ray.io/v1 RayCluster, RayJob and RayService"
