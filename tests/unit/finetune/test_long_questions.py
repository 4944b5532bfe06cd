"""Questions on contexts longer than 512 tokens, without windows: from SQuAD's file to a saved Longformer's answers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.model_parts import GlobalLocalAttention
from pipeline.config.recipe import Recipe
from pipeline.finetune.problems import read_problems
from pipeline.finetune.trials import load_or_train, make_trial
from pipeline.presets.table import PRESETS
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial
from tests.conftest import parts_of_preset

MODEL = Model(
    **parts_of_preset(PRESETS["longformer-tiny"]) | {"attention": GlobalLocalAttention(window=16)},
    layers=1,
    width=16,
    heads=2,
    feed_forward=32,
    maximum_positions=1_024,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    initializer_deviation=0.3,
)
ANSWER = "sup mir"


def write_questions(path: Path, questions: int, first_words: int, seed: int) -> list[dict[str, object]]:
    """Write SQuAD's file of contexts with the answer after at least `first_words` words, and return its entries."""
    draw, entries = np.random.default_rng(seed), []
    for number in range(questions):
        words = [str(word) for word in draw.choice(["kar", "lost", "nel"], 700)]
        words[draw.integers(first_words, 690)] = ANSWER
        context = " ".join(words)
        answer = {"text": ANSWER, "answer_start": context.index(ANSWER)}
        asked = {"id": f"{path.stem}{number}", "question": "kar nel?", "answers": [answer]}
        entries.append({"context": context, "qas": [asked]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "a", "paragraphs": entries}]}))
    return entries


def test_a_long_context_is_one_row_and_answered_beyond_512_tokens(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    write_questions(tmp_path / "train-v1.1.json", 32, 0, 1)
    asked = write_questions(tmp_path / "dev-v1.1.json", 4, 600, 2)
    config = Finetune(
        checkpoint="c",
        data=str(tmp_path),
        task=("squad1",),
        output=str(tmp_path),
        random_weights=True,
        recipe=Recipe(epochs=6, rows_per_step=4),
        cutting=Truncation(maximum_length=1_024),
    )
    model = MODEL.for_padding(tiny_vocabulary.pad_id)
    config = replace(config, optimizer=replace(config.optimizer, learning_rate=1e-2)).for_model(model)
    initial = Initial(folder="", fingerprint="e", model=model, vocabulary=tiny_vocabulary)
    (problem,) = read_problems(config, initial, lambda line: None)
    dev = problem.splits["dev"]
    for split in (problem.train, dev):
        assert [len(windows) for windows in split.windows] == [1] * len(split.items)
        assert min(len(ids) for ids in split.rows["ids"].to_pylist()) > 700
    assert min(start for start, _ in dev.rows["labels"].to_pylist()) > 600
    trial = make_trial(config, problem, initial, 1, {}, "report")
    assert load_or_train(trial, problem, initial)["scores"]["dev"]["exact"] == 1
    found = api.load(f"{trial.folder}/model").predict([("kar nel?", entry["context"]) for entry in asked])
    starts = [entry["context"].index(ANSWER) for entry in asked]
    assert [(row["answer"], row["start"], row["end"]) for row in found] == [
        (ANSWER, start, start + len(ANSWER)) for start in starts
    ]
