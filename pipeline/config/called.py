"""Commands in help and messages, written as the user started this one."""

import re
import sys
from pathlib import Path

COMMAND = "bertstream"
JOBS = ("prepare", "pretrain", "finetune", "predict", "score", "compare", "export", "show", "bench")
SCRIPT = re.compile(rf"(?<![\w./-])(python )?jobs/({'|'.join(JOBS)})\.py\b")


def as_called(text: str) -> str:
    """Rewrite commands in a text as `bertstream JOB` if that was started; otherwise keep `python jobs/JOB.py`."""
    return SCRIPT.sub(rf"{COMMAND} \2", text) if Path(sys.argv[0]).stem == COMMAND else text
