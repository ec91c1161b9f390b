// Elements from plain values. Text stays text: nothing here parses markup.

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, v]) => element.style.setProperty(key, v));
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// Updates children to match a list. Items that stay keep their element, its focus and animation.
export function keyed(parent, items, keyOf, create, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let previous = null;
  for (const item of items) {
    const key = keyOf(item);
    let element = before.get(key);
    if (element) before.delete(key);
    else {
      element = create(item);
      element.dataset.key = key;
    }
    update(element, item);
    const next = previous ? previous.nextSibling : parent.firstChild;
    if (next !== element) parent.insertBefore(element, next);
    previous = element;
  }
  before.forEach((element) => element.remove());
}

function classOf(column) {
  return column.number ? "number" : column.short ? "short" : column.wide ? "wide" : null;
}

// A table of columns {title, text, number, node}; `node` gives elements where text is not enough.
export function table(caption, columns, rows, { empty = "Nothing yet.", keyOf = null } = {}) {
  const body = h("tbody");
  const show = (items) => {
    note.hidden = items.length > 0;
    frame.hidden = !items.length;
    keyed(
      body,
      items,
      keyOf || ((item) => String(items.indexOf(item))),
      () => h("tr", {}, columns.map((c, i) => (i ? h("td", { class: classOf(c) }) : h("th", { scope: "row", class: classOf(c) })))),
      (row, item) =>
        columns.forEach((column, i) => {
          const cell = row.children[i];
          if (column.node) {
            const stamp = JSON.stringify(column.stamp ? column.stamp(item) : item);
            if (cell.dataset.stamp === stamp) return;
            cell.dataset.stamp = stamp;
            replace(cell, column.node(item));
          } else {
            const text = String(column.text(item) ?? "");
            if (cell.textContent !== text) cell.textContent = text;
          }
          if (column.tone) cell.dataset.tone = column.tone(item) || "";
        }),
    );
  };
  const note = h("p", { class: "dim" }, empty);
  const head = h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.number ? "number" : null }, c.title)));
  const frame = h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": `${caption}: table` },
    h("table", {}, h("caption", { class: "hidden-text" }, caption), h("thead", {}, head), body),
  );
  show(rows);
  return { element: h("div", {}, note, frame), show };
}

// Calls `act` at most once in `seconds`. Its failures are ignored: a lost connection shows anyway.
export function atMostEvery(seconds, act) {
  let timer = 0;
  let last = -Infinity;
  return () => {
    clearTimeout(timer);
    const wait = Math.max(0, last + seconds * 1000 - performance.now());
    timer = setTimeout(() => {
      last = performance.now();
      Promise.resolve(act()).catch(() => {});
    }, wait);
  };
}

let panels = 0;

export function panel(title, ...children) {
  const id = `panel-${++panels}`;
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), children);
}
