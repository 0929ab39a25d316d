"""What tells languages apart: the first word of a line with the shape of its rest, and telling strings."""

import re

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


def by_first_word() -> dict[str, tuple[tuple[str, int, re.Pattern[str]], ...]]:
    """For each opening word, the languages it may speak for, what a match is worth, and its pattern."""
    table: dict[str, list[tuple[str, int, re.Pattern[str]]]] = {}
    for language, clues in _OPENERS.items():
        for worth, words, pattern in clues:
            compiled = re.compile(pattern)
            for word in words.split():
                table.setdefault(word, []).append((language, worth, compiled))
    return {word: tuple(clues) for word, clues in table.items()}
