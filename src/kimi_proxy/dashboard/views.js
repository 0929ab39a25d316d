// The views, in the order of the navigation. Each is a module of `views/` that exports `View`, loaded when it is opened;
// its title is `nav_<name>` in words/shell.js. `isOfSession`: it shows one session, which the viewer picks above it.
export const VIEWS = [
  { name: "live", icon: "pulse", load: () => import("./views/live.js"), isOfSession: true },
  { name: "sessions", icon: "list", load: () => import("./views/sessions.js") },
  { name: "map", icon: "map", load: () => import("./views/map.js"), isOfSession: true },
  { name: "cuts", icon: "scissors", load: () => import("./views/cuts.js") },
  { name: "compression", icon: "compress", load: () => import("./views/compression.js"), isOfSession: true },
  { name: "playground", icon: "flask", load: () => import("./views/playground.js") },
  { name: "servers", icon: "plug", load: () => import("./views/servers.js") },
  { name: "team", icon: "people", load: () => import("./views/team.js"), isForTeams: true },
  { name: "settings", icon: "sliders", load: () => import("./views/settings.js") },
];
