"""The plot as SVG text."""

from __future__ import annotations

from xml.etree import ElementTree

from scripts.benchmark.plot import Curve, Value, plot


def test_a_plot_says_where_its_values_are_from_and_shows_each() -> None:
    curve = Curve("decode-lanes", "lanes", [Value(1, 1.0, 0.9, 1.2), Value(8, 2.5, 2.4, 2.6), Value(64, 9.0, 8.0, 9.5)])
    document = ElementTree.fromstring(plot(curve, "time", "a <processor> & its name"))
    texts = [element.text for element in document.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "a <processor> & its name"
    assert {"1", "8", "64", "lanes", "time"} <= set(texts)
    assert len(list(document.iter("{http://www.w3.org/2000/svg}circle"))) == 3
