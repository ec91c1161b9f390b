// The administrator's actions: each asks for confirmation and reports its result.
import { post, token } from "./api.js";
import { h } from "./dom.js";
import { part } from "./state.js";

const ACTIONS = {
  load: ["Load", (m) => `Open ${m} now, so that its first request need not wait. Others may leave to make room.`],
  evict: ["Evict", (m) => `Close the copies of ${m} and give their memory back: idle ones now, those in use once they are free. The next request opens it again.`],
  pin: ["Pin", (m) => `Keep ${m} open, whoever else needs its room, until it is unpinned.`],
  unpin: ["Unpin", (m) => `Let ${m} leave again when it is idle or when others need its room.`],
  unload: ["Unload", (m) => `Stop serving ${m}. Requests for it are refused until it is loaded again.`, true],
  reload: ["Reload", () => "Read the configuration and the folders of models again. What is new is served, what has gone is unloaded."],
  drain: ["Drain", () => "Take no more requests, answer those under way, and stop the server.", true],
};

// If the actions have a separate address, the page at other addresses is read-only.
export function canAct() {
  return part("hello", {}).can_act !== false;
}

export function button(action, model = "", version = null) {
  const [label, words, isGrave] = ACTIONS[action];
  const about = model ? `${model}${version === null ? "" : `, version ${version}`}` : "the server";
  return h("button", { type: "button", class: isGrave ? "grave" : null, "data-action": action, "aria-label": `${label} ${about}`, onclick: () => ask(label, words(about), { action, model, version }) }, label);
}

function ask(label, words, wish) {
  const confirm = h("button", { type: "submit", class: "primary", value: "yes" }, label);
  const cancel = h("button", { type: "submit", value: "no", autofocus: true }, "Cancel");
  const dialog = h("dialog", { "aria-labelledby": "ask-title", "aria-describedby": "ask-words" }, h("form", { method: "dialog" }, h("h2", { id: "ask-title" }, `${label} ${wish.model || "the server"}?`), h("p", { id: "ask-words" }, words), h("p", { class: "choices" }, cancel, confirm)));
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus();
    if (dialog.returnValue === "yes") perform(label, wish);
  });
  document.body.append(dialog);
  dialog.showModal();
  cancel.focus();
}

async function perform(label, { action, model, version }) {
  const said = tell(`${label} ${model}: under way …`);
  try {
    const body = JSON.stringify({ model, version, confirmed: true });
    const outcome = await post(`api/actions/${action}`, body, { "Content-Type": "application/json", "X-Sojourn-Page": part("server").secret });
    said(outcome.words, "good");
  } catch (error) {
    said(`${label} ${model}: ${error.message}`, "bad");
    if (error.status === 401 || error.status === 403) signIn(error.message);
  }
}

// Shows a line that stays until dismissed; returns a function that changes it.
export function tell(words, tone = "") {
  const text = h("span", {}, words);
  const line = h("p", { class: "outcome", "data-tone": tone }, text, h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => line.remove() }, "×"));
  document.getElementById("outcomes").append(line);
  return (now, kind) => {
    text.textContent = now;
    line.dataset.tone = kind;
    if (kind === "good") setTimeout(() => line.remove(), 15000);
  };
}

let anew = () => {};
export function onSignIn(again) {
  anew = again;
}

export function signIn(why = "") {
  if (document.getElementById("token-dialog")) return;
  const input = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false" });
  input.value = token.get();
  const dialog = h(
    "dialog",
    { id: "token-dialog", "aria-labelledby": "token-title" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "token-title" }, "Token"),
      why ? h("p", { class: "bad" }, why) : null,
      h("p", {}, "A server with tokens shows itself to those who have one; actions need one of an administrator. It is kept until this tab is closed."),
      h("p", { class: "field wide" }, h("label", { for: "token" }, "Bearer token"), input),
      h("p", { class: "choices" }, h("button", { type: "submit", value: "no" }, "Cancel"), h("button", { type: "submit", class: "primary", value: "yes" }, "Use it")),
    ),
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue !== "yes") return;
    token.set(input.value.trim());
    anew();
  });
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}

