"""Which markup is tokens, and marked text spelled and shown."""

from __future__ import annotations

from helios.output.markup import Markup, is_markup
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import with_tokens


def test_a_marker_is_one_private_character_when_it_is_one_token_and_text_else(plain_tokenizer: Tokenizer) -> None:
    """FE-3: an added token, or an ordinary one that the tokenizer makes of the whole marker."""
    markup = Markup(with_tokens(plain_tokenizer, {"<a>": False, "<b>": True}))
    for spelling in ("<a>", "<b>", "hello"):
        (character,) = markup.marker(spelling)
        assert is_markup(character)
        assert markup.marker(spelling) == character
        assert markup.spelled(f"x{character}y") == f"x{spelling}y"
    assert markup.marker("<c>") == "<c>"
    assert len(markup.characters) == 3


def test_only_added_tokens_are_found_inside_of_markup(plain_tokenizer: Tokenizer) -> None:
    """FE-3: the longest at each place; ordinary words and blanks in a tag are text."""
    markup = Markup(with_tokens(plain_tokenizer, {"<a": False, "<a>": False, "  ": False}))
    tag = markup.tag("<a>hello  <a x")
    assert [is_markup(character) for character in tag] == [True] + [False] * 7 + [True] + [False] * 2
    assert markup.spelled(tag) == "<a>hello  <a x"


def test_special_tokens_of_controls_are_hidden_where_they_delimit_nothing(plain_tokenizer: Tokenizer) -> None:
    markup = Markup(with_tokens(plain_tokenizer, {"<a>": False, "<b>": True, "<c>": True}))
    marked = markup.control("<a>") + markup.control("<b>") + markup.tag("<c>")
    assert markup.shown(marked) == "<a><c>"
    assert markup.spelled(marked) == "<a><b><c>"
    assert markup.has_shown_specials
    assert not Markup(plain_tokenizer).has_shown_specials
