// The state received from the server, and listeners for its changes.

const parts = {};
const listeners = new Set();
let offset = 0; // the server's clock minus ours, in seconds

export function put(name, value) {
  if (name === "hello") offset = value.now - Date.now() / 1000;
  const before = parts[name];
  parts[name] = value;
  listeners.forEach((listener) => listener(name, value, before));
}

export function part(name, otherwise = null) {
  return parts[name] ?? otherwise;
}

export function now() {
  return Date.now() / 1000 + offset;
}

export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
