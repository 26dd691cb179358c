// Client of the admin API: requests, their errors, and streams of events. A cookie that scripts cannot read stands for the
// caller; no token stays in the page.

// Relative to the page, so that it also holds behind a proxy that adds a prefix.
const base = "../admin/v1";

// Session of this page, as it was read last. Its CSRF value is sent with changes.
let session = null;
// Session of the caller whom the page shows. It stays until another one is accepted.
let shown = null;
let onChange = () => {};

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message || `The gateway answered with status ${status}.`);
    this.status = status;
    this.code = error.code || "";
    this.field = error.field || "";
    this.faults = error.faults || [];
    // Members that another operator has changed meanwhile.
    this.differs = error.differs || [];
  }
}

// Sets what is called when another caller than before stands behind this page: its session has ended, or another tab has
// signed in or out.
export function setOnChange(callback) {
  onChange = callback;
}

export async function readSession() {
  session = await get("/session");
  return session;
}

// The page shows the caller of the session that was read last.
export function acceptSession() {
  shown = session;
}

// Exchanges a token for a session.
export async function signIn(token) {
  session = await post("/session", { token });
}

export async function signOut() {
  await remove("/session");
  session = null;
}

// Reads the session again, after a refusal or a break. Returns `ended` if another caller than the one who is shown stands behind the page;
// `renewed` for another session of the same caller, as after another tab has signed in: then a refused request may succeed now.
export async function checkSession() {
  const before = session;
  const now = await readSession().catch(() => null);
  if (!now || !shown) return "same";
  if (shown.caller !== now.caller || shown.role !== now.role) {
    onChange();
    return "ended";
  }
  return before?.csrf !== now.csrf ? "renewed" : "same";
}

function headers(body) {
  const all = {};
  if (session?.csrf) all["x-csrf-token"] = session.csrf;
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

const isRefusal = (error) => error.status === 401 || error.status === 403;
const unreachable = () => new ApiError(0, { code: "unreachable", message: "The gateway cannot be reached." });
const ended = () => new ApiError(401, { code: "session_ended", message: "Your session has ended, and nothing was changed. Sign in again, and repeat it." });

async function attempt(method, path, body, more) {
  let answer;
  try {
    answer = await fetch(base + path, {
      method,
      headers: { ...headers(body), ...more },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
    });
  } catch {
    throw unreachable();
  }
  if (!answer.ok) throw await failure(answer);
  return answer;
}

// Sends a request; once more if it was refused because of a session that another tab has replaced.
async function send(method, path, body, more) {
  try {
    return await attempt(method, path, body, more);
  } catch (error) {
    if (!isRefusal(error) || path === "/session") throw error;
    const found = await checkSession();
    if (found === "ended") throw ended();
    if (found === "same") throw error;
    return attempt(method, path, body, more);
  }
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

// Returns the members that differ between two states of an entry.
const differing = (before, now, members) => members.filter((name) => JSON.stringify(before[name] ?? null) !== JSON.stringify(now[name] ?? null));

// Changes the entry at `path`, which the page shows as `shown`. Refused as stale if one of `members` is another one by now. The version
// that is compared by the gateway is that of the whole file: if only other entries of it have changed, the change is tried again.
export async function change(method, path, { shown, members, body, at = path }) {
  for (let turn = 1; ; turn += 1) {
    const now = await get(path);
    const differs = differing(shown, now, members);
    if (differs.length) throw new ApiError(412, { code: "stale", message: `Nothing was written: another operator has changed ${differs.join(", ")} since this page read it.`, differs });
    try {
      return await (await send(method, at, body, now.etag ? { "if-match": now.etag } : {})).json();
    } catch (error) {
      if (error.code !== "stale" || turn === 5) throw error;
    }
  }
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

// Reads a list page by page, at most `most` items; `isCut` of the list says that there are more, `total` how many match.
export async function pages(path, parameters, most) {
  const items = [];
  let cursor = "";
  do {
    const page = await get(path + query({ ...parameters, limit: Math.min(1000, most - items.length), cursor }));
    items.push(...page.items);
    items.total = page.total;
    cursor = page.next_cursor || "";
  } while (cursor && items.length < most);
  items.isCut = !!cursor;
  return items;
}

export const all = (path, most = 10_000) => pages(path, {}, most);

// Reads a stream of server-sent events. Resolves at its end; `signal` ends it. An EventSource could send no body and no CSRF value.
export async function stream(method, path, body, signal, each) {
  // The browser's own words for a connection that broke off say nothing to an operator.
  const inWords = (error) => {
    throw error.name === "AbortError" ? error : unreachable();
  };
  const answer = await fetch(base + path, {
    method,
    headers: headers(body),
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    signal,
  }).catch(inWords);
  if (!answer.ok) {
    const error = await failure(answer);
    if (isRefusal(error)) await checkSession();
    throw error;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(inWords);
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
