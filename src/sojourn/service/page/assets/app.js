// Chooses the view, and keeps it up to date.
import { button, canAct, onSignIn, signIn } from "./actions.js";
import { stream, token } from "./api.js";
import { STATES } from "./bar.js";
import { Cluster } from "./cluster.js";
import { h, replace } from "./dom.js";
import * as format from "./format.js";
import { Model } from "./model.js";
import { Overview } from "./overview.js";
import { redrawAll } from "./plots.js";
import { Receipts } from "./receipts.js";
import { listen, part, put } from "./state.js";

const main = document.getElementById("main");
let view = null;

function makeView(hash) {
  const [, kind = "", name = ""] = hash.split("/");
  if (kind === "models" && name) return new Model(decodeURIComponent(name));
  if (kind === "receipts") return new Receipts();
  if (kind === "cluster") return new Cluster();
  return new Overview();
}

function go() {
  if (location.hash === "#main") return;
  const isFirst = !view;
  view?.stop();
  view = makeView(location.hash);
  document.title = `${view.title} · sojourn`;
  replace(main, view.element);
  showNav();
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  const began = view;
  began.start().catch((error) => {
    if (began === view) main.prepend(h("p", { class: "notice", role: "alert" }, error.message));
  });
}

function showNav() {
  const models = [...new Set(part("models", []).map((row) => row.name))];
  const links = [
    ["#/", "Overview"],
    ...models.slice(0, 12).map((name) => [`#/models/${encodeURIComponent(name)}`, name]),
    ["#/receipts", "Receipts"],
    ...(part("cluster") ? [["#/cluster", "Cluster"]] : []),
  ];
  const here = location.hash || "#/";
  replace(
    document.getElementById("nav"),
    links.map(([href, label]) => h("a", { href, "aria-current": here === href ? "page" : null, class: href.startsWith("#/models") ? "model" : null }, label)),
  );
}

// -- announcements for screen readers ------------------------------------------------------------

function announce(blocks, before) {
  if (!before) return;
  const was = new Map(before.map((block) => [block.name, block.state]));
  const news = blocks
    .filter((b) => b.model && was.get(b.name) !== b.state && ["opening", "broken", "closing"].includes(b.state))
    .map((b) => `${b.name}: ${STATES[b.state]}`);
  if (news.length) {
    const log = document.getElementById("news");
    log.append(h("p", {}, news.join(", ")));
    while (log.children.length > 5) log.firstChild.remove();
  }
}

// -- the frame -------------------------------------------------------------------------------

function showLink(state, words = "") {
  const link = document.getElementById("link");
  link.dataset.tone = { live: "good", refused: "bad", lost: "busy" }[state];
  link.textContent = { live: "live", refused: "token wanted", lost: "reconnecting" }[state];
  if (state === "refused") signIn(words);
}

function showServer(server) {
  document.getElementById("sign-in").hidden = !server.wants_token && !token.get();
  replace(
    document.getElementById("footer"),
    h("p", {}, `sojourn ${server.version} on ${server.name}, since ${format.moment(server.started)}. `, server.history),
    h("p", { class: "buttons" }, canAct() && server.can_reload ? button("reload") : null, canAct() && server.can_drain ? button("drain") : null),
  );
}

const THEMES = ["auto", "light", "dark"];
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("sojourn-theme", theme);
  document.getElementById("theme").textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[theme];
  redrawAll();
}
document.getElementById("theme").addEventListener("click", () => {
  const at = THEMES.indexOf(document.documentElement.dataset.theme);
  setTheme(THEMES[(at + 1) % THEMES.length]);
});
setTheme(localStorage.getItem("sojourn-theme") || "auto");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
document.getElementById("sign-in").addEventListener("click", () => signIn());

listen((name, value, before) => {
  if (name === "blocks") announce(value, before);
  if (name === "models" || (name === "cluster" && !before)) showNav();
  if (name === "server") showServer(value);
  if (name === "notice") {
    const notice = document.getElementById("notice");
    notice.textContent = value;
    notice.hidden = !value;
  }
  view?.changed(name);
});
setInterval(() => view?.tick(), 1000);
addEventListener("hashchange", go);
go();
stream("api/stream", put, showLink);
onSignIn(() => location.reload());
