"""Style and script of the page. The script only filters the list of answers; without it the page
shows them all. Both are allowed by their hash, so nothing that an answer holds can run."""

import base64
import hashlib

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5b6875; --paper: #fff; --line: #d5dce3;
  --good: #14602a; --bad: #a11d1d; --open: #8a5a00; --c0: #1f5fa8; --c1: #b3541e; --c2: #2a7a3f;
  --c3: #7a3fa0; --c4: #55606b }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --soft: #a0adba; --paper: #14191f;
  --line: #36414c; --good: #6fd08c; --bad: #ff8a80; --open: #ffc46b; --c0: #7db4f0; --c1: #f0a070;
  --c2: #7fd69a; --c3: #c79be8; --c4: #a9b4bf } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.5rem; margin: .5rem 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem;
  border-bottom: 1px solid var(--line) }
a.skip { position: absolute; left: -99rem } a.skip:focus { position: static }
.verdict { font-size: 1.4rem; padding: .6rem 1rem; border-left: .5rem solid currentColor }
.pass { color: var(--good) } .fail { color: var(--bad) } .open { color: var(--open) }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; padding: .3rem .5rem; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: break-word }
th, td:first-child { white-space: nowrap }
.wide { overflow-x: auto } caption { text-align: left; color: var(--soft) }
figure { margin: 1rem 0; overflow-x: auto } figcaption { color: var(--soft); font-size: .85rem }
svg { width: 100%; height: auto; max-width: 46rem; min-width: 28rem }
svg text { font-size: 12px; fill: var(--ink) }
svg .grid { stroke: var(--line) } svg .mark { stroke: var(--soft); stroke-dasharray: 3 3 }
svg polyline { fill: none; stroke-width: 2 } svg rect { fill: var(--c0) }
svg circle { fill: var(--c0) } svg .whisker { stroke: var(--c0); stroke-width: 2 }
svg .zero { stroke: var(--soft) } svg .limit { stroke: var(--bad); stroke-width: 2 }
svg .s0 { stroke: var(--c0) } svg .s1 { stroke: var(--c1) } svg .s2 { stroke: var(--c2) }
svg .s3 { stroke: var(--c3) } svg .s4 { stroke: var(--c4) }
.find { display: flex; gap: .6rem; flex-wrap: wrap; align-items: end; margin: .5rem 0 }
.find input, .find select { font: inherit; padding: .3rem; max-width: 100% }
:focus-visible { outline: 3px solid var(--c1); outline-offset: 2px }
article { border: 1px solid var(--line); padding: .5rem .8rem; margin: .6rem 0 }
article[hidden] { display: none } article h3 { font-size: .85rem; margin: 0; color: var(--soft) }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: .8rem }
.sides h4 { margin: .3rem 0 0; font-size: .8rem; color: var(--soft) }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0; font-size: .85rem }
code { overflow-wrap: anywhere; font-size: .85rem } .soft { color: var(--soft) }
@media (max-width: 40rem) { .sides { grid-template-columns: 1fr } body { padding: .6rem } }
@media print { .find, a.skip { display: none } article { break-inside: avoid }
  details > * { display: block } details::details-content { content-visibility: visible }
  body { max-width: none } }
"""

SCRIPT = """
(() => {
  const text = document.getElementById("text"), kind = document.getElementById("kind");
  const count = document.getElementById("count");
  const items = Array.from(document.querySelectorAll("article[data-kind]"));
  const show = () => {
    const wanted = text.value.toLowerCase();
    let shown = 0;
    for (const item of items) {
      const fits = (!kind.value || item.dataset.kind === kind.value)
        && item.textContent.toLowerCase().includes(wanted);
      item.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    count.textContent = `${shown} of ${items.length} items`;
  };
  if (text) { text.addEventListener("input", show); kind.addEventListener("change", show); show(); }
})();
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


POLICY = f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}"
HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
)


def page(title: str, body: str) -> str:
    """A whole page; `title` and `body` are already escaped."""
    return (
        f"{HEAD}<title>{title}</title>\n<style>{STYLE}</style></head>\n<body>"
        f'<a class="skip" href="#main">To the verdict</a>\n<main id="main">\n{body}</main>\n'
        f"<script>{SCRIPT}</script></body></html>\n"
    )
