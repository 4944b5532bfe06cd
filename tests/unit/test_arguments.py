"""The words of a command line: what they are checked for, and the order that the parser is given."""

from dataclasses import dataclass

import pytest

from jobs import pretrain
from pipeline.config.arguments import in_order, words_of
from pipeline.config.command import Command
from pipeline.config.export import Export
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain
from pipeline.config.options import choices, nearest, options_of
from pipeline.errors import ConfigError
from pipeline.presets import PRESETS

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
    with pytest.raises(ConfigError, match=r"^similarity.dimensions \('8,16'\) must be a list of whole numbers$"):
        command.words(["--checkpoint", "m", "--task", "sst2", "--similarity.dimensions", "8,16"])
    option = next(option for option in options_of(Finetune) if option.path == "similarity.dimensions")
    assert option.metavar == "INT"


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        ("--steps 5 --corpus a --corpus b", "--steps 5 --corpus a --corpus b"),
        ("--optimizer.learning-rate 1e-4 --steps 5", "--steps 5 optimizer:adam-w --optimizer.learning-rate 1e-4"),
        ("optimizer:lamb --steps 5 --optimizer.beta2=0.9", "--steps 5 optimizer:lamb --optimizer.beta2=0.9"),
        (
            "schedule:constant-rate optimizer:lamb --schedule.warmup-steps 3",
            "optimizer:lamb schedule:constant-rate --schedule.warmup-steps 3",
        ),
        (
            "--sampling.masking.share 0.2 --sampling.maximum_length 64",
            "--sampling.maximum_length 64 sampling.masking:token-masking --sampling.masking.share 0.2",
        ),
        ("--corpus optimizer:lamb --steps 1", "--corpus optimizer:lamb --steps 1"),  # a value is no kind
        ("--checkpoint.keep-best --steps 3", "--checkpoint.keep-best --steps 3"),
        ("--placement.no-autoscaled --seed 1", "--placement.no-autoscaled --seed 1"),
        (
            "--vocabulary.lowercase --vocabulary.no-strip-accents",
            "--vocabulary.lowercase True --vocabulary.strip-accents False",
        ),
    ],
)
def test_kinds_come_last_and_stand_before_their_options(given: str, ordered: str) -> None:
    assert in_order(words_of(given.split(), Pretrain), Pretrain, MINI) == ordered.split()


def test_without_defaults_the_kind_is_the_classes_own() -> None:
    def ordered(given: str, settings: type) -> str:
        return " ".join(in_order(words_of(given.split(), settings), settings))

    assert (
        ordered("--adapter.rank 4 adapter:low-rank --seeds 1", Finetune)
        == "--seeds 1 adapter:low-rank --adapter.rank 4"
    )
    assert ordered("--schedule.warmup-share 0.1", Pretrain) == "schedule:linear-decay --schedule.warmup-share 0.1"


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("bert-tny", "preset (bert-tny) does not exist; did you mean bert-tiny? Choose one of " + ", ".join(PRESETS)),
        ("--optimizer.lr 1", "option --optimizer.lr does not exist; did you mean --optimizer.learning-rate?"),
        ("--lr=1", "option --lr does not exist; did you mean --optimizer.learning-rate?"),
        ("--shw", "option --shw does not exist; did you mean --show?"),
        (
            "--maximum-length 9",
            "option --maximum-length does not exist; did you mean "
            "--phases.maximum-length or --sampling.maximum-length?",
        ),
        ("--qqqq", "option --qqqq does not exist; --help all lists every option"),
        (
            "optimizer:lam",
            "optimizer:lam does not exist: optimizer is adam-w or lamb or stable-adam-w or muon; did you mean "
            "optimizer:lamb?",
        ),
        (
            "--seed 1 optimiser:lamb",
            "word optimiser:lamb is not an option or kind such as schedule:warmup-stable-decay; "
            "did you mean optimizer:lamb?",
        ),
        (
            "--seed 1 steps 3",
            "word steps is not an option or kind such as schedule:warmup-stable-decay; did you mean --steps?",
        ),
        ("bert-tiny bert-mini", "word bert-mini is not an option or kind such as schedule:warmup-stable-decay"),
        ("optimizer:lamb optimizer:adam-w", "optimizer is chosen twice: leave out optimizer:lamb or optimizer:adam-w"),
        (
            "--schedule.warmup-steps 4",
            "--schedule.warmup-steps belongs to schedule:constant-rate, schedule:warmup-stable-decay, "
            "but schedule is linear-decay: choose one of these kinds, or leave the option out",
        ),
        ("--steps", "--steps needs a value: --steps INT"),
        ("--steps --seed 3", "--steps needs a value: --steps INT"),
        ("--show=1", "--show takes no value: write --show instead of --show=1"),
        ("--config", "--config needs a value: --config FILE"),
        (
            "--checkpoint.keep-best True",
            "--checkpoint.keep-best takes no value: write --checkpoint.keep-best "
            "instead of --checkpoint.keep-best True",
        ),
        (
            "--checkpoint.keep_best=False",
            "--checkpoint.keep-best takes no value: write --checkpoint.no-keep-best "
            "instead of --checkpoint.keep_best=False",
        ),
        (
            "--placement.no-autoscaled false",
            "--placement.autoscaled takes no value: write --placement.autoscaled "
            "instead of --placement.no-autoscaled false",
        ),
        (
            "--vocabulary.lowercase None",
            "--vocabulary.lowercase takes no value: leave the option out "
            "instead of writing --vocabulary.lowercase None",
        ),
        ("--steps many", "steps ('many') must be a whole number"),
        ("--steps=1.5", "steps ('1.5') must be a whole number"),
        ("--optimizer.clip-norm x", "optimizer.clip_norm ('x') must be a number"),
        ("--placement.device cdua", "placement.device ('cdua') must be one of auto, cpu, cuda; did you mean cuda?"),
    ],
)
def test_misspelt_words_get_one_line_with_the_nearest_name(
    given: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = given.split()
    words.insert(int(words[0].startswith("bert")), "--plan")  # what is not refused must not start a run
    assert pretrain.main(words) == 2
    said = capsys.readouterr()
    assert (said.err, said.out) == (f"error: {message}\n", "")


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
