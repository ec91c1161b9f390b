// The first view: resident models, requests, waiting callers, incidents.
import { get } from "./api.js";
import { MemoryBar, modelLink, standing, STATES } from "./bar.js";
import { h, panel, table } from "./dom.js";
import * as format from "./format.js";
import * as plots from "./plots.js";
import { now, part } from "./state.js";

const STATE_WORDS = { START: "known", LOADING: "loading", AVAILABLE: "available", UNLOADING: "unloading", END: "not loaded" };

export function stateWords(row) {
  return STATE_WORDS[row.state] || row.state.toLowerCase();
}

export function chip(words, tone = "") {
  return h("span", { class: "chip", "data-tone": tone }, words);
}

export function tones(row) {
  if (row.error) return "bad";
  return { AVAILABLE: "good", LOADING: "busy", UNLOADING: "busy" }[row.state] || "";
}

function tile(label) {
  const value = h("b", {}, "–");
  return { element: h("div", { class: "tile" }, value, h("span", {}, label)), value };
}

export class Overview {
  title = "Overview";

  constructor() {
    this.tiles = Object.fromEntries(
      [
        ["memory", "memory held"],
        ["requests", "requests a second"],
        ["failures", "errors a second"],
        ["p50", "half answered within"],
        ["p99", "99 of 100 within"],
        ["batch", "rows a batch"],
        ["waiting", "waiting now"],
      ].map(([key, label]) => [key, tile(label)]),
    );
    this.bar = new MemoryBar();
    this.copies = table(
      "Resident copies",
      [
        { title: "copy", node: (b) => (b.model ? h("a", { href: modelLink(b.model) }, b.name) : b.name), stamp: (b) => b.name },
        { title: "state", node: (b) => h("span", { class: "state" }, h("span", { class: "key", "data-state": b.state }), STATES[b.state]), stamp: (b) => b.state },
        { title: "what happens", wide: true, text: (b) => (b.words && b.state !== "broken" ? `${standing(b)} (${b.words})` : standing(b)) },
        { title: "holds", number: true, text: (b) => format.bytes(b.held_bytes) },
        { title: "charged", number: true, text: (b) => (b.bytes ? format.bytes(b.bytes) : "–") },
        { title: "runs", number: true, text: (b) => (b.model ? format.number(b.runs) : "–") },
      ],
      [],
      { empty: "Nothing is resident: the first request for a model opens it.", keyOf: (b) => b.key },
    );
    this.models = table(
      "Models",
      [
        { title: "model", node: (m) => h("a", { href: modelLink(m.name) }, m.name), stamp: (m) => m.name },
        { title: "version", number: true, text: (m) => m.version },
        { title: "state", node: (m) => [chip(stateWords(m), tones(m)), m.labels.map((label) => chip(label)), m.pinned ? chip("pinned") : null], stamp: (m) => [m.state, m.error, m.labels, m.pinned] },
        { title: "copies", number: true, text: (m) => m.copies },
        { title: "in use", number: true, text: (m) => m.leases },
        { title: "waiting", number: true, text: (m) => m.waiting },
        { title: "charged", number: true, text: (m) => (m.bytes ? format.bytes(m.bytes) : "–") },
        { title: "requests", number: true, text: (m) => format.number(m.requests) },
        { title: "errors", number: true, text: (m) => format.number(m.failures), tone: (m) => (m.failures ? "bad" : "") },
        { title: "note", wide: true, text: (m) => m.error },
      ],
      [],
      { empty: "No model is served.", keyOf: (m) => `${m.name}@${m.version}` },
    );
    this.waits = table(
      "Who waits for what",
      [
        { title: "for", node: (w) => h("a", { href: modelLink(w.model) }, w.model), stamp: (w) => w.model },
        { title: "waiting", number: true, text: (w) => w.waiting },
        { title: "the first for", number: true, text: (w) => format.ago(now() - w.since) },
        { title: "why", wide: true, text: (w) => w.why },
      ],
      [],
      { empty: "Nobody waits.", keyOf: (w) => `${w.model}@${w.version}` },
    );
    this.incidents = incidentTable();
    this.ranged = new plots.Ranged(
      (seconds) => get(`api/series?seconds=${seconds}`),
      [plots.requests(), plots.latency(), plots.batches(), plots.memory()],
    );
    this.element = h(
      "div",
      {},
      h("h1", { class: "hidden-text" }, "Overview"),
      h("div", { class: "tiles" }, Object.values(this.tiles).map((t) => t.element)),
      panel("Memory", this.bar.element, this.copies.element),
      h("div", { class: "two" }, panel("Waiting", this.waits.element), panel("What went wrong", this.incidents.element)),
      panel("Over time", this.ranged.element, h("div", { class: "plots" }, this.ranged.plots.map((p) => p.element))),
      panel("Models", this.models.element),
    );
  }

  async start() {
    ["budget", "models", "waits", "incidents", "latest"].forEach((name) => this.changed(name));
    await this.ranged.look();
  }

  changed(name) {
    const budget = part("budget");
    if (!budget) return;
    if (name === "budget" || name === "blocks") this.showMemory(budget, part("blocks", []));
    if (name === "models") this.models.show(part("models", []));
    if (name === "waits") this.waits.show(part("waits", []));
    if (name === "incidents") this.incidents.show(part("incidents", []));
    if (name === "latest") this.showLatest(part("latest", {})[""]);
  }

  showMemory(budget, blocks) {
    this.bar.show(budget, blocks);
    this.copies.show(blocks.map((block, i) => ({ ...block, key: block.model ? block.name : `spare ${i}` })));
    this.tiles.memory.value.textContent = format.bytes(budget.charged_bytes);
    this.tiles.waiting.value.textContent = format.number(budget.waiting);
  }

  showLatest(point) {
    if (!point) return;
    for (const key of ["requests", "failures", "batch"]) this.tiles[key].value.textContent = format.number(point[key]);
    for (const key of ["p50", "p99"]) this.tiles[key].value.textContent = format.seconds(point[key]);
    this.tiles.failures.element.classList.toggle("bad", point.failures > 0);
    this.ranged.add(point);
  }

  tick() {
    this.changed("blocks");
    this.changed("waits");
  }

  stop() {
    this.ranged.destroy();
  }
}

export function incidentTable() {
  return table(
    "What went wrong",
    [
      { title: "at", short: true, text: (i) => format.moment(i.at) },
      { title: "what", short: true, text: (i) => i.kind },
      { title: "session", text: (i) => i.session },
      { title: "facts", wide: true, text: (i) => i.words },
    ],
    [],
    { empty: "Nothing, since the server began.", keyOf: (i) => `${i.at} ${i.kind} ${i.session}` },
  );
}
