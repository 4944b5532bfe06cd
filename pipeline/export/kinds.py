"""Kinds of export that are folders. Each kind has a function that writes, checks and describes the files."""

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from pipeline.batch import MaskedBatch
from pipeline.errors import DataError
from pipeline.evaluation.heldout import heldout_batches
from pipeline.export.card import Lineage, Made, corpus_problem
from pipeline.export.huggingface import copy_model, write_published
from pipeline.export.int8 import MeasuredGraph, check_int8, compare, quantize_graphs
from pipeline.export.markdown import table
from pipeline.export.onnx_graphs import OPSET, check_graphs, write_graphs
from pipeline.export.probe import probe
from pipeline.export.trained import Trained
from pipeline.files import storage
from pipeline.model.families.table import family_of
from pipeline.objectives.masked import MLM
from pipeline.saved.checkpoints import WEIGHTS
from pipeline.saved.run import settings_of
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.checkpoint import read_state

HELDOUT_ROWS = 256
"""Number of held-out sequences for int8's comparison."""
ONNX_USE = """`fill_mask.onnx` returns `logits` (batch, length, vocabulary).
`embedding.onnx` returns `sentence_embedding` (batch, width): the mean of the last hidden states of the tokens that the
attention mask keeps. Inputs are int64 (batch, length), with any batch size and any length up to the model's number of
positions. The opset is OPSET.

```python
import numpy, onnxruntime, tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
tokenizer.enable_padding()
texts = tokenizer.encode_batch(["a text", "a longer text with a [MASK] in it"])
session = onnxruntime.InferenceSession("embedding.onnx")
session.run(None, {
INPUTS
})
```"""
ENCODED = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Name of a graph's input -> attribute of `tokenizers.Encoding` that holds the values."""


def _huggingface(trained: Trained, lineage: Lineage, scratch: Path, folder: Path) -> Made:
    """Export the published format."""
    return write_published(trained, lineage, folder)


def _onnx(trained: Trained, lineage: Lineage, scratch: Path, folder: Path) -> Made:
    """Export float32 graphs with the tokenizer."""
    _copy_tokenizer(trained, folder)
    shutil.copytree(_float32_graphs(trained, scratch), folder, dirs_exist_ok=True)
    return Made(checked=check_graphs(folder, trained), use=_use(trained), library="onnx", tags=("onnx",))


def _int8(trained: Trained, lineage: Lineage, scratch: Path, folder: Path) -> Made:
    """Export graphs with 8-bit weights, compared with float32."""
    _copy_tokenizer(trained, folder)
    float32 = _float32_graphs(trained, scratch)
    check_graphs(float32, trained)
    quantize_graphs(float32, folder)
    checked = check_int8(float32, folder, trained)
    batches, problem = _sequences(trained, lineage)
    both = compare(float32, folder, batches, trained.model)
    section = ("## Comparison with float32", _comparison(*both, batches, problem))
    figures = _comparison_in_a_line(*both, problem)
    tags = ("onnx", "int8")
    return Made(checked=checked, use=_use(trained), library="onnx", tags=tags, extra=section, figures=figures)


def _use(trained: Trained) -> str:
    """Return the card's usage section for both graphs, with the inputs of the model's family."""
    lines = [
        f'    "{name}": numpy.array([text.{ENCODED[name]} for text in texts]),'
        for name in family_of(trained.model).inputs
    ]
    return ONNX_USE.replace("OPSET", str(OPSET)).replace("INPUTS", "\n".join(lines))


def _copy_tokenizer(trained: Trained, folder: Path) -> None:
    """Copy the published format without weights.

    ELECTRA's generator is left out, because the discriminator has the same tokenizer.
    """
    copy_model(trained.checkpoint, folder)
    (folder / WEIGHTS).unlink()
    for model in trained.module.models():
        if model.folder:
            shutil.rmtree(folder / model.folder)


def _float32_graphs(trained: Trained, scratch: Path) -> Path:
    """Return the folder of the float32 graphs. The graphs are written once per job, and used by onnx and int8."""
    published, folder = scratch / "published", scratch / "float32"
    if not folder.exists():
        published.mkdir()
        copy_model(trained.checkpoint, published)
        folder.mkdir()
        write_graphs(published, folder, trained)
    return folder


def _sequences(trained: Trained, lineage: Lineage) -> tuple[list[MaskedBatch], str | None]:
    """Return (batches, reason): batches of one held-out sequence each, masked as in the run's evaluations.

    With held-out text, the reason is None. Without it, the batches repeat one random sequence, and the reason states
    why there is no held-out text.
    """
    if isinstance(lineage.corpus, DataError):
        problem = corpus_problem(lineage)
    else:
        tokenizer = CachedTokenizer(load_vocabulary(trained.checkpoint, None))
        sampling = settings_of(lineage.recorded).phase_at(read_state(trained.checkpoint).step - 1).sampling
        batches = heldout_batches(
            lineage.corpus, tokenizer, sampling, rows=HELDOUT_ROWS, rows_per_batch=1, rank=0, world=1
        )
        if batches:
            return batches, None
        problem = "the corpus has no held-out part"
    return [
        probe(trained.model, trained.vocabulary_size, [min(128, trained.model.maximum_positions)])
    ] * HELDOUT_ROWS, problem


def _comparison(float32: MeasuredGraph, int8: MeasuredGraph, batches: list[MaskedBatch], problem: str | None) -> str:
    """Return the card's table that compares float32 and int8 graphs, and a description of the measurement."""
    term = MLM.upper()
    figures = {
        "megabytes, both graphs": [f"{m.megabytes:.1f}" for m in (float32, int8)],
        f"held-out {term} accuracy": ["not measured" if problem else f"{m.accuracy:.2%}" for m in (float32, int8)],
        f"held-out {term} loss, nats": ["not measured" if problem else f"{m.loss:.4f}" for m in (float32, int8)],
        "latency p50, ms": [f"{m.milliseconds[0]:.2f}" for m in (float32, int8)],
        "latency p99, ms": [f"{m.milliseconds[1]:.2f}" for m in (float32, int8)],
    }
    tokens, masked = sum(batch.tokens for batch in batches) / len(batches), sum(batch.masked for batch in batches)
    inputs = (
        f"{len(batches)} runs of one random sequence ({problem})"
        if problem
        else f"{len(batches)} held-out sequences with {masked:,} masked positions"
    )
    about = (
        f"Measured on {inputs}, of {tokens:.0f} tokens on average, one at a time through `fill_mask.onnx`. The two "
        f"graphs alternate. Machine: {_processor()}."
    )
    return f"{table(('', 'float32', 'int8'), [(name, *values) for name, values in figures.items()])}\n\n{about}"


def _comparison_in_a_line(float32: MeasuredGraph, int8: MeasuredGraph, problem: str | None) -> str:
    """Return the comparison in one line, for a terminal."""
    accuracy = (
        f"accuracy not measured ({problem})"
        if problem
        else f"accuracy {int8.accuracy:.2%} (float32 {float32.accuracy:.2%})"
    )
    speed = ", ".join(
        f"p{p} {of_int8:.2f} ms ({of_float32:.2f})"
        for p, of_int8, of_float32 in zip((50, 99), int8.milliseconds, float32.milliseconds, strict=True)
    )
    return f"{accuracy}, {speed}, {int8.megabytes:.1f} MB ({float32.megabytes:.1f})"


def _processor() -> str:
    """Return the number of cores and the name of the machine's processor; the card states them with measurements."""
    try:
        names = [
            line.split(":", 1)[1].strip()
            for line in storage.read_bytes("/proc/cpuinfo").decode().splitlines()
            if line.startswith("model name")
        ]
    except OSError:
        names = []
    return f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}"


FOLDERS: dict[str, Callable[[Trained, Lineage, Path, Path], Made]] = {
    "huggingface": _huggingface,
    "onnx": _onnx,
    "int8": _int8,
}
"""Kind -> function that exports it.

Arguments: the trained model, its lineage, the job's scratch folder, and the empty folder to fill. Returns a
report on the files.
"""
