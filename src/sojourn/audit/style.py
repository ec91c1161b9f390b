"""The report's style sheet, with light and dark colours, and its small script."""

STYLE = """
:root {
  color-scheme: light dark;
  --back: #f6f7f9; --panel: #ffffff; --ink: #1c2330; --soft: #5d6778; --edge: #dfe3ea;
  --accent: #2f6fde; --area: rgba(47, 111, 222, .14); --ok: #6b9ceb;
  --bad: #c8322b; --bad-soft: #f0b6b2; --mark: #c8322b; --mark-ink: #ffffff;
  --good: #1d7a46; --hit: #fdecea; --code: #eef1f5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #12151b; --panel: #1a1f28; --ink: #e4e8ef; --soft: #98a3b5; --edge: #2d3542;
    --accent: #7fb0ff; --area: rgba(127, 176, 255, .18); --ok: #4a78c4;
    --bad: #ff8078; --bad-soft: #6d3430; --mark: #ff8078; --mark-ink: #1b0c0b;
    --good: #6fd49b; --hit: #3a2220; --code: #242b36;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 24px 40px; max-width: 1240px; background: var(--back);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.brand { margin: 0; color: var(--accent); font-weight: 600; letter-spacing: .02em; }
h1 { margin: 2px 0 16px; font-size: 24px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 28px 0 10px; font-size: 17px; }
.panel h2 { margin-top: 0; }
h3 { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; margin: 0 0 6px;
  font-size: 16px; }
p { margin: 6px 0; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; }
.tile { flex: 1 1 130px; padding: 10px 14px; border: 1px solid var(--edge); border-radius: 8px;
  background: var(--panel); color: var(--soft); font-size: 13px; }
.tile b { display: block; color: var(--ink); font-size: 22px; line-height: 1.3; }
.tile.bad b { color: var(--bad); }
.panel { padding: 16px 20px; border: 1px solid var(--edge); border-radius: 8px;
  background: var(--panel); }
main > .panel { margin-top: 20px; }
.card { margin-bottom: 14px; scroll-margin-top: 12px; }
.card:target { border-color: var(--mark); box-shadow: 0 0 0 1px var(--mark); }
.fine { color: var(--good); }
.chart { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 760px; height: auto; }
svg text { fill: var(--ink); font-size: 12px; }
svg .tick { fill: var(--soft); font-size: 11px; }
svg .label { fill: var(--soft); }
svg .strong { fill: var(--ink); font-weight: 600; font-size: 13px; }
svg .grid { stroke: var(--edge); stroke-width: 1; }
svg .area { fill: var(--area); }
svg .line { fill: none; stroke: var(--accent); stroke-width: 1.6; stroke-linejoin: round; }
svg .peak { fill: var(--accent); }
svg .peak-label { fill: var(--accent); font-weight: 600; }
svg .bar-ok { fill: var(--ok); }
svg .bar-leak { fill: url(#hatch); stroke: var(--bad); stroke-width: 1; }
svg .leak-back { fill: var(--bad-soft); }
svg .leak-line { fill: var(--bad); opacity: .55; }
svg .mark { fill: var(--mark); stroke: var(--panel); stroke-width: 1.5; }
svg .mark-text { fill: var(--mark-ink); font-size: 10px; font-weight: 700; }
svg a { cursor: pointer; }
svg .cursor { stroke: var(--soft); stroke-dasharray: 3 3; pointer-events: none; }
.mono, .where, pre, code, svg .mono { font-family: ui-monospace, "SF Mono", Menlo, Consolas,
  "DejaVu Sans Mono", monospace; }
svg .mono { font-size: 11px; }
.legend { display: flex; flex-wrap: wrap; align-items: center; gap: 6px; color: var(--soft);
  font-size: 13px; min-height: 22px; }
.legend .key:not(:first-child) { margin-left: 14px; }
.reading { margin-left: auto; font-variant-numeric: tabular-nums; }
.key { display: inline-block; width: 22px; height: 12px; border-radius: 3px; }
.key.ok { background: var(--ok); }
.key.leak { border: 1px solid var(--bad);
  background: repeating-linear-gradient(135deg, var(--bad-soft) 0 3px, var(--bad) 3px 5px); }
.key.mark { width: 20px; height: 20px; border-radius: 50%; background: var(--mark);
  color: var(--mark-ink); font-size: 11px; font-weight: 700; line-height: 20px;
  text-align: center; }
.code { color: var(--bad); }
.chip { padding: 0 8px; border-radius: 10px; background: var(--code); color: var(--soft);
  font-size: 12px; font-weight: 500; line-height: 20px; }
.where { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
pre { margin: 8px 0; padding: 8px 0; overflow-x: auto; border-radius: 6px;
  background: var(--code); font-size: 13px; line-height: 1.55; }
pre span { display: block; padding-right: 12px; white-space: pre; }
pre i { display: inline-block; width: 52px; padding-right: 14px; color: var(--soft);
  font-style: normal; text-align: right; user-select: none; }
pre .hit { background: var(--hit); box-shadow: inset 3px 0 0 var(--bad); }
code { padding: 1px 5px; border-radius: 4px; background: var(--code); font-size: 13px; }
ul { margin: 6px 0; padding-left: 20px; }
li { margin: 2px 0; overflow-wrap: anywhere; }
.why b, .cure b { display: inline-block; width: 44px; color: var(--soft); font-weight: 600; }
.cure b { color: var(--good); }
.docs, .dim, .scope { color: var(--soft); font-size: 13px; }
summary { cursor: pointer; color: var(--soft); }
.scroll { overflow-x: auto; }
table { width: 100%; margin-top: 10px; border-collapse: collapse; font-size: 13px; }
th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--edge); text-align: left;
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
footer { margin-top: 28px; color: var(--soft); font-size: 12px; }
"""

SCRIPT = """
(() => {
  const svg = document.getElementById("timeline");
  const cursor = document.getElementById("cursor");
  const reading = document.getElementById("reading");
  const note = reading ? reading.textContent : "";
  if (!svg || !samples.length) return;
  const left = +svg.dataset.left, right = +svg.dataset.right, span = +svg.dataset.span;
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    if (x < left || x > right) { hide(); return; }
    const at = (x - left) / (right - left) * span;
    let size = samples[0][1];
    for (const [when, bytes] of samples) { if (when > at) break; size = bytes; }
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    reading.textContent = (before + at).toFixed(2) + " s   " + (size / 1048576).toFixed(0) + " MiB";
  });
  svg.addEventListener("mouseleave", hide);
  function hide() { cursor.setAttribute("visibility", "hidden"); reading.textContent = note; }
})();
"""
