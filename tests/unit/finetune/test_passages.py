"""From a file of long texts to a saved model and its answers, with pooled passages."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pipeline.config.cutting import PassagePooling, Truncation
from pipeline.config.data import VocabularySettings
from pipeline.config.finetune import Finetune, GridSearch
from pipeline.config.model import Model
from pipeline.config.recipe import Recipe
from pipeline.export.tuned_card import tuned_files
from pipeline.fine_tuned.answers import answer_items, items_of
from pipeline.fine_tuned.model import open_tuned
from pipeline.finetune.problems import read_problems
from pipeline.finetune.settings import settings_of, with_setting
from pipeline.finetune.trials import identity_of, load_or_train, make_trial
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial, read_initial

MODEL = Model(
    layers=1, width=16, heads=2, feed_forward=32, maximum_positions=16, hidden_dropout=0.0, initializer_deviation=0.3
)
CPU, PLAIN = torch.device("cpu"), torch.autocast("cpu", enabled=False)
WORDS = ("kar", "lost", "kand", "mir", "nel")
POOLINGS: tuple[PassagePooling, ...] = ("max", "attention")


def write_texts(path: Path, rows: int, seed: int) -> str:
    """Texts of 10 to 60 words. The label is yes if the word sup is somewhere in the text."""
    draw, lines = np.random.default_rng(seed), ["text\tlabel"]
    for number in range(rows):
        words = [str(word) for word in draw.choice(WORDS, draw.integers(10, 60))]
        if number % 2:
            words[draw.integers(len(words))] = "sup"
        lines.append(" ".join(words) + "\t" + ("no", "yes")[number % 2])
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def config_of(folder: Path, pooling: PassagePooling) -> Finetune:
    config = Finetune(
        checkpoint="c", train=write_texts(folder / "train.tsv", 160, 1), dev=write_texts(folder / "dev.tsv", 40, 2),
        random_weights=True, output=str(folder), recipe=Recipe(epochs=12, rows_per_step=16),
        cutting=Truncation(maximum_length=12, stride=2, passages=True, passage_pooling=pooling),
    )  # fmt: skip
    return replace(config, optimizer=replace(config.optimizer, learning_rate=1e-2)).for_model(MODEL)


def initial_of(vocabulary: Vocabulary) -> Initial:
    return Initial(folder="", fingerprint="e", model=MODEL, vocabulary=vocabulary)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_word_anywhere_in_a_long_text_is_learnt_and_found_again(
    pooling: PassagePooling, tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    said: list[str] = []
    config, initial = config_of(tmp_path, pooling), initial_of(tiny_vocabulary)
    (problem,) = read_problems(config, initial, said.append)
    assert problem.train.rows.num_rows == 160 and "160 rows" in said[0] and "passages of 12 tokens" in said[0]
    trial = make_trial(config, problem, initial, 1, {}, "report")
    result, model = load_or_train(trial, problem, initial), f"{trial.folder}/model"
    assert result["scores"]["dev"]["accuracy"] > 0.9 and result["rows"] == 160
    tuned = open_tuned(model)
    assert tuned.about.cutting == problem.cutting and tuned.module.passage_pooling == pooling
    items = problem.splits["dev"].items
    found = answer_items(tuned, items_of(tuned, {"text": items["first"].to_pylist()}), CPU, PLAIN)
    right = [row["label"] == label for row, label in zip(found.to_pylist(), items["label"].to_pylist(), strict=True)]
    assert np.mean(right) == pytest.approx(result["scores"]["dev"]["accuracy"])
    card = Path(model, "README.md").read_text()
    assert "`transformers` cannot pool passages: it would answer by the first 12 tokens alone." in card
    assert "Text after the first 32 passages of 12 tokens is not read." in card
    assert "long texts are read in passages of 12 tokens, answered together" in card
    extra = [name for name in load_file(f"{model}/model.safetensors") if name.startswith("passage_attention")]
    assert extra == (["passage_attention.bias", "passage_attention.weight"] if pooling == "attention" else [])


def test_the_tuned_encoder_starts_another_training(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    config, initial = config_of(tmp_path, "attention"), initial_of(tiny_vocabulary)
    config = replace(config, recipe=replace(config.recipe, epochs=1))
    (problem,) = read_problems(config, initial, lambda line: None)
    trial = make_trial(config, problem, initial, 1, {}, "report")
    load_or_train(trial, problem, initial)
    again = read_initial(f"{trial.folder}/model", VocabularySettings(), str(tmp_path), lambda line: None)
    assert again.model.width == 16


def test_the_pooling_is_part_of_a_trial_s_name_and_can_be_searched(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    config, initial = config_of(tmp_path, "max"), initial_of(tiny_vocabulary)
    searched = replace(config, search=GridSearch(over=("cutting.passage_pooling=max,attention,logits",)))
    tried = [with_setting(searched, setting) for setting in settings_of(searched)]
    assert [one.cutting.passage_pooling for one in tried] == ["max", "attention", "logits"]
    names = []
    for one in tried:
        (problem,) = read_problems(one, initial, lambda line: None)
        names.append(make_trial(one, problem, initial, 1, {}, "report").name)
        identity = identity_of(one, problem, initial, 1)
        assert identity.get("cutting.passage_pooling", "logits") == one.cutting.passage_pooling
    assert len(set(names)) == 3
    assert "cutting.passage_pooling" not in identity and "cutting.maximum_passages" not in identity


def test_cards_say_how_texts_are_read(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    config, initial = config_of(tmp_path, "max"), initial_of(tiny_vocabulary)
    config = replace(config, recipe=replace(config.recipe, epochs=1))
    (problem,) = read_problems(config, initial, lambda line: None)
    trial = make_trial(config, problem, initial, 1, {}, "report")
    load_or_train(trial, problem, initial)
    about = open_tuned(f"{trial.folder}/model").about
    plain = replace(about, cutting=Truncation(maximum_length=12, stride=2))
    assert "texts are truncated to 12 tokens" in tuned_files(plain, MODEL)["README.md"]
    each = replace(about, cutting=replace(plain.cutting, passages=True))
    card = tuned_files(each, MODEL)["README.md"]
    assert "in passages of 12 tokens, answered by the mean of their logits" in card and "may not be read" not in card
