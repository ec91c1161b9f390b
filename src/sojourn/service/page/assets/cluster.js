// Nodes, their budgets, and where copies are.
import { MemoryBar } from "./bar.js";
import { h, keyed, panel, table } from "./dom.js";
import * as format from "./format.js";
import { part } from "./state.js";

const STATES = { open: "idle", opening: "opening", leaving: "closing" };

function blockOf(copy, i) {
  const state = copy.leases ? "leased" : STATES[copy.state] || "idle";
  return { name: copy.model, key: `${copy.model} ${i}`, model: copy.model, state, bytes: copy.bytes, leases: copy.leases, until: null };
}

export class Cluster {
  title = "Cluster";

  constructor() {
    this.nodes = h("div");
    this.bars = new Map();
    this.problem = h("p", { class: "bad" });
    this.table = table(
      "Nodes",
      [
        { title: "node", text: (n) => n.node },
        { title: "address", text: (n) => n.address },
        { title: "devices", text: (n) => n.devices.join(", ") },
        { title: "held", number: true, text: (n) => format.bytes(n.held_bytes) },
        { title: "budget", number: true, text: (n) => format.bytes(n.budget_bytes) },
        { title: "copies", number: true, text: (n) => n.copies.length },
        { title: "calls under way", number: true, text: (n) => format.number(n.calls) },
      ],
      [],
      { empty: "No node has been met.", keyOf: (n) => n.id },
    );
    this.element = h("div", {}, h("h1", {}, "Cluster"), this.problem, panel("Nodes", this.table.element), this.nodes);
  }

  async start() {
    this.changed("cluster");
  }

  changed(name) {
    const cluster = part("cluster");
    if (name !== "cluster" || !cluster) return;
    this.problem.textContent = [cluster.problem, ...cluster.lost].filter(Boolean).join("; ");
    this.table.show(cluster.nodes);
    keyed(
      this.nodes,
      cluster.nodes,
      (node) => node.id,
      (node) => {
        const bar = new MemoryBar();
        this.bars.set(node.id, bar);
        return panel(node.node, bar.element);
      },
      (_, node) => {
        const budget = { charged_bytes: node.held_bytes, limit_bytes: node.budget_bytes, residue_bytes: 0 };
        this.bars.get(node.id).show(budget, node.copies.map(blockOf));
      },
    );
  }

  tick() {}
  stop() {}
}
