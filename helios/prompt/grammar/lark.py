"""A grammar text in llguidance's dialect of Lark, written rule by rule, for the tokens of one model.

It knows literals, markers and where free text ends; no schema and no answer. A marker is spelled by its tokens where the
vocabulary has them: free text never contains such a token, so only the token itself ends the text (FE-3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from llguidance import LLMatcher, regex_to_lark

from helios.errors import InvalidValueError
from helios.tokenizer.tokenizer import Tokenizer

ANY_TEXT = r"/(.|\n)*/"

# Without it a mask holds only the library's own tokens of text that the grammar forces, control tokens where it spells one.
_OPTIONS = '%llguidance {"no_forcing": true}\n'
# At each place where JSON allows blanks: none, one, or a line break with its indentation. More is how weak models loop.
_JSON_BLANKS = r" |\n[ \t]{0,32}"
# Without `u`: an escaped letter would name a property that the grammar takes for another.
_JSON_ESCAPES = 'nrbtf\\"'


class Spelling:
    """How a vocabulary spells markup and literals. `special_tokens` are those that text never becomes."""

    def __init__(self, tokenizer: Tokenizer, markers: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._markers = {
            marker: token_id for marker in markers if (token_id := tokenizer.single_token(marker)) is not None
        }
        names = [name for name in tokenizer.added_tokens if name and not name.isspace()]
        used = [name for name in names if any(name in marker for marker in markers)]
        ordered = sorted(used, key=len, reverse=True)
        self._added = re.compile("(" + "|".join(map(re.escape, ordered)) + ")" if ordered else "((?!))")
        added = (tokenizer.added_tokens[name] for name in used)
        self.special_tokens = tokenizer.special_tokens.union(self._markers.values(), added)

    def pieces(self, markup: str) -> list[int | str]:
        """Markup as tokens and the text between them."""
        if markup in self._markers:
            return [self._markers[markup]]
        parts = self._added.split(markup)
        added = self._tokenizer.added_tokens
        return [added[part] if index % 2 else part for index, part in enumerate(parts) if part]

    def can_spell(self, text: str) -> bool:
        """Whether the vocabulary has a token for every byte of `text`."""
        wanted = text.encode("utf-8")
        ids = self._tokenizer.encode(text, allow_special=False)
        spelled = b"".join(map(self._tokenizer.token_bytes, ids))
        return wanted in (spelled, spelled.removeprefix(b" "))


class LarkText:
    """The rules of one grammar. Expressions are strings of the dialect; equal rules are written once."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self._names: dict[str, str] = {}
        self._grammars: list[tuple[str, str]] = []

    def rule(self, body: str, attributes: str = "", *, is_terminal: bool = False) -> str:
        """The name of a rule."""
        definition = f"{attributes}: {body}"
        kind = "T" if is_terminal else "r"
        return self._names.setdefault(f"{kind}{definition}", f"{kind}{len(self._names)}")

    def terminal(self, body: str) -> str:
        """The name of a rule that is one lexeme."""
        return self.rule(body, is_terminal=True)

    def json(self, schema: Any) -> str:
        """The name of a rule for a document of `schema`."""
        options = {"whitespace_pattern": _JSON_BLANKS, "json_allowed_escapes": _JSON_ESCAPES}
        table = schema if isinstance(schema, dict) else ({} if schema else {"enum": []})
        return self.rule("%json " + json.dumps({**table, "x-guidance": options}, ensure_ascii=False))

    def nested(self, grammar: str) -> str:
        """The name of a whole grammar with its own start, blanks and names."""
        name = f"g{len(self._grammars)}"
        self._grammars.append((name, grammar))
        return "@" + name

    def markup(self, text: str) -> str:
        """An expression for markup, "" for none."""
        return " ".join(_piece(each) for each in self.spelling.pieces(text))

    def newlines(self, n_most: int) -> str:
        """An expression for up to `n_most` line breaks, which belong to markup."""
        return self.terminal(rf"/\n{{1,{n_most}}}/") + "?" if n_most else ""

    def text(self, exclude: Sequence[str] = ()) -> str:
        """An expression for free text without any of `exclude`."""
        return self.terminal(self._without(ANY_TEXT, exclude))

    def until(self, markup: str, *, body: str = ANY_TEXT, exclude: Sequence[str] = ()) -> str:
        """An expression for text up to and with the first `markup`. `body` is what the text must be."""
        pieces = self.spelling.pieces(markup)
        limited = self._without(body, exclude)
        if len(pieces) == 1 and isinstance(pieces[0], str):
            return self.rule(limited, f"[suffix={quoted(pieces[0])}]")
        lead = self.terminal(limited)
        if isinstance(pieces[0], str):
            lead = self.terminal(f"{lead} {quoted(pieces[0])}")
            pieces = pieces[1:]
        return " ".join([lead, *map(_piece, pieces)])

    def _without(self, body: str, exclude: Sequence[str]) -> str:
        """`body` that contains none of `exclude`, of which each that has a token cannot be in text anyway."""
        spelled = [text for text in exclude if all(isinstance(piece, str) for piece in self.spelling.pieces(text))]
        return body + "".join(rf" & ~/(.|\n)*{_escaped(text)}(.|\n)*/" for text in dict.fromkeys(spelled))

    def written(self, start: str) -> str:
        """The grammar as the library reads it."""
        rules = [f"{name}{key[1:]}" for key, name in self._names.items()]
        text = _OPTIONS + f"start: {start}\n" + "\n".join(rules) + "\n"
        grammars = [("envelope", text), *self._grammars]
        return json.dumps({"grammars": [{"name": name, "lark_grammar": lark} for name, lark in grammars]})


def quoted(text: str) -> str:
    """A literal."""
    return json.dumps(text)


def any_of(expressions: Sequence[str]) -> str:
    """An expression for one of several."""
    return expressions[0] if len(expressions) == 1 else "(" + " | ".join(expressions) + ")"


def schema_pattern(regex: str, param: str) -> str:
    """`pattern` of JSON Schema, whose classes Python, JavaScript and Rust read differently: what is taken here fits all of them."""
    return pattern(agreed_classes(regex), param, ascii_classes="dw")


def pattern(regex: str, param: str, *, ascii_classes: str = "") -> str:
    """A terminal's body for a regular expression that matches the whole text. InvalidValueError for one that cannot be enforced."""
    body = f"/{regex_to_lark(regex, ascii_classes)}/"
    problem = _problem([body])
    if problem:
        raise InvalidValueError(f"{param} is a regular expression that cannot be enforced: {problem}", param=param)
    return body


def first_unreadable(regexes: Sequence[str]) -> tuple[str, str] | None:
    """The first of several patterns that cannot be enforced and why, None when all can."""
    bodies = [f"/{regex_to_lark(agreed_classes(regex), 'dw')}/" for regex in regexes]
    problem, low, high = _problem(bodies), 0, len(bodies)
    if not problem:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        found = _problem(bodies[low:middle])
        low, high, problem = (low, middle, found) if found else (middle, high, problem)
    return regexes[low], _problem(bodies[low:high]) or problem


def _problem(bodies: Sequence[str]) -> str:
    """What the library has against terminals, "" for nothing."""
    names = [f"T{index}" for index in range(len(bodies))]
    rules = [f"start: {' | '.join(names)}", *(f"{name}: {body}" for name, body in zip(names, bodies, strict=True))]
    found = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark("\n".join(rules) + "\n")) if bodies else ""
    return first_line(found) if found else ""


# As wide as any dialect reads a class, and `\s` as narrow as all do; the library itself narrows `\d` and `\w` to ASCII.
_WIDE = {"d": r"\p{Nd}", "w": r"\p{L}\p{M}\p{N}\p{Pc}", "s": r"\p{Z}\x09-\x0d\x1c-\x1f\x{85}\x{feff}"}
_NARROW_BLANKS = r" \t\n\r\f\v"
_CLASS_OR_SET = re.compile(r"\\(.)|\[(\^?)((?:\\.|[^\]\\])*)\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def agreed_classes(regex: str) -> str:
    """`regex` in which what says that something is not there means it in every dialect: `\\W` is no letter of any script."""
    return _CLASS_OR_SET.sub(_agreed, regex)


def _agreed(match: re.Match[str]) -> str:
    letter, negation, content = match.groups()
    if letter is not None:
        return f"[{_NARROW_BLANKS}]" if letter == "s" else _narrow(match)
    return f"[{negation}{_ESCAPE.sub(_wide if negation else _narrow, content)}]"


def _wide(escape: re.Match[str]) -> str:
    return _WIDE.get(escape[1], escape[0])


def _narrow(escape: re.Match[str]) -> str:
    if escape[1] == "s":
        return _NARROW_BLANKS
    return f"[^{_WIDE[escape[1].lower()]}]" if escape[1] in "DWS" else escape[0]


def first_line(problem: str) -> str:
    """What the library complains about, without the grammar that it quotes."""
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    return re.sub(r"^(at )?\d+\(\d+\): ", "", lines[0])[:300] if lines else "unknown"


def _piece(piece: int | str) -> str:
    return quoted(piece) if isinstance(piece, str) else f"<[{piece}]>"


def _escaped(text: str) -> str:
    return re.sub(r"([\\/.^$|?*+()\[\]{}&~#-])", r"\\\1", text).replace("\n", r"\n")
