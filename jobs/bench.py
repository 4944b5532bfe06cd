"""Measure the pipeline on this machine and compare it with alternatives; exit code 1 if a ratio is below its floor.

A ratio is our speed divided by an alternative's; its floor is the smallest value that passes.

    python jobs/bench.py text
    python jobs/bench.py text --corpus books/ --vocabulary.path vocab.txt --vocabulary.lowercase
    python jobs/bench.py text --corpus books/ --vocabulary.kind byte-bpe
    python jobs/bench.py stream --corpus books/
    python jobs/bench.py step tiny mini --lengths full
    python jobs/bench.py step mini --family electra
    python jobs/bench.py tokens --corpus CORPUS --vocabulary.path vocab.txt --vocabulary.lowercase --file tokens.arrow
    python jobs/bench.py train encoder-s --token-file tokens.arrow --epochs 10
    python jobs/bench.py gpu --token-file tokens.arrow --blimp BLIMP
    python jobs/bench.py serve --checkpoint MODEL
    python jobs/bench.py serve --checkpoint MODEL --unbatched --onnx --seconds 60
    python jobs/bench.py finetune --checkpoint EXPORT --data GLUE
    python jobs/bench.py vectors --checkpoint MODEL --input texts.csv

step, train, gpu, finetune and vectors have their own help: python jobs/bench.py step --help.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

if find_spec("pipeline") is None:  # a clone that is not installed is enough for benches without Ray
    sys.path.append(str(Path(__file__).parents[1]))
from pipeline.command_line.exit_codes import job_main  # noqa: E402


@job_main(stopped="stopped")
def main(arguments: Sequence[str]) -> int:
    """Parse, measure and print; return 0 if every ratio reaches its floor, 1 if one does not, 2 for user errors."""
    # These benches use all cores, so they run before the limit of one thread is set below. All but finetune and vectors
    # do not import Ray, and step, train and gpu neither MLflow nor sentencex, because a GPU machine may not have them.
    if list(arguments[:1]) == ["step"]:
        from pipeline.bench import step

        return step.main(arguments[1:])
    if list(arguments[:1]) == ["train"]:
        from pipeline.bench import train

        return train.main(arguments[1:])
    if list(arguments[:1]) == ["gpu"]:
        from pipeline.bench import gpu

        return gpu.main(arguments[1:])
    if list(arguments[:1]) == ["finetune"]:
        from pipeline.command_line.environment import set_ray_defaults

        set_ray_defaults()
        from pipeline.bench import finetune

        return finetune.main(arguments[1:])
    if list(arguments[:1]) == ["vectors"]:
        from pipeline.bench import vectors

        return vectors.main(arguments[1:])
    # The other benches use one thread per process; libraries read these variables when they are imported.
    os.environ |= {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    from pipeline.command_line.command import read_one_of
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.bench import Bench
    from pipeline.reporting import print_line

    config = read_one_of(get_args(Bench), arguments, "jobs/bench.py", str(__doc__))
    set_ray_defaults()
    from pipeline.workflows.bench import bench

    return bench(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
