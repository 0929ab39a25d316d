// The sessions that are listed: a page at a time, or those in which words stand; what events say is newer.
import { get } from "../../lib/api.js";
import { useEffect, useState } from "../../lib/html.js";
import { known, listen } from "../../state/traffic.js";

const PAGE = 100;
const TYPING_MS = 200;

export function useFound(asked) {
  const [pages, setPages] = useState({ query: "", sessions: [], total: 0, after: null });
  const [error, setError] = useState(null);
  const [round, setRound] = useState(0);
  const query = asked.trim();

  useEffect(() => {
    let isWanted = true;
    const path = `/api/sessions?limit=${PAGE}${query ? `&q=${encodeURIComponent(query)}` : ""}`;
    const timer = setTimeout(
      () => {
        get(path).then(
          (page) => {
            if (!isWanted) return;
            setPages({ ...page, query });
            setError(null);
          },
          (failure) => isWanted && setError(failure),
        );
      },
      query ? TYPING_MS : 0,
    );
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [query, round]);

  // Another viewer may delete one, or all; after a gap no event says what was deleted.
  useEffect(() => listen((event) => ["session_deleted", "init"].includes(event.type) && setRound((n) => n + 1)), []);

  const more = () =>
    get(`/api/sessions?limit=${PAGE}&after=${encodeURIComponent(pages.after)}`).then(
      // A person who searched meanwhile sees another list.
      (page) => setPages((now) => (now === pages ? { ...page, query, sessions: joined(pages.sessions, page.sessions) } : now)),
      setError,
    );

  const sessions = withNews(pages.sessions, pages.query === "");
  return {
    sessions,
    total: Math.max(pages.total, sessions.length),
    error,
    more: pages.after ? more : null,
    again: () => setRound((n) => n + 1),
  };
}

/** One that was used meanwhile stands in two pages. */
function joined(listed, older) {
  const ids = new Set(listed.map(({ id }) => id));
  return [...listed, ...older.filter(({ id }) => !ids.has(id))];
}

/** In the order in which they were listed, so that no row moves under the pointer; who comes meanwhile stands on top. */
function withNews(listed, takesNew) {
  const ids = new Set(listed.map(({ id }) => id));
  const came = takesNew ? [...known.sessions.values()].filter(({ id }) => !ids.has(id)).sort(lastUsedFirst) : [];
  return [...came, ...listed.map((session) => ({ ...session, ...known.sessions.get(session.id) }))];
}

const lastUsedFirst = (a, b) => (a.last_used_at < b.last_used_at ? 1 : -1);
