"""Shapes of the soak: named by seed and index, good ones good, bad ones bad."""

from __future__ import annotations

import json
import secrets

import pytest

from helios.contract.prepared import SamplingDefaults
from helios.errors import RequestError
from helios.server.chat_request import read_chat_request
from helios.server.fields import Fields
from helios.server.options import Limits
from scripts.soaking.shapes import HTTP_PATH, Drop, random_shape

LIMITS = Limits("m", (), 49152, SamplingDefaults(None, None, None, None, None))
SHAPES = [random_shape(3, index, "m", 512) for index in range(600)]


def test_the_same_seed_and_index_make_the_same_shape() -> None:
    assert [random_shape(3, index, "m", 512) for index in range(600)] == SHAPES
    assert random_shape(4, 0, "m", 512) != SHAPES[0]


def test_every_kind_of_drop_occurs_in_good_and_bad_requests() -> None:
    assert {(shape.drop, shape.is_good) for shape in SHAPES} == {
        (drop, good) for drop in Drop for good in (True, False)
    }


def test_the_announced_length_is_the_contents() -> None:
    assert all(b"Content-Length: %d\r\n" % len(shape.content) in shape.head for shape in SHAPES)


def test_the_servers_own_reader_accepts_every_good_body() -> None:
    for shape in SHAPES:
        if shape.is_good:
            read_chat_request(Fields(json.loads(shape.content)), LIMITS, secrets.randbits(31))


def test_the_servers_own_reader_refuses_bad_bodies() -> None:
    """Unknown models, routes and over-long prompts are refused further on."""
    n_refused = 0
    for shape in SHAPES:
        if shape.is_good or HTTP_PATH.encode() not in shape.head:
            continue
        try:
            body = json.loads(shape.content)
        except ValueError:
            n_refused += 1
            continue
        if body.get("model") == "m" and "word word" not in shape.content.decode():
            with pytest.raises(RequestError):
                read_chat_request(Fields(body), LIMITS, 1)
            n_refused += 1
    assert n_refused > 50
