"""Intents of sentences with slots of words: from files to a saved model, its answers and its scores."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForTokenClassification

from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.predict import Score
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError, DataError
from pipeline.fine_tuned.model import open_tuned
from pipeline.finetune.problems import read_problems
from pipeline.finetune.trial_rows import class_weights
from pipeline.finetune.trials import load_or_train, make_trial
from pipeline.objectives.terms import INTENT, TASK
from pipeline.objectives.tokens import CUT, IGNORED, TagTask
from pipeline.predict.model_score import score_model
from pipeline.tables.bad_rows import BadRows
from pipeline.tasks.intents import read_utterances
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import TASKS, read_items, with_labels
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.tag_schemes import require_scheme, scheme_of
from pipeline.tasks.tagging import PredictedTags, Utterance
from pipeline.text.vocabulary import Vocabulary
from tests.unit.finetune.test_crf import MODEL, initial_of
from tests.unit.objectives.test_tag_chain import MODEL as SMALL
from tests.unit.objectives.test_tag_chain import WINDOWS, batch_of, module_of

TWENTY = """\
show flights from oslo to rome|O O O B-from O B-to|flight
flights to new york please|O O B-to I-to O|flight
what is the fare to rome|O O O O O B-to|airfare
fare from oslo|O O B-from|airfare
i need a flight from bern|O O O O O B-from|flight
cheapest fare to bern|B-cost O O B-to|airfare
which airline flies to oslo|O O O O B-to|airline
airlines from rome|O O B-from|airline
list flights from new york to bern|O O O B-from I-from O B-to|flight
how much is a ticket to rome|O O O O O O B-to|airfare
flights on monday|O O B-day|flight
flight from rome on friday|O O B-from O B-day|flight
who flies to bern on monday|O O O B-to O B-day|airline
fares to new york on friday|O O B-to I-to O B-day|airfare
oslo to rome|B-from O B-to|flight
rome to oslo on monday|B-from O B-to O B-day|flight
cheapest flight to oslo|B-cost O O B-to|flight
price of a ticket from bern|O O O O O B-from|airfare
airlines to new york|O O B-to I-to|airline
flights from oslo on friday|O O B-from O B-day|flight
"""


def write_split(folder: Path, rows: str) -> None:
    folder.mkdir(parents=True)
    columns = zip(*(row.split("|") for row in rows.splitlines()), strict=True)
    for name, column in zip(("seq.in", "seq.out", "label"), columns, strict=True):
        (folder / name).write_text("\n".join(column) + "\n")


def utterance(words: str, tagged: str, intent: str) -> Utterance:
    return Utterance(words=tuple(words.split()), tags=tuple(tagged.split()), intent=intent)


def test_official_files_and_names_that_training_lacks(tmp_path: Path) -> None:
    write_split(tmp_path / "atis/train", TWENTY)
    write_split(tmp_path / "atis/test", "what does fare code q mean|O O O O B-code O|abbreviation\n")
    task = TASKS["atis"]
    train, notes = read_items(task, str(tmp_path), "train")
    assert len(train) == 20 and notes == ()
    assert train[1] == utterance("flights to new york please", "O O B-to I-to O", "flight")
    assert with_labels(task, train).intents == ("airfare", "airline", "flight")
    test, _ = read_items(task, str(tmp_path), "test")
    whole = with_labels(task, train, [test])
    assert whole.intents == ("abbreviation", "airfare", "airline", "flight")
    assert "B-code" in whole.labels and whole.metrics == task.metrics


FOUR = """\
to new york|O B-to I-to|flight
fare to bern|O O B-to|fare
hello|O|fare
rome|B-to|flight
"""


def test_scores_by_hand(tmp_path: Path) -> None:
    """All metrics of the row `atis`, of files in its official layout."""
    write_split(tmp_path / "atis/test", FOUR)
    items, _ = read_items(TASKS["atis"], str(tmp_path), "test")
    task = with_labels(TASKS["atis"], items)
    answers = [
        PredictedTags(tags=("O", "B-to", "I-to"), unseen=0, intent="flight"),  # all right
        PredictedTags(tags=("O", "O", "O"), unseen=0, intent="fare"),  # a slot is missed
        PredictedTags(tags=("O",), unseen=0, intent="flight"),  # the intent is wrong
        PredictedTags(tags=("B-to",), unseen=0, intent="flight"),  # all right
    ]
    scores = KINDS[task.kind].score(task, Prepared(items=items, rows=None), answers, {})
    # Of 3 slots 2 are found, and none is wrong; of 8 words 7 have their tag.
    assert {name: scores[name] for name in task.metrics} == pytest.approx(
        {
            "frame_accuracy": 2 / 4,
            "intent_accuracy": 3 / 4,
            "f1": 2 * 1 * (2 / 3) / (1 + 2 / 3),
            "precision": 1,
            "recall": 2 / 3,
            "accuracy": 7 / 8,
        }
    )
    # The baseline: each word's commonest tag, and the commonest intent; of two, the last in the alphabet.
    split = Prepared(items=items, rows=None)
    assert KINDS[task.kind].baseline(task, split, split)["intent_accuracy"] == 0.5


@pytest.mark.parametrize("chain", [False, True])
def test_both_losses_by_hand(chain: bool) -> None:
    """Outputs 0 to 2 are tags, 3 and 4 are intents. The second window is the end of a sentence and has no intent."""
    module = TagTask(SMALL, 9, 5, torch.Generator().manual_seed(1)).eval()
    module.add_intents(2)
    batch = batch_of([[4, 1, IGNORED, 2, 0, IGNORED], [CUT, 0, 1, IGNORED], [3, 0, IGNORED]])
    if chain:
        module.tag_chain = module_of().tag_chain
    terms, logits = module(batch), module.logits(batch).detach()
    intents = F.cross_entropy(logits[[0, 10]], torch.tensor([4, 3]), reduction="sum")
    assert float(terms[INTENT][0].detach()) == pytest.approx(float(intents), rel=1e-5) and int(terms[INTENT][1]) == 2
    assert int(terms[TASK][1]) == 6
    if chain:
        alone = module_of()
        wanted = alone._chain_loss(module.tag_chain, logits[:, :3], _words_only(batch), batch)
    else:
        places = [1, 3, 4, 7, 8, 11]
        wanted = F.cross_entropy(logits[places], torch.tensor([1, 2, 0, 0, 1, 0]), reduction="sum")
    assert float(terms[TASK][0].detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)


def _words_only(batch):
    labels = batch.labels.long()
    return torch.where(labels < 3, labels, IGNORED)


def test_without_intents_there_is_one_term() -> None:
    module = TagTask(SMALL, 9, 3, torch.Generator().manual_seed(1)).eval()
    assert list(module(batch_of([labels for labels, _, _ in WINDOWS]))) == [TASK]


def config_of(folder: Path, **recipe) -> Finetune:
    draw = np.random.default_rng(0)
    for name, rows in (("train", 120), ("dev", 30), ("test", 30)):
        lines = []
        for _ in range(rows):
            intent, words, tagged = ("buy", "sell")[draw.integers(2)], [], []
            for _ in range(draw.integers(2, 25)):
                word, tag = (("mir", "B-X"), ("nel", "O"), ("kar", "O"))[draw.integers(3)]
                words.append(word)
                tagged.append(tag)
            words.insert(0, "sup" if intent == "buy" else "lost")
            lines.append({"words": words, "tags": ["O", *tagged], "want": intent})
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    config = Finetune(
        checkpoint="c",
        train=str(folder / "train.jsonl"),
        dev=str(folder / "dev.jsonl"),
        text="words",
        label=("tags",),
        intent="want",
        random_weights=True,
        output=str(folder),
        recipe=Recipe(**{"epochs": 6, "rows_per_step": 8} | recipe),
        cutting=Truncation(maximum_length=16, stride=4),
    )
    return replace(config, optimizer=replace(config.optimizer, learning_rate=1e-2)).for_model(MODEL)


@pytest.mark.parametrize("crf", [False, True])
def test_both_are_learnt_saved_and_answered(tmp_path: Path, tiny_vocabulary: Vocabulary, crf: bool) -> None:
    config, initial = config_of(tmp_path, crf=crf), initial_of(tiny_vocabulary)
    lines: list[str] = []
    (problem,) = read_problems(config, initial, lines.append)
    assert problem.task.intents == ("buy", "sell") and problem.task.metrics[0] == "frame_accuracy"
    assert any("2 intents" in line for line in lines) and any("; intents " in line for line in lines)
    assert any(len(windows) > 1 for windows in problem.train.windows), "sentences of several windows"
    scheme = scheme_of(problem.task.labels)
    assert scheme is not None
    require_scheme(problem.train, problem.task.labels, scheme)  # intents are no tags
    trial = make_trial(config, problem, initial, 1, {}, "report")
    result, model = load_or_train(trial, problem, initial), f"{trial.folder}/model"
    assert result["scores"]["dev"]["frame_accuracy"] > 0.9
    names = json.loads(Path(model, "config.json").read_text())["id2label"]
    assert list(names.values()) == ["O", "B-X", "I-X", "intent:buy", "intent:sell"]
    (answer,) = api.load(model).predict(["lost mir nel kar"])
    assert min(answer.pop("probabilities")) > 0.5
    assert answer == {
        "words": ["lost", "mir", "nel", "kar"],
        "tags": ["O", "B-X", "O", "O"],
        "intent": "sell",
    }
    card = Path(model, "README.md").read_text()
    assert "and names the intent of the whole text (buy, sell)" in card
    assert ("`transformers` gives the intent as the label of the first token, [CLS]" in card) is not crf
    score = Score(checkpoint=model, input=str(tmp_path / "test.jsonl"), text="words", label=("tags",), intent="want")
    assert score_model(score.measurement, lambda line: None)["intent_accuracy"] > 0.9
    if not crf:
        _require_equal_logits(model, tiny_vocabulary)


def _require_equal_logits(model: str, vocabulary: Vocabulary) -> None:
    """transformers gives words tags, and gives [CLS] the intent."""
    tuned, theirs = open_tuned(model), AutoModelForTokenClassification.from_pretrained(model)
    batch = batch_of([[IGNORED] * 5])
    batch = replace(batch, ids_T=torch.tensor(vocabulary_ids(vocabulary, ["sup", "mir", "nel"])))
    with torch.inference_mode():
        ours, other = tuned.module.logits(batch), theirs(batch.ids_T[None]).logits[0]
    assert torch.allclose(ours, other, atol=1e-5)
    assert [theirs.config.id2label[int(number)] for number in other.argmax(-1)[:4]] == ["intent:buy", "O", "B-X", "O"]


def vocabulary_ids(vocabulary: Vocabulary, words: list[str]) -> list[int]:
    return [vocabulary.cls_id, *(vocabulary.tokens.index(word) for word in words), vocabulary.sep_id]


def test_weights_of_classes_leave_intents_alone(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    config = config_of(tmp_path)
    (problem,) = read_problems(config, initial_of(tiny_vocabulary), lambda line: None)
    (plain,) = read_problems(replace(config, intent=None), initial_of(tiny_vocabulary), lambda line: None)
    weights = class_weights(problem.task, problem.train.rows, 5)
    assert weights[3:].tolist() == [1, 1]
    assert torch.equal(weights[:3], class_weights(plain.task, plain.train.rows, 3)) and weights[1] > weights[0]


def test_what_is_refused(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    config, initial = config_of(tmp_path), initial_of(tiny_vocabulary)
    with pytest.raises(ConfigError, match=r"^intent \(want\) is a column of your own file with tags, but train is "):
        replace(config, kind="classification")
    (tmp_path / "dev.jsonl").write_text('{"words": ["mir"], "tags": ["O"], "want": "rent"}\n')
    with pytest.raises(DataError, match=r"sentence 1: intent 'rent' is not among the 2 intents of train \(buy, sell"):
        read_problems(config, initial, lambda line: None)
    (tmp_path / "dev.jsonl").write_text('{"words": ["mir"], "tags": ["O"], "want": " "}\n')
    with pytest.raises(DataError, match=r"dev.jsonl:1 has the intent ' ', which is not text: name the intent"):
        read_problems(config, initial, lambda line: None)
    (tmp_path / "x.conll").write_text("mir O\n")
    with pytest.raises(DataError, match="has the format conll, which has no column of intents, but intent is want"):
        read_problems(replace(config, train=str(tmp_path / "x.conll"), dev=None, label=()), initial, lambda line: None)


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    write_split(tmp_path / "a", "to rome|O B-to|flight\n|O|flight\nto bern|O|flight\nto oslo|O B-to| \n")
    location, bad = str(tmp_path / "a/seq.in"), BadRows(skip=True)
    assert read_utterances(location, "seq.out", "label", bad) == [utterance("to rome", "O B-to", "flight")]
    assert dict(bad.reasons) == {"no-words": 1, "words-and-tags": 1, "no-intent": 1}
    with pytest.raises(DataError, match=r"seq.in:2: seq.in is empty; expected a list of texts, one per word$"):
        read_utterances(location, "seq.out", "label", BadRows())
    (tmp_path / "a/label").write_text("flight\n")
    with pytest.raises(DataError, match=r"seq.in has 4 lines, seq.out 4 and label 1: give one line per sentence"):
        read_utterances(location, "seq.out", "label", BadRows())
    (tmp_path / "a/label").unlink()
    with pytest.raises(DataError, match=r"a/label does not exist: words, tags and intents are three files"):
        read_utterances(location, "seq.out", "label", BadRows())
