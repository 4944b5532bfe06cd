"""Start a process of Ray as Ray's setup_worker.py does, but without importing Ray for it.

Ray runs this file as a script, where `ray_private.light_worker_setup` names it. Ray's own script imports Ray (0.6 s of
CPU), sets environment variables, and replaces itself with the worker, which imports Ray again; a run starts a dozen.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence

CONTEXT, LANGUAGE = "--serialized-runtime-env-context", "--language"


def worker_command(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the worker's command and its additional environment variables.

    The command is Ray's own script for a runtime environment of more than plain variables, or for unknown arguments.
    """
    given = {name: value for name, sign, value in (word.partition("=") for word in arguments) if sign}
    passed = [word for word in arguments if word.partition("=")[0] not in (CONTEXT, LANGUAGE)]
    context = json.loads(given.get(CONTEXT, "{}"))
    variables = context.pop("env_vars", {})
    interpreter = context.pop("py_executable", sys.executable)
    others = any(context.values()) or any("$" in value for value in variables.values())
    if given.get(LANGUAGE) != "PYTHON" or interpreter != sys.executable or others or CONTEXT in arguments:
        return [sys.executable, _script_of_ray(), *arguments], {}
    return [sys.executable, *passed], variables


def _script_of_ray() -> str:
    """Return the path of Ray's setup_worker.py."""
    specification = importlib.util.find_spec("ray")
    assert specification is not None and specification.origin is not None
    return os.path.join(os.path.dirname(specification.origin), "_private", "workers", "setup_worker.py")


if __name__ == "__main__":
    command, variables = worker_command(sys.argv[1:])
    os.execve(command[0], command, os.environ | variables)
