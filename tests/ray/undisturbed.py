"""A job that works on parts, in this process and without Ray, so that nothing can be killed."""

from typing import Any

import pyarrow as pa

from pipeline.predict.distributed import Reader, Worker
from pipeline.predict.parts import Parts


def run_parts(reader: Reader, worker: Worker, parts: Parts, *_: Any) -> None:
    """Work on one part after another, as `pipeline.predict.distributed.run_parts` does on Ray."""
    work = worker.kind(*worker.arguments)
    for file in range(len(reader.files)):
        for row in reader(pa.table({"file": [file]})):
            (done,) = work(row).to_pylist()
            assert not done["error"], done
            if done["parts"]:
                parts.close(file, done["parts"] - 1)
