// "Try it": a form from the signature, the answer, and the same request to copy.
import { headers, post, saveBlob, token } from "./api.js";
import { h, panel, replace } from "./dom.js";
import * as format from "./format.js";
import { part } from "./state.js";
import { snippets } from "./snippets.js";
import * as tensors from "./tensors.js";

const SHOWN = 20000; // most characters of an answer that are shown
const SCALES = ["0–1", "-1–1", "0–255"];

export class TryIt {
  constructor(model) {
    this.model = model;
    this.uploads = {};
    this.form = h("form", { class: "try", onsubmit: (event) => this.run(event) });
    this.result = h("div", { class: "answer", role: "status" });
    this.copies = h("div", { class: "snippets" });
    this.element = panel("Try it", this.form, this.result, this.copies);
  }

  show(versions, signature) {
    this.specs = signature.inputs;
    this.version = h(
      "select",
      { id: "try-version" },
      h("option", { value: "" }, "the latest"),
      versions.map((v) => h("option", { value: v.version }, `version ${v.version}`)),
    );
    this.areas = {};
    const inputs = Object.entries(this.specs).map(([name, spec], i) => this.input(name, spec, `try-input-${i}`));
    replace(
      this.form,
      h("p", { class: "field" }, h("label", { for: "try-version" }, "Version"), this.version),
      inputs,
      h("p", {}, h("button", { type: "submit", class: "primary" }, "Run"), " ", this.progress = h("span", { class: "dim" })),
    );
    this.offer();
  }

  input(name, spec, id) {
    const area = h("textarea", { id, rows: "3", spellcheck: "false", autocomplete: "off", oninput: () => this.typed(name) });
    area.value = tensors.exampleText(spec);
    this.areas[name] = area;
    const isPicture = (spec.shape || []).length >= 3 || tensors.datatype(spec) === "BYTES";
    const scale = h("select", { id: `${id}-scale` }, SCALES.map((s) => h("option", { value: s }, s)));
    const note = h("span", { class: "dim" });
    const upload = h("input", {
      type: "file",
      id: `${id}-file`,
      accept: isPicture ? "image/*,.csv,.json,.txt" : ".csv,.json,.txt",
      onchange: () => this.upload(name, spec, upload.files[0], scale.value, note),
    });
    scale.addEventListener("change", () => upload.files[0] && this.upload(name, spec, upload.files[0], scale.value, note));
    return h(
      "fieldset",
      {},
      h("legend", {}, h("span", { class: "mono" }, name), " ", h("span", { class: "dim mono" }, format.shape(spec))),
      h("p", { class: "field wide" }, h("label", { for: id }, "JSON, or zeros, ones, random"), area),
      h(
        "p",
        { class: "field" },
        h("label", { for: `${id}-file` }, isPicture ? "or an image, CSV or JSON file" : "or a CSV or JSON file"),
        upload,
        isPicture && tensors.datatype(spec) !== "BYTES" ? [h("label", { for: `${id}-scale` }, "pixels as"), scale] : null,
        note,
      ),
    );
  }

  typed(name) {
    delete this.uploads[name];
    this.offer();
  }

  async upload(name, spec, file, scale, note) {
    note.textContent = "";
    if (!file) return this.typed(name);
    try {
      if (file.type.startsWith("image/")) {
        const made = await tensors.fromImage(name, spec, file, scale);
        this.uploads[name] = made;
        this.areas[name].value = "";
        note.textContent = `${file.name} as [${made.shape.join(", ")}]`;
      } else if (/\.csv$/i.test(file.name)) {
        const filled = tensors.fromCsv(await file.text(), this.specs, name);
        for (const [input, text] of Object.entries(filled)) {
          this.areas[input].value = text;
          delete this.uploads[input];
        }
        note.textContent = `${file.name}: ${Object.keys(filled).join(", ")}`;
      } else {
        this.areas[name].value = await file.text();
        delete this.uploads[name];
      }
      this.offer();
    } catch (error) {
      note.textContent = `${file.name}: ${error.message}`;
    }
  }

  tensors() {
    return Object.entries(this.specs).map(([name, spec]) => this.uploads[name] || tensors.tensor(name, spec, this.areas[name].value));
  }

  path() {
    const name = encodeURIComponent(this.model);
    return `../v2/models/${name}${this.version.value ? `/versions/${this.version.value}` : ""}/infer`;
  }

  async run(event) {
    event.preventDefault();
    this.progress.textContent = "running …";
    const began = performance.now();
    try {
      const made = tensors.body(this.tensors());
      const answer = await post(this.path(), made.body, headers(made.headers));
      const took = (performance.now() - began) / 1000;
      replace(this.result, h("h3", {}, "Answer"), h("p", { class: "dim" }, `version ${answer.model_version}, after ${format.seconds(took)}`), (answer.outputs || []).map(output));
    } catch (error) {
      replace(this.result, h("h3", {}, "No answer"), h("p", { class: "bad" }, error.message));
    }
    this.progress.textContent = "";
    this.offer();
  }

  offer() {
    let texts = [];
    let made;
    try {
      const given = this.tensors();
      made = tensors.body(given);
      texts = snippets({
        model: this.model,
        version: this.version.value,
        tensors: given,
        made,
        path: this.path(),
        addresses: part("server", {}).addresses || {},
        token: token.get(),
      });
    } catch {
      // The typed text is not a valid request yet; running it shows the error.
    }
    const open = new Set([...this.copies.querySelectorAll("details[open]")].map((d) => d.dataset.title));
    replace(
      this.copies,
      texts.length ? h("h3", {}, "The same request, to copy") : null,
      texts.map(([title, text]) => snippet(title, text, open.has(title) || (!open.size && title === "curl"))),
      made && (made.text.length > 1500 || typeof made.body !== "string") ? saving(made) : null,
    );
  }
}

function saving(made) {
  const name = typeof made.body === "string" ? "request.json" : "request.bin";
  return h("p", {}, h("button", { type: "button", onclick: () => saveBlob(new Blob([made.body]), name) }, `Save ${name}`));
}

function snippet(title, text, isOpen) {
  const copy = h("button", { type: "button", class: "copy", "aria-label": `Copy: ${title}` }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // no clipboard over plain HTTP: select the text
      copy.textContent = "Press Ctrl+C";
    }
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  const code = h("pre", { tabindex: "0", "aria-label": title }, text);
  return h("details", { open: isOpen, "data-title": title }, h("summary", {}, title), h("div", { class: "code" }, copy, code));
}

function output({ name, datatype, shape, data }) {
  const text = JSON.stringify(data ?? null);
  return h(
    "div",
    { class: "output" },
    h("h4", { class: "mono" }, `${name} ${datatype}[${shape.join(", ")}]`),
    best(datatype, shape, data),
    h("pre", { tabindex: "0", "aria-label": `${name}, values` }, text.length > SHOWN ? `${text.slice(0, SHOWN)} …` : text),
  );
}

// The largest numbers of a row, as bars: the top classes of a classifier.
function best(datatype, shape, data) {
  const width = shape[shape.length - 1];
  if (!/^(FP|BF)/.test(datatype) || shape.length !== 2 || width < 2 || width > 100000) return null;
  const row = data.slice(0, width);
  const top = row.map((value, i) => [value, i]).sort((a, b) => b[0] - a[0]).slice(0, 5);
  const most = Math.max(...row.map(Math.abs), 1e-12);
  return h(
    "ol",
    { class: "best", "aria-label": "The largest values of the first row" },
    top.map(([value, i]) =>
      h("li", {}, h("span", { class: "mono" }, `[${i}]`), h("meter", { min: "0", max: most, value: Math.max(0, value), "aria-label": `value ${i}` }), h("span", { class: "mono" }, format.number(value))),
    ),
  );
}
