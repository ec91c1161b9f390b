// The memory budget as a bar of blocks, one for each resident copy.
import { h, keyed, replace } from "./dom.js";
import * as format from "./format.js";
import { now } from "./state.js";

export const STATES = {
  leased: "in use",
  idle: "idle",
  opening: "being opened",
  parking: "being parked",
  closing: "being released",
  broken: "worker died",
  spare: "spare worker",
};
const LEAST_SHARE = 0.012; // of the bar's width, so that a small block can be seen and clicked

export function modelLink(name) {
  return `#/models/${encodeURIComponent(name)}`;
}

export function standing(block) {
  const left = block.until === null ? null : block.until - now();
  switch (block.state) {
    case "leased":
      return `in use by ${format.plural(block.leases, "request")}`;
    case "idle":
      if (block.pinned) return "idle, pinned";
      return left === null ? "idle" : `idle, leaves in ${format.countdown(left)}`;
    case "opening":
      return left === null || left <= 0 ? "being opened" : `being opened, ready in about ${format.countdown(left)}`;
    case "parking":
    case "closing": {
      const what = STATES[block.state];
      return left === null || left <= 0 ? `${what}, receipt any moment` : `${what}, receipt in about ${format.countdown(left)}`;
    }
    case "broken":
      return `worker died ${format.ago(now() - block.since)} ago: ${block.words}`;
    default:
      return "ready to become a session";
  }
}

export class MemoryBar {
  constructor() {
    this.blocks = h("ol", { class: "blocks", "aria-label": "Resident copies" });
    this.scale = h("p", { class: "bar-scale" });
    this.legend = h("ul", { class: "legend", "aria-label": "States" });
    this.element = h("div", { class: "memory-bar" }, this.scale, h("div", { class: "bar-frame" }, this.blocks), this.legend);
    this.items = [];
  }

  show(budget, blocks) {
    this.items = blocks;
    const used = blocks.reduce((sum, block) => sum + block.bytes, 0);
    const whole = Math.max(budget.limit_bytes ?? used, used, 1);
    keyed(this.blocks, blocks, (b) => b.key || b.name + (b.state === "spare" ? blocks.indexOf(b) : ""), makeBlock, (element, block) => {
      element.dataset.state = block.state;
      const share = Math.max(LEAST_SHARE, block.bytes / whole);
      element.style.setProperty("flex-basis", `${(share * 100).toFixed(3)}%`);
      const [name, size, state] = element.querySelectorAll("span");
      [name, size].forEach((span) => span.classList.toggle("hidden-text", share <= 0.12));
      name.textContent = block.name;
      size.textContent = block.bytes ? format.bytes(block.bytes) : "";
      state.textContent = STATES[block.state];
      element.firstChild.title = `${block.name}: ${format.bytes(block.bytes)}, ${standing(block)}`;
    });
    const free = budget.limit_bytes === null ? "no limit" : `${format.bytes(Math.max(0, budget.limit_bytes - budget.charged_bytes))} free`;
    replace(
      this.scale,
      h("strong", {}, format.bytes(budget.charged_bytes)),
      budget.limit_bytes === null ? " held, no limit" : ` of ${format.bytes(budget.limit_bytes)}, ${free}`,
      budget.residue_bytes ? h("span", { class: "bad" }, `, ${format.bytes(budget.residue_bytes)} never given back`) : null,
    );
    const counts = {};
    blocks.forEach((block) => (counts[block.state] = (counts[block.state] || 0) + 1));
    replace(
      this.legend,
      Object.entries(STATES)
        .filter(([state]) => counts[state])
        .map(([state, words]) => h("li", {}, h("span", { class: "key", "data-state": state }), `${counts[state]} ${words}`)),
    );
    this.blocks.hidden = !blocks.length;
  }
}

function makeBlock(block) {
  const inner = [h("span", { class: "block-name" }), " ", h("span", { class: "block-size" }), " ", h("span", { class: "hidden-text" })];
  const box = block.model ? h("a", { href: modelLink(block.model) }, inner) : h("div", {}, inner);
  return h("li", { class: "block" }, box);
}
