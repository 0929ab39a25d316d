// When to ask again: after something happened, but not all the time.
import { useEffect, useState } from "../lib/html.js";
import { listen } from "./traffic.js";

const REST_MS = 1500;

/** A number that grows after events of a session, or with `null` of none; only those of `types`, if they are named. */
export const useTurn = (id, types = null) =>
  useTurnAfter(
    (event) =>
      event.type === "init" ||
      ((event.session_id ?? event.metric?.session_id ?? null) === id && (!types || types.includes(event.type))),
    id,
  );

/** A number that grows after events for which `isOurs` holds, as it was when `key` changed last. */
export function useTurnAfter(isOurs, key = null) {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer = 0;
    const stop = listen((event) => {
      if (timer || !isOurs(event)) return;
      timer = setTimeout(() => {
        timer = 0;
        setTurn((n) => n + 1);
      }, REST_MS);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [key]);
  return turn;
}
