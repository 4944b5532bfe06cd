import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from jobs.finetune import main
from pipeline.batch import Batch
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.finetune import task_names
from pipeline.errors import ConfigError
from pipeline.model.weights import published_config, to_published
from pipeline.objectives.sequences import SequenceTask
from pipeline.tasks.encoding import encode
from pipeline.tasks.glue import TASKS
from pipeline.tasks.tables import read_split
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.wordpiece import WordPiece
from pipeline.train.checkpoint import folder_of
from pipeline.train.schedule import rate_share
from pipeline.train.trial import batches, predictions, run_trial

CPU = torch.device("cpu")
PLAIN = torch.autocast("cpu", enabled=False)


@pytest.fixture
def glue(tmp_path: Path, tiny_vocabulary: Vocabulary) -> Path:
    """CoLA and STS-B of made-up sentences; a sentence is acceptable where its first word is one of half of the words, and a pair is as like as it has words in common."""
    words = sorted(word for word in tiny_vocabulary.tokens if word.isalpha() and len(word) > 2)
    random = np.random.default_rng(0)
    for folder in ("CoLA", "STS-B"):
        (tmp_path / folder).mkdir()
    for split, rows in (("train", 60), ("dev", 20)):
        sentences = [list(random.choice(words, random.integers(3, 9))) for _ in range(rows)]
        cola = [f"x\t{int(words.index(sentence[0]) < len(words) // 2)}\t\t{' '.join(sentence)}" for sentence in sentences]
        (tmp_path / "CoLA" / f"{split}.tsv").write_text("\n".join(cola) + "\n")
        head = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
        pairs = [(sentence, sentence[:kept] + list(random.choice(words, 3))) for sentence in sentences for kept in [random.integers(0, len(sentence))]]
        stsb = [f"{i}\tg\tf\ty\to\ts\ts\t{' '.join(a)}\t{' '.join(b)}\t{5 * len(set(a) & set(b)) / len(set(a)):.2f}" for i, (a, b) in enumerate(pairs)]
        (tmp_path / "STS-B" / f"{split}.tsv").write_text("\n".join([head, *stsb]) + "\n")
    return tmp_path


def command(tiny_run: Path, glue: Path, *more: str) -> tuple[str, ...]:
    return ("--checkpoint", folder_of(str(tiny_run), 3), "--glue", str(glue), "--task", "glue", "--output", str(glue / "output"), "--epochs", "1", "--seeds", "2",
            "--rows-per-step", "16", "--maximum-length", "32", "--placement.threads", "1", *more)  # fmt: skip


def test_all_tasks_that_are_there_and_again_from_their_results(tiny_run: Path, glue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    assert main(command(tiny_run, glue)) == 0
    first = capsys.readouterr().out
    assert "cola train: 60 rows" in first and "stsb dev: 20 rows" in first and "4 trials: 2 tasks with 2 seeds each, 1 epochs" in first
    results = sorted((glue / "output" / "finetune").glob("*/result.json"))
    assert [path.parent.name.rsplit("-", 1)[0] for path in results] == ["cola-seed0", "cola-seed1", "stsb-seed0", "stsb-seed1"]
    one = json.loads(results[0].read_text())
    assert one["steps"] == 4 and one["settings"]["seed"] == 0 and len(one["losses"]) == 1
    assert main(command(tiny_run, glue)) == 0
    again = capsys.readouterr().out
    assert again.count("there already") == 4 and again.split("\n\n")[1] == first.split("\n\n")[1]
    # Other text of the same name is another trial.
    (glue / "CoLA" / "train.tsv").write_text((glue / "CoLA" / "train.tsv").read_text().replace("x\t1", "x\t0", 1))
    assert main(command(tiny_run, glue)) == 0
    assert capsys.readouterr().out.count("there already") == 2
    torch.set_num_threads(threads)


def test_what_cannot_be_trained_is_refused(tiny_run: Path, glue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"^task \(ax\) is none that can be trained: choose of cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, or glue for all that are there$"):
        task_names(Finetune(checkpoint="a", glue=str(glue), task=("ax",)))
    assert main((*command(tiny_run, glue), "--maximum-length", "99")) == 2
    assert capsys.readouterr().err == "error: maximum_length (99) must be at most the checkpoint's positions (32)\n"
    assert main((*command(tiny_run, glue), "--checkpoint", str(glue))) == 2
    assert capsys.readouterr().err.startswith(f"error: checkpoint {glue} has no config.json")
    assert main((*command(tiny_run, glue), "--glue", str(glue / "output"))) == 2
    assert "has none of the tasks' training files, such as SST-2/train.tsv: name the folder" in capsys.readouterr().err


def theirs(module: SequenceTask, settings: Model, vocabulary: Vocabulary) -> torch.nn.Module:
    """transformers' BertForSequenceClassification with the same weights."""
    transformers = pytest.importorskip("transformers")
    classes = module.classification_head.out_features
    config = transformers.BertConfig(**published_config(settings, vocabulary.size, vocabulary.pad_id), num_labels=classes, problem_type="regression" if module.is_number else None)
    model = transformers.BertForSequenceClassification(config)
    model.load_state_dict(to_published(module.state_dict()))
    return model.train()


def padded(batch: Batch) -> dict[str, torch.Tensor]:
    """A batch as transformers takes it."""
    lengths = batch.offsets.diff().tolist()
    ids, segments = (torch.nn.utils.rnn.pad_sequence(list(values.split(lengths)), batch_first=True) for values in (batch.ids_T, batch.segments_T))
    return {"input_ids": ids, "token_type_ids": segments, "attention_mask": (torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]).long()}


@pytest.mark.parametrize("name", ["cola", "stsb"])
def test_a_whole_training_equals_a_plain_loop_of_transformers(glue: Path, tiny_vocabulary: Vocabulary, name: str) -> None:
    task, settings = TASKS[name], Model(layers=2, width=16, heads=2, feed_forward=32, maximum_positions=32, hidden_dropout=0.0, attention_dropout=0.0, initializer_deviation=0.3)
    rows = {split: encode(task, read_split(task, str(glue), split), WordPiece(tiny_vocabulary), 32).rows for split in ("train", "dev")}
    config = Finetune(checkpoint="a", glue="b", task=(name,), epochs=2, rows_per_step=16)
    config = replace(config, optimizer=replace(config.optimizer, learning_rate=1e-3))
    module = SequenceTask(settings, tiny_vocabulary.size, 2 if task.kind == "classification" else None, torch.Generator().manual_seed(0))
    peer = theirs(module, settings, tiny_vocabulary)
    result = run_trial(config, task, module, rows["train"], {"dev": rows["dev"]}, seed=5, device=CPU, autocast=PLAIN)
    matrices = [weight for weight in peer.parameters() if weight.ndim > 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": [weight for weight in peer.parameters() if weight.ndim < 2], "weight_decay": 0.0}]
    optimizer, losses, step = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6), [], 0
    for epoch in range(2):
        total = 0.0
        for batch in batches(rows["train"], 16, 5, epoch):
            labels = batch.label_N if task.kind == "regression" else batch.label_N.long()
            loss = peer(**padded(batch), labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * rate_share(config.schedule, step, 8)
            optimizer.step()
            optimizer.zero_grad()
            total, step = total + loss.item() * batch.sequences, step + 1
        losses.append(total / rows["train"].num_rows)
    assert result.steps == step == 8 and result.losses == pytest.approx(losses, rel=1e-5)
    peer.eval()
    (whole,) = batches(rows["dev"], 99, 0, 0)
    order = np.random.Generator(np.random.Philox(key=np.random.SeedSequence((0, 0)).generate_state(2, np.uint64))).permutation(20)
    with torch.no_grad():
        logits = peer(**padded(whole)).logits
    answers = logits[:, 0].numpy() if module.is_number else logits.argmax(-1).numpy()
    np.testing.assert_allclose(predictions(module, rows["dev"], CPU, PLAIN)[order], answers, rtol=1e-4, atol=1e-4)


def test_every_row_comes_once_an_epoch_in_another_order(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    rows = encode(TASKS["stsb"], read_split(TASKS["stsb"], str(glue), "train"), WordPiece(tiny_vocabulary), 32).rows
    orders = [torch.cat([batch.label_N for batch in batches(rows, 16, 3, epoch)]).tolist() for epoch in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == sorted(rows["label"].to_pylist())
    assert [batch.sequences for batch in batches(rows, 16, 3, 0)] == [16, 16, 16, 12]
