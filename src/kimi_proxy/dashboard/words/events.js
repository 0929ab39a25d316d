export default {
  en: {
    sanitized: {
      one: "{n} tool result cut: {tokens} tokens fewer",
      other: "{n} tool results cut: {tokens} tokens fewer",
    },
    pruned: { one: "{n} line of {of} pruned", other: "{n} lines of {of} pruned" },
    recall_refused:
      "An agent has no permission for recover_text: nothing new is cut in its session; kimi-proxy doctor says how to allow it",
    masked: {
      one: "{n} result from {server} masked, {chars} characters",
      other: "{n} results from {server} masked, {chars} characters",
    },
    would_mask: {
      one: "Observed: {n} result from {server} would be masked, {chars} characters",
      other: "Observed: {n} results from {server} would be masked, {chars} characters",
    },
    uncut: "A result from {server} was not masked: an internal error, see the log",
    server_failed: "{server} failed: {outcome}",
    compressed: "Compressed from {before} to {after} tokens",
    compressed_itself: "Compressed automatically from {before} to {after} tokens",
    undone: "A compression was undone",
    routed: "Routed to {to}: the context window of {from} would be {share} full",
    unrouted: "The context window of {from} is nearly full, and no larger model is configured",
    reinjected: "The system prompt was repeated, {tokens} tokens",
    memory_injected: "Project memory added to a new conversation, {tokens} tokens",
    settings: "A setting was changed",
  },
  fr: {
    sanitized: {
      one: "{n} résultat d’outil coupé : {tokens} jetons de moins",
      other: "{n} résultats d’outils coupés : {tokens} jetons de moins",
    },
    pruned: { one: "{n} ligne sur {of} élaguée", other: "{n} lignes sur {of} élaguées" },
    recall_refused:
      "Un agent n’a pas la permission d’appeler recover_text : rien de nouveau n’est coupé dans sa session ; kimi-proxy doctor dit comment l’accorder",
    masked: {
      one: "{n} réponse de {server} masquée, {chars} caractères",
      other: "{n} réponses de {server} masquées, {chars} caractères",
    },
    would_mask: {
      one: "Observation : {n} réponse de {server} serait masquée, {chars} caractères",
      other: "Observation : {n} réponses de {server} seraient masquées, {chars} caractères",
    },
    uncut: "Une réponse de {server} n’a pas été masquée : erreur interne, voir le journal",
    server_failed: "{server} a échoué : {outcome}",
    compressed: "Compressée de {before} à {after} jetons",
    compressed_itself: "Compressée automatiquement de {before} à {after} jetons",
    undone: "Une compression a été annulée",
    routed: "Redirigée vers {to} : la fenêtre de contexte de {from} serait pleine à {share}",
    unrouted: "La fenêtre de contexte de {from} est presque pleine, et aucun modèle plus grand n’est configuré",
    reinjected: "Le prompt système a été répété, {tokens} jetons",
    memory_injected: "La mémoire du projet a été ajoutée à une nouvelle conversation, {tokens} jetons",
    settings: "Un réglage a été modifié",
  },
};
