"""Steps of the scripts of rehearsals: pretraining, fine-tuning, export, and a served model, in one process."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pipeline import api
from pipeline.command_line.command import Command
from pipeline.config.export import Export
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.config.serve import Serve
from pipeline.config.training import Checkpoints
from pipeline.corpus.prepared import Corpus
from pipeline.files import storage
from pipeline.finetune.trials import load_or_train, make_trial
from pipeline.grid.inputs import read_inputs
from pipeline.reporting import no_op
from pipeline.saved.run import settings_of, write_run
from pipeline.serve.model import ServedModel, load
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.run_identity import identity, save_run_vocabulary
from pipeline.workflows.export import export
from tests.conftest import TINY, Training, made_up_corpus, text_of

NO_RUN = "0" * 32


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run of pretraining."""

    folder: str
    config: Pretrain
    logged: dict[int, dict[str, float]]
    """Step -> metrics."""
    training: Training


def settings(kind: type, words: Sequence[str], default: Any = None) -> Any:
    """Return the settings of a job from the words of its command line."""
    command = Command(prog="rehearsal", about="", settings=kind)
    return command.parse(command.words(words, default), default)


def pretrain(
    words: Sequence[str],
    default: Pretrain = TINY,
    vocabulary: Vocabulary | None = None,
    corpus: Corpus | None = None,
) -> Run:
    """Train on a corpus, which is made up if it is None, and write the folder of the run as a job does."""
    torch.set_num_threads(1)
    corpus = corpus or _with_manifest(made_up_corpus(_new("corpus")))
    vocabulary = vocabulary or train_vocabulary(map(text_of, range(30)), size=120, lowercase=True)
    config = settings(Pretrain, words, default)
    config = replace(config, model=config.model.for_padding(vocabulary.pad_id), checkpoint=Checkpoints(every=1_000))
    training, folder, logged = Training(corpus=corpus, vocabulary=vocabulary), _new("runs/tiny"), {}
    training.run(config, folder, logged)
    save_run_vocabulary(str(folder), vocabulary, config.model.maximum_positions)
    wanted = identity(config, corpus, vocabulary)
    write_run(str(folder), wanted, config.steps, NO_RUN, corpus.folder)
    again = settings_of({"identity": wanted, "steps": config.steps})
    assert (again.objective, again.sampling, again.model) == (config.objective, config.sampling, config.model)
    return Run(folder=str(folder), config=config, logged=logged, training=training)


def _with_manifest(corpus: Corpus) -> Corpus:
    """Write the manifest of a corpus, so that a job finds it, and return the corpus."""
    windows = {
        split: [[w.shard, w.row_group, w.documents, w.characters] for w in there]
        for split, there in (("train", corpus.train), ("heldout", corpus.heldout))
    }
    about = {"fingerprint": corpus.fingerprint, "counts": {"documents": 30}, "dropped": {}, "sources": {}}
    storage.write_json(f"{corpus.folder}/{storage.MANIFEST}", about | windows)
    return corpus


def losses(run: Run, term: str) -> tuple[float, float]:
    """Return the mean training loss of a term in the first and in the last four logged steps."""
    values = [metrics[term] for _, metrics in sorted(run.logged.items()) if term in metrics]
    return sum(values[:4]) / 4, sum(values[-4:]) / 4


def exported(model: str, name: str = "exported") -> str:
    """Export a run or a fine-tuned model in the published format to a folder of this name; return where it is."""
    export(Export(run=model, folder=name), no_op)
    return str(Path(name, "huggingface").absolute())


def opened(location: str) -> api.LoadedModel:
    """Load an exported model."""
    return api.load(location, device="cpu")


def fine_tune(words: Sequence[str]) -> tuple[dict[str, float], str]:
    """Train one trial of a job of fine-tuning; return its scores on the development rows, and its model's folder."""
    config = settings(Finetune, [*words, "--output", "."])
    inputs = read_inputs(with_absolute_locations(config), no_op)
    (problem,) = inputs.problems.values()
    trial = make_trial(inputs.config, problem, inputs.initial, 0, inputs.settings[0], "report")
    result = load_or_train(trial, problem, inputs.initial)
    return result["scores"]["dev"], f"{trial.folder}/model"


def served(location: str) -> ServedModel:
    """Load a model as a server does."""
    return load(Serve(checkpoint=location))


def _new(name: str) -> Path:
    """Make a folder in the working folder."""
    folder = Path(name).absolute()
    folder.mkdir(parents=True)
    return folder
