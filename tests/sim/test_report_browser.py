"""The report in a real browser: it is drawn, it follows the keys, and no text of a run does anything."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sim.report_samples import HOSTILE, pages

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1280,1000",
)
browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")

PRESSED = """<script>
const told = [];
const press = (key) => {
  document.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const panel = document.getElementById("details");
  const title = panel.hidden ? null : panel.querySelector("h2").textContent;
  told.push([key, view.from, view.to, view.byTime, title]);
};
"+ + ArrowRight ArrowLeft - 0 j j k v Escape t".split(" ").forEach(press);
const out = document.createElement("pre");
out.id = "told";
out.textContent = JSON.stringify(told);
document.body.appendChild(out);
</script></body>"""


def dom(text: str, folder: Path) -> str:
    """The page as Chromium has it once its script has run."""
    assert CHROMIUM is not None
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


@browser
def test_chromium_draws_both_runs_and_runs_nothing_else(tmp_path: Path) -> None:
    """Every mark is drawn, the broken moment is red, the title is the page's own, and no image was made."""
    story, beside, text = pages()
    drawn = dom(text, tmp_path)
    root = re.search(r"<html[^>]*>", drawn)
    assert root is not None
    assert 'data-ready="yes"' in root[0]
    assert "data-error" not in root[0]
    assert "<title>hostile: broken</title>" in drawn
    assert "<img" not in drawn
    assert drawn.count('class="target"') == len(story.marks) + len(beside.marks)
    assert drawn.count('class="moment"') == 1
    assert drawn.count('class="parting"') == 2
    assert drawn.count('class="lease ') == len(story.leases) + len(beside.leases)
    assert "The nearest run that held: without the fault cut" in drawn
    assert html.escape(HOSTILE, quote=False) in drawn


@browser
def test_chromium_follows_the_keys(tmp_path: Path) -> None:
    """Keys zoom, move, go from mark to mark and to what broke, change the scale, and close the details."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", pages()[2])
    drawn = dom(text.replace("</body>", PRESSED), tmp_path)
    found = re.search(r'<pre id="told">(.*?)</pre>', drawn, re.DOTALL)
    assert found is not None
    told = json.loads(html.unescape(found[1]))
    spans = [round(until - since, 6) for _, since, until, _, _ in told]
    assert spans[:6] == [0.6, 0.36, 0.36, 0.36, 0.6, 1]
    starts = [round(since, 6) for _, since, _, _, _ in told]
    assert starts[1] < starts[2]
    assert starts[3] == starts[1]
    first, second, back, broken, closed, scaled = (each[4] for each in told[6:])
    assert first.startswith("what a client did: hello")
    assert back == first != second
    assert broken == f"{HOSTILE} (X1)"
    assert (closed, scaled) == (None, None)
    assert [by_time for *_, by_time, _ in told[-2:]] == [False, True]
