"""Write commands in help and messages in the form that the user typed: `python jobs/JOB.py` or `bertstream JOB`."""

import re
import sys
from pathlib import Path

COMMAND = "bertstream"
JOBS = (
    *("prepare", "pretrain", "finetune", "predict", "score", "compare", "embed", "search"),
    *("mine", "adapt", "ablate", "export", "serve", "show", "bench"),
)
SCRIPT = re.compile(rf"(?<![\w./-])(python )?jobs/({'|'.join(JOBS)})\.py\b")


def as_called(text: str) -> str:
    """Replace `python jobs/JOB.py` in a text by `bertstream JOB` if the user started `bertstream`."""
    return SCRIPT.sub(rf"{COMMAND} \2", text) if Path(sys.argv[0]).stem == COMMAND else text
