"""Read BLiMP's 67 files of 1,000 minimal pairs (Warstadt et al. 2020), and download them once."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.reporting import Report

if TYPE_CHECKING:
    import requests

BASE = "https://raw.githubusercontent.com/alexwarstadt/blimp/master/data"
"""URL of the folder with the files, which the benchmark's authors publish under CC-BY 4.0."""
TIMEOUT = (10, 60)
"""Maximum seconds to connect, and between two reads."""
MOST_BYTES = 10_000_000  # maximum size of a file; the largest has 380 kB
PAIRS = 1_000
"""Pairs per paradigm."""
PARADIGMS = (
    *("adjunct_island", "anaphor_gender_agreement", "anaphor_number_agreement", "animate_subject_passive"),
    *("animate_subject_trans", "causative", "complex_NP_island", "coordinate_structure_constraint_complex_left_branch"),
    *(
        "coordinate_structure_constraint_object_extraction",
        "determiner_noun_agreement_1",
        "determiner_noun_agreement_2",
    ),
    *("determiner_noun_agreement_irregular_1", "determiner_noun_agreement_irregular_2"),
    *("determiner_noun_agreement_with_adj_2", "determiner_noun_agreement_with_adj_irregular_1"),
    *("determiner_noun_agreement_with_adj_irregular_2", "determiner_noun_agreement_with_adjective_1"),
    *("distractor_agreement_relational_noun", "distractor_agreement_relative_clause", "drop_argument"),
    *("ellipsis_n_bar_1", "ellipsis_n_bar_2", "existential_there_object_raising", "existential_there_quantifiers_1"),
    *("existential_there_quantifiers_2", "existential_there_subject_raising", "expletive_it_object_raising"),
    *("inchoative", "intransitive", "irregular_past_participle_adjectives", "irregular_past_participle_verbs"),
    *("irregular_plural_subject_verb_agreement_1", "irregular_plural_subject_verb_agreement_2"),
    *("left_branch_island_echo_question", "left_branch_island_simple_question", "matrix_question_npi_licensor_present"),
    *("npi_present_1", "npi_present_2", "only_npi_licensor_present", "only_npi_scope", "passive_1", "passive_2"),
    *("principle_A_c_command", "principle_A_case_1", "principle_A_case_2", "principle_A_domain_1"),
    *("principle_A_domain_2", "principle_A_domain_3", "principle_A_reconstruction"),
    *("regular_plural_subject_verb_agreement_1", "regular_plural_subject_verb_agreement_2"),
    *("sentential_negation_npi_licensor_present", "sentential_negation_npi_scope", "sentential_subject_island"),
    *("superlative_quantifiers_1", "superlative_quantifiers_2", "tough_vs_raising_1", "tough_vs_raising_2"),
    *("transitive", "wh_island", "wh_questions_object_gap", "wh_questions_subject_gap"),
    *("wh_questions_subject_gap_long_distance", "wh_vs_that_no_gap", "wh_vs_that_no_gap_long_distance"),
    *("wh_vs_that_with_gap", "wh_vs_that_with_gap_long_distance"),
)
SELECTIONS = {
    "all": range(10),
    "odd": (1, 3, 5, 7, 9),
    "even": (0, 2, 4, 6, 8),
    "fifth": (3, 7),
}
"""Name of a selection -> last digits of its pair numbers. "fifth" has only odd numbers, so that a recipe can be chosen
on "fifth" and reported on "even".
"""


@dataclass(frozen=True, kw_only=True)
class Paradigm:
    """The minimal pairs of one grammatical contrast, ordered by pair number."""

    name: str
    phenomenon: str
    good: tuple[str, ...]
    bad: tuple[str, ...]


def read_blimp(folder: str, report: Report, setting: str = "blimp") -> list[Paradigm]:
    """Read all paradigms from the files in a folder, or in its subfolder `data`.

    `setting` is the name of the setting that holds `folder`. If `folder` is local and does not exist, BLiMP is
    downloaded into it first. Raises DataError for a missing or damaged file or a missing pair, and the errors of
    `download`.
    """
    if not storage.exists(folder) and not is_url(folder):
        download(folder, report, setting=setting)
    names = storage.children(folder)
    if not any(f"{name}.jsonl" in names for name in PARADIGMS) and "data" in names:
        folder = storage.join(folder, "data")
        names = storage.children(folder)
    if missing := [f"{name}.jsonl" for name in PARADIGMS if f"{name}.jsonl" not in names]:
        raise DataError(
            f"{setting} {folder} lacks {len(missing)} of BLiMP's {len(PARADIGMS)} files, such as {missing[0]}: copy "
            "them into this folder, or name a folder that does not exist yet to download them into"
        )
    return [_read_paradigm(storage.join(folder, f"{name}.jsonl"), name, setting) for name in PARADIGMS]


def select(paradigms: Sequence[Paradigm], selection: str) -> list[Paradigm]:
    """Return the paradigms with only the pairs of `selection`, a key of SELECTIONS."""
    chosen = [number for number in range(PAIRS) if number % 10 in SELECTIONS[selection]]
    return [
        replace(
            paradigm,
            good=tuple(paradigm.good[number] for number in chosen),
            bad=tuple(paradigm.bad[number] for number in chosen),
        )
        for paradigm in paradigms
    ]


def sentences_of(paradigms: Sequence[Paradigm]) -> list[str]:
    """Return all sentences of the paradigms. A sentence that several pairs share is returned once."""
    return list(dict.fromkeys(text for paradigm in paradigms for text in (*paradigm.good, *paradigm.bad)))


def _read_paradigm(location: str, name: str, setting: str) -> Paradigm:
    """Read one file. Raises DataError if the file is damaged or lacks a pair."""
    try:
        lines = storage.read_at_most(location, MOST_BYTES).decode().splitlines()
        rows = [_checked_row(storage.parse_json(line)) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise DataError(
            f"{setting} {location} cannot be read ({storage.first_line(error)}): copy it again from {BASE}"
        ) from error
    pairs = {row["pairID"]: row for row in rows}
    missing = next((str(number) for number in range(PAIRS) if str(number) not in pairs), None)
    if missing is not None:
        raise DataError(f"{setting} {location} has no pair {missing} of {PAIRS:,}: copy it again from {BASE}")
    ordered = [pairs[str(number)] for number in range(PAIRS)]
    return Paradigm(
        name=name,
        phenomenon=ordered[0]["linguistics_term"],
        good=tuple(row["sentence_good"] for row in ordered),
        bad=tuple(row["sentence_bad"] for row in ordered),
    )


def _checked_row(row: Any) -> dict[str, str]:
    """Return a line's JSON value. Raises ValueError if the value is not an object with the expected text fields."""
    fields = ("sentence_good", "sentence_bad", "linguistics_term", "pairID")
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in fields):
        raise ValueError(f"a line lacks one of the fields {', '.join(fields)}")
    return row


def download(folder: str, report: Report, base: str = BASE, setting: str = "blimp") -> None:
    """Download all files into a new local folder. The folder appears only when all files are complete.

    Raises ConfigError if the folder cannot be written, DataError if a file cannot be downloaded.
    """
    # imported here, because a machine for `bench.py train` may not have requests
    import requests

    storage.require_writable(setting, str(Path(folder).parent))
    report(f"{setting}: downloading {len(PARADIGMS)} files from {base} to {folder}")
    with tempfile.TemporaryDirectory(dir=Path(folder).parent, prefix=".blimp-") as temporary:
        complete = Path(temporary) / "data"
        complete.mkdir()
        with requests.Session() as session:
            for name in PARADIGMS:
                (complete / f"{name}.jsonl").write_bytes(_download(session, f"{base}/{name}.jsonl", setting))
        try:
            os.rename(complete, folder)
        except OSError as error:
            raise ConfigError(f"{setting} {folder} cannot be written: {storage.first_line(error)}") from error


def _download(session: "requests.Session", url: str, setting: str) -> bytes:
    """Return the bytes of a small file. Raises DataError if the request fails."""
    try:
        response = session.get(url, timeout=TIMEOUT)
        response.raise_for_status()
    except OSError as error:  # all errors of requests are OSErrors
        raise DataError(
            f"{url} cannot be downloaded ({storage.first_line(error)}): copy BLiMP's files into a folder and name the "
            f"folder with --{setting}"
        ) from error
    return response.content
