// Signs of the pages in the navigation, drawn as lines on a field of 16 by 16. They repeat the word beside them.
import { html } from "./html.js";

const PATHS = {
  overview: "M2 9.5a6 6 0 0 1 12 0M8 9.5l2.6-3M2 12.5h12",
  requests: "M2 4h9M2 8h12M2 12h7",
  targets: "M8 2v3M8 11v3M2 8h3M11 8h3M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6",
  errors: "M8 2.5 14 13H2zM8 6.5v3M8 11.2v.1",
  usage: "M2.5 13.5v-4M6.2 13.5v-8M9.8 13.5v-6M13.5 13.5v-11",
  cache: "M2.5 4.2c0 2.4 11 2.4 11 0s-11-2.4-11 0v7.6c0 2.4 11 2.4 11 0V4.2M2.5 8c0 2.4 11 2.4 11 0",
  accounts: "M2 4.5h10.5v8H2zM12.5 7H14v3h-3a1.5 1.5 0 0 1 0-3zM2 4.5 10 2v2.5",
  limits: "M2.5 11.5a6 6 0 1 1 11 0M8 8.5V5",
  keys: "M9.5 6.5a3 3 0 1 1 .1-.1L14 10.8V13h-2.4v-1.8H9.8V9.4L8.6 8.2M5.9 4.4v.1",
  models: "M8 2l5.5 3v6L8 14l-5.5-3V5zM8 8l5.5-3M8 8v6M8 8 2.5 5",
  config: "M2 4.5h6M11.5 4.5H14M2 11.5h2.5M8 11.5h6M9.8 2.8a1.7 1.7 0 1 0 0 3.4 1.7 1.7 0 0 0 0-3.4M6.2 9.8a1.7 1.7 0 1 0 0 3.4 1.7 1.7 0 0 0 0-3.4",
  playground: "M3.5 2.5 13 8l-9.5 5.5z",
  setup: "M2 3h12v10H2zM4.5 6.5 6.5 8l-2 1.5M8 10h3",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}
