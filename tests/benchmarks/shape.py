"""Compare a family's model with a BERT of the same shape: parameters, peak memory, and speed of training and answering.

The shape is layers, width, heads and feed-forward width. --bert-layers gives the BERT another number of layers, as a
teacher has more than its student. Both models read the same batches of random ids, have the same dropout and
vocabulary, and are trained with AdamW in eager mode. Answering is classification of whole rows.

    python -m tests.benchmarks shape mini --family albert
    python -m tests.benchmarks shape base --family distilbert --bert-layers 12
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import torch

from pipeline.batch import Batch
from pipeline.bench.cases import BATCHES, SIZES, VOCABULARY_SIZE, Case, case_of, make_batch, rows_of
from pipeline.bench.step import at_least_one, device_name, our_step
from pipeline.bench.turns import median_seconds
from pipeline.config.data import NextSentence
from pipeline.config.model import FamilyName, Model
from pipeline.config.objective import Masked
from pipeline.config.training import AdamW
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.optim.build import build_optimizer
from pipeline.presets.table import PRESETS

USES = ("training", "answering")
STEPS = 3
"""Steps whose peak memory is measured; the first step allocates the optimiser's state."""
CLASSES = 2
COLUMNS = ("parameters, M", "training, MB", "answering, MB", "training, tokens/s", "answering, tokens/s")
BERT_PARTS = ("activation", "positions", "attention", "inner", "block", "bias")
"""Settings that have BERT's value in the BERT of the same shape."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A measurement: a family at a size, on batches of rows of equal length."""

    family: FamilyName
    size: str
    rows: int
    length: int
    precision: str
    layers: int | None = None
    """Layers of the family's model; None: those of the preset."""
    bert_layers: int | None = None
    """Layers of the BERT; None: those of the family's model."""

    @property
    def model(self) -> Model:
        """Settings of the family's preset, with the chosen number of layers."""
        model = PRESETS[f"{self.family}-{self.size}"].model
        return model if self.layers is None else replace(model, layers=self.layers)

    @property
    def words(self) -> tuple[str, ...]:
        """The setting as words of a command line, which `Setting.of` reads."""
        layers = (self.layers or 0, self.bert_layers or 0)
        own = (self.family, self.size, self.rows, self.length, self.precision, *layers)
        return tuple(map(str, own))

    @classmethod
    def of(
        cls, family: FamilyName, size: str, rows: str, length: str, precision: str, layers: str, bert_layers: str
    ) -> "Setting":
        """Return the setting of words."""
        return cls(
            family=family,
            size=size,
            rows=int(rows),
            length=int(length),
            precision=precision,
            layers=int(layers) or None,
            bert_layers=int(bert_layers) or None,
        )

    @property
    def beside(self) -> "dict[str, Model]":
        """Name -> settings of both models: a BERT with the family's shape and dropout, and the family's own model."""
        own = self.model
        bert = replace(
            own,
            family="bert",
            layers=self.bert_layers or own.layers,
            segments=2,
            embedding_width=None,
            **{part: getattr(Model, part) for part in BERT_PARTS},
        )
        return {"bert": bert, self.family: own}

    def batches(self, device: torch.device) -> list[Batch]:
        """Return the batches that both models read."""
        case = Case(size="tiny", rows=self.rows, length=self.length, lengths="full", attention_dropout=True)
        return [make_batch(case, seed).to(device) for seed in range(BATCHES)]


def _pretraining(setting: Setting, name: str) -> Pretraining:
    """Return the module that pretraining trains: a BERT if `name` is "bert", else the module of the family's preset."""
    model = setting.beside[name]
    if name == "bert":
        sampling = replace(PRESETS[f"{setting.family}-{setting.size}"].sampling, pairs=NextSentence())
        return build_objective(Masked(), sampling, model, VOCABULARY_SIZE)
    preset = PRESETS[f"{setting.family}-{setting.size}"]
    return build_objective(preset.objective, preset.sampling, model, VOCABULARY_SIZE)


def _use(setting: Setting, name: str, use: str, device: torch.device) -> Callable[[int], None]:
    """Return a function of the step number that takes a training step (`use` "training") or answers a batch."""
    batches = setting.batches(device)
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=setting.precision == "bfloat16")
    if use == "training":
        module = _pretraining(setting, name).to(device)
        optimizer = build_optimizer(AdamW(), module)
        return lambda number: our_step(module, module, optimizer, autocast, None, batches[number % BATCHES])
    task = OBJECTIVES["classification"](
        setting.beside[name], VOCABULARY_SIZE, CLASSES, torch.Generator().manual_seed(0), "cls", None
    )
    return partial(_answer, task.to(device).eval(), autocast, batches)


@torch.inference_mode()
def _answer(task: torch.nn.Module, autocast: torch.autocast, batches: Sequence[Batch], number: int) -> None:
    with autocast:
        task.logits(batches[number % len(batches)])


def parameters(setting: Setting, name: str) -> int:
    """Return the number of parameters that pretraining trains."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in _pretraining(setting, name).parameters())


def peak_bytes(setting: Setting, name: str, use: str) -> int:
    """Return the peak memory of training or answering with a model, in bytes, without the memory of the libraries.

    The memory is measured in a separate process.
    """
    command = [sys.executable, "-m", "tests.benchmarks.shape", *setting.words, name, use]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _own_peak(setting: Setting, name: str, use: str) -> int:
    """Return the peak memory of this process, minus its memory before the model was built."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    _answer_once(device)
    before = 0 if device.type == "cuda" else _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    take = _use(setting, name, use, device)
    for number in range(STEPS):
        take(number)
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _status("VmHWM") - before


def _answer_once(device: torch.device) -> None:
    """Train a tiny model for one step, so that the libraries are loaded before memory is measured."""
    _use(Setting(family="bert", size="tiny", rows=2, length=8, precision="bfloat16"), "bert", "training", device)(0)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _status(field: str) -> int:
    """Return a field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def speeds(setting: Setting, use: str, device: torch.device, repetitions: int) -> dict[str, float]:
    """Return model name -> median tokens per second. The models run in turns, so that noise affects both equally."""
    functions = {name: _use(setting, name, use, device) for name in setting.beside}
    tokens = setting.rows * setting.length
    return {name: tokens / seconds for name, seconds in median_seconds(functions, device, repetitions).items()}


def table(figures: dict[str, list[float]]) -> str:
    """Return a table with a line of figures per model, and a last line: second model's figures / first model's."""
    (_, first), (name, second) = figures.items()
    lines = [f"{'':<16}" + "".join(f"{column:>22}" for column in COLUMNS)]
    lines += [f"{row:<16}" + "".join(f"{value:>22,.1f}" for value in values) for row, values in figures.items()]
    ratios = [own / other for own, other in zip(second, first, strict=True)]
    return "\n".join([*lines, f"{f'{name} / bert':<16}" + "".join(f"{ratio:>22.2f}" for ratio in ratios)])


def measure(setting: Setting, repetitions: int) -> dict[str, list[float]]:
    """Return model name -> its figures, in the order of COLUMNS."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    memory = {name: [peak_bytes(setting, name, use) / 1e6 for use in USES] for name in setting.beside}
    rates = {use: speeds(setting, use, device, repetitions) for use in USES}
    return {
        name: [parameters(setting, name) / 1e6, *memory[name], *(rates[use][name] for use in USES)]
        for name in setting.beside
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks shape",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    families = [family for family in get_args(FamilyName) if family != "bert"]
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--family", choices=families, default="albert", help="default: albert")
    parser.add_argument("--rows", type=at_least_one, help="rows per batch; default: by size and device")
    parser.add_argument("--length", type=at_least_one, default=128, help="tokens of a row; default: 128")
    parser.add_argument("--layers", type=at_least_one, help="layers of the family's model; default: the preset's")
    parser.add_argument(
        "--bert-layers", type=at_least_one, help="layers of the BERT; default: those of the family's model"
    )
    parser.add_argument("--repetitions", type=at_least_one, default=7, help="timed steps; default: 7")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    options = parser.parse_args(arguments)
    if f"{options.family}-{options.size}" not in PRESETS:
        parser.error(f"size ({options.size}) has no preset {options.family}-{options.size}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = options.rows or rows_of(case_of(options.size, options.family, options.length), device)
    setting = Setting(
        family=options.family,
        size=options.size,
        rows=rows,
        length=options.length,
        precision=options.precision,
        layers=options.layers,
        bert_layers=options.bert_layers,
    )
    if options.length > setting.model.maximum_positions:
        parser.error(f"--length ({options.length}) must be at most {setting.model.maximum_positions}, the positions")
    layers = " and ".join(str(model.layers) for model in reversed(setting.beside.values()))
    print(
        f"{options.family}-{options.size} and a BERT of its shape, {layers} layers, {rows} rows of {options.length} "
        f"tokens, {device_name(device)}, {options.precision}, eager, torch {torch.__version__}"
    )
    print(table(measure(setting, options.repetitions)))
    return 0


if __name__ == "__main__":
    *words, name, use = sys.argv[1:]
    print(_own_peak(Setting.of(*words), name, use))  # ty: ignore[invalid-argument-type]
