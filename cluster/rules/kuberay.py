"""Rules for RayCluster, RayJob and RayService: KubeRay 1.6's schema, and ours."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster.rules.pods import GPU, kubernetes_problems, pod_problems, quantity
from cluster.rules.problems import Problem
from cluster.rules.software import LOCK

SCHEMA = Path(__file__).parents[1] / "kuberay/schema.json"
CONTAINER = ("env", "envFrom", "imagePullPolicy", "resources", "securityContext", "volumeMounts")
"""Autoscaler options that are also container fields."""
KINDS = ("RayCluster", "RayJob", "RayService")
OURS = "pipeline.serve.application:build"
"""import_path of this project's application."""
ZONE = "topology.kubernetes.io/zone"


def manifest(document: dict) -> Iterator[Problem]:
    """Yield problems of a Kubernetes object: KubeRay's by our schema and rules, others by Kubernetes' schemas."""
    name = (document.get("metadata") or {}).get("name", "x")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", str(name)):
        yield "metadata.name", f"{name}; small letters, digits and - inside"
    if document.get("kind") not in KINDS:
        yield from kubernetes_problems(document, "")
        rules = document.get("spec", {}).get("ingress", []) if document.get("kind") == "NetworkPolicy" else []
        if any(not rule.get("from") for rule in rules):
            yield "spec.ingress", "a rule without from lets everybody in; name the pods"
        return
    from jsonschema import Draft202012Validator

    errors = list(Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(document))
    for error in sorted(errors, key=lambda error: [str(part) for part in error.absolute_path]):
        yield ".".join(map(str, error.absolute_path)), error.message
    if errors:
        return
    if document["kind"] == "RayJob":
        yield from job_problems(document["spec"])
    elif document["kind"] == "RayService":
        yield from service_problems(document["spec"])
    else:
        yield from cluster_problems(document["spec"], "spec")


def job_problems(spec: dict) -> Iterator[Problem]:
    """Yield problems of a job: no command, no time limit, and those of its own cluster."""
    if not spec.get("entrypoint"):
        yield "spec.entrypoint", "missing; python /home/ray/bertstream/jobs/pretrain.py and its options"
    try:
        runtime = yaml.safe_load(spec.get("runtimeEnvYAML", "{}"))
    except yaml.YAMLError:
        runtime = None
    if not isinstance(runtime, dict):
        yield "spec.runtimeEnvYAML", "is no mapping in YAML"
    if "activeDeadlineSeconds" not in spec:
        yield (
            "spec.activeDeadlineSeconds",
            "missing; a job that hangs would be paid for without end: 172800 for two days",
        )
    if template := spec.get("submitterPodTemplate"):
        yield from pod_problems(template, "spec.submitterPodTemplate")
    if "clusterSelector" in spec:  # it runs on a cluster that is there
        return
    if not spec.get("shutdownAfterJobFinishes"):
        yield "spec.shutdownAfterJobFinishes", "the cluster would stay and be paid for; true"
    if "rayClusterSpec" in spec:
        yield from cluster_problems(spec["rayClusterSpec"], "spec.rayClusterSpec")


def service_problems(spec: dict) -> Iterator[Problem]:
    """Yield problems of a service: what Ray Serve or the application would refuse, and those of its cluster."""
    from pydantic import ValidationError
    from ray.serve.schema import ServeDeploySchema

    field = "spec.serveConfigV2"
    try:
        config = yaml.safe_load(spec["serveConfigV2"])
        deployed = ServeDeploySchema.model_validate(config)
    except yaml.YAMLError:
        yield field, "is no mapping in YAML"
        return
    except ValidationError as error:
        for problem in error.errors():
            yield ".".join([field, *map(str, problem["loc"])]), problem["msg"]
        return
    for index, application in enumerate(deployed.applications):
        yield from application_problems(application, f"{field}.applications.{index}")
    if "rayClusterConfig" in spec:
        yield from cluster_problems(spec["rayClusterConfig"], "spec.rayClusterConfig")


def application_problems(application: Any, field: str) -> Iterator[Problem]:
    """Yield settings of our application that it would refuse; applications of others are not checked."""
    from pipeline.errors import ConfigError
    from pipeline.serve.application import settings_from

    if application.import_path != OURS:
        return
    try:
        settings_from(application.args)
    except ConfigError as error:
        yield f"{field}.args", str(error)


def cluster_problems(spec: dict, field: str) -> Iterator[Problem]:
    options = spec.get("autoscalerOptions", {})
    if (mode := spec.get("authOptions", {}).get("mode")) != "token":
        yield f"{field}.authOptions.mode", f"{mode or 'missing'}; an open Ray port is an open shell: token"
    if spec.get("rayVersion") != LOCK["ray"]:
        yield f"{field}.rayVersion", f"{spec.get('rayVersion', 'missing')}; cluster/requirements.txt has {LOCK['ray']}"
    if not spec.get("enableInTreeAutoscaling") or options.get("version") != "v2":
        instead = "enableInTreeAutoscaling: true and version: v2, or no node comes and goes"
        yield f"{field}.autoscalerOptions.version", instead
    container = {"name": "autoscaler", "image": "ray"} | {key: options[key] for key in CONTAINER if key in options}
    autoscaler = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    yield from kubernetes_problems(autoscaler, f"{field}.autoscalerOptions")
    yield from head_problems(spec["headGroupSpec"], f"{field}.headGroupSpec")
    groups = spec.get("workerGroupSpecs", [])
    names = [group["groupName"] for group in groups]
    for index, group in enumerate(groups):
        name = f"{field}.workerGroupSpecs.{index}"
        if names.count(group["groupName"]) > 1:
            yield f"{name}.groupName", f"{group['groupName']} is there twice; give each a name of its own"
        yield from group_problems(group, name)


def head_problems(head: dict, field: str) -> Iterator[Problem]:
    """Yield a head that takes work or is publicly reachable."""
    yield from start_problems(head, field)
    for index, container in enumerate(head["template"].get("spec", {}).get("containers", [])):
        for key in ("requests", "limits"):
            if GPU in container.get("resources", {}).get(key, {}):
                name = f"{field}.template.spec.containers.{index}.resources.{key}.{GPU}"
                yield name, "the head must take no work, and no GPU: leave it out"
    for key in ("num-cpus", "num-gpus"):
        if (given := head.get("rayStartParams", {}).get(key)) != "0":
            yield f"{field}.rayStartParams.{key}", f'{given or "left to Ray"}; the head must take no work: "0"'
    service = head.get("headService", {})
    kinds = {head.get("serviceType", "ClusterIP"), service.get("spec", {}).get("type", "ClusterIP")}
    if kinds != {"ClusterIP"} or head.get("enableIngress"):
        instead = "the dashboard would be open to the world; ClusterIP, no ingress, and kubectl port-forward"
        yield f"{field}.serviceType", instead
    yield from pod_problems(head["template"], f"{field}.template")
    if service:
        yield from kubernetes_problems({"apiVersion": "v1", "kind": "Service", **service}, f"{field}.headService")


def group_problems(group: dict, field: str) -> Iterator[Problem]:
    """Yield pods that never stop, GPU pods without a type and zone, and pods that take the trainers' resources."""
    yield from start_problems(group, field)
    for key in ("minReplicas", "replicas"):
        if group.get(key, 0) != 0:
            yield f"{field}.{key}", f"{group[key]} pods would stay and be paid for; 0"
    cpus, gpus = (group.get("rayStartParams", {}).get(key) for key in ("num-cpus", "num-gpus"))
    pod = group["template"].get("spec", {})
    if gpus not in (None, "0"):
        if cpus != gpus:
            instead = f'data stages would take the trainers\' cores, one for each GPU is enough: "{gpus}"'
            yield f"{field}.rayStartParams.num-cpus", f"{cpus or 'left to Ray'}; {instead}"
        yield from trainer_problems(pod, f"{field}.template.spec")
    elif any(one.get("key") in (None, GPU) for one in pod.get("tolerations", [])):
        instead = f"leave {GPU} out, and name the key of every other"
        yield (
            f"{field}.template.spec.tolerations",
            f"pods without a GPU would take the GPU nodes' last cores; {instead}",
        )
    yield from pod_problems(group["template"], f"{field}.template")


def trainer_problems(pod: dict, field: str) -> Iterator[Problem]:
    """Yield training pods that may have any type of GPU, or several zones."""
    selector, affinity = pod.get("nodeSelector", {}), pod.get("affinity", {})
    if not any(re.search("gpu|accelerator", key) for key in selector) and "nodeAffinity" not in affinity:
        yield (
            f"{field}.nodeSelector",
            "no type of GPU; name a label of your nodes, as {nvidia.com/gpu.product: NVIDIA-L4}",
        )
    near = affinity.get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    if ZONE not in selector and not any(one.get("topologyKey") == ZONE for one in near):
        instead = f"trainers would start in several zones, which is slow and paid for; {ZONE} as topologyKey"
        yield f"{field}.affinity.podAffinity", instead


@functools.cache
def start_options() -> frozenset[str]:
    """Return the options of `ray start`."""
    from ray.scripts.scripts import start

    return frozenset(option.removeprefix("--") for parameter in start.params for option in parameter.opts)


def start_problems(group: dict, field: str) -> Iterator[Problem]:
    """Yield options of a group that `ray start` would refuse, and GPUs that its pods do not have."""
    given = group.get("rayStartParams", {})
    for key, value in given.items():
        if key not in start_options():
            yield f"{field}.rayStartParams.{key}", "no such option of ray start"
        elif key in ("num-cpus", "num-gpus") and not re.fullmatch(r"\d+", value):
            yield f"{field}.rayStartParams.{key}", f"{value}; a whole number"
    if "resources" in group:
        yield f"{field}.resources", "KubeRay would take it instead of rayStartParams; leave it out"
    containers = group["template"].get("spec", {}).get("containers", [])
    gpus = sum(quantity(one.get("resources", {}).get("limits", {}).get(GPU, 0)) or 0 for one in containers)
    if (said := given.get("num-gpus", "0")) != f"{gpus:g}":
        yield f"{field}.rayStartParams.num-gpus", f"{said}, and its containers have {gpus:g} of {GPU}; the same"
