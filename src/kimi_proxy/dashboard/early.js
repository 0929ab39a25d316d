// Before the first paint, so that no page flashes in the other theme; a module would come too late.
(() => {
  const chosen = localStorage.getItem("kimi-proxy.theme");
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = chosen || system;
})();
