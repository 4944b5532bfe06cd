import errno
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.batch import collate
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.training import AdamW
from pipeline.corpus.order import Cursor
from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.objectives.table import Pretraining
from pipeline.optim.build import build_optimizer, optimizer_tensors
from pipeline.saved.checkpoints import GENERATOR, folder_of, newest_sound, steps_saved
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.checkpoint import State, best_step, delete_old_checkpoints, load, read_state, save
from pipeline.train.step import seed_dropout, update
from tests.conftest import FAMILIES, of_family, tiers

STATE = State(
    step=2,
    cursor=Cursor(epoch=0, window=1, row=7, rows_in_window=20),
    crc32=4_294_967_295,
    tokens=901,
    seconds=1.25,
    wait_seconds=0.125,
    interval={"sum.mlm": 0.1, "count.mlm": 3, "steps": 1},
    heldout_before={"heldout/mlm_loss": 4.337154091729058},
)
FILES = [
    "config.json",
    "manifest.json",
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
]


@pytest.fixture
def trained(training, tiny_config: Pretrain) -> tuple[MaskedTokens, torch.optim.Optimizer]:
    """A module and its optimiser after two updates."""
    return train_two_steps(training, tiny_config)


def train_two_steps(training, config: Pretrain) -> tuple[Pretraining, torch.optim.Optimizer]:
    module = training.module(config)
    optimizer = build_optimizer(AdamW(learning_rate=0.01), module)
    for step in range(2):
        train_step(training, config, module, optimizer, step)
    return module, optimizer


def train_step(training, config: Pretrain, module: Pretraining, optimizer: torch.optim.Optimizer, step: int) -> None:
    seed_dropout(0, step, 0)
    sum(total / count for total, count in module(collate(training.blocks(config)[step])).values()).backward()
    update(optimizer, module, rate=0.01, clip_norm=1.0)


@pytest.fixture
def save_at(trained, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path) -> Callable[[int], Path]:
    """Publish a checkpoint of the trained module under a step's number."""
    return lambda step: Path(save(str(tmp_path), replace(STATE, step=step), *trained, tiny_vocabulary))


def assert_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@tiers("family_config", first=("bert", "electra"), second=FAMILIES)
def test_what_is_saved_is_loaded(
    training, family_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    module, optimizer = train_two_steps(training, family_config)
    folder = Path(save(str(tmp_path), STATE, module, optimizer, tiny_vocabulary))
    expected = sorted([*FILES, GENERATOR]) if isinstance(module, ReplacedTokens) else FILES
    assert sorted(path.name for path in folder.iterdir()) == expected
    other = training.module(replace(family_config, seed=5))
    fresh = build_optimizer(AdamW(learning_rate=0.01), other)
    assert load(str(folder), other, fresh) == STATE == read_state(str(folder))
    assert_equal(module.state_dict(), other.state_dict())
    assert_equal(optimizer_tensors(optimizer, module), optimizer_tensors(fresh, other))
    for model, its_optimizer in ((module, optimizer), (other, fresh)):
        train_step(training, family_config, model, its_optimizer, 2)
    assert_equal(module.state_dict(), other.state_dict())


ELECTRA = pytest.mark.parametrize("family_config", ["electra"], indirect=True)


@pytest.fixture
def electra(training, family_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path) -> Path:
    """A checkpoint of ELECTRA."""
    return Path(save(str(tmp_path), STATE, *train_two_steps(training, family_config), tiny_vocabulary))


@ELECTRA
def test_a_generator_has_a_folder_in_the_published_format(training, electra: Path, family_config: Pretrain) -> None:
    published = {path.name for path in (electra / GENERATOR).iterdir()}
    assert published == set(FILES) - {"manifest.json", "optimizer.safetensors", "state.json"}
    own, its = load_file(electra / "model.safetensors"), load_file(electra / GENERATOR / "model.safetensors")
    shared = [name for name in own if ".embeddings." in name]
    assert len(shared) == 5 and all(torch.equal(own[name], its[name]) for name in shared)
    manifest = json.loads((electra / "manifest.json").read_text())
    assert f"{GENERATOR}/model.safetensors" in manifest["files"]
    optimiser = load_file(electra / "optimizer.safetensors")
    once = [name for name in optimiser if name.endswith("embeddings.words.weight.exp_avg")]
    assert once == ["encoder.embeddings.words.weight.exp_avg"]
    assert "generator.encoder.layers.0.attention.qkv.weight.exp_avg" in optimiser


@ELECTRA
def test_a_generator_with_embeddings_of_its_own_is_refused(training, electra: Path, family_config: Pretrain) -> None:
    file = electra / GENERATOR / "model.safetensors"
    tensors = load_file(file)
    name = "electra.embeddings.word_embeddings.weight"
    save_file(tensors | {name: tensors[name] + 1}, file)
    module = training.module(family_config)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(CheckpointError) as refused:
        load(str(electra), module, None)
    assert str(refused.value) == (
        f"{electra}: tensor encoder.embeddings.words.weight of the generator differs from the model's, but both must "
        f"be equal"
    )
    assert_equal(before, module.state_dict())


@ELECTRA
def test_a_damaged_generator_damages_the_checkpoint(electra: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    assert newest_sound(str(tmp_path), lines.append) == str(electra)
    (electra / GENERATOR / "model.safetensors").write_bytes(b"flipped")
    with pytest.raises(CheckpointError, match=f"{GENERATOR}/model.safetensors"):
        newest_sound(str(tmp_path), lines.append)


def test_weights_alone_can_be_loaded(training, trained, save_at, tiny_config: Pretrain) -> None:
    other = training.module(replace(tiny_config, seed=5))
    assert load(str(save_at(2)), other, None) == STATE
    assert_equal(trained[0].state_dict(), other.state_dict())


WITHOUT_RAY = """
import pickle, sys
for package in "rich sentencex ray mlflow pandas".split():
    sys.modules[package] = None
from pipeline.train import saver
from pipeline.train.checkpoint import save
for arguments in pickle.load(sys.stdin.buffer):
    save(*arguments)
"""


def test_a_machine_without_ray_publishes_the_same_files(
    training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    states = {
        family: (STATE, *train_two_steps(training, of_family(family, tiny_config, tiny_vocabulary)), tiny_vocabulary)
        for family in ("bert", "electra")
    }
    content = pickle.dumps([(str(tmp_path / family / "alone"), *state) for family, state in states.items()])
    done = subprocess.run([sys.executable, "-c", WITHOUT_RAY], input=content, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    for family, state in states.items():
        folder = Path(save(str(tmp_path / family / "with"), *state))
        alone = Path(folder_of(str(tmp_path / family / "alone"), STATE.step))
        names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        assert set(map(Path, FILES)) <= set(names)
        assert [path.relative_to(alone) for path in sorted(alone.rglob("*")) if path.is_file()] == names
        assert [name for name in names if (folder / name).read_bytes() != (alone / name).read_bytes()] == []


def test_the_state_before_the_first_step_has_no_cursor(
    training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    module = training.module(tiny_config)
    folder = save(str(tmp_path), State(), module, build_optimizer(AdamW(), module), tiny_vocabulary)
    assert folder == f"{tmp_path}/checkpoints/step-00000000" and read_state(folder) == State()


def test_weights_of_another_model_are_refused_with_the_folder(training, save_at, tiny_config: Pretrain) -> None:
    folder = save_at(2)
    wider = Model(layers=2, width=32, heads=2, feed_forward=80, maximum_positions=32)
    module = MaskedTokens(wider, training.vocabulary.size)
    with pytest.raises(CheckpointError) as refused:
        load(str(folder), module, None)
    assert (
        str(refused.value)
        == f"{folder}: tensor bert.encoder.layer.0.intermediate.dense.weight has shape [64, 32], but the model's "
        f"settings give [80, 32]"
    )


def test_newest_sound_skips_damaged_checkpoints(save_at, tmp_path: Path) -> None:
    assert newest_sound(str(tmp_path), pytest.fail) is None
    older, newer, newest = save_at(9), save_at(10), save_at(1_000)
    assert newest_sound(str(tmp_path), pytest.fail) == str(newest) == folder_of(str(tmp_path), 1_000)

    weights = bytearray((newest / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (newest / "model.safetensors").write_bytes(weights)
    messages: list[str] = []
    assert newest_sound(str(tmp_path), messages.append) == str(newer)
    damaged = (
        f"checkpoint {newest} is damaged (model.safetensors does not match its SHA-256); "
        "trying the checkpoint before it"
    )
    assert messages == [damaged]

    (newer / "state.json").unlink()
    messages.clear()
    assert newest_sound(str(tmp_path), messages.append) == str(older)
    assert messages[0] == damaged and len(messages) == 2 and "state.json is missing" in messages[1]


def test_when_all_are_damaged_nothing_is_trained_over(save_at, tmp_path: Path) -> None:
    for step in (1, 2):
        (save_at(step) / "state.json").write_text("{}")
    with pytest.raises(CheckpointError) as refused:
        newest_sound(str(tmp_path), lambda message: None)
    size = json.loads(Path(folder_of(str(tmp_path), 2), "manifest.json").read_text())["files"]["state.json"]["bytes"]
    assert str(refused.value) == (
        f"all checkpoints are damaged (the newest: {tmp_path}/checkpoints/step-00000002: "
        f"state.json has 2 bytes, the manifest says {size}); "
        f"start again under another --name, or delete {tmp_path}/checkpoints"
    )


def test_a_checkpoint_without_manifest_was_never_published(save_at, tmp_path: Path) -> None:
    older, newer = save_at(1), save_at(2)
    (newer / "manifest.json").unlink()
    assert newest_sound(str(tmp_path), pytest.fail) == str(older)
    (older / "manifest.json").unlink()
    assert newest_sound(str(tmp_path), pytest.fail) is None


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 100, 20, 3):
        Path(folder_of(str(tmp_path), step)).mkdir(parents=True)
        Path(folder_of(str(tmp_path), step), "manifest.json").write_text("{}")
    (tmp_path / "checkpoints" / "step-notes").mkdir()
    delete_old_checkpoints(
        str(tmp_path), 2, 20
    )  # 100 lies beyond what was just published: it is no sound one, and does not count
    assert steps_saved(str(tmp_path)) == [5, 20, 100]
    delete_old_checkpoints(str(tmp_path), 2, 100)
    assert steps_saved(str(tmp_path)) == [20, 100] and (tmp_path / "checkpoints" / "step-notes").is_dir()
    delete_old_checkpoints(str(tmp_path), 3, 100)
    assert steps_saved(str(tmp_path)) == [20, 100]


def test_checkpoints_between_the_regular_ones_do_not_replace_them(tmp_path: Path) -> None:
    def left(*steps: int) -> list[int]:
        for step in steps:
            Path(folder_of(str(tmp_path), step)).mkdir(parents=True)
            Path(folder_of(str(tmp_path), step), "manifest.json").write_text("{}")
        delete_old_checkpoints(str(tmp_path), 3, 10_000, is_regular=lambda step: step % 100 == 0)
        return steps_saved(str(tmp_path))

    assert left(20, 40, 60, 80) == [40, 60, 80]  # there is no regular one yet
    assert left(100) == [100]
    assert left(120, 140, 160) == [100, 140, 160]
    assert left(200, 300, 310, 320) == [100, 200, 300, 320]
    assert left(400) == [200, 300, 400]


def test_what_a_superseded_attempt_wrote_is_deleted_once_the_run_is_beyond_it(tmp_path: Path) -> None:
    for step, attempt in ((20, 1), (40, 1), (60, 1), (80, 1), (60, 2)):
        Path(folder_of(str(tmp_path), step, attempt)).mkdir(parents=True)
        Path(folder_of(str(tmp_path), step, attempt), "manifest.json").write_text("{}")
    (tmp_path / "lease.json").write_text('{"began": {"1": 0, "2": 40}}')
    delete_old_checkpoints(str(tmp_path), 2, 60)
    left = sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-00000040-attempt-1", "step-00000060-attempt-2", "step-00000080-attempt-1"]
    assert steps_saved(str(tmp_path)) == [40, 60]


def test_unpublished_checkpoints_do_not_count_as_kept(tmp_path: Path) -> None:
    for step in (50, 100, 150, 160, 170, 200, 210):
        Path(folder_of(str(tmp_path), step)).mkdir(parents=True)
        if step % 50 == 0:
            Path(folder_of(str(tmp_path), step), "manifest.json").write_text("{}")
    delete_old_checkpoints(str(tmp_path), 3, 200)
    assert steps_saved(str(tmp_path)) == [100, 150, 200, 210]


def test_storage_that_refuses_to_say_picks_no_older_checkpoint(
    save_at, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = save_at(1), save_at(2)
    read = storage.read_bytes

    def refusing(location: str) -> bytes:
        if location.startswith(str(newer)):
            raise PermissionError("AWS Error ACCESS_DENIED")
        return read(location)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "read_bytes", refusing)
        for call in (lambda: newest_sound(str(tmp_path), pytest.fail), lambda: best_step(str(tmp_path), 0, 2)):
            with pytest.raises(PermissionError):
                call()
    assert newest_sound(str(tmp_path), pytest.fail) == str(newer) and older.exists()


def test_a_lost_state_is_not_the_best_step_and_raises_nothing(
    save_at, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = save_at(2)
    read = storage.read_bytes

    def failing(location: str) -> bytes:
        if location == f"{newer}/state.json":
            raise OSError(errno.EIO, "Input/output error")
        return read(location)

    monkeypatch.setattr(storage, "read_bytes", failing)
    assert best_step(str(tmp_path), 0, 2) is None


def test_transformers_loads_the_folder(trained, save_at, tiny_config: Pretrain, tiny_vocabulary: Vocabulary) -> None:
    transformers = pytest.importorskip("transformers")
    folder = save_at(2)
    model, info = transformers.AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == "BertForPreTraining" and not info["missing_keys"] and not info["unexpected_keys"]
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, trained[0].words)
    assert model.config.vocab_size == tiny_vocabulary.size and model.config.max_position_embeddings == 32
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.get_vocab() == tiny_vocabulary.ids and tokenizer.model_max_length == 32
    assert load_vocabulary(str(folder), None) == tiny_vocabulary
