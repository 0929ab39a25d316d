"""Language hints: the first word of a line with the shape of its rest, and strings that one language has."""

import re
from collections.abc import Sequence

from kimi_proxy.features.pruning.structure import syntax

# Per language: what a match is worth, the words that open the line, and what must follow them.
# One pattern per line of code at most is tried, so a guess costs a microsecond a line.
_OPENERS: dict[str, tuple[tuple[int, str, str], ...]] = {
    "python": (
        (4, "def async", r"(?:async +)?def +\w+ *\(.*:(?: *#.*)?$|(?:async +)?def +\w+ *\($"),
        (4, "from", r"from +[\w.]+ +import\b"),
        (3, "class", r"class +\w+(?:\(.*\))? *:"),
        (2, "import", r"import +[\w.]+(?: +as +\w+)?(?:, *[\w.]+)*$"),
        (2, "if elif for while with except", r"\w+ .*:(?: *#.*)?$"),
        (2, "try else finally", r"\w+ *:$"),
        (1, "self", r"self\.\w+"),
        (2, "raise assert pass yield del nonlocal", r"\w+(?: +\w|$)(?!.*;$)"),
    ),
    "javascript": (
        (4, "const let var", r"\w+ +[\w${].*= *(?:await +)?require\("),
        (2, "const let var", r"\w+ +[\w${\[].*="),
        (4, "export", r"export +(?:default|const|async|function|class|\{|\*)"),
        (3, "import", r"import +(?:type +)?(?:[\w{*].* from +)?['\"]|import +(?:type +)?\{"),
        (3, "function async", r"(?:async +)?function *\*? *\w* *\([^$:]*\) *\{"),
        (3, "module exports", r"(?:module\.)?exports\b"),
        (3, "describe it test expect beforeEach", r"\w+\(.*"),
        (2, "console document window", r"\w+\.\w+"),
        (2, "if else return", r".*(?:===|!==)"),
    ),
    "typescript": (
        (4, "interface type export declare", r"(?:export +)?(?:declare +)?(?:interface|type) +\w+.*(?:=|\{|extends)"),
        (4, "import export", r"\w+ +type +"),
        (3, "public private protected readonly",
         r"\w+ +(?:(?:async|static|readonly|get|set) +)*\w+[?!]? *[(:].*(?:[{;,]|\()$"),
        (2, "const let", r"\w+ +\w+ *: *[\w<{\[]"),
        (2, "export function async", r".*\) *: *[\w<>\[\]|. ]+ *\{$"),
        (2, "constructor", r"constructor\( *(?:private|public|protected|readonly)"),
    ),
    "go": (
        (4, "func", r"func +(?:\([^)]*\) *)?\w+(?:\[[^\]]*\])?\("),
        (4, "type", r"type +\w+ +(?:struct|interface|func|map|\[\])"),
        (4, "import", r"import +(?:\(|\"|\w+ +\")"),
        (3, "if", r"if +(?:.*; *)?err +!= +nil\b"),
        (2, "defer go", r"\w+ +[\w.]+(?:\(|\{)"),
        (1, "var const", r"\w+ +(?:\($|\w+ +[\w.*\[\]]+(?: *=|$))"),
    ),
    "rust": (
        (4, "pub fn async unsafe const extern",
         r"(?:pub(?:\([^)]*\))? +)?(?:(?:const|async|unsafe|extern(?: +\"C\")?) +)*fn +\w+"),
        (4, "use pub", r"(?:pub(?:\([^)]*\))? +)?use +[\w:{*]+.*(?:;|\{|,)$"),
        (4, "impl", r"impl\b"),
        (4, "pub", r"pub(?:\([^)]*\))? +(?:struct|enum|trait|mod|type|static|const)\b"),
        (3, "struct enum trait mod", r"\w+ +[A-Za-z]\w*(?:<.*>)? *(?:[{;(]|:|$)"),
        (2, "let", r"let +(?:mut +)?[\w(]"),
        (2, "match", r"match +.*\{$"),
        (3, "#[ #![", r"#!?\["),
        (2, "macro_rules println assert_eq vec", r"\w+!"),
    ),
    "java": (
        (4, "import", r"import +(?:static +)?[\w.]+(?:\.\*)?;"),
        (3, "public private protected",
         r"\w+ +(?:(?:static|final|abstract|synchronized|native|default) +)*(?:<[^>]*> *)?[\w<>\[\],.?]+ +\w+ *\("),
        (3, "public private protected abstract final class interface enum",
         r"(?:\w+ +){0,3}(?:class|interface|enum|record|@interface) +\w+.*\{?$"),
        (3, "@", r"@(?:Override|Test|Deprecated|Nullable|SuppressWarnings|Autowired|Inject|Before|After)\b"),
        (1, "private protected public", r"\w+ +(?:static +)?final +"),
    ),
    "c": (
        (4, "#include", r"# *include *[<\"][^>\"]*\.h[>\"]"),
        (2, "#define #ifdef #ifndef #endif #undef #pragma #if #else", r"#"),
        (3, "typedef", r"typedef +(?:struct|enum|union|unsigned|int|void|char|const)\b"),
        (3, "static void int char size_t bool unsigned struct double float long const", r"[\w *]+\([^;]*(?:\{|\)|,)$"),
        (2, "static void int char size_t bool unsigned struct double float long const uint8_t uint32_t",
         r"[\w *]+ \*?\w+(?:\[\w*\])?(?: *=.*)?;$"),
        (1, "if while", r"\w+ *\(.*(?:->|NULL|sizeof|==|!=)"),
        (1, "free memcpy memset printf fprintf return assert", r"\w+ *\(.*;$|return\b.*;$"),
    ),
    # Only what C lacks: C++ is C and more.
    "cpp": (
        (5, "#include", r"# *include *<(?:\w+|boost/[^>]*|[\w/]+\.hpp)>"),
        (5, "template", r"template *<"),
        (4, "namespace inline", r"(?:inline +)?namespace(?: +[\w:]+)? *\{|namespace +\w+$"),
        (3, "class struct",
         r"class +(?:\w+ +)?\w+ *[{;]?$|\w+ +(?:\w+ +)?\w+(?: +final)? *: *(?:public|private|protected"
         r"|virtual)?\b.*\{?$"),
        (3, "public private protected", r"\w+ *:$"),
        (3, "using", r"using +(?:namespace +\w|[\w:]+ *(?:=|;))"),
        (2, "constexpr explicit virtual std auto", r"\w+(?: +|::)[\w~:]"),
    ),
    "csharp": (
        (5, "using global", r"(?:global +)?using +(?:static +)?[A-Z][\w.]*(?: *= *[\w.<>]+)?;"),
        (5, "namespace", r"namespace +[A-Z][\w.]* *[;{]?$"),
        (3, "public private protected internal",
         r"\w+ +(?:(?:static|async|override|virtual|readonly|sealed|abstract|partial|const|new) +)*"
         r"[\w<>\[\],?.]+ +\w+ *(?:[({;=]|$)"),
        (4, "public", r"public +.*\{ *get;"),
        (3, "///", r"/// *<summary>"),
        (3, "#region #endregion #nullable", r"#"),
        (2, "[", r"\[[A-Z]\w*(?:\(.*\))?\]$"),
        (1, "var await foreach", r"var +\w+ *=|await +|foreach *\("),
    ),
    "ruby": (
        (4, "def", r"def +(?:self\.)?\w+[?!=]?(?: *\([^:]*\)| +\w[^:(]*)?$"),
        (4, "require require_relative", r"\w+ +['\"]"),
        (3, "class module", r"(?:class +[A-Z][\w:]*(?: *< *[\w:]+)?|module +[A-Z][\w:]*)$"),
        (3, "attr_reader attr_writer attr_accessor", r"\w+ +:"),
        (2, "describe it context let before", r".*\bdo(?: *\|.*\|)?$"),
        (2, "end", r"end$"),
        (2, "unless elsif rescue ensure puts", r"\w+"),
        (2, "include extend", r"\w+ +[A-Z][\w:]*$"),
    ),
    "php": (
        (3, "namespace use", r"namespace +[A-Z][\w\\]*;$|use +[A-Z]\w*\\.*;"),
        (4, "function public private protected static abstract final",
         r"(?:(?:public|private|protected|static|abstract|final) +)*function +&?\w+ *\([^)]*\$?"),
        (3, "$", r"\$\w+(?:->|\[.*\])?.*(?:=|;)"),
        (2, "return if foreach echo", r".*\$\w"),
    ),
    "bash": (
        (3, "fi done esac then", r"\w+(?:$| *[|;>&<])"),
        (3, "if while elif", r"\w+ +(?:\[|! |test |command |grep |which ).*"),
        (3, "for case", r"for +\w+ +in\b|case +.* +in$"),
        (2, "export local readonly declare unset", r"\w+ +(?:-\w+ +)?\w+(?:=\S|=?$)"),
        (2, "echo exit source shift trap cd mkdir sudo rm cp mv printf", r"\w+(?: +[\w\"'$./-]|$)(?!.*[;{]$)"),
        (3, "set", r"set +[-+]\w+"),
        (3, "function", r"function +[\w-]+ *(?:\(\))? *\{?$"),
    ),
}  # fmt: skip

# Strings to count anywhere, and what each is worth.
STRINGS: dict[str, tuple[tuple[int, str], ...]] = {
    "python": ((1, '"""'), (1, " is None"), (1, "(self"), (1, "__init__")),
    "javascript": (
        (2, " === "), (2, " !== "), (1, " => {"), (2, "function ("), (2, "function("), (2, "undefined"),
        (1, "});\n"), (5, "use strict"), (2, "exports."), (1, "() =>"), (1, "this."),
    ),
    "typescript": (
        (2, ": string"), (2, ": number"), (2, ": boolean"), (2, ": void"), (1, "Promise<"), (1, " as const"),
        (1, ": unknown"), (1, " as any"),
    ),
    "go": ((2, " := "), (2, "err != nil"), (1, "fmt."), (1, "interface{}"), (1, "chan ")),
    "rust": (
        (2, "&mut "), (2, "&self"), (1, "let mut "), (1, ".unwrap()"), (1, "-> Result<"), (1, "Some("), (1, "!(\""),
        (1, "::new("),
    ),
    "java": ((1, "throws "), (2, "System.out"), (2, "@Override"), (1, "extends "), (1, "implements "), (1, " final ")),
    "c": ((1, "->"), (1, "NULL"), (1, "sizeof("), (1, "printf(")),
    "cpp": (
        (2, "std::"), (2, "static_cast<"), (2, "nullptr"), (2, "noexcept"), (1, "const auto"), (1, "::"),
        (1, "constexpr"),
    ),
    "csharp": ((3, "{ get;"), (2, "string."), (1, "await "), (2, "Task<"), (1, "??")),
    "ruby": ((2, " do |"), (2, " do\n"), (1, ".each do"), (2, ".nil?"), (2, "\nend")),
    "php": ((2, "$this->"), (2, "<?php"), (1, "array("), (1, "::class")),
    "bash": (
        (2, "; then"), (2, "; do\n"), (1, "${"), (1, '"$'), (1, " || "), (2, "[[ "), (2, "$("), (2, "2>&1"),
        (1, "() {"),
    ),
}  # fmt: skip

FIRST_WORD = re.compile(r"\w+|#\s?\w+|#!?\[|///|[@<$\[]")


SAMPLE_LINES = 400
TRIAL_LINES = 200
LINE_CHARS = 160
# Under this a text may be any language, or prose.
ENOUGH = 4
# Above this share of the best one's worth, the second best language gets a trial.
DOUBT = 0.6
# A string says less than the shape of a line, and must not outweigh it by sheer number.
STRINGS_MOST = 20

_SHEBANG = re.compile(
    r"#!\s*\S*?(?:/|env\s+(?:-S\s+)?)(python|node|deno|bun|ruby|php|bash|sh|zsh|dash|ksh)[\d.]*(?:\s|$)"
)
_INTERPRETERS = {
    "node": "javascript", "deno": "typescript", "bun": "typescript",
    "sh": "bash", "zsh": "bash", "dash": "bash", "ksh": "bash",
}  # fmt: skip
_PACKAGE = re.compile(r"package +\w+(?:(?:\.\w+)*(?P<java>;)|$)")
_COMMENT = ("//", "/*", "*", "#")
_DIALECTS = {"javascript": "typescript", "c": "cpp"}
_MARKUP = re.compile(r"^ *</[A-Za-z]|/> *$|(?:return|=>|[=(?]) *\(? *<[A-Za-z>][^\n;]*> *$", re.MULTILINE)
# For each opening word the languages it is a hint for, what a match is worth, and its pattern.
_BY_FIRST_WORD: dict[str, list[tuple[str, int, re.Pattern[str]]]] = {}
for _language, _hints in _OPENERS.items():
    for _points, _words, _pattern in _hints:
        for _word in _words.split():
            _BY_FIRST_WORD.setdefault(_word, []).append((_language, _points, re.compile(_pattern)))


def guess(lines: Sequence[str]) -> str:
    """Return the language of `lines`, or "" when none of ours fits."""
    shebang = _SHEBANG.match(lines[0][:LINE_CHARS]) if lines else None
    if shebang is not None:
        return _INTERPRETERS.get(shebang[1], shebang[1])
    sample = [line[:LINE_CHARS].strip() for line in _sample(lines)]
    opening = _opening(sample)
    if opening:
        return opening
    worth = _worth(sample)
    more = {family: worth.pop(dialect) for family, dialect in _DIALECTS.items()}
    for family, points in more.items():
        worth[family] += points
    best, second = sorted(worth, key=lambda name: (-worth[name], name))[:2]
    if worth[best] < ENOUGH:
        return ""
    if worth[second] >= DOUBT * worth[best]:
        trial = [line[:2000] for line in lines[:TRIAL_LINES]]
        best = min((best, second), key=lambda name: syntax.count_errors(trial, name))
    return _dialect(best, sample, more.get(best, 0), worth[best])


def _opening(sample: Sequence[str]) -> str:
    """Return the language that the first line of code names beyond doubt."""
    if any(line.startswith("<?php") for line in sample):
        return "php"
    first = next((line for line in sample if line and not line.startswith(_COMMENT)), "")
    package = _PACKAGE.match(first)
    return ("java" if package["java"] else "go") if package else ""


def _sample(lines: Sequence[str]) -> Sequence[str]:
    """Return the head, where imports are, and as much again from the middle, past any licence."""
    if len(lines) <= SAMPLE_LINES:
        return lines
    half = SAMPLE_LINES // 2
    middle = len(lines) // 2
    return [*lines[:half], *lines[middle : middle + half]]


def _worth(sample: Sequence[str]) -> dict[str, int]:
    """Return what the hints for each language add up to."""
    text = "\n".join(sample)
    worth = {
        language: min(STRINGS_MOST, sum(points * text.count(string) for points, string in strings))
        for language, strings in STRINGS.items()
    }
    for line in sample:
        word = FIRST_WORD.match(line)
        if word is None:
            continue
        for language, points, pattern in _BY_FIRST_WORD.get(word[0].replace(" ", ""), ()):
            if pattern.match(line):
                worth[language] += points
    return worth


def _dialect(language: str, sample: Sequence[str], own: int, worth: int) -> str:
    """Return `language`, or the richer one that holds it when enough hints are that one's `own`."""
    if own < ENOUGH or own * 40 < worth:
        return language
    if language == "javascript" and _MARKUP.search("\n".join(sample)):
        return "tsx"
    return _DIALECTS[language]
