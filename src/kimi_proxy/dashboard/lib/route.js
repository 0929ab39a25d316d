// Which view is seen: `#/name`, with the rest of the path for the view itself.
import { signal } from "./signal.js";

const parse = () => location.hash.replace(/^#\/?/, "").split("/").map(decoded);

export const route = signal(parse());
addEventListener("hashchange", () => route.set(parse()));

export const link = (...path) => "#/" + path.map(encodeURIComponent).join("/");

export function go(...path) {
  location.hash = link(...path);
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
