// Does prompt caching pay? Share of the input that comes from caches, and what that saves after surcharges for writes.
import { html } from "../lib/html.js";
import * as api from "../lib/api.js";
import { day, money, percent, short } from "../lib/format.js";
import { Bars, Share } from "../lib/plot.js";
import { Table } from "../lib/table.js";
import { Card, Choice, Empty, Failed, Field, Page, Stat, useLoad } from "../lib/ui.js";
import { PERIODS, fromOf, timesOf, useParameters } from "./usage.js";

const GROUPS = [
  { value: "model", label: "Model" },
  { value: "key", label: "Key" },
  { value: "account", label: "Account" },
];
const net = (row) => Number(row.cache_saved) - Number(row.cache_surcharge);
const share = (row) => (row.input ? (row.cached || 0) / row.input : 0);
const amount = (value) => money(value.toFixed(9));

export function Cache({ parameters }) {
  const [at, set] = useParameters("cache", parameters, { group: "model", period: "30" });
  const from = fromOf(at.period);
  const [loaded, error] = useLoad(async () => {
    const read = (group) => api.get(`/usage${api.query({ group, from, to: day(), limit: 1000 })}`);
    const [rows, days] = await Promise.all([read(at.group), read("day")]);
    return { group: at.group, rows: rows.rows, days: days.rows, total: rows.total };
  }, [at.group, from], 15_000);
  const total = loaded?.total;
  const rows = loaded?.group === at.group ? loaded.rows.filter((row) => row.input > 0) : [];
  const days = timesOf("day", from);
  const saved = new Map((loaded?.days || []).map((row) => [row.day, net(row)]));
  const cached = total && (total.cached || Number(total.cache_surcharge) > 0);
  return html`<${Page} title="Cache savings" lead="What providers' prompt caches save: reads are cheaper than plain input, writes may be dearer.">
    <div class="filters">
      <${Choice} label="By" options=${GROUPS} value=${at.group} onValue=${(value) => set("group", value)} />
      <${Field} label="Period" kind="select" options=${PERIODS} value=${at.period} onValue=${(value) => set("period", value)} />
    </div>
    <${Failed} error=${error} />
    ${total && html`<dl class="stats">
      <${Stat} money label="Saved, after surcharges" value=${amount(net(total))} tone=${net(total) < 0 ? "bad" : ""} note=${`of ${money(total.cost)} in all`} />
      <${Stat} money label="Saved by reads" value=${money(total.cache_saved)} />
      <${Stat} money label="Surcharge of writes" value=${money(total.cache_surcharge)} />
      <${Stat} label="Input from caches" value=${percent(total.cached || 0, total.input)} note=${`${short(total.cached)} of ${short(total.input)} tokens`} />
    </dl>`}
    ${total && !cached && html`<${Card}><${Empty} title="Nothing came from a cache in this period">Long prompts that begin alike are cheaper when their provider caches them. <code>prompt_cache = "auto"</code> of a model or a key marks them in every client format.<//><//>`}
    ${cached && html`<${Card} title="Saved by day" note="after surcharges, UTC"><${Bars} names=${days} format=${amount} caption="Savings of reads from prompt caches, less the surcharges of writes, by day." series=${[{ name: "Saved", color: 2, values: days.map((name) => Math.max(0, saved.get(name) || 0)) }]} /><//>`}
    ${rows.length > 0 && html`<${Card} flush title=${`By ${at.group}`} note="the least cached first">
      <${Table} key=${at.group} caption=${`Cache savings by ${at.group}`} id=${(row) => row[at.group]} rows=${rows} order=${{ name: "share" }}
        columns=${[
          { name: "name", label: GROUPS.find((g) => g.value === at.group).label, cell: (row) => html`<b>${row[at.group] || "none"}</b>`, sort: (row) => row[at.group] },
          { name: "share", label: "Input from caches", number: true, cell: (row) => html`<span class="use"><span>${percent(row.cached || 0, row.input)}</span><${Share} part=${share(row)} label=${percent(row.cached || 0, row.input)} /></span>`, sort: share },
          { name: "input", label: "Input", number: true, cell: (row) => short(row.input), sort: (row) => row.input },
          { name: "saved", label: "Saved", number: true, money: true, cell: (row) => money(row.cache_saved), sort: (row) => Number(row.cache_saved) },
          { name: "surcharge", label: "Surcharge", number: true, money: true, cell: (row) => money(row.cache_surcharge), sort: (row) => Number(row.cache_surcharge) },
          { name: "net", label: "Net", number: true, money: true, cell: (row) => html`<b>${amount(net(row))}</b>`, sort: net },
        ]} />
    <//>`}
  <//>`;
}
