// Readable amounts, in the same format as sojourn's Python code.

const UNITS = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  for (const [unit, factor] of UNITS) {
    if (Math.abs(count) >= factor) {
      const value = count / factor;
      return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ${unit}`;
    }
  }
  return `${count} B`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms`;
  return value < 120 ? `${value.toFixed(1)} s` : `${(value / 60).toFixed(1)} min`;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) < 0.005) return value.toExponential(1);
  if (Math.abs(value) < 10) return String(Math.round(value * 100) / 100);
  return Math.round(value).toLocaleString("en");
}

// A countdown in whole seconds: 4:05, 1:02:03.
export function countdown(value) {
  const left = Math.max(0, Math.ceil(value));
  const parts = [Math.floor(left / 3600), Math.floor((left % 3600) / 60), left % 60];
  if (left < 60) return `${left} s`;
  const shown = parts[0] ? parts : parts.slice(1);
  return shown.map((part, i) => (i ? String(part).padStart(2, "0") : part)).join(":");
}

export function ago(value) {
  if (value < 60) return `${Math.max(0, Math.floor(value))} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d`;
}

export function moment(unix) {
  const date = new Date(unix * 1000);
  const pad = (part) => String(part).padStart(2, "0");
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(pad).join(":");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return new Date().toDateString() === date.toDateString() ? clock : `${day} ${clock}`;
}

export function shape(spec) {
  if (!spec.shape) return `${spec.dtype}[…]`;
  return `${spec.dtype}[${spec.shape.map((size) => (size === null ? "?" : size)).join(", ")}]`;
}

export function plural(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}
