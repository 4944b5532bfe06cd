"""Tables answered by models of every kind: which columns are read, and rows without a text."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Predict
from pipeline.config.task_kind import Kind
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.export.inference import word_of
from pipeline.files import storage
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.record import TextColumns
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.finetune import trials
from pipeline.model.families.bert import BERT
from pipeline.model.gpu import Gpu
from pipeline.model.weights import published_config, to_published
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.predict.columns import choice_names, match_columns
from pipeline.predict.model import Answerer, answer_table, identify, load, with_words
from pipeline.predict.rows import predict_rows
from pipeline.saved.digest import fingerprint
from pipeline.tasks.task import Task
from pipeline.text.schema import CUT
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train import hardware
from pipeline.train.hardware import answer_precision

MODEL = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.5)
CPU = torch.device("cpu")
AMPERE = Gpu(name="NVIDIA A100", capability=(8, 0), hip=False)
TURING = Gpu(name="Tesla T4", capability=(7, 5), hip=False)
LABELS: dict[str, tuple[str, ...]] = {
    "classification": ("bad", "good"),
    "multilabel": ("red", "green"),
    "tags": ("O", "B-LOC"),
}
Make = Callable[[Kind], Answerer]


def config(checkpoint: Path | str) -> Predict:
    return Predict(
        checkpoint=str(checkpoint),
        input="a.csv",
        output="a.parquet",
        top=2,
        placement=ModelPlacement(device="cpu", precision="float32"),
    )


@pytest.fixture
def make(tiny_vocabulary: Vocabulary, tmp_path: Path) -> Make:
    """A published model of a kind with weights at random, loaded as a job does."""

    def build(kind: Kind) -> Answerer:
        task = Task(name="made-up", kind=kind, labels=LABELS.get(kind, ()), metrics=("accuracy",))
        module = OBJECTIVES[kind](
            MODEL, tiny_vocabulary.size, len(task.labels), torch.Generator().manual_seed(5), "cls", None
        )
        said = About(
            task=task,
            cutting=Truncation(maximum_length=16, stride=4, question_length=4),
            pooling="cls",
            thresholds={},
            lineage={},
        )
        save_tuned(str(tmp_path / kind), module, said, MODEL, tiny_vocabulary)
        return load(config(tmp_path / kind))

    return build


def about(value: Any) -> Any:
    """The value with numbers that may differ in their rounding: other texts of a batch change how it is summed."""
    if isinstance(value, dict):
        return {name: about(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [about(inner) for inner in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


TABLES = {
    "classification": pa.table({"text": ["kar lost", " ", "mir", None]}),
    "regression": pa.table({"text": ["kar lost", "", "mir", "\t"]}),
    "multilabel": pa.table({"text": ["kar lost", "", "mir", ""]}),
    "tags": pa.table({"words": [["kar", "lost"], [], ["mir"], None]}),
    "spans": pa.table({"context": ["kar lost kand", "", "mir", "kar"], "question": ["kar?", "mir?", "lost?", None]}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_rows_without_a_text_have_no_answer_and_the_others_that_which_they_have_alone(kind: Kind, make: Make) -> None:
    model, table = make(kind), TABLES[kind]
    found, empty = answer_table(model, table, None, None)
    assert model.kind == kind and empty == 2 and found.schema == model.schema
    rows = found.to_pylist()
    assert all(value is None for row in (rows[1], rows[3]) for value in row.values())
    for place in (0, 2):
        alone, none = answer_table(model, table.slice(place, 1), None, None)
        assert none == 0
        assert about(alone.to_pylist()[0]) == rows[place]
    nothing, all_empty = answer_table(model, table.take([1, 3]), None, None)
    assert all_empty == 2 and nothing.schema == model.schema and nothing.num_rows == 2


def test_pairs_and_named_columns_reach_the_model(make: Make) -> None:
    model = make("classification")
    table = pa.table({"a": ["kar lost", "kar lost", "kar"], "b": ["mir", "nel sup", ""]})
    found, empty = answer_table(model, table, "a", "b")
    alone, _ = answer_table(model, table, "a", None)
    assert empty == 1 and found["probability"].to_pylist()[2] is None
    assert len({*found["probability"].to_pylist(), alone["probability"][0].as_py()}) == 4


def test_a_sentence_of_spaces_is_tagged_as_its_list_of_words(make: Make) -> None:
    model = make("tags")
    sentences = ["kar lost", "['kar', 'lost']", '["kar", "lost"]']  # lists as cells of CSV hold them
    answers, _ = answer_table(model, pa.table({"text": sentences}), None, None)
    (expected,) = answer_table(model, pa.table({"words": [["kar", "lost"]]}), None, None)[0].to_pylist()
    assert answers.to_pylist() == [expected] * 3 and len(expected["tags"]) == 2
    with pytest.raises(DataError, match=r"^a row holds '1', which is not text"):
        answer_table(model, pa.table({"text": ['["kar", 1]']}), None, None)


def test_columns_of_training_are_found_unless_others_are_named() -> None:
    trained = TextColumns(text="review", pair="reply")
    table = pa.table({"text": ["x"], "review": ["x"], "reply": ["x"], "other": ["x"]})
    assert match_columns(table, "classification", None, None, trained) == {"text": "review", "second": "reply"}
    assert match_columns(table, "classification", "other", "text", trained) == {"text": "other", "second": "text"}
    # another file may have the usual columns, as other tools write them
    single = TextColumns(text="review")
    assert match_columns(table.drop_columns("review"), "classification", None, None, single) == {"text": "text"}
    with pytest.raises(
        DataError, match=r"no column text or review, which the model was trained on: its columns are a;"
    ):
        match_columns(pa.table({"a": ["x"]}), "classification", None, None, single)
    with pytest.raises(DataError, match=r"no column reply: its columns are review; name the right one with --pair$"):
        match_columns(pa.table({"review": ["x"]}), "classification", None, None, trained)


def test_questions_and_choices_may_have_the_usual_columns_instead_of_those_of_the_training() -> None:
    trained = TextColumns(text="story", pair="ask", choices=("end0", "end1"))
    usual = pa.table({"context": ["x"], "question": ["x"], "choices": [["x"]]})
    assert match_columns(usual, "spans", None, None, trained) == {"context": "context", "question": "question"}
    with pytest.raises(DataError, match=r"no column ask"):
        match_columns(usual, "spans", None, "ask", trained)
    both = usual.append_column("end0", [["x"]]).append_column("end1", [["x"]])
    assert choice_names(both, (), trained) == ("end0", "end1") and choice_names(both, ("a",), trained) == ("a",)
    assert choice_names(usual, (), trained) == ("choices",) and choice_names(usual, (), TextColumns()) == ("choices",)
    assert choice_names(pa.table({"end0": ["x"]}), (), trained) == ("end0", "end1"), "the message names end1"


def test_rows_in_python_do_not_need_the_columns_of_the_training(make: Make, tmp_path: Path) -> None:
    trained = {"columns": {"text": "story", "pair": "ask", "choices": ["end0", "end1"]}}
    for kind, rows in (("spans", [("kar?", "kar lost kand")]), ("choices", [("kar", ["mir", "lost"])])):
        make(kind)
        tuned = open_tuned(str(tmp_path / kind))
        later = replace(tuned, about=replace(tuned.about, lineage=trained))
        assert predict_rows(later, rows, CPU) == predict_rows(tuned, rows, CPU)


def test_columns_that_are_not_there_or_hold_no_text_are_named(make: Make) -> None:
    with pytest.raises(
        DataError, match=r"input has no column text: its columns are a, b; name the right one with --text$"
    ):
        match_columns(pa.table({"a": ["x"], "b": ["y"]}), "classification", None, None)
    with pytest.raises(
        DataError, match=r"input has no column question: its columns are context; name the right one with --pair$"
    ):
        match_columns(pa.table({"context": ["x"]}), "spans", None, None)
    with pytest.raises(DataError, match=r"column text holds 3, which is not a text$"):
        answer_table(make("classification"), pa.table({"text": [3]}), None, None)
    with pytest.raises(DataError, match=r"column words holds '\[3\]', which is not a list of words$"):
        answer_table(make("tags"), pa.table({"words": [[3]]}), None, None)


def test_by_auto_a_cpu_answers_in_float32_whatever_it_multiplies(
    make: Make, tiny_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("classification")
    monkeypatch.setattr(hardware, "has_bfloat16", lambda device: True)
    monkeypatch.setattr(trials, "NARROW", 0)
    table = TABLES["classification"]
    found = {}
    for asked in ("auto", "float32", "bfloat16"):
        placement = ModelPlacement(device="cpu", precision=asked)
        model = load(replace(config(tmp_path / "classification"), placement=placement))
        found[asked] = (model.precision, answer_table(model, table, None, None)[0].to_pylist())
    assert found["auto"] == found["float32"] and found["auto"][0] == "float32"
    assert found["bfloat16"][0] == "bfloat16" and found["bfloat16"][1] != found["float32"][1]


@pytest.mark.parametrize(
    ("trained", "gpu", "precision"),
    [
        ("bfloat16", AMPERE, "bfloat16"),
        ("tf32", AMPERE, "tf32"),
        ("float32", AMPERE, "float32"),
        (None, AMPERE, "float32"),
        ("int1", AMPERE, "float32"),
        ("bfloat16", TURING, "float32"),
        ("float16", TURING, "float16"),
    ],
)
def test_by_auto_a_gpu_answers_as_the_model_was_trained(
    trained: str | None, gpu: Gpu, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "gpu_of", lambda device: gpu)
    assert answer_precision(ModelPlacement(), trained, torch.device("cuda")) == precision
    assert answer_precision(ModelPlacement(precision="tf32"), trained, torch.device("cuda")) == "tf32"
    assert answer_precision(ModelPlacement(), trained, torch.device("cpu")) == "float32"


@pytest.fixture
def pretrained(tiny_vocabulary: Vocabulary, tmp_path: Path) -> Path:
    return write_pretrained(tiny_vocabulary, tmp_path)


def write_pretrained(vocabulary: Vocabulary, tmp_path: Path) -> Path:
    """Write a published pretrained model with weights at random."""
    folder = tmp_path / "written"
    folder.mkdir()
    module = MaskedTokens(MODEL, vocabulary.size, torch.Generator().manual_seed(2))
    save_file(to_published(module.state_dict(), BERT), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(published_config(MODEL, vocabulary.size, vocabulary.pad_id)))
    save_vocabulary(vocabulary, folder, MODEL.maximum_positions)
    storage.publish(folder, str(tmp_path / "export"), {})
    return tmp_path / "export"


def test_a_pretrained_model_fills_blanks(pretrained: Path, tiny_vocabulary: Vocabulary) -> None:
    assert identify(str(pretrained))[0] == "fill"
    found, empty = answer_table(
        load(config(pretrained)), pa.table({"text": ["kar [MASK] lost [MASK].", "", "no blank"]}), None, None
    )
    first, second, third = found.to_pylist()
    assert empty == 1 and second == {"filled": None, "guesses": None} and third == {"filled": "no blank", "guesses": []}
    assert [len(ones) for ones in first["guesses"]] == [2, 2]
    assert all(
        ones[0]["probability"] >= ones[1]["probability"] > 0 and ones[0]["token"] in tiny_vocabulary.tokens
        for ones in first["guesses"]
    )
    assert first["filled"] == with_words(
        "kar [MASK] lost [MASK].", "[MASK]", [ones[0]["token"] for ones in first["guesses"]]
    )
    assert first["guesses"][0][0].keys() == {"token", "probability"}, "as in files that are half written"


def test_blanks_of_texts_that_are_cut_are_counted(pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 tokens are read, [CLS] and [SEP] among them."""
    monkeypatch.setattr("pipeline.predict.model.TEXTS_AT_ONCE", 2)
    texts = ["[MASK] " + "kar " * 29, "[MASK] " + "kar " * 30, "kar " * 30 + "[MASK]", "kar " * 90]
    found, _ = answer_table(load(config(pretrained)), pa.table({"text": texts}), None, None)
    assert [len(ones) for ones in found["guesses"].to_pylist()] == [1, 1, 0, 0] and found.schema.metadata[CUT] == b"2"


def test_words_go_into_their_blanks() -> None:
    assert with_words("a [MASK] [MASK] b [MASK]", "[MASK]", ["run", "##ning"]) == "a running b [MASK]"
    assert with_words("a [MASK].", "[MASK]", [word_of("\u0120b", "byte-bpe")]) == "a b."
    assert with_words("a [MASK].", "[MASK]", [word_of("\u2581b", "unigram")]) == "a b."
    assert with_words("a [MASK].", "[MASK]", [word_of("\u0120caf\u00c3\u00a9", "byte-bpe")]) == "a caf\u00e9."


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("byte-bpe", {"\u0120kar": "kar", "\u0120caf\u00c3\u00a9": "caf\u00e9"}),
        ("unigram", {"\u2581ka": "ka", "\u00e9": "\u00e9"}),
    ],
)
def test_guesses_are_words_and_not_the_symbols_of_a_vocabulary(
    kind: str, words: dict[str, str], tmp_path: Path
) -> None:
    vocabulary = train_vocabulary(["kar lost caf\u00e9 kand kar"] * 40, size=300, lowercase=False, kind=kind)
    folder = write_pretrained(vocabulary, tmp_path)
    mask = vocabulary.tokens[vocabulary.mask_id]
    guesses = api.load(str(folder)).fill(f"kar {mask}.", top=vocabulary.size)[0]
    found = {guess["token"]: guess["word"] for guess in guesses}
    assert {token: found.get(token) for token in words} == words
    answered, _ = answer_table(load(config(folder)), pa.table({"text": [f"kar {mask}."]}), None, None)
    assert answered["filled"].to_pylist() == [f"kar {guesses[0]['word']}."]


def test_a_folder_that_is_no_model_is_named_and_another_model_has_another_fingerprint(
    tmp_path: Path, make: Make, pretrained: Path
) -> None:
    wanted = "give a model that fine-tuning wrote, such as output/finetune/NAME/model; a run's export; or a published"
    with pytest.raises(
        CheckpointError, match=rf"has no manifest.json: {wanted} model, as a folder or hf://OWNER/NAME$"
    ):
        fingerprint(str(tmp_path / "nothing"))
    make("tags")
    assert fingerprint(str(tmp_path / "tags")) != fingerprint(str(pretrained))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"placement.device cuda needs a GPU, and this process sees none: use placement.device cpu$"
    ):
        load(Predict(checkpoint=str(tmp_path), input="a.csv", output="a.csv", placement=ModelPlacement(device="cuda")))
