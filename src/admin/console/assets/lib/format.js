// Numbers, money and times in words. Numbers carry their unit; thousands are divided by thin spaces.

const THIN = "\u2009";

export function count(value) {
  if (value == null) return "–";
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, THIN);
}

// A short number: 12.3k, 4.56M.
export function short(value) {
  if (value == null || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  if (size >= 100 || Number.isInteger(value)) return count(value);
  return trim(value);
}

function trim(value) {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
}

// An amount of the API (a decimal in a string): two places, of less than one the first three digits that are not zero.
export function money(text) {
  if (text == null || text === "") return "–";
  const value = Number(text);
  const size = Math.abs(value);
  const leading = size > 0 && size < 1 ? Math.floor(-Math.log10(size)) : 0;
  const [whole, places] = size.toFixed(size >= 1 || size === 0 ? 2 : Math.min(9, leading + 3)).split(".");
  const cut = places.replace(/0+$/, "").padEnd(2, "0");
  return `${value < 0 ? "−" : ""}${count(Number(whole))}.${cut}`;
}

// Currency of all amounts, as `admin.currency` has it. Empty if the gateway does not know it.
let currency = "";
export function setCurrency(text) {
  currency = text || "";
}

// The currency in a sentence.
export const currencyWords = () => currency || "the currency of the prices";

// The currency behind a label of amounts.
export const inCurrency = (label) => (currency ? `${label}, ${currency}` : label);

// An amount with its currency.
export const priced = (text) => (currency && money(text) !== "–" ? `${money(text)} ${currency}` : money(text));

export function percent(part, whole, places = 0) {
  if (!whole || part == null) return "–";
  return `${((100 * part) / whole).toFixed(places)}${THIN}%`;
}

export function duration(ms) {
  if (ms == null || Number.isNaN(ms)) return "–";
  if (ms < 1) return `${Math.round(ms * 1000)}${THIN}µs`;
  if (ms < 1000) return `${trim(ms)}${THIN}ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(2)}${THIN}s`;
  return `${Math.floor(ms / 60_000)}${THIN}min ${Math.round((ms % 60_000) / 1000)}${THIN}s`;
}

// A span in words: 4 min, 3 h, 12 d.
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds}${THIN}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}${THIN}min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}${THIN}h ${Math.floor((seconds % 3600) / 60)}${THIN}min`;
  return `${Math.floor(seconds / 86_400)}${THIN}d`;
}

const two = (value) => String(value).padStart(2, "0");

// Local time; the offset is said beside the clock.
export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function moment(text) {
  if (!text) return "–";
  const at = new Date(text);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(at)}`;
}

export function ago(text) {
  return `${span(Date.now() - new Date(text))} ago`;
}

// Days of reports are UTC.
export function day(back = 0) {
  return new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10);
}

export function bytes(value) {
  if (value == null) return "–";
  if (value < 1024) return `${value}${THIN}B`;
  if (value < 1 << 20) return `${trim(value / 1024)}${THIN}KiB`;
  return `${trim(value / (1 << 20))}${THIN}MiB`;
}
