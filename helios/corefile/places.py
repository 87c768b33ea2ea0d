"""Where stored bytes are: the unsigned LocationSet, checked and resolved to one place for each id (CORE-1).

It knows names and sizes and reads nothing. A place is in the core's own file, in a file below the core's directory, or at an
HTTP URL; the location set can point nowhere else, and what it points to is believed by its signed hashes alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from helios.contract.schema import core_pb2
from helios.corefile.layout import MAX_PLACE_CHARACTERS, align_up
from helios.errors import CoreError

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_ENTRY_NBYTES = 48  # of tags, lengths and an offset in one encoded location


@dataclass(frozen=True, slots=True)
class Place:
    """`nbytes` stored bytes from `offset` on: in `file`, at `url`, or in the core's own file when both are None."""

    offset: int
    nbytes: int
    file: Path | None = None
    url: str | None = None
    is_whole_file: bool = False

    @property
    def is_own(self) -> bool:
        return self.file is None and self.url is None


def is_http_url(text: str) -> bool:
    """Whether a request can be made of it: an HTTP URL of plain characters, without credentials and fragment."""
    try:
        parts = urlsplit(text)
        is_plain = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_plain and parts.username is None and not parts.fragment and not re.search(r"[^!-~]", text)


def max_locations_nbytes(sizes: Mapping[str, int]) -> int:
    """No location set for these ids is larger: more is refused before it is decoded."""
    names = sum(len(id_.encode()) + _ENTRY_NBYTES + 4 * MAX_PLACE_CHARACTERS for id_ in sizes)
    return names + _ENTRY_NBYTES + 4 * MAX_PLACE_CHARACTERS


def resolve(locations: core_pb2.LocationSet, sizes: Mapping[str, int], directory: Path) -> dict[str, Place]:
    """The place of every id in `sizes` (id to stored bytes); `directory` is the core's own. Raises CoreError."""
    places: dict[str, Place] = {}
    for location in locations.locations:
        if location.id not in sizes:
            raise CoreError(f"a location names {location.id[:200]!r}, which the core does not hold")
        if location.id in places:
            raise CoreError(f"resource {location.id!r} has two locations")
        places[location.id] = _place(location, sizes[location.id], directory)
    for id_ in sizes.keys() - places.keys():
        places[id_] = _default_place(locations, id_, sizes[id_], directory)
    return places


def check_own_places(
    places: Mapping[str, Place], header_end: int, file_nbytes: int, read: Callable[[int, int], bytes]
) -> None:
    """What lies in the core's own file lies at the next aligned place behind what is before it, up to the file's end."""
    end = header_end
    own = ((id_, place) for id_, place in places.items() if place.is_own)
    for id_, place in sorted(own, key=lambda entry: entry[1].offset):
        expected = align_up(end)
        if place.offset != expected:
            relation = "overlaps what is before it" if place.offset < end else f"is not at byte {expected:,}"
            raise CoreError(f"resource {id_!r} at byte {place.offset:,} {relation}")
        if place.offset + place.nbytes > file_nbytes:
            raise CoreError(
                f"resource {id_!r} ends at byte {place.offset + place.nbytes:,}, the file at {file_nbytes:,}"
            )
        if read(end, place.offset - end).strip(b"\0"):
            raise CoreError(f"the padding before resource {id_!r}, bytes {end:,} to {place.offset:,}, is not zero")
        end = place.offset + place.nbytes
    if end != file_nbytes:
        raise CoreError(f"{file_nbytes - end:,} bytes follow the last resource, which ends at byte {end:,}")


def _place(location: core_pb2.Location, nbytes: int, directory: Path) -> Place:
    if location.file and location.url:
        raise CoreError(f"the location of {location.id!r} is both a file and a URL")
    if location.url:
        return Place(location.offset, nbytes, url=_checked_url(location.url))
    if location.file:
        return Place(location.offset, nbytes, file=_below(directory, location.file))
    return Place(location.offset, nbytes)


def _default_place(locations: core_pb2.LocationSet, id_: str, nbytes: int, directory: Path) -> Place:
    if bool(locations.directory) == bool(locations.url):
        raise CoreError(f"resource {id_!r} has {'two locations' if locations.url else 'no location'}")
    if not _PLAIN_NAME.fullmatch(id_):
        raise CoreError(f"resource id {id_[:200]!r} cannot be the name of a file")
    if locations.url:
        url = _checked_url(locations.url.rstrip("/") + "/" + quote(id_))
        return Place(0, nbytes, url=url, is_whole_file=True)
    return Place(0, nbytes, file=_below(directory, locations.directory) / id_, is_whole_file=True)


def _below(directory: Path, text: str) -> Path:
    """The path that `text` names. Nothing leads out of `directory`, apart from links that its owner put there."""
    parts = text.split("/")
    is_plain = len(text) <= MAX_PLACE_CHARACTERS and text.isprintable() and not set(text) & set('\\:*?"<>|')
    if not is_plain or any(part.strip(". ") == "" for part in parts):
        raise CoreError(f"the location {text[:200]!r} is no path below the core's directory")
    return directory.joinpath(*parts)


def _checked_url(text: str) -> str:
    if len(text) > MAX_PLACE_CHARACTERS or not is_http_url(text):
        raise CoreError(f"the location {text[:200]!r} is no HTTP URL")
    return text
