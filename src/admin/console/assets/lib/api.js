// Client of the admin API: requests, their errors, and streams of events. The token stays in this tab's session storage.

// Relative to the page, so that it also holds behind a proxy that adds a prefix.
const base = "../admin/v1";
const TOKEN = "model-gateway.token";

let token = sessionStorage.getItem(TOKEN);
let csrf = null;

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message || `The gateway answered with status ${status}.`);
    this.status = status;
    this.code = error.code || "";
    this.field = error.field || "";
    this.faults = error.faults || [];
  }
}

export function setToken(text) {
  token = text || null;
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

export const hasToken = () => !!token;

// Sent with changes when a cookie identifies the caller.
export function setCsrf(text) {
  csrf = text || null;
}

// Signs in: with a cookie that scripts cannot read, or, where the gateway has no sessions, with the token in this tab.
export async function signIn(text) {
  try {
    const session = await post("/session", { token: text });
    setToken(null);
    setCsrf(session.csrf);
  } catch (error) {
    if (error.status !== 404) throw error;
    setToken(text);
    await get("");
  }
}

function headers(body) {
  const all = {};
  if (token) all.authorization = `Bearer ${token}`;
  else if (csrf) all["x-csrf-token"] = csrf;
  if (body !== undefined) all["content-type"] = "application/json";
  return all;
}

async function failure(answer) {
  let error = {};
  try {
    error = (await answer.json()).error || {};
  } catch {
    // A proxy in between has answered.
  }
  return new ApiError(answer.status, error);
}

async function send(method, path, body, more) {
  let answer;
  try {
    answer = await fetch(base + path, {
      method,
      headers: { ...headers(body), ...more },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
    });
  } catch {
    throw new ApiError(0, { code: "unreachable", message: "The gateway cannot be reached." });
  }
  if (!answer.ok) throw await failure(answer);
  return answer;
}

export async function get(path) {
  return (await send("GET", path)).json();
}

export async function text(path) {
  return (await send("GET", path)).text();
}

export async function post(path, body = {}, more = {}) {
  return (await send("POST", path, body, more)).json();
}

export async function patch(path, body, more = {}) {
  return (await send("PATCH", path, body, more)).json();
}

export async function remove(path) {
  return (await send("DELETE", path)).json();
}

// Stores an export as a file.
export async function download(path, name) {
  const blob = await (await send("GET", path)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const segment = encodeURIComponent;

export function query(parameters) {
  const pairs = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  return pairs.length ? `?${pairs.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}` : "";
}

// Reads all pages of a list, at most `most` items.
export async function all(path, most = 5_000) {
  const items = [];
  let cursor = "";
  do {
    const page = await get(path + query({ limit: 1000, cursor }));
    items.push(...page.items);
    cursor = page.next_cursor || "";
  } while (cursor && items.length < most);
  return items;
}

// Reads a stream of server-sent events. Resolves at its end; `signal` ends it. An EventSource could send no token.
export async function stream(method, path, body, signal, each) {
  const answer = await fetch(base + path, {
    method,
    headers: headers(body),
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    signal,
  });
  if (!answer.ok) throw await failure(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const name = /^event: (.*)$/m.exec(event)?.[1];
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (name && data) each(name, JSON.parse(data));
    }
  }
}
