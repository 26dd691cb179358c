// What did it cost? Sums of the ledger by time or by name, times also split by name. Days are UTC; rows and others add up to
// the total.
import { html, useRef, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, day, inCurrency, money, percent, priced, short } from "../lib/format.js";
import { Bars, Share } from "../lib/plot.js";
import { Table } from "../lib/table.js";
import { Card, Choice, Empty, Failed, Field, Page, Stat, useLoad } from "../lib/ui.js";

export const PERIODS = [
  { value: "today", label: "Today", from: () => day() },
  { value: "7", label: "7 days", from: () => day(6) },
  { value: "30", label: "30 days", from: () => day(29) },
  { value: "month", label: "This month", from: () => day().slice(0, 8) + "01" },
  { value: "90", label: "90 days", from: () => day(89) },
];
const NAMES = [
  { value: "model", label: "Model" },
  { value: "key", label: "Key" },
  { value: "account", label: "Account" },
  { value: "provider", label: "Provider" },
  { value: "error", label: "Error" },
];
const TIMES = [
  { value: "hour", label: "Hour" },
  { value: "day", label: "Day" },
];
const GROUPS = [...TIMES, ...NAMES];
const isTime = (group) => TIMES.some((one) => one.value === group);
const labelOf = (group) => GROUPS.find((one) => one.value === group)?.label || group;
// Colours of the names that have one of their own in a plot, without that of faults; the others have one together.
const COLORS = [0, 1, 2, 4, 5];
const TOP = COLORS.length;
const REST = 6;
export const METRICS = [
  { value: "cost", label: "Cost", order: "-cost", read: (row) => Number(row.cost), format: (value) => money(value.toFixed(9)) },
  { value: "requests", label: "Requests", order: "-requests", read: (row) => row.requests, format: short },
  { value: "input", label: "Input", order: "-input", read: (row) => row.input || 0, format: short },
  { value: "output", label: "Output", order: "-output", read: (row) => row.output || 0, format: short },
  { value: "failed", label: "Failed", order: "-failed", read: (row) => row.failed, format: short },
];

// The parameters of the page are in the address, so that a link shows the same.
export function useParameters(page, given, defaults) {
  const [all, setAll] = useState({ ...defaults, ...given });
  const latest = useRef(all);
  const set = (name, value, more) => {
    const next = { ...latest.current, [name]: value, ...more };
    latest.current = next;
    setAll(next);
    // What ends after its page was left does not change the address of another one.
    if ((location.hash.replace(/^#\/?/, "").split("?")[0] || "overview") !== page) return;
    const shown = Object.fromEntries(Object.entries(next).filter(([key, text]) => text !== "" && text !== defaults[key]));
    history.replaceState(null, "", `#/${page}${api.query(shown)}`);
  };
  return [all, set];
}

export const fromOf = (period) => (PERIODS.find((one) => one.value === period) || PERIODS[2]).from();

// All times from the first day to now, so that a time without usage is a gap and not missing.
export function timesOf(group, from) {
  const step = group === "hour" ? 3_600_000 : 86_400_000;
  const names = [];
  for (let at = Date.parse(from); at <= Date.now() && names.length < 800; at += step) names.push(new Date(at).toISOString());
  return names.map((name) => (group === "hour" ? name.replace(/\.\d+Z$/, "Z") : name.slice(0, 10)));
}

const hour = (text) => `${text.slice(5, 10)} ${text.slice(11, 13)}h`;
const shownTime = (group, text) => (group === "hour" ? hour(text) : text);
// An empty name is a value too.
const shownName = (group, row) => (row.is_others ? "all others" : row[group] || (group === "error" ? "succeeded" : "none"));

// Bars of a report by a time, split by a name if `split` is one. Names without any value are left out.
export function TimePlot({ group, split, rows, metric, from, total }) {
  const times = timesOf(group, from);
  const at = new Map(times.map((time, index) => [time, index]));
  const made = new Map();
  for (const row of rows) {
    const name = split ? shownName(split, row) : metric.label;
    const one = made.get(name) || { name, sum: 0, isRest: !!row.is_others, values: times.map(() => 0) };
    made.set(name, one);
    one.sum += metric.read(row);
    if (at.has(row[group])) one.values[at.get(row[group])] += metric.read(row);
  }
  const series = [...made.values()].filter((one) => !split || one.sum > 0).sort((a, b) => a.isRest - b.isRest || b.sum - a.sum);
  series.forEach((one, index) => Object.assign(one, { color: one.isRest ? REST : COLORS[index % TOP] }));
  const sums = times.map((_, index) => series.reduce((sum, one) => sum + one.values[index], 0));
  const top = sums.indexOf(Math.max(...sums));
  const words = split ? `${metric.label} by ${group} and ${split}` : `${metric.label} by ${group}`;
  const caption = sums[top] > 0 ? `${words}; most: ${shownTime(group, times[top])} with ${metric.format(sums[top])} of ${metric.format(metric.read(total))}.` : `${words}: nothing in this period.`;
  return html`<${Bars} names=${times.map((time) => shownTime(group, time))} format=${metric.format} caption=${caption} series=${series} />`;
}

function NamePlot({ group, rows, metric, total }) {
  const shown = [...rows].sort((a, b) => metric.read(b) - metric.read(a)).slice(0, 20);
  const most = Math.max(1e-12, ...shown.map(metric.read));
  const top = shown[0];
  const caption = top && metric.read(top) > 0 ? `${metric.label} by ${group}; most: ${shownName(group, top)} with ${metric.format(metric.read(top))} of ${metric.format(metric.read(total))}.` : `${metric.label} by ${group}: nothing in this period.`;
  return html`<figure class="plot wide"><ul class="ranks">${shown.map((row) => html`<li><span>${shownName(group, row)}</span><b>${metric.format(metric.read(row))} <span class="muted">${percent(metric.read(row), metric.read(total))}</span></b><${Share} part=${metric.read(row) / most} label=${percent(metric.read(row), metric.read(total))} /></li>`)}</ul><figcaption>${caption}</figcaption></figure>`;
}

const FILTERS = [["model", "Model"], ["key", "Key"], ["account", "Account"], ["provider", "Provider"]];
const DEFAULTS = { group: "day", split: "", metric: "cost", period: "30", model: "", key: "", account: "", provider: "" };

export function Usage({ parameters }) {
  const [at, set] = useParameters("usage", parameters, DEFAULTS);
  const from = fromOf(at.period);
  const split = isTime(at.group) ? at.split : "";
  const group = split ? `${at.group},${split}` : at.group;
  const metric = METRICS.find((one) => one.value === at.metric) || METRICS[0];
  const asked = { group, from, to: day(), ...Object.fromEntries(FILTERS.map(([name]) => [name, at[name]])) };
  if (split) Object.assign(asked, { top: TOP, order: metric.order });
  const [loaded, error] = useLoad(() => api.get(`/usage${api.query({ ...asked, limit: split ? 10_000 : 1000 })}`), [JSON.stringify(asked)], 15_000);
  // Sums of another query are not shown beside the reason why this one is refused.
  const report = error?.status === 400 ? null : loaded;
  const total = report?.total;
  const export_ = (format) => api.download(`/usage${api.query({ ...asked, format })}`, `usage-${at.group}-${from}.${format}`);
  const rows = report?.group === group ? report.rows : [];
  // Sums by hours are of a few days.
  const setGroup = (value) => set("group", value, value === "hour" && at.period !== "today" ? { period: "7" } : {});
  const name = (row) => (isTime(at.group) ? shownTime(at.group, row[at.group]) : shownName(at.group, row));
  return html`<${Page} title="Usage and cost" lead="Sums of the ledger. Days and hours are UTC."
    actions=${html`<button type="button" class="button" onClick=${() => export_("csv")}>CSV</button><button type="button" class="button" onClick=${() => export_("ndjson")}>NDJSON</button>`}>
    <div class="filters">
      <${Choice} label="By" options=${GROUPS} value=${at.group} onValue=${setGroup} />
      ${isTime(at.group) && html`<${Field} label="Split by" kind="select" options=${[{ value: "", label: "nothing" }, ...NAMES]} value=${at.split} onValue=${(value) => set("split", value)} />`}
      <${Choice} label="Show" options=${METRICS} value=${at.metric} onValue=${(value) => set("metric", value)} />
      <${Field} label="Period" kind="select" options=${PERIODS} value=${at.period} onValue=${(value) => set("period", value)} />
      ${FILTERS.map(([one, label], index) => html`<${Field} label=${label} value=${at[one]} onValue=${(value) => set(one, value)} placeholder="all" ...${index ? {} : { "data-filter": true }} />`)}
    </div>
    <${Failed} error=${error} />
    ${total && html`<dl class="stats">
      <${Stat} money label="Cost" value=${money(total.cost)} note=${total.requests ? `${money((Number(total.cost) / total.requests).toFixed(6))} per request` : ""} />
      <${Stat} label="Requests" value=${short(total.requests)} note=${`${count(total.failed)} failed, ${percent(total.failed, total.requests)}`} />
      <${Stat} label="Input" value=${short(total.input)} unit="tokens" note=${`${percent(total.cached || 0, total.input)} from caches`} />
      <${Stat} label="Output" value=${short(total.output)} unit="tokens" note=${total.reasoning ? `${percent(total.reasoning, total.output)} reasoning` : ""} />
      <${Stat} money label="Saved by caches" value=${money((Number(total.cache_saved) - Number(total.cache_surcharge)).toFixed(9))} note=${html`<a href="#/cache">Cache savings</a>`} />
    </dl>`}
    ${!report ? null : !total.requests
      ? html`<${Card}><${Empty} title="No usage in this period">Each request of a key is summed here, a moment after it has ended. Models without a price cost nothing: <code>[model.price]</code> in routes.toml sets one.<//><//>`
      : html`<${Card} title=${`${metric.value === "cost" ? inCurrency(metric.label) : metric.label} by ${split ? `${at.group} and ${split}` : at.group}`} note=${`${from} to ${day()}, UTC${split ? `; the ${TOP} largest` : ""}`}>
          ${rows.length > 0 && (isTime(at.group) ? html`<${TimePlot} group=${at.group} split=${split} rows=${rows} metric=${metric} from=${from} total=${total} />` : html`<${NamePlot} group=${at.group} rows=${rows} metric=${metric} total=${total} />`)}
        <//>
        <${Card} flush title="All numbers" note=${report?.others ? "The largest rows; the others are summed in the last line." : `${rows.length} rows`}>
          <${Table} key=${group} caption=${`Usage by ${group.replace(",", " and ")}`} id=${(row) => `${row[at.group]}\n${split && (row.is_others ? "" : `=${row[split]}`)}`} rows=${rows} order=${isTime(at.group) ? { name: "name", down: true } : { name: "cost", down: true }}
            columns=${[
              { name: "name", label: labelOf(at.group), cell: (row) => html`<b>${name(row)}</b>`, sort: (row) => row[at.group] },
              ...(split ? [{ name: "split", label: labelOf(split), cell: (row) => shownName(split, row), sort: (row) => shownName(split, row) }] : []),
              { name: "cost", label: "Cost", number: true, money: true, cell: (row) => money(row.cost), sort: (row) => Number(row.cost) },
              { name: "requests", label: "Requests", number: true, cell: (row) => count(row.requests), sort: (row) => row.requests },
              { name: "failed", label: "Failed", number: true, cell: (row) => count(row.failed), sort: (row) => row.failed },
              { name: "input", label: "Input", number: true, cell: (row) => count(row.input), sort: (row) => row.input },
              { name: "cached", label: "Cached", number: true, cell: (row) => count(row.cached), sort: (row) => row.cached },
              { name: "output", label: "Output", number: true, cell: (row) => count(row.output), sort: (row) => row.output },
              { name: "reasoning", label: "Reasoning", number: true, cell: (row) => count(row.reasoning), sort: (row) => row.reasoning },
            ]} />
          ${report?.others && html`<p class="none">Others: ${priced(report.others.cost)} in ${count(report.others.requests)} requests.</p>`}
        <//>`}
  <//>`;
}
