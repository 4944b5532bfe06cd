"""Start a Ray worker process like Ray's setup_worker.py, but without importing Ray first.

Ray runs this file as a script if Ray was started inside `ray_private.light_worker_setup`. Ray's own script imports Ray
(0.6 s of CPU), sets environment variables, and replaces itself with the worker, which imports Ray again. A run starts
about a dozen workers.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence

CONTEXT, LANGUAGE = "--serialized-runtime-env-context", "--language"


def worker_command(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the worker's command and its additional environment variables.

    The command is Ray's own script if the worker's language is not Python, if the runtime environment has more than
    plain variables, or if the arguments have an unexpected form.
    """
    options = {name: value for name, sign, value in (word.partition("=") for word in arguments) if sign}
    passed = [word for word in arguments if word.partition("=")[0] not in (CONTEXT, LANGUAGE)]
    context = json.loads(options.get(CONTEXT, "{}"))
    variables = context.pop("env_vars", {})
    interpreter = context.pop("py_executable", sys.executable)
    unsupported = any(context.values()) or any("$" in value for value in variables.values())
    if options.get(LANGUAGE) != "PYTHON" or interpreter != sys.executable or unsupported or CONTEXT in arguments:
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
