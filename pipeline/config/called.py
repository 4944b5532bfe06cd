"""Commands in help and messages, as the person started this one."""

import re
import sys
from pathlib import Path

COMMAND = "bertstream"


def as_called(text: str) -> str:
    """Return a text whose commands are `bertstream JOB` where that was started, and `python jobs/JOB.py` else."""
    if Path(sys.argv[0]).stem != COMMAND:
        return text
    return re.sub(r"(python )?jobs/(\w+)\.py", rf"{COMMAND} \2", text)
