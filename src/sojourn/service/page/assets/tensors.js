// Conversion of the user's input and uploads to tensors of the KServe protocol.

export const DATATYPES = {
  float16: "FP16", float32: "FP32", float64: "FP64", bfloat16: "BF16", bool: "BOOL",
  int8: "INT8", int16: "INT16", int32: "INT32", int64: "INT64",
  uint8: "UINT8", uint16: "UINT16", uint32: "UINT32", uint64: "UINT64",
  string: "BYTES", bytes: "BYTES", object: "BYTES",
}; // prettier-ignore
const FILLED = { zeros: () => 0, ones: () => 1, random: () => Math.random() };

// The KServe datatype of an input; if it takes any dtype, the type of the values decides.
export function datatype(spec, values = [0]) {
  if (spec.dtype === "any") return { string: "BYTES", boolean: "BOOL" }[typeof values[0]] || "FP64";
  return DATATYPES[spec.dtype] || spec.dtype.toUpperCase();
}

// The shape of an example: dimensions that are not fixed become 1.
export function exampleShape(spec) {
  return (spec.shape || [1]).map((size) => size ?? 1);
}

export function size(shape) {
  return shape.reduce((product, dim) => product * dim, 1);
}

export function exampleText(spec) {
  const shape = exampleShape(spec);
  if (size(shape) > 64) return "random";
  const one = datatype(spec) === "BYTES" ? "text" : datatype(spec) === "BOOL" ? false : 0;
  return JSON.stringify(nested(shape, one));
}

function nested(shape, value) {
  if (!shape.length) return value;
  return Array.from({ length: shape[0] }, () => nested(shape.slice(1), value));
}

// Returns {datatype, shape, data (flat) or raw (Uint8Array of one BYTES element)}.
export function tensor(name, spec, text) {
  const words = text.trim();
  const type = datatype(spec);
  const filled = /^(zeros|ones|random)(?:\(([\d,\s]*)\))?$/.exec(words);
  if (filled) {
    const shape = filled[2] !== undefined ? filled[2].split(",").filter((d) => d.trim()).map(Number) : exampleShape(spec);
    return { name, datatype: type, shape, data: Array.from({ length: size(shape) }, () => cast(FILLED[filled[1]](), type)), filled: filled[1] };
  }
  let value;
  try {
    value = JSON.parse(words);
  } catch (error) {
    throw new Error(`${name}: ${error.message}. Write JSON, or zeros, ones, random, random(2, 3).`);
  }
  const shape = [];
  for (let inner = value; Array.isArray(inner); inner = inner[0]) shape.push(inner.length);
  const data = Array.isArray(value) ? value.flat(Infinity) : [value];
  if (size(shape) !== data.length) throw new Error(`${name}: the lists are not of one length.`);
  check(name, spec, shape);
  return { name, datatype: datatype(spec, data), shape, data };
}

function cast(value, type) {
  if (type === "BOOL") return value >= 0.5;
  if (type === "BYTES") return String(value);
  return type.startsWith("FP") || type === "BF16" ? value : Math.round(value);
}

function check(name, spec, shape) {
  if (!spec.shape) return;
  const fits = spec.shape.length === shape.length && spec.shape.every((dim, i) => dim === null || dim === shape[i]);
  if (!fits) {
    const wanted = spec.shape.map((dim) => dim ?? "?").join(", ");
    throw new Error(`${name} takes the shape [${wanted}], and this is [${shape.join(", ")}].`);
  }
}

// An image in the input's shape: height, width and channels, in whichever order the input has them.
export async function fromImage(name, spec, file, scale) {
  if (datatype(spec) === "BYTES") {
    return { name, datatype: "BYTES", shape: exampleShape(spec), raw: new Uint8Array(await file.arrayBuffer()), file: file.name };
  }
  const picture = await createImageBitmap(file);
  const dims = (spec.shape || [null, null, null, 3]).slice(-3);
  const isFirst = dims.length === 3 && dims[0] !== null && dims[0] <= 4 && !(dims[2] !== null && dims[2] <= 4);
  const [high, wide, channels] = dims.length < 3 ? [...dims, 1] : isFirst ? [dims[1], dims[2], dims[0]] : dims;
  const [rows, columns, depth] = [high ?? picture.height, wide ?? picture.width, channels ?? 3];
  const canvas = new OffscreenCanvas(columns, rows);
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0, columns, rows);
  const pixels = context.getImageData(0, 0, columns, rows).data;
  const isFloat = datatype(spec).startsWith("FP") || datatype(spec) === "BF16";
  const scaled = { "0–1": (v) => v / 255, "-1–1": (v) => v / 127.5 - 1, "0–255": (v) => v }[isFloat ? scale : "0–255"];
  const data = new Array(rows * columns * depth);
  for (let i = 0; i < rows * columns; i++) {
    const [r, g, b, a] = pixels.subarray(i * 4, i * 4 + 4);
    const values = depth === 1 ? [Math.round(0.299 * r + 0.587 * g + 0.114 * b)] : [r, g, b, a];
    for (let c = 0; c < depth; c++) data[isFirst ? c * rows * columns + i : i * depth + c] = scaled(values[c]);
  }
  const inner = dims.length < 3 ? [rows, columns] : isFirst ? [depth, rows, columns] : [rows, columns, depth];
  const outer = (spec.shape || [1]).slice(0, Math.max(0, (spec.shape || [1, 1, 1, 1]).length - inner.length)).map((d) => d ?? 1);
  return { name, datatype: datatype(spec), shape: [...outer, ...inner], data, file: file.name };
}

export function parseCsv(text) {
  const rows = [];
  let row = [];
  let cell = "";
  let isQuoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (isQuoted) {
      if (c === '"' && text[i + 1] === '"') cell += text[++i];
      else if (c === '"') isQuoted = false;
      else cell += c;
    } else if (c === '"') isQuoted = true;
    else if (c === "," || c === "\n") {
      row.push(cell.replace(/\r$/, ""));
      cell = "";
      if (c === "\n") rows.push(row.splice(0));
    } else cell += c;
  }
  if (cell || row.length) rows.push([...row, cell]);
  return rows.filter((cells) => cells.some((text) => text.trim()));
}

// The rows of a CSV file as the text of each input: by columns with input names, or as a matrix.
export function fromCsv(text, specs, chosen) {
  const rows = parseCsv(text);
  if (!rows.length) throw new Error("the file has no rows");
  const hasHead = rows[0].some((cell) => Number.isNaN(Number(cell)));
  const head = hasHead ? rows.shift() : [];
  const value = (spec, cell) => (datatype(spec) === "BYTES" || Number.isNaN(Number(cell)) ? cell : Number(cell));
  const named = head.map((title) => title.trim()).filter((title) => title in specs);
  if (named.length) {
    return Object.fromEntries(
      named.map((name) => {
        const at = head.findIndex((title) => title.trim() === name);
        const isColumn = (specs[name].shape || []).length === 2;
        return [name, JSON.stringify(rows.map((cells) => (isColumn ? [value(specs[name], cells[at])] : value(specs[name], cells[at]))))];
      }),
    );
  }
  const isFlat = (specs[chosen].shape || []).length === 1;
  const matrix = rows.map((cells) => cells.map((cell) => value(specs[chosen], cell)));
  return { [chosen]: JSON.stringify(isFlat ? matrix.map((cells) => cells[0]) : matrix) };
}

// A request's body: JSON, followed by the bytes that JSON cannot hold.
export function body(tensors) {
  const raws = [];
  const inputs = tensors.map(({ name, datatype: type, shape, data, raw }) => {
    if (!raw) return { name, datatype: type, shape, data };
    const framed = new Uint8Array(4 + raw.length);
    new DataView(framed.buffer).setUint32(0, raw.length, true);
    framed.set(raw, 4);
    raws.push(framed);
    return { name, datatype: type, shape, parameters: { binary_data_size: framed.length } };
  });
  const text = JSON.stringify({ inputs });
  if (!raws.length) return { text, body: text, headers: { "Content-Type": "application/json" } };
  const bytes = new TextEncoder().encode(text);
  return {
    text,
    body: new Blob([bytes, ...raws]),
    headers: { "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": String(bytes.length) },
  };
}
