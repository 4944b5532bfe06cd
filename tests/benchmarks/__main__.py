"""Measure once more what a table of jobs/results/ was made of; exit code 1 if a ratio is below its floor.

python -m tests.benchmarks wikitext --dump simplewiki-pages-articles.xml.bz2
python -m tests.benchmarks job
python -m tests.benchmarks scale
python -m tests.benchmarks checkpoint --preset bert-base
python -m tests.benchmarks embed
python -m tests.benchmarks run-mlm --token-file tokens.arrow --output models/run-mlm --minutes 15
python -m tests.benchmarks shape mini --family albert
python -m tests.benchmarks ablation parts --file tokens.arrow --tokens 15M --blimp BLIMP --at-once 8

shape and ablation have their own help: python -m tests.benchmarks shape --help. They and run-mlm need no Ray and no
MLflow.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import get_args

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped")
def main(arguments: Sequence[str]) -> int:
    """Parse, measure and print; return 0 if every ratio reaches its floor, 1 if one does not, 2 for user errors."""
    # These two use all cores, so they run before the limit of one thread is set below.
    if list(arguments[:1]) == ["shape"]:
        from tests.benchmarks import shape

        return shape.main(arguments[1:])
    if list(arguments[:1]) == ["ablation"]:
        from tests.benchmarks import ablation

        return ablation.main(arguments[1:])
    # One thread per process; libraries read these variables when they are imported.
    os.environ |= {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    from pipeline.command_line.command import read_one_of
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.locations import with_absolute_locations
    from pipeline.reporting import print_line
    from tests.benchmarks.settings import Benchmark

    config = read_one_of(get_args(Benchmark), arguments, "python -m tests.benchmarks", str(__doc__))
    set_ray_defaults()
    # Only the module of this benchmark is imported: run_mlm runs where there is no Ray and no MLflow.
    module = import_module(f"tests.benchmarks.{arguments[0].replace('-', '_')}")
    return module.run(with_absolute_locations(config), print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
