// What this browser remembers of its user's choices; nothing of the traffic.
const PREFIX = "kimi-proxy.";

export function kept(name, fallback = "") {
  try {
    return localStorage.getItem(PREFIX + name) ?? fallback;
  } catch {
    return fallback; // a browser may forbid it
  }
}

export function keep(name, value) {
  try {
    if (value === "") localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // Then it is chosen again next time.
  }
}
