// Which session is looked at: the one that the viewer pinned, else the busiest. It changes nothing in the traffic.
import { keep, kept } from "./kept.js";
import { known } from "./known.js";
import { signal } from "./signal.js";

const BUSY_MS = 120_000; // how far back "busy" looks
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

function busiest(now) {
  const counts = new Map();
  for (const { session_id: id, at } of known.requests) {
    if (now - Date.parse(at) < BUSY_MS) counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  // The newest of equals: later requests stand later in the list.
  let found = "";
  for (const [id, requests] of counts) if (requests >= (counts.get(found) ?? 0)) found = id;
  return found || known.requests.at(-1)?.session_id || [...known.sessions.keys()].at(-1) || "";
}

export const focused = () => known.sessions.get(focus()) ?? null;

/** What people call a session. */
export function titleOf(session) {
  if (!session) return "";
  return session.title || session.name || `${session.model || "…"} · ${session.id.slice(-6)}`;
}
