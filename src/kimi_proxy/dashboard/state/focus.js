// Which session is looked at: the one that the viewer pinned, else the busiest. It changes nothing in the traffic.
import { keep, kept } from "../lib/storage.js";
import { known } from "./traffic.js";
import { signal } from "../lib/signal.js";

const BUSY_MS = 300_000; // how far back "busy" looks
const HALF_MS = 20_000;
const STAY_MS = 8_000; // the view does not jump more often

export const pinned = signal(kept("pinned"));

export function pin(id) {
  keep("pinned", id);
  pinned.set(id);
}

let followed = "";
let since = 0;

/** The id of the session to show, or "" while there is none. */
export function focus(now = Date.now()) {
  if (pinned.get()) return pinned.get();
  if (known.sessions.has(followed) && now - since < STAY_MS) return followed;
  const next = busiest(now);
  if (next !== followed) [followed, since] = [next, now];
  return followed;
}

/** Who asked most and last: a request counts half after each `HALF_MS`. */
function busiest(now) {
  const weights = new Map();
  for (const { session_id: id, at } of known.requests) {
    const age = Math.max(0, now - Date.parse(at));
    if (age < BUSY_MS) weights.set(id, (weights.get(id) ?? 0) + 0.5 ** (age / HALF_MS));
  }
  const [found] = [...weights].sort(([, a], [, b]) => b - a);
  return found?.[0] ?? known.requests.at(-1)?.session_id ?? [...known.sessions.keys()].at(-1) ?? "";
}

export const focused = () => known.sessions.get(focus()) ?? null;

/** What people call a session. */
export function titleOf(session) {
  if (!session) return "";
  return session.title || session.name || `${session.model || "…"} · ${session.id.slice(-6)}`;
}
