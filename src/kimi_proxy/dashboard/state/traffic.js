// What this page knows of the traffic: bounded, whatever happens, and published at most a few times a second.
import { get } from "../lib/api.js";
import { follow } from "./feed.js";
import { showMoneyIn } from "../lib/format.js";
import { useEffect, useState } from "../lib/html.js";
import { withoutSession, withRequest } from "./sums.js";

export const MAX_REQUESTS = 200; // of all sessions
export const MAX_HISTORY = 300; // of one session
const MAX_SESSIONS = 200;
const MAX_HISTORIES = 20;
const MAX_EVENTS = 200;
const REST_MS = 100; // between two drawings

export const known = {
  state: "connecting", // then live, or away
  isReady: false, // once a snapshot came
  store: "", // what is wrong with the disk
  sessions: new Map(), // by id; the last used are the last
  requests: [], // of all sessions, the newest last
  histories: new Map(), // of a session: its requests, the newest last
  compositions: new Map(), // of a session: what fills its window
  alerts: new Map(), // of a session: the newest alert of each kind
  events: [], // cuts, gateway, routing, compression; the newest last
  totals: null, // of all sessions
};

const watchers = new Set();
const takers = new Set(); // of events, for views that keep their own books

/** Draw again whenever something happened, but not more often than eyes can follow. */
export function useKnown() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const watcher = () => redraw((n) => n + 1);
    watchers.add(watcher);
    return () => watchers.delete(watcher);
  }, []);
  return known;
}

/** Call `taker(event)` for each event from now on; gives a function that stops it. */
export function listen(taker) {
  takers.add(taker);
  return () => takers.delete(taker);
}

export function begin() {
  return follow(take, (state) => {
    if (known.state === state) return;
    known.state = state;
    changed();
  });
}

let isPlanned = false;

export function changed() {
  if (isPlanned) return;
  isPlanned = true;
  setTimeout(() => {
    isPlanned = false;
    for (const watcher of [...watchers]) watcher();
  }, REST_MS);
}

const TAKE = {
  init(event) {
    const { sessions = [], metrics = [], alerts = [], totals = null, store = "", currency = null } = event;
    showMoneyIn(currency);
    Object.assign(known, { isReady: true, store, totals, requests: [], events: [] });
    for (const each of [known.sessions, known.histories, known.compositions, known.alerts]) each.clear();
    for (const session of [...sessions].reverse()) known.sessions.set(session.id, session);
    for (const metric of metrics) note(metric);
    for (const each of alerts) alert(each);
  },
  session_created({ session }) {
    const { totals } = known;
    if (totals && !known.sessions.has(session.id)) known.totals = { ...totals, sessions: totals.sessions + 1 };
    meet(session);
  },
  session_renamed: ({ session }) => known.sessions.has(session.id) && rename(session),
  session_deleted: ({ session_id: id }) => (id === null ? [...known.sessions.keys()] : [id]).forEach(forget),
  metric({ metric }) {
    note(metric);
    if (!known.sessions.has(metric.session_id)) look(metric.session_id);
  },
  metric_updated({ metric }) {
    // The snapshot may hold what an event says once more.
    const isNews = find(metric)?.outcome !== metric.outcome;
    note(metric);
    if (isNews) addUp(metric);
  },
  memory_metrics_update: (event) => put(known.compositions, event.session_id, event, MAX_SESSIONS),
  context_alert: (event) => alert(event),
  attention_sink_alert: (event) => alert(event),
};

export function take(event) {
  TAKE[event.type]?.(event);
  if (!(event.type in TAKE)) push(known.events, event, MAX_EVENTS);
  for (const taker of takers) taker(event);
  changed();
}

/** A request that began, went on or ended; what is known of it already is replaced. */
export function note(metric) {
  place(known.requests, metric, MAX_REQUESTS);
  const history = known.histories.get(metric.session_id) ?? [];
  place(history, metric, MAX_HISTORY);
  put(known.histories, metric.session_id, history, MAX_HISTORIES);
}

const looking = new Set();

/** A session that was there long before this page is not among the newest. */
function look(id) {
  if (looking.has(id)) return;
  looking.add(id);
  get(`/api/sessions/${encodeURIComponent(id)}`)
    .then(meet, () => {})
    .finally(() => looking.delete(id));
}

/** Requests of a session that were asked for; those that came meanwhile are newer. */
export function recall(id, metrics) {
  const live = known.histories.get(id) ?? [];
  const ids = new Set(live.map((metric) => metric.id));
  const older = metrics.filter((metric) => !ids.has(metric.id));
  put(known.histories, id, [...older, ...live].sort(byTime).slice(-MAX_HISTORY), MAX_HISTORIES);
  changed();
}

export function meet(session) {
  put(known.sessions, session.id, { ...known.sessions.get(session.id), ...session }, MAX_SESSIONS);
  changed();
}

/** Only its title: what else it says may be older than what is known. */
function rename({ id, title }) {
  known.sessions.set(id, { ...known.sessions.get(id), title });
}

export function forget(id) {
  const session = known.sessions.get(id);
  if (session && known.totals) known.totals = withoutSession(known.totals, session);
  for (const each of [known.sessions, known.histories, known.compositions, known.alerts]) each.delete(id);
  known.requests = known.requests.filter((metric) => metric.session_id !== id);
  changed();
}

export function dismiss(id, kind) {
  known.alerts.get(id)?.delete(kind);
  changed();
}

const byTime = (a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0);

function find(metric) {
  return known.requests.findLast((each) => each.id === metric.id);
}

function place(list, metric, most) {
  const at = list.findLastIndex((each) => each.id === metric.id);
  if (at < 0) push(list, metric, most);
  else list[at] = metric;
}

function push(list, item, most) {
  list.push(item);
  if (list.length > most) list.splice(0, list.length - most);
}

/** A map keeps insertion order: an entry that is set again becomes the newest, and the oldest is evicted. */
function put(map, key, value, most) {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value);
}

function alert(event) {
  const kinds = known.alerts.get(event.session_id) ?? new Map();
  kinds.set(event.type, event);
  put(known.alerts, event.session_id, kinds, MAX_SESSIONS);
}

function addUp(metric) {
  const session = known.sessions.get(metric.session_id);
  const { model, provider, at } = metric;
  if (session) meet({ ...withRequest(session, metric), model, provider, last_used_at: at });
  if (known.totals) known.totals = withRequest(known.totals, metric);
}
