"""Training state on disk: published atomically, verified before use.

RUN/checkpoints/step-00000500/ (in an object store step-00000500-attempt-2/: see files/lease.py)
    model.safetensors config.json                      the published format
    vocab.txt tokenizer.json tokenizer_config.json     the published format
    optimizer.safetensors state.json                   state needed to resume
    generator/                                         ELECTRA's generator, in the published format
    1_AttentionPooling/                                a learned pooling of text vectors
    2_Dense/                                           a projection of text vectors, as in sentence-transformers
    manifest.json                                      size and SHA-256 of every file, written last
"""

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from pipeline.corpus.order import Cursor
from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.model.encoder import encoders_in
from pipeline.model.families.table import family_of
from pipeline.model.host_copies import on_host
from pipeline.model.weights import published_config, take_all, to_published
from pipeline.objectives.published import PublishedModel, TextLayer
from pipeline.objectives.table import Pretraining
from pipeline.optim.build import load_optimizer, optimizer_tensors
from pipeline.saved.checkpoints import CONFIG, GENERATOR, OPTIMIZER, STATE, WEIGHTS, folder_of, saved
from pipeline.saved.tensors import read_tensors, write_tensors
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

TRAINING_ONLY = (OPTIMIZER, STATE)
PART = ".part"
"""End of the names, in the optimiser's file, of parameters that published files hold only as part of a sum."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Progress of a run after `step` updates."""

    step: int = 0
    cursor: Cursor | None = None
    """Last row consumed; None before the first step."""
    crc32: int = 0
    """CRC-32 over the CRC-32s of all slots so far, in order. Runs that read the same rows in the same slots have equal
    values.
    """
    tokens: int = 0
    """Tokens of all sequences so far."""
    squares: int = 0
    """Sum of squared sequence lengths so far."""
    masked: int = 0
    """Masked positions so far."""
    seconds: float = 0.0
    """Training time so far, without evaluation."""
    wait_seconds: float = 0.0
    """Part of `seconds` spent waiting for data."""
    step_times: dict[str, float] = field(default_factory=dict)
    """Histogram of step times, in the meter's buckets."""
    interval: dict[str, float] = field(default_factory=dict)
    """The meter's totals since the last logged step."""
    heldout_loss: float | None = None
    """Held-out loss of these weights, for selecting the best checkpoint; None if the weights were not evaluated."""
    blimp: dict[str, float] = field(default_factory=dict)
    """Accuracy of these weights on BLiMP by metric; empty if they were not evaluated on BLiMP."""
    heldout_before: dict[str, float] = field(default_factory=dict)
    """Held-out metrics before the first step, at the first phase's sequence length."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Copies of the weights and of the optimiser's state on the host; later steps do not change the copies."""

    models: tuple[tuple[PublishedModel, dict[str, torch.Tensor]], ...]
    """Each published model with its weights by published name."""
    optimizer: dict[str, torch.Tensor]
    layers: tuple[tuple[TextLayer, dict[str, torch.Tensor]], ...] = ()
    """Each published layer with its weights by published name."""


def snapshot(module: Pretraining, optimizer: torch.optim.Optimizer) -> Snapshot:
    """Copy the model's and the optimiser's current state to the host.

    Projections that training does not use first become copies of those that it trains.
    """
    for encoder in encoders_in(module):
        encoder.copy_to_unused()
    state = module.state_dict()
    models = tuple(
        (model, on_host(to_published(model.own(state), family_of(model.settings)))) for model in module.models()
    )
    layers = tuple((layer, on_host(layer.own(state))) for layer in module.text_layers())
    return Snapshot(models=models, optimizer=optimizer_tensors(optimizer, module) | _parts(module), layers=layers)


def _parts(module: Pretraining) -> dict[str, torch.Tensor]:
    """Return on the host the parameters that published files hold only as part of a sum, as {"PARAMETER.part": tensor}.

    The difference of two published tensors is rounded, so a run could not resume exactly from it.
    """
    state = module.state_dict()
    return on_host({f"{name}{PART}": state[name] for model in module.models() for name in model.added})


def save(
    run_folder: str,
    state: State,
    module: Pretraining,
    optimizer: torch.optim.Optimizer,
    vocabulary: Vocabulary,
) -> str:
    """Publish a checkpoint of the current state and return its folder."""
    return publish(run_folder, state, snapshot(module, optimizer), vocabulary)


def publish(run_folder: str, state: State, taken: Snapshot, vocabulary: Vocabulary, attempt: int = 0) -> str:
    """Publish a checkpoint and return its folder; `attempt` as in `folder_of`. Raises OSError for unwritable files."""
    target = folder_of(run_folder, state.step, attempt)
    with scratch_folder("checkpoint") as folder:
        for model, weights in taken.models:
            own = folder / model.folder
            own.mkdir(exist_ok=True)
            write_tensors(own / WEIGHTS, weights, {"format": "pt"})
            size, pad_id = len(vocabulary.tokens), vocabulary.pad_id
            config = published_config(model.settings, size, pad_id, model.use, vocabulary.sep_id)
            config |= model.config
            (own / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
            save_vocabulary(vocabulary, own, model.settings.maximum_positions, model.settings.segments)
        for layer, weights in taken.layers:
            own = folder / layer.folder
            own.mkdir()
            write_tensors(own / WEIGHTS, weights, {"format": "pt"})
            (own / CONFIG).write_text(json.dumps(layer.config, indent=2) + "\n")
        write_tensors(folder / OPTIMIZER, taken.optimizer)
        (folder / STATE).write_text(json.dumps(asdict(state), indent=1) + "\n")
        storage.publish(folder, target, {"step": state.step} | ({"attempt": attempt} if attempt else {}))
    return target


def delete_old_checkpoints(
    run_folder: str,
    keep: int,
    step: int,
    stays: Collection[int] = (),
    is_regular: Callable[[int], bool] = lambda step: True,
) -> None:
    """Delete checkpoints up to `step`, except the newest `keep` published ones and those of the steps in `stays`.

    Of the newest ones, those of regular steps come first, so that others do not replace them; but the newest of all is
    kept. Checkpoints after `step` are not touched: they are damaged and older than a restart.
    """
    folders, superseded = saved(run_folder)
    steps = [number for number in folders if number <= step]
    published = [number for number in steps if storage.exists(storage.join(folders[number], storage.MANIFEST))]
    regular = [number for number in published if is_regular(number)][-keep:]
    later = [number for number in published if number > max(regular, default=-1)]
    kept = regular + later[-max(1, keep - len(regular)) :]
    for old in steps:
        if old not in kept and old not in stays:
            storage.delete_folder(folders[old])
    for old, attempt in superseded:
        if old <= step:
            storage.delete_folder(folder_of(run_folder, old, attempt))


def best_step(run_folder: str, first: int, last: int, sound: set[int] | None = None) -> int | None:
    """Return the step in (first, last] whose intact checkpoint has the lowest held-out loss; None if no intact
    checkpoint was evaluated.

    `sound` holds the steps of checkpoints that are known to be intact. These checkpoints are not verified again,
    because reading a whole checkpoint may be slow. If this function finds a checkpoint intact, it adds the step to
    `sound`. Raises OSError if storage fails.
    """
    folders = saved(run_folder)[0]
    losses = {}
    for step in [number for number in folders if first < number <= last]:
        try:
            losses[step] = read_state(folders[step]).heldout_loss
        except (OSError, ValueError, KeyError, TypeError) as error:  # an unreadable checkpoint is never the best
            if isinstance(error, OSError) and not storage.is_file_lost(error):
                raise
    evaluated = sorted((loss, step) for step, loss in losses.items() if loss is not None)
    sound = set() if sound is None else sound
    for _, step in evaluated:
        if step in sound or storage.mismatch(folders[step]) is None:
            sound.add(step)
            return step
    return None


def roll_back_to(run_folder: str, step: int) -> None:
    """Make the checkpoint of a step the newest by deleting all later ones.

    Raises CheckpointError, and deletes nothing, if the checkpoint of the step is damaged.
    """
    folders = saved(run_folder)[0]
    folder = folders.get(step) or folder_of(run_folder, step)
    if problem := storage.damage(folder):
        raise CheckpointError(
            f"checkpoint {folder} is damaged ({problem}), but the run must continue from it to train more steps: "
            "choose another --name"
        )
    for later in reversed([number for number in folders if number > step]):
        storage.delete_folder(folders[later])


def read_state(folder: str) -> State:
    """Return the state of a checkpoint."""
    fields: dict[str, Any] = storage.read_json(storage.join(folder, STATE))
    cursor = fields.pop("cursor")
    return State(cursor=Cursor(**cursor) if cursor else None, **fields)


def load(folder: str, module: Pretraining, optimizer: torch.optim.Optimizer | None) -> State:
    """Load a checkpoint's weights into `module` and its optimiser state into `optimizer`, and return its `State`.

    Without `optimizer`, only weights are loaded. Raises CheckpointError if a tensor is missing, unexpected or of
    another shape.
    """
    try:
        load_models(folder, module)
        if optimizer is not None:
            tensors = read_tensors(storage.join(folder, OPTIMIZER))
            load_optimizer(optimizer, module, tensors)
            parts = {name.removesuffix(PART): tensor for name, tensor in tensors.items() if name.endswith(PART)}
            module.load_state_dict(parts, strict=False)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    return read_state(folder)


def load_models(folder: str, module: Pretraining) -> None:
    """Load the weights of all published models in a checkpoint's folder into `module`.

    Raises CheckpointError if a tensor is missing, unexpected or of another shape, or if the files of two models that
    share embeddings hold different embeddings.
    """
    state, own = {}, module.state_dict()
    for model in module.models():
        tensors = read_tensors(storage.join(folder, model.path(WEIGHTS)))
        state |= model.in_module(take_all(tensors, model.own(own), model.settings))
    for layer in module.text_layers():
        state |= layer.in_module(_layer_tensors(folder, layer, own))
    shared: dict[int, str] = {}  # address of a tensor -> its first name; a shared tensor has several names
    for name, tensor in own.items():
        first = shared.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
        if not torch.equal(state[first], state[name]):
            own_name = name.removeprefix(f"{GENERATOR}.")
            raise CheckpointError(
                f"tensor {own_name} of the {GENERATOR} differs from the model's, but both must be equal"
            )
    for model in module.models():
        state = model.without_added(state)
    module.load_state_dict(state)


def _layer_tensors(folder: str, layer: TextLayer, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of a published layer. Raises CheckpointError if names or shapes are not those in `state`."""
    tensors = read_tensors(storage.join(folder, layer.folder, WEIGHTS))
    found, wanted = ({name: list(t.shape) for name, t in kept.items()} for kept in (tensors, layer.own(state)))
    if found != wanted:
        raise CheckpointError(f"{layer.folder}/{WEIGHTS} has the tensors {found}, but the model has {wanted}")
    return tensors
