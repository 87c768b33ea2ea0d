"""From GGUF vocabularies to tokenizer assets: facts, determinism, and the metadata that is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from helios.errors import CheckpointError
from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.tokenizer import TokenizerFacts, prepare_tokenizer
from helios.tokenizer.tokenizer import Tokenizer
from tests.tokenizer import vocabularies


def prepared(path: Path) -> tuple[Tokenizer, TokenizerFacts]:
    with open_gguf(path) as file:
        asset, facts = prepare_tokenizer(file)
    return Tokenizer.from_bytes(asset), facts


def test_the_default_models_facts(default_gguf: Path) -> None:
    _, facts = prepared(default_gguf)
    assert (facts.vocabulary_size, facts.bos_token, facts.eos_token, facts.eot_token) == (49_152, 1, 2, None)
    assert facts.end_tokens == (0, 2)  # <|endoftext|> ends an answer too
    assert (facts.bos_text, facts.eos_text, facts.adds_bos) == ("<|im_start|>", "<|im_end|>", False)
    assert facts.chat_template is not None
    assert facts.chat_template.startswith("{% for message in messages %}")


def test_the_same_file_gives_the_same_bytes_in_the_publishers_form(default_gguf: Path) -> None:
    with open_gguf(default_gguf) as file:
        first, _ = prepare_tokenizer(file)
    with open_gguf(default_gguf) as file:
        second, _ = prepare_tokenizer(file)
    assert first == second
    settings = json.loads(first)
    assert [(token["id"], token["special"]) for token in settings["added_tokens"]] == [
        (each, True) for each in range(17)
    ]
    assert settings["pre_tokenizer"]["pretokenizers"] == [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ]


# How each pre-tokenizer cuts one text; spaces and line ends in the byte-level alphabet.
TEXT = "I'VE 12345 it's\n\n  x=='y'"
CUTS = {
    "gpt-2": ["I", "'", "VE", "Ġ12345", "Ġit", "'s", "ĊĊĠ", "Ġx", "=='", "y", "'"],
    "smollm": ["I", "'", "VE", "Ġ", "1", "2", "3", "4", "5", "Ġit", "'s", "ĊĊĠ", "Ġx", "=='", "y", "'"],
    "default": ["I", "'", "VE", "Ġ", "123", "45", "Ġit", "'", "s", "ĊĊĠ", "Ġx", "=='", "y", "'"],
    "llama-bpe": ["I", "'VE", "Ġ", "123", "45", "Ġit", "'s", "ĊĊ", "Ġ", "Ġx", "=='", "y", "'"],
    "qwen2": ["I", "'VE", "Ġ", "1", "2", "3", "4", "5", "Ġit", "'s", "ĊĊ", "Ġ", "Ġx", "=='", "y", "'"],
}


@pytest.mark.parametrize("pre", CUTS)
def test_each_pre_tokenizer_cuts_as_it_should(pre: str, tmp_path: Path) -> None:
    """Every word is a token here, so the tokens show the cuts."""
    import tokenizers

    with open_gguf(vocabularies.byte_level(tmp_path / "v.gguf", pre=pre, bos_token_id=0)) as file:
        asset, facts = prepare_tokenizer(file)
    cutter = tokenizers.Tokenizer.from_buffer(asset).pre_tokenizer
    assert [word for word, _ in cutter.pre_tokenize_str(TEXT)] == CUTS[pre]
    assert facts.adds_bos is (pre == "llama-bpe")


def test_a_file_without_a_pre_tokenizer_has_the_default_one(tmp_path: Path) -> None:
    with open_gguf(vocabularies.byte_level(tmp_path / "named.gguf", pre="default")) as file:
        named, _ = prepare_tokenizer(file)
    with open_gguf(vocabularies.byte_level(tmp_path / "none.gguf", pre=None)) as file:  # type: ignore[arg-type]
        assert prepare_tokenizer(file)[0] == named


def test_bos_is_added_when_the_file_says_so_or_is_silent_and_its_kind_does(tmp_path: Path) -> None:
    path = tmp_path / "v.gguf"
    assert prepared(vocabularies.sentencepiece(path))[1].adds_bos is True
    assert prepared(vocabularies.sentencepiece(path, add_bos_token=False))[1].adds_bos is False
    assert prepared(vocabularies.sentencepiece(path, bos_token_id=None))[1].adds_bos is False
    assert prepared(vocabularies.byte_level(path, bos_token_id=0))[1].adds_bos is False
    assert prepared(vocabularies.byte_level(path, bos_token_id=0, add_bos_token=True))[1].adds_bos is True


def test_end_tokens_are_the_named_ones_and_the_control_tokens_spelled_like_one(tmp_path: Path) -> None:
    path = vocabularies.byte_level(tmp_path / "v.gguf", control=("<|eot_id|>", "<|odd|>", "<|end_of_text|>", "<|pad|>"))
    tokenizer, facts = prepared(path)
    assert facts.eot_token is None
    assert facts.end_tokens == (tokenizer.token_id("<|eot_id|>"), tokenizer.token_id("<|end_of_text|>"))
    odd = tokenizer.token_id("<|odd|>")
    assert odd is not None
    _, facts = prepared(vocabularies.byte_level(tmp_path / "w.gguf", control=("<|odd|>",), eot_token_id=odd - 1))
    assert facts.eot_token == odd - 1
    assert facts.end_tokens == (odd - 1,)


def test_a_named_end_token_is_special_whatever_its_type_says(tmp_path: Path) -> None:
    tokenizer, facts = prepared(vocabularies.byte_level(tmp_path / "v.gguf", token_type=None))
    assert facts.eos_token is not None
    assert tokenizer.is_special(facts.eos_token)
    assert facts.eos_token not in tokenizer.encode("<|end|>", allow_special=False)


def test_sentencepiece_without_a_dummy_prefix_adds_none(tmp_path: Path) -> None:
    tokenizer, _ = prepared(vocabularies.sentencepiece(tmp_path / "v.gguf", add_space_prefix=False))
    assert not tokenizer.has_dummy_prefix
    assert tokenizer.decode(tokenizer.encode(" hello", allow_special=False)) == " hello"
    assert tokenizer.decode(tokenizer.encode("hello", allow_special=False)) == "hello"


ALPHABET = sorted(ByteLevel.alphabet())


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("byte_level", {"model": "bert"}, "'tokenizer.ggml.model' is 'bert'"),
        ("byte_level", {"model": None}, "no metadata 'tokenizer.ggml.model'"),
        ("byte_level", {"pre": "chatglm-bpe"}, "'tokenizer.ggml.pre' is 'chatglm-bpe'"),
        ("byte_level", {"pre": 3}, "'tokenizer.ggml.pre' is of type int"),
        ("byte_level", {"tokens": None}, "no metadata 'tokenizer.ggml.tokens'"),
        ("byte_level", {"tokens": [1, 2]}, "'tokenizer.ggml.tokens' is of type ndarray"),
        ("byte_level", {"tokens": [*ALPHABET, "!"]}, "are both spelled '!'"),
        ("byte_level", {"token_type": [1, 1]}, "has 2 elements for 270 tokens"),
        ("byte_level", {"token_type": [9] * 270}, "element 0 of metadata 'tokenizer.ggml.token_type' is 9"),
        ("byte_level", {"token_type": ["a"]}, "'tokenizer.ggml.token_type' is of type list"),
        ("byte_level", {"merges": None}, "no metadata 'tokenizer.ggml.merges'"),
        ("byte_level", {"merges": ["h e", "z z"]}, "element 1 of metadata 'tokenizer.ggml.merges', 'z z'"),
        ("byte_level", {"merges": ["he"]}, "element 0 of metadata 'tokenizer.ggml.merges', 'he'"),
        ("byte_level", {"eos_token_id": 270}, "'tokenizer.ggml.eos_token_id' is 270, it must be 0 to 269"),
        ("byte_level", {"eos_token_id": "2"}, "'tokenizer.ggml.eos_token_id' is of type str"),
        ("byte_level", {"add_bos_token": True}, "'tokenizer.ggml.bos_token_id' is missing"),
        ("byte_level", {"chat_template": 7}, "'tokenizer.chat_template' is of type int"),
        ("sentencepiece", {"scores": None}, "no metadata 'tokenizer.ggml.scores'"),
        ("sentencepiece", {"scores": [0.5]}, "has 1 elements for 279 tokens"),
        ("sentencepiece", {"scores": [float("nan")] * 279}, "has an element that is not finite"),
        (
            "sentencepiece",
            {"tokens": ["a", "<s>", "</s>", "<0x4>"], "token_type": [1, 3, 3, 6], "scores": [0.0] * 4},
            "token 3 is a byte token spelled '<0x4>'",
        ),
        (
            "sentencepiece",
            {"tokens": ["a" * 300, "<s>", "</s>"], "token_type": [1, 3, 3], "scores": [0.0] * 3},
            "token 0 has 300 characters, the limit is 256",
        ),
        ("sentencepiece", {"add_space_prefix": 1}, "'tokenizer.ggml.add_space_prefix' is of type int"),
    ],
)
def test_contradictory_metadata_is_refused_with_its_name(
    kind: str, changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    write = vocabularies.byte_level if kind == "byte_level" else vocabularies.sentencepiece
    with (
        open_gguf(write(tmp_path / "v.gguf", **changes)) as file,  # type: ignore[operator]
        pytest.raises(CheckpointError, match=message),
    ):
        prepare_tokenizer(file)
