"""The page: one HTML file with its style, its script and its data inside, that asks no network for anything.

Text from a run never becomes markup: the data is JSON in which `<`, `>` and `&` are escaped, the script sets
text only as text, and a content security policy lets nothing run but this one script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
from pathlib import Path

import attrs

from engine.records import JSON
from sim.report.near import Near
from sim.report.story import Story

HERE = Path(__file__).parent

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(story: Story, beside: Story | None = None, near: Near | None = None) -> str:
    """The page of a run, with the nearest run that held beside it if there is one."""
    style, script, body = (_asset(name) for name in ("page.css", "page.js", "page.html"))
    runs = [story.as_json()] + ([] if beside is None else [beside.as_json()])
    data: dict[str, JSON] = {
        "runs": runs,
        "change": None if near is None else near.change,
        "parting": None if beside is None else parting(story, beside),
    }
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    return PAGE.format(
        policy=policy,
        title=html.escape(f"{story.scenario}: {story.verdict}"),
        style=style,
        body=body,
        data=inert(data),
        script=script,
    )


def parting(a: Story, b: Story) -> int | None:
    """The place of the first mark in which two runs differ; None if they are equal.

    What the scheduler counts may differ earlier, and nobody would see anything there.
    """
    seen = [[attrs.evolve(mark, index=0) for mark in story.marks] for story in (a, b)]
    for place, pair in enumerate(itertools.zip_longest(*seen)):
        if pair[0] != pair[1]:
            return place
    return None


def inert(value: JSON) -> str:
    """JSON that can't end a script element or begin a comment or an entity."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
