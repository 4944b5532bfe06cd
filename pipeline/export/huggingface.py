"""Export a trained encoder in the published format: a folder that transformers loads with from_pretrained."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from pipeline.batch import MaskedBatch
from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.errors import CheckpointError
from pipeline.export.card import Lineage, Made, card
from pipeline.export.probe import TOLERANCE, difference, padded, probes
from pipeline.export.sentence_files import sentence_files
from pipeline.export.trained import Trained, load_module, load_trained
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.model.families.table import family_of
from pipeline.saved.checkpoints import CARD
from pipeline.saved.model import open_saved
from pipeline.saved.pooling import DENSE, exported_length, pooling_of, prompts_of
from pipeline.saved.run import settings_of
from pipeline.train.checkpoint import TRAINING_ONLY

INSTALL = "pip install 'bertstream[export]'"
FILLING = """Fill blanks with `transformers`:

```python
from transformers import pipeline

fill = pipeline("fill-mask", model="FOLDER"SUBFOLDER)
print(fill("A text with a [MASK] in it."))
```

"""
"""Usage of a model that fills blanks, before USE."""
USE = """Compute vectors (VECTOR, scaled to length 1) with `sentence-transformers`:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
print(model.encode(["A first text.", "A second one."]).shape)
```

Do so with `bertstream`, which also fine-tunes on lists of texts and labels:

```python
from pipeline import api

model = api.load("PLACE")
FILLprint(model.embed(["A first text.", "A second one."]).shape)
```"""
"""Usage of a folder in the published format, with these placeholders:

FOLDER      the folder, in calls of transformers
PLACE       the folder, in calls of pipeline.api
SUBFOLDER   an argument with the subfolder of the model that fills blanks, or nothing
VECTOR      the pooling
FILL        a line that fills a blank, or nothing if the model does not fill blanks
"""
FILL_LINE = 'print(model.fill("A text with a [MASK] in it."))\n'
NO_ARCHITECTURE = "`transformers` cannot load this model, because it has no such architecture"
"""Reason for a model whose parts are of no published architecture."""
OF_OURS = """Compute vectors (VECTOR, scaled to length 1) with `bertstream`. REASON:

```python
from pipeline import api

model = api.load("PLACE")
print(model.embed(["A first text.", "A second one."]).shape)
```"""
"""Usage of a model that only bertstream loads, with the placeholders of USE, and REASON for the reason."""
LONG_TEXTS = """In a text of more than LENGTH tokens, tokens also attend to random blocks, the same in training and in
evaluation. `transformers` has these blocks in training only, and replaces them by the first block in evaluation, so its
states of long texts differ. `bertstream` computes those of training."""
"""Section of the card, with the placeholder LENGTH: the tokens of the longest text with full attention."""
NO_POOLING = "`sentence-transformers` cannot load this model, because it has no such pooling"
VECTORS = {
    "mean": "the mean of the last hidden states",
    "cls": "the last hidden state of [CLS]",
    "attention": "a mean of the last hidden states with learned weights",
}
"""Pooling -> its description."""
Logits = Callable[[MaskedBatch], dict[str, Tensor]]
"""Function from a batch to logits by head, such as an objective's `outputs`."""


def export(checkpoint: str, target: str, lineage: Lineage) -> str:
    """Publish a checkpoint's model, tokenizer and card to `target`, and return a description of the check.

    Raises CheckpointError if the checkpoint is damaged, or if the exported model's logits differ from the checkpoint's.
    """
    trained = load_trained(checkpoint)
    with scratch_folder("export") as temporary:
        made = write_published(trained, lineage, temporary)
        (temporary / CARD).write_text(card(trained, lineage, "huggingface", made), "utf-8")
        storage.publish(temporary, target, {"checkpoint": checkpoint})
    return made.checked


def write_published(trained: Trained, lineage: Lineage, folder: Path) -> Made:
    """Write the published format and the files of sentence-transformers to an empty folder, and check them.

    Raises CheckpointError if the logits differ from the checkpoint's.
    """
    copy_model(trained.checkpoint, folder)
    settings = settings_of(lineage.recorded)
    pooling = pooling_of(settings)
    projected = (folder / DENSE).exists()
    files = sentence_files(
        trained.model.width, exported_length(settings), pooling, projected=projected, prompts=prompts_of(settings)
    )
    for name, content in files.items():
        storage.write_bytes(str(folder / name), content.encode())
    published = family_of(trained.model).in_transformers
    reason = NO_POOLING if published else NO_ARCHITECTURE
    ours = pooling == "attention" or not published
    use = OF_OURS.replace("REASON", reason) if ours else _usage(trained)
    return Made(
        checked=check(folder, trained),
        use=use.replace("VECTOR", VECTORS[pooling] + ", projected" * projected),
        library="transformers" if published else "bertstream",
        tags=() if ours else ("sentence-transformers",),
        extra=_long_texts(trained.model) if published else (),
    )


def _long_texts(model: Model) -> tuple[str, ...]:
    """Return a section about texts whose states differ in transformers, if the model has block-sparse attention."""
    if not isinstance(model.attention, BlockSparseAttention):
        return ()
    return ("## Long texts", LONG_TEXTS.replace("LENGTH", str(model.attention.longest_full)))


def _usage(trained: Trained) -> str:
    """Return USE for a model, after FILLING if the model fills blanks."""
    masked = [model.folder for model in trained.module.models() if model.use == "masked"]
    if not masked:
        return USE.replace("FILL", "")
    subfolder = f', model_kwargs={{"subfolder": "{masked[0]}"}}' if masked[0] else ""
    if trained.module.publishes_hidden_states:  # transformers has no enhanced mask decoder
        return USE.replace("FILL", FILL_LINE)
    both = (FILLING + USE).replace("Do so with", "Do both with")
    return both.replace("SUBFOLDER", subfolder).replace("FILL", FILL_LINE)


def copy_model(checkpoint: str, folder: Path) -> None:
    """Copy those files of a checkpoint that belong to the published format to a local folder."""
    for name in storage.read_json(storage.join(checkpoint, storage.MANIFEST))["files"]:
        if name not in TRAINING_ONLY:
            (folder / name).parent.mkdir(exist_ok=True)
            storage.copy_file(storage.join(checkpoint, name), f"{folder}/{name}")


def check(folder: Path, trained: Trained) -> str:
    """Load an exported folder, compare its logits with the checkpoint's, and return a description of the check.

    The folder is loaded with transformers or, if transformers is not installed or does not have the architecture, with
    our code. Raises CheckpointError if the logits differ by more than TOLERANCE.
    """
    published = family_of(trained.model).in_transformers
    installed = published and importlib.util.find_spec("transformers") is not None
    theirs = (
        published_logits(folder, trained)
        if installed
        else load_module(open_saved(str(folder), verify=False))[0].outputs
    )
    largest = largest_difference(theirs, trained)
    if not largest <= TOLERANCE:
        raise CheckpointError(
            f"export {folder}: {'transformers' if installed else 'our'} logits differ from the checkpoint's by "
            f"{largest:.2g} of the largest, more than {TOLERANCE}"
        )
    if not published:
        return "not checked against transformers, which has no such architecture: only bertstream loads this model"
    compared = "hidden states" if trained.module.publishes_hidden_states else "logits"
    if not trained.module.has_published_head:
        compared = "the model's hidden states and its generator's logits"
    attention = trained.model.attention
    if isinstance(attention, BlockSparseAttention):
        compared += f" of texts of up to {attention.longest_full} tokens"
    return (
        f"checked: {compared} equal transformers' within {TOLERANCE} of the largest"
        if installed
        else f"checked: read again, its {compared} are equal within {TOLERANCE} of the largest; to compare them with "
        f"transformers': {INSTALL}"
    )


def largest_difference(theirs: Logits, trained: Trained) -> float:
    """Return the largest difference between `theirs` and the checkpoint's logits, in float32.

    The difference is relative to the largest logit, or to 1 if the largest logit is below 1.
    """
    differences = []
    with torch.inference_mode():
        for batch in probes(trained.model, trained.vocabulary_size):
            their_logits, our_logits = theirs(batch), trained.module.published_outputs(batch)
            differences += [difference(their_logits[head], logits) for head, logits in our_logits.items()]
    return torch.tensor(differences).max().item()


def published_logits(folder: Path, trained: Trained) -> Logits:
    """Load a folder's models with transformers; return a function from a batch to logits by name of head.

    The heads have the same names as in our module. Where transformers does not have the head, the function returns
    hidden states.
    """
    from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    module = trained.module
    if module.publishes_hidden_states:
        encoder = AutoModel.from_pretrained(folder).eval()

        def hidden(batch: MaskedBatch) -> dict[str, Tensor]:
            inputs = padded(batch, trained.model)
            return {"hidden": encoder(**inputs).last_hidden_state[inputs["attention_mask"].bool()]}

        return hidden
    folders = {model.use: folder / model.folder for model in module.models()}
    pair_logits = family_of(trained.model).pair_logits
    masked = AutoModelForMaskedLM.from_pretrained(folders["masked"]).eval()
    headless = not module.has_published_head
    more_heads = pair_logits or "replaced" in folders
    whole = (AutoModel if headless else AutoModelForPreTraining).from_pretrained(folder).eval() if more_heads else None

    def logits(batch: MaskedBatch) -> dict[str, Tensor]:
        inputs = padded(batch, trained.model)
        real = inputs["attention_mask"].bool()
        outputs = {"masked": masked(**inputs).logits[real]}
        output = whole(**inputs) if whole else None
        if output is not None and pair_logits:
            outputs["pairs"] = output[pair_logits]
        if output is not None and headless:
            outputs["hidden"] = output.last_hidden_state[real]
        elif output is not None and "replaced" in folders:
            outputs["replaced"] = output.logits[real]
        return outputs

    return logits
