// Who runs into a limit next? All limits of keys and accounts, those of which most is used first.
import { html } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, percent, span } from "../lib/format.js";
import { Share } from "../lib/plot.js";
import { Table } from "../lib/table.js";
import { Badge, Card, Choice, Empty, Failed, Field, Page, useLoad } from "../lib/ui.js";
import { LABELS } from "./limit_use.js";
import { useParameters } from "./usage.js";

const OVER = [
  { value: "", label: "All" },
  { value: "0.5", label: "From 50 %" },
  { value: "0.8", label: "From 80 %" },
  { value: "1", label: "Used up" },
];
const MOST = 1000;

const part = (row) => (row.use.used == null ? null : row.use.share_percent / 100);
const tone = (share) => (share == null ? "off" : share >= 1 ? "bad" : share >= 0.8 ? "warn" : "good");
const WORDS = { off: "not known here", good: "free", warn: "nearly used up", bad: "used up" };
const labelOf = (row) => LABELS[row.use.limit] || [row.use.limit, (text) => text];

function Used({ row }) {
  const [label, format] = labelOf(row);
  const share = part(row);
  if (share == null) return html`<span class="muted">of ${format(row.use.most)}; the gateways of a fleet share it</span>`;
  const words = `${format(row.use.used)} of ${format(row.use.most)}`;
  return html`<span class="use wide"><span>${words} <span class="muted">${percent(share, 1)}</span></span><${Share} part=${share} tone=${tone(share)} label=${`${label}: ${words}`} /></span>`;
}

export function Limits({ parameters }) {
  const [at, set] = useParameters("limits", parameters, { over: "", q: "" });
  const [found, error] = useLoad(() => api.get(`/limits${api.query({ over: at.over, limit: MOST })}`), [at.over], 5000);
  const words = at.q.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = found && found.items.filter((row) => words.every((word) => `${row.scope} ${row.name} ${row.account || ""} ${labelOf(row)[0]}`.toLowerCase().includes(word)));
  const isCut = found && found.total > found.items.length;
  const note = isCut ? `the ${count(found.items.length)} of which most is used, of ${count(found.total)}` : "those of which most is used first";
  return html`<${Page} title="Limits" lead="Who runs into a limit next? Limits of keys, and of all keys of an account together.">
    <div class="filters">
      <${Field} label="Filter" grow value=${at.q} onValue=${(q) => set("q", q)} placeholder="name, account, kind of limit" data-filter />
      <${Choice} label="Used" options=${OVER} value=${at.over} onValue=${(over) => set("over", over)} />
    </div>
    <${Failed} error=${error} />
    <${Card} flush title=${rows ? `${count(rows.length)} ${rows.length === 1 ? "limit" : "limits"}` : "Limits"} note=${note}>
      <${Table} caption="Limits of keys and accounts" id=${(row) => `${row.scope}\n${row.name}\n${row.use.limit}`} rows=${rows}
        empty=${at.q || at.over
          ? html`<${Empty} title="No limit is so far used">Take words out of the filter, or show all.<//>`
          : html`<${Empty} title="No limits yet">A limit of requests, tokens, concurrent requests or spend keeps one client from taking what others need. Set one at a key under <a href="#/keys">Keys</a>, or for all keys of an account under <a href="#/accounts">Accounts</a>.<//>`}
        columns=${[
          { name: "name", label: "Of", cell: (row) => html`<a href=${`#/${row.scope}s?open=${encodeURIComponent(row.name)}`}><b>${row.name}</b></a> <span class="tag">${row.scope}</span>`, sort: (row) => row.name },
          { name: "account", label: "Account", kind: "minor", cell: (row) => row.account || html`<span class="muted">none</span>`, sort: (row) => row.account || "" },
          { name: "limit", label: "Limit", cell: (row) => labelOf(row)[0], sort: (row) => row.use.limit },
          { name: "state", label: "State", cell: (row) => html`<${Badge} tone=${tone(part(row))}>${WORDS[tone(part(row))]}<//>`, sort: (row) => part(row) ?? -1 },
          { name: "used", label: "Used", number: true, cell: (row) => html`<${Used} row=${row} />`, sort: (row) => part(row) ?? -1 },
          { name: "resets", label: "All of it is there in", number: true, cell: (row) => (row.use.resets && Number(row.use.used) > 0 ? span(new Date(row.use.resets) - Date.now()) : "–"), sort: (row) => row.use.resets || "" },
        ]} />
    <//>
  <//>`;
}
