"""Table of families: the published architectures by name."""

from dataclasses import replace

from pipeline.config.model import Model
from pipeline.model.families.albert import ALBERT
from pipeline.model.families.bert import BERT
from pipeline.model.families.bigbird import BIGBIRD
from pipeline.model.families.deberta import DEBERTA
from pipeline.model.families.deberta_v2 import DEBERTA_V2
from pipeline.model.families.distilbert import DISTILBERT
from pipeline.model.families.electra import ELECTRA
from pipeline.model.families.longformer import LONGFORMER
from pipeline.model.families.modernbert import MODERNBERT
from pipeline.model.families.own import OWN
from pipeline.model.families.roberta import ROBERTA
from pipeline.model.families.xlm_roberta import XLM_ROBERTA
from pipeline.model.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *(BERT, ROBERTA, ELECTRA, DISTILBERT, ALBERT, XLM_ROBERTA, MODERNBERT, DEBERTA, DEBERTA_V2),
        *(LONGFORMER, BIGBIRD),
    )
}
MODEL_TYPES: dict[str, Family] = {family.fixed["model_type"]: family for family in (*FAMILIES.values(), OWN)}
"""model_type of config.json -> its family."""


def family_of(settings: Model) -> Family:
    """Return the family that a model's settings name, or OWN for a BERT with other parts."""
    family = FAMILIES[settings.family] if settings.is_published else OWN
    return replace(family, heads_alternating=settings.heads) if family.alternates_heads else family
