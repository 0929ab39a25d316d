// A value whose subscribers are called when it changes.
import { useEffect, useState } from "./html.js";

export function signal(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const listener of [...listeners]) listener();
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** The value of a signal; the component is drawn again when it changes. */
export function useSignal(source) {
  const [, redraw] = useState(0);
  const seen = source.get();
  useEffect(() => {
    const stop = source.listen(() => redraw((n) => n + 1));
    if (source.get() !== seen) redraw((n) => n + 1); // it changed between the drawing and now
    return stop;
  }, [source]);
  return seen;
}
