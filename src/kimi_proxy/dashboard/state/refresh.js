// When to ask again about a session: after it did something, but not all the time.
import { useEffect, useState } from "../lib/html.js";
import { listen } from "./traffic.js";

const REST_MS = 1500;

/** A number that grows after events of a session, or with `null` of none; only those of `types`, if they are named. */
export function useTurn(id, types = null) {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer = 0;
    const stop = listen((event) => {
      const isOurs =
        (event.session_id ?? event.metric?.session_id ?? null) === id && (!types || types.includes(event.type));
      if (!timer && (isOurs || event.type === "init")) {
        timer = setTimeout(() => {
          timer = 0;
          setTurn((n) => n + 1);
        }, REST_MS);
      }
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [id]);
  return turn;
}
