"""Pretrain a BERT-family encoder on raw text, from a preset's settings.

    python jobs/pretrain.py encoder-xs --corpus PATH_OR_URL --epochs 10
    python jobs/pretrain.py continue --init FOLDER_OR_hf://OWNER/NAME --corpus PATH_OR_URL --vocabulary.extend 1000
    ray job submit -- python jobs/pretrain.py encoder-s --corpus PATH_OR_URL --corpus ANOTHER --tokens 1B --workers 2
    python jobs/pretrain.py encoder-xs --show > run.toml; python jobs/pretrain.py --config run.toml --seed 1

Run the same command again to continue a stopped run.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.arguments import Extra
from pipeline.command_line.exit_codes import job_main

EXTRA = (
    Extra(
        name="config",
        metavar="FILE",
        text="A TOML file of settings: what --show prints, or a part of it; command-line options override it.",
    ),
    Extra(name="show", text="Print the whole configuration as TOML and stop."),
    Extra(
        name="plan",
        text="Print an estimate of the run and stop: parameters, tokens, passes over the text, floating-point "
        "operations, storage, hours on this machine by a few timed steps, hours and cost on --workers rented GPUs, and "
        "how many slots each rank gets.",
    ),
    Extra(
        name="gpu",
        metavar="NAME",
        text="With --plan: the GPU of each worker, such as H100 SXM or L4, for which the settings that are auto are "
        "chosen; only machines with this GPU are listed.",
    ),
)


@job_main(stopped="stopped; the same command continues from the last checkpoint")
def main(arguments: Sequence[str]) -> None:
    """Parse, run and report; exit with 0 when the run is finished, 2 for errors that the user can fix."""
    from pipeline.command_line.arguments import extras
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.jobs import COMMON, Pretrain, with_words_rate
    from pipeline.errors import ConfigError
    from pipeline.presets.table import (
        ABOUT_PRESETS,
        as_toml,
        require_init,
        split_preset,
        starting_point,
        unnamed_note,
        with_given_length,
    )
    from pipeline.reporting import print_line
    from pipeline.saved.naming import with_name

    preset, rest = split_preset(arguments)
    about = f"{__doc__}\n{ABOUT_PRESETS}"
    command = Command(prog="jobs/pretrain.py [PRESET]", about=about, settings=Pretrain, common=COMMON, extra=EXTRA)
    words = command.words(rest, starting_point(preset, None)[1])
    asked = extras(words)
    note = unnamed_note(preset, asked.get("config"))
    preset, default = starting_point(preset, asked.get("config"))
    unnamed = with_words_rate(command.parse(words, with_given_length(default, words)))
    config = with_name(unnamed, preset)
    require_init(preset, config)
    if "show" in asked:
        print(f"# run {config.name}\n{as_toml(unnamed, preset)}", end="")
        return
    from pipeline.saved.run import with_begun_name  # it reads the output folder, which --show does not need

    config = with_begun_name(unnamed, preset)
    if "gpu" in asked and "plan" not in asked:
        raise ConfigError(f"gpu ({asked['gpu']}) is for a plan, and a run asks its GPUs: add --plan, or leave it out")
    if note is not None:
        print_line(note)
    if "plan" in asked:
        from pipeline.train.plan_here import whole_plan

        print(whole_plan(config, asked.get("gpu"), print_line))
        return

    set_ray_defaults()
    from pipeline.train.summary import next_commands, summary_text
    from pipeline.workflows.pretrain import pretrain

    summary = pretrain(config, print_line)
    print(f"\n{summary_text(summary)}\n\n{next_commands(summary)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
