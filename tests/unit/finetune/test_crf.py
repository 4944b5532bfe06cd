"""Tags with a CRF: from a file of sentences to a saved model, its answers, its card and its trial's name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.data import VocabularySettings
from pipeline.config.finetune import Finetune, Trials
from pipeline.config.model import Model
from pipeline.config.predict import Score
from pipeline.config.recipe import Recipe
from pipeline.config.serve import Serve
from pipeline.fine_tuned.answers import answer_items, items_of
from pipeline.fine_tuned.decoding import answers_of
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.finetune.problems import Problem, read_problems
from pipeline.finetune.trial import assist_trial, run_trial
from pipeline.finetune.trials import build, identity_of, load_or_train, make_trial
from pipeline.model.chain import Chains
from pipeline.objectives.logits import compute_logits
from pipeline.optim.build import CHAIN_RATE, build_optimizer
from pipeline.predict.model_score import score_model
from pipeline.serve.model import load
from pipeline.tasks import tags
from pipeline.tasks.tag_schemes import scheme_of
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial, read_initial
from pipeline.train.step import StepContext
from tests.ranks import Ranks

MODEL = Model(
    layers=1, width=16, heads=2, feed_forward=32, maximum_positions=32, hidden_dropout=0.0, initializer_deviation=0.3
)
CPU, PLAIN = torch.device("cpu"), torch.autocast("cpu", enabled=False)
CUTTING = Truncation(maximum_length=16, stride=4)


def write_sentences(path: Path, rows: int, seed: int) -> str:
    """Sentences of 3 to 30 words: mir, then up to two nel, is an X; sup alone is a Y; kandmir has several pieces."""
    draw, blocks = np.random.default_rng(seed), []
    for _ in range(rows):
        lines: list[str] = []
        while len(lines) < draw.integers(3, 30):
            kind = draw.integers(4)
            if kind == 0:
                lines += ["mir B-X", *["nel I-X"] * draw.integers(3)]
            elif kind == 1:
                lines += ["sup B-Y"]
            else:
                lines += [f"{draw.choice(['kar', 'lost', 'kandmir'])} O"]
        blocks.append("\n".join(lines))
    path.write_text("\n\n".join(blocks) + "\n")
    return str(path)


def config_of(folder: Path, rows: int = 160, **recipe) -> Finetune:
    config = Finetune(
        checkpoint="c",
        train=write_sentences(folder / "train.conll", rows, 1),
        dev=write_sentences(folder / "dev.conll", 40, 2),
        kind="tags",
        random_weights=True,
        output=str(folder),
        recipe=Recipe(**{"epochs": 4, "rows_per_step": 16, "crf": True} | recipe),
        cutting=CUTTING,
    )
    return replace(config, optimizer=replace(config.optimizer, learning_rate=1e-2)).for_model(MODEL)


def initial_of(vocabulary: Vocabulary) -> Initial:
    return Initial(folder="", fingerprint="e", model=MODEL, vocabulary=vocabulary)


def problem_of(config: Finetune, vocabulary: Vocabulary) -> Problem:
    (problem,) = read_problems(config, initial_of(vocabulary), lambda line: None)
    return problem


def violations(tagged: list[list[str]], names: tuple[str, ...]) -> int:
    """Number of steps that IOB2 forbids."""
    scheme = scheme_of(names)
    assert scheme is not None
    paths = [[names.index(tag) for tag in sentence] for sentence in tagged]
    inside = sum(not scheme.following[path[:-1], path[1:]].all() for path in paths)
    return inside + sum(not scheme.start[path[0]] for path in paths)


def test_chains_are_learnt_saved_and_read_again(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    config, initial = config_of(tmp_path), initial_of(tiny_vocabulary)
    problem = problem_of(config, tiny_vocabulary)
    assert any(len(windows) > 1 for windows in problem.train.windows), "sentences of several windows"
    trial = make_trial(config, problem, initial, 1, {}, "report")
    result, model = load_or_train(trial, problem, initial), f"{trial.folder}/model"
    assert result["scores"]["dev"]["f1"] > 0.9
    tuned = open_tuned(model)
    assert tuned.about.crf and tuned.about.cutting == problem.cutting
    written = load_file(f"{model}/model.safetensors")
    assert {name for name in written if name.startswith("crf.")} == {"crf.start", "crf.following", "crf.end"}
    assert torch.equal(written["crf.following"], tuned.module.tag_chain.following)
    assert written["crf.following"].abs().max() > 0.1
    assert json.loads(Path(model, "config.json").read_text())["crf"] is True
    dev = problem.splits["dev"].items
    found = answer_items(tuned, items_of(tuned, {"words": [list(item.words) for item in dev]}), CPU, PLAIN).to_pylist()
    predicted = [row["tags"] for row in found]
    scores = tags.score(
        problem.task, problem.splits["dev"], [tags.PredictedTags(tags=tuple(one), unseen=0) for one in predicted], {}
    )
    assert scores["f1"] == pytest.approx(result["scores"]["dev"]["f1"])
    assert violations(predicted, problem.task.labels) == 0
    again = read_initial(model, VocabularySettings(), str(tmp_path), lambda line: None)
    assert again.model.width == 16, "another training starts from its encoder"


def test_answers_are_the_best_sequence_and_not_the_best_tags(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    """Without training, each word's best tags break IOB2; the answers equal Viterbi by hand on the words' scores."""
    config = config_of(tmp_path, rows=8)
    problem = problem_of(config, tiny_vocabulary)
    module = build(config, problem, initial_of(tiny_vocabulary), 3)
    with torch.no_grad():
        module.tag_chain.following.normal_(generator=torch.Generator().manual_seed(1))
    dev = problem.splits["dev"]
    logits = compute_logits(module, dev.rows, CPU, PLAIN)
    alone = tags.answers(problem.task, dev, logits, problem.cutting)
    assert violations([list(answer.tags) for answer in alone], problem.task.labels) > 0
    found = answers_of(module, problem.task, dev, logits, problem.cutting)
    assert violations([list(answer.tags) for answer in found], problem.task.labels) == 0
    start = 0
    for item, windows, answer in zip(dev.items, dev.windows, found, strict=True):
        words = np.concatenate(
            [of_window[window.first] for window, of_window in zip(windows, logits[start : start + len(windows)])]
        )
        start += len(windows)
        assert len(words) == len(item.words)
        assert answer.tags == tuple(problem.task.labels[tag] for tag in viterbi(words, module.tag_chain))


def test_all_ways_to_a_model_s_answers_find_the_best_sequence(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    """The module is untrained, so that each word's best tags would be other tags."""
    config = config_of(tmp_path, rows=8)
    problem = problem_of(config, tiny_vocabulary)
    module, dev = build(config, problem, initial_of(tiny_vocabulary), 3), problem.splits["dev"]
    logits = compute_logits(module, dev.rows, CPU, PLAIN)
    answers = answers_of(module, problem.task, dev, logits, problem.cutting)
    alone = tags.answers(problem.task, dev, logits, problem.cutting)
    wanted, model = [list(answer.tags) for answer in answers], str(tmp_path / "model")
    assert wanted != [list(answer.tags) for answer in alone]
    about = About(task=problem.task, cutting=problem.cutting, pooling="cls", crf=True, thresholds={}, lineage={})
    save_tuned(model, module, about, MODEL, tiny_vocabulary)
    texts = [" ".join(item.words) for item in dev.items]
    served = load(Serve(checkpoint=model)).answer("tags", texts)
    assert [[word["entity"] for word in sentence] for sentence in served] == wanted
    assert [row["tags"] for row in api.load(model).predict(texts)] == wanted
    scores = [
        pytest.approx(shares_of(module.tag_chain, logits, dev, number, answer.tags, problem.task.labels), abs=1e-5)
        for number, answer in enumerate(answers)
    ]
    assert [[word["score"] for word in sentence] for sentence in served] == scores
    scores = score_model(Score(checkpoint=model, input=str(tmp_path / "dev.conll")), lambda line: None)
    assert scores["f1"] == pytest.approx(tags.score(problem.task, dev, answers, {})["f1"])
    assert scores["f1"] != pytest.approx(tags.score(problem.task, dev, alone, {})["f1"])


def shares_of(chain, logits: list, dev, number: int, tagged: tuple[str, ...], names: tuple[str, ...]) -> list[float]:
    """Probability of each tag of a sentence: the gradient of the logarithm of the partition function."""
    before = sum(map(len, dev.windows[:number]))
    words = np.concatenate([logits[before + place][one.first] for place, one in enumerate(dev.windows[number])])
    emissions = torch.from_numpy(words)[None].requires_grad_()
    whole = torch.tensor([True])
    chains = Chains(emissions=emissions, lengths_N=torch.tensor([len(words)]), opens_N=whole, closes_N=whole)
    (gradient,) = torch.autograd.grad(chain.log_partition(chains).sum(), emissions)
    return [float(gradient[0, place, names.index(tag)]) for place, tag in enumerate(tagged)]


def viterbi(words: np.ndarray, chain) -> list[int]:
    """The best path of one sentence, word by word in NumPy."""
    following = chain.following.detach().numpy() + np.where(chain.following_forbidden.numpy(), -np.inf, 0)
    best = words[0] + chain.start.detach().numpy() + np.where(chain.start_forbidden.numpy(), -np.inf, 0)
    before = []
    for word in words[1:]:
        sums = best[:, None] + following
        before.append(sums.argmax(0))
        best = sums.max(0) + word
    path = [int((best + chain.end.detach().numpy()).argmax())]
    for pointers in reversed(before):
        path.append(int(pointers[path[-1]]))
    return path[::-1]


def test_a_word_without_pieces_is_outside_and_no_entity_goes_on_after_it(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    config = config_of(tmp_path, rows=8)
    problem = problem_of(config, tiny_vocabulary)
    module = build(config, problem, initial_of(tiny_vocabulary), 3)
    names = problem.task.labels
    sentence = tags.Sentence(words=("mir", "\u200b", "nel"), tags=("O", "O", "O"))
    prepared = tags.prepare(problem.task, [sentence], tiny_vocabulary, problem.cutting)
    logits = [
        np.tile(np.eye(len(names), dtype=np.float32)[names.index("I-X")] * 9, (len(prepared.windows[0][0].ids), 1))
    ]
    (answer,) = answers_of(module, problem.task, prepared, logits, problem.cutting)
    assert answer.tags[1] == "O" and answer.unseen == 1 and not answer.tags[2].startswith("I-")


@pytest.mark.parametrize("crf", [True, False])
def test_slots_have_the_losses_of_the_whole_step(crf: bool, tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    curves = []
    for slot in (None, 3):
        config = config_of(tmp_path, rows=30, epochs=2, rows_per_step=13, rows_per_slot=slot, crf=crf, dropout=0.0)
        curves.append([loss for _, loss in curve_of(config, tiny_vocabulary)])
    assert curves[1] == pytest.approx(curves[0], rel=1e-5) and len(curves[0]) > 4


def curve_of(config: Finetune, vocabulary: Vocabulary, world: int = 1) -> list[tuple[int, float]]:
    problem = problem_of(config, vocabulary)
    module = build(config, problem, initial_of(vocabulary), 1)
    return run_trial(
        config, problem.task, problem.cutting, module, problem.train, problem.splits,
        seed=5, device=CPU, autocast=PLAIN, world=world,
    ).curve  # fmt: skip


def worker(rank: int, config: Finetune, vocabulary: Vocabulary) -> list[tuple[int, float]]:
    """Train as one of two workers; rank 0 returns the curve."""
    if rank == 0:
        return curve_of(config, vocabulary, world=2)
    problem = problem_of(config, vocabulary)
    module = build(config, problem, initial_of(vocabulary), 1)
    compute = StepContext(device=CPU, autocast=PLAIN, seed=5, rank=1, world=2)
    assist_trial(config, problem.task, module, problem.train, compute)
    return []


def test_two_workers_have_the_losses_of_one(
    tmp_path: Path, tiny_vocabulary: Vocabulary, ranks: Callable[[int], Ranks]
) -> None:
    alone = config_of(tmp_path, rows=30, epochs=2, rows_per_step=13, rows_per_slot=7)
    shared = replace(alone, trials=Trials(workers=2)).for_workers()
    (found, _), wanted = ranks(2).run(worker, shared, tiny_vocabulary), curve_of(alone, tiny_vocabulary)
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in wanted], rel=1e-5) and len(wanted) > 4


def test_scores_of_the_chain_have_a_higher_rate_and_no_decay(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    config = config_of(tmp_path, rows=8)
    module = build(config, problem_of(config, tiny_vocabulary), initial_of(tiny_vocabulary), 1)
    chain = {id(parameter) for parameter in module.tag_chain.parameters()}
    for group in build_optimizer(config.optimizer, module).param_groups:
        inside = {id(parameter) in chain for parameter in group["params"]}
        assert len(inside) == 1
        if inside == {True}:
            assert (group["rate_share"], group["weight_decay"]) == (CHAIN_RATE, 0.0)
        else:
            assert group["rate_share"] <= 1


def test_the_name_of_a_trial_without_a_crf_is_that_of_earlier_versions(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    config, initial = config_of(tmp_path, rows=8), initial_of(tiny_vocabulary)
    problem = problem_of(config, tiny_vocabulary)
    assert identity_of(config, problem, initial, 1)["recipe.crf"] is True
    without = identity_of(replace(config, recipe=replace(config.recipe, crf=False)), problem, initial, 1)
    assert not {"recipe.crf", "cutting.continuation"} & without.keys()


def test_later_pieces_with_a_tag_of_their_own(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    """The head has an output for them, which is never an answer, and config.json names it."""
    cutting = replace(CUTTING, label_all_pieces=True, continuation="own")
    config = replace(config_of(tmp_path, crf=False, balance_classes=True, epochs=2), cutting=cutting)
    initial = initial_of(tiny_vocabulary)
    problem = problem_of(config, tiny_vocabulary)
    names = problem.task.labels
    labels = np.concatenate([window.labels for windows in problem.train.windows for window in windows])
    assert labels.max() == len(names), "some words have several pieces"
    trial = make_trial(config, problem, initial, 1, {}, "report")
    load_or_train(trial, problem, initial)
    tuned, model = open_tuned(f"{trial.folder}/model"), f"{trial.folder}/model"
    assert json.loads(Path(model, "config.json").read_text())["id2label"][str(len(names))] == "##"
    assert tuned.module.tag_head.out_features == len(names) + 1 and tuned.about.task.labels == names
    with torch.no_grad():
        tuned.module.tag_head.bias[len(names)] = 1e3
    found = answer_items(tuned, items_of(tuned, {"text": ["mir nel kar"]}), CPU, PLAIN).to_pylist()
    assert set(found[0]["tags"]) <= set(names)
