"""Load a model for serving, describe it, and answer the rows of requests. No Ray and no HTTP."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pipeline.config.serve import Serve, ServePlacement
from pipeline.embed.loaded import LoadedEncoder
from pipeline.embed.loaded import load as load_encoder
from pipeline.embed.model import digest_of
from pipeline.errors import CheckpointError, ConfigError, PipelineError
from pipeline.export.inference import TEXTS_AT_ONCE, batch_of, fill_masks
from pipeline.fine_tuned.answers import items_of
from pipeline.fine_tuned.decoding import answers_of, tag_probabilities_of
from pipeline.fine_tuned.published_tuned import DIGEST
from pipeline.fine_tuned.tuned import TunedModel, has_vectors
from pipeline.model.cast_once import CAST, cast_once
from pipeline.model.int8 import refuse_int8, to_int8
from pipeline.objectives.logits import compute_logits
from pipeline.predict.cross_encoder import CrossEncoder, score_pairs, scores_pairs
from pipeline.serve.onnx_encoder import use_onnx
from pipeline.serve.uses import ENCODER, SERVED, Inputs, ServedDescription, Use
from pipeline.tasks import questions, sequences, tags
from pipeline.tasks.answers import Answer
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import takes_pairs
from pipeline.tasks.prepared import Logits, Prepared
from pipeline.tasks.task import Task
from pipeline.text.splitting import CONTINUATION
from pipeline.train.hardware import NARROWER, answer_precision, autocast_of, required_device

WORD = re.compile(r"\S+")


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Reason why a request's rows cannot be answered."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A loaded model and the number format of its matrix products."""

    loaded: LoadedEncoder
    precision: str

    def answer_all(self, requests: Sequence[Inputs]) -> list[list[Any] | Refused]:
        """Return the answers to the rows of each request, in order.

        Requests of the same use are computed together. A request whose rows are invalid is refused, and does not
        disturb the others.
        """
        answered: list[list[Any] | Refused] = [[] for _ in requests]
        for use, top in dict.fromkeys((request.use, request.top) for request in requests):
            same = [number for number, request in enumerate(requests) if (request.use, request.top) == (use, top)]
            try:
                whole = self.answer(use, [row for number in same for row in requests[number].rows], top)
            except PipelineError as error:
                if len(same) == 1:
                    answered[same[0]] = Refused(reason=str(error))
                else:
                    for number in same:
                        answered[number] = self.answer_all([requests[number]])[0]
                continue
            for number in same:
                answered[number], whole = whole[: len(requests[number].rows)], whole[len(requests[number].rows) :]
        return answered

    @torch.inference_mode()
    def answer(self, use: Use, rows: Sequence[Any], top: int = 5) -> list[Any]:
        """Return one answer per row. Raises DataError for rows that the model cannot read.

        embed: float32 (dimension,), without a prompt. predict: the model's outputs, float64 (classes,), before a
        softmax. rerank: the score, a float, before a sigmoid. tags, answers and fill: a list of dictionaries.
        """
        if not rows:
            return []
        if use == "embed":
            with autocast_of(self.precision, self.loaded.device):
                return list(self.loaded.embed(rows, prompt=""))
        answers: dict[str, Callable[[], list[Any]]] = {
            "predict": lambda: list(self._intents(rows) if self._tuned.about.task.intents else self._outputs(rows)),
            "rerank": lambda: score_pairs(self._cross_encoder, rows, lambda line: None).tolist(),
            "tags": lambda: self._tags([str(row) for row in rows]),
            "answers": lambda: self._spans(rows, top),
            "fill": lambda: self._guesses([str(row) for row in rows], top),
        }
        return answers[use]()

    @property
    def _tuned(self) -> TunedModel:
        assert self.loaded.tuned is not None
        return self.loaded.tuned

    @property
    def _cross_encoder(self) -> CrossEncoder:
        """The model as `search --rerank` uses it, with the last label as the score."""
        labels = self._tuned.about.task.labels
        return CrossEncoder(
            tuned=self._tuned, label=labels[-1] if labels else None, device=self.loaded.device, precision=self.precision
        )

    def _logits(self, columns: dict[str, Sequence[Any]]) -> tuple[Task, Prepared, Logits]:
        tuned = self._tuned
        task, cutting = tuned.about.task, tuned.about.cutting
        prepared = KINDS[task.kind].prepare(task, items_of(tuned, columns), tuned.vocabulary, cutting)
        autocast = autocast_of(self.precision, self.loaded.device)
        return task, prepared, compute_logits(tuned.module, prepared.rows, self.loaded.device, autocast)

    def _outputs(self, rows: Sequence[Any]) -> np.ndarray:
        """Return the model's outputs for texts or pairs of texts, float64 (rows, classes)."""
        pairs = [row if isinstance(row, tuple) else (row, None) for row in rows]
        columns: dict[str, Sequence[Any]] = {"text": [first for first, _ in pairs]}
        if any(second is not None for _, second in pairs):
            columns["second"] = [second for _, second in pairs]
        task, prepared, logits = self._logits(columns)
        return np.asarray(sequences.answers(task, prepared, logits, self._tuned.about.cutting), np.float64)

    def _intents(self, texts: Sequence[Any]) -> np.ndarray:
        """Return the outputs of a tagger's intents, float64 (texts, intents). Words end at white space."""
        task, prepared, logits = self._logits({"words": [str(text).split() for text in texts]})
        return tags.intent_logits(task, prepared, logits).astype(np.float64)

    def _tags(self, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
        """Return the words of each text with their tags, probabilities, and offsets in characters.

        Words end at white space. A word without tokens has the probability None.
        """
        words = [[(match[0], *match.span()) for match in WORD.finditer(text)] for text in texts]
        full = [number for number, found in enumerate(words) if found]
        tagged: list[list[dict[str, Any]]] = [[] for _ in texts]
        if not full:
            return tagged
        task, prepared, logits = self._logits({"words": [[word for word, _, _ in words[number]] for number in full]})
        answers = answers_of(self._tuned.module, task, prepared, logits, self._tuned.about.cutting)
        scores = tag_probabilities_of(self._tuned.module, task, prepared, logits, answers)
        for number, answer, of_words in zip(full, answers, scores, strict=True):
            tagged[number] = [
                {"entity": tag, "score": score, "word": word, "start": start, "end": end}
                for (word, start, end), tag, score in zip(words[number], answer.tags, of_words, strict=True)
            ]
        return tagged

    def _spans(self, rows: Sequence[tuple[str, str]], top: int) -> list[list[dict[str, Any]]]:
        """Return the `top` best spans of each question's context, best first; an empty answer means "no answer"."""
        asked, contexts = zip(*rows, strict=True)
        task, prepared, logits = self._logits({"question": asked, "context": contexts})
        answers = KINDS[task.kind].answers(task, prepared, logits, self._tuned.about.cutting)
        texts = questions.texts_of(task, answers, self._tuned.about.thresholds)
        return [_best_first(answers[item.id], texts[item.id])[:top] for item in prepared.items]

    def _guesses(self, texts: Sequence[str], top: int) -> list[list[list[dict[str, Any]]]]:
        """Return, for each text and each mask token, the `top` best entries; [] for a text without a mask token."""
        loaded = self.loaded
        assert loaded.pretrained is not None
        mask = loaded.vocabulary.tokens[loaded.vocabulary.mask_id]
        guessed: list[list[list[dict[str, Any]]]] = []
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            part = list(texts[first : first + TEXTS_AT_ONCE])
            batch = batch_of(loaded.tokenizer.encode_batch(part), loaded.vocabulary.mask_id).to(loaded.device)
            with autocast_of(self.precision, loaded.device):
                found = (
                    fill_masks(loaded.pretrained, batch, loaded.vocabulary, top) if batch.masked else [[] for _ in part]
                )
            guessed += [
                [[_guess(text, mask, number, guess, loaded) for guess in best] for number, best in enumerate(of_text)]
                for text, of_text in zip(part, found, strict=True)
            ]
        return guessed


def _best_first(answer: Answer, text: str) -> list[dict[str, Any]]:
    """Return the n-best answers, first the one with `text`, which predictions give; an empty text: "no answer"."""
    spans = [
        {"answer": span.text, "score": span.probability, "start": span.start, "end": span.end} for span in answer.spans
    ]
    chosen = [span for span in spans if span["answer"] == text] or [
        {"answer": text, "score": 0.0, "start": 0, "end": 0}
    ]
    return chosen + [span for span in spans if span["answer"] != text]


def _guess(text: str, mask: str, number: int, best: dict[str, Any], loaded: LoadedEncoder) -> dict[str, Any]:
    """Return a candidate for mask token `number` of a text, with the fields of transformers' fill-mask pipeline."""
    token = str(best["token"])
    entry = loaded.vocabulary.ids[token]
    parts = text.split(mask)
    head, tail = mask.join(parts[: number + 1]), mask.join(parts[number + 1 :])
    if token.startswith(CONTINUATION):
        word, sequence = token, f"{head.rstrip()}{token.removeprefix(CONTINUATION)}{tail}"
    else:  # the decoder turns the symbols of byte-level and unigram pieces into text
        word = loaded.tokenizer.decode([entry], skip_special_tokens=False)
        sequence = f"{head}{word.strip() or token}{tail}"
    return {"score": best["probability"], "token": entry, "token_str": word, "sequence": sequence}


def _uses_of(loaded: LoadedEncoder) -> tuple[Use, ...]:
    """Return what a model can be asked; empty for a model that answers nothing."""
    if loaded.tuned is None:
        fills = loaded.pretrained is not None and "masked_token_head" not in loaded.lacks
        return (*ENCODER.uses, *(("fill",) if fills else ()))
    task, about = loaded.tuned.about.task, loaded.tuned.about
    further: list[tuple[Use, bool]] = [
        ("predict", bool(task.intents)),
        ("rerank", scores_pairs(task, published=DIGEST in about.lineage)),
        ("embed", has_vectors(about)),
    ]
    return (*SERVED[task.kind].uses, *(use for use, has in further if has))


def load(config: Serve) -> ServedModel:
    """Load the model on this process's device. It truncates texts to limits.length tokens.

    Raises CheckpointError if there is no model, and ConfigError if limits.length is more than the model's length or the
    device does not compute in the precision.
    """
    device = required_device(config.placement)
    loaded = _shortened(load_encoder(config.checkpoint, "cuda" if device.type == "cuda" else "cpu"), config)
    precision = _precision_on(device, loaded, config)
    autocast_of(precision, device)  # every batch enters it, so what it refuses is refused here
    if precision == "int8":
        refuse_int8(device)
        to_int8(loaded.encoder.layers)
    if precision in CAST:
        cast_once(loaded.encoder.layers, CAST[precision])
    if config.onnx:
        use_onnx(loaded)
    return ServedModel(loaded=loaded, precision=precision)


def _precision_on(device: torch.device, loaded: LoadedEncoder, config: Serve) -> str:
    """Return the number format of the model's products on a device."""
    if config.onnx:
        return "float32"
    return answer_precision(config.placement, _trained_in(loaded), device)


def _trained_in(loaded: LoadedEncoder) -> str | None:
    """Return the number format that a model was fine-tuned in; None if unknown."""
    return loaded.tuned.about.lineage.get("precision") if loaded.tuned else None


def _splits(loaded: LoadedEncoder) -> bool:
    """Return whether the model splits long texts, and so reads them whole."""
    if loaded.tuned is None:
        return False
    return loaded.tuned.about.cutting.passages or SERVED[loaded.tuned.about.task.kind].splits


def _length(loaded: LoadedEncoder) -> int:
    """Return the tokens that the model reads of a text that it does not split."""
    longest = loaded.embedding_length if loaded.tuned is None else loaded.tuned.about.cutting.maximum_length
    return longest or loaded.settings.maximum_positions


def _shortened(loaded: LoadedEncoder, config: Serve) -> LoadedEncoder:
    """Return the model with limits.length as its maximum length, unless it splits texts."""
    length, longest = config.limits.length, _length(loaded)
    if length is None or _splits(loaded):
        return loaded
    if length > longest:
        raise ConfigError(
            f"limits.length ({length}) must be at most {longest}, the tokens that {config.checkpoint} reads of a text"
        )
    tuned = loaded.tuned
    if tuned is not None:
        cutting = replace(tuned.about.cutting, maximum_length=length, stride=None)
        tuned = replace(tuned, about=replace(tuned.about, cutting=cutting))
    shortened = replace(loaded, recipe=replace(loaded.recipe, maximum_length=length), tuned=tuned)
    shortened.tokenizer.enable_truncation(length)  # which reads texts for fill
    return shortened


def describe_on_cpu(config: Serve) -> ServedDescription:
    """Load the model on the CPU and describe it. Its errors then appear before processes start.

    Raises ConfigError if the model answers nothing.
    """
    precision = config.placement.precision
    on_cpu = ServePlacement(device="cpu", precision="float32" if config.gpus else precision)
    served = load(replace(config, placement=on_cpu))
    if config.gpus:  # this process may lack the replicas' GPUs, and so cannot ask what they support
        if precision == "auto":
            trained = _trained_in(served.loaded)
            precision = trained if trained in NARROWER else "float32"
        served = replace(served, precision=precision)
    return describe(served, config)


def load_here(config: Serve) -> ServedModel:
    """Load the model on the device of a server in this process. Raises ConfigError if there is no such GPU."""
    if config.placement.device != "auto":
        return load(config)
    device = "cuda" if config.gpus else "cpu"
    return load(replace(config, placement=replace(config.placement, device=device)))


def describe(served: ServedModel, config: Serve) -> ServedDescription:
    """Return the description of a loaded model. Raises ConfigError if it answers nothing."""
    loaded = served.loaded
    if loaded.tuned is not None and (reason := SERVED[loaded.tuned.about.task.kind].not_served):
        raise ConfigError(f"checkpoint ({config.checkpoint}) is {reason}")
    if not _uses_of(loaded):
        raise ConfigError(f"checkpoint ({config.checkpoint}) has nothing to ask: give an encoder or a fine-tuned model")
    return _described(served, config)


def _described(served: ServedModel, config: Serve) -> ServedDescription:
    """Return the description of a loaded model."""
    loaded = served.loaded
    tuned, uses, recipe = loaded.tuned, _uses_of(loaded), loaded.recipe
    vectors = "embed" in uses
    whole = config.limits.length or config.batching.tokens
    lengths: dict[Use, int] = {"embed": loaded.embedding_length, "fill": loaded.settings.maximum_positions}
    return ServedDescription(
        checkpoint=loaded.location,
        name=config.model_name,
        kind=tuned.about.task.kind if tuned else "encoder",
        uses=uses,
        digest=digest_of(loaded),
        precision=served.precision,
        maximum_length=whole if _splits(loaded) else _length(loaded),
        lengths={use: min(config.limits.length or length, length) for use, length in lengths.items()},
        splits=_splits(loaded),
        paired=None if tuned is None or DIGEST in tuned.about.lineage else takes_pairs(tuned.about.task),
        tokenizer=loaded.tokenizer.to_str(),
        labels=tuple(tuned.about.task.intents or tuned.about.task.labels) if tuned else (),
        pooling=recipe.pooling if vectors else None,
        dimension=loaded.dimension if vectors else None,
        prompts=tuple(recipe.prompts.items()) if vectors else (),
        default_prompt=recipe.prompt(None) if vectors else "",
    )


def load_described(described: ServedDescription, config: Serve) -> ServedModel:
    """Load the described model in a replica. Raises CheckpointError if its files have changed since then."""
    device = "cuda" if config.gpus else "cpu"  # a replica without a share of a GPU may see one
    placement = replace(config.placement, device=device)
    served = load(replace(config, checkpoint=described.checkpoint, placement=placement))
    digest = digest_of(served.loaded)
    if digest != described.digest:
        raise CheckpointError(
            f"checkpoint {described.checkpoint} has changed since the server began: its digest is {digest}, and was "
            f"{described.digest}; start the server again"
        )
    return served
