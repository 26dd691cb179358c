// Limits of a key or an account with what is used of them, as bars.
import { html } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, percent, priced, span } from "../lib/format.js";
import { Share } from "../lib/plot.js";
import { Failed, useLoad } from "../lib/ui.js";

export const LABELS = {
  requests_per_minute: ["Requests per minute", count],
  tokens_per_minute: ["Tokens per minute", count],
  concurrent: ["Concurrent requests", count],
  spend_per_day: ["Spend today (UTC)", priced],
  spend_per_month: ["Spend this month (UTC)", priced],
};

function Bar({ item }) {
  const [label, format] = LABELS[item.limit] || [item.limit, (text) => text];
  const most = format(item.most);
  if (item.used == null)
    return html`<li><span>${label}</span><b>${most}</b><small class="muted">The gateways of a fleet share it: this one does not know what the others use.</small></li>`;
  const part = item.share_percent / 100;
  const left = item.resets ? new Date(item.resets) - Date.now() : 0;
  return html`<li>
    <span>${label}</span><b>${format(item.used)} of ${most} <span class="muted">${percent(part, 1)}</span></b>
    <${Share} part=${part} tone=${part >= 1 ? "bad" : part > 0.8 ? "warn" : ""} label=${`${label}: ${percent(part, 1)} used`} />
    ${left > 1000 && Number(item.used) > 0 && html`<small class="muted">All of it is there again in ${span(left)}.</small>`}
  </li>`;
}

// `path`: of the key or the account.
export function LimitUse({ path, title }) {
  const [found, error] = useLoad(() => api.get(`${path}/limits`), [path], 5_000);
  if (error) return html`<${Failed} error=${error} />`;
  if (!found?.items.length) return null;
  return html`<h3>${title}</h3><ul class="ranks limits">${found.items.map((item) => html`<${Bar} key=${item.limit} item=${item} />`)}</ul>`;
}
