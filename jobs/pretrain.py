"""Pretrain a BERT-family encoder on raw text, from a preset's settings.

    python jobs/pretrain.py bert-tiny
    python jobs/pretrain.py continue --init FOLDER_OR_hf://OWNER/NAME --corpus PATH_OR_URL --vocabulary.extend 1000
    ray job submit -- python jobs/pretrain.py bert-mini --corpus PATH_OR_URL --corpus PATH_OR_URL --steps 500 --workers 2

The same command again continues a run that was stopped. --show prints the whole configuration and stops; --plan prints what the run
would take on --workers GPUs: parameters, tokens, arithmetic, hours and cost by machine, storage, and how slots are dealt.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Parse, run and report; 0 when the run is finished, 2 for what the user can fix."""
    import tyro

    from pipeline.config.arguments import in_order
    from pipeline.config.flat import flatten
    from pipeline.config.jobs import with_words_rate
    from pipeline.environment import set_ray_defaults
    from pipeline.errors import PipelineError
    from pipeline.presets import PRESETS, require_init, split_preset
    from pipeline.stopping import exit_code
    from pipeline.train.naming import with_name

    try:
        preset, rest = split_preset(arguments)
        show, plan = "--show" in rest, "--plan" in rest
        description = f"{__doc__}\nPresets (first word; bert-tiny when left out): {', '.join(PRESETS)}"
        config = tyro.cli(
            type(PRESETS[preset]),
            prog="jobs/pretrain.py",
            description=description,
            args=in_order([word for word in rest if word not in ("--show", "--plan")], type(PRESETS[preset]), PRESETS[preset]),
            default=PRESETS[preset],
            config=(tyro.conf.UseAppendAction, tyro.conf.FlagConversionOff),
        )
        config = with_name(with_words_rate(config), preset)
        require_init(preset, config)
        if show:
            print("\n".join(f"{name} = {value!r}" for name, value in flatten(config).items()))
            return 0
        if plan:
            from pipeline.plan import plan_text, read_prices

            print(plan_text(config, read_prices()))
            return 0

        set_ray_defaults()
        from pipeline.pretrain import pretrain
        from pipeline.train.summary import summary_text

        print(f"\n{summary_text(pretrain(config, report=lambda line: print(line, flush=True)))}")
        return 0
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the same command continues from the last checkpoint", file=sys.stderr)
        return exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
