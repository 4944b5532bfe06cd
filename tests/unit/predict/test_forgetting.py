"""The held-out loss of a run's encoder before and after fine-tuning, by the command."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from jobs.score import main
from pipeline.config.adapters import Adapter, Bottleneck, LowRank, NoAdapter
from pipeline.config.cutting import Truncation
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Score
from pipeline.config.task_kind import Kind
from pipeline.config.training import Checkpoints
from pipeline.errors import PipelineError
from pipeline.export.trained import load_trained
from pipeline.files import storage
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.model.adapters import add_adapter
from pipeline.model.encoder import Encoder
from pipeline.objectives.masked import HELDOUT_LOSS, MaskedTokens
from pipeline.objectives.tasks import OBJECTIVES, TaskObjective
from pipeline.predict.forgetting import AFTER, BEFORE, score_forgetting
from pipeline.saved.run import EVALUATED_ROWS, SUMMARY
from pipeline.tasks.task import Task
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import Training, finished_run, of_family, text_of

FLOAT32 = ["--placement.precision", "float32", "--placement.device", "cpu"]


@pytest.fixture(scope="module")
def run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run; its summary has the number of rows of its evaluations."""
    folder = tmp_path_factory.mktemp("forgetting") / "run"
    shutil.copytree(tiny_run, folder)
    summary = storage.read_json(f"{folder}/{SUMMARY}")
    storage.write_json(f"{folder}/{SUMMARY}", summary | {EVALUATED_ROWS: 40})
    return folder


def pretrained_of(run: Path) -> MaskedTokens:
    module = load_trained(str(max((run / "checkpoints").iterdir()))).module
    assert isinstance(module, MaskedTokens)
    return module


def fine_tuned(run: Path, adapter: Adapter, change: float, kind: Kind = "classification") -> TaskObjective:
    """A task's module with the encoder of the run and an adapter; random numbers are added to what is trained."""
    pretrained = pretrained_of(run)
    size = len(pretrained.words)
    settings = pretrained.encoder.settings
    module = OBJECTIVES[kind](settings, size, 2, torch.Generator().manual_seed(1), "cls", None).eval()
    module.encoder.load_state_dict(pretrained.encoder.state_dict(), strict=False)
    add_adapter(module, adapter, torch.Generator().manual_seed(2))
    with torch.no_grad():
        for weight in module.encoder.parameters():
            if weight.requires_grad:
                weight += change * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    return module


def publish(folder: Path, module: TaskObjective, vocabulary: Vocabulary, adapter: Adapter, kind: Kind) -> str:
    task = Task(name="made-up", kind=kind, labels=("O", "B-X"), metrics=("f1",))
    cutting, lineage = Truncation(maximum_length=16, stride=4), {"scores": {"dev": {"f1": 0.25}}}
    about = About(task=task, cutting=cutting, pooling="cls", thresholds={}, lineage=lineage)
    save_tuned(str(folder), module, about, module.encoder.settings, vocabulary, adapter)
    return str(folder)


def loss_of(run: Path, encoder: Encoder, training: Training, config: Pretrain) -> float:
    """The mean loss over the masked tokens of the rows that the run's evaluations read, with the run's head."""
    head = pretrained_of(run).masked_token_head
    losses = []
    with torch.no_grad():
        for batch in training.work(config, Path("/none"), {}).heldout:
            logits = head(encoder(batch)[batch.masked_positions_M], encoder.embeddings.words.weight)
            losses.append(F.cross_entropy(logits, batch.masked_labels_M, reduction="none"))
    return float(torch.cat(losses).double().mean())


def test_before_is_the_loss_that_the_run_logged(
    run: Path, training: Training, tiny_config: Pretrain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged: dict[int, dict[str, float]] = {}
    short = replace(tiny_config, steps=3, checkpoint=Checkpoints(every=1, keep=3))
    training.run(short, tmp_path / "again", logged)
    own = logged[3][HELDOUT_LOSS]
    untuned = publish(
        tmp_path / "m", fine_tuned(run, NoAdapter(), 0.0), training.vocabulary, NoAdapter(), "classification"
    )
    placement = ModelPlacement(device="cpu", precision="float32")
    lines: list[str] = []
    losses = score_forgetting(
        Score(checkpoint=untuned, heldout=str(run), placement=placement).measurement, lines.append
    )
    assert losses == {BEFORE: pytest.approx(own, abs=1e-5), AFTER: pytest.approx(own, abs=1e-5)}
    assert main(["--checkpoint", untuned, "--heldout", str(run), *FLOAT32]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == lines
    assert said[0].startswith("40 held-out rows of ") and said[0].endswith("masked tokens, computed in float32")
    assert said[2].split()[:3] == ["before", "fine-tuning", f"{own:.3f}"]
    assert said[-2:] == ["forgotten: +0.000 nats per masked token", "made-up on dev: f1 0.250"]


@pytest.mark.parametrize(
    ("adapter", "kind"),
    [
        (NoAdapter(), "classification"),
        (NoAdapter(), "tags"),  # no pooler
        (LowRank(rank=2), "classification"),
        (Bottleneck(width=4), "classification"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_after_is_the_loss_with_the_tuned_encoder(
    adapter: Adapter, kind: Kind, run: Path, training: Training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    module = fine_tuned(run, adapter, 1.0, kind)
    wanted = loss_of(run, module.encoder, training, tiny_config)  # before low-rank adapters are merged
    checkpoint = publish(tmp_path / "m", module, training.vocabulary, adapter, kind)
    placement = ModelPlacement(device="cpu", precision="float32")
    losses = score_forgetting(
        Score(checkpoint=checkpoint, heldout=str(run), placement=placement).measurement, lambda line: None
    )
    assert losses[AFTER] == pytest.approx(wanted, rel=1e-5)
    assert abs(losses[AFTER] - losses[BEFORE]) > 0.01


def test_what_cannot_be_measured_is_one_line(
    run: Path,
    training: Training,
    tiny_config: Pretrain,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = fine_tuned(run, NoAdapter(), 0.0)
    checkpoint = publish(tmp_path / "m", module, training.vocabulary, NoAdapter(), "classification")

    def refused(*more: str) -> str:
        assert main([*more, *FLOAT32]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    model = Model(layers=2, width=16, heads=2, feed_forward=64, maximum_positions=32)
    other = OBJECTIVES["classification"](model, training.vocabulary.size, 2, None, "cls", None)
    narrow = publish(tmp_path / "narrow", other, training.vocabulary, NoAdapter(), "classification")
    assert "has width 16 and heldout" in (line := refused("--checkpoint", narrow, "--heldout", str(run)))
    assert line.endswith(f"{run} has 32: give the run whose model was fine-tuned")

    words = train_vocabulary(map(text_of, range(20, 30)), size=training.vocabulary.size, lowercase=True)
    assert words.size == training.vocabulary.size
    foreign = publish(tmp_path / "foreign", module, words, NoAdapter(), "classification")
    assert "have different vocabularies, of" in refused("--checkpoint", foreign, "--heldout", str(run))

    assert "has no held-out rows: prepare it with prepare.heldout_share above 0" in refused(
        "--checkpoint", checkpoint, "--heldout", str(run), "--corpus", str(without_heldout(run, tmp_path / "corpus"))
    )
    headless = refused("--checkpoint", checkpoint, "--heldout", checkpoint)
    assert headless.endswith(f"heldout {checkpoint} is a model without a head for masked tokens, not a pretraining run")
    electra = finished_run(
        tmp_path / "electra",
        of_family("electra", tiny_config, training.vocabulary),
        training.corpus,
        training.vocabulary,
    )
    assert "predicts masked tokens with its generator" in refused("--checkpoint", checkpoint, "--heldout", str(electra))


def test_a_corpus_that_changed_since_the_run_is_refused_unless_it_is_named(
    run: Path, training: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = publish(
        tmp_path / "m", fine_tuned(run, NoAdapter(), 0.0), training.vocabulary, NoAdapter(), "classification"
    )
    shutil.copytree(run, tmp_path / "run")
    recorded = storage.read_json(f"{run}/run.json")
    identity = recorded["identity"] | {"corpus.fingerprint": "earlier"}
    storage.write_json(f"{tmp_path}/run/run.json", recorded | {"identity": identity})
    asked = ["--checkpoint", checkpoint, "--heldout", f"{tmp_path}/run", *FLOAT32]
    assert main(asked) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"corpus {recorded['corpus']} has changed since the run {tmp_path}/run was trained: " in line
    assert main([*asked, "--corpus", recorded["corpus"]]) == 0


def without_heldout(run: Path, folder: Path) -> Path:
    """The run's corpus without its held-out part."""
    shutil.copytree(storage.read_json(f"{run}/run.json")["corpus"], folder)
    manifest = storage.read_json(f"{folder}/{storage.MANIFEST}")
    storage.write_json(f"{folder}/{storage.MANIFEST}", manifest | {"heldout": []})
    return folder


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"predictions": "p", "heldout": "r"}, r"^heldout \(r\) scores a model, not predictions: give checkpoint$"),
        ({"checkpoint": "x", "heldout": "r", "input": "i"}, r"heldout \(r\), similarity .*: give exactly one$"),
        ({"checkpoint": "x", "heldout": "r", "pairs": "odd"}, r"^pairs \(odd\) is for blimp: leave it out, or give"),
        ({"checkpoint": "x", "input": "i", "corpus": "c"}, r"^corpus \(c\) is for blimp and heldout: leave corpus out"),
    ],
)
def test_settings_that_contradict_each_other(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        Score(**wrong)  # ty: ignore[invalid-argument-type]
