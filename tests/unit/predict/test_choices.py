"""Models of multiple choice: tables and rows of Python answered, files scored, and what is refused."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from jobs.score import main as score
from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Predict
from pipeline.config.recipe import Recipe
from pipeline.config.serve import Serve
from pipeline.errors import ConfigError, DataError
from pipeline.export.tuned_card import tuned_files
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.grid.closing import use_line
from pipeline.grid.inputs import read_inputs
from pipeline.grid.testing import predict_settings, score_settings
from pipeline.objectives.choices import ChoiceTask
from pipeline.predict.model import answer_table, load
from pipeline.saved.checkpoints import folder_of
from pipeline.serve.model import describe_on_cpu
from pipeline.tasks.benchmarks import TASKS
from pipeline.tasks.choice_tables import choice_task
from pipeline.text.vocabulary import Vocabulary
from tests.parity.families import DEBERTA
from tests.unit.tasks.test_choices import swag

MODEL = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.5)
CUTTING = Truncation(maximum_length=16, stride=4)
TABLE = pa.table(
    {
        "text": ["kar lost", "", "mir nel", "kar lost"],
        "one": ["kand", "ta", "sup", "kand"],
        "two": ["nel ta", "ta", " ", "nel ta"],
        "start": ["ta", "ta", "ta", "kar"],
    }
)
NAMES = ("one", "two")


def about(name: str = "own") -> About:
    return About(task=choice_task(name), cutting=CUTTING, pooling="cls", thresholds={}, lineage={})


@pytest.fixture
def folder(tmp_path: Path, tiny_vocabulary: Vocabulary) -> str:
    """A model with weights at random."""
    module = ChoiceTask(MODEL, tiny_vocabulary.size, torch.Generator().manual_seed(5))
    save_tuned(str(tmp_path / "model"), module, about(), MODEL, tiny_vocabulary)
    return str(tmp_path / "model")


def test_tables_have_a_column_for_each_choice_or_one_of_lists(folder: str) -> None:
    place = ModelPlacement(device="cpu", precision="float32")
    model = load(Predict(checkpoint=folder, input="a.csv", output="a.csv", placement=place))
    found, empty = answer_table(model, TABLE, None, None, NAMES)
    rows = found.to_pylist()
    assert empty == 2 and rows[1] == rows[2] == {"choice": None, "probability": None, "probabilities": None}
    assert rows[0]["probability"] == max(rows[0]["probabilities"]) == rows[0]["probabilities"][rows[0]["choice"]]
    assert sum(rows[0]["probabilities"]) == pytest.approx(1) and rows[3]["probabilities"] == pytest.approx(
        rows[0]["probabilities"], abs=1e-5
    )
    lists = pa.table(
        {"text": TABLE["text"], "choices": [list(pair) for pair in zip(*(TABLE[n].to_pylist() for n in NAMES))]}
    )
    assert answer_table(model, lists, None, None)[0].to_pylist()[0]["choice"] == rows[0]["choice"]
    started, _ = answer_table(model, TABLE, None, "start", NAMES)
    joined = pa.table({"text": ["kar lost"], "choices": [["ta kand", "ta nel ta"]]})
    same = answer_table(model, joined, None, None)[0].to_pylist()[0]["probabilities"]
    assert started.to_pylist()[0]["probabilities"] == pytest.approx(same, abs=1e-5)
    with pytest.raises(
        DataError, match=r"^input has no column choices: its columns are text, one, two, start; name the"
    ):
        answer_table(model, TABLE, None, None)


def test_rows_of_python_are_answered_alike(folder: str) -> None:
    loaded = api.load(folder)
    first, second = loaded.predict([{"text": "kar lost", "choices": ["kand", "nel ta"]}, ("mir", ["sup", "ta", "kar"])])
    assert len(first["probabilities"]) == 2 and len(second["probabilities"]) == 3
    with pytest.raises(DataError, match=r"^rows\[0\] is 'kar': a row is a dictionary or \(text, list of choices\)$"):
        loaded.predict(["kar"])
    with pytest.raises(DataError, match=r"^rows\[0\] is .*: a row is a dictionary or \(text, list of choices\)$"):
        loaded.predict([("kar", "lost")])


def test_files_and_splits_are_scored_beside_a_constant_number(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swag(tmp_path)
    named = ["--text", "sent1", "--pair", "sent2", *(f"--choices=ending{number}" for number in range(4))]
    found = []
    for asked in (
        ["--task", "swag", "--data", str(tmp_path)],
        ["--input", str(tmp_path / "swagaf" / "data" / "val.csv"), *named],
    ):
        assert score(["--checkpoint", folder, *asked]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        found.append(next(line for line in lines if line[:1] == ["accuracy"]))
        assert ["metric", "score", "baseline:", "the", "commonest", "number"] in [line[:6] for line in lines]
    assert found[0] == found[1] and found[0][2] == "25.00"
    assert score(["--checkpoint", folder, "--task", "swag", "--data", str(tmp_path), "--split", "test"]) == 2
    assert "split (test) of swag has no public labels" in capsys.readouterr().err


def test_servers_and_registries_refuse_the_kind(folder: str, tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^checkpoint \(.*\) is a model of multiple choice, which is not served: answer"
    ):
        describe_on_cpu(Serve(checkpoint=folder))
    swag(tmp_path)
    for settings, words in (
        (
            {"register": "mine"},
            r"^register \(mine\) is not possible, because swag is of kind choices, whose models MLflow",
        ),
        (
            {"recipe": Recipe(pooling="mean")},
            r"^recipe.pooling \(mean\) is for text classifiers, but swag is of kind choices, which reads cls: leave t",
        ),
    ):
        config = Finetune(
            checkpoint=folder_of(str(tiny_run), 3), data=str(tmp_path), task=("swag",), output=str(tmp_path / "out"),
            cutting=Truncation(maximum_length=32, stride=8), **settings,
        )  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            read_inputs(config, print)


def test_commands_and_test_files_get_the_columns_of_the_choices() -> None:
    own = Finetune(checkpoint="c", train="a.csv", test="t.csv", text="story", pair="start", choices=NAMES, label=("y",))
    line = use_line(own, choice_task("a"), "model")
    assert "--text story --pair start --choices one --choices two --output answers.csv" in line
    assert predict_settings(own, choice_task("a"), "trial/model").choices == NAMES
    scored = score_settings(own, choice_task("a"), "model")
    assert (scored.choices, scored.pair, scored.label) == (NAMES, "start", ("y",))
    known = use_line(Finetune(checkpoint="c", task=("swag",)), TASKS["swag"], "model")
    assert "--text sent1 --pair sent2 --choices ending0 --choices ending1" in known


def test_the_card_says_what_transformers_can_load() -> None:
    assert "`AutoModelForMultipleChoice` loads the model." in tuned_files(about(), MODEL)["README.md"]
    lacking = "`transformers` cannot load this model, because it has no DeBERTa for multiple choice."
    assert lacking in tuned_files(about(), DEBERTA)["README.md"]
    assert "the model has adapters" in tuned_files(about(), MODEL, plain=False)["README.md"]
