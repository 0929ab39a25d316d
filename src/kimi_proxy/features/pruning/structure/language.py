"""Guessing the language of a text from its words alone."""

import re
from collections.abc import Sequence

from kimi_proxy.features.pruning.structure import syntax

SAMPLE_LINES = 400
TRIAL_LINES = 200
LINE_CHARS = 120

_SHEBANG = re.compile(r"#!\s*\S*?(?:/|env\s+(?:-S\s+)?)(python|node|deno|bun|ruby|php|bash|sh|zsh|dash|ksh)\b")
_SHELLS = {"sh": "bash", "zsh": "bash", "dash": "bash", "ksh": "bash", "bash": "bash"}
_RUNTIMES = {"node": "javascript", "deno": "typescript", "bun": "typescript"}

# Words that open a line in one language and seldom in another, with what a match is worth.
_CLUES: dict[str, tuple[tuple[int, str], ...]] = {
    "python": (
        (4, r"^\s*(?:async\s+)?def\s+\w+\s*\(.*:\s*(?:#.*)?$"),
        (3, r"^\s*from\s+[\w.]+\s+import\s"),
        (3, r"^\s*class\s+\w+(?:\(.*\))?:\s*$"),
        (3, r"^\s*@\w[\w.]*(?:\(.*\))?\s*$(?=\n\s*(?:async\s+)?(?:def|class|@)\b)"),
        (2, r"^import\s+[\w.]+(?:\s+as\s+\w+)?(?:,\s*[\w.]+)*\s*$"),
        (1, r"^\s*(?:if|elif|for|while|with|try|except|else|finally)\b.*:\s*$"),
        (1, r"^\s*(?:\"\"\"|self\.\w+\s*=)"),
        (2, r"^\s*(?:async\s+)?def\s+\w+\s*\($"),
    ),
    "javascript": (
        (3, r"^\s*(?:const|let|var)\s+[\w${][^=\n]*=\s*(?:await\s+)?require\("),
        (3, r"^\s*(?:export\s+)?(?:default\s+)?(?:async\s+)?function\s*\*?\s*\w*\s*\("),
        (2, r"^\s*import\s+(?:[\w{*].*\s+from\s+)?['\"]"),
        (1, r"^\s*(?:const|let|var)\s+[\w${\[]"),
        (2, r"=>\s*[{(]?\s*$"),
        (2, r"^\s*(?:module\.)?exports\b"),
        (2, r"^\s*export\s+(?:default|const|\{|\*)"),
        (2, r"===|!=="),
        (1, r"^\}\)?;?\s*$|\bfunction\s*\("),
        (2, r"\b(?:describe|it|test)\(['\"`]"),
    ),
    "typescript": (
        (4, r"^\s*(?:export\s+)?(?:declare\s+)?(?:interface|type)\s+\w+(?:<[^\n]*>)?\s*(?:=|\{|extends)"),
        (4, r"^\s*import\s+type\s|^\s*export\s+type\s"),
        (3, r"^\s*(?:public|private|protected|readonly)\s+(?:async\s+|static\s+|readonly\s+)*\w+[?!]?\s*[(:]"),
        (2, r"\w[?!]?:\s*(?:string|number|boolean|unknown|void|any|never|Promise<|Record<|\w+\[\])\b"),
        (2, r"\)\s*:\s*[\w<>\[\]|. ]+\s*(?:=>|\{)\s*$"),
        (2, r"\bas\s+(?:const|unknown|any|[A-Z]\w*)\b"),
    ),
    "go": (
        (8, r"^package\s+\w+\s*$"),
        (4, r"^func\s+(?:\([^)]*\)\s*)?\w+(?:\[[^\]]*\])?\("),
        (3, r"^type\s+\w+\s+(?:struct|interface|func)\b"),
        (2, r":=\s"),
        (3, r"^import\s+(?:\(|\")"),
        (3, r"\bif err != nil\b"),
    ),
    "rust": (
        (4, r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+|async\s+|unsafe\s+|extern\s+\"C\"\s+)*fn\s+\w+"),
        (4, r"^\s*(?:pub\s+)?use\s+(?:\w+|\{)(?:::.*)?;?\s*$"),
        (4, r"^\s*impl\b(?:<.*>)?\s+\S"),
        (4, r"^\s*#!?\[\w+"),
        (3, r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|mod)\s+\w+"),
        (2, r"\blet\s+(?:mut\s+)?\w+|&mut\s|&self\b|\bmatch\s.*\{\s*$"),
        (1, r"\w+!\(|::<|->\s*(?:Result|Option|Self)\b"),
    ),
    "java": (
        (8, r"^package\s+[\w.]+;"),
        (4, r"^import\s+(?:static\s+)?[\w.]+(?:\.\*)?;"),
        (
            3,
            r"^\s*(?:public|private|protected)\s+(?:(?:static|final|abstract|synchronized)\s+)*[\w<>\[\], ?.]+\s+\w+\s*\(",
        ),
        (
            3,
            r"^\s*(?:public\s+|private\s+|protected\s+)?(?:(?:static|final|abstract|sealed)\s+)*(?:class|interface|enum|record)\s+\w+",
        ),
        (2, r"^\s*@(?:Override|Test|Deprecated|Nullable|SuppressWarnings|Autowired|Inject)\b"),
        (1, r"^\s*(?:private|protected|public)\s+(?:static\s+)?final\s"),
    ),
    "c": (
        (4, r"^\s*#\s*include\s*[<\"][^>\"\n]*\.h[>\"]"),
        (2, r"^\s*#\s*(?:define|ifdef|ifndef|endif|undef|pragma)\b"),
        (3, r"^\s*typedef\s+(?:struct|enum|union|unsigned|int)\b"),
        (
            2,
            r"^(?:static\s+|inline\s+|extern\s+|const\s+)*(?:void|int|char|size_t|bool|unsigned|struct\s+\w+|\w+_t|double|float|long)\s*\**\s*\w+\s*\(",
        ),
        (1, r"->\w+|\bNULL\b|\bsizeof\b|\b(?:malloc|free|printf|memcpy|strlen)\("),
    ),
    "cpp": (
        (5, r"^\s*#\s*include\s*<(?:\w+|bits/[^>]*|boost/[^>]*|[\w/]+\.hpp)>"),
        (4, r"^\s*template\s*<"),
        (4, r"^\s*(?:inline\s+)?namespace(?:\s+[\w:]+)?\s*\{"),
        (3, r"^\s*(?:class|struct)\s+(?:\w+\s+)?\w+(?:\s*:\s*(?:public|private|protected)\b.*)?\s*\{?\s*$"),
        (3, r"^\s*(?:public|private|protected)\s*:\s*$"),
        (2, r"\bstd::|\bstatic_cast<|\bconstexpr\b|\bnoexcept\b|\bnullptr\b|^\s*using\s+\w"),
        (1, r"\w+::\w+"),
        (2, r"^\s*#\s*include\s*\""),
        (2, r"^\s*#\s*(?:define|ifdef|ifndef|endif|undef|pragma)\b"),
    ),
    "csharp": (
        (5, r"^\s*(?:global\s+)?using\s+(?:static\s+)?[A-Z][\w.]*(?:\s*=\s*[\w.<>]+)?;"),
        (5, r"^\s*namespace\s+[A-Z][\w.]*\s*[;{]?\s*$"),
        (3, r"\{\s*get;(?:\s*(?:private|protected|internal|init|set)\b.*)?|\bget\s*=>"),
        (
            3,
            r"^\s*(?:public|private|protected|internal)\s+(?:(?:static|async|override|virtual|readonly|sealed|abstract|partial)\s+)*[\w<>\[\], ?.]+\s+\w+",
        ),
        (3, r"^\s*///\s*<summary>|^\s*#(?:region|nullable)\b"),
        (2, r"^\s*\[\w+(?:\(.*\))?\]\s*$"),
        (1, r"\bvar\s+\w+\s*=|\bawait\s|\bstring\.|\?\?="),
    ),
    "ruby": (
        (4, r"^\s*def\s+(?:self\.)?\w+[?!=]?(?:\(.*\)|\s+\w[^:]*)?\s*$"),
        (4, r"^\s*require(?:_relative)?\s+['\"]"),
        (3, r"^\s*(?:class\s+[A-Z][\w:]*(?:\s*<\s*[\w:]+)?|module\s+[A-Z][\w:]*)\s*$"),
        (3, r"^\s*attr_(?:reader|writer|accessor)\s"),
        (3, r"\bdo\s*(?:\|[^|\n]*\|)?\s*$"),
        (1, r"^\s*end\s*$"),
        (1, r"^\s*(?:unless|elsif|rescue|ensure|puts)\b|@\w+\s*(?:\|\|)?=\s"),
    ),
    "php": (
        (20, r"<\?php|<\?="),
        (3, r"\$this->|\$\w+\s*=\s|\$\w+->"),
        (3, r"^\s*namespace\s+[A-Z][\w\\]*;|^\s*use\s+[A-Z]\w*\\[\w\\]*"),
        (3, r"^\s*(?:(?:public|private|protected|static|abstract|final)\s+)*function\s+&?\w+\s*\([^)\n]*(?:\$|\))"),
    ),
    "bash": (
        (3, r"^\s*(?:function\s+)?[\w-]+\s*\(\)\s*\{?\s*$"),
        (2, r"^\s*(?:fi|done|esac)\b|;\s*(?:then|do)\s*$|^\s*(?:then|do)\s*$"),
        (2, r"^\s*(?:if|while|elif)\s+(?:\[|!\s|test\s|command\s)"),
        (2, r"^\s*(?:export|local|readonly|declare)\s+\w+(?:=|\s*$)"),
        (2, r"^\s*set\s+-[eux]|^\s*(?:echo|exit|source|shift|trap)\s"),
        (1, r"\$\{\w|\"\$\w+\"|\$\(|\$[@#?1-9]"),
        (1, r"^[A-Z_]+=\S"),
    ),
}


def _within_a_line(pattern: str) -> re.Pattern[str]:
    r"""`\s` must not run over the end of a line: on blank text that would take quadratic time."""
    return re.compile(pattern.replace(r"\s", r"[^\S\n]"), re.MULTILINE)


_PATTERNS = {
    name: tuple((worth, _within_a_line(pattern)) for worth, pattern in clues) for name, clues in _CLUES.items()
}
_MARKUP = _within_a_line(r"(?:return|=>|[=(?:])\s*\(?\s*<[A-Za-z>][^\n]*>\s*$|^\s*</[A-Za-z]|/>\s*$")


def guess(lines: Sequence[str]) -> str:
    """The language of `lines`, or "" when none of ours fits."""
    by_shebang = _shebang(lines[0]) if lines else ""
    if by_shebang:
        return by_shebang
    sample = "\n".join(line[:LINE_CHARS] for line in _sample(lines))
    worth = _worth(sample)
    ranked = sorted(worth, key=lambda name: (-worth[name], name))
    best, second = ranked[0], ranked[1]
    if worth[best] < 3:
        return ""
    if worth[second] * 2 >= worth[best]:
        best = _fewer_errors(lines, best, second)
    return _dialect(best, sample, worth)


def _shebang(line: str) -> str:
    found = _SHEBANG.match(line[:LINE_CHARS])
    if found is None:
        return ""
    return _SHELLS.get(found[1]) or _RUNTIMES.get(found[1]) or found[1]


def _sample(lines: Sequence[str]) -> Sequence[str]:
    """The head, where imports are, and as much again from the middle, past any licence."""
    if len(lines) <= SAMPLE_LINES:
        return lines
    half = SAMPLE_LINES // 2
    middle = len(lines) // 2
    return [*lines[:half], *lines[middle : middle + half]]


def _worth(sample: str) -> dict[str, int]:
    worth = {
        name: sum(points * len(pattern.findall(sample)) for points, pattern in clues)
        for name, clues in _PATTERNS.items()
    }
    # TypeScript is JavaScript and more: its own clues decide between the two later.
    worth["javascript"] += worth.pop("typescript")
    return worth


def _fewer_errors(lines: Sequence[str], best: str, second: str) -> str:
    trial = [line[:2000] for line in lines[:TRIAL_LINES]]
    return best if syntax.error_rows(trial, best) <= syntax.error_rows(trial, second) else second


def _dialect(name: str, sample: str, worth: dict[str, int]) -> str:
    if name != "javascript":
        return name
    own = sum(points * len(pattern.findall(sample)) for points, pattern in _PATTERNS["typescript"])
    if own < 3 or own * 20 < worth[name]:
        return "javascript"
    return "tsx" if _MARKUP.search(sample) else "typescript"
