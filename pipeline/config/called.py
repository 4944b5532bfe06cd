"""Commands in help and messages, written as the user started this one."""

import re
import sys
from pathlib import Path

COMMAND = "bertstream"


def as_called(text: str) -> str:
    """Rewrite commands in a text as `bertstream JOB` if that was started; otherwise keep `python jobs/JOB.py`."""
    if Path(sys.argv[0]).stem != COMMAND:
        return text
    return re.sub(r"(python )?jobs/(\w+)\.py", rf"{COMMAND} \2", text)
