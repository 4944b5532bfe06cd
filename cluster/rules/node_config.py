"""Check a node's fields against the clouds' own API descriptions: Ray passes them on unchecked."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.rules.problems import Problem

TYPES = {"object": dict, "array": list, "boolean": bool, "string": (str, int), "integer": int, "number": (int, float)}


def node_configs(config: dict) -> Iterator[Problem]:
    """Yield node fields that their cloud does not accept."""
    problems = {"aws": ec2_problems, "gcp": compute_problems}.get(config["provider"]["type"])
    for name, node in config["available_node_types"].items() if problems else ():
        for field, message in problems(node["node_config"]):
            yield f"available_node_types.{name}.node_config" + (f".{field}" if field else ""), message


def ec2_problems(node: dict) -> Iterator[Problem]:
    from botocore.validate import ParamValidator

    given = {key: value for key, value in node.items() if key != "SubnetIds"}  # of Ray's own
    request = {"MinCount": 1, "MaxCount": 1} | given
    for line in ParamValidator().validate(request, run_instances()).generate_report().splitlines():
        yield "", line


@functools.cache
def run_instances() -> Any:
    """Return botocore's description of the input of EC2's RunInstances."""
    import botocore.session

    return botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances").input_shape


def compute_problems(node: dict) -> Iterator[Problem]:
    yield from described(node, {"$ref": "Instance"}, compute_schemas(), "")


@functools.cache
def compute_schemas() -> dict:
    """Return Google Compute Engine's own description of its types."""
    import googleapiclient

    documents = Path(googleapiclient.__file__).parent / "discovery_cache/documents"
    return json.loads((documents / "compute.v1.json").read_text())["schemas"]


def described(value: Any, shape: dict, schemas: dict, field: str) -> Iterator[Problem]:
    """Yield values that do not fit a type of a Google API."""
    shape = schemas.get(shape.get("$ref"), shape)
    kind = TYPES.get(shape.get("type"), object)
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
