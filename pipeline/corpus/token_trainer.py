"""Arguments of any trainer of Ray Train for rows of tokens, and each worker's batches."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from pyarrow.fs import FileSystem
from ray.data import DataIterator
from ray.train import Checkpoint, DataConfig

from pipeline.config.training import Batch
from pipeline.corpus.token_batches import TokenBatches, flat_arrays, padded_arrays
from pipeline.corpus.token_position import Position
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class TokenStream:
    """Rows of tokens for a trainer of Ray Train, from `pipeline.corpus.stream.token_stream`."""

    run: str
    """Folder of the trainer's run."""
    filesystem: FileSystem | None
    steps: int
    batch: Batch
    vocabulary: Vocabulary
    settings: Mapping[str, Any]
    """Settings that determine the rows of each step, by dotted name."""
    dataset_config: DataConfig
    """The trainer's `dataset_config`, which deals the stream to any number of workers."""
    stream_after: Callable[[Position], Any]
    """Builds the stream after a position."""
    slots_of_shard: Callable[[DataIterator], Iterator[pa.Table]]

    @property
    def datasets(self) -> dict[str, Callable[[], Any]]:
        """The trainer's `datasets`: the stream, named "train"."""
        return {"train": self._begun}

    def _begun(self) -> Any:
        """Return the stream after the newest checkpoint. Ray Train calls this at every start of the workers."""
        if (free := ray.available_resources().get("CPU", 0)) < 1:
            warnings.warn(
                f"{free:g} CPUs are free beside the workers, but the stream waits until one is: give workers less, as "
                'in ScalingConfig(resources_per_worker={"CPU": 0.5}), or add a machine',
                stacklevel=2,
            )
        return self.stream_after(self.newest_position())

    def newest_position(self) -> Position:
        """Return the position in the newest committed checkpoint of the run; the start if there is none.

        Raises the errors of `Position.of_metadata`.
        """
        try:
            result = ray.train.Result.from_path(self.run, self.filesystem)
        except RuntimeError:  # the run has not committed a checkpoint
            return Position()
        return self._position(result.checkpoint)

    def _position(self, checkpoint: Checkpoint | None) -> Position:
        if checkpoint is None:
            return Position()
        return Position.of_metadata(checkpoint.get_metadata(), self.settings, checkpoint.path)

    def batches(self, shard: DataIterator, *, masked: bool = False, flat: bool = False) -> TokenBatches:
        """Return this worker's batches of `ray.train.get_dataset_shard("train")`, after the newest checkpoint.

        Each iteration gives the batches of one step: a list of {name: NumPy array}, one per slot of this worker, with
        the names that models of transformers have. N is the rows of a slot, L their greatest length, T their tokens.

        - input_ids, int64 (N, L), filled up with the vocabulary's padding.
        - attention_mask, int64 (N, L): 1 for tokens, 0 for padding.
        - labels, int64 (N, L): the ids, and -100 for padding. With `masked`, input_ids have masks, and labels are the
          original ids there and -100 elsewhere.
        - Rows of two segments also have token_type_ids, int64 (N, L), and next_sentence_label or sentence_order_label,
          int64 (N,).

        With `flat`, the rows follow each other without padding: input_ids, labels and position_ids are int64 (1, T),
        and cu_seqlens, int32 (N + 1,), has the rows' offsets. The first label of a row is -100.
        """
        context = ray.train.get_context()
        padded = partial(padded_arrays, pad_id=self.vocabulary.pad_id, masked=masked)
        return TokenBatches(
            slots=self.slots_of_shard(shard),
            batch=self.batch,
            rank=context.get_world_rank(),
            world=context.get_world_size(),
            start=self._position(ray.train.get_checkpoint()),
            steps=self.steps,
            arrays=partial(flat_arrays, masked=masked) if flat else padded,
            settings=self.settings,
        )
