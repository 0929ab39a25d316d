export default {
  en: {
    sanitized: {
      one: "{n} tool output cut: {tokens} tokens less",
      other: "{n} tool outputs cut: {tokens} tokens less",
    },
    pruned: { one: "{n} line of {of} pruned", other: "{n} lines of {of} pruned" },
    masked: {
      one: "{n} answer of {server} masked, {chars} characters",
      other: "{n} answers of {server} masked, {chars} characters",
    },
    would_mask: {
      one: "Observed: {n} answer of {server} would be masked, {chars} characters",
      other: "Observed: {n} answers of {server} would be masked, {chars} characters",
    },
    server_failed: "{server} failed: {outcome}",
    compressed: "Compressed from {before} to {after} tokens",
    compressed_itself: "Compressed automatically from {before} to {after} tokens",
    undone: "A compression was undone",
    routed: "Routed to {to}: the context window of {from} would be {share} full",
    unrouted: "{from} is nearly full, and no larger model is configured",
    reinjected: "The system prompt was repeated, {tokens} tokens",
    memory_injected: "Project memory added to a new conversation, {tokens} tokens",
    settings: "A setting was changed",
  },
  fr: {
    sanitized: {
      one: "{n} sortie d’outil coupée : {tokens} jetons de moins",
      other: "{n} sorties d’outils coupées : {tokens} jetons de moins",
    },
    pruned: { one: "{n} ligne sur {of} élaguée", other: "{n} lignes sur {of} élaguées" },
    masked: {
      one: "{n} réponse de {server} masquée, {chars} caractères",
      other: "{n} réponses de {server} masquées, {chars} caractères",
    },
    would_mask: {
      one: "Observation : {n} réponse de {server} serait masquée, {chars} caractères",
      other: "Observation : {n} réponses de {server} seraient masquées, {chars} caractères",
    },
    server_failed: "{server} n’a pas répondu : {outcome}",
    compressed: "Compressée de {before} à {after} jetons",
    compressed_itself: "Compressée d’elle-même de {before} à {after} jetons",
    undone: "Une compression a été annulée",
    routed: "{to} répond à la place de {from}, dont la fenêtre serait pleine à {share}",
    unrouted: "{from} est presque plein, et aucun modèle à plus grande fenêtre n’est configuré",
    reinjected: "Des instructions enfouies ont été répétées, {tokens} jetons",
    memory_injected: "La mémoire du projet a été ajoutée à une nouvelle conversation, {tokens} jetons",
    settings: "Un réglage a été changé",
  },
};
