"""Settings as TOML and back."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs import pretrain
from pipeline.command_line.command import Command
from pipeline.command_line.options import choices
from pipeline.command_line.toml import ConfigFile, read_config, settings_of, to_toml
from pipeline.config.adapters import LowRank
from pipeline.config.cutting import Truncation
from pipeline.config.data import Preparation, VocabularySettings
from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.config.phases import FallingMasks
from pipeline.errors import ConfigError
from pipeline.presets.table import PRESETS, as_toml, starting_point
from tests.refusals import refusal

COMMAND = Command(prog="pretrain", about="", settings=Pretrain, extra=pretrain.EXTRA)


def written(folder: Path, text: str) -> str:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(folder: Path, text: str, *options: str) -> Pretrain:
    """The settings of a file with options, as the job reads them."""
    preset, default = starting_point(None, written(folder, text))
    return COMMAND.parse(COMMAND.words(options, default), default)


def test_every_preset_comes_back_as_it_went(tmp_path: Path) -> None:
    for preset, config in PRESETS.items():
        again = read(tmp_path, as_toml(config, preset))
        assert again == config and flatten(again) == flatten(config), preset
        assert starting_point(None, f"{tmp_path}/run.toml")[0] == preset


OTHER_PRESETS = {
    "disentangled-attention": "deberta-tiny",
    "bucketed-attention": "deberta-v3-tiny",
    "global-local-attention": "longformer-tiny",
    "block-sparse-attention": "bigbird-tiny",
}
"""Kinds that bert-tiny cannot have, and presets that can."""
TOGETHER = {
    "contrastive": "sampling.pairs:two-crops",
    "distilled-vectors": "sampling.pairs:sentences",
    "sentences": "objective:distilled-vectors",
    "several-phases": "--phases.masking-shares=0.1",
    **dict.fromkeys(("two-crops", "adjacent-paragraphs", "title-paragraph", "given-pairs"), "objective:contrastive"),
}
"""Kinds that need another kind, or an option."""


def test_every_kind_comes_back_as_it_went(tmp_path: Path) -> None:
    for path, kind in [(path, kind) for path, kinds in choices(Pretrain).items() for kind in kinds]:
        preset = "electra-tiny" if path == "objective" else OTHER_PRESETS.get(kind, "bert-tiny")
        words = [f"{path}:{kind}", *([TOGETHER[kind]] if kind in TOGETHER else [])]
        config = COMMAND.parse(COMMAND.words(words, PRESETS[preset]), PRESETS[preset])
        text = as_toml(config, preset)
        assert f'[{path}]\nkind = "{kind}"\n' in text, kind
        again = read(tmp_path, text)
        assert again == config, kind
        assert flatten(again)[path] == choices(Pretrain)[path][kind].__name__


def test_no_kind_has_a_setting_of_the_name_that_says_which_kind_it_is() -> None:
    for settings in (Pretrain, Finetune):
        assert not [
            kind
            for kinds in choices(settings).values()
            for kind in kinds.values()
            if "kind" in vars(kind).get("__annotations__", {})
        ]


def test_lists_of_numbers_come_back_as_they_went(tmp_path: Path) -> None:
    config = replace(PRESETS["bert-mini"], phases=FallingMasks(masking_shares=(0.1, 0.05), parts=(0.5, 0.25, 0.25)))
    assert read(tmp_path, as_toml(config, "bert-mini")) == config


def test_texts_lists_and_none_come_back_as_they_went(tmp_path: Path) -> None:
    config = replace(
        PRESETS["bert-mini"],
        corpus=('a "b" \\ c', "täg\n\t\x7f", "雪::weight=0.5"),
        workers="2..4",
        name="mine",
        prepare=Preparation(near_duplicates=None),
        vocabulary=VocabularySettings(lowercase=False, training_characters=None),
    )
    text = as_toml(config, "bert-mini")
    assert read(tmp_path, text) == config
    assert (
        'near_duplicates = "None"' in text
        and "\npath" not in text
        and "lowercase = false" in text
        and 'workers = "2..4"' in text
    )
    assert text.startswith(
        'preset = "bert-mini"\ncorpus = ["a \\"b\\" \\\\ c", "täg\\n\\t\\u007f", "雪::weight=0.5"]\n'
    )


def test_fine_tuning_has_the_same_form(tmp_path: Path) -> None:
    base = Finetune(checkpoint="c", task=("cola",))
    config = replace(base, adapter=LowRank(rank=3), cutting=Truncation(passages=True), minutes=2.0)
    assert settings_of(read_config(written(tmp_path, to_toml(config, base)), Finetune), base) == config


def test_a_file_may_say_only_a_part_and_options_replace_it(tmp_path: Path) -> None:
    text = (
        'preset = "bert-tiny"\ncorpus = ["a", "b"]\nsteps = 7\n\n[optimizer]\nclip_norm = 2\n\n'
        '[schedule]\nkind = "constant-rate"\nwarmup_steps = 3\n'
    )
    config = read(tmp_path, text)
    tiny = PRESETS["bert-tiny"]
    assert config == replace(
        tiny, corpus=("a", "b"), steps=7, optimizer=replace(tiny.optimizer, clip_norm=2.0), schedule=config.schedule
    )
    assert flatten(config)["schedule"] == "ConstantRate" and flatten(config)["schedule.warmup_steps"] == 3
    changed = read(tmp_path, text, "--corpus", "c", "--steps", "8", "--optimizer.clip-norm", "3")
    assert (changed.corpus, changed.steps, changed.optimizer.clip_norm, changed.optimizer.learning_rate) == (
        ("c",),
        8,
        3.0,
        2e-3,
    )
    assert flatten(read(tmp_path, text, "schedule:linear-decay"))["schedule"] == "LinearDecay"


def test_a_file_has_one_length_which_an_option_replaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A printed file of a run of epochs has no steps, so that it can be read again."""
    assert pretrain.main(["--epochs", "10", "--show"]) == 0
    shown = capsys.readouterr().out
    assert "\nepochs = 10.0\n" in shown and "\nsteps = " not in shown and "\nwarmup_steps = 200\n" in shown
    file = written(tmp_path, shown)
    assert pretrain.main(["--config", file, "--show"]) == 0 and capsys.readouterr().out == shown
    for words, line in ((("--tokens", "1M"), 'tokens = "1M"'), (("--steps", "300"), "steps = 300")):
        assert pretrain.main(["--config", file, *words, "--show"]) == 0
        found = capsys.readouterr().out.splitlines()
        assert [each for each in found if each.startswith(("steps = ", "tokens = ", "epochs = "))] == [line]
    assert refusal(read, tmp_path, "seed = 1\nepochs = 2\nsteps = 3\n") == (
        f"config ({tmp_path}/run.toml), line 2: epochs cannot be set together with steps: each says how long the run is"
    )


def test_on_and_off_may_be_true_and_false_in_a_file(tmp_path: Path) -> None:
    for value, graphs in (("true", "on"), ("false", "off"), ('"auto"', "auto")):
        text = f'[placement]\ngraphs = {value}\n[batch]\nrows_per_slot = "auto"\n'
        found = read(tmp_path, text)
        assert (found.placement.graphs, found.batch.rows_per_slot) == (graphs, "auto")


def test_options_may_mend_what_does_not_fit_in_a_file(tmp_path: Path) -> None:
    text = "[batch]\nrows_per_slot = 48\n"
    with pytest.raises(
        ConfigError, match=r"^batch.rows_per_step \(256\) must be a multiple of batch.rows_per_slot \(48\)$"
    ):
        read(tmp_path, text)
    assert read(tmp_path, text, "--batch.rows-per-step", "96").batch.slots_per_step == 2
    with pytest.raises(ConfigError, match=r"^optimizer.learning_rate \(3.0\) must lie between 0 and 1$"):
        read(tmp_path, "[optimizer]\nlearning_rate = 3\n")


REFUSED = {
    "stps = 3\n": "line 1: stps does not exist; did you mean steps?",
    "seed = 1\n\n[optimizer]\n# the rate\nlr = 1\n": (
        "line 5: optimizer.lr does not exist; did you mean optimizer.learning_rate?"
    ),
    "learning_rate = 1\n": "line 1: learning_rate does not exist; did you mean optimizer.learning_rate?",
    "[optimzer]\nbeta1 = 1\n": "line 1: optimzer does not exist; did you mean optimizer?",
    "preset = 'bert-tiny'\n[schedule]\nwarmup_steps = 1\n": (
        "line 3: schedule.warmup_steps belongs to kind constant-rate or warmup-stable-decay, "
        "but schedule.kind is linear-decay"
    ),
    "seed = 1\nsteps = 'many'\n": "line 2: steps ('many') must be a whole number",
    "steps = 1.5\n": "line 1: steps (1.5) must be a whole number",
    "steps = true\n": "line 1: steps (True) must be a whole number",
    "workers = 1.5\n": "line 1: workers (1.5) must be a whole number or a text",
    "[optimizer]\nclip_norm = '1'\n": "line 2: optimizer.clip_norm ('1') must be a number",
    "[checkpoint]\nkeep_best = 1\n": "line 2: checkpoint.keep_best (1) must be true or false",
    "[phases]\nkind = 'falling-masks'\nparts = [1, 'a']\n": "line 3: phases.parts ([1, 'a']) must be a list of numbers",
    "corpus = 'a'\n": "line 1: corpus ('a') must be a list of texts",
    "corpus = [\n  'a',\n  1,\n]\n": "line 4: corpus (['a', 1]) must be a list of texts",
    "on_nonfinite = 'skp'\n": "line 1: on_nonfinite ('skp') must be one of stop, skip; did you mean skip?",
    "seed = 1\n[optimizer]\nkind = 'lam'\n": (
        "line 3: optimizer.kind ('lam') must be one of adam-w, lamb, stable-adam-w, muon; did you mean lamb?"
    ),
    "optimizer = 'lamb'\n": "line 1: optimizer ('lamb') must be a table: [optimizer] with kind = \"adam-w\" or another",
    "model = 3\n": "line 1: model (3) must be a table: [model]",
    "[model.width]\na = 1\n": "line 1: model.width ({'a': 1}) must be a whole number",
    "steps = 'None'\n": "line 1: steps ('None') must be a whole number",
    "seed = 1\npreset = 'bert-tny'\n": "line 2: preset (bert-tny) does not exist; did you mean bert-tiny?",
}


def test_unknown_names_and_values_of_another_type_are_one_line_with_the_line_of_the_file(tmp_path: Path) -> None:
    said = {text: refusal(read, tmp_path, text) for text in REFUSED}
    assert said == {text: f"config ({tmp_path}/run.toml), {message}" for text, message in REFUSED.items()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"steps = \n", "is not valid TOML: Invalid value (at line 1, column 9)"),
        (b"steps = 1\nsteps = 2\n", "is not valid TOML: Cannot overwrite a value (at line 2, column 10)"),
        (b"name = '\xff'\n", "is not UTF-8 (byte 8): name a TOML file, as printed by --show"),
        (None, "cannot be read (No such file or directory): name a TOML file, as printed by --show"),
    ],
)
def test_files_that_are_no_settings_are_one_line(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        starting_point(None, str(path))
    assert str(refused.value) == f"config ({path}) {message}"


def test_a_file_and_a_command_name_one_preset(tmp_path: Path) -> None:
    name = written(tmp_path, 'preset = "bert-mini"\n')
    assert starting_point("bert-mini", name) == starting_point(None, name)
    with pytest.raises(
        ConfigError,
        match=r"line 1: preset \(bert-mini\) is not the preset of the command \(bert-base\): leave one of the two "
        r"presets out$",
    ):
        starting_point("bert-base", name)


def test_what_show_prints_is_read_as_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        pretrain.main(["bert-mini", "optimizer:lamb", "--word-embeddings", "cooccurrence", "--corpus", "a", "--show"])
        == 0
    )
    shown = capsys.readouterr().out
    assert pretrain.main(["--config", written(tmp_path, shown), "--show"]) == 0
    assert capsys.readouterr().out == shown
    assert (
        shown.startswith("# run bert-mini-") and "\nname =" not in shown
    )  # a name made from the settings goes with them


def test_the_line_is_that_of_the_value_where_tables_are_inline() -> None:
    text = 'seed = 1\noptimizer = {kind = "lamb", lr = 1}\n'
    file = ConfigFile(name="f", text=text, values={}, settings=Pretrain)
    assert str(file.error("optimizer.lr", "x")) == "config (f), line 2: optimizer.lr x"
