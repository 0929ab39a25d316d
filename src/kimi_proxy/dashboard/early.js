// Before the first paint, so that no page flashes in the other theme; a module would come too late.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  let chosen = null;
  try {
    chosen = localStorage.getItem("kimi-proxy.theme");
  } catch {
    // A browser may forbid it: then the system decides.
  }
  document.documentElement.dataset.theme = chosen || system;
})();
