// Plots in SVG: lines over time, bars over days, sparklines, shares. Each has a sentence that says what it shows, and a
// table with the same numbers.
import { html, useEffect, useRef, useState } from "./html.js";
import { clock } from "./format.js";

// Returns the width of an element in pixels, so that text in plots is never scaled.
function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

// Returns round numbers from 0 to at least `most`, whole ones if `whole`.
export function ticks(most, whole = false) {
  if (!(most > 0)) return [0, 1];
  const rough = whole ? Math.max(1, most / 3) : most / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = (whole && power < 10 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10]).map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const all = [];
  for (let value = 0; value < most + step * 0.999; value += step) all.push(value);
  return all;
}

const LEFT = 54;
const BOTTOM = 20;
const TOP = 8;

function Axis({ marks, y, width, format }) {
  return marks.map(
    (mark) => html`<g class="axis">
      <line x1=${LEFT} x2=${width} y1=${y(mark)} y2=${y(mark)} />
      <text x=${LEFT - 8} y=${y(mark) + 4} text-anchor="end">${format(mark)}</text>
    </g>`,
  );
}

function Legend({ series, values, format, when }) {
  return html`<ul class="legend" aria-hidden="true">
    ${when && html`<li class="when">${when}</li>`}
    ${series.map(
      (one, index) => html`<li><span class=${`key c${one.color ?? index}`}></span>${one.name}${values && html` <b>${values[index] == null ? "–" : format(values[index])}</b>`}</li>`,
    )}
  </ul>`;
}

function Numbers({ head, rows, caption }) {
  return html`<details class="numbers">
    <summary>As a table</summary>
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <caption class="hidden">${caption}</caption>
        <thead><tr>${head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr>${row.map((cell, i) => (i ? html`<td>${cell}</td>` : html`<th scope="row">${cell}</th>`))}</tr>`)}</tbody>
      </table>
    </div>
  </details>`;
}

function Frame({ caption, children, legend, numbers, wide }) {
  return html`<figure class=${`plot${wide ? " wide" : ""}`}>${legend}${children}<figcaption>${caption}</figcaption>${numbers}</figure>`;
}

// Lines over time. `series`: [{ name, points: [[ms, value]], color, dash, fill }]; values may be null.
export function Lines({ series, format, caption, height = 168, waiting }) {
  const [ref, width] = useWidth();
  const [at, setAt] = useState(null);
  const times = series[0]?.points.map(([time]) => time) || [];
  const end = times.at(-1) || Date.now();
  // As much as there is, from two minutes on, so that a page that was just opened is not empty.
  const seen = end - (times[0] ?? end);
  const span = [120_000, 300_000, 900_000].find((length) => seen <= length * 0.97) || 900_000;
  const from = end - span;
  const values = series.flatMap((one) => one.points.map(([, value]) => value)).filter((value) => value != null);
  const marks = ticks(Math.max(0, ...values));
  const top = marks.at(-1) || 1;
  const inner = Math.max(1, width - LEFT - 4);
  const x = (time) => LEFT + (inner * (time - from)) / span;
  const y = (value) => height - BOTTOM - ((height - BOTTOM - TOP) * value) / top;
  const path = (points) => {
    let text = "";
    let pen = "M";
    for (const [time, value] of points) {
      if (value == null || time < from) {
        pen = "M";
        continue;
      }
      text += `${pen}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    }
    return text;
  };
  const area = (points) => {
    const drawn = points.filter(([time, value]) => value != null && time >= from);
    if (drawn.length < 2) return "";
    return `${path(drawn)}L${x(drawn.at(-1)[0]).toFixed(1)} ${y(0)}L${x(drawn[0][0]).toFixed(1)} ${y(0)}Z`;
  };
  const pick = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const time = from + (span * (event.clientX - box.left - LEFT)) / inner;
    let best = null;
    times.forEach((other, index) => {
      if (best === null || Math.abs(other - time) < Math.abs(times[best] - time)) best = index;
    });
    setAt(best);
  };
  const index = at !== null && at < times.length ? at : times.length - 1;
  const shown = times.length ? series.map((one) => one.points[index]?.[1]) : null;
  const minutes = (span > 300_000 ? [10, 5] : span > 120_000 ? [4, 2] : [1]).map((m) => [end - m * 60_000, `−${m} min`]);
  const rows = times.map((time, i) => [clock(time), ...series.map((one) => (one.points[i]?.[1] == null ? "–" : format(one.points[i][1])))]);
  return html`<${Frame}
    caption=${caption}
    legend=${html`<${Legend} series=${series} values=${shown} format=${format} when=${at !== null && times[index] ? clock(times[index]) : "now"} />`}
    numbers=${html`<${Numbers} caption=${caption} head=${["Time", ...series.map((one) => one.name)]} rows=${rows.slice(-60).reverse()} />`}
  >
    <div ref=${ref} class="canvas">
      ${width > 0 && html`<svg width=${width} height=${height} aria-hidden="true" onPointerMove=${pick} onPointerLeave=${() => setAt(null)}>
        <${Axis} marks=${marks} y=${y} width=${width} format=${format} />
        ${minutes.map(([time, text]) => html`<text class="tick" x=${x(time)} y=${height - 4} text-anchor="middle">${text}</text>`)}
        <text class="tick" x=${width - 4} y=${height - 4} text-anchor="end">now</text>
        ${series.map((one, i) => one.fill && html`<path class=${`area c${one.color ?? i}`} d=${area(one.points)} />`)}
        ${series.map((one, i) => html`<path class=${`line c${one.color ?? i}`} stroke-dasharray=${one.dash} d=${path(one.points)} />`)}
        ${at !== null && times[index] >= from && html`<line class="cross" x1=${x(times[index])} x2=${x(times[index])} y1=${TOP} y2=${height - BOTTOM} />`}
        ${times.length < 2 && html`<text class="waiting" x=${width / 2} y=${height / 2} text-anchor="middle">${waiting || "Collecting: the first point comes in a few seconds"}</text>`}
      </svg>`}
    </div>
  <//>`;
}

// Bars over days or other names, stacked. `names`: labels; `series`: [{ name, values, color }].
export function Bars({ names, series, format, caption, height = 210 }) {
  const [ref, width] = useWidth();
  const [at, setAt] = useState(null);
  const sums = names.map((_, i) => series.reduce((sum, one) => sum + (one.values[i] || 0), 0));
  const marks = ticks(Math.max(0, ...sums), sums.every(Number.isInteger));
  const top = marks.at(-1) || 1;
  const inner = Math.max(1, width - LEFT - 4);
  const step = inner / Math.max(1, names.length);
  const bar = Math.max(1, Math.min(48, step * 0.72));
  const y = (value) => height - BOTTOM - ((height - BOTTOM - TOP) * value) / top;
  const every = Math.max(1, Math.ceil((names.length * 62) / inner));
  const pick = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const index = Math.floor((event.clientX - box.left - LEFT) / step);
    setAt(index >= 0 && index < names.length ? index : null);
  };
  const values = at === null ? series.map((one) => one.values.reduce((sum, value) => sum + (value || 0), 0)) : series.map((one) => one.values[at]);
  const rows = names.map((name, i) => [name, ...series.map((one) => format(one.values[i] || 0))]);
  return html`<${Frame}
    wide
    caption=${caption}
    legend=${html`<${Legend} series=${series} values=${values} format=${format} when=${at === null ? "all" : names[at]} />`}
    numbers=${html`<${Numbers} caption=${caption} head=${["", ...series.map((one) => one.name)]} rows=${rows} />`}
  >
    <div ref=${ref} class="canvas">
      ${width > 0 && html`<svg width=${width} height=${height} aria-hidden="true" onPointerMove=${pick} onPointerLeave=${() => setAt(null)}>
        <${Axis} marks=${marks} y=${y} width=${width} format=${format} />
        ${names.map((name, i) => {
          let base = 0;
          const middle = LEFT + step * (i + 0.5);
          return html`<g class=${at !== null && at !== i ? "faded" : ""}>
            ${series.map((one, s) => {
              const value = one.values[i] || 0;
              if (value <= 0) return null;
              base += value;
              return html`<rect class=${`bar c${one.color ?? s}`} x=${middle - bar / 2} width=${bar} y=${y(base)} height=${Math.max(0.5, y(base - value) - y(base))} rx="1.5" />`;
            })}
            ${i % every === 0 && html`<text class="tick" x=${middle} y=${height - 4} text-anchor="middle">${name.length > 10 ? `${name.slice(0, 9)}…` : name.replace(/^\d{4}-/, "")}</text>`}
          </g>`;
        })}
      </svg>`}
    </div>
  <//>`;
}

// A line without axes, for a stat.
export function Spark({ values, color = 0 }) {
  const [ref, width] = useWidth();
  const known = values.filter((value) => value != null);
  const top = Math.max(...known, 1e-9);
  const height = 28;
  const at = (value, i) => `${((width * i) / Math.max(1, values.length - 1)).toFixed(1)} ${(height - 2 - ((height - 4) * value) / top).toFixed(1)}`;
  let line = "";
  values.forEach((value, i) => {
    if (value != null) line += `${line ? "L" : "M"}${at(value, i)}`;
  });
  return html`<div ref=${ref} class="spark">
    ${width > 0 && html`<svg width=${width} height=${height} aria-hidden="true">
      ${known.length > 1 && html`<path class=${`area c${color}`} d=${`${line}L${width} ${height}L0 ${height}Z`} /><path class=${`line c${color}`} d=${line} />`}
    </svg>`}
  </div>`;
}

// A part of a whole, as a bar with words beside it.
export function Share({ part, label, tone = "" }) {
  const shown = Math.max(0, Math.min(1, part || 0));
  return html`<svg class=${`share ${tone}`} viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="whole" width="100" height="6" /><rect class="part" width=${100 * shown} height="6" />
  </svg>`;
}
