// Everything that happens, from `/ws`: a snapshot, then events in order; after a break, what was missed.
import { get, locked, token } from "../lib/api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

/** `onEvent` gets every event; `onState` gets "connecting", "live" or "away". Gives a function that ends it. */
export function follow(onEvent, onState) {
  let since = null;
  let wait = FIRST_WAIT_MS;
  let socket = null;
  let timer = 0;

  function connect() {
    let hasOpened = false;
    onState(since === null ? "connecting" : "away");
    socket = new WebSocket(address(since), protocols());
    socket.onopen = () => {
      hasOpened = true;
      wait = FIRST_WAIT_MS;
      onState("live");
    };
    socket.onmessage = ({ data }) => take(JSON.parse(data));
    socket.onclose = () => {
      // A socket does not say why it was refused; a plain question finds out whether a token is missing.
      if (!hasOpened) get("/api/sessions?limit=1").catch(() => {});
      retry();
    };
  }

  function take(event) {
    if (event.type === "gap") {
      since = null; // too much was lost to go on: begin again
      socket.close();
      return;
    }
    since = event.seq;
    onEvent(event);
  }

  function retry() {
    onState("away");
    // Half of the wait by chance, so that tabs do not all come back at once.
    timer = setTimeout(() => (locked.get() ? retry() : connect()), wait * (0.5 + Math.random() / 2));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }

  const stopListening = locked.listen(() => {
    if (locked.get()) return;
    clearTimeout(timer);
    connect();
  });
  connect();
  return () => {
    stopListening();
    clearTimeout(timer);
    socket.onclose = null;
    socket.close();
  };
}

function address(since) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${location.host}/ws${since === null ? "" : `?since=${since}`}`;
}

/** A page can't set headers for a WebSocket, but it can offer protocols. */
function protocols() {
  if (!token()) return [];
  const coded = btoa(String.fromCharCode(...new TextEncoder().encode(token())));
  return ["kimi-proxy", `bearer.${coded.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`];
}
