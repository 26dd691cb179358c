// Keys that the playground makes: each holds for ten minutes, and goes when they are over.
import * as api from "../lib/api.js";
import { may } from "../lib/ui.js";

const MINUTES = 10;
const PREFIX = "playground-";
const NAME = /^playground-[0-9a-z]{6,12}$/;

// Makes a key. Returns its name and its text.
export async function makeKey() {
  await removeExpired();
  const name = PREFIX + Date.now().toString(36);
  const expires = `${new Date(Date.now() + MINUTES * 60_000).toISOString().slice(0, 19)}Z`;
  const answer = await api.post("/keys", { name, expires, limits: { spend_per_day: "1" } });
  return { name, text: answer.key };
}

export const removeKey = (name) => api.remove(`/keys/${api.segment(name)}`);

// Removes the keys of the playground that have expired, for a caller who may do that. Returns how many. What fails is left for the next
// time.
export async function removeExpired() {
  if (!may("admin")) return 0;
  const keys = await api.pages("/keys", { q: `${PREFIX} expired` }, 100).catch(() => []);
  let removed = 0;
  for (const key of keys.filter((one) => one.state === "expired" && NAME.test(one.name))) {
    if (await removeKey(key.name).catch(() => null)) removed += 1;
  }
  return removed;
}
