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
  useEffect(() => source.listen(() => redraw((n) => n + 1)), [source]);
  return source.get();
}
