export default {
  en: {
    how: "In another terminal, start your agent with this address; its requests appear here live:",
    init: "Or save the address in the agent’s own settings (--undo reverts it). In a clone, the command is .venv/bin/kimi-proxy:",
    demo: "Or watch a scripted working day, without a key or a network:",
    try: "Try it on a text of your own",
  },
  fr: {
    how: "Dans un autre terminal, lancez votre agent avec cette adresse ; ses requêtes apparaissent ici en direct :",
    init: "Ou enregistrez l’adresse dans les réglages de l’agent (--undo l’annule). Dans un clone, la commande est .venv/bin/kimi-proxy :",
    demo: "Ou regardez une journée de travail simulée, sans clé ni réseau :",
    try: "Essayer avec votre propre texte",
  },
};
