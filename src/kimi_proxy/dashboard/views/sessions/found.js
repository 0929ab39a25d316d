// The sessions that are listed: a page at a time, or those in which words stand; what news tell is newer.
import { get } from "../../api.js";
import { useEffect, useState } from "../../html.js";
import { known } from "../../known.js";

const PAGE = 50;
const TYPING_MS = 200;

export function useFound(asked) {
  const [pages, setPages] = useState({ sessions: [], total: 0, after: null });
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
            setPages(page);
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

  const more = () =>
    get(`/api/sessions?limit=${PAGE}&after=${encodeURIComponent(pages.after)}`).then(
      (page) => setPages({ ...page, sessions: [...pages.sessions, ...page.sessions] }),
      setError,
    );

  const sessions = newest(pages.sessions, query ? [] : [...known.sessions.values()]);
  return {
    sessions,
    total: Math.max(pages.total, sessions.length),
    error,
    more: pages.after ? more : null,
    again: () => setRound(round + 1),
  };
}

function newest(listed, live) {
  const byId = new Map(listed.map((session) => [session.id, session]));
  for (const session of live) byId.set(session.id, session);
  for (const { id } of listed) if (known.sessions.has(id)) byId.set(id, known.sessions.get(id));
  return [...byId.values()].sort((a, b) => (a.last_used_at < b.last_used_at ? 1 : -1));
}
