// Who looks: a person of a team, or the only one there is. Asked once the server lets us in.
import { get, locked } from "../lib/api.js";
import { signal } from "../lib/signal.js";

/** `{is_team, person, team, role}` as /api/me says it; without a role until it has answered. */
export const me = signal({ is_team: false, person: "", team: "", role: "" });

const ask = () => get("/api/me").then(me.set, () => {});

export function beginMe() {
  ask();
  locked.listen(() => locked.get() || ask());
}
