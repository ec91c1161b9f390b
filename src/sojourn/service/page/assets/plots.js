// Curves over time by uPlot, in the colours of the page.
/* global uPlot */
import { h, svg } from "./dom.js";
import * as format from "./format.js";

const HEIGHT = 170;
const shown = new Set();

// Resolves a colour variable in the current theme, because a canvas has no CSS variables.
function colour(name) {
  const probe = h("span", { style: { color: `var(--${name})` } });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// A plot of `curves` [{key, label, colour, fill, dash}]; `show(columns)` sets the data.
export class Plot {
  constructor(title, unit, curves, { isLog = false } = {}) {
    this.isLog = isLog;
    this.title = title;
    this.unit = unit;
    this.curves = curves;
    this.columns = null;
    this.chart = null;
    this.canvas = h("div", { class: "plot-area" });
    this.words = h("p", { class: "hidden-text" });
    this.element = h("figure", { class: "plot" }, h("figcaption", {}, title), this.canvas, this.words);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
    shown.add(this);
  }

  show(columns) {
    this.columns = columns;
    const data = [columns.at, ...this.curves.map((curve) => columns[curve.key])];
    if (this.chart) this.chart.setData(data);
    else this.draw(data);
    if (this.chart) this.readNewest(this.chart);
    this.words.textContent = this.inWords();
  }

  draw(data) {
    const width = this.canvas.clientWidth;
    if (!width || !window.uPlot) return;
    const isLog = this.isLog;
    const axis = { stroke: colour("soft"), grid: { stroke: colour("edge"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    this.chart = new uPlot(
      {
        width,
        height: HEIGHT,
        cursor: { sync: { key: "sojourn" }, points: { size: 6 }, y: false },
        hooks: { setCursor: [(chart) => this.readNewest(chart)] },
        scales: { x: { time: true }, y: isLog ? { distr: 3, range: decades } : { range: (_, low, high) => [0, top(high)] } },
        axes: [
          { ...axis, size: 28, space: 64, values: (_, ticks) => ticks.map(clock(ticks)) },
          {
            ...axis,
            size: 62,
            space: isLog ? 20 : 34,
            incrs: this.unit === format.bytes ? Array.from({ length: 30 }, (_, i) => 2 ** (20 + i)) : undefined,
            splits: isLog ? (_, axisIndex, low, high) => powers(low, high) : undefined,
            values: (_, ticks) => ticks.map((tick) => this.unit(tick)),
          },
        ],
        series: [
          { label: "at", value: (_, at) => (at === null || at === undefined ? "–" : format.moment(at)) },
          ...this.curves.map((curve) => ({
            label: curve.label,
            stroke: colour(curve.colour),
            fill: curve.fill ? colour(curve.fill) : undefined,
            width: 1.6,
            dash: curve.dash,
            spanGaps: false,
            points: { size: 4 },
            value: (_, value) => (value === null || value === undefined ? "–" : this.unit(value)),
          })),
        ],
      },
      data,
      this.canvas,
    );
  }

  // Shows the newest values in the legend while the pointer is elsewhere.
  readNewest(chart) {
    const last = chart.data[0].length - 1;
    if (last >= 0 && (chart.cursor.idx === null || chart.cursor.idx === undefined)) chart.setLegend({ idx: last });
  }

  resize() {
    if (this.chart) this.chart.setSize({ width: this.canvas.clientWidth, height: HEIGHT });
    else if (this.columns) this.show(this.columns);
  }

  redraw() {
    this.chart?.destroy();
    this.chart = null;
    if (this.columns) this.show(this.columns);
  }

  inWords() {
    const parts = this.curves.map((curve) => {
      const values = this.columns[curve.key].filter((value) => value !== null);
      if (!values.length) return `${curve.label}: none`;
      const most = values.reduce((a, b) => Math.max(a, b));
      return `${curve.label}: now ${this.unit(values[values.length - 1])}, most ${this.unit(most)}`;
    });
    return `${this.title}. ${parts.join("; ")}.`;
  }

  destroy() {
    this.observer.disconnect();
    this.chart?.destroy();
    shown.delete(this);
  }
}

// The axis range: whole powers of ten around the data.
function decades(_, low, high) {
  if (!(low > 0) || !(high > 0)) return [1e-4, 1];
  return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.0001))];
}

function powers(low, high) {
  const first = Math.round(Math.log10(low));
  return Array.from({ length: Math.round(Math.log10(high)) - first + 1 }, (_, i) => 10 ** (first + i));
}

function clock(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  return (tick) => {
    const date = new Date(tick * 1000);
    const pad = (part) => String(part).padStart(2, "0");
    if (step >= 86400) return `${date.getMonth() + 1}/${date.getDate()}`;
    const time = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
    return step < 60 ? `${time}:${pad(date.getSeconds())}` : time;
  };
}

function top(high) {
  return high > 0 ? high * 1.1 : 1;
}

export function redrawAll() {
  shown.forEach((plot) => plot.redraw());
}

export const latency = () =>
  new Plot("Latency", format.seconds, [
    { key: "p50", label: "p50", colour: "curve-1" },
    { key: "p90", label: "p90", colour: "curve-2" },
    { key: "p99", label: "p99", colour: "curve-3" },
  ], { isLog: true });

export const requests = () =>
  new Plot("Requests and errors per second", format.number, [
    { key: "requests", label: "requests", colour: "curve-1", fill: "area" },
    { key: "failures", label: "errors", colour: "bad" },
  ]);

export const batches = () =>
  new Plot("Batch size and waiting", format.number, [
    { key: "batch", label: "rows a batch", colour: "curve-1" },
    { key: "waiting", label: "waiting", colour: "curve-3" },
  ]);

export const memory = () =>
  new Plot("Memory", format.bytes, [
    { key: "held", label: "held", colour: "curve-1", fill: "area" },
    { key: "limit", label: "limit", colour: "bad", dash: [6, 4] },
  ]);

// A time range to choose, and the plots that show it.
export class Ranged {
  constructor(fetchSeries, plots, onSeries = () => {}) {
    this.fetchSeries = fetchSeries;
    this.plots = plots;
    this.onSeries = onSeries;
    this.seconds = 3600;
    this.buttons = [
      ["15 min", 900],
      ["1 h", 3600],
      ["6 h", 21600],
      ["24 h", 86400],
      ["7 d", 604800],
    ].map(([label, seconds]) =>
      h("button", { type: "button", "aria-pressed": "false", "data-seconds": seconds, onclick: () => this.look(seconds) }, label),
    );
    this.note = h("span", { class: "dim" });
    this.element = h("div", { class: "range", role: "group", "aria-label": "Range of the plots" }, this.buttons, this.note);
  }

  async look(seconds = this.seconds) {
    this.seconds = seconds;
    this.buttons.forEach((b) => b.setAttribute("aria-pressed", String(Number(b.dataset.seconds) === seconds)));
    let series;
    try {
      series = await this.fetchSeries(seconds);
    } catch (error) {
      this.note.textContent = error.message;
      return;
    }
    if (this.seconds !== seconds) return;
    this.columns = series.columns;
    this.note.textContent = !series.is_kept && seconds > 3600 ? "The last hour is all there is: no history file is configured." : "";
    const began = performance.now();
    this.plots.forEach((plot) => plot.show(series.columns));
    this.onSeries(series);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); // until it is drawn
    performance.measure("sojourn-plots", { start: began, end: performance.now() });
    this.element.dataset.drawn = seconds;
  }

  // Appends a new point. Skips it after a gap, or if points are merged: then only `look` updates.
  add(point) {
    const at = this.columns?.at;
    if (!at || !point) return;
    const last = at[at.length - 1];
    if (this.seconds > 3600 || (last && point.at - last > 30)) return;
    if (last && point.at <= last) return;
    for (const key of Object.keys(this.columns)) this.columns[key].push(point[key] ?? null);
    while (at.length && at[0] < point.at - this.seconds) Object.values(this.columns).forEach((c) => c.shift());
    this.plots.forEach((plot) => plot.show(this.columns));
  }

  destroy() {
    this.plots.forEach((plot) => plot.destroy());
  }
}

// The distribution of latency. `bars` are {from, to, count}.
export function histogram(bars) {
  if (!bars.length) return h("p", { class: "dim" }, "No requests in this time.");
  const width = 420;
  const base = 120;
  const step = width / bars.length;
  const most = Math.max(...bars.map((bar) => bar.count));
  const every = Math.max(1, Math.ceil(58 / step));
  const total = bars.reduce((sum, bar) => sum + bar.count, 0);
  const words = bars.filter((bar) => bar.count).map((bar) => `${bar.count} up to ${format.seconds(bar.to)}`);
  const drawn = svg(
    "svg",
    { class: "histogram", viewBox: `0 0 ${width} ${base + 26}`, role: "img", "aria-label": `${format.plural(total, "request")}: ${words.join(", ")}` },
    bars.map((bar, i) => {
      const tall = bar.count ? Math.max(2, (bar.count / most) * (base - 16)) : 0;
      return [
        svg(
          "rect",
          { class: "bar-ok", x: i * step + 1, y: base - tall, width: Math.max(1, step - 2), height: tall, rx: 2 },
          svg("title", {}, `${format.plural(bar.count, "request")} from ${format.seconds(bar.from)} to ${format.seconds(bar.to)}`),
        ),
        i && i % every === 0 ? svg("text", { class: "tick", x: i * step, y: base + 17, "text-anchor": "middle" }, format.seconds(bar.from)) : null,
      ];
    }),
    svg("line", { class: "grid", x1: 0, x2: width, y1: base, y2: base }),
  );
  return drawn;
}

