// The view of one model: signature, state, memory, performance, and a form to try it.
import { button, canAct } from "./actions.js";
import { get, post } from "./api.js";
import { standing, STATES } from "./bar.js";
import { atMostEvery, h, panel, replace, table } from "./dom.js";
import * as format from "./format.js";
import { chip, stateWords, tones } from "./overview.js";
import * as plots from "./plots.js";
import { receiptTable } from "./receipts.js";
import { part } from "./state.js";
import { TryIt } from "./tryit.js";

export class Model {
  constructor(name) {
    this.name = name;
    this.title = name;
    const address = `api/models/${encodeURIComponent(name)}`;
    this.address = address;
    this.badges = h("p", { class: "badges" });
    this.buttons = h("div", { class: "buttons", role: "group", "aria-label": "Actions" });
    this.versions = table(
      "Versions",
      [
        { title: "version", text: (v) => v.version },
        { title: "state", node: (v) => [chip(stateWords(v), tones(v)), v.labels.map((l) => chip(l)), v.is_latest ? chip("latest") : null, v.pinned ? chip("pinned") : null], stamp: (v) => [v.state, v.error, v.labels, v.is_latest, v.pinned] },
        { title: "copies", number: true, text: (v) => v.copies },
        { title: "charged", number: true, text: (v) => (v.bytes ? format.bytes(v.bytes) : "–") },
        { title: "limit a copy", number: true, text: (v) => format.bytes(v.memory_bytes) },
        { title: "requests", number: true, text: (v) => format.number(v.requests) },
        { title: "errors", number: true, text: (v) => format.number(v.failures), tone: (v) => (v.failures ? "bad" : "") },
        { title: "note", text: (v) => v.error },
      ],
      [],
      { empty: "This model is not served.", keyOf: (v) => String(v.version) },
    );
    this.copies = table(
      "Copies",
      [
        { title: "copy", text: (b) => b.name },
        { title: "state", node: (b) => h("span", { class: "state" }, h("span", { class: "key", "data-state": b.state }), STATES[b.state]), stamp: (b) => b.state },
        { title: "holds", number: true, text: (b) => format.bytes(b.held_bytes) },
        { title: "charged", number: true, text: (b) => (b.bytes ? format.bytes(b.bytes) : "–") },
        { title: "device", text: (b) => b.device || "–" },
        { title: "what happens", wide: true, text: standing },
      ],
      [],
      { empty: "None is resident.", keyOf: (b) => b.name },
    );
    this.signature = h("div");
    this.engine = h("p");
    this.errors = table(
      "Last errors",
      [
        { title: "last at", short: true, text: (e) => format.moment(e.at) },
        { title: "times", number: true, text: (e) => format.number(e.count) },
        { title: "status", short: true, text: (e) => e.status },
        { title: "words", wide: true, text: (e) => e.words },
      ],
      [],
      { empty: "None, since the server began.", keyOf: (e) => `${e.status} ${e.words}` },
    );
    this.receipts = receiptTable("Receipts of this model");
    this.histogram = h("div");
    this.ranged = new plots.Ranged(
      (seconds) => get(`api/series?seconds=${seconds}&model=${encodeURIComponent(name)}`),
      [plots.memory(), plots.latency(), plots.requests()],
      (series) => replace(this.histogram, plots.histogram(series.bars)),
    );
    this.tryIt = new TryIt(name);
    this.lookAgain = atMostEvery(2, () => this.element.isConnected && this.look());
    this.element = h(
      "div",
      {},
      h("div", { class: "heading" }, h("h1", {}, name), this.badges),
      this.buttons,
      h("div", { class: "two" }, panel("Versions", this.versions.element), panel("Copies", this.copies.element)),
      h("div", { class: "two" }, panel("Signature", this.signature), panel("Engine", this.engine)),
      panel(
        "Over time",
        this.ranged.element,
        h("div", { class: "plots" }, this.ranged.plots.map((p) => p.element), h("figure", { class: "plot" }, h("figcaption", {}, "How long requests took"), this.histogram)),
      ),
      this.tryIt.element,
      panel("Last errors", this.errors.element),
      panel("Receipts", this.receipts.element),
    );
  }

  async start() {
    this.changed("models");
    this.changed("blocks");
    await Promise.all([this.look(), this.ranged.look()]);
  }

  async look() {
    const about = await get(this.address);
    this.errors.show(about.errors);
    this.receipts.show(about.receipts);
    replace(
      this.engine,
      about.engine ? [h("strong", {}, about.engine), about.platform ? h("span", { class: "dim" }, ` (${about.platform})`) : null, about.why ? `: ${about.why}` : h("span", { class: "dim" }, ", the engine of the model's own format: no other was asked for.")] : h("span", { class: "dim" }, "Known once the model has been opened."),
    );
    this.showSignatures(about.signatures);
  }

  showSignatures(signatures) {
    const [first] = Object.values(signatures);
    if (!first) {
      const read = h("button", { type: "button" }, "Open the model and read it");
      read.addEventListener("click", async () => {
        read.disabled = true;
        try {
          this.showSignatures((await post(`${this.address}/signature`, "{}", { "Content-Type": "application/json", "X-Sojourn-Page": part("server").secret })).signatures);
        } catch (error) {
          replace(this.signature, h("p", { class: "bad" }, error.message), read);
          read.disabled = false;
        }
      });
      replace(this.signature, h("p", { class: "dim" }, "Not known before the model is opened."), read);
      this.tryIt.element.hidden = true;
      return;
    }
    if (this.signatureStamp === JSON.stringify(signatures)) return;
    this.signatureStamp = JSON.stringify(signatures);
    replace(
      this.signature,
      Object.entries(signatures).map(([name, s]) => {
        const rows = [
          ...Object.entries(s.inputs).map(([input, spec]) => ({ role: "in", name: input, spec })),
          ...Object.entries(s.outputs).map(([output, spec]) => ({ role: "out", name: output, spec })),
        ];
        return [
          Object.keys(signatures).length > 1 ? h("h3", { class: "mono" }, name) : null,
          table(
            `Signature ${name}`,
            [
              { title: "name", text: (r) => r.name },
              { title: "side", text: (r) => r.role },
              { title: "type and shape", text: (r) => format.shape(r.spec) },
            ],
            rows,
          ).element,
        ];
      }),
    );
    this.tryIt.element.hidden = false;
    this.tryIt.show(this.rows(), first);
  }

  rows() {
    return part("models", []).filter((row) => row.name === this.name);
  }

  showCopies() {
    this.copies.show(part("blocks", []).filter((b) => b.model === this.name));
  }

  changed(name) {
    if (name === "models") {
      const rows = this.rows();
      this.versions.show(rows);
      const stamp = rows.map((r) => [r.state, r.pinned].join()).join(";");
      if (stamp !== this.buttonStamp) {
        this.buttonStamp = stamp;
        const isPinned = rows.some((row) => row.pinned);
        const focused = document.activeElement?.dataset.action;
        replace(this.buttons, (canAct() ? ["load", "evict", isPinned ? "unpin" : "pin", "unload"] : []).map((action) => button(action, this.name)));
        if (focused) this.buttons.querySelector(`[data-action="${focused}"]`)?.focus();
        replace(this.badges, rows.length ? null : chip("not served", "bad"));
      }
    }
    if (name === "blocks") this.showCopies();
    if (name === "latest") this.ranged.add(part("latest", {})[this.name]);
    if (name === "closed" || name === "latest" || name === "blocks") this.lookAgain();
  }

  tick() {
    this.showCopies();
  }

  stop() {
    this.ranged.destroy();
  }
}

