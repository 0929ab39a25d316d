"""What somebody wanted, in their own words: a commit's message, a docstring, a heading as a goal."""

import random
import re

MAX_CHARS = 600
MIN_CHARS = 15
MIN_WORDS = 3

_NOISE = (
    re.compile(r"https?://\S+"),
    re.compile(
        r"\(?\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|references|see|issues?|pr|pull request|part of|ticket)"
        r":?\s+(?:[\w.-]+/[\w.-]+)?(?:#|gh-)\d+(?:\s*,\s*#\d+)*\)?",
        re.IGNORECASE,
    ),
    re.compile(r"\(?(?:\b[\w.-]+/[\w.-]+)?(?:#|\bgh-)\d+\)?", re.IGNORECASE),
    re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{7,40}\b"),
    re.compile(r":[a-z_]+:(?=\s|$)"),
    re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\ufe0f\u200d]"),
    re.compile(r"\[(?:skip ci|ci skip)\]", re.IGNORECASE),
)
_TYPED = re.compile(
    r"(?:fix|feat|feature|chore|docs?|style|refactor|perf|tests?|build|ci|bug|internal)"
    r"(?:\((?P<scope>[^)]{1,40})\))?!?:\s*",
    re.IGNORECASE,
)
_TRAILER = re.compile(r"[A-Z][A-Za-z]*(?:-[A-Za-z]+)+:\s|(?:cc|refs?|fixes|closes|bug|reviewed|by):\s", re.IGNORECASE)
_BORING = re.compile(
    r"\W*(?:bump|releas|version|merg|revert|prepar|updat\w* (?:the )?(?:changelog|change log|authors|readme)|changelog"
    r"|format|lint|typos?\b|fix(?:e[sd])? (?:a )?typos?|wip\b|v?\d+\.\d+|clean ?up$|backport|cherry)",
    re.IGNORECASE,
)
_LIST_ITEM = re.compile(r"[*+-]\s|\d+[.)]\s")
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMENT_MARKS = re.compile(r"^\s*(?:/\*+!?|\*+/|///?!?|#+|--+|\*+|;;+)\s?|\s*\*+/\s*$")
_TAGGED = re.compile(
    r"\s*(?:@\w+|:\w+[^:]*:|\\\w+|(?:Args|Arguments|Parameters|Returns?|Raises|Examples?|Note)\s*(?::|$))"
)
_MARKUP = re.compile(r"<[^<>]{1,80}>|[`*]+|\{@\w+ ([^{}]*)\}|:[\w:.-]+:(?=`)")
_QUESTIONS = ("How does this work: {}?", "Where is this explained: {}?", "I need to know about {}.", "{}")


def of_commit(message: str) -> str:
    """The subject and the first paragraph that adds something; "" if they say too little."""
    subject, _, body = message.strip().partition("\n")
    if _BORING.match(subject):
        return ""
    goal = _untyped(_clean(subject))
    for paragraph in re.split(r"\n\s*\n", body.strip()):
        told = _told(paragraph)
        if told and told.lower() not in goal.lower():
            goal = f"{goal.rstrip('.')}. {told}"
            break
    return _enough(goal)


def of_comment(comment: str) -> str:
    """The first sentences of a docstring or of the comment above a definition; "" if they say too little."""
    rows = [_COMMENT_MARKS.sub("", row).strip() for row in comment.strip().split("\n")]
    told: list[str] = []
    for row in rows:
        if told and (not row or _TAGGED.match(row) or _LIST_ITEM.match(row)):
            break
        if row and not _TAGGED.match(row):
            told.append(row)
    return _enough(_clean(_MARKUP.sub(r"\1", " ".join(told))))


def of_heading(title: str, rng: random.Random) -> str:
    plain = _clean(_MARKUP.sub(r"\1", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title)))
    plain = re.sub(r"\s*\{[^}]*\}$", "", plain).strip(" #")
    return rng.choice(_QUESTIONS).format(plain) if len(plain) >= 8 and _WORD.search(plain) else ""


def _clean(text: str) -> str:
    for noise in _NOISE:
        text = noise.sub(" ", text)
    text = re.sub(r"\(\s*\)", " ", text)
    return " ".join(text.split()).strip(" -:,")


def _untyped(subject: str) -> str:
    """`fix(router): x` as `router: x`, for what a change is called says little of where it is."""
    typed = _TYPED.match(subject)
    if typed is None:
        return subject
    rest = subject[typed.end() :]
    return f"{typed['scope']}: {rest}" if typed["scope"] else rest


def _told(paragraph: str) -> str:
    rows = [row.strip() for row in paragraph.split("\n")]
    kept = [row for row in rows if row and not _TRAILER.match(row)]
    if not kept or _LIST_ITEM.match(kept[0]) or kept[0].startswith(("```", "<!--", "---", ">")):
        return ""
    told = _clean(" ".join(kept))
    return told if len(told) >= MIN_CHARS else ""


def _enough(goal: str) -> str:
    if len(goal) < MIN_CHARS or len(_WORD.findall(goal)) < MIN_WORDS:
        return ""
    return goal if len(goal) <= MAX_CHARS else goal[:MAX_CHARS].rsplit(" ", 1)[0]
