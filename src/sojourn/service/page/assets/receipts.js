// Receipts and leaks: for every stay, the memory it held, gave back and left behind.
import { drawing, get, save } from "./api.js";
import { atMostEvery, h, panel, replace, table } from "./dom.js";
import * as format from "./format.js";
import { incidentTable } from "./overview.js";
import { part } from "./state.js";

const FIRST = 50; // rows shown until the user asks for all

export function receiptTable(caption) {
  return table(
    caption,
    [
      { title: "session", text: (r) => r.session },
      { title: "closed at", number: true, text: (r) => format.moment(r.at) },
      { title: "held", number: true, text: (r) => format.bytes(r.held_bytes) },
      { title: "returned", number: true, text: (r) => format.bytes(r.returned_bytes) },
      { title: "peak", number: true, text: (r) => format.bytes(r.peak_bytes) },
      { title: "runs", number: true, text: (r) => format.number(r.runs) },
      { title: "took", number: true, text: (r) => format.seconds(r.seconds) },
      { title: "how", short: true, text: (r) => r.how },
      { title: "left behind", text: (r) => r.left_behind || "nothing", tone: (r) => (r.left_behind ? "bad" : "good") },
    ],
    [],
    { empty: "Nothing has been closed yet.", keyOf: (r) => `${r.at} ${r.session} ${r.held_bytes}` },
  );
}

function legend() {
  const keys = [["opening", "opening"], ["leased", "still open"], ["idle", "closed"], ["died", "its worker died"]];
  return h("ul", { class: "legend", "aria-label": "What the bars are" }, keys.map(([key, words]) => h("li", {}, h("span", { class: `key stay-${key}` }), words)));
}

export class Receipts {
  title = "Receipts";

  constructor() {
    this.tiles = h("div", { class: "tiles" });
    this.chart = h("div", { class: "chart", tabindex: "0", role: "region", "aria-label": "Drawing of the stays" });
    this.source = h("p", { class: "dim" });
    this.receipts = receiptTable("Receipts");
    this.incidents = incidentTable();
    this.isWhole = false;
    this.lookAgain = atMostEvery(3, () => this.element.isConnected && this.look());
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.showAll() });
    const exporting = (kind) => h("button", { type: "button", onclick: () => save(`api/receipts.${kind}`, `receipts.${kind}`) }, `Export ${kind.toUpperCase()}`);
    this.element = h(
      "div",
      {},
      h("h1", {}, "Receipts and leaks"),
      this.tiles,
      panel("Stays", this.source, legend(), this.chart),
      panel("What went wrong", this.incidents.element),
      panel("Receipts", h("p", { class: "buttons" }, exporting("csv"), exporting("json")), this.receipts.element, this.more),
    );
  }

  async start() {
    this.changed("incidents");
    await this.look();
  }

  async look() {
    const [stays, receipts, drawn] = await Promise.all([get("api/stays"), get("api/receipts.json"), drawing("api/stays.svg")]);
    replace(this.chart, drawn);
    this.source.textContent = `${stays.source}. ${format.plural(stays.sessions, "session")} in ${format.seconds(stays.seconds)}; the drawing is that of sojourn report.`;
    this.all = receipts.receipts;
    this.showReceipts();
    const held = receipts.receipts.reduce((sum, r) => sum + r.held_bytes, 0);
    const back = receipts.receipts.reduce((sum, r) => sum + r.returned_bytes, 0);
    const left = receipts.receipts.filter((r) => r.left_behind).length;
    const tiles = [
      [format.number(receipts.receipts.length), "receipts"],
      [format.bytes(held), "held at the end"],
      [held ? `${(Math.floor((back * 1000) / held) / 10).toString()}%` : "–", "returned"],
      [format.number(left), "left something behind", left > 0],
      [format.number(stays.died), "workers died", stays.died > 0],
    ];
    replace(this.tiles, tiles.map(([value, label, isBad]) => h("div", { class: isBad ? "tile bad" : "tile" }, h("b", {}, value), h("span", {}, label))));
  }

  showReceipts() {
    this.receipts.show(this.isWhole ? this.all : this.all.slice(0, FIRST));
    this.more.hidden = this.isWhole || this.all.length <= FIRST;
    this.more.textContent = `Show all ${format.number(this.all.length)}`;
  }

  showAll() {
    this.isWhole = true;
    this.showReceipts();
  }

  changed(name) {
    if (name === "incidents") this.incidents.show(part("incidents", []));
    if (name === "closed") this.lookAgain();
  }

  tick() {}
  stop() {}
}
