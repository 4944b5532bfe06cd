"""Places of published names, family names and loss terms, read from the source, and tables by kind."""

import re
from pathlib import Path
from typing import get_args

from pipeline.config.model import FAMILY_PARTS, FamilyName
from pipeline.config.objective import Objective
from pipeline.model.families.table import FAMILIES
from pipeline.objectives.table import OBJECTIVES

ROOT = Path(__file__).parents[3]
SOURCES = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "pipeline").rglob("*.py"))}
FAMILY_FILES, OBJECTIVE_FILES = "pipeline/model/families/", "pipeline/objectives/"
PUBLISHED = re.compile(
    r"\b(bert|roberta|electra|distilbert|albert|deberta|longformer)\.(embeddings|encoder|pooler|transformer)"
    r"|\bcls\.(predictions|seq)|\b(lm|mask)_predictions\b"
    r"|\blm_head\b|\bqa_(outputs|classifier)\b"
    r"|\bclassifier\.(dense|out_proj|weight|bias)|\b(generator|discriminator)_predictions\b|\bgenerator_lm_head\b"
    r"|\bembeddings_project\b|\b(vocab_(transform|layer_norm|projector)|pre_classifier)\b"
    r"|\bsop_classifier\b|\balbert_layer|\btok_embeddings\b|\bWqkv\b"
    r"|\b(Bert|(XLM)?Roberta|ModernBert|Electra|DistilBert|Albert|Deberta(V2)?|Longformer|BigBird)"
    r"(For|Model|Config|Tokenizer)\w*"
)
"""Names of tensors and classes in published files."""
MAY_PUBLISHED = {
    "pipeline/text/vocabulary_saving.py": {"BertTokenizer", "RobertaTokenizer"},
}
"""File -> names that it may have: tokenizers are the vocabulary's, and text does not know the model."""
TERMS = re.compile(r"(?<![a-z])(mlm|nsp|sop)(?![a-z])|(?<![a-z])replaced_(loss|accuracy|recall|share)\b")
"""Names of loss terms and of scores."""
MAY_TERMS = {"pipeline/bench/text.py": {"mlm"}, "pipeline/model/families/albert.py": {"sop"}}
"""File -> names that it may have: arguments of transformers' own collator, and published names."""


def found(pattern: re.Pattern[str], home: str, allowed: dict[str, set[str]]) -> dict[str, set[str]]:
    """Names outside of their home and the files that may have them."""
    names = {
        file: {match[0] for match in pattern.finditer(text)} - allowed.get(file, set())
        for file, text in SOURCES.items()
        if not file.startswith(home)
    }
    return {file: there for file, there in names.items() if there}


def test_published_names_stand_in_the_files_of_families_alone() -> None:
    assert found(PUBLISHED, FAMILY_FILES, MAY_PUBLISHED) == {}
    assert len([file for file in SOURCES if file.startswith(FAMILY_FILES) and PUBLISHED.search(SOURCES[file])]) == 11


def test_terms_stand_in_the_files_of_objectives_alone() -> None:
    assert found(TERMS, OBJECTIVE_FILES, MAY_TERMS) == {}
    assert TERMS.search(SOURCES["pipeline/objectives/masked.py"])


def test_parts_of_the_model_name_no_family() -> None:
    named = re.compile(
        r"family|[\"'](bert|roberta|electra|distilbert|albert|xlm-roberta|modernbert|longformer|bigbird)[\"']"
    )
    files = (
        *("encoder", "embeddings", "attention", "heads", "sampling", "rotary", "windows", "global_local"),
        *("block_sparse", "random_blocks"),
    )
    assert [file for file in files if named.search(SOURCES[f"pipeline/model/{file}.py"])] == []


def test_tables_have_a_row_for_each_family_and_objective() -> None:
    names = set(get_args(FamilyName))
    assert set(FAMILIES) == set(FAMILY_PARTS) == names
    assert all(family.name == name for name, family in FAMILIES.items())
    files = {Path(file).stem for file in SOURCES if file.startswith(FAMILY_FILES)} - {"__init__", "table", "own"}
    assert {file.replace("_", "-") for file in files} == names
    assert set(OBJECTIVES) == set(get_args(Objective))
