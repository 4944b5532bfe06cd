"""Check the files of clusters without a cloud: their schemas, closed ports, tokens, an idle head, pinned versions.

    python cluster/check.py
    python cluster/check.py my-cluster.yaml

One line a problem and exit code 2, or one line a file and 0. It needs what `make test` installs (pip install 'bertstream[test]').
"""

import contextlib
import functools
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

CLUSTER = Path(__file__).parent
FILES = ("aws.yaml", "gcp.yaml", "aws-account.yaml", "kuberay/base.yaml", "kuberay/raycluster.yaml", "kuberay/rayjob.yaml", "Dockerfile")
LOCK = dict(line.split("==") for line in (CLUSTER / "requirements.txt").read_text().splitlines() if "==" in line)
VERSION = re.search(r'^version = "(.+)"', (CLUSTER.parent / "pyproject.toml").read_text(), re.M)[1]
RAY_IMAGE = f"rayproject/ray:{LOCK['ray']}-py311"
OWN_IMAGE = f"bertstream:{VERSION}"
KUBERNETES = "1.33"
GPU = "nvidia.com/gpu"
EVERYWHERE = ("0.0.0.0/0", "::/0")

Problem = tuple[str, str]  # the dotted field, and what is there and what would be right


def main(arguments: Sequence[str]) -> int:
    """Print every problem of the files named, or of the project's own; 0 without any, 2 with."""
    failed = False
    for path in [Path(word) for word in arguments] or [shown(CLUSTER / name) for name in FILES]:
        problems = list(check(path))
        failed |= bool(problems)
        for field, message in problems:
            print(f"{path}: {field}: {message}" if field else f"{path}: {message}")
        if not problems:
            blanks = sum(line.count("FILL_IN") for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
            print(f"{path}: fine" + (f"; FILL_IN left: {blanks}" if blanks else ""))
    return 2 if failed else 0


def shown(path: Path) -> Path:
    """A path as people would write it from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def check(path: Path) -> Iterator[Problem]:
    """The problems of one file; what it is is told by what is in it."""
    try:
        text = path.read_text()
        if path.name == "Dockerfile":
            yield from dockerfile(text, path)
            return
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        yield "", f"cannot be read: {error.strerror}"
        return
    except yaml.YAMLError as error:
        yield "", "is no YAML: " + " ".join(str(error).split())
        return
    if not documents or not all(isinstance(document, dict) for document in documents):
        yield "", "must hold one mapping or more"
        return
    for document in documents:
        yield from open_ranges(document)
        if "AWSTemplateFormatVersion" in document:
            yield from account(text, document)
            continue
        if "apiVersion" in document:
            yield from manifest(document, path)
        else:
            yield from launcher(document)


def fields(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a document with its dotted name."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield name, value
        return
    for key, inner in items:
        yield from fields(inner, f"{name}.{key}" if name else str(key))


def open_ranges(document: dict) -> Iterator[Problem]:
    """Address ranges that let the world in."""
    for field, value in fields(document):
        if value in EVERYWHERE:
            yield field, f"{value} opens the nodes to the world; name your own address, as 203.0.113.7/32"


# AWS CloudFormation


def account(text: str, document: dict) -> Iterator[Problem]:
    """What CloudFormation's own schemas refuse (cfn-lint), a bucket that may be public, a group that lets anything but SSH in from outside."""
    from cfnlint.api import lint
    from cfnlint.core import get_rules

    refused = lint(text, get_rules([], [], []), ["us-east-1"])
    for match in refused:
        yield f"line {match.linenumber}", match.message
    if refused:
        return
    for name, resource in document["Resources"].items():
        properties = resource.get("Properties", {})
        blocked = properties.get("PublicAccessBlockConfiguration", {})
        if resource["Type"] == "AWS::S3::Bucket" and not all(blocked.get(key) is True for key in ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")):
            yield f"Resources.{name}.Properties.PublicAccessBlockConfiguration", "the bucket may become public; all four true"
        rules = properties.get("SecurityGroupIngress", []) if resource["Type"] == "AWS::EC2::SecurityGroup" else [properties] if resource["Type"] == "AWS::EC2::SecurityGroupIngress" else []
        for rule in rules:
            if "SourceSecurityGroupId" not in rule and (rule.get("FromPort"), rule.get("ToPort")) != (22, 22):
                yield f"Resources.{name}.Properties", f"ports {rule.get('FromPort', 'all')} to {rule.get('ToPort', 'all')} are open to an address; 22 alone, and a tunnel to the others"


# Ray's cluster launcher


def launcher(config: dict) -> Iterator[Problem]:
    """A file of `ray up`: Ray's own schema, the cloud's own description of a node, and our rules."""
    if "provider" not in config:
        yield "", "is neither a file of ray up (provider), nor of Kubernetes (apiVersion), nor of CloudFormation (AWSTemplateFormatVersion)"
        return

    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # Ray warns of mounted files
            config = prepare_config(config)
            validate_config(config)
    except ValidationError as error:
        yield ".".join(map(str, error.absolute_path)), error.message
        return
    except (AssertionError, AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:  # Ray's checks raise whatever they meet
        yield "", f"is refused by Ray: {type(error).__name__}: {error}"
        return
    for rules in (node_types, network, node_configs, start_commands, software):
        yield from rules(config)


def node_types(config: dict) -> Iterator[Problem]:
    """A head that takes no work, nodes that go, GPU nodes whose cores are the trainers'."""
    head = config["head_node_type"]
    for name, node in config["available_node_types"].items():
        field = f"available_node_types.{name}"
        resources = node["resources"]
        if node["min_workers"] != 0:
            yield f"{field}.min_workers", f"{node['min_workers']} nodes would stay and be paid for; 0"
        if name == head:
            for kind in ("CPU", "GPU"):
                if resources.get(kind) != 0:
                    yield f"{field}.resources.{kind}", f"{resources.get(kind, 'left to Ray')}; the head must take no work: 0"
            if node["max_workers"] != 0:
                yield f"{field}.max_workers", f"{node['max_workers']}; there is one head: 0"
        elif resources.get("GPU", 0) < resources.get("CPU", 0) and resources.get("GPU"):
            yield f"{field}.resources.CPU", f"{resources['CPU']}; data stages would take the trainers' cores, one for each GPU is enough: {resources['GPU']}"
    if config["provider"]["type"] == "aws" and config["provider"].get("cache_stopped_nodes", True):
        yield "provider.cache_stopped_nodes", "true, and disks of stopped nodes are paid for; false"


def network(config: dict) -> Iterator[Problem]:
    """Every node in a network of its owner's making: what Ray takes by itself is open to the world on port 22."""
    key, instead = {
        "aws": ("SecurityGroupIds", "Ray would make a group that opens port 22 to 0.0.0.0/0; name the one of cluster/aws-account.yaml"),
        "gcp": ("networkInterfaces", "Ray would take the default network, which opens port 22 to 0.0.0.0/0; name a subnetwork of your own"),
    }.get(config["provider"]["type"], ("", ""))
    for name, node in config["available_node_types"].items():
        interfaces = node["node_config"].get(key)
        if key and (not interfaces or any(str(field.get("subnetwork", "default")).endswith("default") for field in interfaces if isinstance(field, dict))):
            yield f"available_node_types.{name}.node_config.{key}", f"{interfaces or 'missing'}; {instead}"


def node_configs(config: dict) -> Iterator[Problem]:
    """What the cloud itself says of a node's fields: Ray passes them on unread."""
    problems = {"aws": ec2_problems, "gcp": compute_problems}.get(config["provider"]["type"])
    for name, node in config["available_node_types"].items() if problems else ():
        for field, message in problems(node["node_config"]):
            yield f"available_node_types.{name}.node_config" + (f".{field}" if field else ""), message


def ec2_problems(node: dict) -> Iterator[Problem]:
    from botocore.validate import ParamValidator

    request = {"MinCount": 1, "MaxCount": 1} | {key: value for key, value in node.items() if key != "SubnetIds"}  # of Ray's own
    for line in ParamValidator().validate(request, run_instances()).generate_report().splitlines():
        yield "", line


@functools.cache
def run_instances() -> Any:
    """What EC2's RunInstances takes."""
    import botocore.session

    return botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances").input_shape


def compute_problems(node: dict) -> Iterator[Problem]:
    yield from described(node, {"$ref": "Instance"}, compute_schemas(), "")


@functools.cache
def compute_schemas() -> dict:
    """Google Compute Engine's own description of its types."""
    import googleapiclient

    return json.loads((Path(googleapiclient.__file__).parent / "discovery_cache/documents/compute.v1.json").read_text())["schemas"]


def described(value: Any, shape: dict, schemas: dict, field: str) -> Iterator[Problem]:
    """What does not fit a type of a Google API."""
    shape = schemas.get(shape.get("$ref"), shape)
    kind = {"object": dict, "array": list, "boolean": bool, "string": (str, int), "integer": int, "number": (int, float)}.get(shape.get("type"), object)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        yield field, f"{value!r} must be of type {shape['type']}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from described(item, shape["items"], schemas, f"{field}.{index}")
    elif isinstance(value, dict):
        known = shape.get("properties", {})
        for key, item in value.items():
            inner = f"{field}.{key}" if field else key
            if key in known:
                yield from described(item, known[key], schemas, inner)
            elif "additionalProperties" not in shape:
                yield inner, "no such field"
    elif "enum" in shape and value not in shape["enum"]:
        yield field, f"{value} must be one of {', '.join(shape['enum'])}"


def start_commands(config: dict) -> Iterator[Problem]:
    """Tokens on every node, servers on 127.0.0.1, no usage reports."""
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        for index, command in enumerate(config[key]):
            field = f"{key}.{index}"
            starts = "ray start" in command
            if starts and "RAY_AUTH_MODE=token" not in command:
                yield field, "starts Ray without a token; begin with export RAY_AUTH_MODE=token;"
            if starts and "RAY_USAGE_STATS_ENABLED=0" not in command:
                yield field, "reports usage; export RAY_USAGE_STATS_ENABLED=0"
            if "ray start --head" in command and not re.search(r"--dashboard-host[= ]127\.0\.0\.1\b", command):
                host = re.search(r"--dashboard-host[= ](\S+)", command)
                yield field, f"--dashboard-host={host[1] if host else '(missing)'}; --dashboard-host=127.0.0.1, and an SSH tunnel to it"
            if "mlflow server" in command and not re.search(r"--host[= ]127\.0\.0\.1\b", command):
                yield field, "the MLflow server has no login; --host 127.0.0.1, and an SSH tunnel to it"
    for key in ("run_options", "head_run_options", "worker_run_options"):
        for index, option in enumerate(config["docker"].get(key, [])):
            name, _, value = option.removeprefix("--env=").partition("=")
            yield from environment_problems(name, value, f"docker.{key}.{index}")
    if "aws_credentials" in config["provider"]:
        yield "provider.aws_credentials", "keys are written out; leave them to aws configure, and to the nodes' roles"
    if not any(remote.endswith("/.ray/auth_token") for remote in config["file_mounts"]):
        yield "file_mounts", "the token does not reach the nodes; /home/ray/.ray/auth_token: ~/.ray/auth_token"
    for index, pattern in enumerate(config["rsync_exclude"]):
        if any(fnmatch(name, pattern) for name in ("ray-autoscaler.pem", "auth_token", "ray_bootstrap_config.yaml")):
            yield f"rsync_exclude.{index}", f"{pattern}; it would keep the nodes' key, token or settings from them: leave it out"


def software(config: dict) -> Iterator[Problem]:
    """The lock's versions and no others."""
    docker = config["docker"]
    for key in ("image", *(key for key in ("head_image", "worker_image") if key in docker)):
        if not right_image(docker.get(key)):
            yield f"docker.{key}", f"{docker.get(key) or 'missing'}; {RAY_IMAGE}, or your own {OWN_IMAGE}"
    for key in ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"):
        shared = len(config["setup_commands"]) if key in ("head_setup_commands", "worker_setup_commands") else 0  # Ray puts the common ones before them
        for index, command in enumerate(config.get(key, [])[shared:]):
            for message in pip_problems(command):
                yield f"{key}.{index}", message


def right_image(image: str | None) -> bool:
    return image == RAY_IMAGE or (image or "").endswith(f"/{OWN_IMAGE}")


def environment_problems(name: str, value: str, field: str) -> Iterator[Problem]:
    """A variable that turns tokens off, or holds a secret for all to read."""
    if name == "RAY_AUTH_MODE" and value != "token":
        yield field, f"RAY_AUTH_MODE={value}; an open Ray port is an open shell: token"
    if re.search("TOKEN|SECRET|PASSWORD|_KEY", name) and value:
        yield field, f"{name} is written out; a secret by reference (on Kubernetes valueFrom.secretKeyRef), or a role"


def pip_problems(command: str) -> Iterator[str]:
    """What a command installs that the lock does not say."""
    for name, version in re.findall(r"([\w.-]+)==([\w.+]+)", command):
        pinned = {key.lower().replace("_", "-"): value for key, value in LOCK.items()}.get(name.lower().replace("_", "-"))
        if version != pinned:
            yield f"{name}=={version}; cluster/requirements.txt has {pinned or 'none'}"
    if re.search(r"\.whl\b|ray-wheels", command):
        yield "installs a wheel by its address; the lock's version, from the index"
    elif "pip install" in command and not re.search(r"--constraint \S*requirements\.txt|--no-deps", command):
        yield "pip install without the lock; --constraint cluster/requirements.txt"


# KubeRay


def manifest(document: dict, path: Path) -> Iterator[Problem]:
    """A Kubernetes object: KubeRay's by our schema and rules, Kubernetes' own by its schemas."""
    name = (document.get("metadata") or {}).get("name", "x")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", str(name)):
        yield "metadata.name", f"{name}; small letters, digits and - inside"
    if document.get("kind") not in ("RayCluster", "RayJob"):
        yield from kubernetes_problems(document, "")
        if document.get("kind") == "NetworkPolicy" and any(not rule.get("from") for rule in document.get("spec", {}).get("ingress", [])):
            yield "spec.ingress", "a rule without from lets everybody in; name the pods"
        return
    from jsonschema import Draft202012Validator

    schema = json.loads((CLUSTER / "kuberay/schema.json").read_text())
    errors = sorted(Draft202012Validator(schema).iter_errors(document), key=lambda error: [str(part) for part in error.absolute_path])
    for error in errors:
        yield ".".join(map(str, error.absolute_path)), error.message
    if errors:
        return
    spec, field = document["spec"], "spec"
    if document["kind"] == "RayJob":
        if not spec.get("entrypoint"):
            yield "spec.entrypoint", "missing; python /home/ray/bertstream/jobs/pretrain.py and its options"
        try:
            runtime = yaml.safe_load(spec.get("runtimeEnvYAML", "{}"))
        except yaml.YAMLError:
            runtime = None
        if not isinstance(runtime, dict):
            yield "spec.runtimeEnvYAML", "is no mapping in YAML"
        if template := spec.get("submitterPodTemplate"):
            yield from pod_problems(template, "spec.submitterPodTemplate")
        if "rayClusterSpec" not in spec:  # it runs on a cluster that is there
            return
        if not spec.get("shutdownAfterJobFinishes"):
            yield "spec.shutdownAfterJobFinishes", "the cluster would stay and be paid for; true"
        spec, field = spec["rayClusterSpec"], "spec.rayClusterSpec"
        twin = path.with_name("raycluster.yaml")
        if twin.exists() and spec != yaml.safe_load(twin.read_text())["spec"]:
            yield field, f"must be the spec of {twin.name}: {first_difference(spec, yaml.safe_load(twin.read_text())['spec'])} differs"
    yield from cluster_problems(spec, field)


def first_difference(one: Any, other: Any) -> str:
    left, right = dict(fields(one)), dict(fields(other))
    return next(field for field in left | right if left.get(field) != right.get(field))


def cluster_problems(spec: dict, field: str) -> Iterator[Problem]:
    if (mode := spec.get("authOptions", {}).get("mode")) != "token":
        yield f"{field}.authOptions.mode", f"{mode or 'missing'}; an open Ray port is an open shell: token"
    if spec.get("rayVersion") != LOCK["ray"]:
        yield f"{field}.rayVersion", f"{spec.get('rayVersion', 'missing')}; cluster/requirements.txt has {LOCK['ray']}"
    if not spec.get("enableInTreeAutoscaling") or spec.get("autoscalerOptions", {}).get("version") != "v2":
        yield f"{field}.autoscalerOptions.version", "enableInTreeAutoscaling: true and version: v2, or no node comes and goes"
    head = spec["headGroupSpec"]
    yield from start_problems(head, f"{field}.headGroupSpec")
    for index, container in enumerate(head["template"].get("spec", {}).get("containers", [])):
        for key in ("requests", "limits"):
            if GPU in container.get("resources", {}).get(key, {}):
                yield f"{field}.headGroupSpec.template.spec.containers.{index}.resources.{key}.{GPU}", "the head must take no work, and no GPU: leave it out"
    for key in ("num-cpus", "num-gpus"):
        if (given := head.get("rayStartParams", {}).get(key)) != "0":
            yield f"{field}.headGroupSpec.rayStartParams.{key}", f"{given or 'left to Ray'}; the head must take no work: \"0\""
    kinds = {head.get("serviceType", "ClusterIP"), head.get("headService", {}).get("spec", {}).get("type", "ClusterIP")}
    if kinds != {"ClusterIP"} or head.get("enableIngress"):
        yield f"{field}.headGroupSpec.serviceType", "the dashboard would be open to the world; ClusterIP, no ingress, and kubectl port-forward"
    yield from pod_problems(head["template"], f"{field}.headGroupSpec.template")
    if service := head.get("headService"):
        yield from kubernetes_problems({"apiVersion": "v1", "kind": "Service", **service}, f"{field}.headGroupSpec.headService")
    options = {key: value for key, value in spec.get("autoscalerOptions", {}).items() if key in ("env", "envFrom", "imagePullPolicy", "resources", "securityContext", "volumeMounts")}
    container = {"name": "autoscaler", "image": "ray", **options}
    yield from kubernetes_problems({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}, f"{field}.autoscalerOptions")
    names = [group["groupName"] for group in spec.get("workerGroupSpecs", [])]
    for index, group in enumerate(spec.get("workerGroupSpecs", [])):
        name = f"{field}.workerGroupSpecs.{index}"
        if names.count(group["groupName"]) > 1:
            yield f"{name}.groupName", f"{group['groupName']} is there twice; give each a name of its own"
        yield from start_problems(group, name)
        for key in ("minReplicas", "replicas"):
            if group.get(key, 0) != 0:
                yield f"{name}.{key}", f"{group[key]} pods would stay and be paid for; 0"
        cpus, gpus = (group.get("rayStartParams", {}).get(key) for key in ("num-cpus", "num-gpus"))
        if gpus not in (None, "0") and cpus != gpus:
            yield f"{name}.rayStartParams.num-cpus", f'{cpus or "left to Ray"}; data stages would take the trainers\' cores, one for each GPU is enough: "{gpus}"'
        if gpus in (None, "0") and any(one.get("key") in (None, "nvidia.com/gpu") for one in group["template"].get("spec", {}).get("tolerations", [])):
            yield f"{name}.template.spec.tolerations", "pods without a GPU would take the GPU nodes' last cores; leave nvidia.com/gpu out, and name the key of every other"
        yield from pod_problems(group["template"], f"{name}.template")


def pod_problems(template: dict, field: str) -> Iterator[Problem]:
    """A pod template: Kubernetes' schema, limits, our image, no root, no secret in the open."""
    refused = list(kubernetes_problems({"apiVersion": "v1", "kind": "Pod", **template}, field))
    yield from refused
    if refused:
        return
    if not template["spec"].get("securityContext", {}).get("runAsNonRoot"):
        yield f"{field}.spec.securityContext.runAsNonRoot", "missing; true"
    if template["spec"].get("restartPolicy") != "Never":
        yield f"{field}.spec.restartPolicy", f"{template['spec'].get('restartPolicy', 'missing')}; a pod must not come back as another Ray node: Never"
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if template["spec"].get(key):
            yield f"{field}.spec.{key}", "true, which opens the node; leave it out"
    for index, container in enumerate(template["spec"]["containers"]):
        name = f"{field}.spec.containers.{index}"
        if not right_image(container.get("image")):
            yield f"{name}.image", f"{container.get('image', 'missing')}; your own {OWN_IMAGE}, or {RAY_IMAGE}"
        yield from quantity_problems(container.get("resources", {}), f"{name}.resources")
        guard = container.get("securityContext", {})
        if guard.get("privileged") or guard.get("runAsUser") == 0 or guard.get("allowPrivilegeEscalation", True):
            yield f"{name}.securityContext", "may become root; {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield f"{name}.ports", "a hostPort opens the node; leave it out, and kubectl port-forward"
        words = [*container.get("command", []), *container.get("args", [])]
        if "mlflow" in words and "server" in words and "127.0.0.1" not in words[words.index("--host") + 1 : words.index("--host") + 2 if "--host" in words else 0]:
            yield f"{name}.command", "the MLflow server has no login; --host 127.0.0.1, and kubectl port-forward"
        for key in ("requests", "limits"):
            if missing := {"cpu", "memory"} - set(container.get("resources", {}).get(key, {})):
                yield f"{name}.resources.{key}", f"without {' and '.join(sorted(missing))}; say how much"
        for entry in container.get("env", []):
            yield from environment_problems(entry["name"], str(entry.get("value", "")), f"{name}.env")


UNITS = {"": 1, "m": 1e-3} | {unit: 1000**power for power, unit in enumerate("kMGTP", 1)} | {f"{unit}i": 1024**power for power, unit in enumerate("KMGTP", 1)}


def quantity(text: Any) -> float | None:
    """What a Kubernetes quantity says; None where it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]*)", str(text))
    return float(found[1]) * UNITS[found[2]] if found and found[2] in UNITS else None


def quantity_problems(resources: dict, field: str) -> Iterator[Problem]:
    """Quantities that are none, requests above limits, and parts of a GPU, or GPUs that differ: Kubernetes hands out whole ones."""
    limits = resources.get("limits", {})
    for key in ("requests", "limits"):
        for name, text in resources.get(key, {}).items():
            value = quantity(text)
            if value is None:
                yield f"{field}.{key}.{name}", f"{text} is no quantity; as 500m, 4 or 56Gi"
            elif "/" in name and value != int(value):
                yield f"{field}.{key}.{name}", f"{text}; devices are whole: {int(value) + 1}"
            elif "/" in name and quantity(limits.get(name)) != value:
                yield f"{field}.{key}.{name}", f"{text}, and the limit is {limits.get(name, 'missing')}; the same of both"
            elif name in limits and value > (quantity(limits[name]) or value):
                yield f"{field}.{key}.{name}", f"{text} is above the limit ({limits[name]})"


@functools.cache
def start_options() -> frozenset[str]:
    """What `ray start` takes."""
    from ray.scripts.scripts import start

    return frozenset(option.removeprefix("--") for parameter in start.params for option in parameter.opts)


def start_problems(group: dict, field: str) -> Iterator[Problem]:
    """What `ray start` would refuse of a group, and what its pods offer beside what they say."""
    given = group.get("rayStartParams", {})
    for key, value in given.items():
        if key not in start_options():
            yield f"{field}.rayStartParams.{key}", "no such option of ray start"
        elif key in ("num-cpus", "num-gpus") and not re.fullmatch(r"\d+", value):
            yield f"{field}.rayStartParams.{key}", f"{value}; a whole number"
    if "resources" in group:
        yield f"{field}.resources", "KubeRay would take it instead of rayStartParams; leave it out"
    gpus = sum(quantity(one.get("resources", {}).get("limits", {}).get(GPU, 0)) or 0 for one in group["template"].get("spec", {}).get("containers", []))
    if (said := given.get("num-gpus", "0")) != f"{gpus:g}":
        yield f"{field}.rayStartParams.num-gpus", f"{said}, and its containers have {gpus:g} of {GPU}; the same"


def kubernetes_problems(document: dict, field: str) -> Iterator[Problem]:
    """What Kubernetes' own schema refuses, unknown fields too; the first of each object."""
    import kubernetes_validate

    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield ".".join(filter(None, [field, *map(str, error.absolute_path)])), error.message
    except (kubernetes_validate.SchemaNotFoundError, KeyError):
        yield "apiVersion", f"{document.get('apiVersion')} has no kind {document.get('kind')}; KubeRay's are ray.io/v1 RayCluster and RayJob"


# The image


def dockerfile(text: str, path: Path) -> Iterator[Problem]:
    """The base of the lock's Ray, the lock's versions, no root at the end, and a build context that holds the code alone."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [(number, *line.split(maxsplit=1)) for number, line in enumerate(lines, 1) if len(line.split(maxsplit=1)) == 2 and not line.startswith("#")]
    bases = [value for _, word, value in words if word == "FROM"]
    if bases != [RAY_IMAGE]:
        yield "FROM", f"{', '.join(bases) or 'missing'}; {RAY_IMAGE}, the Ray of cluster/requirements.txt"
    if (user := next((value for _, word, value in reversed(words) if word == "USER"), "ray")) in ("root", "0"):
        yield "USER", f"{user} at the end; ray"
    for number, word, value in words:
        for message in pip_problems(value) if word == "RUN" else ():
            yield f"line {number}", message
    ignored = path.with_name("Dockerfile.dockerignore")
    if not ignored.exists() or "*" not in ignored.read_text().splitlines():
        yield ignored.name, "must begin with * and name what the image may see: runs, data and secrets may not"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
