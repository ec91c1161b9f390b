// Requests to the server. A token is sent with every request and kept until the tab is closed.

const KEY = "sojourn-token";
const SILENCE_SECONDS = 40; // without any event; the server sends one at least every 15 s

export class Failure extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export function headers(more = {}) {
  return token.get() ? { ...more, Authorization: `Bearer ${token.get()}` } : more;
}

async function answer(response) {
  if (response.ok) return response;
  let words = response.statusText;
  try {
    words = (await response.clone().json()).error || words;
  } catch {
    words = (await response.text()).slice(0, 500) || words;
  }
  throw new Failure(response.status, words);
}

export async function get(path) {
  return (await answer(await fetch(path, { headers: headers(), cache: "no-store" }))).json();
}

export async function text(path) {
  return (await answer(await fetch(path, { headers: headers(), cache: "no-store" }))).text();
}

export async function post(path, body, more = {}) {
  const response = await fetch(path, { method: "POST", headers: headers(more), body });
  return (await answer(response)).json();
}

// Fetches an XML document, parsed by the browser. Scripts in it do not run.
export function drawing(path) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", path);
    Object.entries(headers()).forEach(([name, value]) => request.setRequestHeader(name, value));
    request.responseType = "document";
    request.overrideMimeType("image/svg+xml");
    request.onload = () => {
      const root = request.response && request.response.documentElement;
      if (request.status === 200 && root && root.localName === "svg") resolve(document.importNode(root, true));
      else reject(new Failure(request.status, "the drawing cannot be read"));
    };
    request.onerror = () => reject(new Failure(0, "the server does not answer"));
    request.send();
  });
}

export async function save(path, name) {
  const response = await answer(await fetch(path, { headers: headers() }));
  saveBlob(await response.blob(), name);
}

export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Server-sent events by fetch, because an EventSource cannot send a token.
export function stream(path, onPart, onLink) {
  let wait = 1000;
  async function follow() {
    const stop = new AbortController();
    let watchdog = 0;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => stop.abort(), SILENCE_SECONDS * 1000);
    };
    try {
      alive();
      const response = await answer(await fetch(path, { headers: headers(), cache: "no-store", signal: stop.signal }));
      onLink("live");
      wait = 1000;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        alive();
        const messages = (rest + value).split("\n\n");
        rest = messages.pop();
        messages.forEach((message) => take(message, onPart));
      }
      onLink("lost");
    } catch (error) {
      onLink(error.status === 401 || error.status === 403 ? "refused" : "lost", error.message);
    }
    clearTimeout(watchdog);
    setTimeout(follow, wait);
    wait = Math.min(wait * 1.6, 15000);
  }
  follow();
}

function take(message, onPart) {
  let name = "";
  let data = "";
  for (const line of message.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (name) onPart(name, JSON.parse(data));
}
