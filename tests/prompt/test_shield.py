"""Control spellings in people's texts: gone while the template works, back afterwards, whatever stands beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import InvalidValueError
from helios.prompt.shield import ControlSpellings, Shield

SPELLINGS = ("<|end|>", "<|end", "[INST]", "#", "aa")
pieces = st.lists(
    st.sampled_from([*SPELLINGS, "<", "|>", "<|", "en", "d|>", "[", "INST", "]", "a", " ", "é", "\ue000"]), max_size=8
)
texts = pieces.map("".join)


@given(people=st.lists(texts, min_size=1, max_size=4), between=st.lists(texts, min_size=5, max_size=5))
def test_only_the_templates_own_spellings_remain(people: list[str], between: list[str]) -> None:
    """Research item 41: nothing a person writes is, begins, ends or fills a control spelling."""
    spellings = ControlSpellings(SPELLINGS)
    shield = Shield(spellings, people, "".join(between))
    rendered = between[0]
    origin = ["template"] * len(rendered)
    for text, template in zip(people, between[1:], strict=False):
        covered = shield.cover(text)
        assert len(covered) == len(text)
        assert shield.uncover(covered) == text
        rendered += covered + template
        origin += ["person"] * len(text) + ["template"] * len(template)
    position = 0
    for index, piece in enumerate(spellings.split(rendered)):
        if index % 2:
            assert set(origin[position : position + len(piece)]) == {"template"}
        position += len(piece)
    assert position == len(rendered)


def test_harmless_text_is_not_touched() -> None:
    shield = Shield(ControlSpellings(SPELLINGS), ["b < c"], "")
    assert shield.cover("b < c") == "b < c"
    assert not shield.is_used


def test_a_vocabulary_without_control_tokens_needs_no_shield() -> None:
    spellings = ControlSpellings(())
    assert spellings.split("any <|end|> text") == ["any <|end|> text"]
    assert spellings.risky_positions("any <|end|> text") == set()


def test_the_longest_spelling_is_taken() -> None:
    assert ControlSpellings(SPELLINGS).split("x<|end|>y<|end") == ["x", "<|end|>", "y", "<|end", ""]


def test_a_text_with_every_private_use_character_is_refused() -> None:
    text = "".join(map(chr, range(0xE000, 0xF900))) + "<|end|>"
    with pytest.raises(InvalidValueError, match="private-use"):
        Shield(ControlSpellings(SPELLINGS), [text], "").cover(text)


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        ("<|en", "d|> and more", ""),  # it ends one that the template began
        ("", "more and <|en", "d|>"),  # it begins one that the template ends
        ("<|", "en", "d|>"),  # it is the middle of one
        ("", "<|end|>", ""),
    ],
)
def test_a_spelling_does_not_form_across_a_seam(before: str, text: str, after: str) -> None:
    spellings = ControlSpellings(["<|end|>"])
    covered = Shield(spellings, [text], before + after).cover(text)
    assert len(spellings.split(before + covered + after)) == 1
