"""Say in one line what is wrong with a request's body."""

from collections.abc import Mapping, Sequence
from typing import Any

Step = str | int
"""A field's name, or an index of a list."""
WANTED = {
    "string_type": "a text",
    "list_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""pydantic's error of a wrong type -> what the field must be."""
JSON_HEADER = 'with the header "Content-Type: application/json"'


def wrong_body(errors: Sequence[Mapping[str, Any]], body: Any, content_type: str | None) -> str:
    """Return what is wrong with a body, given pydantic's errors; `body` is bytes if it was not read as JSON."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return f"the body is no JSON object: {first['ctx']['error']} at character {first['loc'][1]}"
    if len(first["loc"]) > 1:
        return _wrong_field([error for error in errors if error["loc"][1] == first["loc"][1]], body)
    if not body and not isinstance(body, list | str):
        return f"the body is empty: send a JSON object {JSON_HEADER}"
    if isinstance(body, bytes):
        given = f"Content-Type is {ascii(content_type)}" if content_type else "Content-Type is missing"
        return f"the body is no JSON object ({given}): send one {JSON_HEADER}"
    return 'the body is no JSON object: write the texts into its fields, such as {"inputs": ...}'


def _wrong_field(errors: Sequence[Mapping[str, Any]], body: Any) -> str:
    """Return what is wrong with one field.

    pydantic tries each type of a union and reports all failures. The type that the client meant is the one that failed
    for another reason than its type, or whose wrong type lies deepest.
    """
    located = [(_steps(error, body), error) for error in errors]
    steps, error = max(located, key=lambda one: (not one[1]["type"].endswith("_type"), len(one[0])))
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    kind, context = error["type"], error.get("ctx", {})
    if kind == "too_short":
        return f"{field} is an empty list: give at least one text"
    if kind == "too_long":
        several = '; send several rows as [["a text"], ["another"]]' if len(steps) == 1 else ""
        return f"{field} has {context['actual_length']} texts, and at most {context['max_length']} make a row{several}"
    if kind not in WANTED:
        return f"{field}: {error['msg']}"
    wanted = dict.fromkeys(WANTED[one["type"]] for where, one in located if where == steps and one["type"] in WANTED)
    given = error["input"] if isinstance(error["input"], list) else [error["input"]]
    are_ids = isinstance(steps[-1], int) and given and all(type(one) is int for one in given)
    ids = " (token ids are not supported)" if are_ids else ""
    return f"{field} must be {' or '.join(wanted)}{ids}"


def _steps(error: Mapping[str, Any], body: Any) -> tuple[Step, ...]:
    """Return where an error lies in the body as it was sent, without the names of a union's types."""
    steps: list[Step] = []
    path = error["loc"][1:]
    for number, step in enumerate(path, 1):
        if isinstance(step, int) if isinstance(body, list) else isinstance(body, dict) and step in body:
            body = body[step]
        elif number < len(path) or error["type"] != "missing":
            continue
        steps.append(step)
    return tuple(steps)
