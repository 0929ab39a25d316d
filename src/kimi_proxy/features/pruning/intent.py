"""What a goal wants done, by its verbs and nouns: lines of another kind answer when documentation is asked for."""

import re
from collections.abc import Mapping

import numpy as np

from kimi_proxy.features.pruning.columns import Floats
from kimi_proxy.features.pruning.terms import fold

GOAL_CHARS = 1000

_INTENTS: Mapping[str, re.Pattern[str]] = {
    f"wants_{name}": re.compile(rf"\b(?:{words})")
    for name, words in {
        "words": "typo|doc|comment|spell|grammar|wording|readme|javadoc|example|clarif|explain|mention|explique",
        "imports": "import|includ|depend|header|requir|module|package|paquet",
        "types": r"typ(?:e|ing)|annotation|signature|generic|lint|clippy|mypy|overload",
        "messages": "messag|log|warn|error|text|string|print|output|display|format|erreur|affich",
        "tests": "test|assert|bench|coverage|spec",
        "less": "remov|drop|delet|unused|dead|redundan|clean|simplif|deprecat|supprim|retir",
        "more": "add|support|implement|introduc|allow|new|option|feature|ajout|permet",
        "other_names": r"renam|mov|refactor|extract|replac|use\b|renomm|deplac|remplac",
        "repair": "fix|bug|crash|leak|race|wrong|incorrect|handl|avoid|prevent|issue|fail|corrig|plant|echou|echec",
        "speed": "perf|optimi|fast|speed|cache|alloc|memor|rapid|lent",
        "values": "version|default|constant|limit|size|value|timeout|number|valeur|taille|nombre|delai",
    }.items()
}


def measure(goal: str, line_count: int) -> dict[str, Floats]:
    asked = fold(goal[:GOAL_CHARS])
    return {name: np.full(line_count, float(words.search(asked) is not None)) for name, words in _INTENTS.items()}
