// The newest requests of one session: asked for once, then followed live.
import { get } from "../lib/api.js";
import { useEffect } from "../lib/html.js";
import { known, recall } from "./traffic.js";

const ASKED = 100; // a page should be light

/** The newest last. Draw with `useKnown` to see it grow. */
export function useHistory(id) {
  const isLive = known.state === "live";
  useEffect(() => {
    if (!id || !isLive) return;
    get(`/api/sessions/${encodeURIComponent(id)}/metrics?limit=${ASKED}`).then(
      ({ metrics }) => recall(id, metrics),
      () => {}, // then what came by the socket has to do
    );
  }, [id, isLive]);
  return known.histories.get(id) ?? [];
}
