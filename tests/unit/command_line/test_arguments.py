"""Words of a command line: their checks, and the settings that are built from them."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from jobs import pretrain
from pipeline.command_line.command import Command
from pipeline.command_line.options import choices, nearest, options_of
from pipeline.command_line.tree import unchecked
from pipeline.config.adapters import LowRank
from pipeline.config.data import TokenMasking
from pipeline.config.export import Export
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.pictures import Ranks
from pipeline.config.show import Seen
from pipeline.config.training import AdamW, ConstantRate, Lamb, LinearDecay
from pipeline.errors import ConfigError
from pipeline.presets.table import PRESETS

MINI = PRESETS["bert-mini"]


def test_settings_of_several_kinds_are_found() -> None:
    assert list(choices(Pretrain)) == [
        "sampling.pairs",
        "sampling.masking",
        "model.positions",
        "model.attention",
        "phases",
        "objective",
        "optimizer",
        "schedule",
    ]
    assert list(choices(Finetune)) == ["adapter"]
    assert list(choices(Pretrain)["optimizer"]) == ["adam-w", "lamb", "stable-adam-w", "muon"]


def test_a_list_of_numbers_is_checked_and_described() -> None:
    command = Command(prog="finetune", about="", settings=Finetune)
    words = ["--checkpoint", "m", "--task", "sst2", "--similarity.dimensions", "8", "--similarity.dimensions", "16"]
    assert command.parse(command.words(words)).similarity.dimensions == (8, 16)
    words = ["--checkpoint", "m", "--task", "sst2", "--similarity.dimensions", "8,16", "--similarity.dimensions", "32"]
    assert command.parse(command.words(words)).similarity.dimensions == (8, 16, 32)
    with pytest.raises(ConfigError, match=r"^similarity.dimensions \('x'\) must be a list of whole numbers$"):
        command.words(["--checkpoint", "m", "--task", "sst2", "--similarity.dimensions", "8,x"])
    option = next(option for option in options_of(Finetune) if option.path == "similarity.dimensions")
    assert option.metavar == "INT"


def parsed(settings: type, given: str, default: Any = None, several: bool = False) -> Any:
    """Return the settings of a command line."""
    command = Command(prog="job", about="", settings=settings, several=several)
    return command.parse(command.words(given.split(), default), default)


CHANGED: dict[str, dict[str, Any]] = {
    "--corpus a --steps 5 --corpus=b": {"corpus": ("a", "b"), "steps": 5},
    "--steps 5 --seed 2 --steps=6": {"steps": 6, "seed": 2},  # the last one counts
    "--optimizer.learning-rate 1e-4 --steps 1_000": {
        "optimizer": replace(MINI.optimizer, learning_rate=1e-4),
        "steps": 1000,
    },
    "--optimizer.beta2=0.9 --steps 5 optimizer:lamb": {"optimizer": Lamb(beta2=0.9), "steps": 5},
    "--schedule.warmup_steps 3 optimizer:lamb schedule:constant_rate": {
        "optimizer": Lamb(),
        "schedule": ConstantRate(warmup_steps=3),
    },
    "--corpus optimizer:lamb --steps 1": {"corpus": ("optimizer:lamb",), "steps": 1},  # a value is no kind
    "--vocabulary.lowercase --vocabulary.no-strip-accents --vocabulary.special-tokens None": {
        "vocabulary": replace(MINI.vocabulary, lowercase=True, strip_accents=False, special_tokens=None)
    },
    "--workers 1..2": {"workers": "1..2"},
    "--workers 2": {"workers": 2},
}


def test_options_and_kinds_may_come_in_any_order_and_change_nothing_else() -> None:
    assert {given: parsed(Pretrain, given, MINI) for given in CHANGED} == {
        given: replace(MINI, **changed) for given, changed in CHANGED.items()
    }


def test_without_defaults_the_kind_is_the_classes_own() -> None:
    read = parsed(Finetune, "--adapter.rank 4 adapter:low-rank --seeds 1 --checkpoint m --task cola")
    assert (read.adapter, read.seeds) == (LowRank(rank=4), 1)
    assert parsed(Pretrain, "--schedule.warmup-share 0.1").schedule == LinearDecay(warmup_share=0.1)


def test_an_option_of_a_kind_keeps_the_other_values_of_the_preset() -> None:
    preset = PRESETS["albert-base"]  # Lamb, a subclass of the first kind, with another learning rate than the class
    assert preset.optimizer == Lamb(learning_rate=0.00176)
    for given in ("--optimizer.epsilon 1e-5", "optimizer:lamb --optimizer.epsilon 1e-5"):
        assert parsed(Pretrain, given, preset).optimizer == replace(preset.optimizer, epsilon=1e-5)


def test_another_kind_has_the_values_of_its_class() -> None:
    read = parsed(Pretrain, "optimizer:adam-w sampling.masking:token-masking", PRESETS["albert-base"])
    assert type(read.optimizer) is AdamW and read.optimizer == AdamW()
    assert type(read.sampling.masking) is TokenMasking and read.sampling.masking == TokenMasking()


def test_only_the_final_values_are_checked() -> None:
    model = unchecked(Model, vars(Model()) | {"heads": 3})
    default = unchecked(Pretrain, vars(MINI) | {"model": model})
    assert parsed(Pretrain, "--model.heads 4", default).model == Model(heads=4)
    with pytest.raises(ConfigError, match=r"^model.width \(128\) must be a multiple of model.heads \(3\)$"):
        parsed(Pretrain, "", default)


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Repeatable settings with defaults, and numbers to choose from."""

    names: tuple[str, ...] = ("a", "b")
    shares: tuple[float, ...] = (0.5,)
    bits: Literal[8, 16] = 8


def test_given_values_replace_the_default_of_a_repeatable_option() -> None:
    assert parsed(Lists, "--names c --shares 1 --names=d") == Lists(names=("c", "d"), shares=(1.0,))
    assert parsed(Lists, "--names c", Lists(names=("e",), shares=(0.1,))) == Lists(names=("c",), shares=(0.1,))
    assert parsed(Lists, "--names c d --shares -1 2", several=True) == Lists(names=("c", "d"), shares=(-1.0, 2.0))
    assert parsed(Lists, "--names c d --names e", several=True).names == ("e",)
    with pytest.raises(ConfigError, match=r"^shares \('x'\) must be a list of numbers$"):
        parsed(Lists, "--shares x")


def test_a_choice_of_numbers_is_a_number() -> None:
    assert parsed(Lists, "--bits 16") == Lists(bits=16)
    with pytest.raises(ConfigError, match=r"^bits \('9'\) must be one of 8, 16$"):
        parsed(Lists, "--bits 9")


@pytest.mark.parametrize(
    ("words", "graphs"),
    [
        ("", "auto"),
        ("--placement.graphs", "on"),
        ("--placement.graphs --steps 3", "on"),
        ("--placement.graphs optimizer:lamb", "on"),
        ("--placement.graphs true", "on"),
        ("--placement.graphs=false", "off"),
        ("--placement.graphs off", "off"),
        ("--placement.no-graphs --seed 1", "off"),
        ("--placement.graphs auto", "auto"),
    ],
)
def test_a_setting_with_on_and_off_may_be_written_as_a_flag(words: str, graphs: str) -> None:
    assert parsed(Pretrain, words).placement.graphs == graphs
    with pytest.raises(
        ConfigError, match=r"^placement.graphs \('onn'\) must be one of auto, on, off; did you mean on\?$"
    ):
        parsed(Pretrain, "--placement.graphs onn")


def test_slots_are_a_number_or_auto() -> None:
    assert [parsed(Pretrain, f"--batch.rows-per-slot {value}").batch.rows_per_slot for value in ("16", "auto")] == [
        16,
        "auto",
    ]
    with pytest.raises(ConfigError, match=r"^batch.rows_per_slot \('many'\) must be"):
        parsed(Pretrain, "--batch.rows-per-slot many")


def test_options_of_the_defaults_kinds_work_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    given = (
        "bert-mini schedule:warmup-stable-decay --optimizer.learning-rate 0.5 --steps 700 --schedule.decay-share 0.4 "
        "--sampling.masking.share 0.25 --show"
    )
    assert pretrain.main(given.split()) == 0
    shown = capsys.readouterr().out
    for part in (
        '[optimizer]\nkind = "adam-w"\nlearning_rate = 0.5\n',
        "steps = 700\n",
        "decay_share = 0.4\n",
        '[sampling.masking]\nkind = "token-masking"\nshare = 0.25\n',
    ):
        assert part in shown, part


MISSPELT = {
    "bert-tny": "preset (bert-tny) does not exist; did you mean bert-tiny?",
    "--optimizer.lr 1": "option --optimizer.lr does not exist; did you mean --optimizer.learning-rate?",
    "--lr=1": "option --lr does not exist; did you mean --optimizer.learning-rate?",
    "--shw": "option --shw does not exist; did you mean --show?",
    "--maximum-length 9": (
        "option --maximum-length does not exist; did you mean --phases.maximum-length or --sampling.maximum-length?"
    ),
    "--qqqq": "option --qqqq does not exist; --help all lists every option",
    "optimizer:lam": (
        "optimizer:lam does not exist: optimizer is adam-w or lamb or stable-adam-w or muon; did you mean "
        "optimizer:lamb?"
    ),
    "--seed 1 optimiser:lamb": (
        "word optimiser:lamb is not an option or kind such as schedule:warmup-stable-decay; "
        "did you mean optimizer:lamb?"
    ),
    "--seed 1 steps 3": (
        "word steps is not an option or kind such as schedule:warmup-stable-decay; did you mean --steps?"
    ),
    "bert-tiny bert-mini": "word bert-mini is not an option or kind such as schedule:warmup-stable-decay",
    "optimizer:lamb optimizer:adam-w": "optimizer is chosen twice: leave out optimizer:lamb or optimizer:adam-w",
    "bert-tiny --schedule.warmup-steps 4": (
        "--schedule.warmup-steps belongs to schedule:constant-rate, schedule:warmup-stable-decay, "
        "but schedule is linear-decay: choose one of these kinds, or leave the option out"
    ),
    "--steps": "--steps needs a value: --steps INT",
    "--steps --seed 3": "--steps needs a value: --steps INT",
    "--name --sed 3": "--name needs a value: --name TEXT, or --name=--sed if that is the value",
    "--show=1": "--show takes no value: write --show instead of --show=1",
    "--config": "--config needs a value: --config FILE",
    "--checkpoint.keep-best True": (
        "--checkpoint.keep-best takes no value: write --checkpoint.keep-best instead of --checkpoint.keep-best True"
    ),
    "--checkpoint.keep_best=False": (
        "--checkpoint.keep-best takes no value: write --checkpoint.no-keep-best instead of --checkpoint.keep_best=False"
    ),
    "--placement.no-autoscaled false": (
        "--placement.autoscaled takes no value: write --placement.autoscaled instead of --placement.no-autoscaled false"
    ),
    "--vocabulary.lowercase None": (
        "--vocabulary.lowercase takes no value: leave the option out instead of writing --vocabulary.lowercase None"
    ),
    "--steps many": "steps ('many') must be a whole number",
    "--steps=1.5": "steps ('1.5') must be a whole number",
    "--optimizer.clip-norm x": "optimizer.clip_norm ('x') must be a number",
    "--placement.device cdua": "placement.device ('cdua') must be one of auto, cpu, cuda; did you mean cuda?",
}


def test_misspelt_words_get_one_line_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for given in MISSPELT:
        words = given.split()
        words.insert(int(words[0].startswith("bert")), "--plan")  # what is not refused must not start a run
        assert pretrain.main(words) == 2, given
        found = capsys.readouterr()
        said[given] = found.out + found.err
    assert said == {given: f"error: {message}\n" for given, message in MISSPELT.items()}


def test_initials_and_last_parts_are_near_however_unlike_the_rest_is() -> None:
    paths = [option.path for option in options_of(Pretrain)]
    assert nearest("optimizer.lr", paths)[0] == "optimizer.learning_rate"
    assert sorted(nearest("rows_per_step", paths)) == ["batch.rows_per_step", "phases.rows_per_step"]
    assert nearest("optimizer.lerning_rate", paths)[0] == "optimizer.learning_rate"
    assert nearest("zzzz", paths) == []


EXPORT = Command(prog="export", about="", settings=Export, positional=True, several=True)


def test_a_yes_or_no_option_may_stand_before_a_word() -> None:
    for given in ("--replace RUN", "RUN --replace", "RUN --kinds onnx int8 --replace"):
        read = EXPORT.read(given.split())
        assert (read.run, read.replace) == ("RUN", True)
    assert read.kinds == ("onnx", "int8")
    assert not EXPORT.read(["RUN", "--no-replace"]).replace


def test_what_must_be_given_is_named_when_it_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"^run is missing: Folder or URL of the run, or of a fine-tuned model"):
        EXPORT.read([])
    with pytest.raises(ConfigError, match=r"^--checkpoint is missing: Folder, URL or hf://"):
        Command(prog="finetune", about="", settings=Finetune).read(["--task", "cola"])
    with pytest.raises(ConfigError, match="^word TWO is not an option$"):
        EXPORT.read(["ONE", "TWO"])
    with pytest.raises(ConfigError, match="^option --run does not exist"):
        EXPORT.read(["--run", "ONE"])


def test_plain_words_have_the_types_of_the_required_settings() -> None:
    seen = Command(prog="show", about="", settings=Seen, positional=True)
    assert seen.read(["RUN", "--row", "2", "5"]) == Seen(folder="RUN", step=5, row=2)
    with pytest.raises(ConfigError, match=r"^step \('x'\) must be a whole number$"):
        seen.words(["RUN", "x"])
    assert [word.values for word in seen.words(["-5 degrees is cold.", "-1"])] == [("-5 degrees is cold.",), ("-1",)]
    ranks = Command(prog="show", about="", settings=Ranks, positional=True)
    assert ranks.read(["BEFORE", "AFTER", "-inf loss after a step"]).query == "-inf loss after a step"


@dataclass(frozen=True, kw_only=True)
class Switches:
    """Every form of a yes-or-no setting."""

    on: bool = True
    off: bool = False
    either: bool | None = None


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("", (True, False, None)),
        ("--no-on --off --either", (False, True, True)),
        ("--on --no-off --no-either", (True, False, False)),
    ],
)
def test_yes_or_no_settings_are_bare_flags(given: str, values: tuple[bool | None, ...]) -> None:
    read = Command(prog="switches", about="", settings=Switches).read(given.split())
    assert (read.on, read.off, read.either) == values
