// Live state of the gateway: one stream of events for the whole page. Pages subscribe and are drawn a few times a second.
import { checkSession, stream } from "./api.js";

// A reading a second for 15 minutes, and the requests that ended last.
const READINGS = 900;
const REQUESTS = 1000;
// Requests under way that are held: a gateway may serve more at a time.
const UNDER_WAY = 2000;
// Least time between two drawings in milliseconds, however many requests end.
const EVERY = 250;

export const live = {
  readings: [],
  requests: [],
  // Requests under way by time and id, the oldest first.
  underWay: new Map(),
  // What is added to the browser's clock for that of the gateway, in milliseconds.
  ahead: 0,
  // Readings of the whole time, and the present states of targets by provider and model.
  totals: null,
  targets: new Map(),
  lost: 0,
  connected: false,
  paused: false,
  fault: "",
};

const listeners = new Set();
let scheduled = false;
let drawn = 0;
let stopping = null;

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  if (scheduled) return;
  scheduled = true;
  setTimeout(() => {
    scheduled = false;
    drawn = Date.now();
    for (const listener of listeners) listener();
  }, Math.max(0, drawn + (document.hidden ? 2000 : EVERY) - Date.now()));
}

// What a page that is paused shows of the requests under way, and the gateway's time then.
let frozen = null;

export function setPaused(paused) {
  frozen = paused ? { rows: [...live.underWay.values()], now: gatewayNow() } : null;
  live.paused = paused;
  changed();
}

const gatewayNow = () => Date.now() + live.ahead;

// Returns the requests under way, the latest first, each with its age in milliseconds by the gateway's clock.
export function underWay() {
  const { rows, now } = frozen || { rows: [...live.underWay.values()], now: gatewayNow() };
  return rows.map((row) => ({ ...row, age_ms: Math.max(0, now - row.time_ms) })).reverse();
}

const nameOf = (event) => `${event.time_ms} ${event.request_id}`;

// Requests that ended while the page was paused, shown when it goes on.
let held = [];

function receive(name, data) {
  if (name === "totals") {
    live.totals = data;
    live.ahead = data.time_ms - Date.now();
    live.readings.push(data);
    if (live.readings.length > READINGS) live.readings.shift();
  } else if (name === "request_start") {
    live.underWay.set(nameOf(data), data);
    if (live.underWay.size > UNDER_WAY) live.underWay.delete(live.underWay.keys().next().value);
  } else if (name === "request") {
    live.underWay.delete(nameOf(data));
    held.push(data);
    if (!live.paused) {
      live.requests = held.reverse().concat(live.requests).slice(0, REQUESTS);
      held = [];
    } else if (held.length > REQUESTS) held.shift();
  } else if (name === "target") {
    live.targets.set(`${data.provider}\n${data.model}`, data);
  } else if (name === "lost") {
    live.lost += data.requests;
    // Ends may be among what was lost: a request that has ended must not seem to be under way for ever.
    live.underWay.clear();
  }
  changed();
}

export async function start() {
  stop();
  const stopped = new AbortController();
  stopping = stopped;
  let wait = 500;
  let breaks = 0;
  while (!stopped.signal.aborted) {
    try {
      await stream("GET", "/events", undefined, stopped.signal, (name, data) => {
        if (!live.connected) {
          // A gateway that was started anew counts from zero.
          const before = live.readings.at(-1);
          if (name === "totals" && before && data.requests < before.requests) live.readings = [];
          // Nor does it know the sessions of before.
          if (breaks > 0) checkSession();
        }
        live.connected = true;
        live.fault = "";
        wait = 500;
        receive(name, data);
      });
      live.fault = "The gateway has closed the stream of events.";
    } catch (error) {
      live.fault = error.message || "The stream of events broke off.";
    }
    live.connected = false;
    breaks += 1;
    live.underWay.clear();
    changed();
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 10_000);
  }
}

export function stop() {
  stopping?.abort();
  stopping = null;
}

// Returns the latest reading and the one that was taken `seconds` before it, or as early as there is one.
export function window(seconds) {
  const last = live.readings.at(-1);
  if (!last) return null;
  const from = last.time_ms - seconds * 1000;
  const first = live.readings.find((reading) => reading.time_ms >= from) || last;
  return first === last ? null : { first, last, seconds: (last.time_ms - first.time_ms) / 1000 };
}

const failed = (reading, from) => {
  let sum = 0;
  for (const [status, number] of Object.entries(reading.statuses)) if (Number(status) >= from) sum += number;
  return sum;
};

// Returns rates a second between two readings.
export function rates({ first, last, seconds }) {
  const per = (read) => (read(last) - read(first)) / seconds;
  return {
    requests: per((r) => r.requests),
    errors: per((r) => failed(r, 400)),
    faults: per((r) => failed(r, 500)),
    input: per((r) => r.tokens.input || 0),
    output: per((r) => r.tokens.output || 0),
    cost: per((r) => Number(r.cost)),
  };
}

// Returns a quantile of a distribution between two readings in milliseconds; null if nothing was observed.
export function quantile(name, part, { first, last }) {
  const total = last[name].count - first[name].count;
  if (total <= 0) return null;
  const wanted = part * total;
  let below = 0;
  let lower = 0;
  for (const [index, bound] of last[name].le.entries()) {
    const up = last[name].counts[index] - (first[name].counts[index] || 0);
    if (up >= wanted) return 1000 * (lower + ((bound - lower) * (wanted - below)) / Math.max(1, up - below));
    below = up;
    lower = bound;
  }
  return 1000 * lower;
}

// Returns points of the last 15 minutes, each over `step` seconds: [time, value of `read`].
export function points(step, read) {
  const made = [];
  let before = null;
  for (const reading of live.readings) {
    if (!before) before = reading;
    else if (reading.time_ms - before.time_ms >= step * 1000 - 300) {
      const seconds = (reading.time_ms - before.time_ms) / 1000;
      made.push([reading.time_ms, read({ first: before, last: reading, seconds })]);
      before = reading;
    }
  }
  return made;
}
